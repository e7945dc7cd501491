"""Distributions of the least and the greatest value of segments: enough for thresholds.

``x < c`` holds somewhere on a segment whose least value is below ``c``, and all along where its
greatest is: no histogram over coefficients is needed, whatever the degree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.errors import StateError
from eddyline.estimates.histograms import CoefHistogram

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats

MAX_CELLS = 200
"""Cells of each of the two distributions."""

UP, DOWN = (">", ">="), ("<", "<=")


@dataclass(frozen=True, eq=False)
class ValueSketch:
    """The least and the greatest value of an expression on segments.

    Attributes:
        least: its least values, as polynomials of degree 0.
        greatest: its greatest.
        n_none: segments on which it has no value, or none that is known to be finite.
    """

    least: CoefHistogram
    greatest: CoefHistogram
    n_none: float = 0.0

    @classmethod
    def empty(cls) -> ValueSketch:
        """Return the sketch of no segment."""
        return cls(CoefHistogram.empty(1), CoefHistogram.empty(1))

    @classmethod
    def of(cls, low: Floats, high: Floats) -> ValueSketch:
        """Return the sketch of segments, ``[n]`` each."""
        known = np.isfinite(low) & np.isfinite(high)
        none, zero = float((~known).sum()), np.zeros(int(known.sum()))
        least, greatest = (
            CoefHistogram.of(each[known, None], zero, MAX_CELLS) for each in (low, high)
        )
        return cls(least, greatest, none)

    @property
    def total(self) -> float:
        """How many segments there are, older ones perhaps counting less."""
        return self.least.total + self.n_none

    def merged(self, other: ValueSketch) -> ValueSketch:
        """Return the sketch of the segments of both."""
        return ValueSketch(
            self.least.merged(other.least, max_cells=MAX_CELLS),
            self.greatest.merged(other.greatest, max_cells=MAX_CELLS),
            self.n_none + other.n_none,
        )

    def decayed(self, share: float) -> ValueSketch:
        """Return the sketch in which each segment counts that share of what it did."""
        return ValueSketch(
            self.least.decayed(share), self.greatest.decayed(share), self.n_none * share
        )

    def any(self, op: str, constants: Floats) -> Floats:
        """Return on what share of segments a comparison with each constant holds somewhere."""
        if op in UP:
            found = self.greatest.total - _below(self.greatest, constants, or_at=op == ">")
        elif op in DOWN:
            found = _below(self.least, constants, or_at=op == "<=")
        else:
            met = _below(self.least, constants, or_at=True)
            met -= _below(self.greatest, constants, or_at=False)
            found = met if op == "=" else np.full(len(constants), self.least.total)
        return self._share(found)

    def whole(self, op: str, constants: Floats) -> Floats:
        """Return on what share of segments a comparison with each constant holds all along."""
        if op in UP:
            found = self.least.total - _below(self.least, constants, or_at=op == ">")
        elif op in DOWN:
            found = _below(self.greatest, constants, or_at=op == "<=")
        elif op == "<>":
            found = self.least.total - _below(self.least, constants, or_at=True)
            found += _below(self.greatest, constants, or_at=False)
        else:
            found = np.zeros(len(constants))
        return self._share(found)

    def _share(self, found: Floats) -> Floats:
        return np.clip(found / max(self.total, 1e-300), 0.0, 1.0)

    # -- saving ---------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "least": self.least.to_state(),
            "greatest": self.greatest.to_state(),
            "n_none": self.n_none,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ValueSketch:
        """Return what ``to_state`` gave.

        Raises:
            StateError: it is no sketch.
        """
        try:
            least, greatest = (
                CoefHistogram.from_state(state[name]) for name in ("least", "greatest")
            )
            return cls(least, greatest, float(state["n_none"]))
        except (KeyError, TypeError, ValueError) as error:
            msg = f"a saved sketch of values is damaged: {error!r}"
            raise StateError(msg) from error


def _below(values: CoefHistogram, constants: Floats, *, or_at: bool) -> Floats:
    """Return how many values are below each constant."""
    low, width = values.low[:, 0], values.high[:, 0] - values.low[:, 0]
    room = constants[:, None] - low
    at = room >= 0.0 if or_at else room > 0.0
    share = np.where(width > 0.0, np.clip(room / np.where(width > 0.0, width, 1.0), 0.0, 1.0), at)
    found: Floats = share @ values.counts
    return found

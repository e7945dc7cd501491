"""Situations: the conditions under which a plan is good, in units that can be compared.

Every condition is a share ([0, 1]): of rows that a filter drops, of rows that are left as cells.
Shares are compared as angles, asin √share: there the noise of a share that was counted over n rows
is 1 / (2 √n), whatever the share.

``Conditions`` counts shares batch by batch, where no monitor says when they change. A batch whose
shares are further from those before it than a situation is left at begins anew. So what is known is
never of two situations together.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats

ALIKE = 0.1
"""Angles that differ by less are the same however well they were measured: shares of 0.45 and 0.55,
or of 0.01 and 0.04."""

UNKNOWN = float("inf")
"""Distance where nothing can be compared."""

LEAVES = 1.5
"""Distance at which a situation is left: it is looked at in every batch, so that a distance at
which one is only not recognized comes by chance."""

LEAST_ROWS = 30
"""Sampled rows below which they tell nothing, and rows of a batch below which these do not."""

MOST_TOLD = 40
"""Conditions that the journal tells of a situation."""

Z_SCORE = 2.5
"""Standard errors of both measurements by which they may differ beyond that."""


@dataclass(frozen=True, slots=True)
class Met:
    """What the rows of the last batch met, whether they were sampled or not."""

    plan: Any
    """The plan that all of them met."""
    shares: Floats
    """What is seen of the conditions under that plan ([0, 1]; nan: not known; (K,))."""
    counts: Floats
    """Rows that each was counted over (≥ 0; (K,))."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is measured of the conditions of a plan."""

    names: tuple[str, ...]
    """What the conditions are of, for people; situations of other names are not compared."""
    shares: Floats
    """The conditions ([0, 1]; nan: not known; (C,))."""
    counts: Floats
    """Rows that each was counted over (> 0; (C,))."""
    evidence: Any
    """Plain values by which any plan can be priced later; see ``Choice.cost_of``."""
    n_sampled: float
    """Rows that were looked at."""
    is_settled: bool
    """Whether there are enough of them to choose a plan by."""
    met: Met | None = None
    """What all rows of the last batch showed; never saved."""

    def distance(self, other: Situation) -> float:
        """Return how far apart two are by their conditions; see ``distance``."""
        if self.names != other.names:
            return UNKNOWN
        return distance(self.shares, self.counts, other.shares, other.counts)

    def plain(self) -> dict[str, float]:
        """Return the conditions for the journal: those that are known, the first of many."""
        named = zip(self.names, self.shares.tolist(), strict=True)
        known = ((name, round(share, 4)) for name, share in named if np.isfinite(share))
        return dict(islice(known, MOST_TOLD))


def distance(shares: Floats, counts: Floats, other: Floats, other_counts: Floats) -> float:
    """Return how far apart the same shares of two measurements are; up to 1 they may be the same.

    It is the greatest difference, over what may differ without meaning anything. Infinite where
    nothing can be compared.
    """
    rows, other_rows = np.maximum(counts, 1.0), np.maximum(other_counts, 1.0)
    noise = 0.5 * np.sqrt(1.0 / rows + 1.0 / other_rows)
    apart = np.abs(_angles(shares) - _angles(other)) / (ALIKE + Z_SCORE * noise)
    known = apart[np.isfinite(apart) & (counts >= 1.0) & (other_counts >= 1.0)]
    return float(known.max()) if len(known) else UNKNOWN


def _angles(shares: Floats) -> Floats:
    angles: Floats = np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
    return angles


KEPT = 0.8
"""What a row counts one batch later."""


class Conditions:
    """Shares of rows since they last changed; newer batches count more."""

    def __init__(self) -> None:
        self._forget(())

    def _forget(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._hits, self.counts = np.zeros(len(names)), np.zeros(len(names))
        self.n_sampled = 0.0

    @property
    def shares(self) -> Floats:
        """The share of each condition ([0, 1]; nan: not known; (C,))."""
        found = np.full(len(self.names), np.nan)
        np.divide(self._hits, self.counts, out=found, where=self.counts > 0.0)
        return found

    def step(
        self, names: tuple[str, ...], shares: Floats, counts: Floats, n_sampled: float
    ) -> bool:
        """Take in a batch.

        Args:
            names: what the conditions are of.
            shares: of the batch ([0, 1]; nan: not measured in it; (C,)).
            counts: rows that each was counted over (≥ 0; (C,)).
            n_sampled: rows that were looked at.

        Returns:
            Whether all before was of other conditions, so that what is known begins with this
            batch. False where other things are counted from now on: nothing can be compared.
        """
        is_told = np.isfinite(shares) & (counts > 0.0)
        is_other = False
        if names != self.names:
            self._forget(names)
        elif is_told.any():
            apart = distance(shares, counts, self.shares, self.counts)
            is_other = bool(np.isfinite(apart)) and apart > LEAVES
        if is_other:
            self._forget(names)
        weights = np.where(is_told, KEPT, 1.0)
        fresh = np.where(is_told, counts, 0.0)
        self._hits = weights * self._hits + fresh * np.where(is_told, shares, 0.0)
        self.counts = weights * self.counts + fresh
        self.n_sampled = (KEPT if n_sampled else 1.0) * self.n_sampled + n_sampled
        return is_other

    def situation(self, evidence: Any, least: float, met: Met | None = None) -> Situation | None:
        """Return the conditions as the log knows them; None while nothing was measured.

        Args:
            evidence: plain values that price any plan.
            least: rows that have to be looked at to choose a plan by.
            met: what all rows of the last batch showed.
        """
        if not self.n_sampled and met is None:
            return None
        return Situation(
            self.names,
            self.shares,
            np.maximum(self.counts, 1.0),
            evidence,
            self.n_sampled,
            is_settled=self.n_sampled >= least,
            met=met,
        )

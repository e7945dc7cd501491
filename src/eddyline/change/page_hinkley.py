"""Page-Hinkley: fading sums of deviations from the running mean [Page54].

The two sums of river's ``PageHinkley``, with the same results where the options agree: river's
``min_instances`` is ``n_feedback`` + 1. A change is taken to have begun after the item at which the
sum that rose was least, or the one that fell was largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import MachineBank
from eddyline.options import in_range, is_one_of

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

DIRECTIONS = ("up", "down", "both")
"""Shifts of the mean that count."""

_COUNT, _MEAN, _UP, _LEAST, _DOWN, _MOST = range(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHinkleyOptions:
    """Options of Page-Hinkley, which reports a change of the mean.

    Raises:
        OptionError: a value is out of its range.
    """

    threshold: float = 1.5
    """Rise of a sum above its least value, or fall below its largest, that is a change (> 0; in the
    unit of the items, times items). λ; the default is for fractions."""
    tolerance: float = 0.02
    """Shift of the mean that does not count (≥ 0; in the unit of the items). δ."""
    fading: float = 0.9999
    """Share of a sum that is kept from one item to the next ((0, 1]). α."""
    direction: str = "both"
    """``up``, ``down`` or ``both``."""
    n_feedback: int = 30
    """Items that are summed before it checks (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "threshold", 1e-300, 1e300)
        in_range(self, "tolerance", 0.0, 1e300)
        in_range(self, "fading", 1e-6, 1.0)
        in_range(self, "n_feedback", 0, 2**31)
        is_one_of(self, "direction", DIRECTIONS)

    def build(self, n: int) -> PageHinkley:
        """Return n fresh detectors."""
        return PageHinkley(self, n)


class PageHinkley(MachineBank):
    """A bank of Page-Hinkley detectors."""

    kind = "page_hinkley"
    is_sequential = True
    _state = ("_sums", "_turns")

    def __init__(self, options: PageHinkleyOptions, n: int) -> None:
        super().__init__(n, options.n_feedback)
        self._options = options
        self._sums = np.zeros((self.n, 6))
        self._turns: Ints = np.zeros((self.n, 2), dtype=np.int64)
        """Items up to where the rising sum was least, and the falling one largest."""

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        self._summed(which, items[:, 0])
        self._ready[which] = self._sums[which, _COUNT] >= self.n_feedback

    def _check(self, which: Ints, items: Floats) -> Mask:
        up, down = self._exceeded(self._summed(which, items))
        return up | down

    def _exceeded(self, sums: Floats) -> tuple[Mask, Mask]:
        """Return masks of the sums that show a rise, and a fall, that counts."""
        with np.errstate(over="ignore", invalid="ignore"):
            rise, fall = sums[:, _UP] - sums[:, _LEAST], sums[:, _MOST] - sums[:, _DOWN]
        watched, threshold = self._options.direction, self._options.threshold
        return (rise > threshold) & (watched != "down"), (fall > threshold) & (watched != "up")

    def _summed(self, which: Ints, items: Floats) -> Floats:
        options, sums = self._options, self._sums[which]
        # Numbers near the largest float overflow: an infinite sum is a change, nan is none.
        with np.errstate(over="ignore", invalid="ignore"):
            sums[:, _COUNT] += 1.0
            sums[:, _MEAN] += (items - sums[:, _MEAN]) / sums[:, _COUNT]
            off = items - sums[:, _MEAN]
            sums[:, _UP] = options.fading * sums[:, _UP] + off - options.tolerance
            sums[:, _DOWN] = options.fading * sums[:, _DOWN] + off + options.tolerance
        is_first = sums[:, _COUNT] == 1.0
        is_low = is_first | (sums[:, _UP] < sums[:, _LEAST])
        is_high = is_first | (sums[:, _DOWN] > sums[:, _MOST])
        sums[is_low, _LEAST] = sums[is_low, _UP]
        sums[is_high, _MOST] = sums[is_high, _DOWN]
        self._turns[which[is_low], 0] = self.n_seen[which[is_low]]
        self._turns[which[is_high], 1] = self.n_seen[which[is_high]]
        self._sums[which] = sums
        return sums

    def _change_point(self, which: Ints) -> Ints:
        up, _ = self._exceeded(self._sums[which])
        turns = self._turns[which]
        return turns[np.arange(len(which)), np.where(up, 0, 1)]

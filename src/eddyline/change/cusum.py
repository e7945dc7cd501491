"""CUSUM: sums of deviations from the learned mean [Page54].

Items are standardised. One sum goes up, the other one down. Mean and spread are learned from the
first ``n_feedback`` items. With items in standard deviations z, the sums are S = max(0, S ± z - k),
k half the shift to find; alarm when one exceeds h. A change is taken to have begun after the item
at which that sum was last zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import MachineBank
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class CusumOptions:
    """Options of CUSUM, which reports a change of the mean.

    Raises:
        OptionError: a value is out of its range.
    """

    threshold: float = 10.0
    """Sum that is a change (> 0; standard deviations). The h of the textbooks, where it is 4 or 5:
    a mean learned from 30 items is off by a fifth of a deviation, which the sums add up."""
    shift: float = 1.5
    """Shift of the mean to find fastest (> 0; standard deviations); half of it does not count."""
    n_feedback: int = 30
    """Items that mean and spread are learned from (≥ 2)."""
    min_spread: float = 1e-6
    """Least standard deviation (> 0; in the unit of the items): for constant feedback."""

    def __post_init__(self) -> None:
        in_range(self, "threshold", 1e-9, 1e300)
        in_range(self, "shift", 1e-9, 1e9)
        in_range(self, "n_feedback", 2, 2**20)
        in_range(self, "min_spread", 1e-300, 1e300)

    def build(self, n: int) -> Cusum:
        """Return n fresh detectors."""
        return Cusum(self, n)


class Cusum(MachineBank):
    """A bank of CUSUM detectors."""

    kind = "cusum"
    _state = ("_scales", "_sums", "_zeros")

    def __init__(self, options: CusumOptions, n: int) -> None:
        super().__init__(n, options.n_feedback)
        self._options = options
        self._scales = np.zeros((self.n, 2))  # mean, standard deviation
        self._sums = np.zeros((self.n, 2))  # up, down
        self._zeros: Ints = np.zeros((self.n, 2), dtype=np.int64)
        """Items up to where each sum was last zero."""

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        # Numbers near the largest float overflow: nothing stands out from an infinite spread.
        with np.errstate(over="ignore", invalid="ignore"):
            self._scales[which, 0] = items.mean(axis=1)
            spread = items.std(axis=1, ddof=1)
        self._scales[which, 1] = np.maximum(spread, self._options.min_spread)
        self._sums[which] = 0.0
        self._zeros[which] = self.n_seen[which, None]

    def _check(self, which: Ints, items: Floats) -> Mask:
        with np.errstate(over="ignore", invalid="ignore"):
            off = (items - self._scales[which, 0]) / self._scales[which, 1]
            evidence = np.stack((off, -off), axis=1) - 0.5 * self._options.shift
            sums = np.maximum(0.0, self._sums[which] + evidence)
        self._sums[which] = sums
        self._zeros[which] = np.where(sums == 0.0, self.n_seen[which, None], self._zeros[which])
        return np.asarray((sums > self._options.threshold).any(axis=1))

    def _change_point(self, which: Ints) -> Ints:
        up, down = self._sums[which].T
        zeros = self._zeros[which]
        return zeros[np.arange(len(which)), np.where(up >= down, 0, 1)]

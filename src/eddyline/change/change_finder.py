"""ChangeFinder: two stages of prediction, of items and of their surprise.

[Takeuchi06]. Each stage is a mixture of three normals that forgets old items (SDEM). The first
stage scores an item by its log loss. The mean of the last T scores is the item of the second stage.
The mean of the last T scores of the second stage is compared with a threshold.

[Tsamoura16] names the detector and T. How the mixtures start is our choice: the means are quantiles
of the feedback, which then runs through both stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import MachineBank
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

N_NORMALS = 3
_QUANTILES = (np.arange(N_NORMALS) + 0.5) / N_NORMALS
_WEIGHT, _FIRST, _SECOND = range(3)
_LOG_2PI = float(np.log(2.0 * np.pi))
_TINY = 1e-12
"""Least variance, in the unit of the items squared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFinderOptions:
    """Options of ChangeFinder.

    Raises:
        OptionError: a value is out of its range.
    """

    threshold: float = 4.0
    """Mean log loss of the second stage that is a change (nats)."""
    smoothing: int = 10
    """Scores that are averaged in either stage (≥ 1). T."""
    forgetting: float = 0.02
    """Share of a mixture that each item replaces ((0, 1)). r."""
    stabiliser: float = 1.0
    """Part of that share that is spread evenly over the normals (≥ 0; times ``forgetting`` at most
    1). α."""
    min_variance: float = 0.01
    """Least variance of a normal, as a share of the feedback's ((0, 1])."""
    n_feedback: int = 30
    """Items that the mixtures start from (≥ 3)."""
    change_point_back: int = 5
    """Items before the alarm at which the change is taken to have begun (≥ 0; the item just
    checked counts as the first; 0: with the next item)."""

    def __post_init__(self) -> None:
        in_range(self, "threshold", -1e9, 1e9)
        in_range(self, "smoothing", 1, 2**20)
        in_range(self, "forgetting", 1e-9, 1.0 - 1e-9)
        in_range(self, "stabiliser", 0.0, 1.0 / self.forgetting)
        in_range(self, "min_variance", 1e-12, 1.0)
        in_range(self, "n_feedback", 3, 2**20)
        in_range(self, "change_point_back", 0, 2**31)

    def build(self, n: int) -> ChangeFinder:
        """Return n fresh detectors."""
        return ChangeFinder(self, n)


class ChangeFinder(MachineBank):
    """A bank of ChangeFinders."""

    kind = "change_finder"
    _state = ("_mixtures", "_floors", "_losses", "_n_losses")

    def __init__(self, options: ChangeFinderOptions, n: int) -> None:
        super().__init__(n, options.n_feedback)
        self._options, self._n_back = options, options.change_point_back
        # Per stage: weight, weighted mean, weighted second moment of each normal.
        self._mixtures = np.zeros((self.n, 2, 3, N_NORMALS))
        self._floors = np.zeros((self.n, 2))
        self._losses = np.zeros((self.n, 2, options.smoothing))
        self._n_losses: Ints = np.zeros((self.n, 2), dtype=np.int64)

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for stage in range(2):
                self._begin(which, stage, items)
                items = np.stack([self._pass(which, stage, column) for column in items.T], axis=1)

    def _check(self, which: Ints, items: Floats) -> Mask:
        # Numbers near the largest float overflow; a loss of nan is no change.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            surprise = self._pass(which, 0, items)
            hits: Mask = self._pass(which, 1, surprise) > self._options.threshold
        return hits

    def _begin(self, which: Ints, stage: int, items: Floats) -> None:
        """Start the mixture of a stage from items ((m, ``n_feedback``))."""
        variance = np.maximum(items.var(axis=1), _TINY)
        means = np.quantile(items, _QUANTILES, axis=1).T
        self._floors[which, stage] = np.maximum(self._options.min_variance * variance, _TINY)
        weight = 1.0 / N_NORMALS
        self._mixtures[which, stage, _WEIGHT] = weight
        self._mixtures[which, stage, _FIRST] = weight * means
        self._mixtures[which, stage, _SECOND] = weight * (variance[:, None] + means**2)
        self._n_losses[which, stage] = 0
        self._losses[which, stage] = 0.0

    def _pass(self, which: Ints, stage: int, items: Floats) -> Floats:
        """Score items by a mixture, teach it to them, and return the means of the last losses."""
        mixture = self._mixtures[which, stage]
        weights, firsts, seconds = mixture.transpose(1, 0, 2)
        means = firsts / weights
        variances = np.maximum(seconds / weights - means**2, self._floors[which, stage, None])
        logs = np.log(weights) - 0.5 * (_LOG_2PI + np.log(variances))
        logs -= 0.5 * (items[:, None] - means) ** 2 / variances
        top = logs.max(axis=1, keepdims=True)
        shares = np.exp(logs - top)
        total = shares.sum(axis=1, keepdims=True)
        self._mixtures[which, stage] = self._taught(mixture, shares / total, items)
        return self._smoothed(which, stage, -(top + np.log(total))[:, 0])

    def _taught(self, mixture: Floats, shares: Floats, items: Floats) -> Floats:
        """Return mixtures after a step of SDEM."""
        rate = self._options.forgetting
        spread = self._options.stabiliser * rate
        taken = (1.0 - spread) * shares + spread / N_NORMALS
        moments = np.stack((taken, taken * items[:, None], taken * items[:, None] ** 2), axis=1)
        taught: Floats = (1.0 - rate) * mixture + rate * moments
        return taught

    def _smoothed(self, which: Ints, stage: int, losses: Floats) -> Floats:
        length = self._options.smoothing
        self._losses[which, stage, self._n_losses[which, stage] % length] = losses
        self._n_losses[which, stage] += 1
        held = np.minimum(self._n_losses[which, stage], length)
        means: Floats = self._losses[which, stage].sum(axis=1) / held
        return means

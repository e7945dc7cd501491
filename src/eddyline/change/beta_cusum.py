"""β-CUSUM: a CUSUM of Beta laws for shares of rows, in O(1) time and space [Tsamoura16 5, App. 1].

Learns the law P0 of an estimated fraction from its first ``n_feedback`` items. Afterwards it keeps
mean and variance of all items, turns them into a law P1, and while a parameter of P1 is outside the
confidence interval of P0's it sums ln P1(x) / P0(x): S = max(0, S + ln P1 / P0), alarm when S > h.

Deviations. The paper's misprints are corrected: moments take the variance, intervals z·σ, and the
likelihood is maximised. Items are clipped, as counts of small blocks reach 0 and 1. Variances have
a floor of a tenth of the binomial's, without which a constant stream is evidence against itself.
``memory`` and ``min_shift`` are not in the paper and off by default. S is untouched while the law
is inside the intervals: literally.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import MachineBank
from eddyline.errors import OptionError
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

_LOW_A, _HIGH_A, _LOW_B, _HIGH_B, _A, _B, _LOG_BETA, _MEAN = range(8)
"""Columns of what a detector learned from its feedback."""

_FLOOR = 0.1
"""Least variance of items, as a share of the binomial variance of a block's estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaCusumOptions:
    """Options of β-CUSUM, which reports a change of a fraction.

    Raises:
        OptionError: a value is out of its range.
    """

    threshold: float = 25.0
    """Sum of log ratios that is a change (> 0). The paper's h."""
    n_feedback: int = 40
    """Items that the law is learned from (≥ 3). The paper's ``|D|``. Fewer leave wide intervals,
    which miss changes; more leave it blind for longer after each change (change_quality_t10)."""
    confidence: float = 0.95
    """Confidence of the intervals around the learned parameters ((0, 1)). 1 - ζ."""
    change_point_back: int = 5
    """Items before the alarm at which the change is taken to have begun (≥ 0; the item just
    checked counts as the first; 0: with the next item). The paper's ν."""
    block_rows: int = 50
    """Rows that an item is a share of (≥ 1): where items are clipped and variances floored."""
    clip: float | None = None
    """Items are kept this far from 0 and 1 ((0, 0.5)); None: half a row of a block."""
    memory: int | None = None
    """Items over which the moments fade (≥ 2); None: all since the last change, as in the paper,
    which makes the delay grow with the stable run before a change."""
    min_shift: float = 0.0
    """Least distance of the mean from the learned one that counts ([0, 1]): blocks of thousands of
    rows show shifts too small to matter."""

    def __post_init__(self) -> None:
        in_range(self, "threshold", 1e-9, 1e9)
        in_range(self, "n_feedback", 3, 2**20)
        in_range(self, "confidence", 1e-6, 1.0 - 1e-12)
        in_range(self, "change_point_back", 0, 2**31)
        in_range(self, "block_rows", 1, 2**53)
        in_range(self, "min_shift", 0.0, 1.0)
        if self.clip is not None:
            in_range(self, "clip", 1e-15, 0.5 - 1e-9)
        elif self.block_rows == 1:
            msg = "option 'clip' must be given for blocks of one row, whose items are 0 and 1"
            raise OptionError(msg, name="clip", value=None)
        if self.memory is not None:
            in_range(self, "memory", 2, 2**53)

    def build(self, n: int) -> BetaCusum:
        """Return n fresh detectors."""
        return BetaCusum(self, n)


class BetaCusum(MachineBank):
    """A bank of β-CUSUM detectors."""

    kind = "beta_cusum"
    _low, _high = 0.0, 1.0
    _state = ("_model", "_moments", "_sums")

    def __init__(self, options: BetaCusumOptions, n: int) -> None:
        super().__init__(n, options.n_feedback)
        self._options, self._n_back = options, options.change_point_back
        self._clip = 0.5 / options.block_rows if options.clip is None else options.clip
        self._min_variance = _FLOOR / (options.block_rows + 1)
        self._memory = float("inf") if options.memory is None else float(options.memory)
        self._z = NormalDist().inv_cdf(0.5 + options.confidence / 2.0)
        self._model = np.zeros((self.n, 8))
        self._moments = np.zeros((self.n, 3))  # number of items, mean, sum of squared deviations
        self._sums = np.zeros(self.n)

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        # Here, as scipy.special takes longer to import than everything else of a bank.
        from scipy.special import betaln  # noqa: PLC0415

        from eddyline.change.beta_fit import fit_beta  # noqa: PLC0415

        kept = np.clip(items, self._clip, 1.0 - self._clip)
        mean = kept.mean(axis=1)
        fit = fit_beta(kept, self._min_variance * mean * (1.0 - mean))
        model = np.empty((len(which), 8))
        model[:, _LOW_A], model[:, _HIGH_A] = fit.a - self._z * fit.sd_a, fit.a + self._z * fit.sd_a
        model[:, _LOW_B], model[:, _HIGH_B] = fit.b - self._z * fit.sd_b, fit.b + self._z * fit.sd_b
        model[:, _A], model[:, _B], model[:, _LOG_BETA] = fit.a, fit.b, betaln(fit.a, fit.b)
        model[:, _MEAN] = mean
        self._model[which] = model
        self._moments[which, 0] = min(float(self.n_feedback), self._memory)
        self._moments[which, 1] = mean
        self._moments[which, 2] = self._moments[which, 0] * kept.var(axis=1)
        self._sums[which] = 0.0

    def _check(self, which: Ints, items: Floats) -> Mask:
        kept = np.minimum(np.maximum(items, self._clip), 1.0 - self._clip)
        mean, variance = self._observed(which, kept)
        room = mean * (1.0 - mean)
        total = room / np.maximum(variance, self._min_variance * room) - 1.0
        a, b = total * mean, total - total * mean
        model = self._model[which]
        outside = (a < model[:, _LOW_A]) | (a > model[:, _HIGH_A])
        outside |= (b < model[:, _LOW_B]) | (b > model[:, _HIGH_B])
        outside &= total > 0.0
        if self._options.min_shift > 0.0:
            outside &= np.abs(mean - model[:, _MEAN]) >= self._options.min_shift
        rows = np.flatnonzero(outside)
        if rows.size:
            ratios = _log_ratios(kept[rows], a[rows], b[rows], model[rows])
            self._sums[which[rows]] = np.maximum(0.0, self._sums[which[rows]] + ratios)
        return self._sums[which] > self._options.threshold

    def _observed(self, which: Ints, items: Floats) -> tuple[Floats, Floats]:
        """Take items into the moments and return mean and variance [Welford].

        When ``memory`` is full, old items fade: with W items, each is worth 1 - 1/W of what it
        was one item before.
        """
        count, mean, spread = self._moments[which].T
        if self._memory < float("inf"):
            spread = np.where(count >= self._memory, spread * (1.0 - 1.0 / self._memory), spread)
        count = np.minimum(count + 1.0, self._memory)
        off = items - mean
        mean = mean + off / count
        spread = spread + off * (items - mean)
        self._moments[which] = np.stack((count, mean, spread), axis=1)
        return mean, spread / (count - 1.0)


def _log_ratios(items: Floats, a: Floats, b: Floats, model: Floats) -> Floats:
    """Return ln P1(x) / P0(x) of Beta laws."""
    from scipy.special import betaln  # noqa: PLC0415 loaded by the feedback

    log_ratios: Floats = (a - model[:, _A]) * np.log(items)
    log_ratios += (b - model[:, _B]) * np.log1p(-items)
    log_ratios += model[:, _LOG_BETA] - betaln(a, b)
    return log_ratios

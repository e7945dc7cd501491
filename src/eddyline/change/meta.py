"""The meta-algorithm: a fixed window of first items against a sliding one of the newest [Kifer04].

Per pair of windows: the baseline are the first items since the last change, the current window the
newest; a change is a distance of the two that streams without a change reach with a probability of
at most ``false_alarm_prob`` within ``horizon`` items. The distance is Kolmogorov-Smirnov's over
intervals, which is Kuiper's. Several pairs share the probability evenly.

[Tsamoura16] names the detector and its (n, p); thresholds are ours: simulated for continuous laws,
where ties only make the distance smaller, or from Kuiper's asymptotic tail, p / n for each item.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.kernel_bank import KernelBank
from eddyline.errors import OptionError
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

_N_RUNS = 400
"""Simulated streams behind a threshold."""

THRESHOLDS = ("simulated", "asymptotic")
"""Where thresholds come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaOptions:
    """When the meta-algorithm reports a change.

    Raises:
        OptionError: a value is out of its range.
    """

    baselines: tuple[int, ...] = (100,)
    """Items of each baseline (≥ 2), one pair of windows each."""
    current_share: float = 0.5
    """Items of a current window, as a share of its baseline's ((0, 1])."""
    horizon: int = 5000
    """Items within which the probability of a false alarm is bounded (≥ 1). n."""
    false_alarm_prob: float = 0.05
    """That probability, over all pairs ((0, 1)). p."""
    thresholds: str | tuple[float, ...] = "simulated"
    """``simulated``, ``asymptotic``, or the distance that is a change for each pair ((0, 2))."""
    change_point_back: int = 5
    """How many items before the alarm the change is taken to have begun (≥ 0; the item just
    checked counts as the first; 0: with the next item)."""

    def __post_init__(self) -> None:
        lengths = self.baselines
        are_counts = isinstance(lengths, tuple) and all(type(each) is int for each in lengths)
        if not are_counts or not lengths or not all(2 <= each <= 2**24 for each in lengths):
            msg = "option 'baselines' must be a tuple of whole numbers in [2, 16777216], "
            msg += f"got {lengths!r}"
            raise OptionError(msg, name="baselines", value=lengths)
        in_range(self, "current_share", 1e-6, 1.0)
        in_range(self, "horizon", 1, 2**31)
        in_range(self, "false_alarm_prob", 1e-9, 1.0 - 1e-9)
        in_range(self, "change_point_back", 0, 2**31)
        given = self.thresholds
        if given not in THRESHOLDS and not _are_distances(given, len(lengths)):
            msg = f"option 'thresholds' must be one of {', '.join(THRESHOLDS)}, or a tuple of "
            msg += f"{len(lengths)} numbers in (0, 2), got {given!r}"
            raise OptionError(msg, name="thresholds", value=given)

    def lengths(self) -> list[tuple[int, int]]:
        """Return the lengths of baseline and current window of each pair."""
        return [(each, max(round(each * self.current_share), 1)) for each in self.baselines]

    def limits(self) -> list[float]:
        """Return the distance that is a change, of each pair. Imports numba."""
        prob = self.false_alarm_prob / len(self.baselines)
        if self.thresholds == "simulated":
            return [simulated_limit(*pair, self.horizon, prob) for pair in self.lengths()]
        if self.thresholds == "asymptotic":
            return [asymptotic_limit(*pair, self.horizon, prob) for pair in self.lengths()]
        return [float(each) for each in self.thresholds]

    def build(self, n: int) -> Meta:
        """Return n fresh detectors."""
        return Meta(self, n)


def _are_distances(given: object, n_pairs: int) -> bool:
    if not isinstance(given, tuple) or len(given) != n_pairs:
        return False
    return all(isinstance(each, int | float) and 0.0 < each < 2.0 for each in given)


@lru_cache(maxsize=256)
def simulated_limit(n_base: int, n_now: int, horizon: int, prob: float) -> float:
    """Return the quantile of the largest distance on streams without a change.

    The same in every process: the streams have a fixed seed.

    Args:
        n_base: items of the baseline.
        n_now: items of the current window.
        horizon: items of a stream after both windows are full.
        prob: how often a stream exceeds the limit.
    """
    from eddyline.change import meta_kernels as kernels  # noqa: PLC0415 imports numba

    n_runs = max(_N_RUNS, round(20.0 / prob))
    largest = kernels.largest_distances(n_base, n_now, horizon, n_runs, np.random.default_rng(0))
    return float(np.quantile(largest, 1.0 - prob, method="higher"))


@lru_cache(maxsize=256)
def asymptotic_limit(n_base: int, n_now: int, horizon: int, prob: float) -> float:
    """Return the distance whose tail is ``prob / horizon``: every item may be a false alarm."""
    from eddyline.change import meta_kernels as kernels  # noqa: PLC0415 imports numba

    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        is_rare = kernels.kuiper_tail(middle, n_base, n_now) < prob / horizon
        low, high = (low, middle) if is_rare else (middle, high)
    return high


class Meta(KernelBank):
    """A bank of two-window tests."""

    kind = "meta"
    is_sequential = True
    _kernel_module = "meta_kernels"
    _state = ("_n_items", "_newest", "_baselines", "_currents")

    def __init__(self, options: MetaOptions, n: int) -> None:
        lengths = np.array(options.lengths(), dtype=np.int64)
        super().__init__(n, int(lengths.sum(axis=1).min()))
        self._options = options
        self._lengths = lengths
        self._limits = np.array(options.limits())
        self._n_items: Ints = np.zeros(self.n, dtype=np.int64)
        self._newest = np.zeros((self.n, int(lengths[:, 1].max())))
        self._baselines = np.zeros((self.n, int(lengths[:, 0].sum())))
        self._currents = np.zeros((self.n, int(lengths[:, 1].sum())))

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        self._take(which, np.ascontiguousarray(items[:, 0]))
        self._ready[which] = self._n_items[which] >= self.n_feedback

    def _check(self, which: Ints, items: Floats) -> Mask:
        return self._take(which, items)

    def _take(self, which: Ints, items: Floats) -> Mask:
        hits: Mask = self._kernels.take(
            which,
            items,
            self._n_items,
            self._newest,
            self._baselines,
            self._currents,
            self._lengths,
            self._limits,
        )
        return hits

    def _change_point(self, which: Ints) -> Ints:
        return self._back(which, self._options.change_point_back)

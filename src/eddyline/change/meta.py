"""Meta-algorithm: a fixed window against a sliding one [Kifer04].

The fixed window has the first items, the sliding one the newest. Per pair of windows: the baseline
are the first items since the last change, the current window the newest; a change is a distance of
the two that streams without a change reach with a probability of at most ``false_alarm_prob``
within ``horizon`` items. The distance is Kolmogorov-Smirnov's over intervals, which is Kuiper's.
Several pairs share the probability evenly.

[Tsamoura16] names the detector and its (n, p); thresholds are ours: simulated for continuous laws,
where ties only make the distance smaller, or from Kuiper's asymptotic tail, p / n for each item.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.machine import KernelBank, insert, replace
from eddyline.data.jit import compiled
from eddyline.errors import OptionError
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

_N_RUNS = 400
"""Simulated streams behind a threshold."""

THRESHOLDS = ("simulated", "asymptotic")
"""Sources of thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaOptions:
    """Options of the meta-algorithm.

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
    """Items before the alarm at which the change is taken to have begun (≥ 0; the item just
    checked counts as the first; 0: with the next item)."""

    def __post_init__(self) -> None:
        lengths = self.baselines
        are_counts = isinstance(lengths, tuple) and all(type(length) is int for length in lengths)
        if not are_counts or not lengths or not all(2 <= length <= 2**24 for length in lengths):
            msg = "option 'baselines' must be a tuple of whole numbers in [2, 16777216], "
            msg += f"got {lengths!r}"
            raise OptionError(msg, name="baselines", value=lengths)
        in_range(self, "current_share", 1e-6, 1.0)
        in_range(self, "horizon", 1, 2**31)
        in_range(self, "false_alarm_prob", 1e-9, 1.0 - 1e-9)
        in_range(self, "change_point_back", 0, 2**31)
        thresholds = self.thresholds
        if thresholds not in THRESHOLDS and not _are_distances(thresholds, len(lengths)):
            msg = f"option 'thresholds' must be one of {', '.join(THRESHOLDS)}, or a tuple of "
            msg += f"{len(lengths)} numbers in (0, 2), got {thresholds!r}"
            raise OptionError(msg, name="thresholds", value=thresholds)

    def lengths(self) -> list[tuple[int, int]]:
        """Return the lengths of baseline and current window of each pair."""
        return [(length, max(round(length * self.current_share), 1)) for length in self.baselines]

    def limits(self) -> list[float]:
        """Return the distance that is a change, of each pair."""
        prob = self.false_alarm_prob / len(self.baselines)
        if self.thresholds == "simulated":
            return [simulated_limit(*pair, self.horizon, prob) for pair in self.lengths()]
        if self.thresholds == "asymptotic":
            return [asymptotic_limit(*pair, self.horizon, prob) for pair in self.lengths()]
        return [float(distance) for distance in self.thresholds]

    def build(self, n: int) -> Meta:
        """Return n fresh detectors."""
        return Meta(self, n)


def _are_distances(thresholds: object, n_pairs: int) -> bool:
    if not isinstance(thresholds, tuple) or len(thresholds) != n_pairs:
        return False
    return all(
        isinstance(distance, int | float) and 0.0 < distance < 2.0 for distance in thresholds
    )


@lru_cache(maxsize=256)
def simulated_limit(n_base: int, n_now: int, horizon: int, prob: float) -> float:
    """Return the largest distance that all but ``prob`` of the streams without a change reach.

    They have ``horizon`` items after both windows are full, and a fixed seed: the limit is the same
    in every process.
    """
    n_runs = max(_N_RUNS, round(20.0 / prob))
    largest = largest_distances(n_base, n_now, horizon, n_runs, np.random.default_rng(0))
    return float(np.quantile(largest, 1.0 - prob, method="higher"))


@lru_cache(maxsize=256)
def asymptotic_limit(n_base: int, n_now: int, horizon: int, prob: float) -> float:
    """Return the distance whose tail is ``prob / horizon``: every item may be a false alarm."""
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        is_rare = kuiper_tail(middle, n_base, n_now) < prob / horizon
        low, high = (low, middle) if is_rare else (middle, high)
    return high


class Meta(KernelBank):
    """A bank of two-window tests."""

    kind = "meta"
    is_sequential = True
    _state = ("_n_items", "_newest", "_baselines", "_currents")

    def __init__(self, options: MetaOptions, n: int) -> None:
        lengths = np.array(options.lengths(), dtype=np.int64)
        super().__init__(n, int(lengths.sum(axis=1).min()))
        self._n_back = options.change_point_back
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
        return take(
            which,
            items,
            self._n_items,
            self._newest,
            self._baselines,
            self._currents,
            self._lengths,
            self._limits,
        )


@compiled
def take(
    which: Ints,
    items: Floats,
    n_items: Ints,
    newest: Floats,
    baselines: Floats,
    currents: Floats,
    lengths: Ints,
    limits: Floats,
) -> Mask:
    """Take in an item of each detector and return which have a pair of windows too far apart.

    ``newest`` is the ring of the newest items; ``baselines`` and ``currents`` are sorted, the pairs
    of windows side by side (one row a detector).
    """
    hits = np.zeros(len(which), dtype=np.bool_)
    for j in range(len(which)):
        i = which[j]
        begin_base, begin_now = 0, 0
        for pair in range(len(lengths)):
            n_base, n_now = lengths[pair]
            base = baselines[i, begin_base : begin_base + n_base]
            now = currents[i, begin_now : begin_now + n_now]
            n_before = n_items[i]
            if n_before < n_base:
                insert(base, n_before, items[j])
            elif n_before < n_base + n_now:
                insert(now, n_before - n_base, items[j])
            else:
                gone = newest[i, (n_before - n_now) % newest.shape[1]]
                replace(now, gone, items[j])
            if n_before >= n_base + n_now and kuiper(base, now) > limits[pair]:
                hits[j] = True
            begin_base += n_base
            begin_now += n_now
        newest[i, n_items[i] % newest.shape[1]] = items[j]
        n_items[i] += 1
    return hits


@compiled
def kuiper(first: Floats, second: Floats) -> float:
    """Return Kuiper's distance of two sorted samples: the range of the gap of their laws.

    It is the largest difference of what they give to an interval, which is the Kolmogorov-Smirnov
    distance over intervals of [Kifer04].
    """
    a, b = 0, 0
    low, high = 0.0, 0.0
    n_a, n_b = len(first), len(second)
    while a < n_a or b < n_b:
        is_first = b == n_b or (a < n_a and first[a] <= second[b])
        x = first[a] if is_first else second[b]
        while a < n_a and first[a] == x:
            a += 1
        while b < n_b and second[b] == x:
            b += 1
        gap = a / n_a - b / n_b
        low = min(low, gap)
        high = max(high, gap)
    return high - low


@compiled
def largest_distances(
    n_base: int, n_now: int, n_items: int, n_runs: int, rng: np.random.Generator
) -> Floats:
    """Return the largest distance of each of many streams without a change ((n_runs,)).

    The distance depends on ranks only, so uniform items stand for items of any continuous law.
    """
    largest = np.zeros(n_runs)
    for run in range(n_runs):
        base = np.sort(rng.random(n_base))
        ring = rng.random(n_now)
        now = np.sort(ring)
        for t in range(n_items):
            largest[run] = max(largest[run], kuiper(base, now))
            x = rng.random()
            replace(now, ring[t % n_now], x)
            ring[t % n_now] = x
    return largest


@compiled
def kuiper_tail(distance: float, n_base: int, n_now: int) -> float:
    """Return the probability of a larger distance of two samples of one law [Stephens70]."""
    n = math.sqrt(n_base * n_now / (n_base + n_now))
    z = (n + 0.155 + 0.24 / n) * distance
    if z < 0.4:
        return 1.0
    tail = 0.0
    for j in range(1, 101):
        square = (j * z) ** 2
        tail += 2.0 * (4.0 * square - 1.0) * math.exp(-2.0 * square)
    return min(tail, 1.0)

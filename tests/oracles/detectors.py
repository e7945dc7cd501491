"""Slow detectors to compare the banks with: one stream, one item, the formula as it is printed.

They keep every item and compute afresh where the banks update. Each takes the options of its bank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, polygamma

from eddyline.change.scalar import ScalarDetector, ScalarOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _Reference(ScalarDetector):
    """Keeps options and items, and looks back for the change point."""

    def __init__(self, options: Any, n_feedback: int) -> None:
        self.options = options
        self.n_feedback = n_feedback
        self.items: list[float] = []

    def initialize(self) -> None:
        self.items = []

    def get_change_point(self) -> int:
        back: int = self.options.change_point_back
        return self.n_seen - min(back, len(self.items))


class ReferenceBetaCusum(_Reference):
    """β-CUSUM, its law found by Nelder and Mead as in the paper."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, options.n_feedback)
        self.clip = 0.5 / options.block_rows if options.clip is None else options.clip
        self.total = 0.0

    def use_feedback(self, items: Sequence[float]) -> None:
        self.items = [self._clipped(x) for x in items]
        self.total = 0.0
        self.mean, variance = float(np.mean(self.items)), float(np.var(self.items, ddof=1))
        a, b = self._law(self.mean, variance)
        if variance > self._floor(self.mean):
            sample = np.array(self.items)
            log_x, log_rest = np.log(sample).mean(), np.log1p(-sample).mean()
            found = minimize(
                lambda ab: betaln(*np.exp(ab)) - (np.exp(ab) - 1.0) @ (log_x, log_rest),
                np.log((max(a, 0.01), max(b, 0.01))),
                method="Nelder-Mead",
                options={"xatol": 1e-12, "fatol": 1e-15, "maxiter": 10_000, "maxfev": 10_000},
            )
            a, b = np.exp(found.x)
        common = polygamma(1, a + b)
        information = np.array(
            [[polygamma(1, a) - common, -common], [-common, polygamma(1, b) - common]]
        )
        covariance = np.linalg.inv(len(items) * information)
        z = NormalDist().inv_cdf(0.5 + self.options.confidence / 2.0)
        self.law = np.array([a, b])
        self.reach = z * np.sqrt(np.diag(covariance))
        self.has_feedback = True

    def check(self, item: float) -> bool:
        self.items.append(self._clipped(item))
        mean, variance = self._moments()
        a, b = self._law(mean, variance)
        outside = (np.abs(np.array([a, b]) - self.law) > self.reach).any() and a + b > 0.0
        if outside and abs(mean - self.mean) >= self.options.min_shift:
            x, (a0, b0) = self.items[-1], self.law
            ratio = (a - a0) * math.log(x) + (b - b0) * math.log1p(-x)
            ratio += float(betaln(a0, b0) - betaln(a, b))
            self.total = max(0.0, self.total + ratio)
        return bool(self.total > self.options.threshold)

    def _clipped(self, x: float) -> float:
        return float(min(max(x, self.clip), 1.0 - self.clip))

    def _floor(self, mean: float) -> float:
        n_rows: int = self.options.block_rows
        return 0.1 * mean * (1.0 - mean) / (n_rows + 1)

    def _law(self, mean: float, variance: float) -> tuple[float, float]:
        total = mean * (1.0 - mean) / max(variance, self._floor(mean)) - 1.0
        return total * mean, total * (1.0 - mean)

    def _moments(self) -> tuple[float, float]:
        """Return mean and variance; with a memory, by the weights that it gives the items."""
        memory = self.options.memory
        if memory is None or len(self.items) <= memory:
            return float(np.mean(self.items)), float(np.var(self.items, ddof=1))
        # What a full memory keeps of an item fades by 1 - 1/W with each that follows.
        start = max(memory, self.n_feedback)
        mean = float(np.mean(self.items[:start]))
        spread = float(np.var(self.items[:start])) * memory
        for x in self.items[start:]:
            before, mean = mean, mean + (x - mean) / memory
            spread = (1.0 - 1.0 / memory) * spread + (x - before) * (x - mean)
        return mean, spread / (memory - 1.0)


class ReferenceAdwin(ScalarDetector):
    """ADWIN2 on a list of buckets (size, sum, sum of squares), oldest first."""

    is_amnesic = False
    is_sequential = True

    def __init__(self, options: Any) -> None:
        self.options = options
        self.n_feedback = options.n_feedback
        self.buckets: list[tuple[int, float, float]] = []

    def initialize(self) -> None:
        self.buckets = []

    def use_feedback(self, items: Sequence[float]) -> None:
        for x in items:
            self._insert(x)
        self.has_feedback = self._width() >= self.n_feedback

    def check(self, item: float) -> bool:
        self._insert(item)
        return self.n_seen % self.options.check_every == 0 and self._splits(self.buckets)

    def adjust_feedback(self) -> None:
        self.buckets = self._cut_at_splits()
        self.has_feedback = self._width() >= self.n_feedback

    def get_change_point(self) -> int:
        is_split = self.options.change_point == "split"
        kept = self._cut_at_splits() if is_split else self._cut()
        return self.n_seen - sum(size for size, _, _ in kept)

    def _cut_at_splits(self) -> list[tuple[int, float, float]]:
        kept = self.buckets
        while part := self._newest_part(kept):
            while sum(size for size, _, _ in kept) > part:
                kept = kept[1:]
            if not self._splits(kept):
                break
        return kept

    def _newest_part(self, buckets: list[tuple[int, float, float]]) -> int:
        sizes, sums = (np.array([b[k] for b in buckets]) for k in range(2))
        least, best, part = self.options.min_part, 0.0, 0
        for border in range(1, len(sizes)):
            n0, n1 = sizes[:border].sum(), sizes[border:].sum()
            gap = sums[:border].sum() / n0 - sums[border:].sum() / n1
            size = gap * gap / (1.0 / n0 + 1.0 / n1)
            # The first of equals; rounding alone does not make a border better.
            if min(n0, n1) >= least and size > best * (1.0 + 1e-9):
                best, part = size, int(n1)
        return part

    def _cut(self) -> list[tuple[int, float, float]]:
        left = self.buckets[1:]
        while self._splits(left):
            left = left[1:]
        return left

    def _width(self) -> int:
        return sum(size for size, _, _ in self.buckets)

    def _insert(self, x: float) -> None:
        self.buckets.append((1, x, x * x))
        size = 1
        while True:
            places = [i for i, bucket in enumerate(self.buckets) if bucket[0] == size]
            if len(places) <= self.options.buckets_per_row:
                return
            i, j = places[:2]
            merged = tuple(u + v for u, v in zip(self.buckets[i], self.buckets[j], strict=True))
            self.buckets[i : j + 1] = [merged]  # type: ignore[list-item]
            size *= 2

    def _splits(self, buckets: list[tuple[int, float, float]]) -> bool:
        sizes, sums, squares = (np.array([b[k] for b in buckets]) for k in range(3))
        n = sizes.sum()
        if n < 2:
            return False
        variance = max(squares.sum() / n - (sums.sum() / n) ** 2, 0.0)
        log_term = math.log(2.0 * math.log(n) / self.options.significance)
        for border in range(1, len(buckets)):
            n0, n1 = sizes[:border].sum(), sizes[border:].sum()
            if min(n0, n1) < self.options.min_part:
                continue
            m = 1.0 / (1.0 / n0 + 1.0 / n1)
            cut = math.sqrt(2.0 / m * variance * log_term) + 2.0 / (3.0 * m) * log_term
            if abs(sums[:border].sum() / n0 - sums[border:].sum() / n1) > cut:
                return True
        return False


class ReferenceMartingale(_Reference):
    """The martingale test with all distances of all items."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, 0)
        self.log_value = 0.0
        self.n_since = 0

    def initialize(self) -> None:
        super().initialize()
        self.log_value, self.n_since = 0.0, 0

    def check(self, item: float) -> bool:
        self.items = [*self.items, item][-self.options.max_items :]
        self.n_since += 1
        kept = np.array(self.items)
        strange = np.median(np.abs(kept[:, None] - kept[None, :]), axis=1)
        n_more, n_same = (strange > strange[-1]).sum(), (strange == strange[-1]).sum()
        share = self.options.tie_share
        share = reference_uniform(self.options.seed, self.n_seen) if share is None else share
        p = (n_more + share * n_same) / len(kept)
        exponent = self.options.exponent
        self.log_value += math.log(exponent) + (exponent - 1.0) * math.log(p)
        if self.options.floor:
            self.log_value = max(self.log_value, 0.0)
        return self.log_value > math.log(self.options.threshold)

    def get_change_point(self) -> int:
        back: int = self.options.change_point_back
        return self.n_seen - min(back, self.n_since)


def reference_uniform(seed: int, number: int) -> float:
    """Return splitmix64 of two numbers, as one in (0, 1] [Steele14]."""
    mask = 2**64 - 1
    mixed = (seed + number * 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    mixed ^= mixed >> 31
    return ((mixed >> 11) + 1.0) * 2.0**-53


class ReferenceMeta(_Reference):
    """The two-window test on slices of the list of all items."""

    is_sequential = True

    def __init__(self, options: Any) -> None:
        super().__init__(options, min(sum(pair) for pair in options.lengths()))
        self.limits = options.limits()

    def use_feedback(self, items: Sequence[float]) -> None:
        self.items += items
        self.has_feedback = len(self.items) >= self.n_feedback

    def check(self, item: float) -> bool:
        self.items.append(item)
        pairs = zip(self.options.lengths(), self.limits, strict=True)
        return any(
            len(self.items) > n_base + n_now
            and reference_kuiper(self.items[:n_base], self.items[-n_now:]) > limit
            for (n_base, n_now), limit in pairs
        )


def reference_kuiper(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the range of the gap between two empirical laws, zero included."""
    points = np.array([*first, *second])
    shares = [(np.array(each)[None, :] <= points[:, None]).mean(axis=1) for each in (first, second)]
    gaps = shares[0] - shares[1]
    return float(max(gaps.max(), 0.0) - min(gaps.min(), 0.0))


class ReferenceChangeFinder(_Reference):
    """ChangeFinder with plain lists of normals."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, options.n_feedback)
        self.stages: list[_Sdem] = []

    def use_feedback(self, items: Sequence[float]) -> None:
        self.items, self.stages = list(items), []
        passed = list(items)
        for _ in range(2):
            stage = _Sdem(self.options, passed)
            passed = [stage.score(x) for x in passed]
            self.stages.append(stage)
        self.has_feedback = True

    def check(self, item: float) -> bool:
        self.items.append(item)
        first, second = self.stages
        return bool(second.score(first.score(item)) > self.options.threshold)


class _Sdem:
    """One stage: a forgetting mixture of three normals, and the last losses."""

    def __init__(self, options: Any, items: Sequence[float]) -> None:
        self.options = options
        variance = max(float(np.var(items)), 1e-12)
        self.floor = max(options.min_variance * variance, 1e-12)
        means = np.quantile(items, [1 / 6, 3 / 6, 5 / 6])
        self.normals = [[1 / 3, m / 3, (variance + m * m) / 3] for m in means]
        self.losses: list[float] = []

    def score(self, x: float) -> float:
        weighted = []
        for weight, first, second in self.normals:
            mean = first / weight
            variance = max(second / weight - mean**2, self.floor)
            log = -0.5 * math.log(2.0 * math.pi * variance) - (x - mean) ** 2 / (2.0 * variance)
            weighted.append(math.log(weight) + log)
        top = max(weighted)
        total = top + math.log(sum(math.exp(each - top) for each in weighted))
        rate = self.options.forgetting
        spread = self.options.stabiliser * rate
        for normal, log in zip(self.normals, weighted, strict=True):
            share = (1.0 - spread) * math.exp(log - total) + spread / 3.0
            for power in range(3):
                normal[power] = (1.0 - rate) * normal[power] + rate * share * x**power
        self.losses = [*self.losses, -total][-self.options.smoothing :]
        return sum(self.losses) / len(self.losses)


class ReferenceCusum(_Reference):
    """CUSUM of standardised items."""

    def __init__(self, options: Any) -> None:
        super().__init__(options, options.n_feedback)

    def use_feedback(self, items: Sequence[float]) -> None:
        self.mean = float(np.mean(items))
        self.spread = max(float(np.std(items, ddof=1)), self.options.min_spread)
        self.sums, self.zeros = [0.0, 0.0], [self.n_seen, self.n_seen]
        self.has_feedback = True

    def check(self, item: float) -> bool:
        for side, sign in enumerate((1.0, -1.0)):
            off = sign * (item - self.mean) / self.spread - self.options.shift / 2.0
            self.sums[side] = max(0.0, self.sums[side] + off)
            if self.sums[side] == 0.0:
                self.zeros[side] = self.n_seen
        return bool(max(self.sums) > self.options.threshold)

    def get_change_point(self) -> int:
        return self.zeros[0] if self.sums[0] >= self.sums[1] else self.zeros[1]


class ReferencePageHinkley(_Reference):
    """Page-Hinkley by its sums, all of them kept."""

    is_sequential = True

    def __init__(self, options: Any) -> None:
        super().__init__(options, options.n_feedback)

    def initialize(self) -> None:
        super().initialize()
        self.up: list[float] = []
        self.down: list[float] = []

    def use_feedback(self, items: Sequence[float]) -> None:
        for x in items:
            self._add(x)
        self.has_feedback = len(self.items) >= self.n_feedback

    def check(self, item: float) -> bool:
        self._add(item)
        return self._has_risen() or self._has_fallen()

    def get_change_point(self) -> int:
        start = self.n_seen - len(self.items)
        if self._has_risen():
            return start + self.up.index(min(self.up)) + 1
        return start + self.down.index(max(self.down)) + 1

    def _has_risen(self) -> bool:
        high = self.up[-1] - min(self.up) > self.options.threshold
        return bool(high and self.options.direction != "down")

    def _has_fallen(self) -> bool:
        low = max(self.down) - self.down[-1] > self.options.threshold
        return bool(low and self.options.direction != "up")

    def _add(self, x: float) -> None:
        self.items.append(x)
        off = x - sum(self.items) / len(self.items)
        up, down = (self.up or [0.0])[-1], (self.down or [0.0])[-1]
        self.up.append(self.options.fading * up + off - self.options.tolerance)
        self.down.append(self.options.fading * down + off + self.options.tolerance)


REFERENCES: dict[str, Callable[[Any], ScalarDetector]] = {
    "beta_cusum": ReferenceBetaCusum,
    "adwin": ReferenceAdwin,
    "martingale": ReferenceMartingale,
    "meta": ReferenceMeta,
    "change_finder": ReferenceChangeFinder,
    "cusum": ReferenceCusum,
    "page_hinkley": ReferencePageHinkley,
}
"""The reference of each detector in the table."""


@dataclass(frozen=True, slots=True)
class ReferenceOptions(ScalarOptions):
    """The reference of a detector as a detector: for banks to compare with."""

    name: str
    """Of the detector."""
    options: Any
    """Those of the detector."""

    def build_one(self) -> ScalarDetector:
        """Return one fresh reference."""
        return REFERENCES[self.name](self.options)

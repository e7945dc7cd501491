"""What a cache saves and what it costs, from what was counted lately.

All figures are of one unit of time, a batch for instance, and in one unit of work, as nanoseconds.
With d rows that enter a join and c for one of them, a stretch of joins is Σ d·c work. A cache of it
saves that, less the probes, and less the same work again for the keys it does not have
[Babu05 (5.a)]; it costs what it takes to keep it consistent [Babu05 (5.b)].

One formula serves rows that come one by one and rows that come in batches: a batch evaluates each
of its distinct keys once, cached or not, so there the rows that enter are those keys, and what
follows from them. A cache then earns only on keys that come again in later batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.joins.caches.prefix_invariant import Candidate, Store

WINDOW = 10
"""Observations that an estimate is the mean of (W) [Babu05 5.8.1]."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Successive joins of a pipeline, of which no cache is in effect."""

    rows: tuple[float, ...]
    """Rows that enter each join per unit of time, and those that leave the last one (d)."""
    costs: tuple[float, ...]
    """Work of each join for a row that enters it (c); one less than ``rows``."""

    @property
    def works(self) -> tuple[float, ...]:
        """The work of each join per unit of time (d·c)."""
        return tuple(rows * cost for rows, cost in zip(self.rows, self.costs, strict=False))

    @property
    def work(self) -> float:
        """The work of all joins per unit of time."""
        return sum(self.works)

    @property
    def rows_per_entry(self) -> float:
        """Mean rows that are kept by a key, each key counted as often as it comes."""
        return self.rows[-1] / self.rows[0] if self.rows[0] else 0.0

    def part(self, start: int, stop: int) -> Self:
        """Return the joins at positions ``[start, stop)``."""
        return type(self)(self.rows[start : stop + 1], self.costs[start:stop])


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What using a cache takes."""

    miss_frac: float
    """Share of the probes that find nothing ([0, 1])."""
    probe_cost: float
    """Work of a probe, with what a hit takes to be put together."""
    update_cost: float
    """Work to put a row in."""
    support_cost: float = 0.0
    """Work to ask whether the window of a new row holds one with the same keys; where needed."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the join that a store keeps, per unit of time."""

    seen: float
    """Rows that its taps see."""
    kept: float
    """Those of them whose key it has."""


def benefit(stretch: Stretch, use: CacheUse) -> float:
    """Return the work that a cache saves per unit of time; negative if it takes more.

    [Babu05 (5.a)]; for a batch the rows of the stretch are those of its distinct keys.
    """
    return stretch.work - proc(stretch, use)


def proc(stretch: Stretch, use: CacheUse) -> float:
    """Return the work that is left of a stretch with a cache per unit of time [Babu05 (5.c)]."""
    filling = stretch.work + stretch.rows[-1] * use.update_cost
    return stretch.rows[0] * use.probe_cost + use.miss_frac * filling


def candidate_benefit(
    candidate: Candidate, pipelines: Mapping[str, Stretch], use: CacheUse
) -> float:
    """Return what a candidate saves per unit of time, for rows that come one by one.

    Args:
        candidate: the cache.
        pipelines: the joins of each pipeline.
        use: what using it takes.
    """
    whole = pipelines[candidate.pipeline]
    asked = whole.rows[0] if candidate.is_self_supporting else 0.0
    stretch = whole.part(candidate.start, candidate.stop)
    return benefit(stretch, use) - asked * use.support_cost


def store_changes(store: Store, pipelines: Mapping[str, Stretch]) -> Changes:
    """Return the changes that a store sees per unit of time, all kept [Babu05 (5.b)].

    Those of keys that it does not have are not told apart; so it costs at most what follows.

    Args:
        store: what is kept.
        pipelines: the joins of each pipeline.
    """
    seen = sum(pipelines[name].rows[store.tap] for name in sorted(store.closed))
    return Changes(seen, seen)


def upkeep_cost(changes: Changes, update_cost: float, look_up_cost: float = 0.0) -> float:
    """Return the work to keep a store consistent per unit of time [Babu05 (5.b)].

    Args:
        changes: how many there are.
        update_cost: work to put a row in.
        look_up_cost: work to see whether the key of a row is kept.
    """
    return update_cost * changes.kept + look_up_cost * changes.seen


@dataclass(frozen=True, slots=True)
class StretchCounts:
    """What was counted in successive joins. Counts of tasks and buckets add up."""

    rows: tuple[float, ...]
    """Rows that entered each join, and those that left the last one."""
    works: tuple[float, ...]
    """Work of each join; one less than ``rows``."""

    def __add__(self, other: StretchCounts) -> StretchCounts:
        return StretchCounts(_sums(self.rows, other.rows), _sums(self.works, other.works))


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """What was counted where a cache is, or would be, probed. Counts of buckets add up."""

    keys: float
    """Distinct keys that came."""
    misses: float
    """Those that the cache does not have, or that did not come lately if there is no cache."""

    def __add__(self, other: ProbeCounts) -> ProbeCounts:
        return ProbeCounts(self.keys + other.keys, self.misses + other.misses)


@dataclass(frozen=True, slots=True)
class StretchEstimate:
    """The newest observations of successive joins: one per batch, or per profiled row."""

    observations: tuple[StretchCounts, ...] = ()
    """The newest last."""
    costs: tuple[float, ...] = ()
    """Work of each join for a row, the last that is known; 0 if no row ever came."""

    def observed(self, counts: StretchCounts, window: int = WINDOW) -> Self:
        """Return the estimate with one more observation, of the newest ``window`` (≥ 1).

        A cost is a ratio of sums, so that a join that few rows reach at a time is not judged by
        its dearest calls; where no row came it is what it was before [Babu05 5.5.3].
        """
        newest = (*self.observations, counts)[-window:]
        before = self.costs or (0.0,) * len(counts.works)
        rows = _sums(*(each.rows for each in newest))
        works = _sums(*(each.works for each in newest))
        costs = tuple(
            work / n if n else old for work, n, old in zip(works, rows, before, strict=False)
        )
        return type(self)(newest, costs)

    def stretch(self, rate: float) -> Stretch:
        """Return the joins when so many rows enter the first one per unit of time.

        Args:
            rate: all rows, or distinct keys, of which the observations are a sample.

        Raises:
            ValueError: nothing was observed.
        """
        if not self.observations:
            msg = "nothing was observed yet"
            raise ValueError(msg)
        rows = _sums(*(each.rows for each in self.observations))
        scale = rate / rows[0] if rows[0] else 0.0
        return Stretch(tuple(scale * each for each in rows), self.costs)


@dataclass(frozen=True, slots=True)
class ProbeEstimate:
    """The newest observations of one place where a cache is, or would be, probed."""

    observations: tuple[ProbeCounts, ...] = ()
    """The newest last."""

    def observed(self, counts: ProbeCounts, window: int = WINDOW) -> Self:
        """Return the estimate with one more observation, of the newest ``window`` (≥ 1)."""
        return type(self)((*self.observations, counts)[-window:])

    @property
    def keys(self) -> float:
        """Mean distinct keys of an observation; 0 without one."""
        n_observations = max(len(self.observations), 1)
        return sum(each.keys for each in self.observations) / n_observations

    @property
    def miss_frac(self) -> float:
        """Share of the keys that were misses ([0, 1]); 1 if none came."""
        keys = sum(each.keys for each in self.observations)
        return sum(each.misses for each in self.observations) / keys if keys else 1.0


def _sums(*rows: Sequence[float]) -> tuple[float, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))

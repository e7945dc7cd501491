"""The worth of a cache: the work that it saves and the work that it costs, from late counts.

All figures are of one unit of time, such as a batch, and in one unit of work, such as nanoseconds.
With d rows that enter a join and c for each of them, a stretch of joins is Σ d·c work. A cache of
the stretch saves that, less the look-ups, and less the same work again for missing keys
[Babu05 (5.a)]; it costs the work to keep its store consistent [Babu05 (5.b)].

One formula serves rows that come one by one and rows that come in batches: a batch joins each of
its distinct keys once, cached or not, so there the rows that enter are those keys, and what follows
from them. A cache then earns only on keys that come again in later batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

JUDGED = 3
"""Batches that an estimate is the mean of: each is of many rows."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Successive joins of a pipeline, as they are without caches."""

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
    """The work to use a cache."""

    miss_frac: float
    """Share of the probes that find nothing ([0, 1])."""
    probe_cost: float
    """Work of a probe, with putting the combinations of a hit together."""
    update_cost: float
    """Work to put a row in."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the join that a store keeps, per unit of time."""

    seen: float
    """Rows that its taps see."""
    kept: float
    """Rows of these whose key it has."""


def benefit(stretch: Stretch, use: CacheUse) -> float:
    """Return the work that a cache saves per unit of time; negative if it takes more.

    [Babu05 (5.a)]; for a batch the rows of the stretch are those of its distinct keys.
    """
    return stretch.work - proc(stretch, use)


def proc(stretch: Stretch, use: CacheUse) -> float:
    """Return the work that is left of a stretch with a cache per unit of time [Babu05 (5.c)]."""
    filling = stretch.work + stretch.rows[-1] * use.update_cost
    return stretch.rows[0] * use.probe_cost + use.miss_frac * filling


def upkeep_cost(changes: Changes, update_cost: float, look_up_cost: float = 0.0) -> float:
    """Return the work to keep a store consistent per unit of time [Babu05 (5.b)].

    A row that is kept is put in; of each row that is seen the key is looked up.
    """
    return update_cost * changes.kept + look_up_cost * changes.seen


@dataclass(frozen=True, slots=True)
class JoinEstimate:
    """The newest observations of one join, of one batch each."""

    observations: tuple[tuple[int, int, int], ...] = ()
    """Rows in, rows out and work, the newest last."""
    cost: float = 0.0
    """Work of a row, the last that is known; 0 if no row ever came."""

    def observed(self, n_in: int, n_out: int, work: int, window: int = JUDGED) -> Self:
        """Return the estimate with one more observation, of the newest ``window`` (≥ 1).

        The cost is a ratio of sums, so that a join that few rows reach at a time is not judged by
        its dearest calls; where no row came it is what it was before [Babu05 5.5.3].
        """
        newest = (*self.observations, (n_in, n_out, work))[-window:]
        n_rows = sum(each[0] for each in newest)
        cost = sum(each[2] for each in newest) / n_rows if n_rows else self.cost
        return type(self)(newest, cost)

    @property
    def fan_out(self) -> float:
        """Rows out for a row in; 0 if none came."""
        n_in = sum(each[0] for each in self.observations)
        return 1.0 / n_in * sum(each[1] for each in self.observations) if n_in else 0.0

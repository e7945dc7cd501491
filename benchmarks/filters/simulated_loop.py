"""Counted work: the real executor and loop over known outcomes, with a clock that costs drive.

Nothing is timed. A filter's cost is declared; evaluating it moves the clock by that much, so costs
are learned as in a real run and two runs give the same numbers. What is counted includes every
evaluation that profiling adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import Floats, Mask
from eddyline.data.outcomes import sampled_rows, seed_of
from eddyline.filters.executor import ArrowExecutor, Sample
from eddyline.filters.loop import FilterLoop, run_batch
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate
from eddyline.routing.table import Attribute
from eddyline.stats.profile import Order
from eddyline.testing.reference_orders import cheapest_order

BATCH_ROWS = 10_000
"""Rows of an Arrow batch: Spark's default ``spark.sql.execution.arrow.maxRecordsPerBatch``."""

THESIS = {"sample_prob": 0.01, "warmup_prob": 0.01, "window_rows": 1000, "max_overhead": 1.0}
"""Settings that sample as the thesis does: a fixed probability, whatever that costs."""

OF_LOOP = ("window_rows", "min_fill", "warmup_prob")
"""Settings of an experiment that are arguments of the loop; the others are options."""


def loop_of(filter_ids: tuple[str, ...], settings: Mapping[str, Any], **more: Any) -> FilterLoop:
    """Return a loop with the settings of an experiment."""
    of_loop = {name: settings[name] for name in OF_LOOP if name in settings}
    options = {name: value for name, value in settings.items() if name not in OF_LOOP}
    return FilterLoop("arrow", filter_ids, FilterOptions.of(**options), **of_loop, **more)


@dataclass(frozen=True)
class Stream:
    """Rows of which it is known which filter drops them, and what a filter costs."""

    drops: Mask
    """Which filter drops which row ((R, F))."""
    costs_ns: Floats
    """Cost of one evaluation of each filter (ns; > 0; (F,))."""
    values: Floats | None = None
    """Values of attributes that may tell classes of rows apart ((R, K)); None: there are none."""

    @property
    def n_rows(self) -> int:
        """R, the number of rows."""
        return len(self.drops)

    @property
    def n_filters(self) -> int:
        """F, the number of filters."""
        return int(self.drops.shape[1])

    def histograms(self, batch_rows: int = BATCH_ROWS) -> Floats:
        """Return how often each outcome code comes in each batch ((B, 2^F))."""
        codes = self.drops @ (1 << np.arange(self.n_filters))
        starts = range(0, self.n_rows, batch_rows)
        n_codes = 2**self.n_filters
        counts = [np.bincount(codes[s : s + batch_rows], minlength=n_codes) for s in starts]
        return np.array(counts, dtype=np.float64)

    def slice(self, start: int, stop: int) -> Stream:
        """Return some of the rows."""
        values = None if self.values is None else self.values[start:stop]
        return Stream(self.drops[start:stop], self.costs_ns, values)


def code_costs(order: Sequence[int], costs_ns: Floats) -> Floats:
    """Return what an order spends on a row of each outcome code (ns; (2^F,))."""
    codes = np.arange(2 ** len(costs_ns))
    spent, alive = np.zeros(len(codes)), np.ones(len(codes), dtype=bool)
    for f in order:
        spent += costs_ns[f] * alive
        alive &= (codes >> f) & 1 == 0
    return spent


def fixed_work(histograms: Floats, order: Sequence[int], costs_ns: Floats) -> Floats:
    """Return what a fixed order spends on each batch, without any profiling (ns; (B,))."""
    return histograms @ code_costs(order, costs_ns)


def best_work(histograms: Floats, costs_ns: Floats) -> float:
    """Return what the best fixed order for all batches spends, or for one (ns)."""
    best = cheapest_order(np.atleast_2d(histograms).sum(0), costs_ns)
    return float(fixed_work(histograms, best, costs_ns).sum())


def next_sample(loop: FilterLoop, seed: int, number: int, start: int, n_rows: int) -> Sample:
    """Choose the profiled rows of a batch as a worker does.

    The batch is number ``number`` of the task that has the seed, and begins at row ``start`` of it.
    """
    chance = (seed_of(seed, number) & 0xFFFFFFFF) / 2.0**32
    prob = loop.batch_prob(n_rows, chance)
    return loop.sample(sampled_rows(seed, start, n_rows, prob), prob)


class Clock:
    """A clock that stands still until a filter is evaluated."""

    def __init__(self) -> None:
        self.now_ns = 0.0

    def __call__(self) -> Any:
        """Return the time (ns)."""
        return self.now_ns


@dataclass(frozen=True)
class CountedRun:
    """What one run of a policy spent."""

    work_ns: Floats
    """Cost of all evaluations of each batch, profiling included (ns; (B,))."""
    evaluations: Floats
    """Evaluations of each filter in each batch, profiling included ((B, F))."""
    extra: Floats
    """Evaluations of each batch that only profiling needed ((B,))."""
    orders: list[Order]
    """The order that each batch ran under."""
    n_changes: int
    """Changes of order."""

    @property
    def total_ns(self) -> float:
        """Cost of the whole run (ns)."""
        return float(self.work_ns.sum())


class _CountedFilter:
    """A filter whose outcome is its input: it counts rows and moves the clock."""

    def __init__(self, cost_ns: float, clock: Clock) -> None:
        self.cost_ns = cost_ns
        self.clock = clock
        self.n_rows = 0

    def __call__(self, passes: pa.Array) -> pa.Array:
        self.n_rows += len(passes)
        self.clock.now_ns += self.cost_ns * len(passes)
        return passes


class CountedLoop:
    """The loop of one worker over counted filters; keeps what it learned between streams.

    Args:
        costs_ns: cost of one evaluation of each filter (ns; (F,)).
        written: the order in which the user wrote the filters; by index if omitted.
        attributes: what may tell classes of rows apart, as columns of ``Stream.values``.
        reads: for each filter, by index, the attributes that it reads itself.
        settings: options, see ``eddyline.options.FilterOptions``, and those of ``OF_LOOP``.
    """

    def __init__(
        self,
        costs_ns: Floats,
        written: Order | None = None,
        *,
        attributes: tuple[Attribute, ...] = (),
        reads: tuple[frozenset[str], ...] | None = None,
        **settings: Any,
    ) -> None:
        n = len(costs_ns)
        self.written = written or tuple(range(n))
        self.clock = Clock()
        self.filters = [_CountedFilter(float(costs_ns[f]), self.clock) for f in range(n)]
        named = [predicate(self.filters[f], reads=["x"], name=f"f{f}") for f in self.written]
        self.executor = ArrowExecutor(named, [(f,) for f in self.written], clock=self.clock)
        self.loop = loop_of(
            self.executor.filter_ids,
            settings,
            attributes=attributes,
            reads=reads and tuple(reads[f] for f in self.written),
            thinks_freely=True,  # its thoughts take no time, and evidence for a log is kept
            clock=self.clock,
        )

    @property
    def order(self) -> Order:
        """The order in force, by filter index."""
        return tuple(self.written[position] for position in self.loop.order)

    def run(self, stream: Stream, *, seed: int = 0, batch_rows: int = BATCH_ROWS) -> CountedRun:
        """Run the rows of one task, batch by batch, as a worker does."""
        passes = [pa.array(column) for column in ~stream.drops.T]
        work, evaluations, extra, orders, n_changes = [], [], [], [], 0
        for start in range(0, stream.n_rows, batch_rows):
            columns = [column.slice(start, batch_rows) for column in passes]
            values = None
            if stream.values is not None and self.loop.is_learning_routes:
                values = list(stream.values[start : start + batch_rows].T)
            before, counts = self.clock.now_ns, self._counts()
            orders.append(self.order)
            extra.append(0)
            pieces = run_batch(
                self.executor, self.loop, columns, seed=seed, first_row=start, values=values
            )
            for outcome, decided in pieces:
                extra[-1] += outcome.profile.n_extra
                n_changes += sum(entry.event == "order" for entry in decided)
            work.append(self.clock.now_ns - before)
            evaluations.append(self._counts() - counts)
        return CountedRun(
            np.array(work), np.array(evaluations), np.array(extra, float), orders, n_changes
        )

    def _counts(self) -> Floats:
        return np.array([each.n_rows for each in self.filters], dtype=np.float64)


def run_counted(
    stream: Stream, *, seed: int = 0, batch_rows: int = BATCH_ROWS, **given: Any
) -> CountedRun:
    """Run a policy over a stream; what is given is that of a ``CountedLoop``."""
    loop = CountedLoop(stream.costs_ns, **{"seed": seed, **given})
    return loop.run(stream, seed=seed_of("benchmark", seed), batch_rows=batch_rows)


def concatenated(streams: Sequence[Stream]) -> Stream:
    """Return one stream of several, in order."""
    values = [each.values for each in streams if each.values is not None]
    return Stream(
        np.concatenate([each.drops for each in streams]),
        streams[0].costs_ns,
        np.concatenate(values) if len(values) == len(streams) else None,
    )

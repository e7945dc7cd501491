"""A windowed join on Spark: joins micro-batches with the windows, and names what these hold.

The driver's half. The rows of a batch are shuffled to their buckets once; tasks join them, write
new runs, and report. The state after the batch names these runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.errors import StateError
from eddyline.joins.caches.loop import JoinCaches
from eddyline.joins.clusters import Clusters
from eddyline.joins.discards import Discards, DiscardState
from eddyline.joins.done_loop import DoneLoop
from eddyline.joins.grid_choice import chosen_grid
from eddyline.joins.grid_loop import GridLoop
from eddyline.joins.loop import JoinLoop
from eddyline.joins.monitor_budget import MonitorBudget
from eddyline.joins.operator.done_rows import CLOSED, MATCHED, PASSED, merged_counts
from eddyline.joins.operator.lost_results import merged_lost
from eddyline.joins.operator.partner_ages import merged
from eddyline.joins.operator.probe_counts import JoinWork
from eddyline.joins.plan import BUCKETS, COMPONENT, WAYS, BatchPlan
from eddyline.joins.profile import JoinProfile
from eddyline.joins.state_part import JoinPart
from eddyline.joins.tier_loop import TierLoop
from eddyline.joins.unique_keys import covers, uncut_classes
from eddyline.joins.value_order import ValueOrders, watched
from eddyline.options import DISCARD, JoinOptions
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.buckets import ADAPTIVE, REPORT, BucketReports
from eddyline.spark.joins.bound import bind_join
from eddyline.spark.joins.handing import Handing
from eddyline.spark.joins.input_steps import operators_of_inputs
from eddyline.spark.joins.inputs import JoinInputs
from eddyline.spark.joins.placement import Placement
from eddyline.spark.joins.shown import Shown
from eddyline.spark.joins.table_filter import TableFilter
from eddyline.spark.joins.task import BatchWorker, OnceWorker, Shape
from eddyline.spark.operator import Laid, Pending
from eddyline.spark.run.observed_metrics import PendingMetrics
from eddyline.state.late_rows import settle_late
from eddyline.state.repartitioning import Moved, buckets_for
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from eddyline.joins.plan import BucketReport
    from eddyline.query.steps import JoinStep
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.joins.bound import BoundJoin
    from eddyline.spark.operator import Batch, Observed, Operator, Site
    from eddyline.state.manifest import StatePart
    from eddyline.state.place import StatePlace


class LearnedJoin(msgspec.Struct):
    """Learned state of a join."""

    loop: Any
    bins: list[tuple[str, int, list[float]]]
    n_joined: dict[str, int]
    n_results: int
    tiers: Any = None
    done: dict[str, Any] = msgspec.field(default_factory=dict)
    orders: Any = None
    unique: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    way: str = BUCKETS
    clusters: Any = None
    drops: Any = None


class JoinOperator(Shown):
    """A join over micro-batches, and what has been learned of it.

    Args:
        bound: the join.

    Raises:
        OptionError: the policy or the monitor is unknown or of the wrong kind.
    """

    name = COMPONENT
    takes = JoinOptions

    def __init__(self, bound: BoundJoin) -> None:
        self.bound = bound
        self.source, self.left, self.then = bound.source.rows, bound.left, bound.then
        self.inputs = JoinInputs(bound.source, bound.lateness)
        self.time, self.clock, self.times = None, self.inputs, bound.times
        steps = bound.source.laid, bound.filter_options, bound.name
        self._of_inputs = (self.inputs, *operators_of_inputs(*steps, self.inputs))
        self.options = bound.options.resolved()
        self.keeps_late = tuple(each.name for each in bound.inputs if each.made is None)
        timed = (each for each in bound.inputs if each.time is not None and each.made is None)
        self.without_lateness = tuple(each.name for each in timed if each.lateness is None)
        self.graph = bound.graph
        # A row meets all its partners in one bucket, where it is decided: no key is split.
        is_inner = bound.step.kind == "inner"
        is_plain = is_inner and not bound.is_ordered
        lengths, drops = bound.constrained, self.options.constraints == DISCARD
        self.tiers = TierLoop({} if drops else lengths)
        self.done = {rule: DoneLoop(rule) for rule in (PASSED, CLOSED, MATCHED)}
        """By rule, whether rows leave once they are done."""
        self._monitors = MonitorBudget()
        rough, tiered = bound.source.rough, self.tiers.lengths
        self.orders = ValueOrders(watched(self.graph, tiered, bound.timed, rough))
        # Hashes are in no order, but equal ones are of equal keys, all but a few.
        self.clusters = Clusters(watched(self.graph, tiered, bound.timed, ()), bound.lengths)
        dropped = lengths if drops else {}
        self.discards = Discards(dropped, watched(self.graph, dropped, bound.timed, rough))
        self.unique: dict[str, tuple[int, ...]] = {}
        """By static table, the key classes of which no two of its rows have the same code."""
        self.drops = TableFilter(bound, is_on=is_plain and self.options.adaptive)
        can_cache = is_plain and not self.tiers.lengths and not self.discards.lengths
        tables = frozenset(self.graph.inputs) - {*bound.timed}
        self.loop = JoinLoop(self.graph, self.options, tables)
        self.grids = GridLoop(
            self.graph,
            bound.n_buckets,
            bound.n_tasks,
            # Rows of a key meet each other in one bucket, and so are not cut by their time.
            [name for name in bound.timed if name not in bound.keys],
            is_adaptive=self.options.adaptive and is_inner,
            uncut=uncut_classes(self.graph, ((n, each.key) for n, each in bound.keys.items())),
        )
        self.caches = JoinCaches(
            self.graph,
            bound.timed,
            cache_bytes=self.options.cache_bytes,
            is_on=self.options.adaptive and self.options.caches and can_cache,
            seed=self.options.seed,
        )
        self.handing = Handing(bound, self.inputs)
        self.ways = self.handing.ways
        self.inputs.begins = self._begin
        self.part = JoinPart(self.grids.plan)
        """The state after the newest batch."""
        self.work = JoinWork()
        self.n_joined = dict.fromkeys(self.graph.inputs, 0)
        self.n_results = 0
        self._loads: tuple[int, ...] = ()
        """New rows of each bucket in the newest batch, with copies."""
        self._newest = (0, 0)
        self._told: list[JournalEntry] = []
        """What is to be journaled of the newest batch's discards."""
        self._grid = self.grids.plan
        self._placement: Placement | None = None
        self._last_batch = -1
        self._is_new = True
        self._has_tables = False
        self._reports: BucketReports[BucketReport] = BucketReports()
        self._lock = threading.RLock()

    @classmethod
    def of(cls, step: JoinStep, site: Site) -> Self:
        """Return the operator of a step."""
        return cls(bind_join(step, site))

    @property
    def before(self) -> tuple[Operator, ...]:
        """The operators of steps over one of the inputs."""
        return (*self.bound.source.operators, *self._of_inputs)

    # -- state ----------------------------------------------------------------------------------

    def attach(self, place: StatePlace) -> None:
        """Take note of where windows are written."""
        self.place = place

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:
        """Start from the windows after the batch before."""
        with self._lock:
            self.part = JoinPart(self.grids.plan) if part is None else part.read(JoinPart)
            self.discards.restore(self.part.discards or DiscardState())
            self._last_batch = batch.id - 1
            self._has_tables = part is not None
        self.handing.open(has_tables=part is not None)
        if self._is_new:
            self.grids.start(self.part.grid)
        # A batch that runs again is cut as it was: the files of its late rows have the same names.
        self._grid = self.grids.plan if again is None else again.read(JoinPart).grid

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether every bucket has reported."""
        if self.handing.is_on:
            return self.handing.is_whole(observed)
        return self._reports.of(observed).keys() == {*range(self._grid.n_buckets)}

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:
        """Return the windows after the batch, of which all files are written.

        Raises:
            StateError: late rows cannot be made durable.
        """
        n_late = Counter(self.part.n_late)
        reports: list[BucketReport] = []
        if self.handing.is_on:
            grid, buckets = self.part.grid, self.part.buckets
            late_files = self.handing.late_files(self.place, batch.id)
            n_late[self.handing.name] += self.handing.n_late
        else:
            found, grid = self._reports.of(observed), self._grid
            buckets = {bucket: found[bucket].after for bucket in sorted(found)}
            reports = [found[bucket] for bucket in sorted(found)]
            late_files = {file for report in reports for file in report.late_files}
            for report in reports:
                n_late.update(report.n_late)
        try:
            settle_late(self.place, batch.id, late_files)
        except OSError as error:
            msg = (
                f"late rows of batch {batch.id} cannot be kept in {self.place.late}: {error}; the "
                f"batch runs again when the query is started anew"
            )
            raise StateError(msg, folder=self.place.late) from error
        with self._lock:
            self._told = self._step_discards(reports, batch.id)
            self.part = JoinPart(grid, buckets, dict(+n_late), self.discards.state())
            self._last_batch = batch.id
        return self.part.packed()

    def _step_discards(self, reports: Sequence[BucketReport], batch_id: int) -> list[JournalEntry]:
        """Take in what dropped rows cost; what is learned of it is committed with the batch."""
        if not reports:  # tables were handed to the rows: nothing was looked for in windows
            return []
        lost = merged_lost(each.lost for each in reports)
        seen = min(self.inputs.streams.lows({}).values())
        disorder = [each.disorder for each in reports]
        return self.discards.step(lost, disorder, seen if seen > ALWAYS + 1 else None, batch_id)

    # -- one batch ------------------------------------------------------------------------------

    def _begin(self, batch: Batch) -> None:
        """Choose the way of a batch, before its rows are looked at."""
        self.part = self.handing.begin(batch, self.part, self.place)

    def lay(self, df: DataFrame, batch: Batch) -> Laid:
        """Return the results of a batch, before any condition on them."""
        self._is_new = False
        if self.handing.is_on:
            return self.handing.lay(df, self.part, self.place, self.loop.plan[self.handing.name])
        # A micro-batch has a session of its stream's own.
        df.sparkSession.conf.set(ADAPTIVE, "false")
        bound, done = self.bound, Observation()
        schema = bound.task_schema
        plan = self._plan(batch.id)
        worker = BatchWorker(
            plan,
            Shape(bound.source.layouts, arrow_schema(df.sparkSession, schema)),
            self.place,
            buckets_for(self._grid, self.part.grid, self.part.buckets, self.graph.classes_of),
        )
        if self._placement is None or self._placement.grid != self._grid:
            self._placement = Placement(self._grid, bound.source)
        rows: DataFrame = bound.source.keyed(df)
        dropped: tuple[Pending, ...] = ()
        if self._has_tables:
            self.drops.read(df, self.part, self.place)
            rows, dropped = self.drops.lay(rows, plan.lows)
        rows = self._placement.lay(rows)
        rows = rows.withColumn(BUCKET, F.spark_partition_id())
        found = rows.mapInArrow(worker.run, schema)
        found = found.observe(done, F.collect_list(REPORT).alias("reports"))
        pending = Pending(COMPONENT, PendingMetrics(done))
        return Laid(bound.results(found), (pending, *dropped))

    def once(self, df: DataFrame) -> DataFrame:
        """Return the results over all rows of batch DataFrames; nothing is kept."""
        bound, source = self.bound, self.bound.source
        plan = BatchPlan(
            batch_id=0,
            graph=self.graph,
            orders=self.loop.written,
            lengths=bound.lengths,
            order=bound.order(self.inputs.streams, {}),
            partners=bound.partners(self.inputs.streams, {}),
        )
        shape = Shape(source.layouts, arrow_schema(df.sparkSession, bound.task_schema))
        placement = Placement(chosen_grid(self.graph, bound.n_buckets), source)
        rows = placement.lay(source.keyed(df))
        return bound.results(rows.mapInArrow(OnceWorker(plan, shape).run, bound.task_schema))

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002 - the columns are other ones
        """Return a DataFrame with the columns of results."""
        return self.bound.empty_results

    def _plan(self, batch_id: int) -> BatchPlan:
        drops = self.discards.kept_for is not None
        learned = self.discards if drops else self.orders
        bound, time, latest = self.bound, self.inputs.streams, self.inputs.latest
        is_inner = bound.step.kind == "inner"
        return BatchPlan(
            batch_id=batch_id,
            graph=self.graph,
            orders=self.loop.plan,
            lengths=bound.lengths,
            lows=time.lows({}),
            horizons={name: time.horizon(name, {}) for name in self.graph.inputs},
            grid=self._grid,
            order=bound.order(time, latest),
            partners=bound.partners(time, latest),
            keys_only=bound.keys_only,
            moved=Moved.of(self.part.grid, self.part.buckets, self._grid),
            probing=self.loop.probing(self._grid.shape) if is_inner else None,
            spans=self._spans,
            keys=bound.keys,
            covers=self.covers,
            below=learned.below(),
            tops=self.discards.orders.tops if drops else self.orders.tops,
            closed=self.clusters.closed(latest),
            clusters=self.clusters.measured(latest),
            # What is dropped decides what is in the answer: it depends on no time that is measured.
            measures=drops or self._monitors.may,
            leaving=frozenset(self._leaving),
            kept_for=self.discards.kept_for,
            caches=self.caches.plan(self.loop.plan, batch_id),
        )

    @property
    def covers(self) -> frozenset[str]:
        """The inputs with tiers of which a row is in one result at most."""
        keys = self.unique | {name: (each.key,) for name, each in self.bound.keys.items()}
        return covers(self.graph, keys) & self.tiers.lengths.keys()

    @property
    def _leaving(self) -> Iterator[tuple[str, str]]:
        """The rules by which rows of inputs leave one by one."""
        if self.discards.lengths:
            yield from ((PASSED, name) for name in self.discards.below())
        for rule, loop in self.done.items():
            yield from ((rule, name) for name in loop.leaving)

    @property
    def _spans(self) -> dict[str, int | None]:
        """For how long rows are hot, by input (µs); for all of their window if nothing else."""
        lengths = self.tiers.lengths
        names = {name for loop in self.done.values() for name in loop.leaving}
        leaving = {name: lengths[name] for name in names & lengths.keys()}
        known = {name: span for name, span in self.tiers.plan.items() if span is not None}
        return dict.fromkeys(lengths) | leaving | known

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did."""
        return [*self.handing.take_entries(), *self._learned(observed, batch)]

    def _learned(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        if self.handing.is_on:
            self._count_handed(observed)
            return []
        found = self._reports.of(observed)
        reports = [found[bucket] for bucket in sorted(found)]
        if not reports:
            return []
        with self._lock:
            self._count(reports)
            profile = JoinProfile.of(reports)
            before = dict(self.loop.plan)
            entries = self.loop.step(profile, batch.id)
            changed = {name for name, order in self.loop.plan.items() if order != before[name]}
            self.work = self.work.without(changed)
            ages = merged(each.ages for each in reports)
            self._monitors.step(reports, ages)
            with self._monitors.learning():
                tiers = self.tiers.step(ages, self.inputs.latest, batch.id)
                done = self._step_done(reports, batch.id)
            promises = [each.promises for each in (self.tiers, self.orders, self.clusters)]
            promises += [loop.promises for loop in self.done.values()]
            self._monitors.rest(unless=any(promises))
            return [
                *entries,
                *self.caches.step(profile, batch.id),
                *self.grids.step((each.bins for each in reports), batch.id),
                *tiers,
                *done,
                *self._told,
                *self.drops.step(observed, batch.id),
            ]

    def _step_done(self, reports: Sequence[BucketReport], batch_id: int) -> list[JournalEntry]:
        for name in {name for each in reports for name in each.unique}:
            found = [{*each.unique[name]} for each in reports if name in each.unique]
            self.unique[name] = tuple(sorted(set.intersection(*found)))
        latest = self.inputs.latest
        self.orders.step(each.disorder for each in reports)
        self.clusters.step((each.spans for each in reports), latest)
        n_hot = {name: sum(of.n_rows for of in self.part.files(name)) for name in self.tiers.plan}
        entries = []
        closed = self.clusters.closed(latest)
        for rule, names in (
            (PASSED, self.orders.below()),
            (CLOSED, closed),
            (MATCHED, self.covers),
        ):
            counts = merged_counts((each.done for each in reports), rule)
            ns = sum(each.ns for each in reports)
            why = {name: self.clusters.evidence(name) for name in closed} if rule == CLOSED else {}
            entries += self.done[rule].step(names, counts, n_hot, ns, batch_id, why)
        return entries

    def _count(self, reports: Sequence[BucketReport]) -> None:
        for name in self.n_joined:
            self.n_joined[name] += sum(each.n_rows.get(name, 0) for each in reports)
        self.work = JoinWork.merge([self.work, *(each.work for each in reports)])
        n_results = sum(each.n_results for each in reports)
        n_late: Counter[str] = Counter()
        for each in reports:
            n_late.update(each.n_late)
        self.inputs.count_late(n_late)
        self._newest = n_late.total(), n_results
        self.n_results += n_results
        self._loads = tuple(each.n_here for each in reports)

    def _count_handed(self, observed: Sequence[Observed]) -> None:
        """Count a batch in which the tables were handed to the rows."""
        handing = self.handing
        n_here, n_results = handing.counts(observed)
        with self._lock:
            for table, n in (handing.begun.n_rows if handing.begun else {}).items():
                self.n_joined[table] += n
            self.n_joined[handing.name] += n_here
            if handing.n_late:
                self.inputs.count_late({handing.name: handing.n_late})
            self._newest, self._loads = (handing.n_late, n_results), ()
            self.n_results += n_results

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> LearnedJoin:
        """Return the learned state."""
        return LearnedJoin(
            self.loop.snapshot(),
            self.grids.snapshot(),
            self.n_joined,
            self.n_results,
            self.tiers.snapshot(),
            {rule: loop.snapshot() for rule, loop in self.done.items()},
            self.orders.snapshot(),
            self.unique,
            self.ways.plan,
            self.clusters.snapshot(),
            self.drops.loop.snapshot(),
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: it is damaged, or of something else.
        """
        try:
            learned = msgspec.convert(state, LearnedJoin)
        except msgspec.ValidationError as error:
            msg = f"what the join {self.bound.name!r} has learned cannot be read: {error}"
            raise StateError(msg, query=self.bound.name) from error
        unknown = learned.done.keys() - self.done.keys()
        unknown |= learned.unique.keys() - {*self.graph.inputs}
        unknown |= {learned.way} - {*WAYS}
        if unknown:
            msg = f"what the join {self.bound.name!r} has learned is of others: {sorted(unknown)}"
            raise StateError(msg, query=self.bound.name)
        self.loop.restore(learned.loop)
        self.grids.restore(learned.bins)
        if learned.tiers is not None:
            self.tiers.restore(learned.tiers)
        for rule, known in learned.done.items():
            self.done[rule].restore(known)
        if learned.orders is not None:
            self.orders.restore(learned.orders)
        if learned.clusters is not None:
            self.clusters.restore(learned.clusters)
        if learned.drops is not None:
            self.drops.loop.restore(learned.drops)
        self.unique = learned.unique
        if self.ways.is_adaptive:
            self.ways.plan = learned.way
        self.n_joined |= {name: learned.n_joined.get(name, 0) for name in self.n_joined}
        self.n_results = learned.n_results

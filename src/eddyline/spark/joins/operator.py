"""A windowed join on Spark: joins micro-batches with the windows, and names what these hold.

The driver's half. The rows of a batch are shuffled to their buckets once; tasks join them, write
new runs, and report. The state after the batch names these runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.errors import StateError
from eddyline.joins.caches.loop import JoinCaches
from eddyline.joins.discards import DiscardState
from eddyline.joins.grid_choice import chosen_grid
from eddyline.joins.grid_loop import GridLoop
from eddyline.joins.leaving_loops import LeavingLoops
from eddyline.joins.loop import JoinLoop
from eddyline.joins.operator.probe_counts import JoinWork
from eddyline.joins.plan import BUCKETS, COMPONENT, WAYS, BatchPlan
from eddyline.joins.profile import JoinProfile
from eddyline.joins.state_part import JoinPart
from eddyline.joins.unique_keys import uncut_classes
from eddyline.options import DISCARD, JoinOptions
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.buckets import ADAPTIVE, FOUND, BucketReports, state_of, what_is_found
from eddyline.spark.joins.bound import bind_join, gives_all
from eddyline.spark.joins.handing import Handing
from eddyline.spark.joins.input_steps import operators_of_inputs
from eddyline.spark.joins.inputs import JoinInputs
from eddyline.spark.joins.placement import Placement
from eddyline.spark.joins.shown import Shown
from eddyline.spark.joins.table_filter import TableFilter
from eddyline.spark.joins.task import BatchWorker, OnceWorker, Shape
from eddyline.spark.operator import Laid, Pending
from eddyline.spark.prepared import Counted
from eddyline.spark.run.observed_metrics import PendingMetrics
from eddyline.state.grid import Moved, buckets_for
from eddyline.state.late_rows import settle_late

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.joins.leaving_loops import LeavingSnapshot
    from eddyline.joins.plan import BucketReport
    from eddyline.query.steps import JoinStep
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.joins.bound import BoundJoin
    from eddyline.spark.operator import Batch, Observed, Operator, Site
    from eddyline.state.manifest import StatePart, StatePlace


class LearnedJoin(msgspec.Struct, forbid_unknown_fields=True):
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

    @property
    def leaving(self) -> LeavingSnapshot:
        """What was learned of rows that leave."""
        return {
            "tiers": self.tiers,
            "done": self.done,
            "orders": self.orders,
            "unique": self.unique,
            "clusters": self.clusters,
        }


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
        self.unbounded = bound.unbounded
        self.graph = bound.graph
        # A row meets all its partners in one bucket, where it is decided: no key is split.
        is_inner = bound.step.kind == "inner"
        is_plain = is_inner and not bound.is_ordered
        self.leaving = LeavingLoops(
            self.graph,
            bound.lengths,
            bound.constrained,
            bound.timed,
            bound.source.rough,
            {name: each.key for name, each in bound.keys.items()},
            drops=self.options.constraints == DISCARD,
        )
        # What is dropped decides what is in the answer, and is learned of the rows that come.
        is_filtered = is_plain and self.options.adaptive and not self.leaving.discards.lengths
        self.drops = TableFilter(bound, is_on=is_filtered)
        can_cache = is_plain and not self.leaving.lengths
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
        # Tables that may be handed to the rows leave nothing for Python to do, as a rule.
        self.task_module = "" if self.handing.broadcast else BatchWorker.__module__
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
            self.leaving.discards.restore(self.part.discards or DiscardState())
            self._last_batch = batch.id - 1
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
            low = min(self.inputs.streams.lows({}).values())
            self._told = self.leaving.step_discards(reports, low, batch.id)
            discards = self.leaving.discards.state()
            self.part = JoinPart(grid, buckets, dict(+n_late), discards)
            self._last_batch = batch.id
        return self.part.packed()

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
        if self.handing.has_tables:
            with state_of(0, "tables", self.place.folder):
                self.drops.read(df, self.part, self.place)
            rows, dropped = self.drops.lay(rows, plan.lows)
        rows = self._placement.lay(rows)
        rows = rows.withColumn(BUCKET, F.spark_partition_id())
        found = rows.mapInArrow(worker.run, schema)
        found = found.observe(done, *self._observes)
        pending = Pending(COMPONENT, PendingMetrics(done))
        counted = Counted(done, FOUND) if gives_all(bound) else None
        return Laid(bound.results(found), (pending, *dropped), counted=counted)

    @cached_property
    def _observes(self) -> tuple[Column, ...]:
        """What is observed of what tasks return: their reports, and how many rows are none."""
        return what_is_found()

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
            keys=bound.keys,
            caches=self.caches.plan(self.loop.plan, batch_id),
            **self.leaving.plan(latest),
        )

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did."""
        return [*self.handing.take_entries(), *self._learned(observed, batch)]

    def _learned(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        # Tables that were taken by themselves come in no bucket, whatever the way of the batch is.
        for table, n in (self.handing.begun.n_rows if self.handing.begun else {}).items():
            self.n_joined[table] += n
        if self.handing.is_on:
            self._count_handed(observed)
            return []
        found = self._reports.of(observed)
        reports = [found[bucket] for bucket in sorted(found)]
        if not reports:
            return []
        with self._lock:
            n_rows = self._count(reports)
            profile = JoinProfile.of(reports)
            before = dict(self.loop.plan)
            entries = self.loop.step(profile, batch.id)
            changed = {name for name, order in self.loop.plan.items() if order != before[name]}
            self.work = self.work.without(changed)
            n_hot = {
                name: sum(of.n_rows for of in self.part.files(name))
                for name in self.leaving.tiers.plan
            }
            leaving = self.leaving.step(reports, self.inputs.latest, n_hot, batch.id)
            return [
                *entries,
                *self.caches.step(profile, batch.id),
                *self.grids.step((each.bins for each in reports), batch.id),
                *leaving,
                *self._told,
                *self.drops.step(observed, n_rows, batch.id),
            ]

    def _count(self, reports: Sequence[BucketReport]) -> dict[str, int]:
        """Count a batch; returns its rows by input."""
        n_rows = {name: sum(each.n_rows.get(name, 0) for each in reports) for name in self.n_joined}
        for name, n in n_rows.items():
            self.n_joined[name] += n
        self.work = JoinWork.merge([self.work, *(each.work for each in reports)])
        n_results = sum(each.n_results for each in reports)
        n_late: Counter[str] = Counter()
        for each in reports:
            n_late.update(each.n_late)
        self.inputs.count_late(n_late, self.place, self._last_batch)
        self._newest = n_late.total(), n_results
        self.n_results += n_results
        self._loads = tuple(each.n_here for each in reports)
        return n_rows

    def _count_handed(self, observed: Sequence[Observed]) -> None:
        """Count a batch in which the tables were handed to the rows."""
        handing = self.handing
        n_here, n_results = handing.counts(observed)
        with self._lock:
            self.n_joined[handing.name] += n_here
            self.drops.loop.newest = 0
            if handing.n_late:
                n_late = {handing.name: handing.n_late}
                self.inputs.count_late(n_late, self.place, self._last_batch)
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
            way=self.ways.plan,
            drops=self.drops.loop.snapshot(),
            **self.leaving.snapshot(),
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
        # Nothing is taken of what is of others: the way is looked at before anything is.
        others = {learned.way} - {*WAYS} or self.leaving.restore(learned.leaving)
        if others:
            msg = f"what the join {self.bound.name!r} has learned is of others: {sorted(others)}"
            raise StateError(msg, query=self.bound.name)
        self.loop.restore(learned.loop)
        self.grids.restore(learned.bins)
        if learned.drops is not None:
            self.drops.loop.restore(learned.drops)
        if self.ways.is_adaptive:
            self.ways.plan = learned.way
        self.n_joined |= {name: learned.n_joined.get(name, 0) for name in self.n_joined}
        self.n_results = learned.n_results

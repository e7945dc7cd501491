"""Aggregates in buckets: what those by window and those of each row have in common on Spark.

The driver's half. The rows of a batch go to their buckets in one shuffle, as cells or as they are
(``Placement``); tasks answer what event time allows, keep the rest, and report.

A batch with few cells is answered by the driver (``fetched``, ``answered``). Starting tasks for the
buckets, and a shuffle to them, takes a tenth of a second or more, however little they have to do.
The work is the same, done by the same code, bucket by bucket.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StructField, StructType

from eddyline.aggregates.loop import (
    PLANS,
    AggregateLoop,
    AggregateProfile,
    AggregateView,
)
from eddyline.aggregates.plan import COMPONENT, AggregatePart, AggregatePlan, Partials
from eddyline.errors import QueryError
from eddyline.options import AggregateOptions
from eddyline.query.query import LONGEST
from eddyline.report import aggregates as words
from eddyline.runtime.journal import TaskReport
from eddyline.spark.aggregates.columns import MICROS, ROWS, START, Groups, Lifting
from eddyline.spark.aggregates.task import AggregateWorker
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.arrow_tasks import BUCKET, map_batches
from eddyline.spark.buckets import ADAPTIVE, FOUND, REPORT, BucketReports, what_is_found
from eddyline.spark.clocks_of_results import ResultClock
from eddyline.spark.event_time import LOCAL, micros_of, time_type
from eddyline.spark.operator import Laid, Operator, Pending, UnboundedState
from eddyline.spark.prepared import Added, Counted, Known, Reduced
from eddyline.spark.run.observed_metrics import PendingMetrics
from eddyline.spark.session import is_ansi
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.aggregates.loop import AggregateRecord
    from eddyline.aggregates.plan import BucketReport
    from eddyline.aggregates.slides import Slides
    from eddyline.query.query import AggregateCall, Window
    from eddyline.report.sections import Section
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History, Record
    from eddyline.spark.aggregates.columns import LiftedCall, LiftedPartial
    from eddyline.spark.operator import Batch, Clock, Observed, Site
    from eddyline.state.manifest import StatePart, StatePlace


class Bucketed(Operator):
    """What all aggregates are: rows or cells in buckets, answered as event time allows.

    Args:
        site: the rows.
        calls: the aggregates.
        group_by: name and SQL text of the expressions that tell groups apart.

    Raises:
        QueryError: rows without event time, or an expression that Spark refuses.
    """

    name = COMPONENT
    task_module = AggregateWorker.__module__
    takes = AggregateOptions
    worker: type[AggregateWorker] = AggregateWorker
    """What does the work of a bucket."""
    gives_all = False
    """Whether each row that tasks return is a result, but for the report."""
    decides = True
    """Whether the loop has a plan to choose; without one nothing is learned and saved."""

    def __init__(
        self,
        site: Site,
        calls: Sequence[AggregateCall],
        group_by: Sequence[tuple[str, str]],
    ) -> None:
        if site.time is None or site.clock is None:
            msg = (
                f"query {site.query!r} aggregates by event time, which its rows do not have: "
                f"engine.stream(…, time='…'), and where they are results of a query, its output "
                f"columns must have that column unchanged"
            )
            raise QueryError(msg, query=site.query)
        self.query = site.query
        self.options = AggregateOptions.taken(site.options)[0].resolved()
        self.time = site.time
        self.clock: Clock = site.clock
        self.spark = site.df.sparkSession
        self.micros = micros_of(site.df, site.time, site.query) + F.lit(site.clock.offset)
        self.is_local = time_type(site.df, site.time, site.query) == LOCAL
        self.rows_shape = site.df
        timed = site.df.withColumn(MICROS, self.micros)
        self.groups = Groups.of(timed, group_by)
        self.calls = Lifting(timed, by_row=self.by_row).calls(calls)
        # The driver fetches no cells that grow with their rows.
        grows = any(isinstance(each.kind, ArrayType | BinaryType) for each in self.lifts)
        plans = PLANS[:2] if grows or self.by_row else PLANS
        self.loop = AggregateLoop(adaptive=self.options.adaptive, plans=plans)
        self.laid_by = self.loop.plan
        """The plan that rows are laid by: read once, so that what is laid fits together whoever
        decides meanwhile."""
        self.place: StatePlace | None = None
        self.part = AggregatePart(self.n_buckets)
        """The state after the newest batch."""
        self.total = AggregateProfile()
        self._loads: tuple[int, ...] = ()
        """New cells of each bucket in the newest batch."""
        self._reports: BucketReports[BucketReport] = BucketReports()
        self._known = Known()
        self._reported = what_is_found()
        self._here: Answered | None = None
        """The batch that is being laid, where the driver has answered it."""
        self._lock = threading.RLock()
        # Filters read no sample of rows that are observed; what others do is not known here.
        self.clock.asked((lambda: self.runs_ahead) if site.is_filtered else None)

    def partials_of(self, calls: Sequence[LiftedCall]) -> Partials:
        """Return the columns of the partial aggregates of calls."""
        own = [each for call in calls for each in call.partials]
        monoids = {each.source: each.name or each.monoid for each in own}
        return Partials(monoids, is_ansi(self.spark))

    @property
    def lifts(self) -> list[LiftedPartial]:
        """The partial aggregates of all calls."""
        return [each for call in self.calls for each in call.partials]

    @property
    def n_buckets(self) -> int:
        """Parts into which groups are cut."""
        if not self.groups.columns:
            return 1
        partitions = self.spark.conf.get("spark.sql.shuffle.partitions")
        return self.options.buckets or int(partitions or 1)

    # -- what a kind of aggregate says of itself --------------------------------------------------

    @property
    def by_row(self) -> bool:
        """Whether rows go to the buckets as they are, and not as cells."""
        return False

    def plan_of(self, before: int, after: int) -> AggregatePlan:
        """Return the work of the buckets between two instants (µs)."""
        raise NotImplementedError

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return rows as they go to the buckets, with the bucket that is theirs."""
        raise NotImplementedError

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        raise NotImplementedError

    def answers(self, found: DataFrame) -> DataFrame:
        """Return the results of what tasks returned."""
        raise NotImplementedError

    def event_time(self, site: Site, columns: Sequence[str]) -> tuple[str | None, Clock | None]:
        """Return the event-time column of results, and their clock."""
        time = site.time if site.time in columns else None
        return time, ResultClock(self.clock, offset=self.clock.offset)

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows as a query would write them."""
        raise NotImplementedError

    @property
    def reduces(self) -> bool:
        """Whether rows go to the buckets as they are, and tasks make cells of them."""
        return False

    @property
    def placement(self) -> Placement:
        """The way of rows to their buckets."""
        is_late = self.laid_by == "late" and not self.by_row and not self.reduces
        return Placement(self.groups, self.n_buckets, is_late, self._known)

    @property
    def choices(self) -> tuple[AggregateLoop, ...]:
        """Where rows become cells, if they do before they are counted."""
        return () if self.by_row else (self.loop,)

    # -- one batch ------------------------------------------------------------------------------

    @property
    def runs_ahead(self) -> bool:
        """Whether the driver answers a batch before it is laid."""
        return self.loop.plan == "driver"

    def prepare(self, df: DataFrame, batch: Batch) -> None:  # noqa: ARG002
        """Answer a batch here, by the plan in force, if it is not too large for that."""
        self._here = None
        if not self.runs_ahead:
            return
        self.laid_by = "driver"
        df.sparkSession.conf.set(ADAPTIVE, "false")
        cells = fetched(self.cells(self._timely(df)))
        if cells is not None and not self.clock.is_idle:
            self._here = answered(self._worker(df, self.place, self.fields), cells)

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the results that event time allows after a batch."""
        if self.clock.is_idle:
            return Laid(self.answers(self._nothing))
        if self._here is not None:
            return self._laid(df, self._here)
        # A micro-batch has a session of its stream's own.
        df.sparkSession.conf.set(ADAPTIVE, "false")
        done = Observation()
        found = self._worked(self._timely(df), self.place)
        found = found.observe(done, *self._reported)
        pending = Pending(COMPONENT, PendingMetrics(done))
        counted = Counted(done, FOUND) if self.gives_all else None
        return Laid(self.answers(found.where(f"{REPORT} IS NULL")), (pending,), counted=counted)

    def _laid(self, df: DataFrame, done: Answered) -> Laid:
        """Return the results of the driver as those of a job."""
        # PySpark does not take a table without rows that has nested columns.
        rows: Any = done.results if done.results.num_rows else []
        found = df.sparkSession.createDataFrame(rows, StructType(self.fields))
        return Laid(self.answers(found), (Pending(COMPONENT, done),))

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over batch DataFrames; nothing is kept."""
        return self.answers(self._worked(self._timely(df), None))

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002 - the columns are other ones
        """Return a DataFrame with the columns of results."""
        return self.answers(self._nothing)

    def _timely(self, df: DataFrame) -> DataFrame:
        """Return the rows that have an event time and are not late, with that time."""
        return self._timed.over(df).where(self._is_timely)

    @cached_property
    def _timed(self) -> Added:
        """The event time of a row."""
        return Added({MICROS: self.micros})

    @property
    def _is_timely(self) -> str:
        """SQL of whether a row has an event time and is not late."""
        before = max(self.clock.before, ALWAYS + 1)
        # Spark compiles a statement anew where a number in it is another one, but for those in an
        # array that is asked for a place which only the row knows.
        if self.runs_ahead:  # whether there are late rows is not known yet
            return f"{MICROS} >= get(array({before}L), IF({MICROS} IS NULL, NULL, 0))"
        return f"{MICROS} >= {before}L" if self.clock.has_late else f"{MICROS} IS NOT NULL"

    def _worked(
        self, rows: DataFrame, place: StatePlace | None, until: int | None = None
    ) -> DataFrame:
        """Return what tasks return of the rows of a batch, up to the clock's instant or another."""
        self.laid_by = self.loop.plan
        fields = _with_report(self.fields)
        worker = self._worker(rows, place, fields, until)
        cells = self.placement.placed(self.cells(rows))
        return map_batches(cells, worker.run, StructType(fields))

    def _worker(
        self,
        df: DataFrame,
        place: StatePlace | None,
        fields: Sequence[StructField],
        until: int | None = None,
    ) -> AggregateWorker:
        """Return what answers the buckets of a batch, up to the clock's instant or another."""
        return self.worker(
            self.plan_of(self.clock.before, self.clock.after if until is None else until),
            arrow_schema(df.sparkSession, StructType([*fields])),
            place,
            self.part,
            self.n_buckets,
        )

    @property
    def _nothing(self) -> DataFrame:
        """What tasks return, without rows."""
        return self.spark.createDataFrame([], StructType(_with_report(self.fields)))

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did."""
        found = self._reports.of(observed)
        if not found or self.clock.is_idle:
            with self._lock:
                self.loop.newest = AggregateProfile()  # nothing of the last one counts
            return []
        reports = [found[bucket] for bucket in sorted(found)]
        profile = AggregateProfile(
            n_rows=sum(each.n_rows for each in reports),
            n_cells=sum(each.n_arrived for each in reports),
            n_read=sum(each.n_read for each in reports),
            n_results=sum(each.n_results for each in reports),
            work_ns=sum(each.work_ns for each in reports),
            n_bytes=sum(each.n_bytes for each in reports),
        )
        with self._lock:
            self.total = self.total.merge(profile)
            self._loads = tuple(each.n_arrived for each in reports)
            return self.loop.step(profile, batch.id)

    # -- durable state ---------------------------------------------------------------------------

    def attach(self, place: StatePlace) -> None:
        """Take note of where cells are written."""
        self.place = place

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:  # noqa: ARG002
        """Start from the cells after the batch before."""
        with self._lock:
            self.part = AggregatePart(self.n_buckets) if part is None else part.read(AggregatePart)

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether every bucket has reported; without rows none need do."""
        return self.clock.is_idle or self._reports.of(observed).keys() == {*range(self.n_buckets)}

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:  # noqa: ARG002
        """Return the cells after the batch, of which all files are written."""
        found = self._reports.of(observed)
        with self._lock:
            if not self.clock.is_idle:
                buckets = {bucket: found[bucket].after for bucket in sorted(found)}
                self.part = AggregatePart(self.n_buckets, buckets)
            return self.part.packed()

    # -- what people see -------------------------------------------------------------------------

    def plan(self) -> str | None:
        """Return where rows become cells; None if there is nothing to decide."""
        return self.loop.plan if self.decides else None

    def records(self) -> tuple[Record, ...]:
        """Return the record after a batch."""
        return (self._record(),)

    def _record(self) -> AggregateRecord:
        with self._lock:
            files = [file for each in self.part.buckets.values() for file in each.files]
            n_kept, n_bytes = (
                sum(getattr(f, name) for f in files) for name in ("n_rows", "n_bytes")
            )
        return replace(self.loop.record(), n_kept=n_kept, n_bytes=n_bytes)

    def lines(self, n_rows: int, seconds: float) -> tuple[str, ...]:  # noqa: ARG002
        """Return what is kept in words, for the progress."""
        return words.lines(self._record())

    def sections(self, history: History) -> list[Section]:
        """Return for people what the plan is, why, and what it did."""
        return words.sections(self.view(), history)

    def view(self) -> AggregateView:
        """Return the aggregate as it stands."""
        with self._lock:
            states = list(self.part.buckets.values())
            waiting = [file for each in states for file in each.waiting]
            files = [file for each in states for file in each.files]
            loads = np.array(self._loads, dtype=np.float64)
            mean = loads.mean() if loads.size else 0.0
            return AggregateView(
                name=self.query,
                windows=self.windows,
                groups=tuple(" ".join(text.split()) for _, text in self.groups.columns),
                calls=tuple(each.call.text for each in self.calls),
                plan=self.plan() or "",
                newest=self.loop.newest,
                total=self.total,
                n_waiting=sum(each.n_rows for each in waiting),
                n_kept=sum(each.n_rows for each in files) - sum(each.n_rows for each in waiting),
                n_bytes=sum(each.n_bytes for each in files),
                n_files=len(files),
                n_buckets=self.n_buckets,
                fullest=float(loads.max() / mean) if mean > 0 else float("nan"),
                is_adaptive=self.options.adaptive,
            )

    def snapshot(self) -> Any:
        """Return the learned state; None if nothing is learned."""
        return msgspec.to_builtins(self.loop.snapshot()) if self.decides else None

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        if self.decides:
            self.loop.restore(state)


def _with_report(fields: Sequence[StructField]) -> list[StructField]:
    return [*fields, StructField(REPORT, BinaryType())]


def unbounded_values(
    stream: str, window: Window, calls: Iterable[LiftedCall]
) -> Iterator[UnboundedState]:
    """Yield the calls that keep values for ever: lists over a window that drops no row.

    Partial aggregates of a fixed size grow only with the number of groups.
    """
    if window.length != LONGEST or (window.counts is not None and window.counts.rows != LONGEST):
        return
    for call in calls:
        partials = call.partials
        if any(isinstance(p.kind, ArrayType) or not p.monoid.can_merge for p in partials):
            yield UnboundedState(
                f"{call.call.text} keeps values of all rows of {stream!r} for ever, because its "
                f"window ([{window.text}]) drops none",
                "give it a window that drops rows, such as [RANGE 1 HOUR]",
            )


@dataclass(frozen=True, slots=True)
class Placement:
    """The buckets of groups, and whether rows are shuffled before they become cells."""

    groups: Groups
    n_buckets: int
    is_late: bool
    """Whether Spark makes cells behind the shuffle."""
    known: Known = field(default_factory=Known)
    """Steps of the operator that were laid before."""

    def coded(self, rows: DataFrame, start: str = MICROS) -> DataFrame:
        """Return rows with the start of their cells, their groups with codes, and their buckets.

        Args:
            rows: with their event time.
            start: SQL of the start of the cell of each (µs).
        """
        return self._coded(self._grouping(rows, start))

    def grouped(self, rows: DataFrame, start: str, reduced: Sequence[Column]) -> DataFrame:
        """Return the cells of rows; they are in their buckets if rows are shuffled first.

        Args:
            rows: with their event time.
            start: SQL of the start of the cell of each (µs).
            reduced: the partial aggregates of a cell.
        """
        rows = self._grouping(rows, start)
        if not self.is_late and not self.groups.are_nested:
            return self._coded(self._reduced(rows, self.groups.own_keys, reduced))
        rows = self._coded(rows)
        rows = self.in_buckets(rows) if self.is_late else rows
        return self._reduced(rows, self.groups.keys, reduced)

    def _grouping(self, rows: DataFrame, start: str) -> DataFrame:
        """Return rows with the columns that tell cells apart."""
        return self.known.selected(rows, "*", *self.groups.values, f"{start} AS {START}")

    def _coded(self, rows: DataFrame) -> DataFrame:
        """Return rows, or cells, of which there are fewer, with codes and buckets."""
        return self.known.selected(rows, "*", *self.groups.codes(self.n_buckets))

    def _reduced(
        self, rows: DataFrame, keys: Sequence[Column], reduced: Sequence[Column]
    ) -> DataFrame:
        """Return the cells of rows; of an operator, these are always reduced alike."""
        if len(keys) not in self.known.reductions:
            aggregates = [F.count(F.lit(1)).alias(ROWS), *reduced]
            self.known.reductions[len(keys)] = Reduced(keys, aggregates)
        return self.known.reductions[len(keys)].over(rows)

    def placed(self, cells: DataFrame) -> DataFrame:
        """Return rows or cells in the partitions that are their buckets."""
        return cells if self.is_late else self.in_buckets(cells)

    def in_buckets(self, rows: DataFrame) -> DataFrame:
        """Return rows or cells in the partitions that are their buckets."""
        return rows.repartitionById(self.n_buckets, BUCKET)


def start_of_cell(slides: Slides) -> str:
    """Return SQL of the start of the cell of each row (µs); see ``Slides.cell_of``."""
    place = f"pmod({MICROS} - {slides.origin}L, {slides.slide}L)"
    start = f"{MICROS} - {place}"
    return f"{start} + IF({place} >= {slides.cut}L, {slides.cut}L, 0L)" if slides.cut else start


MOST_FETCHED = 1_000_000
"""Cells, and results, that the driver ever holds: a batch with more of them is left to tasks."""

_AT = "__at"
"""The place of a cell in its partition."""


@dataclass(frozen=True)
class Answered:
    """A batch that the driver has answered."""

    results: pa.Table
    reports: tuple[BucketReport, ...]

    def get(self, timeout_s: float) -> dict[str, Any]:  # noqa: ARG002 - nothing is awaited
        """Return the reports as the metrics of a job would have them."""
        reports = (TaskReport(COMPONENT, each.bucket, 0, each) for each in self.reports)
        return {"reports": [each.to_bytes() for each in reports]}


def fetched(made: DataFrame) -> list[pa.RecordBatch] | None:
    """Return the cells of a batch, with their buckets; None if they are too many.

    Of each partition no more come than its share of what the driver holds, and one.
    """
    partitions = made.sparkSession.conf.get("spark.sql.shuffle.partitions")
    most = MOST_FETCHED // int(partitions or 1)
    # Its lower 33 bits count the rows of a partition.
    at = f"monotonically_increasing_id() & {(1 << 33) - 1}L AS {_AT}"
    found = made.selectExpr("*", at).where(f"{_AT} <= {most}L").toArrow()
    if pc.any(pc.equal(found[_AT], most)).as_py():
        return None
    cells: list[pa.RecordBatch] = found.drop_columns([_AT]).to_batches()
    return cells


def answered(worker: AggregateWorker, cells: Sequence[pa.RecordBatch]) -> Answered | None:
    """Return what the buckets answer of the cells of a batch; None if results are too many.

    Raises:
        StateError: their state cannot be read or written.
    """
    reports: list[BucketReport] = []
    results, n_results = [], 0
    for each in _answers(worker, cells, reports):
        results.append(each)
        n_results += each.num_rows
        if n_results > MOST_FETCHED:
            return None
    table = pa.Table.from_batches(results, worker.outputs).combine_chunks()
    return Answered(table, tuple(reports))


def _answers(
    worker: AggregateWorker, cells: Sequence[pa.RecordBatch], reports: list[BucketReport]
) -> Iterator[pa.RecordBatch]:
    """Yield the results of all buckets, and add their reports to others."""
    for bucket in range(worker.n_buckets):
        own = [each.filter(pc.equal(each.column(BUCKET), bucket)) for each in cells]
        report = yield from worker.answer(bucket, [each for each in own if each.num_rows])
        reports.append(report)

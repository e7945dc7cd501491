"""Operators of aggregates over event time on Spark.

This is the driver's half. One shuffle brings the rows of a batch to their buckets, as cells or as
they are (``columns.Placement``). Tasks answer what event time allows, keep the rest, and report.

The driver answers a batch with few cells by itself (``AggregatingOperator.prepare``): a shuffle and
tasks for the buckets take a tenth of a second or more, however little they do. The driver runs the
same code, bucket by bucket.

``AggregatingOperator`` is the base of all aggregates. ``AggregateOperator`` runs a step with
windows. ``Counted`` are the rows that a window counts, shuffled by partition, with their groups.
``shows_changes`` says whether output rows differ if and only if values do: then tasks see which
results changed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eddyline.aggregates.bucket import can_compare
from eddyline.aggregates.loop import FEW, MANY, PLANS, AggregateLoop, AggregateView
from eddyline.aggregates.plan import (
    COMPONENT,
    FIRST,
    INSTANT,
    IS,
    LAST,
    OLD,
    OWN_CHECK,
    OWN_CODE,
    PASSES,
    WAS,
    AggregatePart,
    AggregatePlan,
    AggregateProfile,
    BucketReport,
    Partials,
)
from eddyline.aggregates.windows import Slides
from eddyline.data.hashes import KINDS
from eddyline.errors import NotSupportedError, QueryError
from eddyline.lane.exchange import BUCKET, Reading
from eddyline.options import AggregateOptions
from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import LONGEST, WINDOW, SessionWindow, SlideWindow, StayWindow, both
from eddyline.query.select.statement import identifier
from eddyline.query.steps import name_of
from eddyline.report import aggregates as words
from eddyline.report.formatting import one_line
from eddyline.spark.aggregates.columns import (
    CHECK,
    CODE,
    MICROS,
    START,
    Groups,
    Lifting,
    Placement,
    ShuffleColumns,
    check_no_temporary,
    plain_name,
    start_of_cell,
)
from eddyline.spark.aggregates.task import END, AggregateWorker, FileRows, PlainValues
from eddyline.spark.analysis import arrow_schema, refused, unlogged
from eddyline.spark.arrow_types import to_arrow_type
from eddyline.spark.bucketed import (
    REPORTED,
    StreamOperator,
    answered_here,
    are_few,
    buckets_stay,
    fetched,
    fetched_of_files,
)
from eddyline.spark.clock import StreamClock
from eddyline.spark.event_time import ResultClock
from eddyline.spark.lane import Refused
from eddyline.spark.operator import UnboundedState
from eddyline.spark.prepared import Added, Known, Selected
from eddyline.spark.projection import computed_values, picked_columns
from eddyline.spark.relation import LOCAL, instant_of, micros_of, micros_text, time_type
from eddyline.spark.row_tests import check_settings, row_test
from eddyline.spark.session import is_ansi
from eddyline.spark.task_results import ArrowStep
from eddyline.sql.parsing import plain_path, quoted
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.aggregates.plan import Lift
    from eddyline.lane.expressions import Values
    from eddyline.lane.results import Picked
    from eddyline.query.query import AggregateCall, Window
    from eddyline.query.steps import AggregateStep
    from eddyline.report.sections import Section
    from eddyline.rules.match.row_test import RowTest
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History, Record
    from eddyline.spark.aggregates.columns import LiftedCall, LiftedPartial
    from eddyline.spark.arrow_tasks import Tasks
    from eddyline.spark.lane import ListedScan, PlainScan
    from eddyline.spark.operator import Batch, Clock, Observed, Pending, Site
    from eddyline.state.manifest import StatePlace


def _test_of(rows: DataFrame, condition: str) -> RowTest | None:
    """Return a condition of FILTER for tasks; None if they cannot evaluate it."""
    with suppress(Refused):
        return row_test(rows, [SqlPredicate(condition)])
    return None


class AggregatingOperator(StreamOperator[AggregatePart, BucketReport]):
    """Base of all aggregates: rows or cells in buckets, answered as event time allows.

    Args:
        step: what is run.
        site: the rows.
        calls: the aggregates.
        group_by: name and SQL text of the expressions that tell groups apart.

    Raises:
        QueryError: rows without event time, or an expression that Spark refuses.
    """

    name = COMPONENT
    task_module = AggregateWorker.__module__
    takes = AggregateOptions
    state_type = AggregatePart
    decides = True
    """Whether the loop has a plan that is told."""

    def __init__(
        self,
        step: Any,
        site: Site,
        calls: Sequence[AggregateCall] = (),
        group_by: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.step = step
        if site.time is None or site.clock is None:
            msg = (
                f"query {site.query!r} aggregates by event time, which its rows do not have: "
                f"engine.stream(…, time='…'), and where they are results of a query, its output "
                f"columns must have that column unchanged"
            )
            raise QueryError(msg, query=site.query)
        check_no_temporary(site.query, site.df.columns)
        self.query = site.query
        self.options = AggregateOptions.taken(site.options)[0].resolved()
        self.time = site.time
        self.rows_clock = self.clock = site.clock
        self.micros = micros_of(site.df, site.time, site.query) + F.lit(site.clock.offset)
        self.is_local = time_type(site.df, site.time, site.query) == LOCAL
        self.rows_shape = site.df
        self.ansi = is_ansi(site.df.sparkSession)
        """Whether ANSI mode is on. Spark fixes that for a stream when it starts, too."""
        timed = site.df.withColumn(MICROS, self.micros)
        self.groups = Groups.from_columns(timed, group_by)
        self.calls = Lifting(timed, by_row=self.by_row).calls(calls)
        # The driver fetches no cells that grow with their rows.
        grows = any(isinstance(lifted.kind, ArrayType | BinaryType) for lifted in self.lifts)
        plans = PLANS[:2] if grows or self.by_row else PLANS
        self.loop = AggregateLoop(adaptive=self.options.adaptive and self.decides, plans=plans)
        self.laid_by = self.loop.plan
        """The plan that rows are laid by: read once, so that what is laid fits together whoever
        decides meanwhile."""
        is_adaptive = self.options.adaptive
        super().__init__(site.df.sparkSession, self.options.lane, is_adaptive=is_adaptive)
        self.total = AggregateProfile()
        self._known = Known()
        self._begun: list[JournalEntry] = []
        """Decisions of ``prepare`` that nobody has taken yet."""
        # Filters read no sample of rows that are observed; what others do is not known here.
        self.clock.asked((lambda: self.runs_ahead) if site.is_filtered else None)

    @classmethod
    def from_step(cls, step: Any, site: Site) -> Self:
        """Return the operator of a step, whose tasks may read the files of its stream."""
        operator = cls(step, site)
        operator.follow_stream(site)
        return operator

    def partials_of(self, calls: Sequence[LiftedCall]) -> Partials:
        """Return the columns of the partial aggregates of calls."""
        partials = [lifted for call in calls for lifted in call.partials]
        monoids = {lifted.source: lifted.name or lifted.monoid for lifted in partials}
        return Partials(monoids, is_ansi(self.spark))

    @property
    def lifts(self) -> list[LiftedPartial]:
        """The partial aggregates of all calls."""
        return [lifted for call in self.calls for lifted in call.partials]

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

    @property
    def carried(self) -> Mapping[str, str]:
        """Shuffle columns of rows beside partials: SQL over the rows by names in tasks."""
        return self.groups.shuffle_columns

    def shuffle_columns(self, *, in_files: bool) -> ShuffleColumns:
        """Return what of rows travels to tasks, and what these make of it.

        Args:
            in_files: whether tasks read the rows themselves.
        """
        rows = self.rows_shape
        shuffled = ShuffleColumns(rows.columns, in_files=in_files, test=partial(_test_of, rows))
        for name, text in self.carried.items():
            shuffled.add(name, text)
        # Tasks that make cells of slices know the event times only of rows that they read.
        is_timed = in_files or self.slides in (None, EACH_INSTANT)
        # Equal partials of several calls are one column, but in cells.
        for lifted in {lifted.source: lifted for lifted in self.lifts}.values():
            shuffled.add_partial(lifted, is_timed=is_timed)
        return shuffled

    @property
    def slides(self) -> Slides | None:
        """Slides that cut time into cells; None if rows go to the buckets unreduced."""
        return None

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
    def task_schema(self) -> StructType:
        """The columns that tasks return; the last one is the report."""
        return StructType([*self.fields, REPORTED])

    # -- results without Spark ------------------------------------------------------------------

    @property
    def plain_fields(self) -> StructType:
        """The columns of ``PlainValues``, but for the place."""
        values = [StructField(call.call.column, call.kind) for call in self.calls if call.is_plain]
        instant = TimestampNTZType() if self.is_local else TimestampType()
        window = StructType([StructField(name, instant) for name in ("start", "end")])
        groups = [StructField(field.name, field.dataType) for field in self.groups.fields]
        return StructType([*groups, *values, StructField(WINDOW, window)])

    def plain_values(
        self,
        kept: Sequence[str],
        *,
        start: str | int | None = None,
        has_window: bool = True,
        picked: Picked | None = None,
        having: Values | None = None,
    ) -> PlainValues:
        """Return how results are made of what tasks return; see ``PlainValues``."""
        values = {
            call.call.column: (call.partials[0].column, call.is_count)
            for call in self.calls
            if call.is_plain
        }
        instant = pa.timestamp("us", None if self.is_local else "UTC") if has_window else None
        return PlainValues(tuple(kept), values, instant, start, picked, having)

    @property
    def placement(self) -> Placement:
        """The way of rows to their buckets."""
        is_late = self.laid_by == "late" and not self.by_row and not self.reduces
        return Placement(self.groups, self.n_buckets, is_late, self._known)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Choices: where rows become cells, and who reads files."""
        return (*(() if self.by_row else (self.loop,)), *self.lane.choices)

    # -- one batch ------------------------------------------------------------------------------

    @property
    def runs_ahead(self) -> bool:
        """Whether the driver answers a batch before it is laid."""
        return self.loop.plan == "driver"

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Answer a batch here, by the plan in force, if it is not too large for that."""
        super().prepare(df, batch)
        clock = self.clock if isinstance(self.clock, StreamClock) else None
        is_read_here = self.files is not None and are_few(self.files)
        gives_table = batch.takes_arrow and self.result_step is not None
        if not (self.lane.choices and self.lane.choice.is_trial):
            self.loop.few = MANY if is_read_here and gives_table else FEW
        if is_read_here and self.files is not None:
            self._begun = self.loop.decide_first(self.files.size[0], batch.id)
        if not self.runs_ahead:
            return
        self.laid_by = "driver"
        buckets_stay(df.sparkSession)
        if self.files is None:
            cells = fetched(self.cells(self._timely(df)), self.n_buckets)
        else:
            assert clock is not None
            work = self._file_rows(self.files, spans=clock.awaits_span)
            cells, span = fetched_of_files(self.files, work)
            if work.spans:
                clock.tell(span)
        if cells is not None and not self.is_idle:
            worker = self._worker(df, self.place, StructType([*self.fields]))
            self.driver_answer = answered_here(cells, self.n_buckets, worker)
            if is_read_here and self.driver_answer is not None:
                self.lane.note_read_here()

    def answered(self, df: DataFrame, batch: Batch) -> tuple[Tasks, tuple[Pending, ...]]:  # noqa: ARG002
        """Return the tasks over the rows of a batch."""
        return self._worked(self._timely(df), self.place), ()

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over batch DataFrames; nothing is kept."""
        worked = self._worked(self._timely(df), None)
        return self.results(worked.returned(self.task_schema))

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

    def _worked(self, rows: DataFrame, place: StatePlace | None, until: int | None = None) -> Tasks:
        """Return the tasks over the rows of a batch, up to the clock's instant or another."""
        self.laid_by = self.loop.plan
        if self.files is not None:
            # Tasks make cells of the rows that they read, whatever the plan is.
            self.laid_by = "early"
            worker = self._worker(rows, place, self.task_schema, until)
            reading = Reading((self._file_rows(self.files),))
            return self.exchange_files(rows.sparkSession, reading, worker)
        worker, cells = self._worker(rows, place, self.task_schema, until), self.cells(rows)
        return self.exchange(cells, worker, is_shuffled=self.placement.is_late)

    def _worker(
        self,
        df: DataFrame,
        place: StatePlace | None,
        schema: StructType,
        until: int | None = None,
    ) -> AggregateWorker:
        """Return what answers the buckets of a batch, up to the clock's instant or another."""
        return AggregateWorker(
            arrow_schema(df.sparkSession, schema),
            place,
            self.plan_of(self.clock.before, self.clock.after if until is None else until),
            self.part,
            self.n_buckets,
        )

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions on the first batch since the last call."""
        entries, self._begun = self._begun, []
        return entries

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did."""
        entries = self.lane.learn(observed, batch)
        reports = self.reports(observed)
        if not reports or self.is_idle:
            with self._lock:
                self.loop.newest = AggregateProfile()  # nothing of the last one counts
            return entries
        profile = AggregateProfile().merge(*(report.profile for report in reports))
        with self._lock:
            self.total = self.total.merge(profile)
            self._loads = tuple(report.profile.n_cells for report in reports)
            return entries + self.loop.step(profile, batch.id)

    # -- the lane -------------------------------------------------------------------------------

    def check_may_read(self) -> None:
        """Raise Refused if tasks may not read files, whatever the input is."""
        computed = [text for _, text in self.hashed.columns if self._in_files.own(text) is None]
        computed += self._in_files.computed
        if len(self.hashed.columns) > MOST_HASHED:
            raise Refused(f"there are more than {MOST_HASHED} groups")
        if computed:
            text = one_line(computed[0])
            inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
            raise Refused(f"Spark computes {inner.strip()}")
        if not self._in_files.masked.keys().isdisjoint(self.handed):
            raise Refused("a column has the name of one that tasks make")
        if self.slides is not None and not all(lifted.can_reduce for lifted in self.lifts):
            raise Refused("tasks do not put together what is asked of a group")

    def check_fits(self, scan: PlainScan) -> None:
        """Raise Refused if a group has values that tasks do not hash as Spark does."""
        tests = (column.test for column in self._in_files.masked.values())
        check_settings([self.where, *tests], scan.spark)
        kinds = {column.name: column.type_text for column in scan.columns}
        for name in (self.time, *self._hashed(self.hashed.names)):
            if kinds.get(name) not in KINDS:
                raise Refused(f"tasks do not hash {name!r}, which is of type {kinds.get(name)}")

    @cached_property
    def _travels(self) -> ShuffleColumns:
        """Return the shuffle columns, and the columns that tasks make of them."""
        return self.shuffle_columns(in_files=False)

    @cached_property
    def as_rows(self) -> Selected:
        """Rows as they go to the buckets, with their codes."""
        codes = (F.col(name) for name in (BUCKET, CODE, CHECK, START))
        return Selected(*codes, *self._travels.columns)

    @cached_property
    def _in_files(self) -> ShuffleColumns:
        """Return the shuffle columns if tasks read the rows themselves."""
        return self.shuffle_columns(in_files=True)

    @property
    def hashed(self) -> Groups:
        """The groups that rows are sent to their buckets by."""
        return self.groups

    def _hashed(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of the rows that some of these groups are."""
        columns = (self._in_files.own(text) for name, text in self.hashed.columns if name in names)
        return tuple(column for column in columns if column is not None)

    @property
    def _levels(self) -> tuple[tuple[str, ...], ...]:
        """The columns of the rows that groups are, and those of coarser groups."""
        return tuple(self._hashed(level) for level in (self.hashed.names, *self.hashed.coarser))

    @property
    def handed(self) -> tuple[str, ...]:
        """The columns of the rows that tasks read."""
        groups = (name for level in self._levels for name in level)
        masked = self._in_files.masked.values()
        tested = (
            name for column in masked for name in (column.column, *column.test.columns) if name
        )
        plain = self._in_files.plain.values()
        return (*dict.fromkeys([self.time, *groups, *plain, *tested]),)

    @property
    def _lifts(self) -> Mapping[str, Lift]:
        """Steps of tasks from shuffle columns to columns, in the current batch."""
        return (self._travels if self.files is None else self._in_files).lifts

    def _file_rows(self, files: ListedScan, *, spans: bool = False) -> FileRows:
        """Return what reads the rows of files.

        Args:
            files: that are read.
            spans: whether tasks report the event time of all rows.
        """
        columns = self._in_files
        return FileRows(
            **files.reading(self.handed),
            n_buckets=self.n_buckets,
            most_rows=None,
            time=self.time,
            spans=spans,
            where=self.where,
            before=max(self.clock.before, ALWAYS + 1),
            levels=self._levels,
            travels={**columns.plain, **{name: name for name in columns.masked}},
            masked=columns.masked,
            lifts=columns.lifts,
            slides=self.slides,
            partials=self.partials_of(self.calls),
        )

    # -- what people see -------------------------------------------------------------------------

    def records(self) -> tuple[Record, ...]:
        """Return the record after a batch."""
        with self._lock:
            files = [file for bucket in self.part.buckets.values() for file in bucket.files]
            n_kept, n_bytes = (
                sum(getattr(f, name) for f in files) for name in ("n_rows", "n_bytes")
            )
        return (replace(self.loop.record(), n_kept=n_kept, n_bytes=n_bytes),)

    def describe(self, history: History) -> list[Section]:
        """Return for people what the plan is, why, and what it did."""
        return words.sections(self.facts(), history)

    def facts(self) -> AggregateView:
        """Return the aggregate as it stands."""
        with self._lock:
            states = list(self.part.buckets.values())
            waiting = [file for state in states for file in state.waiting]
            files = [file for state in states for file in state.files]
            return AggregateView(
                name=self.query,
                windows=self.windows,
                groups=tuple(" ".join(text.split()) for _, text in self.groups.columns),
                calls=tuple(dict.fromkeys(call.call.text for call in self.calls)),
                plan=self.loop.plan if self.decides and not self.by_row else "",
                newest=self.loop.newest,
                total=self.total,
                n_waiting=sum(file.n_rows for file in waiting),
                n_kept=sum(file.n_rows for file in files) - sum(file.n_rows for file in waiting),
                n_bytes=sum(file.n_bytes for file in files),
                n_files=len(files),
                n_buckets=self.n_buckets,
                fullest=self.fullest,
                notes=(self.lane.note,) if self.lane.note else (),
            )


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


NEVER = "spark_partition_id() < 0"
"""A condition that is never true, which Spark does not know."""

MOST_HASHED = 31
"""Columns of groups that tasks hash: of more of them Spark says in a BIGINT which are NULL."""

EACH_INSTANT = Slides(slide=1, length=LONGEST, origin=0)
"""Cuts time where it has instants (µs)."""

LEAST = "__least"
"""The column of the first instant of the rows of a cell."""

NEW, BEFORE = "__new", "__before"
"""Columns of output rows, now and before, where only changes are emitted."""

COPIES = "__copies"
"""The field of these that says how many equal results there are."""


class AggregateOperator(AggregatingOperator):
    """Runs an ``AggregateStep``."""

    step: AggregateStep

    def __init__(self, step: AggregateStep, site: Site) -> None:
        self.window = step.window
        _check(step, site.query)
        changes = not isinstance(self.window, SlideWindow | SessionWindow)
        self.emits = (step.emits or "istream") if changes else step.emits
        # What WHERE drops has no part in an aggregate, and must not make one raise.
        calls = [replace(call, where=both(step.where, call.where)) for call in step.calls]
        super().__init__(step, site, calls, step.groups)
        written = zip(self.calls, step.calls, strict=True)
        self.calls = tuple(replace(lifted, call=call) for lifted, call in written)
        self.unbounded = tuple(unbounded_values(step.input, self.window, self.calls))
        is_tied = self.counts or not all(lifted.monoid.commutes for lifted in self.lifts)
        self.ties = tuple(site.df.columns) if self.by_row and is_tied else ()
        """The columns that order rows of one instant, where their order counts."""
        self.partials = self.partials_of(self.calls)
        self.compares = self.emits == "istream" and shows_changes(step, self.calls)
        """Whether tasks see which results changed, and tell none of before."""
        self.gives_all = not (self._tells_old or step.having or step.copies)
        counted = self.counted
        self._tells_time = counted is not None and not counted.spans and tells_time(step, self.time)
        """Whether a window has the newest row of a partition alone, and results say when it was."""
        # Sessions have an end of their own; Spark makes one of equal groups that have other bits.
        is_known = not self.by_row and not isinstance(self.window, SessionWindow)
        is_known = is_known and self.groups.are_exact
        self._can_reduce = is_known and all(lifted.can_reduce for lifted in self.lifts)
        """Whether tasks make of rows the cells that Spark would make."""
        self.shape(site.df)  # says what is wrong with it

    @property
    def by_row(self) -> bool:
        """Whether windows count rows, or each row says itself how long it stays."""
        return self.counts or isinstance(self.window, StayWindow)

    @property
    def counts(self) -> bool:
        """Whether windows count rows."""
        return self.window.counts is not None

    @cached_property
    def counted(self) -> Counted | None:
        """The rows that windows count; None if they count none."""
        if not self.counts:
            return None
        return Counted.from_step(self.step, self.rows_shape, self.groups, self.query)

    @property
    def n_buckets(self) -> int:
        """Parts into which groups are cut.

        It is one where groups have rows of several partitions, and where all groups are given at
        each instant, as one bucket does not know the instants of another.
        """
        gives_all = self.emits == "rstream" and not isinstance(self.window, SlideWindow)
        counted = self.counted
        has_parts = counted is None or (counted.partitions.columns and not counted.spans)
        return super().n_buckets if has_parts and not gives_all else 1

    def plan_of(self, before: int, after: int) -> AggregatePlan:
        """Return the work of the buckets between two instants (µs)."""
        return AggregatePlan(
            before,
            after,
            self.groups.names,
            self.partials,
            self.window,
            self.emits,
            ties=tuple(self.ties_travelling),
            values={lifted.column: lifted.source for lifted in self.lifts} if self.by_row else {},
            spans=self.counted is not None and self.counted.spans,
            compares=self.compares,
            is_alone=self.compares and self._tells_time,
            lifts=self._lifts if self.by_row or self.reduces else {},
            reduces=self.reduces,
        )

    def event_time(
        self,
        site: Site,  # noqa: ARG002 - of the protocol
        columns: Sequence[str],  # noqa: ARG002
    ) -> tuple[str | None, Clock | None]:
        """Return the output column that is the end of windows, and the clock of results."""
        ends = isinstance(self.window, SlideWindow | SessionWindow)
        return self.step.end, ResultClock(self.clock, offset=-1 if ends else 0)

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over batch DataFrames; nothing is kept.

        Windows without a beginning end for all groups with the first slide after the last row.
        """
        if not isinstance(self.window, SlideWindow) or self.window.length < LONGEST:
            return super().once(df)
        newest = self._timely(df).agg(F.max(MICROS)).collect()[0][0]
        end = ALWAYS if newest is None else Slides.from_window(self.window).end_from(newest + 1)
        worked = self._worked(self._timely(df), None, end)
        return self.results(worked.returned(self.task_schema))

    # -- cells ----------------------------------------------------------------------------------

    def check_may_read(self) -> None:
        """Raise Refused if tasks may not read files, whatever the input is."""
        if isinstance(self.window, SessionWindow):
            raise Refused("Spark puts the rows of a session together")
        if self.counted is not None and (self.counted.where or self.counted.has_own):
            raise Refused("Spark says which rows of a window are counted for which group")
        super().check_may_read()

    @property
    def hashed(self) -> Groups:
        """The groups that rows are sent to their buckets by."""
        return self.groups if self.counted is None else self.counted.partitions

    @property
    def slides(self) -> Slides | None:
        """Slides that cut time into cells; None if rows go to the buckets unreduced."""
        if isinstance(self.window, SlideWindow):
            return Slides.from_window(self.window)
        return None if self.by_row else EACH_INSTANT

    def cells(self, rows: DataFrame) -> DataFrame:
        """Return rows or cells with their buckets."""
        to, reduced = self.placement, [lifted.reduced for lifted in self.lifts]
        if self.counted is not None:
            return self.counted.rows(rows, self.n_buckets, self._travels.columns)
        if self.reduces or self.by_row:
            return self.as_rows.over(to.coded(rows, self._start))
        if not isinstance(self.window, SessionWindow):
            return to.grouped(rows, self._start, reduced)
        ends = F.min(MICROS).alias(LEAST), F.max(MICROS).alias(END)
        grouped = to.grouped(rows, self._start, [*reduced, *ends])
        return grouped.withColumn(START, F.col(LEAST)).drop(LEAST)

    @property
    def reduces(self) -> bool:
        """Whether rows go to the buckets as they are, and tasks make cells of them."""
        return self.laid_by == "late" and self._can_reduce

    @property
    def carried(self) -> Mapping[str, str]:
        """Shuffle columns of rows beside partials: SQL over the rows by names in tasks."""
        if self.counted is not None:
            return self.counted.shuffle_columns
        if not isinstance(self.window, StayWindow):
            return self.groups.shuffle_columns
        return {**self.groups.shuffle_columns, LAST: self._last_instant(self.window)}

    def _last_instant(self, window: StayWindow) -> str:
        """Return SQL of the last instant at which a row is there (µs)."""
        ends = [
            f"least({micros_text(self.rows_shape, time, self.query)}, "
            f"{LONGEST - input_window.length}L) + {input_window.length}L"
            for time, input_window in window.inputs
        ]
        first = ends[0] if len(ends) == 1 else f"least({', '.join(ends)})"
        return f"coalesce({first}, {LONGEST}L)"

    def shuffle_columns(self, *, in_files: bool) -> ShuffleColumns:
        """Return what of rows travels to tasks, the columns that order ties last."""
        shuffled = super().shuffle_columns(in_files=in_files)
        for tie, column in self.ties_travelling.items():
            shuffled.add(tie, quoted(column))
        return shuffled

    @property
    def ties_travelling(self) -> dict[str, str]:
        """The columns that order rows of one instant, by the names under which they travel."""
        return {f"__tie{k}": name for k, name in enumerate(self.ties)}

    @property
    def _start(self) -> str:
        """SQL of the start of the cell of a row (µs)."""
        if isinstance(self.window, SessionWindow):
            return f"{MICROS} - pmod({MICROS}, {self.window.gap}L)"
        if not isinstance(self.window, SlideWindow):
            return MICROS
        return start_of_cell(Slides.from_window(self.window))

    # -- results --------------------------------------------------------------------------------

    @cached_property
    def result_step(self) -> ArrowStep | None:
        """Step that makes output columns without Spark; None if Spark has to make one."""
        if self._tells_old or self.step.copies or isinstance(self.window, SessionWindow):
            return None
        shape, having = self.shape(self.rows_shape), None
        picked = picked_columns(self.step.projections, self.plain_fields, shape, ansi=self.ansi)
        if self.step.having:
            having = computed_values(
                self.step.having, self.plain_fields, BooleanType(), ansi=self.ansi
            )
        if picked is None or (self.step.having and having is None):
            return None
        start = None if self._has_no_start else self.window.length
        values = self.plain_values(self.groups.names, start=start, picked=picked, having=having)
        return ArrowStep(shape, values)

    @property
    def _tells_old(self) -> bool:
        """Whether tasks tell the results before, too, so that output rows can be compared."""
        return self.emits in ("istream", "dstream") and not self.compares

    @property
    def fields(self) -> list[StructField]:
        """The columns that tasks return, but for the report."""
        values = [field for call in self.calls for field in call.fields]
        fields = [*self.groups.fields, StructField(INSTANT, LongType()), *values]
        if isinstance(self.window, SessionWindow):
            fields.append(StructField(FIRST, LongType()))
        if self._tells_old:
            fields += [StructField(f"{OLD}{field.name}", field.dataType) for field in values]
            fields += [StructField(name, BooleanType()) for name in (IS, WAS)]
        return [StructField(field.name, field.dataType) for field in fields]

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the results of what tasks returned.

        Raises:
            QueryError: HAVING or an output column that Spark refuses.
        """
        try:
            with unlogged():
                return self._answers(returned)
        except AnalysisException as error:
            raise refused(f"query {self.query!r}", error, query=self.query) from error

    def _answers(self, returned: DataFrame) -> DataFrame:
        if not self._tells_old:
            return self._projected(returned)
        for added in self._sides:
            returned = added.over(returned)
        side, other = (NEW, BEFORE) if self.emits == "istream" else (BEFORE, NEW)
        if self.step.copies:
            more = f"coalesce({side}.{COPIES}, 0L) - coalesce({other}.{COPIES}, 0L)"
            copies = f"explode(sequence(1L, {more})) AS {COPIES}_told"
            shown = [quoted(name_of(projection)) for projection in self.step.projections]
            return returned.where(f"{more} > 0").selectExpr(f"{side}.*", copies).select(*shown)
        same = f"{NEW}_is AND {BEFORE}_is AND {NEW} <=> {BEFORE}"
        return returned.where(f"{side}_is AND NOT ({same})").select(f"{side}.*")

    @cached_property
    def _sides(self) -> tuple[Added, ...]:
        """Columns added for each side: its row, its output columns, and whether it is there.

        The row of the second side takes the place of that of the first.
        """
        sides = []
        for side, prefix, flag in ((NEW, "", IS), (BEFORE, OLD, WAS)):
            passes = F.col(flag)
            if self.step.having:
                # A projection computes common parts beforehand, but not those of a later branch.
                having = f"WHEN {flag} AND ({self.step.having}\n) THEN TRUE"
                passes = F.expr(f"CASE WHEN {NEVER} THEN FALSE {having} ELSE FALSE END")
            # Output columns may raise on rows that HAVING drops.
            texts = [*self.step.projections, *self._copies]
            columns = F.struct(*[F.expr(text) for text in texts])
            kept = F.when(F.expr(NEVER), None).when(F.col(f"{side}_is"), columns)
            sides += [self._row(prefix), Added({f"{side}_is": passes}), Added({side: kept})]
        return tuple(sides)

    @property
    def _copies(self) -> tuple[str, ...]:
        return (f"({self.step.copies}) AS {COPIES}",) if self.step.copies else ()

    def _projected(self, returned: DataFrame) -> DataFrame:
        results = self._values.over(returned)
        if self.step.having:
            results = results.where(self.step.having)
        if self.step.copies:
            copies = F.explode(F.expr(f"sequence(1L, {self.step.copies})"))
            results = results.where(f"{self.step.copies} > 0").withColumn(COPIES, copies)
        return self._output.over(results)

    @cached_property
    def _values(self) -> Added:
        """The columns that HAVING and output columns read beside the groups."""
        return self._row("")

    @cached_property
    def _output(self) -> Selected:
        """The output columns."""
        return Selected(*self.step.projections)

    def _row(self, prefix: str) -> Added:
        """Return the columns that HAVING and output columns read beside the groups."""
        values = {call.call.column: call.value(prefix) for call in self.calls}
        return Added({**values, WINDOW: self._window_column})

    @property
    def _window_column(self) -> Column:
        window = self.window
        if isinstance(window, SessionWindow):
            start = FIRST
        elif self._has_no_start:
            start = "CAST(NULL AS BIGINT)"
        else:
            start = f"{INSTANT} - {window.length}L"
        ends = {"start": start, "end": INSTANT}
        return F.struct(
            *(
                F.expr(instant_of(micros, is_local=self.is_local)).alias(name)
                for name, micros in ends.items()
            )
        )

    @property
    def _has_no_start(self) -> bool:
        """Whether results do not say when their window starts."""
        return self.by_row or self.window.length == LONGEST

    @property
    def windows(self) -> tuple[str, ...]:
        """The window as a query would write it."""
        return (self.window.text,)


def _check(step: AggregateStep, query: str) -> None:
    """Raise NotSupportedError if values cannot be emitted in the way that is asked for."""
    if step.emits == "dstream" and isinstance(step.window, SessionWindow):
        msg = f"query {query!r}: a session is given once, when it ends; DSTREAM has none that ends"
        raise NotSupportedError(msg, query=query)
    if step.emits == "rstream" and isinstance(step.window, SessionWindow):
        msg = f"query {query!r}: a session is given once, when it ends; leave RSTREAM out"
        raise NotSupportedError(msg, query=query)


PART = "__part"
"""What the columns of partitions are named, with a number behind it."""


@dataclass(frozen=True)
class Counted:
    """The rows of a stream that a window counts, and what is asked of them.

    WHERE is asked of rows that are in the window. So all rows go to the buckets, and nothing but
    WHERE and the partition is computed of those of which it is not true.
    """

    partitions: Groups
    """Those in which rows are counted."""
    groups: Groups
    where: str
    """SQL; empty if all rows are kept."""
    spans: bool
    """Whether a group may have rows of several partitions."""

    @classmethod
    def from_step(cls, step: AggregateStep, df: DataFrame, groups: Groups, query: str) -> Self:
        """Return what a step counts of a DataFrame.

        Raises:
            QueryError: WHERE that Spark refuses.
        """
        assert step.window.counts is not None
        columns = step.window.counts.partition_by
        partitions = Groups.from_columns(
            df, [(f"{PART}{k}", quoted(column)) for k, column in enumerate(columns)]
        )
        try:
            with unlogged():
                if step.where:
                    df.where(step.where)
        except AnalysisException as error:
            what = f"query {query!r}: WHERE {step.where}"
            raise refused(what, error, query=query, where=step.where) from error
        texts = {text.lower() for _, text in groups.columns}
        spans = not {identifier(column).lower() for column in columns} <= texts
        return cls(partitions, groups, step.where, spans)

    @property
    def has_own(self) -> bool:
        """Whether groups are others than partitions."""
        return self.spans or len(self.groups.columns) > len(self.partitions.columns)

    @property
    def shuffle_columns(self) -> dict[str, str]:
        """Further columns that tasks read: SQL by their names in tasks.

        Of groups that are columns of the rows this is the column.
        """
        columns = [PASSES] if self.where else []
        columns += [OWN_CODE, OWN_CHECK] if self.has_own else []
        names = self.groups.names
        groups = (
            {name: quoted(name) for name in names} if self.where else self.groups.shuffle_columns
        )
        return {column: column for column in columns} | groups

    def rows(self, rows: DataFrame, n_buckets: int, columns: Sequence[Column]) -> DataFrame:
        """Return rows with codes, their bucket, and other columns.

        Args:
            rows: with their event time.
            n_buckets: into which partitions are cut; 1 where a group may have rows of several.
            columns: that travel; see ``shuffle_columns``.
        """
        coded, codes = [F.col(name) for name in (BUCKET, CODE, CHECK, START)], []
        if self.where:
            rows = rows.selectExpr("*", f"coalesce(({self.where}\n), FALSE) AS {PASSES}")
        if self.has_own:
            codes = self.groups.hashes(OWN_CODE, OWN_CHECK)
        values = [
            f"CASE WHEN {PASSES} THEN ({text}\n) END AS {quoted(name)}" if self.where else plain
            for (name, text), plain in zip(self.groups.columns, self.groups.values, strict=True)
        ]
        rows = rows.selectExpr("*", *self.partitions.values, *values, f"{MICROS} AS {START}")
        rows = rows.selectExpr("*", *self.partitions.codes(n_buckets), *codes)
        return rows.select(*coded, *columns)


_OF_ONE_ROW = {"first", "first_value", "any_value", "last", "last_value", "min", "max"}
"""Aggregates that give of one row the argument as it is."""


def shows_changes(step: AggregateStep, calls: Sequence[LiftedCall]) -> bool:
    """Return whether the output columns are groups, parts of the window, and values as they are.

    All of the values, so that what changes shows; HAVING could hide it.
    """
    if step.having or step.copies or not all(map(_is_told_apart, calls)):
        return False
    groups = {name.lower() for name, _ in step.groups}
    values = {call.call.column.lower() for call in calls}
    shown = [_shown(projection, groups | values) for projection in step.projections]
    return None not in shown and values <= {*shown}


def tells_time(step: AggregateStep, time: str) -> bool:
    """Return whether a window has the newest row of a partition alone, and a value is its time.

    Then no result equals the one before.
    """
    counts = step.window.counts
    if counts is None or counts.rows != 1:
        return False
    calls = [call for call in step.calls if not call.where and len(call.arguments) == 1]
    names = {plain_name(call.arguments[0]) for call in calls if call.function in _OF_ONE_ROW}
    return time.lower() in {name.lower() for name in names if name is not None}


def _is_told_apart(call: LiftedCall) -> bool:
    """Return whether a value is distinct for Spark if and only if what tasks return for it is."""
    kind = call.kind
    if not call.is_plain:
        return False
    if isinstance(kind, StringType) and kind.collation != "UTF8_BINARY":
        return False
    return can_compare(to_arrow_type(kind, timezone="UTC"))


def _shown(projection: str, columns: Collection[str]) -> str | None:
    """Return the name of the group or value that an output column is; None if it is another.

    >>> _shown("(__agg0) AS n", {"__agg0"}), _shown("__agg0 + 1 AS n", {"__agg0"})
    ('__agg0', None)
    >>> _shown("'__agg0' AS n", {"__agg0"}) is None
    True
    >>> _shown("window.end AS until", ())
    'window'
    """
    path = plain_path(projection)
    if path is None:
        return None
    names = tuple(part.lower() for part in path)
    if names in ((WINDOW,), (WINDOW, "start"), (WINDOW, "end")):
        return WINDOW
    return names[0] if len(names) == 1 and names[0] in columns else None

"""Operator of a windowed join on Spark.

This is the driver's half. One shuffle brings the rows of a batch to their buckets. Tasks join them
with the windows, write new runs, and report. The state after the batch names these runs.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from eddyline.data.hashes import KINDS
from eddyline.data.learned import restored
from eddyline.errors import StateError
from eddyline.joins.caches.choice import JoinCaches
from eddyline.joins.graph import uncut_classes
from eddyline.joins.grid import GridChoice, chosen_grid, split_text
from eddyline.joins.leaving import DiscardState, LearnedLeaving, LeavingLoops
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.plan import (
    BROADCAST,
    BUCKETS,
    COMPONENT,
    WAYS,
    BatchPlan,
    BucketReport,
    JoinProfile,
    JoinWork,
)
from eddyline.joins.tables import COMBINATIONS, RESULTS, ProductChoice, WayChoice
from eddyline.joins.view import (
    REFRESHED,
    STATIC,
    InputView,
    JoinPart,
    JoinRecord,
    JoinView,
    PipelineView,
    ProbeView,
)
from eddyline.lane.exchange import Reading, columns_to_read
from eddyline.options import DISCARD, JoinOptions
from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import UnboundedWindow
from eddyline.query.steps import FilterStep, ProjectStep
from eddyline.report import joins as words
from eddyline.report.formatting import one_line, span
from eddyline.spark.analysis import arrow_schema
from eddyline.spark.arrow_tasks import map_batches
from eddyline.spark.arrow_types import to_arrow_schema
from eddyline.spark.bucketed import BucketedOperator, shuffled, state_of
from eddyline.spark.joins.bound import BoundJoin, bind_join
from eddyline.spark.joins.inputs import BatchMode, InputFilter, JoinInputs
from eddyline.spark.joins.layout import INPUT, RAW, START, TEXT_OF
from eddyline.spark.joins.source import InputProject, Placement
from eddyline.spark.joins.tables import Broadcast, RefreshedTables, TableFilter, one_bucket
from eddyline.spark.joins.task import BatchWorker, FileJoinRows, OnceWorker, Shape
from eddyline.spark.lane import Lane, Refused
from eddyline.spark.relation import LOCAL, time_type
from eddyline.spark.row_tests import check_settings, row_test
from eddyline.sql.parsing import quoted
from eddyline.state.grid import Moved, buckets_for
from eddyline.state.late_rows import late_rows, settle_late
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from eddyline.query.steps import JoinStep
    from eddyline.report.sections import Section
    from eddyline.rules.match.row_test import RowTest
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History, Record
    from eddyline.spark.arrow_tasks import Tasks
    from eddyline.spark.joins.layout import JoinInput
    from eddyline.spark.lane import ListedScan, PlainScan
    from eddyline.spark.operator import Batch, Laid, Observed, Operator, Pending, Site
    from eddyline.spark.task_results import ArrowStep
    from eddyline.state.manifest import StatePart, StatePlace


class LearnedJoin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Learned state of a join."""

    loop: Any
    bins: list[tuple[str, int, list[float]]]
    n_joined: dict[str, int]
    n_results: int
    leaving: LearnedLeaving
    drops: Any
    way: str = BUCKETS
    lane: Any = None
    results: str = COMBINATIONS


class JoinOperator(BucketedOperator[JoinPart, BucketReport]):
    """A join over micro-batches, and what has been learned of it.

    Args:
        bound: the join.

    Raises:
        OptionError: the policy or the monitor is unknown or of the wrong kind.
    """

    name = COMPONENT
    takes = JoinOptions
    state_type = JoinPart
    bound_type: type[BoundJoin] = BoundJoin
    place: StatePlace

    def __init__(self, bound: BoundJoin) -> None:
        self.bound = bound
        self.source, self.other_options, self.then = (
            bound.source.rows,
            bound.other_options,
            bound.then,
        )
        can_broadcast = Broadcast.is_possible(bound)
        self.inputs = JoinInputs(
            bound.source, bound.lateness, self._mode_of, counts_keyed=can_broadcast
        )
        self.broadcast = Broadcast(bound, self.inputs) if can_broadcast else None
        self.time, self.clock, self.times = None, self.inputs, bound.times
        self._of_inputs: tuple[Operator, ...] = (
            self.inputs,
            *(
                step
                if isinstance(step, InputProject)
                else InputFilter(step, bound.filter_options, bound.name, self.inputs)
                for laid in bound.source.laid
                for step in laid.steps
            ),
        )
        self.options = bound.options.resolved()
        self.keeps_late = tuple(
            join_input.name for join_input in bound.inputs if join_input.laid_out is None
        )
        timed = (
            join_input
            for join_input in bound.inputs
            if join_input.time is not None and join_input.laid_out is None
        )
        self.without_lateness = tuple(
            join_input.name for join_input in timed if join_input.lateness is None
        )
        self.unbounded = bound.unbounded
        self.graph = bound.graph
        # A row meets all its partners in one bucket, where it is decided: no key is split.
        is_inner = bound.step.kind == "inner"
        self.leaving = LeavingLoops(
            self.graph,
            bound.lengths,
            bound.constrained,
            # Where results wait, rows are asked for later than when others pass their keys.
            bound.timed if bound.is_plain else (),
            bound.source.rough,
            {name: declared.key for name, declared in bound.keys.items()},
            drops=self.options.constraints == DISCARD,
            largest=self.options.largest_k_us,
        )
        # What is dropped decides what is in the answer, and is learned of the rows that come.
        is_filtered = bound.is_plain and self.options.adaptive and not self.leaving.discards.lengths
        self.drops = TableFilter(bound, is_on=is_filtered)
        has_tables = len(bound.timed) < len(bound.inputs)
        self.refreshed = RefreshedTables(bound) if has_tables else None
        # Caches would go on with the combinations of an earlier version.
        can_cache = bound.is_plain and not self.leaving.lengths and not bound.source.refreshed
        tables = frozenset(self.graph.inputs) - {*bound.timed}
        # Caches are of the order that all rows take.
        is_asked = self.options.routing and not (self.options.caches and can_cache)
        may_route = bound.is_plain and is_asked
        readable = bound.readable if may_route else {}
        self.loop = JoinLoop(self.graph, self.options, tables, readable)
        self.grids = GridChoice(
            self.graph,
            bound.n_buckets,
            bound.n_tasks,
            # Rows of a key meet each other in one bucket, and so are not cut by their time.
            [name for name in bound.timed if name not in bound.keys],
            is_adaptive=self.options.adaptive and is_inner,
            uncut=uncut_classes(
                self.graph, ((n, declared.key) for n, declared in bound.keys.items())
            ),
        )
        self.caches = JoinCaches(
            self.graph,
            bound.timed,
            cache_bytes=self.options.cache_bytes,
            is_on=self.options.adaptive and self.options.caches and can_cache,
            seed=self.options.seed,
        )
        # Constraints and caches see combinations.
        self._may_return_products = (
            bound.product_keys is not None
            and not self.leaving.lengths
            and not (self.options.caches and can_cache)
        )
        self.products = ProductChoice(is_adaptive=self.options.adaptive)
        self.ways = WayChoice(is_adaptive=self.options.adaptive and can_broadcast)
        # Tables that may be sent to the rows leave nothing for Python to do, as a rule.
        self.task_module = "" if can_broadcast else BatchWorker.__module__
        self._grid = self.grids.grid
        super().__init__(bound.spark)
        self.lane = Lane(
            self, "lane", self.options.lane, is_adaptive=self.options.adaptive, keeps_rows=False
        )
        self.gives_all = bound.gives_all
        self.work = JoinWork()
        self.n_joined = dict.fromkeys(self.graph.inputs, 0)
        self.n_results = 0
        self._newest = (0, 0)
        self._decided: list[JournalEntry] = []
        """Decisions on the strategy since the last batch that was learned of."""
        self._told: list[JournalEntry] = []
        """What is to be journaled of the newest batch's discards."""
        self._read_again: list[JournalEntry] = []
        """What is to be journaled of the tables that were read again for the newest batch."""
        self._placement: Placement | None = None
        self._reading: Reading | None = None
        """What reads the files of the batch that is laid; None if Spark hands its rows over."""
        self._last_batch = -1
        self._is_new = True

    @property
    def may_read_files(self) -> bool:
        """Whether tasks should read the files of the next batch, if there are files."""
        return self.lane.may_read

    @property
    def adjustable(self) -> tuple[str, ...]:  # type: ignore[override]
        """The memory for caches, if it may have some; the largest bound, if it drops no row."""
        memory = ("cache_bytes",) if self.caches.is_on else ()
        return (*memory, "largest_k_s") if self.leaving.tiers.lengths else memory

    def adjust(self, options: JoinOptions) -> None:
        """Go on with other options; caches and tiers keep to them from the next batch on."""
        if self.caches.is_on:
            self.caches.resize(options.cache_bytes)
        self.leaving.limit(options.largest_k_us)
        super().adjust(options)

    @classmethod
    def from_step(cls, step: JoinStep, site: Site) -> Self:
        """Return the operator of a step."""
        operator = cls(bind_join(step, site, cls.bound_type))
        operator.follow_streams(site)
        return operator

    @property
    def before(self) -> tuple[Operator, ...]:
        """The operators of steps over one of the inputs."""
        return (*self.bound.source.operators, *self._of_inputs)

    # -- state ----------------------------------------------------------------------------------

    @property
    def n_buckets(self) -> int:
        """The buckets of the grid that rows are cut by."""
        return self._grid.n_buckets

    def no_state(self) -> JoinPart:
        """Return empty windows."""
        return JoinPart(self.grids.grid)

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:
        """Start from the windows after the batch before."""
        super().open(part, again, batch)
        with self._lock:
            self.leaving.discards.restore(self.part.discards or DiscardState())
            self._last_batch = batch.id - 1
        if self._is_new:
            self.grids.start(self.part.grid)
        # A batch that runs again is cut as it was: the files of its late rows have the same names.
        self._grid = self.grids.grid if again is None else again.read(JoinPart).grid

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether every bucket has reported."""
        if self._broadcasts is not None:
            return self._broadcasts.is_whole(observed)
        return super().is_whole(observed)

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:
        """Return the windows after the batch; all their files are written.

        Raises:
            StateError: late rows cannot be made durable.
        """
        n_late = Counter(self.part.n_late)
        reports: list[BucketReport] = []
        if (broadcast := self._broadcasts) is not None:
            grid, buckets = self.part.grid, self.part.buckets
            late_files = broadcast.late_files(self.place, batch.id)
            n_late[broadcast.stream.name] += broadcast.n_late
        else:
            reports, grid = self.reports(observed), self._grid
            buckets = {report.bucket: report.after for report in reports}
            late_files = {file for report in reports for file in report.late_files}
            for report in reports:
                n_late.update(report.n_late)
        settle_late(self.place, batch.id, late_files)
        with self._lock:
            low = min(self.inputs.streams.lows({}).values())
            self._told = self.leaving.step_discards(reports, low, batch.id)
            discards = self.leaving.discards.state()
            self.part = JoinPart(grid, buckets, dict(+n_late), discards, self.part.versions)
            self._last_batch = batch.id
        return self.part.packed()

    # -- one batch ------------------------------------------------------------------------------

    def _mode_of(self, batch: Batch, in_buckets: BatchMode) -> BatchMode:
        """Return the mode of a batch, before its rows are looked at; see ``JoinInputs.mode_of``.

        The first batch brings the tables. If these may be sent to the rows, they are read by
        themselves, and kept in one bucket.

        Raises:
            StateError: they cannot be kept.
        """
        broadcast, mode = self.broadcast, in_buckets
        may_broadcast = broadcast is not None and self.ways.may_broadcast
        if broadcast is not None and may_broadcast and not mode.has_tables and broadcast.can_begin:
            with state_of(0, "windows", self.place.folder):
                tables = broadcast.begun(batch.id, self.place)
            if tables is not None:
                self.part = JoinPart(one_bucket(self.graph), {0: tables.after})
                mode = replace(mode, has_tables=True, tables=tables)
        if self.refreshed is not None:
            self._refresh(self.refreshed, batch)
        if broadcast is None or not may_broadcast:
            return mode
        if mode.has_tables:
            self._decided += self.ways.step(*broadcast.sizes(self.part), batch.id)
            mode = replace(mode, strategy=self.ways.plan)
        if mode.strategy == BUCKETS:
            return mode
        # A sink may take a part of the results, or Spark leave rows out that meet no table.
        is_all_observed = batch.is_taken_whole and broadcast.counts_all(self.part)
        looks_ahead = mode.looks_ahead or self.inputs.looks or not is_all_observed
        return replace(mode, looks_ahead=looks_ahead)

    def _refresh(self, tables: RefreshedTables, batch: Batch) -> None:
        """Read the tables again that have a newer version; see ``RefreshedTables``."""
        assert self.inputs.arrived is not None
        spark = self.inputs.arrived.sparkSession
        part, self._read_again = tables.before(batch, self.part, self.place, spark)
        if part is not self.part:
            with self._lock:
                self.part = part
                self.n_joined |= tables.n_rows
            self.drops.forget()

    @property
    def _broadcasts(self) -> Broadcast | None:
        """The broadcast join that runs the newest batch; None if its rows meet in buckets."""
        return self.broadcast if self.inputs.mode.strategy == BROADCAST else None

    def lay(self, df: DataFrame, batch: Batch) -> Laid:
        """Return the results of a batch, before any condition on them."""
        self._is_new = False
        if (broadcast := self._broadcasts) is not None:
            order = self.loop.plan[broadcast.stream.name]
            return broadcast.lay(df, self.part, self.place, order)
        return super().lay(df, batch)

    @property
    def task_schema(self) -> StructType:
        """The columns that tasks return; the last one is the report."""
        return self.bound.task_schema

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Let the driver answer a batch whose files have few rows."""
        self.driver_answer = None
        if self._broadcasts is not None:
            return
        if not self._filters:
            self._reading = self._reading_of(batch)
        if self._reading is not None:
            files = [file for name in self.graph.inputs for file in self.part.files(name)]
            n_kept_bytes = sum(file.n_bytes for file in files)
            worker = partial(self._worker, df, batch)
            self.answer_files(self._reading, worker, batch, n_kept_bytes)

    def _worker(self, df: DataFrame, batch: Batch) -> BatchWorker:
        """Return what answers the buckets of a batch."""
        results = arrow_schema(df.sparkSession, self.task_schema)
        return BatchWorker(
            results,
            self.place,
            self._plan(batch.id),
            Shape(self.bound.source.layouts, results, self.bound.compared_by_tasks),
            buckets_for(self._grid, self.part.grid, self.part.buckets, self.graph.classes_of),
        )

    def answered(self, df: DataFrame, batch: Batch) -> tuple[Tasks, tuple[Pending, ...]]:
        """Return the tasks over the rows of a batch, and what is observed before them."""
        bound, worker = self.bound, self._worker(df, batch)
        if self._reading is not None:
            return self.exchange_files(df.sparkSession, self._reading, worker), ()
        if self._placement is None or self._placement.grid != self._grid:
            self._placement = Placement(self._grid, bound.source)
        rows: DataFrame = bound.source.keyed(df)
        dropped: tuple[Pending, ...] = ()
        if self.inputs.mode.has_tables:
            with state_of(0, "tables", self.place.folder):
                self.drops.read(df, self.part, self.place)
            rows, dropped = self.drops.lay(rows, worker.plan.lows)
        rows, by = self._placement.lay(rows)
        return self.exchange(rows, worker, by=by), dropped

    # -- the lane -------------------------------------------------------------------------------

    def follow_streams(self, site: Site) -> None:
        """Let tasks read the files of the streams, if the join is not an input of another step."""
        if not site.is_alone:
            self.lane.note_not_asked("other inputs of the query come with its rows")
        if not (site.is_alone and all(join_input.df.isStreaming for join_input in self._read)):
            return
        streams: list[DataFrame] = []
        with suppress(Refused):  # which the lane says itself
            self.check_may_read()
            streams += [
                join_input.df.select(
                    *[F.col(quoted(name)) for name in self._columns_read(join_input)]
                )
                for join_input in self._read
            ]
            numbers = {number for number, _ in self.bound.source.in_files}
            for step in self._of_inputs:
                if isinstance(step, InputFilter) and step.step.own_columns.number in numbers:
                    step.covered_by = self
        self.lane.follow(*streams, asks_files=site.asks_files)

    def _columns_read(self, join_input: JoinInput) -> tuple[str, ...]:
        """Return the columns of an input that tasks read, also for its conditions."""
        return columns_to_read(self._needed(join_input), self._conditions[join_input.name])

    @cached_property
    def _conditions(self) -> dict[str, RowTest | None]:
        """The conditions that tasks evaluate where they read files; Refused if they cannot."""
        tests = {}
        for join_input in self._read:
            steps = (step for step in join_input.steps if isinstance(step, FilterStep))
            predicates = [predicate for step in steps for predicate in step.predicates]
            if all(join_input.wheres) and join_input.wheres:
                any_needs = " OR ".join(f"({where}\n)" for where in join_input.wheres)
                predicates.append(SqlPredicate(any_needs))
            tests[join_input.name] = row_test(join_input.df, predicates)
        return tests

    @cached_property
    def _wheres(self) -> dict[str, tuple[RowTest | None, ...]]:
        """The conditions of queries that share an input; Refused if tasks cannot evaluate one."""
        return {
            join_input.name: tuple(
                row_test(join_input.df, [SqlPredicate(where)] if where else [])
                for where in join_input.wheres
            )
            for join_input in self._read
        }

    @property
    def _filters(self) -> list[InputFilter]:
        """The filters of inputs that tasks evaluate if they read files."""
        filters = (operator for operator in self._of_inputs if isinstance(operator, InputFilter))
        return [operator for operator in filters if operator.covered_by is self]

    def plan_coverage(self, df: DataFrame, batch: Batch) -> None:  # noqa: ARG002 - inputs have them
        """Decide whether tasks read the files of a batch, and evaluate the filters of inputs."""
        self._reading = self._reading_of(batch)

    @property
    def is_covering(self) -> bool:
        """Whether tasks evaluate the filters of inputs in the current batch."""
        return self._reading is not None

    @property
    def _read(self) -> list[JoinInput]:
        """The inputs whose files tasks may read, in the order in which Spark unites them."""
        return [self.bound.inputs[number] for number, _ in self.bound.source.in_files]

    @cached_property
    def _key_columns(self) -> dict[str, dict[int, str]]:
        """The column of each key class, by input that tasks read; Refused if a key is computed."""
        return {join_input.name: self._columns_of_keys(join_input) for join_input in self._read}

    def _columns_of_keys(self, join_input: JoinInput) -> dict[int, str]:
        columns = {quoted(name): name for name in join_input.df.columns}
        columns |= {name: name for name in join_input.df.columns}
        key_columns = {}
        for key in self.bound.source.layout(join_input.name).keys:
            texts = self.bound.step.keys[key].members[join_input.name]
            if len(texts) > 1:
                raise Refused(f"two columns of {join_input.name} have one value in each result")
            if texts[0].strip() not in columns:
                raise Refused(f"Spark computes the key {one_line(texts[-1])} of {join_input.name}")
            key_columns[key] = columns[texts[0].strip()]
        return key_columns

    def _needed(self, join_input: JoinInput) -> tuple[str, ...]:
        """Return the columns that results need of an input, with its time and keys."""
        assert join_input.time is not None
        keys, slots = (
            self._key_columns[join_input.name].values(),
            self.bound.source.layout(join_input.name).slots,
        )
        tested = [name for test in self._wheres[join_input.name] if test for name in test.columns]
        return (*dict.fromkeys([join_input.time, *keys, *slots, *tested]),)

    def check_may_read(self) -> None:
        """Raise Refused if tasks may not read files, whatever the input is."""
        bound = self.bound
        steps = [step for join_input in self._read for step in join_input.steps]
        if bound.source.trunk is not None or any(isinstance(step, ProjectStep) for step in steps):
            raise Refused("an input is computed before it is joined")
        if bound.step.kind != "inner" or bound.is_ordered:
            raise Refused("rows that have no partner are needed, or their order")
        if self.broadcast is not None or self.drops.loop.tables or bound.source.refreshed:
            raise Refused("a table says which rows are needed")
        _ = self._conditions, self._wheres  # raise Refused where tasks cannot evaluate one
        for join_input in self._read:
            if any(name.startswith(TEXT_OF) for name in bound.source.layout(join_input.name).slots):
                raise Refused(f"Spark computes a column of {join_input.name}")
        _ = self._key_columns  # raises Refused where a key is no column

    def check_fits(self, *scans: PlainScan) -> None:
        """Raise Refused if keys have values that tasks do not compare as Spark does."""
        wheres = (where for tests in self._wheres.values() for where in tests)
        check_settings((*self._conditions.values(), *wheres), scans[0].spark)
        for scan, join_input in zip(scans, self._read, strict=True):
            kinds = {column.name: column.type_text for column in scan.columns}
            for key, name in self._key_columns[join_input.name].items():
                if kinds[name] not in KINDS or self.bound.source.kinds[key] not in KINDS:
                    raise Refused(f"tasks do not compare {name!r}, of type {kinds[name]}")

    def _reading_of(self, batch: Batch) -> Reading | None:
        """Return the tasks that read the files of a batch; None if Spark hands its rows over."""
        source, mode = self.bound.source, self.inputs.mode
        if source.tables is not None and not mode.has_tables:
            self.lane.note_not_asked("the first batch brings the tables")
            return None
        if not mode.looks_ahead:
            learns = "lateness is learned of all rows" if self.inputs.lateness.shares else ""
            self.lane.note_not_asked(learns or "the files do not say how far their event times go")
            return None
        assert self.inputs.arrived is not None
        listed = self.lane.files_of_each(self.inputs.arrived, batch)
        if not listed:
            return None
        streams = zip(listed, self._read, strict=True)
        return Reading(tuple(self._file_rows(files, join_input) for files, join_input in streams))

    @cached_property
    def _common(self) -> pa.Schema:
        """Columns of the common rows that tasks send."""
        types = {INPUT: "int", START: "bigint", **self.bound.source.types}
        text = ", ".join(f"{name} {kind}" for name, kind in types.items() if name[:5] != RAW)
        return arrow_schema(self.spark, cast("StructType", StructType.fromDDL(text)))

    def _file_rows(self, files: ListedScan, join_input: JoinInput) -> FileJoinRows:
        """Return what reads the files of one input."""
        assert join_input.time is not None
        source, layout = self.bound.source, self.bound.source.layout(join_input.name)
        return FileJoinRows(
            **files.reading(self._needed(join_input)),
            n_buckets=self.n_buckets,
            most_rows=None,
            time=join_input.time,
            spans=False,
            where=self._conditions[join_input.name],
            number=layout.number,
            name=join_input.name,
            keys=self._key_columns[join_input.name],
            hashed=source.rough,
            slots={place: name for name, place in layout.slots.items()},
            common=self._common,
            grid=self._grid,
            wheres=self._wheres[join_input.name],
            marks_in=layout.marks_in,
        )

    # -- results --------------------------------------------------------------------------------

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the results in what tasks returned."""
        return self.bound.results(returned)

    @property
    def result_step(self) -> ArrowStep | None:
        """Step from the rows of tasks to results; None if some rows are no results."""
        return self.bound.result_step if self.gives_all else None

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
            products=bound.products(self.products.plan if self._may_return_products else None),
        )
        results = arrow_schema(df.sparkSession, bound.task_schema)
        shape = Shape(source.layouts, results, bound.compared_by_tasks)
        placement = Placement(chosen_grid(self.graph, bound.n_buckets), source)
        rows, by = placement.lay(source.keyed(df))
        placed = shuffled(rows, placement.grid.n_buckets, by)
        return self.results(map_batches(placed, OnceWorker(plan, shape).run, self.task_schema))

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
            lateness={} if time.told else time.lateness,
            horizons={name: time.horizon(name, {}) for name in self.graph.inputs},
            grid=self._grid,
            order=bound.order(time, latest),
            partners=bound.partners(time, latest),
            products=bound.products(self.products.plan if self._may_return_products else None),
            keys_only=bound.keys_only,
            moved=Moved.from_grids(self.part.grid, self.part.buckets, self._grid),
            probing=self.loop.probing(self._grid.shape) if is_inner else None,
            classes=self.loop.classes,
            keys=bound.keys,
            caches=self.caches.for_batch(self.loop.plan, batch_id),
            **self.leaving.plan(latest),
        )

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did."""
        decided, self._decided = [*self._read_again, *self._decided], []
        self._read_again = []
        reports = [] if self._broadcasts is not None else self.reports(observed)
        n_rows = sum(sum(report.n_rows.values()) for report in reports)
        read = self.lane.learn(observed, replace(batch, n_rows=n_rows))
        return [*decided, *read, *self._learned(observed, batch)]

    def _learned(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        # Tables that were read by themselves come in no bucket, whatever the strategy is.
        tables = self.inputs.mode.tables
        for table, n in (tables.n_rows if tables else {}).items():
            self.n_joined[table] += n
        if (broadcast := self._broadcasts) is not None:
            self._count_broadcast(broadcast, observed)
            return []
        reports = self.reports(observed)
        if not reports:
            return []
        with self._lock:
            n_rows = self._count(reports)
            profile = JoinProfile.from_reports(reports)
            entries = self._learn_orders(profile, reports, batch.id)
            n_hot = {
                name: sum(file.n_rows for file in self.part.files(name))
                for name in self.leaving.tiers.plan
            }
            leaving = self.leaving.step(reports, self.inputs.latest, n_hot, batch.id)
            return [
                *entries,
                *self.caches.step(profile, batch.id),
                *self.grids.step((report.bins for report in reports), batch.id),
                *leaving,
                *self._told,
                *self.drops.step(observed, n_rows, batch.id),
                *self._chosen_results(reports, batch.id),
            ]

    def _chosen_results(self, reports: Sequence[BucketReport], batch_id: int) -> list[JournalEntry]:
        """Choose whether the next batch returns combinations or products."""
        if not self._may_return_products:
            return []
        return self.products.step((report.products for report in reports), batch_id)

    def _learn_orders(
        self,
        profile: JoinProfile,
        reports: Sequence[BucketReport],  # noqa: ARG002 - the profile has what they say
        batch_id: int,
    ) -> list[JournalEntry]:
        """Let the pipelines learn from a batch."""
        before = self.loop.plan
        entries = self.loop.step(profile, batch_id)
        changed = {name for name, order in self.loop.plan.items() if order != before[name]}
        self.work = self.work.without(changed)
        return entries

    @property
    def loops(self) -> Sequence[JoinLoop]:
        """Loops that keep the orders of pipelines good."""
        return (self.loop,)

    def _count(self, reports: Sequence[BucketReport]) -> dict[str, int]:
        """Count a batch; returns its rows by input."""
        n_rows = {
            name: sum(report.n_rows.get(name, 0) for report in reports) for name in self.n_joined
        }
        for name, n in n_rows.items():
            self.n_joined[name] += n
        self.work = JoinWork.merge([self.work, *(report.work for report in reports)])
        n_results = sum(report.n_results for report in reports)
        n_late: Counter[str] = Counter()
        for report in reports:
            n_late.update(report.n_late)
        self.inputs.count_late(n_late, self.place, self._last_batch)
        self.results_per_row = n_results / max(sum(n_rows.values()), 1)
        if self.bound.step.products is not None:
            n_results = sum(report.products.n_combinations for report in reports)
        self._newest = n_late.total(), n_results
        self.n_results += n_results
        self._loads = tuple(report.n_here for report in reports)
        return n_rows

    def _count_broadcast(self, broadcast: Broadcast, observed: Sequence[Observed]) -> None:
        """Count a batch in which the tables were sent to the rows."""
        name, n_late = broadcast.stream.name, broadcast.n_late
        n_rows, n_results = broadcast.counts(observed)
        with self._lock:
            self.n_joined[name] += n_rows
            self.drops.loop.newest = 0
            if n_late:
                self.inputs.count_late({name: n_late}, self.place, self._last_batch)
            self._newest, self._loads = (n_late, n_results), ()
            self.n_results += n_results

    # -- what people see ------------------------------------------------------------------------

    def late_rows(self, name: str) -> pa.Table:
        """Return the late rows of an input; StateError if they cannot be read."""
        late = next(join_input for join_input in self.bound.inputs if join_input.name == name)
        is_local = late.time is not None and time_type(late.df, late.time, late.stream) == LOCAL
        schema = partial(self._late_schema, name)
        return late_rows(self.place, name, self._last_batch, schema, is_local=is_local)

    def _late_schema(self, name: str) -> pa.Schema:
        layout = self.bound.source.layout(name)
        columns = [column for column, _ in (*layout.columns, *layout.keys_only)]
        return to_arrow_schema(self.bound.fields_of(layout, columns), timezone="UTC")

    def describe(self, history: History) -> list[Section]:
        """Return for people what the plan is, why, and what it did."""
        return words.sections(self.facts(), history)

    def records(self) -> tuple[Record, ...]:
        """Return the records of the pipelines and of the join after a batch."""
        with self._lock:
            files = [self.part.files(name) for name in self.graph.inputs]
            cold = {name: self.part.cold(name) for name in self.graph.inputs}
            tiers = {tier.name: tier for tier in self.leaving.tiers.views() if tier.learned.n_rows}
            discards = self.leaving.discards.newest.values()
            joined = JoinRecord(
                inputs=self.graph.inputs,
                n_kept=tuple(sum(file.n_rows for file in input_files) for input_files in files),
                n_bytes=tuple(sum(file.n_bytes for file in input_files) for input_files in files),
                n_late=self._newest[0],
                n_results=self._newest[1],
                n_filtered=self.drops.loop.newest,
                n_waiting=sum(map(self.part.n_waiting, self.graph.inputs)),
                n_cold=sum(n_rows for n_rows, _, _ in cold.values()),
                cold_bytes=sum(n_bytes for *_, n_bytes in cold.values()),
                cold_rows=tuple(n_rows for n_rows, _, _ in cold.values()),
                within_us=tuple(
                    tiers[name].learned.bound if name in tiers else None for name in cold
                ),
                closes_us=tuple(map(self.leaving.clusters.least, cold)),
                n_found_cold=sum(tier.n_cold for tier in tiers.values()),
                n_dropped=sum(discard.n_dropped for discard in discards),
                n_missing_at_most=sum(discard.n_most for discard in discards),
                n_missing_about=sum(discard.n_about for discard in discards),
                dropped_bytes=sum(self.part.dropped_bytes(name) for name in self.graph.inputs),
                reached=self.inputs.streams.reached(self.inputs.latest),
            )
        return (*(record for loop in self.loops for record in loop.records()), joined)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The order of each pipeline, how rows are cut, what leaves windows, and the way."""
        tiers = self.leaving.tiers
        possible: tuple[tuple[Choice, bool], ...] = (
            *((pipeline, True) for loop in self.loops for pipeline in loop.choices),
            (self.grids, self.grids.is_adaptive),
            (self.caches, self.caches.is_adaptive),
            (tiers, bool(tiers.lengths)),
            *((done, bool(tiers.lengths)) for done in self.leaving.done.values()),
            (self.drops.loop, bool(self.drops.loop.tables)),
            (self.ways, self.ways.is_adaptive),
            (self.products, self._may_return_products),
            *((choice, True) for choice in self.lane.choices),
        )
        return tuple(choice for choice, is_open in possible if is_open)

    def facts(self) -> JoinView:
        """Return the join as it stands."""
        with self._lock:
            return JoinView(
                name=self.bound.name,
                emits=self.bound.step.emits,
                kind=self.bound.step.kind,
                inputs=tuple(map(self._input_view, self.bound.inputs)),
                pipelines=tuple(self._pipeline_views()),
                caches=self.caches.views(),
                keys=tuple(map(str, self.bound.step.keys)),
                grid=self.grids.grid.shape,
                splits=tuple(map(split_text, self.grids.grid.splits)),
                fullest=self.fullest,
                n_results=self.n_results,
                is_adaptive=self.options.adaptive,
                way=self.ways.plan,
                learned=self.inputs.learned,
                tiers=self.leaving.tiers.views(),
                discards=dict(self.leaving.discards.known),
                done={
                    (rule, name): copy(rows)
                    for rule, choice in self.leaving.done.items()
                    for name, rows in choice.known.items()
                },
                drops=self.drops.loop.views(),
                clusters=self.leaving.clusters.views(self.inputs.latest),
                declared=tuple(
                    f"{declared.column} of {name}" for name, declared in self.bound.keys.items()
                ),
                notes=(*self._notes(), *((self.lane.note,) if self.lane.note else ())),
            )

    def _input_view(self, join_input: JoinInput) -> InputView:
        counts, latest = self.inputs.counts[join_input.name], self.inputs.latest
        low = (
            ALWAYS if join_input.time is None else self.inputs.streams.low(join_input.name, latest)
        )
        files = self.part.files(join_input.name)
        n_cold, n_cold_runs, cold_bytes = self.part.cold(join_input.name)
        return InputView(
            name=join_input.name,
            stream=join_input.stream,
            window=self._window_of(join_input),
            n_arrived=counts.n_arrived,
            n_joined=self.n_joined[join_input.name],
            n_late=self.part.n_late.get(join_input.name, 0),
            n_untimed=counts.n_untimed,
            latest=latest.get(join_input.name),
            n_kept=sum(file.n_rows for file in files),
            n_bytes=sum(file.n_bytes for file in files),
            n_runs=len(files) + n_cold_runs,
            n_waiting=self.part.n_waiting(join_input.name),
            n_cold=n_cold,
            cold_bytes=cold_bytes,
            dropped_bytes=self.part.dropped_bytes(join_input.name),
            awaited_from=low if low > ALWAYS else None,
        )

    def _window_of(self, joined: JoinInput) -> str:
        if joined.time is not None:
            return joined.window.shown
        return STATIC if joined.refresh is None else REFRESHED

    def _pipeline_views(self) -> Iterator[PipelineView]:
        return pipeline_views(self.loop, self.work)

    def _notes(self) -> Iterator[str]:
        streams, rule = self.inputs.streams, self.bound.lateness
        exempt = {*rule.shares, *rule.told}
        if strict := [name for name, us in rule.given.items() if not us and name not in exempt]:
            yield (
                f"{', '.join(strict)} without a lateness: a row earlier than one of an earlier "
                f"batch is late, and not joined (lateness='1 minute' of its stream waits for it)"
            )
        timed = (
            join_input
            for join_input in self.bound.inputs
            if join_input.time is not None and join_input.name not in self.leaving.discards.lengths
        )
        if endless := [
            join_input.name for join_input in timed if join_input.window == UnboundedWindow()
        ]:
            yield (
                f"{', '.join(endless)} [UNBOUNDED], as a stream without a window is: its rows are "
                f"kept for ever ([RANGE 10 MINUTES] after its name lets them go)"
            )
        yield from self._version_notes()
        lows = streams.lows(self.inputs.latest)
        silent = sorted(name for name, low in lows.items() if low == ALWAYS)
        if silent and len(silent) < len(lows):
            yield (
                f"no row of {', '.join(silent)} has come yet, so nothing that could still join its "
                f"rows leaves the windows of the others"
            )
        if (order := self.bound.order(streams, self.inputs.latest)) is not None:
            yield (
                f"results wait for event time: no earlier row of {', '.join(order.awaited)} may "
                f"come any more; all rows are joined in one task"
            )
        if (
            asked := self.bound.partners(self.inputs.streams, {})
        ) is not None and asked.time is not None:
            yield (
                f"a row of {asked.left} without a partner is known once no row of {asked.right} "
                f"can come in its window any more: rows that wait at the end of a run are decided "
                f"in a later one; all rows are joined in one task"
            )
        if self.leaving.discards.lengths:
            yield (
                "constraints='discard': rows that are hardly asked for any more are dropped, so "
                "that results may be missing; none is wrong, and the section on constraints says "
                "how many are missing at most (constraints='exact' misses none)"
            )
        elif self.options.constraints and not self.leaving.tiers.lengths:
            yield (
                "constraints are not used: they need a window that ends ([RANGE 10 MINUTES], "
                "[ROWS 1000]), ISTREAM and adaptive=True; 'discard' needs none, but an inner join "
                "whose results do not wait for event time"
            )
        keyed = (join_input for join_input in self.bound.inputs if join_input.key is not None)
        if unused := [join_input for join_input in keyed if join_input.name not in self.bound.keys]:
            keys = ", ".join(f"{join_input.key} of {join_input.name}" for join_input in unused)
            yield (
                f"the declared key {keys} is neither checked nor used: it is so in inner joins "
                f"whose results wait for nothing, by the column as it is in the stream"
            )
        if not self.options.adaptive:
            yield "adaptation is switched off: orders stand as written"

    def _version_notes(self) -> Iterator[str]:
        for table in self.bound.inputs:
            if table.refresh is not None and (version := self.part.versions.get(table.name)):
                every = table.refresh.every_us
                looks = f"where the last look was {span(every)} ago" if every else "each time"
                yield (
                    f"{table.name} has version {version['version']} of its table; a batch looks "
                    f"for a newer one {looks}"
                )

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> LearnedJoin:
        """Return the learned state."""
        return LearnedJoin(
            self._learned_orders(),
            self.grids.snapshot(),
            self.n_joined,
            self.n_results,
            self.leaving.snapshot(),
            self.drops.loop.snapshot(),
            self.ways.plan,
            self.lane.choice.snapshot() if self.lane.choices else None,
            self.products.plan,
        )

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: it is damaged, or of something else.
        """
        name = self.bound.name
        learned = restored(state, LearnedJoin, f"the join {name!r}", query=name)
        # Nothing is taken of what is of others: the way is looked at before anything is.
        others = {learned.way} - {*WAYS} or {learned.results} - {*RESULTS}
        others = others or self.leaving.restore(learned.leaving)
        if others:
            msg = f"the learned state of the join {name!r} has unknown parts: {sorted(others)}"
            raise StateError(msg, query=name)
        for name in self.bound.source.refreshed:  # its keys may not stay unique
            self.leaving.unique.pop(name, None)
        self._restore_orders(learned.loop)
        self.grids.restore(learned.bins)
        self.drops.loop.restore(learned.drops)
        if self.ways.is_adaptive:
            self.ways.plan = learned.way
        if self._may_return_products and self.options.adaptive:
            self.products.plan = learned.results
        if learned.lane is not None:
            self.lane.choice.restore(learned.lane)
        self.n_joined |= {name: learned.n_joined.get(name, 0) for name in self.n_joined}
        self.n_results = learned.n_results

    def _learned_orders(self) -> Any:
        """Return the learned state of the pipelines."""
        return self.loop.snapshot()

    def _restore_orders(self, state: Any) -> None:
        """Continue from what ``_learned_orders`` returned; StateError if it is damaged."""
        self.loop.restore(state)


def pipeline_views(loop: JoinLoop, work: JoinWork, query: str = "") -> Iterator[PipelineView]:
    """Yield the pipelines of a join as they stand, given the work of their probes."""
    for name, pipeline in loop.pipelines.items():
        probes, drop_fracs = [], pipeline.drop_fracs()
        for other in pipeline.order:
            done, drop_frac = work.probe(name, other), drop_fracs.get(other, float("nan"))
            probes.append(ProbeView(other, done.n_in, done.n_out, done.ns, drop_frac))
        routes = pipeline.routes
        classes = () if routes is None else routes.views(pipeline.order)
        yield PipelineView(name, tuple(probes), pipeline.written, classes, query)

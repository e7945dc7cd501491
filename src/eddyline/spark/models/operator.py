"""Operator of models of a stream on Spark.

One shuffle brings rows to the buckets of their entities. ``ModelOperator`` runs a ``ModelStep``. A
bucket is a partition and does its work in a Python worker (``task``). The joins of the graph have a
choice of what they ask before they make pairs (``models.planning.choice``).

Rows of several streams are one DataFrame (``Arriving``): ``SIDE`` says which input a row is of,
keys and times are in common columns, and the others in columns of their input. Segments that exist
from the start come with the first batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType, TimestampNTZType

from eddyline.data.learned import restored
from eddyline.errors import NotSupportedError, QueryError
from eddyline.lane.exchange import BUCKET, Reading
from eddyline.models.entities.kept import CODE
from eddyline.models.fitting.declared import Declared
from eddyline.models.graph import SIDE
from eddyline.models.planning.choice import AskingChoice
from eddyline.models.planning.expected import ModelProfile
from eddyline.models.streams.plan import (
    COMPONENT,
    MEMBER,
    BucketReport,
    ModelCounts,
    ModelPart,
    SharedPlan,
    Sketch,
)
from eddyline.models.streams.view import ModelView, told_bounds, waiting_rows
from eddyline.options import ModelOptions
from eddyline.query.steps import made_by
from eddyline.report import models as words
from eddyline.spark.analysis import arrow_schema, table_schema
from eddyline.spark.bucketed import REPORT, REPORTED, StreamOperator, as_sent
from eddyline.spark.clock import StreamClock
from eddyline.spark.event_time import ResultClock
from eddyline.spark.models.files import check_columns, columns_of, file_rows, fit_of
from eddyline.spark.models.graphs import fields_of
from eddyline.spark.models.laying import (
    Source,
    as_final,
    has_positions,
    in_degrees,
    laid,
    rows_to_fit,
    schema_of,
    united,
    with_revisions,
)
from eddyline.spark.models.task import ModelWorker
from eddyline.spark.operator import UnboundedState
from eddyline.spark.relation import lateness_rule, micros_of
from eddyline.spark.row_tests import check_settings
from eddyline.spark.task_results import ArrowStep
from eddyline.spark.union import KEPT, MICROS, OWN, part_of
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.models.fitting.fit import Fit
    from eddyline.models.streams.plan import ModelStep, StreamPlan
    from eddyline.query.steps import Step
    from eddyline.report.sections import Section
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History, Record
    from eddyline.spark.arrow_tasks import Tasks
    from eddyline.spark.lane import ListedScan, PlainScan
    from eddyline.spark.operator import Batch, Clock, Observed, Operator, Pending, Site
    from eddyline.spark.union import Part
    from eddyline.state.manifest import StatePart

COUNTS = "counts"
"""The name of the counts in saved state."""


class ModelOperator(StreamOperator[ModelPart, BucketReport]):
    """Runs a ``ModelStep``, over the rows of one stream or of several inputs.

    Raises:
        QueryError: rows without event time.
    """

    name = COMPONENT
    task_module = ModelWorker.__module__
    takes: type[Any] | None = ModelOptions
    state_type = ModelPart
    asked_clock: Clock
    before: tuple[Operator, ...]

    def __init__(self, step: ModelStep, site: Site) -> None:
        self.step, self.query = step, site.query
        _check_names(step, site.query)
        self.asked = step.plan
        """What is done with the rows of a batch, by the plan in force."""
        partitions = site.df.sparkSession.conf.get("spark.sql.shuffle.partitions")
        self._n_buckets = int(partitions or 1) if step.plan.together else 1
        taken_options, self.other_options = ModelOptions.taken(site.options)
        options = taken_options.resolved()
        super().__init__(site.df.sparkSession, options.lane, is_adaptive=options.adaptive)
        self.planning = AskingChoice(options, step.plan.node)
        """Estimates what steps give, and plans what joins ask."""
        self.time: str | None = None
        self.times = None
        self._arriving: Arriving | None = None
        if len(step.inputs) > 1:
            self._of_several(site)
        else:
            self._of_one(site)
        self.key_fields = fields_of(step.plan.node, lambda part: self._sources[part.at].key_fields)
        """Name and type of the keys of results."""
        self.counts = ModelCounts()
        self._sketch = Sketch()
        self.asked_clock.asked()
        self.clock: Clock | None = ResultClock(self.asked_clock)

    def _of_one(self, site: Site) -> None:
        (only,) = self.step.plan.inputs
        assert only.maker is not None
        if site.clock is None or site.time != only.maker.time:
            msg = (
                f"query {site.query!r} makes models by event time {only.maker.time!r}, which "
                f"its rows do not have: engine.stream(…, time='{only.maker.time}')"
            )
            raise QueryError(msg, query=site.query)
        self.source = site.df
        source = Source(site.df, only.shape, only.maker, lane=self.lane.wanted)
        self._sources: tuple[Source, ...] = (source,)
        self.rows_clock = self.asked_clock = site.clock
        self._micros = micros_of(site.df, only.maker.time, site.query)
        self.before = ()

    def _of_several(self, site: Site) -> None:
        parts = {name: _part(name, site) for name in self.step.inputs}
        self._sources = tuple(
            Source(part.rows(0).drop(*OWN), stream_input.shape, stream_input.maker)
            for part, stream_input in zip(parts.values(), self.step.plan.inputs, strict=True)
        )
        self._arriving = arriving = Arriving(self._sources, tuple(parts.values()))
        self.source = arriving.streams
        streams = {
            name: part.relation for name, part in parts.items() if part.relation.time is not None
        }
        lateness = lateness_rule(streams, {name: parts[name].stream for name in streams})
        without = dict.fromkeys(
            parts[name].stream for name, relation in streams.items() if relation.lateness is None
        )
        self._micros = F.col(MICROS)
        clock = StreamClock(
            lateness,
            self.source,
            self._micros,
            F.col(SIDE),
            without_lateness=tuple(without),
            passing=lambda rows: rows.where(KEPT),
            is_local=isinstance(self._sources[0].time_type, TimestampNTZType),
        )
        self.rows_clock = self.asked_clock = clock
        self.before = (clock,)

    @classmethod
    def from_step(cls, step: ModelStep, site: Site) -> Self:
        """Return the operator of a step."""
        operator = cls(step, site)
        if len(step.inputs) > 1:
            operator.lane.note_not_asked("it reads several inputs")
        else:
            operator.follow_stream(site)
        return operator

    @property
    def unbounded(self) -> tuple[UnboundedState, ...]:  # type: ignore[override]
        """State that grows for ever: models without a horizon hold back what joins them."""
        inputs = zip(self.step.inputs, self.step.plan.inputs, strict=True)
        names = [
            n
            for n, stream_input in inputs
            if isinstance(stream_input.maker, Declared) and stream_input.maker.is_endless
        ]
        return tuple(
            UnboundedState(
                f"models of {name!r} have no horizon: of an entity without another row the last "
                "one is kept for ever, and with it all segments that it may still be joined with",
                "give HORIZON 10 MINUTES, or horizon='10 minutes' of models.declare",
            )
            for name in names
        )

    def then(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return the steps over its result."""
        return steps

    @property
    def n_buckets(self) -> int:
        """Parts into which entities are cut: as many as when the query began."""
        return self._n_buckets

    @property
    def task_schema(self) -> StructType:
        """The columns that tasks return; the last one is the report."""
        return StructType([*self._schema, REPORTED])

    @cached_property
    def _schema(self) -> StructType:
        schema = schema_of(self.asked.node.shape, self.key_fields, self._sources[0].time_type)
        return with_revisions(schema) if self.asked.is_early else schema

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:
        """Start from the state after the batch before, with as many buckets as that has."""
        super().open(part, again, batch)
        self._n_buckets = self.part.n_buckets

    # -- one batch ------------------------------------------------------------------------------

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Choices: which sides joins filter first, and who reads files."""
        return (*((self.planning,) if self.planning.joins else ()), *self.lane.choices)

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Take in the plan that is in force by now; answer a batch here whose files are small."""
        super().prepare(df, batch)
        self.asked = self._plan_of_batch(batch)
        if self.files is not None and not self.is_idle:
            states = self.part.buckets.values()
            n_kept_bytes = sum(file.n_bytes for state in states for file in state.files)
            reading = self._reading(self.files)
            self.answer_files(reading, partial(self._worker, df, batch), batch, n_kept_bytes)

    def _plan_of_batch(self, batch: Batch) -> StreamPlan:  # noqa: ARG002
        """Return what is done with the rows of a batch, once its plan is taken in."""
        return self._planned()

    def _planned(self) -> StreamPlan:
        """Return what is done with the rows of a batch, by the plan in force."""
        plan, planning = self.step.plan, self.planning
        return replace(plan, node=planning.planned(plan.node), samples=planning.wants_sample)

    def answered(self, df: DataFrame, batch: Batch) -> tuple[Tasks, tuple[Pending, ...]]:
        """Return the tasks over the rows of a batch that are not late."""
        worker, clock = self._worker(df, batch), self.asked_clock
        if self.files is not None:
            return self.exchange_files(df.sparkSession, self._reading(self.files), worker), ()
        late = self._micros + F.lit(clock.offset) < F.lit(clock.before)
        return self.exchange(self._read(df.where(~late) if clock.has_late else df), worker), ()

    def _worker(self, df: DataFrame, batch: Batch) -> ModelWorker:
        """Return what answers the buckets of a batch."""
        clock, is_local = self.asked_clock, isinstance(self._sources[0].time_type, TimestampNTZType)
        return ModelWorker(
            arrow_schema(df.sparkSession, self.task_schema), self.place, self.asked, self.part,
            clock.after, clock.offset, None if is_local else "UTC", self._sketch.cut,
            None if self._arriving is None else self._arriving.columns, batch.id,
        )  # fmt: skip

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the results in what tasks returned."""
        return in_degrees(returned.drop(REPORT), self.asked.node.shape)

    @property
    def result_step(self) -> ArrowStep | None:
        """Step that makes results; None if they have positions, which Spark puts in degrees."""
        return None if has_positions(self.asked.node.shape) else self._as_returned

    @cached_property
    def _as_returned(self) -> ArrowStep:
        schema = table_schema(self.spark, self.empty_results.schema)
        return ArrowStep(self.empty_results, partial(as_sent, outputs=schema))

    @cached_property
    def empty_results(self) -> DataFrame:
        """No results, for analysis."""
        return self.spark.createDataFrame([], StructType(self.task_schema.fields[:-1]))

    # -- the lane -------------------------------------------------------------------------------

    @property
    def _fit(self) -> Fit:
        """Fit of the rows of files; see ``files.fit_of``."""
        return fit_of(self.step.plan.inputs[0].maker)

    @property
    def handed(self) -> tuple[str, ...]:
        """The columns of the rows that tasks read."""
        return columns_of(self._fit)

    def check_may_read(self) -> None:
        """Raise Refused if tasks may not read files, whatever the input is."""
        fit_of(self.step.plan.inputs[0].maker)

    def check_fits(self, scan: PlainScan) -> None:
        """Raise Refused if rows have values that tasks do not hash or cast as Spark does."""
        check_settings([self.where], scan.spark)
        check_columns(self._fit, scan)

    def _reading(self, files: ListedScan) -> Reading:
        """Return the tasks that read the files of a batch."""
        clock = self.asked_clock
        rows = file_rows(
            files,
            self._fit,
            self.n_buckets,
            together=self.step.plan.together,
            where=self.where,
            since=clock.before - clock.offset if clock.has_late else None,
        )
        return Reading((rows,))

    def _read(self, rows: DataFrame) -> DataFrame:
        """Return what is read of rows, with what was there from the start, code and bucket."""
        keys = ", ".join(quoted(key) for key in self.step.plan.keys)
        code = f"xxhash64({keys}) AS {CODE}" if keys else f"0L AS {CODE}"
        # Entities that are looked at together are in one bucket.
        hashed = ", ".join(quoted(key) for key in self.step.plan.together)
        group = f"pmod(xxhash64({hashed}), {self.n_buckets})" if hashed else "0"
        bucket = f"CAST({group} AS INT) AS {BUCKET}"
        maker = self.step.plan.inputs[0].maker
        if self._arriving is None:
            assert maker is not None
            return rows_to_fit(rows, maker, code).selectExpr("*", bucket)
        static = self._arriving.static
        if static is not None and not self.part.buckets:
            rows = rows.unionByName(static, allowMissingColumns=True)
        return rows.where(KEPT).drop(MICROS, KEPT).selectExpr("*", code).selectExpr("*", bucket)

    def once(self, df: DataFrame) -> DataFrame:
        """Return all results over a batch DataFrame; nothing is kept."""
        results = laid(self._over(df), self.asked.node)
        return as_final(results) if self.asked.is_early else results

    def _over(self, df: DataFrame) -> tuple[Source, ...]:
        """Return what is read of a batch DataFrame; of several inputs, they are known already."""
        sources = self._sources
        return sources if self._arriving else (replace(sources[0], df=df),)

    def event_time(self, site: Site, columns: Sequence[str]) -> tuple[str | None, Clock | None]:  # noqa: ARG002
        """Return that results have no event time: one that is of long ago may come late."""
        return None, self.clock

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in what the buckets of a batch did."""
        reports = self.reports(observed)
        entries = self.lane.learn(observed, batch)
        if reports and not self.is_idle:
            with self._lock:
                fresh = sum((report.counts for report in reports), ModelCounts())
                self.counts += fresh
                if self.files is not None:
                    self.results_per_row = fresh.n_results / max(self.files.size[0], 1)
                profiles = [report.profile for report in reports if report.profile is not None]
                profile = reduce(lambda one, other: one.merged(other), profiles, ModelProfile())
                task_ns = sum(fresh.work.ns.values())
                entries += self.planning.step(profile, task_ns, batch.id)
                drawn = [report.sketch for report in reports if report.sketch is not None]
                self._sketch = self._sketch.with_later(drawn, self.asked.row_times)
        return entries

    # -- what people see ------------------------------------------------------------------------

    def facts(self) -> ModelView:
        """Return the operator as it stands."""
        with self._lock:
            states = list(self.part.buckets.values())
            return ModelView(
                name=self.query,
                step=str(self.step),
                counts=self.counts,
                waiting=waiting_rows(self.asked, self.step.inputs, states, self.asked_clock.offset),
                n_kept=sum(state.n_segments for state in states),
                n_bytes=sum(file.n_bytes for state in states for file in state.files),
                bounds=self.step.plan.bounds,
                asked=told_bounds(self.asked, self.step.inputs),
                sketch=self._sketch,
                plan=self.asked,
                steps=self.planning.steps(),
                joins=self.planning.views(),
                ways=self.planning.plan if self.planning.joins else None,
                notes=(self.lane.note,) if self.lane.note else (),
            )

    def records(self) -> tuple[Record, ...]:
        """Return the record after a batch."""
        return (self.facts().record,)

    def describe(self, history: History) -> list[Section]:
        """Return for people what was fitted, and what is kept."""
        return words.sections(self.facts(), history)

    def snapshot(self) -> dict[str, Any]:
        """Return the counts, and what was learned of steps and joins."""
        with self._lock:
            saved = {COUNTS: self.counts, **(super().snapshot() or {})}
            if self.planning.is_adaptive:
                saved[self.planning.component] = self.planning.snapshot()
            return saved

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        with self._lock:
            super().restore(state)
            self.counts = restored(state.get(COUNTS, {}), ModelCounts, "models")
            if (learned := state.get(self.planning.component)) is not None:
                self.planning.restore(learned)


def _check_names(step: ModelStep, query: str) -> None:
    """Raise QueryError if a key or an attribute has the name of a column that rows travel with."""
    for name in (
        name
        for stream_input in step.plan.inputs
        for name in (*stream_input.shape.keys, *stream_input.shape.attributes)
    ):
        if name in (BUCKET, CODE, SIDE):
            msg = f"query {query!r}: {name!r} is the name of a temporary column; rename the column"
            raise QueryError(msg, query=query, column=name)


# -- what comes to the buckets --------------------------------------------------------------------


TIME = "__time"
"""The time of a row of any stream, as it is; ``MICROS`` is its instant."""


def _part(name: str, site: Site) -> Part:
    """Return one of several inputs.

    Raises:
        NotSupportedError: it takes more than conditions and columns in SQL.
    """
    steps = made_by(site.before, len(site.before), name)
    part = part_of(steps, site)
    if part is None:
        msg = (
            f"query {site.query!r} joins models of several inputs, and {name!r} calls Python, "
            "aggregates or joins rows before they are modelled; write its results with a query of "
            "their own, and read these as a stream"
        )
        raise NotSupportedError(msg, query=site.query, input=name)
    return part


@dataclass(frozen=True)
class Arriving:
    """The inputs of a graph as one DataFrame: the streams, then the others."""

    sources: tuple[Source, ...]
    parts: tuple[Part, ...]
    """For each the rows that it is made of, and the conditions on these."""

    @property
    def streams(self) -> DataFrame:
        """The rows of the streams; ``KEPT`` says which pass the conditions on their stream."""
        return united(
            [self._rows(number) for number, source in enumerate(self.sources) if source.maker]
        )

    @cached_property
    def static(self) -> DataFrame | None:
        """The segments of the inputs that are no streams; None if there are none."""
        segments = [
            self._segments(number) for number, source in enumerate(self.sources) if not source.maker
        ]
        return united(segments).withColumn(KEPT, F.lit(True)) if segments else None

    @property
    def columns(self) -> tuple[dict[str, str], ...]:
        """The columns of each input besides its keys: in common, and by itself."""
        return tuple(map(self._columns, range(len(self.sources))))

    def _columns(self, number: int) -> dict[str, str]:
        source = self.sources[number]
        if source.maker is None:
            names = [
                column for column in source.shape.layout.columns if column not in source.shape.keys
            ]
            return {f"__{number}_{column}": column for column in names}
        return {TIME: source.maker.time} | {
            f"__{number}_{column}": column for column in source.maker.columns
        }

    def _rows(self, number: int) -> DataFrame:
        source = self.sources[number]
        assert source.maker is not None
        rows = rows_to_fit(
            self.parts[number].rows(number), source.maker, MICROS, KEPT, instant=MICROS
        )
        return self._tagged(rows, number, MICROS, KEPT)

    def _segments(self, number: int) -> DataFrame:
        return self._tagged(self.sources[number].segments, number)

    def _tagged(self, df: DataFrame, number: int, *more: str) -> DataFrame:
        keys = map(quoted, self.sources[number].shape.keys)
        columns = (
            f"{quoted(name)} AS {quoted(common)}" for common, name in self._columns(number).items()
        )
        return df.selectExpr(f"{number} AS {SIDE}", *keys, *columns, *more)


class SharedModelOperator(ModelOperator):
    """Runs a ``SharedModelStep``: ``MEMBER`` says which query a result is of."""

    @cached_property
    def _schema(self) -> StructType:
        plan = self.step.plan
        assert isinstance(plan, SharedPlan)
        fields = [StructField(MEMBER, IntegerType())]
        for number, (_, node) in enumerate(plan.members):
            keys = fields_of(node, lambda part: self._sources[part.at].key_fields)
            schema = schema_of(node.shape, keys, self._sources[0].time_type)
            fields += [
                StructField(plan.column(number, field.name), field.dataType) for field in schema
            ]
        return StructType(fields)

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the results in what tasks returned."""
        return returned.drop(REPORT)

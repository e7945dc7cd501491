"""A windowed join of DataFrames: all inputs in one shuffle, joined by one operator."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from eddyline.errors import OptionError, QueryError, StateError
from eddyline.joins.graph import JoinGraph
from eddyline.joins.grid_choice import chosen_grid
from eddyline.joins.loop import written_orders
from eddyline.joins.plan import BatchPlan
from eddyline.options import JoinOptions
from eddyline.query.cql import read_window
from eddyline.query.select.reader import read_query
from eddyline.query.steps import columns_read
from eddyline.query.windows import LONGEST
from eddyline.registry import unknown
from eddyline.spark.analysis import column_types
from eddyline.spark.joins.operator import JoinPipeline
from eddyline.spark.joins.source import arrow_schema, placed, source_of
from eddyline.spark.joins.task import REPORT, OnceWorker, Shape
from eddyline.spark.projection import ProjectOperator
from eddyline.spark.run.legacy import LegacyOperator
from eddyline.spark.run.run import Job, Run, SinkOutlet, has_started, settings_of
from eddyline.spark.sinks.sinks import file_system, sink_of
from eddyline.sql.parsing import quoted
from eddyline.state.event_time import EventTime, OrderPlan
from eddyline.state.rows import result_column

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.spark.joins.layout import InputLayout
    from eddyline.spark.joins.source import Source
    from eddyline.spark.sinks.sinks import BatchWriter

RENAME = "el.window_join(…, name='…')"
"""How a join gets another name."""


def window_join(
    inputs: Mapping[str, DataFrame],
    *,
    on: str,
    time: Mapping[str, str],
    windows: Mapping[str, str] | None = None,
    select: str | None = None,
    lateness: str | Mapping[str, str] | None = None,
    name: str | None = None,
    functions: Mapping[str, FunctionPredicate] | None = None,
    **options: Any,
) -> WindowJoin:
    """Join DataFrames over windows of event time, in one shuffle.

    Over streams, rows of a join with a window of N rows wait until no earlier row of that stream
    can come, which is when a row that is later by more than the lateness has come; results that
    are emitted when they end (DSTREAM), or at each instant (RSTREAM), wait so for all streams. A
    stream that stops therefore holds such a join up. It runs in one task.

    Args:
        inputs: streams and static tables by name, in the order in which results are wanted; two or
            more. All streams are streaming DataFrames, or all are batch ones.
        on: what must be true of a result: equalities between inputs (``s.k = t.k``), with which
            every input hangs together, and any other condition, joined by AND.
        time: the event-time column of each stream; an input without one is a static table, whose
            rows were always there.
        windows: the window of each stream, such as ``RANGE 10 SECONDS``, ``ROWS 1000``,
            ``PARTITION BY k ROWS 10``, ``NOW``; all rows so far if omitted.
        select: the output columns (``s.k, t.v AS w``); if omitted, all columns of all inputs, and
            where several inputs have one of a name, ``k`` of ``s`` is called ``s_k``.
        lateness: how much earlier than the latest row of its stream a row may be (``1 minute``);
            one for all streams, or one for each. Later rows are counted and kept apart.
        name: of the query.
        functions: Python predicates (``el.predicate``) by the name by which ``on`` calls them, each
            on columns of one input.
        **options: how the join is run; see ``eddyline.options.JoinOptions``.

    Raises:
        QueryError: a name, a column or a window that does not fit.
        NotSupportedError: a join that eddyline does not run, with its position.
        OptionError: an unknown option, or a value out of range.

    Example:
        >>> pairs = el.window_join(  # doctest: +SKIP
        ...     {"s": s_df, "t": t_df}, on="s.k = t.k", time={"s": "ts", "t": "ts"},
        ...     windows={"s": "RANGE 10 SECONDS", "t": "RANGE 5 SECONDS"}, select="s.k, t.w")
        >>> pairs.to_df().show()  # doctest: +SKIP
    """
    windows = windows or {}
    _check_given(inputs, time=time, windows=windows, lateness=lateness)
    parts = []
    for each in inputs:
        window = windows.get(each)
        if window is not None:
            read_window(window, f"the window of {each!r}")
        parts.append(quoted(each) + ("" if window is None else f" [{window.strip().strip('[]')}]"))
    text = f"SELECT {select or _all_columns(inputs)} FROM {', '.join(parts)} WHERE {on}"
    times = {each: time.get(each) for each in inputs}
    allowed = dict.fromkeys(time, lateness) if isinstance(lateness, str) else dict(lateness or {})
    chosen = name or "_".join(inputs)
    made = WindowJoin(
        text, inputs, times, allowed, chosen, JoinOptions.of(**options), functions=functions
    )
    made.check()
    return made


def _check_given(inputs: Any, **by_input: Any) -> None:
    """Check the arguments of ``window_join`` that are given input by input.

    Raises:
        QueryError: there is nothing to join, or one is given for an input that is not there.
        OptionError: an argument is of another kind.
    """
    if not isinstance(inputs, Mapping) or len(inputs) < 2:
        msg = "a join needs two DataFrames or more by name: {'s': s_df, 't': t_df}"
        raise QueryError(msg)
    for name, df in inputs.items():
        if not hasattr(df, "isStreaming"):
            msg = f"input {name!r} must be a DataFrame, got {type(df).__name__}"
            raise QueryError(msg, name=name)
    for what, given in by_input.items():
        is_one = what == "lateness" and (given is None or isinstance(given, str))
        if not is_one and not isinstance(given, Mapping):
            example = f"{what}={{{next(iter(inputs))!r}: …}}"
            msg = f"{what} is given for each input by its name, such as {example}, got {given!r}"
            raise OptionError(msg, **{what: given})
        for name in given if isinstance(given, Mapping) else ():
            if name not in inputs:
                msg = f"{what}: {unknown('input', name, list(inputs))}"
                raise QueryError(msg, name=name)


def _all_columns(inputs: Mapping[str, DataFrame]) -> str:
    """Return all columns of all inputs, as SQL."""
    count = Counter(column.lower() for df in inputs.values() for column in df.columns)
    return ", ".join(
        f"{quoted(each)}.{quoted(column)}"
        + (f" AS {quoted(f'{each}_{column}')}" if count[column.lower()] > 1 else "")
        for each, df in inputs.items()
        for column in df.columns
    )


class WindowJoin:
    """A join of DataFrames over windows; made by ``el.window_join`` or ``Engine.query``.

    Args:
        text: ``SELECT … FROM s [RANGE 10 SECONDS], t [RANGE 1 MINUTE] WHERE s.k = t.k AND …``.
        frames: the DataFrame of each stream and table by the name in FROM.
        times: its event-time column; None for a table, whose rows were always there.
        lateness: how late rows of a stream may come, such as ``1 minute``; not at all if omitted.
        name: of the query.
        options: how it is run.
        functions: Python predicates that conditions over one input may call.
        rename: how it gets another name, for errors.

    Raises:
        QueryError: the text cannot be understood, or does not fit the columns.
        NotSupportedError: a join that eddyline does not run, with its position.
    """

    def __init__(
        self,
        text: str,
        frames: Mapping[str, DataFrame],
        times: Mapping[str, str | None],
        lateness: Mapping[str, str | None] | None = None,
        name: str = "join",
        options: JoinOptions | None = None,
        *,
        functions: Mapping[str, FunctionPredicate] | None = None,
        rename: str = RENAME,
    ) -> None:
        for stream, time in times.items():
            if time is not None and time not in frames[stream].columns:
                msg = f"{stream!r}: {unknown('time column', time, frames[stream].columns)}"
                raise QueryError(msg, name=stream, time=time)
        columns = {each: column_types(df) for each, df in frames.items()}
        self.query = read_query(text, columns, functions)
        if not self.query.is_join:
            msg = "a join needs two streams or more"
            raise QueryError(msg, query=text)
        used = {each.stream for each in self.query.inputs}
        self.name = name
        self.frames = {each: df for each, df in frames.items() if each in used}
        self.times = {each: times.get(each) for each in self.frames}
        self.lateness = {
            each: _micros(given, each)
            for each, given in (lateness or {}).items()
            if given is not None and each in used
        }
        self.options = options or JoinOptions()
        self.rename = rename
        names = tuple(each.name for each in self.query.inputs)
        self.graph = JoinGraph(names, tuple(frozenset(key.members) for key in self.query.keys))
        self._check_streams()

    def _check_streams(self) -> None:
        """Raise QueryError unless all streams are of one kind, and tables can be read."""
        timed = {each: self.frames[each].isStreaming for each, time in self.times.items() if time}
        if not timed:
            msg = "every input is a static table; give the event-time column of at least one stream"
            raise QueryError(msg, query=self.text)
        if len(set(timed.values())) > 1:
            batch = ", ".join(sorted(each for each, streams in timed.items() if not streams))
            msg = (
                f"{batch} has a time column but is no streaming DataFrame, as others are; a table "
                f"that does not change is joined without a time"
            )
            raise QueryError(msg, query=self.text)
        for each, time in self.times.items():
            if time is None and self.frames[each].isStreaming:
                msg = f"stream {each!r} needs an event-time column to be joined: time='…'"
                raise QueryError(msg, stream=each)

    is_filter = False

    @property
    def text(self) -> str:
        """The query as it was written."""
        return self.query.text

    def check(self) -> None:
        """Check keys and output columns, without running anything.

        Raises:
            QueryError: keys that cannot be compared, event times that are no times, or an output
                column that cannot be computed.
        """
        spark = next(iter(self.frames.values())).sparkSession
        empty = spark.createDataFrame([], self.result_schema)
        for condition in self.conditions:
            try:
                empty = empty.where(condition)
            except AnalysisException as error:
                msg = f"query {self.name!r}: {error.getMessage() or error}"
                raise QueryError(msg, query=self.name) from error
        self.project(empty)

    @cached_property
    def identity(self) -> str:
        """What the windows of a checkpoint must be of, to go on from them."""
        types = {each: column_types(df) for each, df in sorted(self.frames.items())}
        plain = json.dumps([types, sorted(self.times.items())], default=str)
        return f"{self.text} #{hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()}"

    @cached_property
    def source(self) -> Source:
        """The inputs as one DataFrame.

        Raises:
            QueryError: keys that cannot be compared, or an event time that is no time.
        """
        query = self.query
        needed = columns_read(query, (*query.projections, *query.residual))
        return source_of(
            query, self.frames, self.times, needed, columns_read(query, query.equalities)
        )

    @cached_property
    def result_schema(self) -> StructType:
        """What results are: a struct for each input."""
        return StructType([StructField(name, of) for name, of in self._fields.items()])

    @cached_property
    def task_schema(self) -> StructType:
        """What tasks return: the columns of all inputs, named ``input.column``, and the report."""
        columns = [
            StructField(result_column(name, column.name), column.dataType)
            for name, of in self._fields.items()
            for column in of
        ]
        return StructType([*columns, StructField(REPORT, BinaryType())])

    @cached_property
    def _fields(self) -> dict[str, StructType]:
        """The columns of results by input."""
        return {
            each.name: self.fields_of(each, [name for name, _ in each.columns])
            for each in self.source.layouts
        }

    def fields_of(self, layout: InputLayout, names: Iterable[str]) -> StructType:
        """Return some columns of an input."""
        schema = self.frames[layout.stream].schema
        return StructType([StructField(name, schema[name].dataType) for name in names])

    def found_in(self, df: DataFrame) -> DataFrame:
        """Return the results in what tasks returned: a struct for each input."""
        conditions = [f"{REPORT} IS NULL", *(f"({each}\n)" for each in self.conditions)]
        return df.select(*self._structs, REPORT).where(" AND ".join(conditions))

    @cached_property
    def _structs(self) -> list[Column]:
        def found(name: str, column: str) -> Column:
            return F.col(quoted(result_column(name, column))).alias(column)

        return [
            F.struct(*[found(name, column) for column in of.names]).alias(name)
            for name, of in self._fields.items()
        ]

    @property
    def conditions(self) -> tuple[str, ...]:
        """What is checked on results: all but the equalities, and these if codes are hashes."""
        return (*self.query.residual, *(self.query.equalities if self.source.rough else ()))

    @property
    def n_buckets(self) -> int:
        """Most buckets that rows are cut into: one where every row of a stream has to be seen."""
        if self.order({}) is not None:
            return 1
        spark = next(iter(self.frames.values())).sparkSession
        return self.options.buckets or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)

    @property
    def n_tasks(self) -> int:
        """Tasks that Spark runs at a time."""
        spark = next(iter(self.frames.values())).sparkSession
        return int(spark.sparkContext.defaultParallelism)

    @cached_property
    def event_time(self) -> EventTime:
        """The streams, and by how much their rows may come late."""
        return EventTime(
            {
                each.name: self.lateness.get(each.stream, 0)
                for each in self.query.inputs
                if self.times[each.stream] is not None
            }
        )

    def order(self, latest: Mapping[str, int]) -> OrderPlan | None:
        """Return what rows wait for; None if no answer hangs on their order.

        Args:
            latest: the latest event time of each stream before a batch (µs).
        """
        layouts = {each.name: each for each in self.source.layouts}
        windows = {name: of.window.counts for name, of in layouts.items()}
        counts = {name: of for name, of in windows.items() if of is not None}
        if not counts and self.query.emits == "istream":
            return None
        return OrderPlan(
            emits=self.query.emits,
            time=self.event_time,
            latest=dict(latest),
            rows=counts,
            ties={name: layouts[name].ties for name in counts},
            columns={name: tuple(of for of, _ in layouts[name].columns) for name in counts},
        )

    def project(self, df: DataFrame) -> DataFrame:
        """Return the output columns of results.

        Raises:
            QueryError: one cannot be computed.
        """
        try:
            return df.selectExpr(*self.query.projections)
        except AnalysisException as error:
            msg = f"query {self.name!r}: {error.getMessage() or error}"
            raise QueryError(msg, query=self.name) from error

    def to_df(self) -> DataFrame:
        """Return all results over batch DataFrames: one row when it comes to be (ISTREAM).

        As DSTREAM, one row for each result that ends; as RSTREAM, one for each instant of a row of
        any stream at which the result is there. After the last rows nothing is waited for.

        Raises:
            QueryError: an input is a stream, keys that cannot be compared, or a stream whose event
                time is no time.
        """
        if any(df.isStreaming for df in self.frames.values()):
            msg = f"{self.name!r} joins streams, which never end; start it: .start('parquet', …)"
            raise QueryError(msg, query=self.name)
        found = [df for df in (self.source.streams, self.source.tables) if df is not None]
        df = found[0].unionByName(found[1]) if len(found) > 1 else found[0]
        orders = written_orders(self.graph)
        lengths = {each.name: each.window.length for each in self.source.layouts}
        plan = BatchPlan(0, self.graph, orders, lengths, order=self.order({}))
        arrow = arrow_schema(df.sparkSession, self.task_schema)
        worker = OnceWorker(plan, Shape(self.source.layouts, arrow))
        rows = placed(df, chosen_grid(self.graph, self.n_buckets), self.source)
        return self.project(self.found_in(rows.mapInArrow(worker.run, self.task_schema)))

    def start(
        self,
        sink: str | BatchWriter = "memory",
        *,
        path: str | None = None,
        checkpoint: str | None = None,
        trigger: str | None = None,
        state: str | None = None,
    ) -> JoinRun:
        """Start the join over its streams.

        Args:
            sink: ``parquet``, ``memory``, ``console``, or a function of (df, batch_id).
            path: where the sink writes, if it writes somewhere.
            checkpoint: folder from which a later start continues; a temporary one if omitted.
            trigger: ``available_now`` (what is there, then stop), ``once``, or an interval such
                as ``5 seconds``; as fast as possible if omitted.
            state: folder of the windows, or a URI that ``pyarrow.fs`` understands; in the
                checkpoint if omitted. All workers must be able to read and write there.

        Returns:
            The run, which behaves like a StreamingQuery.

        Raises:
            QueryError: the inputs are no streams, or the query is running.
            OptionError: an unknown sink or trigger, or a path that is missing.
            StateError: the checkpoint is of another query.
            SourceError: the sink's path cannot be written.
        """
        streams = self.source.streams
        if streams is None or not streams.isStreaming:
            msg = f"{self.name!r} joins batch DataFrames; get its results by .to_df()"
            raise QueryError(msg, query=self.name)
        job = Job(
            name=self.name,
            text=self.text,
            identity=self.identity,
            source=streams,
            settings=settings_of(self.options),
            operators=lambda folder: [
                LegacyOperator("join", self._pipeline(folder, state)),
                ProjectOperator(self.name, "project", self.query.projections),
            ],
            rename=self.rename,
        )
        outlet = SinkOutlet(sink_of(sink, path))
        return JoinRun(job, outlet, checkpoint, trigger)

    def _pipeline(self, checkpoint: Path, state: str | None) -> JoinPipeline:
        files, folder = file_system(state or str(checkpoint / "eddyline" / "windows"))
        made = JoinPipeline(self, files, folder)
        if made.has_windows and not has_started(checkpoint):
            msg = (
                f"{folder} holds the windows of another run of this query; give that run's "
                f"checkpoint to go on from it, or another folder"
            )
            raise StateError(msg, folder=folder)
        return made


class JoinRun(Run):
    """A join that runs; behaves like Spark's StreamingQuery."""

    @property
    def pipeline(self) -> JoinPipeline:
        """The join, and what was learned of it."""
        found: JoinPipeline = self.chain.operators[0].pipeline  # type: ignore[attr-defined]
        return found

    def late_rows(self, name: str) -> pa.Table:
        """Return the rows of one input that came too late to be joined.

        Args:
            name: the input, as the query calls it.

        Returns:
            The columns that the query reads, and the event time ``_time``; in the order of batches.

        Raises:
            QueryError: the query has no such input.
            StateError: they cannot be read, such as when a temporary checkpoint went with its run.
        """
        return self.pipeline.late_rows(name)


def _micros(text: str, stream: str) -> int:
    """Return an interval in µs.

    Raises:
        OptionError: it is none.
    """
    try:
        window = read_window(f"RANGE {text}", f"the lateness of {stream!r}")
    except QueryError as error:
        msg = f"the lateness of {stream!r} is an interval such as '1 minute', got {text!r}"
        raise OptionError(msg, stream=stream, lateness=text) from error
    if window.length == LONGEST:
        msg = f"the lateness of {stream!r} must end, got {text!r}"
        raise OptionError(msg, stream=stream, lateness=text)
    return window.length

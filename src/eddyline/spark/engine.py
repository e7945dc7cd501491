"""The engine: named streams, named functions, and continuous queries over them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from eddyline.errors import OptionError, QueryError
from eddyline.filters.loop import check_options
from eddyline.options import FilterOptions, JoinOptions
from eddyline.query.predicates import FunctionPredicate, named, predicate
from eddyline.query.select.filters import read_select
from eddyline.query.select.joins import is_join
from eddyline.registry import unknown
from eddyline.spark.filters.binding import bind_to
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.functions import argument_names
from eddyline.spark.joins.window_join import WindowJoin
from eddyline.spark.run.group import start_of, start_together, stop_all
from eddyline.spark.run.run import Job, Run, SinkOutlet, already_running, settings_of
from eddyline.spark.session import session
from eddyline.spark.sinks.sinks import sink_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.filters.binding import BoundConjunction
    from eddyline.query.query import Query as QueryValue
    from eddyline.spark.run.group import SharedQueries
    from eddyline.spark.run.running_query import RunFace
    from eddyline.spark.sinks.sinks import BatchWriter

AnyQuery = TypeVar("AnyQuery", "Query", WindowJoin)

RENAME = "engine.query(…, name='…')"
"""How a query gets another name."""


class Engine:
    """Runs continuous queries over streams, and keeps finding their cheapest plan.

    Args:
        spark: the session to run on; without one, the active session, or a local one that is set
            up for eddyline.

    Example:
        >>> engine = el.Engine()  # doctest: +SKIP
        >>> engine.stream("packets", spark.readStream.schema(s).parquet("in/"))  # doctest: +SKIP
        >>> query = engine.query("SELECT * FROM packets WHERE port = 80")  # doctest: +SKIP
        >>> run = query.start("parquet", path="out/", checkpoint="ckpt/")  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self.spark = session() if spark is None else spark
        self.streams: dict[str, DataFrame] = {}
        self.tables: dict[str, DataFrame] = {}
        self.times: dict[str, str] = {}
        """The event-time column of each stream that has one."""
        self.lateness: dict[str, str] = {}
        """How late rows of each stream may come, if they may."""
        self.functions: dict[str, FunctionPredicate] = {}
        self.queries: dict[str, Query | WindowJoin] = {}
        self.shared: list[SharedQueries] = []
        """Those that were started together."""
        self.runs: list[RunFace] = []
        """What ``start_all`` has started last."""

    def stream(
        self, name: str, df: DataFrame, *, time: str | None = None, lateness: str | None = None
    ) -> None:
        """Give a streaming DataFrame a name that queries can use.

        Args:
            name: the stream's name in SQL.
            df: a streaming DataFrame.
            time: its event-time column; used by windows, not by filters.
            lateness: how much earlier than the latest row before it a row may be ("1 minute");
                the watermark of queries that filter; a join counts late rows by itself.

        Raises:
            QueryError: the name is taken, the DataFrame is no stream, or has no such column.
        """
        self._check_new(name)
        if not df.isStreaming:
            msg = (
                f"stream {name!r} needs a streaming DataFrame (spark.readStream…), got a batch "
                f"one; join it as a table that does not change (engine.table), or filter it with "
                f"df.transform(el.all_of(…))"
            )
            raise QueryError(msg, name=name)
        if time is not None and time not in df.columns:
            msg = f"stream {name!r}: {unknown('time column', time, df.columns)}"
            raise QueryError(msg, name=name, time=time)
        if lateness is not None and time is None:
            msg = f"stream {name!r} has a lateness but no time column; add time='…'"
            raise OptionError(msg, name=name)
        if time is not None and lateness is not None:
            df.withWatermark(time, lateness)  # says what is wrong with it
            self.lateness[name] = lateness
        self.streams[name] = df
        if time is not None:
            self.times[name] = time

    def table(self, name: str, df: DataFrame) -> None:
        """Give a batch DataFrame a name that queries can join with streams.

        A join reads it once, when it starts for the first time: its rows were always there.

        Args:
            name: the table's name in SQL.
            df: a batch DataFrame.

        Raises:
            QueryError: the name is taken, or the DataFrame is a stream.
        """
        self._check_new(name)
        if df.isStreaming:
            msg = f"table {name!r} needs a batch DataFrame, got a stream; use engine.stream"
            raise QueryError(msg, name=name)
        self.tables[name] = df

    def _check_new(self, name: str) -> None:
        for known, kind in ((self.streams, "stream"), (self.tables, "table")):
            if name in known:
                msg = f"{kind} {name!r} exists already; choose another name"
                raise QueryError(msg, name=name)

    def function(
        self,
        name: str,
        fn: Callable[..., Any] | FunctionPredicate,
        *,
        reads: Sequence[str] | None = None,
        **options: Any,
    ) -> FunctionPredicate:
        """Give a Python predicate a name that queries can call.

        Args:
            name: the function's name in SQL.
            fn: a function over arrays, or a predicate made by ``el.predicate``.
            reads: the columns of its arguments where a query calls it without any.
            **options: as for ``el.predicate``: ``arrays``, ``deterministic``.

        Raises:
            QueryError: the name is taken, or the function cannot be a predicate.
        """
        if name.lower() in (known.lower() for known in self.functions):
            msg = f"function {name!r} exists already; choose another name"
            raise QueryError(msg, name=name)
        if isinstance(fn, FunctionPredicate) and reads is None and not options:
            made = fn
        else:
            made = predicate(fn, reads=argument_names(fn, reads), name=name, **options)
        self.functions[name] = made
        return made

    def query(self, text: str, *, name: str | None = None, **options: Any) -> Query | WindowJoin:
        """Read a continuous query.

        Args:
            text: ``SELECT … FROM stream [WHERE …]``, or a join over windows:
                ``SELECT … FROM s [RANGE 10 SECONDS], t [RANGE 1 MINUTE] WHERE s.k = t.k AND …``.
            name: the query's name; that of its streams and a number by default.
            **options: how its plan is learned, as for ``el.all_of`` or ``el.window_join``.

        Raises:
            QueryError: the text cannot be understood, or names what does not exist.
            NotSupportedError: valid SQL that eddyline does not run yet, with its position.
            OptionError: an unknown option, or a value out of range.
        """
        if is_join(text):
            return self._add(self._join(text, name, JoinOptions.of(**options)))
        select = read_select(text, functions=self.functions, streams=tuple(self.streams))
        chosen = name or f"{select.inputs[0].stream}_{len(self.queries) + 1}"
        self._check_free(chosen)
        made = Query(self, select, chosen, FilterOptions.of(**options))
        made.check()
        return self._add(made)

    def _join(self, text: str, name: str | None, options: JoinOptions) -> WindowJoin:
        """Read a join over windows."""
        frames = {**self.streams, **self.tables}
        times = {each: self.times.get(each) for each in frames}
        chosen = name or f"join_{len(self.queries) + 1}"
        self._check_free(chosen)
        made = WindowJoin(
            text,
            frames,
            times,
            self.lateness,
            chosen,
            options,
            functions=self.functions,
            rename=RENAME,
        )
        made.check()
        return made

    def _check_free(self, name: str) -> None:
        if name in self.queries:
            msg = f"query {name!r} exists already; choose another name"
            raise QueryError(msg, name=name)

    def _add(self, made: AnyQuery) -> AnyQuery:
        self.queries[made.name] = made
        return made

    def start_all(
        self,
        sink: str | BatchWriter = "memory",
        *,
        path: str | None = None,
        checkpoint: str | None = None,
        trigger: str | None = None,
        shared: bool = True,
    ) -> list[RunFace]:
        """Start every query; paths and checkpoints get a folder per query.

        Queries over one stream run together where each of them means the same as by itself: in one
        pass over the rows, tests that several of them use evaluated once (``docs/sharing.md``).

        Args:
            sink: as for ``Query.start``; each query gets its own.
            path: folder with one for each query.
            checkpoint: folder with one for each query, and one for those that run together.
            trigger: as for ``Query.start``.
            shared: False runs each query by itself.

        Returns:
            A run for each query, in the order in which they were made.

        Raises:
            StateError: the checkpoint is of queries that ran together, and one no longer can.
        """
        starts = [
            start_of(query, sink=sink, path=path and f"{path}/{name}", trigger=trigger)
            for name, query in self.queries.items()
        ]
        self.runs = start_together(starts, checkpoint=checkpoint, shared=shared)
        return self.runs

    def stop_all(self) -> None:
        """Stop what ``start_all`` has started, queries that run together at the same micro-batch.

        From its checkpoint each goes on where it was. A query that is stopped by itself while
        others go on misses rows, and cannot go on from a checkpoint that it has in common with
        them.
        """
        stop_all(self.runs)

    def check_not_running(self, name: str) -> None:
        """Raise QueryError if a query of that name is running."""
        active = [each.name for each in self.spark.streams.active]
        if name in active or any(each.is_running(name) for each in self.shared):
            raise already_running(name, RENAME)


class Query:
    """A continuous query that can be started; made by ``Engine.query``."""

    def __init__(
        self, engine: Engine, select: QueryValue, name: str, options: FilterOptions
    ) -> None:
        self.engine = engine
        self.select = select
        self.name = name
        self.options = options

    @property
    def text(self) -> str:
        """The query as it was written."""
        return self.select.text

    @property
    def stream(self) -> str:
        """The stream that the query reads, by name."""
        return self.select.inputs[0].stream

    @cached_property
    def source(self) -> DataFrame:
        """The stream that the query reads, with its watermark if it has one."""
        stream = self.stream
        df, lateness = self.engine.streams[stream], self.engine.lateness.get(stream)
        return df if lateness is None else df.withWatermark(self.engine.times[stream], lateness)

    def check(self) -> None:
        """Check the query against the stream's columns, without running anything.

        Raises:
            QueryError: a predicate or an output column that does not fit.
        """
        check_options(self.options)
        self.bound()
        self.project(self.source)

    def bound(self) -> BoundConjunction:
        """Return where each predicate of the query goes."""
        return bind_to(self.source, named(self.select.inputs[0].predicates), self.options)

    def project(self, df: DataFrame) -> DataFrame:
        """Return the output columns of the query."""
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        try:
            return df.selectExpr(*self.select.projections)
        except AnalysisException as error:
            msg = f"query {self.name!r}: {error.getMessage() or error}"
            raise QueryError(msg, query=self.name) from error

    def start(
        self,
        sink: str | BatchWriter = "memory",
        *,
        path: str | None = None,
        checkpoint: str | None = None,
        trigger: str | None = None,
    ) -> Run:
        """Start the query.

        Args:
            sink: ``parquet``, ``memory``, ``console``, or a function of (df, batch_id).
            path: where the sink writes, if it writes somewhere.
            checkpoint: folder from which a later start continues; a temporary one if omitted.
            trigger: ``available_now`` (what is there, then stop), ``once``, or an interval such
                as ``5 seconds``; as fast as possible if omitted.

        Returns:
            The run, which behaves like a StreamingQuery.

        Raises:
            OptionError: an unknown sink or trigger, or a path that is missing.
            SourceError: the sink's path cannot be written.
        """
        self.engine.check_not_running(self.name)
        outlet = SinkOutlet(sink_of(sink, path), self.project)
        return Run(self.job(), outlet, checkpoint=checkpoint, trigger=trigger)

    def job(self) -> Job:
        """Return what a run of the query alone runs."""
        return Job(
            name=self.name,
            text=self.text,
            identity=self.text,
            source=self.source,
            settings=settings_of(self.options),
            operators=lambda _: [FilterOperator(self.bound(), self.options, self.name)],
            rename=RENAME,
        )

"""The engine: named streams, named functions, and continuous queries over them.

Each name is there once, in any case. What runs keeps what it uses: a stream that is dropped or
replaced stays with the queries that were made over it (``drop``). ``query`` and ``rules`` make
queries, ``start_all`` starts all of them, those over one stream together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from eddyline.aggregates.functions import AGGREGATES, UserMonoid
from eddyline.errors import OptionError, QueryError, told_in_short
from eddyline.query.predicates import FunctionPredicate, of_function
from eddyline.query.steps import ReadStep, inlined
from eddyline.registry import checked_folder_name, checked_text, folder_name, hint, unknown
from eddyline.report.system import NAME as SYSTEM
from eddyline.runtime.checkpoint import checked_changed
from eddyline.sources.source import Source
from eddyline.spark.query import RENAME, Catalog, Query
from eddyline.spark.reading import read_steps, reads_tables_alone, timed
from eddyline.spark.relation import (
    Relation,
    check_key,
    check_time,
    checked_refresh,
    checked_relation,
)
from eddyline.spark.rules.rule_set import RuleSet
from eddyline.spark.run.live import runs_of
from eddyline.spark.run.run import already_running
from eddyline.spark.run.running_query import stop_runs
from eddyline.spark.session import check_is_classic, session
from eddyline.spark.shared.group import Start, start_together
from eddyline.spark.sinks.sinks import folder_of
from eddyline.spark.sources.reading import stream_of, table_of
from eddyline.spark.starting import Others, of_sink, trigger_text
from eddyline.spark.system import FROM_SYSTEM, SystemStreams, check_text, source_of
from eddyline.spark.system import LATENESS as SYSTEM_LATENESS
from eddyline.spark.system import TIME as SYSTEM_TIME
from eddyline.sql.parsing import on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.query.steps import Step
    from eddyline.runtime.checkpoint import Changed
    from eddyline.serve.server import How, Server
    from eddyline.spark.run.run import Run
    from eddyline.spark.run.running_query import RunFace
    from eddyline.spark.shared.group import Shared, SharedQueries
    from eddyline.spark.sinks.sinks import BatchWriter

_NAME = re.compile(r"[A-Za-z_]\w*")


class Engine(Catalog):
    """Runs continuous queries over streams, and keeps finding their cheapest plan.

    Args:
        spark: the session to run on; without one, the active session, or a local one that is set
            up for eddyline.

    Raises:
        OptionError: it is no session.

    Example:
        >>> engine = el.Engine()  # doctest: +SKIP
        >>> engine.stream("packets", spark.readStream.schema(s).parquet("in/"))  # doctest: +SKIP
        >>> query = engine.query("SELECT * FROM packets WHERE port = 80")  # doctest: +SKIP
        >>> run = query.start("parquet", path="out/", checkpoint="ckpt/")  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        if spark is not None and not hasattr(spark, "readStream"):
            msg = f"an engine runs on a SparkSession, got {spark!r:.60}; omit it for a local one"
            raise OptionError(msg, got=type(spark).__name__)
        self.spark = session() if spark is None else spark
        check_is_classic(self.spark, "an engine")
        super().__init__()
        self.groups: list[SharedQueries] = []
        """Queries that run together."""
        self.runs: list[RunFace] = []
        """The runs that ``start_all`` has started last."""
        self._system = SystemStreams()
        self._alone: weakref.WeakSet[Run] = weakref.WeakSet()
        """Runs of single queries; one that goes on is never forgotten."""

    def __repr__(self) -> str:
        """Say on one line what the engine knows."""
        by_kind = {
            "streams": [*self.streams, *self.results],
            "tables": self.tables,
            "functions": self.functions,
            "queries": self.queries,
        }
        named = (f"{kind} {', '.join(names)}" for kind, names in by_kind.items() if names)
        return f"<engine: {'; '.join(named) or 'nothing yet'}>"

    @told_in_short
    def stream(
        self,
        name: str,
        df: DataFrame | Query | Source,
        *,
        time: str | None = None,
        lateness: str | None = None,
        key: str | None = None,
        replace: bool = False,
    ) -> None:
        """Give a streaming DataFrame, or the results of a query, a name that queries can use.

        A query over the results of another one is run as one query: its steps are those of both,
        its options those of the one that is started.

        Args:
            name: the stream's name in SQL.
            df: a streaming DataFrame, a query of this engine, or a source such as ``el.kafka(…)``.
            time: its event-time column; used by windows, not by filters. Results of a query have
                that of the stream that it reads, whether they carry the column or not.
            lateness: how much earlier than the latest row before it a row may be ("1 minute");
                the watermark of queries that filter; others count late rows themselves. "learned"
                finds the smallest that holds 99.99 % of the rows, "learned 99 %" another share.
            key: a column of which no two rows have one value while they are in their window; a
                join by it is checked, and lets rows go that cannot find another partner.
            replace: whether a stream or table of that name is dropped; see ``drop``.

        Raises:
            QueryError: the name is taken, whatever its case; the DataFrame is no stream, or has no
                such column; or the results of a query have another event time, or a key.
        """
        self._check_new("stream", name, replace=replace)
        if isinstance(df, Source):
            df = stream_of(self.spark, df, name)
        if not getattr(df, "isStreaming", isinstance(df, Query)):
            got = f"{df!r:.60}"
            if hasattr(df, "isStreaming"):
                got = (
                    "a batch one; join it as a table that does not change (engine.table), or "
                    "filter it with df.transform(el.all_of(…))"
                )
            msg = (
                f"stream {name!r} needs a streaming DataFrame (spark.readStream…), a query of this "
                f"engine (engine.query(…)) or a source (el.kafka(…)), got {got}"
            )
            raise QueryError(msg, name=name)
        if isinstance(df, Query) and reads_tables_alone(df.text, self):
            msg = (
                f"stream {name!r}: query {df.name!r} reads only tables; name its results by "
                f"engine.table({name!r}, query.to_df())"
            )
            raise QueryError(msg, name=name)
        what = f"stream {name!r}"
        check_time(what, df.columns, time, lateness)
        check_key(what, df.columns, key, is_made=isinstance(df, Query))
        if isinstance(df, Query):
            query = df if time is None else timed(name, df, time, lateness)
            self._make_room(name, self.relations, self.results)
            self.results[name] = query
            return
        relation = checked_relation(what, df, time, lateness)
        self._make_room(name, self.relations, self.results)
        self.relations[name] = dataclasses.replace(relation, key=key, system=source_of(df))

    @property
    def system(self) -> DataFrame:
        """The stream about the system: what the runs of this process did and decided.

        Queries read it as ``FROM system``, with its event time ``at``. Its columns are ``at``,
        ``query``, ``batch``, ``component``, ``entity``, ``name`` and ``value``; see
        ``docs/metrics.md``. Queries that read it are left out of it. A query of this engine goes on
        from its checkpoint without a row lost or twice; as a DataFrame elsewhere, the stream begins
        anew with each process.
        """
        return self._system.stream(self.spark, ())

    def system_of(self, *checkpoints: str | Path) -> DataFrame:
        """Return the stream about the runs of other processes, by their checkpoints.

        ``engine.stream("theirs", engine.system_of("ckpt/"), time="at", lateness="10 seconds")``
        names it. The checkpoints are only read, also while their queries run.

        Args:
            *checkpoints: folders that queries were started with, or folders above them; queries
                that start there later are told, too.

        Raises:
            StateError: a folder has no checkpoint.
            OptionError: no folder is given.
        """
        if not checkpoints:
            msg = (
                "system_of needs the checkpoints of runs, got none; engine.system has the runs of "
                "this process"
            )
            raise OptionError(msg)
        folders = tuple(folder_of("checkpoint", checkpoint).resolve() for checkpoint in checkpoints)
        return self._system.stream(self.spark, folders)

    def _know_system(self, name: str) -> None:
        """Let queries read the stream about the system by its name, unless that is another's."""
        taken = (taken_name.lower() for taken_name in (*self.relations, *self.results))
        if str(name).lower() == SYSTEM and SYSTEM not in taken:
            df = self._system.stream(self.spark, (), is_read=False)
            self.stream(SYSTEM, df, time=SYSTEM_TIME, lateness=SYSTEM_LATENESS)

    @told_in_short
    def table(
        self,
        name: str,
        df: DataFrame | Source,
        *,
        refresh: str | None = None,
        replace: bool = False,
    ) -> None:
        """Give a batch DataFrame a name that queries can join with streams.

        A join reads it once, when it starts for the first time: its rows were always there. With
        ``refresh`` joins look for a newer version before their batches, and a batch sees one
        version, also when it runs again; see ``docs/lakehouse.md``.
        ``query.to_df()`` answers a query over tables alone. Spark itself answers such a query if it
        is more than a filter.

        Args:
            name: the table's name in SQL.
            df: a batch DataFrame, or a source that is a table, such as ``el.delta(…)``.
            refresh: the least time between two looks at the version of a source, such as
                ``10 minutes``; None: the table does not change.
            replace: whether a stream or table of that name is dropped; see ``drop``.

        Raises:
            QueryError: the name is taken, the DataFrame is a stream, or it is to be refreshed and
                is no source with versions.
            OptionError: ``refresh`` is no interval.
        """
        self._check_new("table", name, replace=replace)
        again = None if refresh is None else checked_refresh(name, df, refresh)
        if isinstance(df, Source):
            df = table_of(self.spark, df)
        if getattr(df, "isStreaming", True):
            got = "a stream; use engine.stream" if hasattr(df, "isStreaming") else f"{df!r:.60}"
            msg = f"table {name!r} needs a batch DataFrame, got {got}"
            raise QueryError(msg, name=name)
        self._make_room(name, self.relations, self.results)
        self.relations[name] = Relation(df, refresh=again)

    def drop(self, name: str) -> None:
        """Forget a stream, table, function or query, so that its name is free.

        Queries that were made before keep what they read. Where a stream and a query have the same
        name, both go.

        Args:
            name: of what goes; of streams, tables and functions in any case.

        Raises:
            QueryError: there is no such name, or a query that runs uses it.
        """
        kinds = {
            "stream": [*self.streams, *self.results],
            "table": [*self.tables],
            "function": [*self.functions],
            "aggregate": [*self.aggregates],
        }
        objects = [
            (kind, full_name)
            for kind, names in kinds.items()
            for full_name in names
            if full_name.lower() == checked_text("name", name).lower()
        ]
        objects += [("query", name)] if name in self.queries else []
        if not objects:
            all_names = [
                full_name for names in (*kinds.values(), self.queries) for full_name in names
            ]
            raise QueryError(unknown("name", name, all_names), name=name)
        for kind, full_name in objects:
            self._check_unused(kind, full_name)
        self._make_room(name, self.relations, self.results, self.functions, self.aggregates)
        self.queries.pop(name, None)

    def _check_new(self, kind: str, name: str, *, replace: bool) -> None:
        checked_folder_name(f"name of a {kind}", name)
        self._check_replaced("table", self.tables, name, replace=replace)
        self._check_replaced("stream", [*self.streams, *self.results], name, replace=replace)

    def _check_replaced(self, kind: str, names: Iterable[str], name: str, *, replace: bool) -> None:
        """Raise QueryError if a name is among others in any case, and may not be replaced."""
        for other in names:
            if other.lower() == name.lower():
                if not replace:
                    msg = (
                        f"{kind} {other!r} exists already; choose another name than {name!r}, or "
                        f"replace it: replace=True"
                    )
                    raise QueryError(msg, name=name)
                self._check_unused(kind, other)

    def _check_unused(self, kind: str, name: str) -> None:
        """Raise QueryError if a query that runs uses what has the name."""
        for query in self.queries.values():
            is_it = kind == "query" and query.name == name
            uses = is_it or (kind != "query" and self._uses(query, name))
            if uses and self._is_running(query.name):
                used = "runs" if is_it else f"is used by query {query.name!r}, which runs"
                msg = f"{kind} {name!r} {used}; stop that run first"
                raise QueryError(msg, name=name, query=query.name)

    def _uses(self, query: Query, name: str) -> bool:
        """Return whether a query says a name, or reads the results of one that does."""
        words = {word.lower() for word in (*_NAME.findall(query.text), *query.relations)}
        inner = (result for stream, result in self.results.items() if stream.lower() in words)
        return name.lower() in words or any(self._uses(result, name) for result in inner)

    def _is_running(self, name: str) -> bool:
        active = [query.name for query in self.spark.streams.active]
        return name in active or any(group.is_running(name) for group in self.groups)

    @staticmethod
    def _make_room(name: str, *places: dict[str, Any]) -> None:
        """Remove what has the name, in any case."""
        for place in places:
            for old_name in [other for other in place if other.lower() == name.lower()]:
                del place[old_name]

    def _check_free(self, name: str, *, replace: bool) -> None:
        if checked_folder_name("name of a query", name) in self.queries:
            self._check_replaced("query", [name], name, replace=replace)

    def __enter__(self) -> Self:
        """Return the engine, whose queries are stopped when the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the queries of the engine that run; the session goes on."""
        self._stop(why="the block of their engine has ended")

    @told_in_short
    def function(
        self,
        name: str,
        fn: Callable[..., Any] | FunctionPredicate,
        *,
        reads: Sequence[str] | None = None,
        replace: bool = False,
        **options: Any,
    ) -> FunctionPredicate:
        """Give a Python predicate a name that queries can call.

        Args:
            name: the function's name in SQL.
            fn: a function over arrays, or a predicate made by ``el.predicate``.
            reads: the columns of its arguments where a query calls it without any.
            replace: whether a function of that name is dropped; see ``drop``.
            **options: as for ``el.predicate``: ``arrays``, ``deterministic``.

        Raises:
            QueryError: the name is taken, or the function cannot be a predicate.
        """
        checked_text("name of a function", name)
        self._check_replaced("function", self.functions, name, replace=replace)
        if isinstance(fn, FunctionPredicate) and reads is None and not options:
            predicate = fn
        else:
            predicate = of_function(fn, reads, name, **options)
        self._make_room(name, self.functions)
        self.functions[name] = predicate
        return predicate

    def aggregate(self, name: str, made: Any, *, replace: bool = False) -> None:
        """Give an aggregate of the user a name that queries can call.

        Args:
            name: the aggregate's name in SQL.
            made: an object with the methods ``lift``, ``combine`` and perhaps ``lower`` and
                ``inverse`` over Arrow arrays, or its class; see ``el.Aggregate``.
            replace: whether an aggregate of that name is dropped; see ``drop``.

        Raises:
            QueryError: the name is taken.
            OptionError: it lacks a method.
        """
        checked_text("name of an aggregate", name)
        names = (*self.aggregates, *AGGREGATES)
        self._check_replaced("aggregate", names, name, replace=replace)
        user_aggregate = made() if isinstance(made, type) else made
        UserMonoid(user_aggregate)  # says what it lacks
        self._make_room(name, self.aggregates)
        self.aggregates[name.lower()] = user_aggregate

    @told_in_short
    def query(
        self, text: str, *, name: str | None = None, replace: bool = False, **options: Any
    ) -> Query:
        """Read a continuous query.

        Args:
            text: ``SELECT … FROM stream [WHERE …]``, or a join over windows:
                ``SELECT … FROM s [RANGE 10 SECONDS], t [RANGE 1 MINUTE] WHERE s.k = t.k AND …``;
                or over models of rows: ``SELECT … FROM s MODEL x WITHIN 0.5 BY ship WHERE …``.
                A stream may be the result of another query; see ``stream``.
            name: the query's name; by default that of its stream and a hash of its text, so that it
                keeps its checkpoint and output wherever it stands among others.
            replace: whether a query of that name is dropped; see ``drop``.
            **options: how its plan is learned, as for ``el.all_of`` and, where rows are joined,
                ``el.window_join``.

        Raises:
            QueryError: the text cannot be understood, or names what does not exist.
            NotSupportedError: valid SQL that eddyline does not run yet, with its position.
            OptionError: an unknown option, or a value out of range.
        """
        checked_text("text of a query", text)
        if FROM_SYSTEM.search(text):
            self._know_system(SYSTEM)
        stem, read, relations = read_steps(text, self, options)
        chosen = name or self._name_of(stem, text, is_numbered=not replace)
        self._check_free(chosen, replace=replace)
        if any(relation.system == () for relation in relations.values()):
            check_text(text, chosen)
        try:
            query = Query(
                chosen,
                text,
                read,
                relations,
                options,
                check_not_running=self.check_not_running,
                started=self._alone.add,
            )
        except QueryError as error:
            if (unknown_function := error.facts.get("unknown_function")) is None:
                raise
            close = hint(unknown_function, [(function, function) for function in self.functions])
            if not close and "; did you mean" not in error.message:
                close = f"; make one of yours known: engine.function({unknown_function!r}, …)"
            raise QueryError(error.message + close, **error.facts) from error
        self.queries[chosen] = query
        return query

    @told_in_short
    def rules(
        self,
        name: str,
        rules: RuleSet,
        *,
        stream: str,
        column: str = "matches",
        keep_unmatched: bool = False,
        as_struct: bool = False,
        replace: bool = False,
    ) -> Query:
        """Make a query of rules: the names of those that are true for each row of a stream.

        Where the stream has an event time, correlations of the set give alerts beside them; see
        ``RuleSet.start``.

        Args:
            name: the query's name.
            rules: an ``el.RuleSet``, such as from ``el.sigma.load``; each micro-batch has the rules
                of the moment it starts.
            stream: the name of a stream, which may be the result of another query.
            column: the new column, an ``array<string>`` in the order of the set.
            keep_unmatched: whether rows for which no rule is true are kept, with an empty array.
            as_struct: as for ``RuleSet.matches``.
            replace: whether a query of that name is dropped; see ``drop``.

        Raises:
            QueryError: the name is taken, there is no such stream, a rule does not fit it, or it
                has a column of that name.
        """
        self._check_free(name, replace=replace)
        if not isinstance(rules, RuleSet):
            msg = f"query {name!r} needs an el.RuleSet, got {rules!r:.60}; write el.RuleSet(…)"
            raise QueryError(msg, name=name)
        self._know_system(stream)
        source: list[Step] = [ReadStep(stream, stream)]
        relations: Mapping[str, Relation] = self.relations
        if (read := self.results.get(stream)) is not None:
            source, relations = inlined(read.steps, stream), read.relations
            df, time = read.shape, read.time
        elif stream in self.streams:
            df, time = self.relations[stream].df, self.relations[stream].time
        else:
            streams = [*self.streams, *self.results]
            raise QueryError(unknown("stream", stream, streams), name=name, stream=stream)
        shape = {"column": column, "keep_unmatched": keep_unmatched, "as_struct": as_struct}
        query = Query(
            name,
            "",
            (*source, *rules.steps(source[-1].output, df, time, **shape)),
            relations,
            {"adaptive": rules.options.adaptive, "seed": rules.options.seed},
            rename="engine.rules('…', …)",
            check_not_running=self.check_not_running,
            started=self._alone.add,
        )
        self.queries[name] = query
        return query

    def _name_of(self, stem: str, text: str, *, is_numbered: bool) -> str:
        """Return a name for a query that has none; equal texts are numbered, or have one name."""
        plain = on_one_line(text).encode()
        name = f"{stem}_{hashlib.blake2b(plain, digest_size=3).hexdigest()}"
        n_same = sum(other.startswith(name) for other in self.queries)
        return f"{name}_{n_same + 1}" if n_same and is_numbered else name

    def start_all(
        self,
        sink: str | BatchWriter = "memory",
        *,
        path: str | Path | None = None,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        checkpoint: str | Path | None = None,
        trigger: str | None = None,
        shared: Shared = True,
        changed: Changed | None = None,
        **others: Unpack[Others],
    ) -> list[RunFace]:
        """Start every query; paths and checkpoints get a folder per query.

        Queries over one stream run together where each of them means the same as by itself: in one
        pass over the rows, tests that several of them use evaluated once (``docs/sharing.md``).

        Args:
            sink: as for ``Query.start``; each query gets its own.
            path: folder with one for each query; ``table`` is a namespace with one for each.
            format: as for ``Query.start``.
            options: as for ``Query.start``.
            checkpoint: folder with one for each query, and one for those that run together.
            trigger: as for ``Query.start``.
            shared: False runs each query by itself; ``"all"`` lets queries share also where that
                was measured to take longer: joins with conditions on their results, or aggregates.
            changed: as for ``Query.start``, of each query that has changed.
            **others: as for ``Query.start``.

        Returns:
            A run for each query, in the order in which they were made.

        Raises:
            OptionError: ``shared`` is neither True, False nor ``"all"``.
            StateError: the checkpoint is of queries that ran together, and one no longer can.
        """
        if path is not None and not isinstance(path, Path):
            checked_text("path of the sinks", path)
        if checkpoint is not None:
            folder_of("checkpoint", checkpoint)
        trigger = trigger_text(trigger, others)
        starts = [
            Start(
                query,
                sink,
                path and f"{path}/{folder_name(name)}",
                format,
                options,
                trigger=trigger,
                changed=checked_changed(changed),
                others=_of_query(of_sink(others), name),
            )
            for name, query in self.queries.items()
        ]
        self.runs = start_together(starts, self.groups, checkpoint=checkpoint, shared=shared)
        return self.runs

    def stop_all(self) -> None:
        """Stop every run of the engine's queries, and wait until all have ended.

        These are the runs of ``start_all``, of ``Query.start`` and of rules that were started on a
        stream of the engine. Queries that run together stop at the same micro-batch. Each query can
        go on from its checkpoint. Runs that have failed, or that another thread stops, are no
        error. Only the session limits the wait (``spark.sql.streaming.stopTimeout``). Ctrl-C ends
        the wait, and the runs still stop.

        A query that is stopped by itself while others go on misses rows, and cannot go on from a
        checkpoint that it has in common with them.

        Raises:
            Exception: a run could not be stopped; the others have stopped.
        """
        self._stop()

    def _stop(self, why: str | None = None) -> None:
        together = (run for group in list(self.groups) for run in group.runs)
        stop_runs([*together, *self._alone], why=why)

    def serve(self, port: int = 0, **how: Unpack[How]) -> Server:
        """Serve a page of the queries of this process, to be looked at in a browser.

        It costs the queries next to nothing: what is shown is made when somebody looks.

        Args:
            port: to listen on; 0 takes a free one.
            **how: ``host`` (the loopback address if omitted), ``token`` (a new one at each start),
                ``values`` (whether values of rows are shown), ``controls`` (whether a person may
                pin plans, let them adapt, and stop queries).

        Returns:
            The server; its ``url`` leads to the page, ``stop()`` ends it.

        Raises:
            SourceError: the port is taken.
            PluginError: the extra ``serve`` is not installed.
        """
        from eddyline.serve.server import serve  # noqa: PLC0415 - Starlette is an extra

        return serve(runs_of(lambda: self.groups), port=port, **how)

    def check_not_running(self, name: str) -> None:
        """Raise QueryError if a query of that name is running."""
        if self._is_running(name):
            raise already_running(name, RENAME)


def _of_query(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Return arguments of a sink for one of several queries: each has a table of its own."""
    if "table" not in arguments:
        return arguments
    return {**arguments, "table": f"{arguments['table']}.{folder_name(name)}"}

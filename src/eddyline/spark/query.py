"""Continuous query on Spark: relations, steps, and a start.

``Catalog`` has what queries read by name: streams, tables, results, functions and aggregates.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from eddyline.errors import OptionError, QueryError
from eddyline.options import FOR_ALL, RunOptions, check_names
from eddyline.query.identity import as_before, identity_of, steps_differ
from eddyline.query.steps import ReadStep, carries, kind_of, maker, tree
from eddyline.registry import checked_folder_name
from eddyline.report.formatting import clipped, counted
from eddyline.report.html import fragment
from eddyline.report.sections import Node, Section, Text
from eddyline.runtime.checkpoint import checked_changed, stored_query
from eddyline.runtime.watch import watch_of
from eddyline.spark.analysis import check_outputs, column_types
from eddyline.spark.event_time import warn_of_unbounded_state
from eddyline.spark.operator import Stateful
from eddyline.spark.operators import laid_out
from eddyline.spark.run.job import Job, SinkOutlet, settings_of
from eddyline.spark.run.run import Run
from eddyline.spark.session import check_is_classic, is_on
from eddyline.spark.sinks.sinks import folder_of, sink_of
from eddyline.spark.starting import Others, of_sink, trigger_text
from eddyline.spark.system import check_not_own, own_feed
from eddyline.sql.parsing import on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from eddyline.query.identity import Identity
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.steps import Step
    from eddyline.runtime.checkpoint import Changed
    from eddyline.spark.operator import LaidOut, Operator
    from eddyline.spark.relation import Relation
    from eddyline.spark.sinks.sinks import BatchWriter
    from eddyline.spark.system import Feed

RENAME = "engine.query(…, name='…')"
"""Advice on giving a query another name."""


class Starting(Others, total=False):
    """Arguments of a start beside the sink; see ``Query.start``."""

    path: str | Path
    format: str
    options: Mapping[str, Any]
    checkpoint: str | Path
    trigger: str
    changed: Changed


class Query:
    """A continuous query that can be started; made by ``Engine.query``.

    Args:
        name: of the query.
        text: the query as it was written; empty where it changes, as that of rules does.
        steps: what it does, in the order of evaluation; see ``query.steps``.
        relations: the streams and tables that it reads, by name.
        options: how its plan is learned; each operator takes those that it knows.
        check_not_running: raises QueryError if a query of a name is running.
        started: called with each run of the query.
        rename: how the query gets another name, for errors.

    Raises:
        QueryError: a step that does not fit the columns before it.
        OptionError: an option that no operator knows, a value out of range, or a name that cannot
            be that of a folder.
    """

    def __init__(
        self,
        name: str,
        text: str,
        steps: Sequence[Step],
        relations: Mapping[str, Relation],
        options: Mapping[str, Any],
        *,
        check_not_running: Callable[[str], None] = lambda _name: None,
        started: Callable[[Run], None] = lambda _run: None,
        rename: str = RENAME,
    ) -> None:
        self.name = checked_folder_name("name of a query", name)
        self.text = text
        self.steps = tuple(steps)
        self.relations = {
            step.stream: relations[step.stream] for step in steps if isinstance(step, ReadStep)
        }
        for read in self.relations.values():
            check_is_classic(read.df.sparkSession, f"query {name!r}")
        self.options = options
        self._check_not_running = check_not_running
        self._started = started
        self._rename = rename
        laid = self._laid_out()
        self.source, self._made = laid.source, [*laid.make()]
        """The rows that the query reads; of a join, those of all its inputs."""
        self.result_time = laid.time
        """The column of its results that is their event time, of whatever kind; None: there is
        none."""
        self.is_time_exact = laid.clock is None or laid.clock.offset == 0
        """Whether that column has the event time itself; the end of a window is 1 µs later."""
        kinds = [operator.takes for operator in self._made if operator.takes is not None]
        names = [field.name for kind in dict.fromkeys(kinds) for field in fields(kind)]
        names += [field.name for field in fields(RunOptions)]
        check_names("option", options, [*dict.fromkeys([*names, *FOR_ALL])])
        if self.streams:
            warn_of_unbounded_state(name, self._made)
        self.run_options, _ = RunOptions.taken(options)
        self.watched = watch_of(self.run_options.watch)
        """The series of its runs that are watched, each with its detector."""
        of_runs = settings_of(self.run_options)
        if not self.watched:
            del of_runs["watch"]
        self.settings = _settings(self._made) | of_runs
        """Its options, as texts."""
        self.is_stateful = any(isinstance(operator, Stateful) for operator in self._made)
        """Whether it keeps durable state."""
        check_outputs(f"query {name!r}", laid.shape)
        self.shape = laid.shape
        """A DataFrame with its output columns, for analysis only."""
        self.columns = column_types(laid.shape)
        """Name and Spark type of each output column."""

    def with_steps(self, *steps: Step) -> Query:
        """Return the query with other steps over the same streams, such as with one more.

        Raises:
            QueryError: a step that does not fit the columns before it.
        """
        if not steps or not all(hasattr(step, "renamed") for step in steps):
            kinds = ", ".join(type(step).__name__ for step in steps) or "none"
            msg = f"with_steps takes steps one by one (with_steps(*query.steps, step)), got {kinds}"
            raise QueryError(msg, query=self.name)
        return self._over(steps, self.relations)

    def _over(self, steps: Sequence[Step], relations: Mapping[str, Relation]) -> Query:
        return Query(
            self.name,
            self.text,
            steps,
            relations,
            self.options,
            check_not_running=self._check_not_running,
            started=self._started,
            rename=self._rename,
        )

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the query reads, by name."""
        return tuple(name for name, relation in self.relations.items() if relation.df.isStreaming)

    @property
    def time(self) -> str | None:
        """The event time of its results, where that is the one of the one stream that it reads."""
        times = [relation.time for relation in self.relations.values() if relation.df.isStreaming]
        time = times[0] if len(times) == 1 else None
        return time if time is not None and carries(self.steps, time) else None

    @property
    def operators(self) -> Sequence[Operator]:
        """Operators that have learned nothing: those of the check, until they are started."""
        return self._made or self._laid_out().make()

    def _new_operators(self) -> Sequence[Operator]:
        operators, self._made = self.operators, []
        return operators

    def _laid_out(self) -> LaidOut:
        return laid_out(self.steps, self.relations, self.name, self.options)

    @cached_property
    def identity(self) -> Identity:
        """The identity of the query, which its checkpoint belongs to."""
        columns = {name: column_types(relation.df) for name, relation in self.relations.items()}
        facts = [
            [name, relation.time, sorted(columns[name].items())]
            for name, relation in sorted(self.relations.items())
        ]
        plain = json.dumps([facts, [f"{step} {step!r}" for step in self.steps]])
        text = on_one_line(self.text) or "; ".join(map(str, self.steps))
        return identity_of(
            self.text,
            self.steps,
            columns,
            {name: relation.time for name, relation in self.relations.items()},
            ignores_case=self._ignores_case,
            is_stateful=self.is_stateful,
            legacy=f"{text} #{hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()}",
        )

    @property
    def _ignores_case(self) -> bool:
        spark = next(iter(self.relations.values())).df.sparkSession
        return not is_on(spark, "spark.sql.caseSensitive")

    def as_before(self, before: Identity | None) -> Query:
        """Return the query with the names and orders in the files of a checkpoint.

        Args:
            before: the query that the checkpoint belongs to, or None.
        """
        if before is None:
            return self
        steps = as_before(self.steps, before, ignores_case=self._ignores_case)
        if steps_differ(steps, self.steps):
            with contextlib.suppress(QueryError):  # another query; the run refuses it
                return self.with_steps(*steps)
        return self

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The steps as a graph."""
        nodes = []
        for number, step in enumerate(self.steps):
            kind = kind_of(step)
            if isinstance(step, ReadStep):
                kind = "stream" if self.relations[step.stream].df.isStreaming else "table"
            called = [joined.name for joined in getattr(step, "joined", ())] or step.inputs
            inputs = [
                (str(maker(self.steps, number, input_name)), name)
                for input_name, name in zip(step.inputs, called, strict=True)
            ]
            name = step.stream if isinstance(step, ReadStep) else step.output
            nodes.append(Node(str(number), kind, name, str(step), tuple(inputs)))
        return tuple(nodes)

    def check_not_running(self) -> None:
        """Raise QueryError if a query of its name is running."""
        self._check_not_running(self.name)

    def __repr__(self) -> str:
        """Say on one line what the query is."""
        text = clipped(self.text) or f"{counted(len(self.steps), 'step')}"
        return f"<query {self.name!r}: {text}>"

    def _repr_html_(self) -> str:
        """Return the query for notebooks."""
        return fragment(self.name, [Section("", (Text(self.text),))], steps=tree(self.steps))

    # -- running --------------------------------------------------------------------------------

    def explain(self) -> str:
        """Return the steps of the query as a tree; of a query that runs, ask its run."""
        return "\n".join((f"{self.name}", *tree(self.steps))) + "\n"

    def start(
        self,
        sink: str | BatchWriter = "memory",
        *,
        path: str | Path | None = None,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        checkpoint: str | Path | None = None,
        trigger: str | None = None,
        state: str | None = None,
        changed: Changed | None = None,
        **others: Unpack[Others],
    ) -> Run:
        """Start the query.

        Args:
            sink: ``parquet``, ``orc``, ``json`` or ``csv`` files, ``memory``, ``console``,
                ``format`` (any data source of Spark's), or a function of (df, batch_id).
            path: where the sink writes, if it writes somewhere.
            format: the data source of the sink ``format``, such as ``delta`` or ``kafka``.
            options: of Spark's writer, for sinks that write by it.
            checkpoint: folder from which a later start continues; a temporary one if omitted.
            trigger: ``available_now`` (what is there, then stop), ``once``, or an interval such
                as ``5 seconds``; as fast as possible if omitted.
            state: folder of durable state, such as windows, or a URI that ``pyarrow.fs``
                understands; in the checkpoint if omitted. All workers must be able to read and
                write there.
            changed: how the query goes on if it is not the one that began the checkpoint.
                ``keep_state`` keeps the state, if it fits, and ``reset`` empties it. The query goes
                on after the last batch, and reads no row again. An unchanged query ignores it.
            **others: what only some sinks take; and the trigger as PySpark takes it:
                ``availableNow=True``, ``once=True`` or ``processingTime="5 seconds"``.

        Returns:
            The run, which behaves like a StreamingQuery.

        Raises:
            QueryError: a query of that name is running, or it reads no stream.
            OptionError: an unknown sink or trigger, a path that is missing, or ``state`` for a
                query that keeps none.
            StateError: the checkpoint is of another query, its state does not fit, or another
                process runs with it.
            SourceError: the sink's path cannot be written.
        """
        self.check_not_running()
        if not self.source.isStreaming:
            msg = (
                f"{self.name!r} reads batch DataFrames; get its results by .to_df(), such as "
                f"query.to_df().write.parquet(…)"
            )
            raise QueryError(msg, query=self.name)
        if state is not None and not self.is_stateful:
            msg = f"{self.name!r} keeps no state beside its checkpoint; leave out state={state!r}"
            raise OptionError(msg, query=self.name, state=state)
        trigger = trigger_text(trigger, others)
        changed = checked_changed(changed)
        taker = sink_of(sink, path, format, options, of_sink(others), self.name)
        outlet = SinkOutlet(taker, self.shape.schema)
        folder = None if checkpoint is None else folder_of("checkpoint", checkpoint)
        query = self.as_before(None if folder is None else stored_query(folder))
        query, feeds = query._fed(folder) if self.reads_system else (query, ())
        run = Run(query.job(state, feeds), outlet, checkpoint, trigger, changed)
        self._started(run)
        return run

    @property
    def reads_system(self) -> bool:
        """Whether it reads a stream about the system, as the engine gives it."""
        return any(relation.system is not None for relation in self.relations.values())

    def _fed(self, checkpoint: Path | None) -> tuple[Query, Sequence[Feed]]:
        """Return the query over rows about the system that are in its own checkpoint.

        Raises:
            QueryError: it would feed itself.
        """
        relations, feeds = dict(self.relations), []
        for name, relation in self.relations.items():
            if relation.system is not None:
                check_not_own(self.name, relation.system, checkpoint)
                df, feed = own_feed(relation.df.sparkSession, relation.system, checkpoint, name)
                relations[name] = replace(relation, df=df)
                feeds.append(feed)
        return self._over(self.steps, relations), feeds

    def to_df(self) -> DataFrame:
        """Return all results over batch DataFrames.

        A result of a join is one row when it comes to be (ISTREAM); as DSTREAM, one for each result
        that ends; as RSTREAM, one for each instant of a row of any stream at which it is there.
        After the last rows nothing is waited for.

        Raises:
            QueryError: an input is a stream.
        """
        if self.streams:
            msg = f"{self.name!r} reads streams, which never end; start it: .start('parquet', …)"
            raise QueryError(msg, query=self.name)
        df = self.source
        for operator in self._new_operators():
            df = operator.once(df)
        return df

    def job(self, state: str | None = None, feeds: Sequence[Feed] = ()) -> Job:
        """Return the job of a run of the query alone.

        Args:
            state: folder of durable state; in the checkpoint if omitted.
            feeds: of the streams about the system that it reads.
        """
        return Job(
            name=self.name,
            text=self.text,
            identity=self.identity,
            source=self.source,
            settings=self.settings,
            operators=lambda _: self._new_operators(),
            state=state,
            steps=tree(self.steps),
            nodes=self.nodes,
            columns=self.columns,
            rename=self._rename,
            recalls=self.run_options.recall,
            feeds=feeds,
            watched=self.watched,
        )


class Catalog:
    """Names that an engine knows, as queries read them; ``Engine`` keeps each name once."""

    def __init__(self) -> None:
        self.relations: dict[str, Relation] = {}
        """Streams and tables, by name."""
        self.results: dict[str, Query] = {}
        """The queries whose results are streams, by the name of the stream."""
        self.functions: dict[str, FunctionPredicate] = {}
        self.aggregates: dict[str, Any] = {}
        """Aggregates of the user, by name in lower case."""
        self.queries: dict[str, Query] = {}

    @property
    def streams(self) -> dict[str, DataFrame]:
        """The streams by name, but for those that are results of queries."""
        return {
            name: relation.df
            for name, relation in self.relations.items()
            if relation.df.isStreaming
        }

    @property
    def tables(self) -> dict[str, DataFrame]:
        """The tables by name."""
        return {
            name: relation.df
            for name, relation in self.relations.items()
            if not relation.df.isStreaming
        }

    @property
    def times(self) -> dict[str, str | None]:
        """The event times of the streams by name, those of results included; None: it has none."""
        times: dict[str, str | None] = {
            name: relation.time for name, relation in self.relations.items()
        }
        return times | {name: result.time for name, result in self.results.items()}


def _settings(operators: Sequence[Operator]) -> dict[str, str]:
    """Return the options of operators as texts; where they differ, they are said to be of one."""
    settings: dict[str, str] = {}
    for operator in operators:
        for name, value in (
            settings_of(operator.options).items() if operator.options is not None else ()
        ):
            if settings.setdefault(name, value) != value:
                settings[f"{name} of {operator.name}"] = value
    return settings

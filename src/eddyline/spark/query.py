"""A continuous query on Spark: named relations, steps over them, and a start."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eddyline.errors import QueryError
from eddyline.query.steps import FilterStep, ProjectStep, ReadStep, tree
from eddyline.spark.analysis import column_types
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.operators import laid_out
from eddyline.spark.projection import ProjectOperator
from eddyline.spark.run.run import Job, Run, SinkOutlet, settings_of
from eddyline.spark.sinks.sinks import sink_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.filters.binding import Pinned
    from eddyline.query.predicates import Predicate
    from eddyline.query.steps import Step
    from eddyline.spark.operator import Operator
    from eddyline.spark.relation import Relation
    from eddyline.spark.sinks.sinks import BatchWriter

RENAME = "engine.query(…, name='…')"
"""How a query gets another name."""


class Query:
    """A continuous query that can be started; made by ``Engine.query``.

    Args:
        name: of the query.
        text: the query as it was written.
        steps: what it does, in the order of evaluation; see ``query.steps``.
        relations: the streams and tables that it reads, by name.
        options: how its plan is learned.
        check_not_running: raises QueryError if a query of a name is running.
        rename: how the query gets another name, for errors.

    Raises:
        QueryError: a step that does not fit the columns before it.
    """

    def __init__(
        self,
        name: str,
        text: str,
        steps: Sequence[Step],
        relations: Mapping[str, Relation],
        options: Any,
        *,
        check_not_running: Callable[[str], None] = lambda _name: None,
        rename: str = RENAME,
    ) -> None:
        self.name = name
        self.text = text
        self.steps = tuple(steps)
        self.relations = {
            each.stream: relations[each.stream] for each in steps if isinstance(each, ReadStep)
        }
        self.options = options
        self._check_not_running = check_not_running
        self._rename = rename
        self.source, self._made = self._laid_out()
        """The rows that the query reads; of a join, those of all its inputs."""
        shape = self.source
        for each in self._made:
            shape = each.shape(shape)
        self.columns = column_types(shape)
        """Name and Spark type of each output column."""

    def with_steps(self, *steps: Step) -> Query:
        """Return the query with other steps over the same streams, such as with one more.

        Raises:
            QueryError: a step that does not fit the columns before it.
        """
        return Query(
            self.name,
            self.text,
            steps,
            self.relations,
            self.options,
            check_not_running=self._check_not_running,
            rename=self._rename,
        )

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the query reads, by name."""
        return tuple(name for name, each in self.relations.items() if each.df.isStreaming)

    def _new_operators(self) -> list[Operator]:
        """Return operators that have learned nothing: those of the check, when first asked."""
        made, self._made = self._made, []
        return made or self._laid_out()[1]

    def _laid_out(self) -> tuple[DataFrame, list[Operator]]:
        return laid_out(self.steps, self.relations, self.name, self.options)

    @property
    def identity(self) -> str:
        """What durable and learned state must be of, to go on from it."""
        facts = [
            [name, each.time, sorted(column_types(each.df).items())]
            for name, each in sorted(self.relations.items())
        ]
        plain = json.dumps([facts, [str(each) for each in self.steps]], default=str)
        return f"{self.text} #{hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()}"

    # -- a query that only filters, which may run together with others ----------------------------

    @property
    def is_filter(self) -> bool:
        """Whether the query reads one stream, filters it and projects, and does nothing else."""
        return tuple(map(type, self.steps)) == (ReadStep, FilterStep, ProjectStep)

    @property
    def stream(self) -> str:
        """The first stream that the query reads, by name."""
        return self.streams[0]

    @property
    def conjuncts(self) -> tuple[Predicate, ...]:
        """The predicates of a query that only filters."""
        return next(each.predicates for each in self.steps if isinstance(each, FilterStep))

    @property
    def projections(self) -> tuple[str, ...]:
        """The output columns, as SQL."""
        return next(each.projections for each in self.steps if isinstance(each, ProjectStep))

    @cached_property
    def pinned(self) -> tuple[Pinned, ...]:
        """The predicates of a query that only filters which keep their place."""
        made = self._made or self._laid_out()[1]
        return next(each.bound.pinned for each in made if isinstance(each, FilterOperator))

    def project(self, df: DataFrame) -> DataFrame:
        """Return the output columns over rows of the stream."""
        return ProjectOperator(self.name, "project", self.projections).shape(df)

    def check_not_running(self) -> None:
        """Raise QueryError if a query of its name is running."""
        self._check_not_running(self.name)

    # -- running --------------------------------------------------------------------------------

    def explain(self) -> str:
        """Return the steps of the query as a tree; of a query that runs, ask its run."""
        return "\n".join((f"{self.name}", *tree(self.steps))) + "\n"

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
            QueryError: a query of that name is running, or it reads no stream.
            OptionError: an unknown sink or trigger, or a path that is missing.
            SourceError: the sink's path cannot be written.
        """
        self.check_can_start()
        return Run(self.job(), SinkOutlet(sink_of(sink, path)), checkpoint, trigger)

    def check_can_start(self) -> None:
        """Raise QueryError if a query of its name is running, or if it reads no stream."""
        self.check_not_running()
        if not self.source.isStreaming:
            msg = f"{self.name!r} reads batch DataFrames; get its results by .to_df()"
            raise QueryError(msg, query=self.name)

    def job(self, state: str | None = None) -> Job:
        """Return what a run of the query alone runs.

        Args:
            state: folder of durable state; in the checkpoint if omitted.
        """
        return Job(
            name=self.name,
            text=self.text,
            identity=self.identity,
            source=self.source,
            settings=settings_of(self.options),
            operators=lambda _: self._new_operators(),
            state=state,
            steps=tree(self.steps),
            rename=self._rename,
        )

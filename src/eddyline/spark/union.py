"""UNION ALL of streams: one DataFrame with one clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.query.predicates import SqlPredicate
from eddyline.query.result_times import ResultTimes
from eddyline.query.select.statement import identifier
from eddyline.query.steps import FilterStep, ProjectStep, ReadStep, made_by
from eddyline.spark.analysis import check_outputs, refused, unlogged
from eddyline.spark.clock import StreamClock
from eddyline.spark.event_time import UnionClock
from eddyline.spark.operator import PREFIX, Laid, Operator
from eddyline.spark.parts import Part as MadePart
from eddyline.spark.parts import Trunk
from eddyline.spark.relation import LOCAL, check_one_type, lateness_rule, micros_of
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.steps import Step, UnionStep
    from eddyline.spark.operator import Batch, Clock, Site
    from eddyline.spark.relation import Relation

PART, MICROS, KEPT = OWN = tuple(f"{PREFIX}_{each}" for each in ("part", "micros", "kept"))
"""Temporary columns: which of the parts a row is of, its event time (µs), and whether its part
keeps it: those that it drops tell the time all the same."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of several inputs: a stream or table, filtered and projected by Spark."""

    stream: str
    relation: Relation
    steps: tuple[FilterStep | ProjectStep, ...]

    @property
    def time(self) -> int | None:
        """The place of the event-time column among the output columns; None if it is none."""
        columns = self.relation.df.columns
        found = columns.index(self.relation.time) if self.relation.time in columns else None
        for step in self.steps:
            if isinstance(step, ProjectStep) and "*" not in step.projections:
                kept = {self.relation.time, quoted(self.relation.time or "")}
                if step.time is not None and self.relation.time is not None:
                    kept = {f"{identifier(self.relation.time)} AS {identifier(step.time)}"}
                places = [at for at, each in enumerate(step.projections) if each in kept]
                found = next(iter(places), None)
        return found

    def rows(self, number: int) -> DataFrame:
        """Return its rows with its number and their event times."""
        df, time = self.relation.df, self.relation.time
        micros = F.lit(None).cast("bigint") if time is None else micros_of(df, time, self.stream)
        df = df.withColumns({PART: F.lit(number), MICROS: micros, KEPT: F.lit(True)})
        for step in self.steps:
            if isinstance(step, FilterStep):
                df = _marked(df, [each.text for each in step.predicates])
            else:
                df = df.selectExpr(*step.projections, *OWN)
        return df


class _Union(Operator):
    """Rows of several parts, however the parts are laid."""

    name = "union"
    source: DataFrame
    clock: Clock | None
    time: str | None

    def __init__(self, site: Site) -> None:
        self.query = site.query
        self.left: Mapping[str, Any] = site.options
        self.times: ResultTimes | None = None

    def then(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return the steps over its result."""
        return steps


class UnionOperator(_Union):
    """Runs a ``UnionStep``: Spark filters and projects the parts, in the order as written.

    Args:
        parts: of which nothing but that is asked.
        site: the place of the operator.
    """

    def __init__(self, parts: Sequence[Part], site: Site) -> None:
        super().__init__(site)
        frames = [each.rows(number) for number, each in enumerate(parts)]
        names = [each.stream for each in parts]
        self.source = _united(dict(enumerate(frames)), names, site.query, OWN)
        first = [each for each in frames[0].columns if each not in OWN]
        places = {each.time for each in parts}
        place = places.pop() if len(places) == 1 else None
        self.time = None if place is None else first[place]
        self._clock: StreamClock | None = None
        if self.time is not None:
            check_one_type(
                site.query, ((each.stream, each.relation.df, each.relation.time) for each in parts)
            )
            names = [f"{each.stream} ({number})" for number, each in enumerate(parts, 1)]
            own = lateness_rule(
                {name: each.relation for name, each in zip(names, parts, strict=True)},
                {name: each.stream for name, each in zip(names, parts, strict=True)},
            )
            without = {each.stream: None for each in parts if each.relation.lateness is None}
            self._clock = StreamClock(
                own,
                self.source,
                F.col(MICROS),
                F.col(PART),
                without_lateness=(*without,),
                passing=lambda rows: rows.where(KEPT),
                is_local=dict(self.source.dtypes)[self.time] == LOCAL,
            )
        self.clock = self._clock

    @classmethod
    def of(cls, step: UnionStep, site: Site) -> _Union:
        """Return the operator of a step.

        Raises:
            QueryError: parts that do not fit each other.
        """
        makers = [made_by(site.before, len(site.before), each) for each in step.inputs]
        parts = [part_of(each, site) for each in makers]
        plain = [each for each in parts if each is not None]
        return cls(plain, site) if len(plain) == len(parts) else MadeUnion(step, makers, site)

    @property
    def before(self) -> tuple[Operator, ...]:
        """The clock, if an operator asks it."""
        return (self._clock,) if self._clock is not None and self._clock.is_asked else ()

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - the same for every batch
        """Return the rows of all parts."""
        return Laid(self.shape(df.where(KEPT)))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result."""
        return df.drop(*OWN)


class MadeUnion(_Union):
    """Runs a ``UnionStep`` of which some parts call Python, aggregate or join.

    Args:
        step: the parts.
        makers: the steps that make each.
        site: the place of the operator.
    """

    def __init__(self, step: UnionStep, makers: Sequence[Sequence[Step]], site: Site) -> None:
        super().__init__(site)
        assert site.lay_out is not None
        named = zip(step.inputs, makers, strict=True)
        laid = {name: site.lay_out(own, name) for name, own in named}
        self.trunk = Trunk([each.source for each in laid.values()])
        self.source = self.trunk.source
        self.parts = [
            MadePart(self.trunk, number, name, each)
            for number, (name, each) in enumerate(laid.items())
        ]
        self._shape = self._all({each.number: each.of.shape for each in self.parts})
        clocks = [each.clock for each in laid.values() if each.clock is not None]
        places = {
            None if each.time is None else each.shape.columns.index(each.time)
            for each in laid.values()
        }
        place = places.pop() if len(places) == 1 else None
        # Ends of windows and instants of rows are no one event time.
        is_timed = place is not None and len({each.offset for each in clocks}) == 1
        self.time = self._shape.columns[place] if place is not None and is_timed else None
        if self.time is not None:
            check_one_type(
                site.query, ((name, each.shape, each.time) for name, each in laid.items())
            )
        self.clock = UnionClock(tuple(clocks)) if is_timed else None
        known = [
            (each.shape.columns, each.times or ResultTimes.of_stream(each.time))
            for each in laid.values()
            if each.time is not None
        ]
        self.times = ResultTimes.of_union(known) if is_timed else None
        # Parts that are unions are made before, and knew of their own parts alone.
        leaves = self.clock.leaves if self.clock is not None else ()
        for each in leaves:
            if isinstance(each, StreamClock):
                each.beside = tuple(other for other in leaves if other is not each)

    @property
    def before(self) -> tuple[Operator, ...]:
        """The operators that make the parts."""
        return (self.trunk, *(own for each in self.parts for own in each.operators()))

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - each has its own
        """Return the rows of all parts."""
        return Laid(self._all({each.number: each.results for each in self.parts}))

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002
        """Return a DataFrame with the columns of the result."""
        return self._shape

    def _all(self, frames: Mapping[int, DataFrame]) -> DataFrame:
        return _united(frames, [each.name for each in self.parts], self.query)


def _united(
    frames: Mapping[int, DataFrame], names: Sequence[str], query: str, own: Sequence[str] = ()
) -> DataFrame:
    """Return the rows of all parts, by position, under the names of the first.

    Args:
        frames: the rows of each, by its number.
        names: what the parts are called.
        query: the name of the query.
        own: temporary columns, which are the last of all parts.

    Raises:
        QueryError: parts that do not fit each other.
    """
    columns = frames[0].columns
    check_outputs(f"query {query!r}", frames[0])
    for number, each in frames.items():
        if len(each.columns) != len(columns):
            msg = (
                f"query {query!r}: the SELECTs of UNION ALL need equally many columns, and have "
                f"{len(columns) - len(own)} and {len(each.columns) - len(own)} "
                f"({names[number]!r})"
            )
            raise QueryError(msg, query=query)
    try:
        with unlogged():
            aligned = (each.toDF(*columns) for each in frames.values())
            return reduce(lambda one, other: one.unionByName(other), aligned)
    except AnalysisException as error:
        raise refused(f"query {query!r}", error, query=query) from error


def part_of(steps: Sequence[Step], site: Site) -> Part | None:
    """Return a part that Spark filters and projects; None if it takes more than that."""
    first, *own = steps
    assert isinstance(first, ReadStep)
    found: list[FilterStep | ProjectStep] = []
    for step in own:
        is_sql = isinstance(step, FilterStep) and all(
            isinstance(each, SqlPredicate) for each in step.predicates
        )
        if not is_sql and not (isinstance(step, ProjectStep) and not step.calls):
            return None
        assert isinstance(step, FilterStep | ProjectStep)
        found.append(step)
    return Part(first.stream, site.relations[first.stream], tuple(found))


def _marked(df: DataFrame, conditions: Sequence[str]) -> DataFrame:
    """Return the rows, of which those that are dropped have nothing but their time."""
    for each in conditions:
        passes = F.coalesce(F.expr(f"({each}\n)"), F.lit(False))
        marked = df.withColumn(KEPT, F.when(F.col(KEPT), passes).otherwise(F.lit(False)))
        values = [name for name in marked.columns if name not in OWN]
        hidden = {name: F.when(F.col(KEPT), F.col(quoted(name))) for name in values}
        df = marked.withColumns(hidden)
    return df

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

PART, MICROS, KEPT = OWN = tuple(f"{PREFIX}_{name}" for name in ("part", "micros", "kept"))
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
        place = columns.index(self.relation.time) if self.relation.time in columns else None
        for step in self.steps:
            if isinstance(step, ProjectStep) and "*" not in step.projections:
                kept = {self.relation.time, quoted(self.relation.time or "")}
                if step.time is not None and self.relation.time is not None:
                    kept = {f"{identifier(self.relation.time)} AS {identifier(step.time)}"}
                places = [
                    number
                    for number, projection in enumerate(step.projections)
                    if projection in kept
                ]
                place = next(iter(places), None)
        return place

    def rows(self, number: int) -> DataFrame:
        """Return its rows with its number and their event times."""
        df, time = self.relation.df, self.relation.time
        micros = F.lit(None).cast("bigint") if time is None else micros_of(df, time, self.stream)
        df = df.withColumns({PART: F.lit(number), MICROS: micros, KEPT: F.lit(True)})
        for step in self.steps:
            if isinstance(step, FilterStep):
                df = _marked(df, [predicate.text for predicate in step.predicates])
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
        self.other_options: Mapping[str, Any] = site.options
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
        frames = [part.rows(number) for number, part in enumerate(parts)]
        names = [part.stream for part in parts]
        self.source = _united(dict(enumerate(frames)), names, site.query, OWN)
        first = [part for part in frames[0].columns if part not in OWN]
        places = {part.time for part in parts}
        place = places.pop() if len(places) == 1 else None
        self.time = None if place is None else first[place]
        self._clock: StreamClock | None = None
        if self.time is not None:
            check_one_type(
                site.query, ((part.stream, part.relation.df, part.relation.time) for part in parts)
            )
            names = [f"{part.stream} ({number})" for number, part in enumerate(parts, 1)]
            lateness = lateness_rule(
                {name: part.relation for name, part in zip(names, parts, strict=True)},
                {name: part.stream for name, part in zip(names, parts, strict=True)},
            )
            without = {part.stream: None for part in parts if part.relation.lateness is None}
            self._clock = StreamClock(
                lateness,
                self.source,
                F.col(MICROS),
                F.col(PART),
                without_lateness=(*without,),
                passing=lambda rows: rows.where(KEPT),
                is_local=dict(self.source.dtypes)[self.time] == LOCAL,
            )
        self.clock = self._clock

    @classmethod
    def from_step(cls, step: UnionStep, site: Site) -> _Union:
        """Return the operator of a step.

        Raises:
            QueryError: parts that do not fit each other.
        """
        makers = [made_by(site.before, len(site.before), input_name) for input_name in step.inputs]
        parts = [part_of(maker, site) for maker in makers]
        plain = [part for part in parts if part is not None]
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
        laid = {name: site.lay_out(maker, name) for name, maker in named}
        self.trunk = Trunk([laid_out.source for laid_out in laid.values()])
        self.source = self.trunk.source
        self.parts = [
            MadePart(self.trunk, number, name, laid_out)
            for number, (name, laid_out) in enumerate(laid.items())
        ]
        self._shape = self._all({part.number: part.laid_out.shape for part in self.parts})
        clocks = [laid_out.clock for laid_out in laid.values() if laid_out.clock is not None]
        places = {
            None if laid_out.time is None else laid_out.shape.columns.index(laid_out.time)
            for laid_out in laid.values()
        }
        place = places.pop() if len(places) == 1 else None
        # Ends of windows and instants of rows are no one event time.
        is_timed = place is not None and len({clock.offset for clock in clocks}) == 1
        self.time = self._shape.columns[place] if place is not None and is_timed else None
        if self.time is not None:
            check_one_type(
                site.query,
                ((name, laid_out.shape, laid_out.time) for name, laid_out in laid.items()),
            )
        self.clock = UnionClock(tuple(clocks)) if is_timed else None
        timed = [
            (laid_out.shape.columns, laid_out.times or ResultTimes.of_stream(laid_out.time))
            for laid_out in laid.values()
            if laid_out.time is not None
        ]
        self.times = ResultTimes.of_union(timed) if is_timed else None
        # Parts that are unions are made before, and knew of their own parts alone.
        leaves = self.clock.leaves if self.clock is not None else ()
        for clock in leaves:
            if isinstance(clock, StreamClock):
                clock.beside = tuple(other for other in leaves if other is not clock)

    @property
    def before(self) -> tuple[Operator, ...]:
        """The operators that make the parts."""
        return (self.trunk, *(operator for part in self.parts for operator in part.operators()))

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - each has its own
        """Return the rows of all parts."""
        return Laid(self._all({part.number: part.results for part in self.parts}))

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002
        """Return a DataFrame with the columns of the result."""
        return self._shape

    def _all(self, frames: Mapping[int, DataFrame]) -> DataFrame:
        return _united(frames, [part.name for part in self.parts], self.query)


def _united(
    frames: Mapping[int, DataFrame],
    names: Sequence[str],
    query: str,
    own_columns: Sequence[str] = (),
) -> DataFrame:
    """Return the rows of all parts, by position, under the names of the first.

    Args:
        frames: the rows of each, by its number.
        names: what the parts are called.
        query: the name of the query.
        own_columns: temporary columns, which are the last of all parts.

    Raises:
        QueryError: parts that do not fit each other.
    """
    columns = frames[0].columns
    check_outputs(f"query {query!r}", frames[0])
    for number, frame in frames.items():
        if len(frame.columns) != len(columns):
            msg = (
                f"query {query!r}: the SELECTs of UNION ALL need equally many columns, and have "
                f"{len(columns) - len(own_columns)} and {len(frame.columns) - len(own_columns)} "
                f"({names[number]!r})"
            )
            raise QueryError(msg, query=query)
    try:
        with unlogged():
            aligned = (frame.toDF(*columns) for frame in frames.values())
            return reduce(lambda one, other: one.unionByName(other), aligned)
    except AnalysisException as error:
        raise refused(f"query {query!r}", error, query=query) from error


def part_of(steps: Sequence[Step], site: Site) -> Part | None:
    """Return a part that Spark filters and projects; None if it takes more than that."""
    first, *rest = steps
    assert isinstance(first, ReadStep)
    kept_steps: list[FilterStep | ProjectStep] = []
    for step in rest:
        is_sql = isinstance(step, FilterStep) and all(
            isinstance(predicate, SqlPredicate) for predicate in step.predicates
        )
        if not is_sql and not (isinstance(step, ProjectStep) and not step.calls):
            return None
        assert isinstance(step, FilterStep | ProjectStep)
        kept_steps.append(step)
    return Part(first.stream, site.relations[first.stream], tuple(kept_steps))


def _marked(df: DataFrame, conditions: Sequence[str]) -> DataFrame:
    """Return the rows, of which those that are dropped have nothing but their time."""
    for condition in conditions:
        passes = F.coalesce(F.expr(f"({condition}\n)"), F.lit(False))
        marked = df.withColumn(KEPT, F.when(F.col(KEPT), passes).otherwise(F.lit(False)))
        values = [name for name in marked.columns if name not in OWN]
        hidden = {name: F.when(F.col(KEPT), F.col(quoted(name))) for name in values}
        df = marked.withColumns(hidden)
    return df

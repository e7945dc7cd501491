"""UNION ALL of streams: the rows of all as one DataFrame, with one clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Self

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.predicates import SqlPredicate
from eddyline.query.steps import FilterStep, ProjectStep, ReadStep, maker
from eddyline.spark.analysis import refused
from eddyline.spark.clock import StreamClock
from eddyline.spark.event_time import micros_of
from eddyline.spark.operator import PREFIX, Laid, Operator
from eddyline.spark.relation import lateness_rule
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
    """One of the parts of a union: a stream, filtered and projected by Spark."""

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


class UnionOperator(Operator):
    """Runs a ``UnionStep``: Spark filters and projects the parts, in the order as written."""

    name = "union"

    def __init__(self, step: UnionStep, site: Site) -> None:
        parts = [_part(site, each) for each in step.inputs]
        frames = [each.rows(number) for number, each in enumerate(parts)]
        first = [each for each in frames[0].columns if each not in OWN]
        for part, frame in zip(parts, frames, strict=True):
            if len(frame.columns) != len(frames[0].columns):
                msg = (
                    f"query {site.query!r}: the parts of UNION ALL go by position, and have "
                    f"{len(first)} and {len(frame.columns) - len(OWN)} columns ({part.stream!r})"
                )
                raise QueryError(msg, query=site.query)
        aligned = [_renamed(each, first) for each in frames]
        try:
            self.source = reduce(lambda one, other: one.unionByName(other), aligned)
        except AnalysisException as error:
            raise refused(f"query {site.query!r}", error, query=site.query) from error
        self.left: Mapping[str, Any] = site.options
        self.times: Mapping[str, int] = {}
        places = {each.time for each in parts}
        place = places.pop() if len(places) == 1 else None
        self.time = None if place is None else first[place]
        self._clock: StreamClock | None = None
        if self.time is not None:
            names = [f"{each.stream} ({number})" for number, each in enumerate(parts, 1)]
            own = lateness_rule(
                {name: each.relation for name, each in zip(names, parts, strict=True)},
                {name: each.stream for name, each in zip(names, parts, strict=True)},
            )
            without = {each.stream: None for each in parts if each.relation.lateness is None}
            self._clock = StreamClock(
                own, self.source, F.col(MICROS), F.col(PART), without_lateness=(*without,)
            )
        self.clock: Clock | None = self._clock

    @classmethod
    def of(cls, step: UnionStep, site: Site) -> Self:
        """Return the operator of a step.

        Raises:
            QueryError: parts that do not fit each other.
            NotSupportedError: parts that are more than filters and output columns over a stream.
        """
        return cls(step, site)

    @property
    def before(self) -> tuple[Operator, ...]:
        """The clock, if an operator asks it."""
        return (self._clock,) if self._clock is not None and self._clock.is_asked else ()

    def then(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return the steps over its result."""
        return steps

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - the same for every batch
        """Return the rows of all parts."""
        return Laid(self.shape(df.where(KEPT)))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result."""
        return df.drop(*OWN)


def _part(site: Site, relation: str) -> Part:
    """Return the steps that make a part.

    Raises:
        NotSupportedError: one of them is no filter or projection in SQL.
    """
    found: list[FilterStep | ProjectStep] = []
    steps, position = site.before, len(site.before)
    while not isinstance(step := steps[position := maker(steps, position, relation)], ReadStep):
        is_sql = isinstance(step, FilterStep) and all(
            isinstance(each, SqlPredicate) for each in step.predicates
        )
        if not is_sql and not (isinstance(step, ProjectStep) and not step.calls):
            msg = (
                f"query {site.query!r}: {step} in a part of UNION ALL is not supported yet; parts "
                f"filter a stream in SQL and project it"
            )
            raise NotSupportedError(msg, query=site.query)
        assert isinstance(step, FilterStep | ProjectStep)
        found.insert(0, step)
        (relation,) = step.inputs
    return Part(step.stream, site.relations[step.stream], tuple(found))


def _marked(df: DataFrame, conditions: Sequence[str]) -> DataFrame:
    """Return the rows, of which those that are dropped have nothing but their time."""
    for each in conditions:
        passes = F.coalesce(F.expr(f"({each}\n)"), F.lit(False))
        marked = df.withColumn(KEPT, F.when(F.col(KEPT), passes).otherwise(F.lit(False)))
        values = [name for name in marked.columns if name not in OWN]
        hidden = {name: F.when(F.col(KEPT), F.col(quoted(name))) for name in values}
        df = marked.withColumns(hidden)
    return df


def _renamed(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return a DataFrame whose columns have the names of the first part, by position."""
    return df.toDF(*names, *OWN)

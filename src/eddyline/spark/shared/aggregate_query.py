"""Queries of aggregates over one stream that group alike: they may share their cells."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.aggregates.plan import PLACE
from eddyline.aggregates.slides import Slides
from eddyline.options import AggregateOptions
from eddyline.query.predicates import SqlPredicate
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    ReadStep,
    SharedAggregateStep,
)
from eddyline.query.windows import LONGEST, SlideWindow
from eddyline.spark.aggregates.shared import members_of
from eddyline.spark.operator import Laid, Operator
from eddyline.spark.operators import laid_out
from eddyline.spark.shared.evaluation import PLACES, Evaluation
from eddyline.sql.functions import NON_DETERMINISTIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.steps import Step
    from eddyline.spark.operator import Batch
    from eddyline.spark.query import Query

MOST_CELLS = 3_600
"""Most cells that the longest window of queries that share them may be cut into: where edges of
windows fall in other places, cells would be as small as their distance."""


def is_aggregate(query: Query) -> bool:
    """Return whether a query reads one stream, filters it and aggregates, and does nothing else."""
    return tuple(map(type, query.steps)) == (ReadStep, FilterStep, AggregateStep)


def parts_of(query: Query) -> tuple[FilterStep, AggregateStep]:
    """Return the steps of such a query."""
    filters, aggregates = query.steps[1:]
    assert isinstance(filters, FilterStep)
    assert isinstance(aggregates, AggregateStep)
    return filters, aggregates


def grouping_of(query: Query) -> str:
    """Return what queries must have in common to share cells: their groups, and their options."""
    _, step = parts_of(query)
    texts = [" ".join(text.split()).lower() for _, text in step.groups]
    plain = "\n".join([*texts, repr(AggregateOptions.taken(query.options)[0])])
    return hashlib.blake2b(plain.encode(), digest_size=4).hexdigest()


def why_not_shared(query: Query) -> str:
    """Return the reason why a query cannot share its cells; "" if it can."""
    filters, step = parts_of(query)
    if not isinstance(step.window, SlideWindow) or step.window.length == LONGEST:
        return f"[{step.window.text}] has no slices that others could share"
    if step.emits not in (None, "rstream"):
        return f"it gives changes alone ({str(step.emits).upper()})"
    for each in filters.predicates:
        if not isinstance(each, SqlPredicate):
            return f"its condition {each.text!r} calls a Python function"
        if drawn := [name for name in NON_DETERMINISTIC if f"{name}(" in each.text.lower()]:
            return f"its condition uses {drawn[0]}(), which is not deterministic"
    if any(call.own is not None for call in step.calls):
        return "it has an aggregate of the user"
    return ""


def fit_together(queries: Sequence[Query]) -> bool:
    """Return whether the windows of queries have edges that make cells of a useful size."""
    windows = [parts_of(each)[1].window for each in queries]
    slides = Slides.common([each for each in windows if isinstance(each, SlideWindow)])
    return slides.length // slides.slide <= MOST_CELLS


class AggregateEvaluation(Evaluation):
    """Queries of aggregates that share their cells."""

    words = "rows become cells once, and each has windows of its own over these"

    def __init__(self, queries: Sequence[Query]) -> None:
        first = queries[0]
        self._queries = {each.name: each for each in queries}
        members = []
        for query in queries:
            filters, step = parts_of(query)
            texts = [f"({each.text}\n)" for each in filters.predicates]
            members.append((step, " AND ".join(texts)))
        read = first.steps[0]
        self.steps: tuple[Step, ...] = (
            read,
            SharedAggregateStep(members[0][0].input, tuple(members)),
        )
        _, own = members_of(members)
        self._own = dict(zip(self._queries, own, strict=True))
        plain = "\n".join(f"{name} {query.identity}" for name, query in self._queries.items())
        digest = hashlib.blake2b(plain.encode(), digest_size=6).hexdigest()
        self.identity = f"aggregates over {first.streams[0]} #{digest}"
        self.names = tuple(self._queries)
        self.settings = first.settings
        self._first = first
        self.source, _ = self._laid_out()

    def projections(self, query: Query) -> tuple[str, ...]:
        """Return the output columns of a query, over the rows of all."""
        return self._own[query.name].projections

    def operators(self) -> list[Operator]:
        """Return the operators, with nothing learned yet."""
        return [*self._laid_out()[1], _Placed()]

    def _laid_out(self) -> tuple[DataFrame, list[Operator]]:
        first = self._first
        return laid_out(self.steps, first.relations, first.name, first.options)

    def shape(self) -> DataFrame:
        """Return a DataFrame with the columns of the rows of all, for analysis only."""
        df = self.source
        for each in self.operators():
            df = each.shape(df)
        return df

    def remove(self, *names: str) -> None:
        """Let queries go: their results are computed until the next start, and given to nobody."""


class _Placed(Operator):
    """Says of each row by ``PLACES`` which query it is of."""

    name = "places"

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the rows with their places."""
        return Laid(self.shape(df))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return the rows with their places."""
        return df.withColumn(PLACES, F.array(PLACE)).drop(PLACE)

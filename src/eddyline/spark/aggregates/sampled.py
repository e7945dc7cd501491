"""Marked results of a few groups on their way home: as texts that a job observes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from eddyline.aggregates.plan import COMPONENT, INSTANT, SHOWN
from eddyline.aggregates.samples import MOST_VALUES, Point
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column

    from eddyline.spark.aggregates.grouping import Groups
    from eddyline.spark.aggregates.lifting import LiftedCall
    from eddyline.spark.operator import Observed

METRIC = "shown"
"""The name under which they are observed."""

MOST_CHARACTERS = 40
"""Of the values of a group that are its name."""


def numbers_of(calls: Sequence[LiftedCall]) -> list[LiftedCall]:
    """Return the calls of which values are told: the first ones that are numbers."""
    return [each for each in calls if isinstance(each.kind, NumericType)][:MOST_VALUES]


def told(groups: Groups, calls: Sequence[LiftedCall]) -> Column:
    """Return the aggregate that collects the marked results, over what tasks return."""
    cut = f"AS STRING), 1, {MOST_CHARACTERS}), 'NULL')"
    parts = [F.expr(f"coalesce(substring(CAST({quoted(each)} {cut}") for each in groups.names]
    name = F.substring(F.concat_ws(", ", *parts), 1, MOST_CHARACTERS)
    values = [each.value().cast("double").alias(f"v{at}") for at, each in enumerate(calls)]
    shown = F.struct(F.col(SHOWN).alias("g"), F.col(INSTANT).alias("t"), name.alias("n"), *values)
    return F.collect_list(F.when(F.col(SHOWN).isNotNull(), F.to_json(shown))).alias(METRIC)


def marked_of(observed: Sequence[Observed], n: int) -> Iterator[tuple[int, str, Point]]:
    """Yield code, name and the values of ``n`` calls of the groups of marked results."""
    for each in observed:
        if each.name != COMPONENT:
            continue
        for text in each.metrics.get(METRIC) or ():
            found = json.loads(text)
            values = [found.get(f"v{at}") for at in range(n)]
            # Of numbers that are none, such as NaN, JSON has a text.
            numbers = tuple(value if isinstance(value, float) else None for value in values)
            yield found["g"], found["n"], Point(found["t"], numbers)

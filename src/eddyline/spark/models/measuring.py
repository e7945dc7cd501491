"""Between which values the rows of a DataFrame are, and how fast they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from eddyline.models.declared import Declared
from eddyline.models.ranges import Range
from eddyline.spark.event_time import micros_of
from eddyline.spark.models.laying import read_columns
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

    from eddyline.spark.models.laying import Source


def ranges_of(source: Source) -> dict[str, Range]:
    """Return the ranges of a batch source's values: reads its rows once.

    An attribute without a value is left out. Changes are those between rows of an entity
    that have a value and follow each other, whatever stands between them; they have the noise of
    rows in them.
    """
    maker = source.maker
    assert maker is not None
    rows = read_columns(source.df, maker)
    names = list(source.shape.attributes)
    is_declared = isinstance(maker, Declared)
    order = Window.partitionBy(*(F.col(quoted(each)) for each in maker.keys)).orderBy(
        F.col(quoted(maker.time))
    )
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    time = micros_of(rows, maker.time, source.name)
    before = rows.select(
        *(_finite(name, is_declared=is_declared).alias(f"v{at}") for at, name in enumerate(names)),
        *(
            F.last(_finite(name, is_declared=is_declared), ignorenulls=True)
            .over(earlier)
            .alias(f"b{at}")
            for at, name in enumerate(names)
        ),
        (time - F.lag(time).over(order)).alias("us"),
    )
    asked = [F.sum("us").alias("us")]
    for at in range(len(names)):
        asked += [
            F.min(f"v{at}").alias(f"low{at}"),
            F.max(f"v{at}").alias(f"high{at}"),
            F.sum(F.abs(F.col(f"v{at}") - F.col(f"b{at}"))).alias(f"moved{at}"),
        ]
    found = before.agg(*asked).first()
    assert found is not None
    seconds = (found["us"] or 0) / 1e6
    return {
        name: Range(
            found[f"low{at}"],
            found[f"high{at}"],
            (found[f"moved{at}"] or 0.0) / seconds if seconds else 0.0,
        )
        for at, name in enumerate(names)
        if found[f"low{at}"] is not None
    }


def _finite(name: str, *, is_declared: bool) -> Column:
    """Return a value, of a declared model that at its row; NULL if it is not finite."""
    column = F.col(quoted(name))
    column = column[0] if is_declared else column
    return F.when(F.abs(column) < F.lit(float("inf")), column)

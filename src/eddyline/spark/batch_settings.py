"""Settings of Spark for micro-batches, in the session that it gives each stream of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ADAPTIVE = "spark.sql.adaptive.enabled"
"""Whether each stage of a query is planned when the one before it has run. That takes a job for
each stage, some 0.15 s a batch, to choose a number of partitions, which here are buckets."""

MOST_BYTES, UNLIMITED = "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1)
"""How large an Arrow batch gets. To keep to it Spark sums the sizes of all columns for each row, a
third of what it takes to write one."""

FIXED_WIDTH = (BooleanType, DateType, NumericType, TimestampNTZType, TimestampType)
"""Types of which so many rows as Spark allows an Arrow batch are small, whatever they hold."""


def set_up(df: DataFrame) -> None:
    """Set Spark up for a micro-batch whose rows are shuffled once and handed to Python.

    Args:
        df: the micro-batch, as ``foreachBatch`` hands it over.
    """
    conf = df.sparkSession.conf
    conf.set(ADAPTIVE, "false")
    if all(isinstance(field.dataType, FIXED_WIDTH) for field in df.schema):
        conf.set(MOST_BYTES, UNLIMITED)

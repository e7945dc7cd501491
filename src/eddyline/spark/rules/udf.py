"""The rules of a set on Spark: one Arrow UDF gets the columns that the rules look at.

It returns, per row, the rules that are true; on the last row of a partition also what the task
observed, which ``observe`` collects. Where only counts are asked for, tasks return those, and no
row goes back.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined] # not in the stubs
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from eddyline.data.gc_pause import collector_paused
from eddyline.spark.analysis import operand
from eddyline.spark.arrow_tasks import quiet_when_cut_short
from eddyline.spark.rules.task import RuleTask

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from eddyline.rules.compile.program import Program

COUNTS = "rule string, count bigint, report binary"
"""Columns that counting tasks return: rules, and a row without one for the report."""

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``evaluate``.


def add_matches(
    df: "DataFrame", task: RuleTask, columns: tuple[str, ...], column: str, observation: Any
) -> "DataFrame":
    """Add a struct of the rules that are true for each row, and a report.

    Workers are handed columns, or SQL expressions. The struct has the fields ``matches`` and
    ``report``; the reports are also the metric ``rules`` of the observation.
    """

    def evaluate(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        quiet_when_cut_short()
        # Where there is one column, Spark hands over the array itself.
        return task.run(batch if isinstance(batch, tuple) else (batch,) for batch in batches)

    element = IntegerType() if task.as_places else StringType()
    matches = StructField("matches", ArrayType(element, containsNull=False))
    result = StructType([matches, StructField("report", BinaryType())])
    # Not deterministic, as the reports hold times; so Spark evaluates it once and where it stands.
    udf = arrow_udf(evaluate, result).asNondeterministic()
    return df.withColumn(column, udf(*_handed(df, columns))).observe(
        observation, F.collect_list(F.col(f"{column}.report")).alias("rules")
    )


def with_counts(
    df: "DataFrame", task: RuleTask, columns: tuple[str, ...], observation: Any
) -> "DataFrame":
    """Return ``rule`` and ``count``: for how many rows each is true; see ``add_matches``."""

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        quiet_when_cut_short()
        return task.count(tuple(batch.columns) for batch in batches)

    handed = [each.alias(f"c{at}") for at, each in enumerate(_handed(df, columns))]
    counts = df.select(*handed).mapInArrow(evaluate, COUNTS)
    counts = counts.observe(observation, F.collect_list("report").alias("rules"))
    counts = counts.where("rule IS NOT NULL")
    return counts.groupBy("rule").agg(F.sum("count").alias("count"))


def _handed(df: "DataFrame", columns: tuple[str, ...]) -> "list[Column]":
    # Rules that look at no column still want to know how many rows there are.
    return [operand(df, text) for text in columns] or [F.lit(True)]


def loader(spark: "SparkSession", program: "Program") -> Callable[[], "Program"]:
    """Return a loader of the compiled rules for workers: a broadcast, or the rules themselves."""
    with collector_paused():
        packed = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
    try:
        broadcast = spark.sparkContext.broadcast(packed)
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and says so in its own ways
        return lambda: _unpacked(packed)
    return lambda: _unpacked(broadcast.value)


@collector_paused()
def _unpacked(packed: bytes) -> "Program":
    program: Program = cloudpickle.loads(packed)
    return program

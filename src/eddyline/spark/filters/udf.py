"""Arrow block on Spark, as one Arrow UDF.

The UDF gets the columns that the Python predicates read. Spark evaluates every Python UDF of a
conjunction on every row. Here one UDF evaluates the whole conjunction with a selection vector
inside and returns, per row, whether to keep it; on the last row of a partition it also returns what
the task observed, which ``observe`` collects.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined] # not in the stubs
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructField, StructType

from eddyline.spark.analysis import operand
from eddyline.spark.arrow_tasks import begin_task
from eddyline.spark.filters.guard import EVERY_ROW, Guard
from eddyline.spark.filters.task import ERROR, FileFilter, FilterTask
from eddyline.spark.lane import KeptOfFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddyline.spark.lane import ListedScan

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``evaluate``.


def apply_arrow_block(
    df: "DataFrame",
    task: FilterTask,
    texts: tuple[str, ...],
    column: str,
    observation: Any,
    guard: Guard = EVERY_ROW,
) -> "DataFrame":
    """Filter by the Python predicates.

    Workers are handed columns, or SQL expressions, and then the attributes of the task. If errors
    are carried the temporary column stays, for the caller to check its field ``error`` and to drop
    it. The tasks' reports are the metric ``arrow`` of the observation.
    """

    def evaluate(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        begin_task()
        # Where there is one column, Spark hands over the array itself.
        return task.run(batch if isinstance(batch, tuple) else (batch,) for batch in batches)

    fields = [StructField("keep", BooleanType()), StructField("report", BinaryType())]
    if task.carries_errors:
        fields.append(StructField("error", StringType()))
    # Not deterministic, as the reports hold times; so Spark evaluates it once and where it stands.
    udf = arrow_udf(evaluate, StructType(fields)).asNondeterministic()
    attributes = [F.expr(attribute.sql) for attribute in task.attributes]
    guarded = [F.expr(guard.condition)] if task.is_guarded else []
    seen = df.withColumn(column, udf(*guarded, *(operand(df, text) for text in texts), *attributes))
    if not guard.marks:
        # Spark copies the rows that it observes: those that are dropped need not be among them.
        seen = guard.where(seen, f"{column}.keep OR {column}.report IS NOT NULL")
    seen = seen.observe(observation, F.collect_list(F.col(f"{column}.report")).alias("arrow"))
    # The task lets rows pass that it has nothing to say of, so they need no condition here.
    kept = guard.survivors.where(seen, f"{column}.keep")
    return kept if task.carries_errors else kept.drop(column)


def kept_of_files(
    scan: "ListedScan", task: FilterTask, handed: tuple[str, ...], observation: Any
) -> KeptOfFiles:
    """Return the rows of files on which Python predicates are true; tasks read the files."""
    errors = [ERROR] if task.carries_errors else []
    work = FileFilter(
        **scan.reading(handed),
        added=tuple(pa.field(name, pa.string()) for name in errors),
        filter=task,
    )
    added = [StructField(name, StringType()) for name in errors]
    return KeptOfFiles(scan, work, added, "arrow", observation)


def rows_of_files(kept: KeptOfFiles, task: FilterTask, column: str) -> "DataFrame":
    """Return these rows as Spark's.

    If errors are carried, a temporary column has the field ``error``, as in ``apply_arrow_block``.
    """
    if not task.carries_errors:
        return kept.as_dataframe()
    return kept.as_dataframe().withColumn(column, F.struct(F.col(ERROR).alias("error"))).drop(ERROR)

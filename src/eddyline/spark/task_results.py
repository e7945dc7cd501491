"""Results that tasks write themselves, without rows of Spark.

The tasks of an operator produce Arrow batches. If Spark takes them, it converts each result to a
row of the JVM, and its writer, or ``toArrow``, converts the rows to columns again. ``TaskResults``
runs the same tasks with a ``ResultWriter`` of the sink in each of them (``lane/results.py``). A
task returns its report and receipts: file names or blobs with their numbers of rows.

Operators after the tasks must be ``ArrowStep`` s, which only pick columns. Spark keeps the receipts
of successful attempts only, so the sink ignores a file without a receipt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from eddyline.lane.results import N_ROWS, RECEIPT, WrittenByTasks
from eddyline.spark.arrow_tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Observation

    from eddyline.lane.results import Receipt, ResultWriter


@dataclass(frozen=True)
class ArrowStep:
    """The work of an operator over Arrow tables, without Spark."""

    empty_result: DataFrame
    """A DataFrame with the columns of the result, for analysis only."""
    result: Callable[[pa.Table], pa.Table]
    """Returns the result of a table of rows. Tasks get a copy, so it holds no DataFrame."""


@dataclass(frozen=True)
class TaskResults:
    """The results of the tasks of a job, and where the reports of the tasks are observed."""

    tasks: Tasks
    report_columns: tuple[str, ...]
    """The columns that are not results. The first has the report, in a row of its own."""
    observation: Observation
    metrics: Callable[[Column], tuple[Column, ...]]
    """Returns what is observed, given the column of the number of results."""
    steps: tuple[Callable[[pa.Table], pa.Table], ...] = ()
    """What each task does with its results, in this order."""

    def then(self, step: ArrowStep) -> TaskResults:
        """Return the results after one more step."""
        return replace(self, steps=(*self.steps, step.result))

    def write(self, make_writer: Callable[[], ResultWriter], schema: pa.Schema) -> list[Receipt]:
        """Run the tasks; returns the receipts of all results.

        Args:
            make_writer: makes the writer of each task.
            schema: of the results after all steps.
        """
        report = self.report_columns[0]
        fields = StructField(report, BinaryType()), StructField(RECEIPT, BinaryType())
        returned = StructType([*fields, StructField(N_ROWS, LongType())])
        work = WrittenByTasks(self.tasks.work, self.report_columns, self.steps, schema, make_writer)
        done = Tasks(self.tasks.rows, work).returned(returned)
        seen = done.observe(self.observation, *self.metrics(F.coalesce(F.sum(N_ROWS), F.lit(0))))
        # Not by Arrow: the JVM would put all blobs of a task into one Arrow batch.
        rows = seen.where(f"{RECEIPT} IS NOT NULL").select(RECEIPT, N_ROWS).collect()
        return [(bytes(row[RECEIPT]), row[N_ROWS]) for row in rows]

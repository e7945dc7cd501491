"""Operators whose work is cut into buckets, a partition each: results and reports on their way.

The last row of a partition brings home what its bucket did, and is no result.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from eddyline.errors import StateError
from eddyline.runtime.journal import TaskReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column

    from eddyline.spark.operator import Observed

REPORT = "__report"
"""The column of what a bucket did: set in the last row of its partition, which is no result."""

FOUND = "found"
"""The metric of how many rows tasks have returned, reports left out."""

ADAPTIVE = "spark.sql.adaptive.enabled"
"""Spark's setting to plan each stage when the one before has run: a job for each of them, and
partitions put together, which here are buckets."""


class BucketReport(Protocol):
    """What a bucket did."""

    @property
    def bucket(self) -> int:
        """Its number."""


ReportT = TypeVar("ReportT")


class BucketReports(Generic[ReportT]):
    """The reports of the buckets of a batch; those of a job are unpacked once."""

    def __init__(self) -> None:
        self._observed: Sequence[Observed] | None = None
        self._found: dict[int, ReportT] = {}

    def of(self, observed: Sequence[Observed]) -> dict[int, ReportT]:
        """Return the reports of the buckets that have done their work, by bucket."""
        if observed is not self._observed:
            reports = [report for each in observed for report in each.reports("reports")]
            self._found = {report.partition: report.profile for report in reports}
            self._observed = observed
        return self._found


def what_is_found() -> tuple[Column, ...]:
    """Return what is observed of what tasks return: their reports, and how many rows are none."""
    n_found = F.count(F.when(F.col(REPORT).isNull(), 1))
    return F.collect_list(REPORT).alias("reports"), n_found.alias(FOUND)


def as_sent(found: pa.Table, outputs: pa.Schema) -> pa.Table:
    """Return results as Spark takes them: of its types, NULL in columns that they have not."""
    known = set(found.column_names)
    columns = [
        as_type(found[field.name], field.type)
        if field.name in known
        else pa.nulls(found.num_rows, field.type)
        for field in outputs
    ]
    return pa.Table.from_arrays(columns, schema=outputs)


def report_row(component: str, report: BucketReport, outputs: pa.Schema) -> pa.RecordBatch:
    """Return the row that brings a report home.

    Args:
        component: what reports, as in the journal.
        report: what its bucket did.
        outputs: the columns of results, of which the last is ``REPORT``.
    """
    nothing = [pa.nulls(1, field.type) for field in outputs if field.name != REPORT]
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    sent = TaskReport(component, report.bucket, attempt, report).to_bytes()
    return pa.RecordBatch.from_arrays([*nothing, pa.array([sent], pa.binary())], schema=outputs)


def as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type; the same one if it is of that type."""
    return column if column.type == kind else column.cast(kind)


@contextmanager
def state_of(bucket: int, what: str, folder: str) -> Iterator[None]:
    """Say of an error of the file system what it means for the state of a bucket.

    Raises:
        StateError: there was one.
    """
    try:
        yield
    except OSError as error:
        msg = (
            f"bucket {bucket} cannot read or write its {what} in {folder}: {error}; see that the "
            f"files are there and that the disk has room, then start the query again: nothing is "
            f"lost"
        )
        raise StateError(msg, bucket=bucket, folder=folder) from error

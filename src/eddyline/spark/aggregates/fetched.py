"""Cells that the driver fetches, to answer a batch that has few of them by itself.

Starting tasks for the buckets, and a shuffle to them, takes a tenth of a second or more, however
little they have to do. The work is the same, done by the same code, bucket by bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.plan import COMPONENT
from eddyline.runtime.reports import TaskReport
from eddyline.spark.arrow_tasks import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from eddyline.aggregates.plan import BucketReport
    from eddyline.spark.aggregates.task import AggregateWorker

MOST = 1_000_000
"""Cells, and results, that the driver ever holds: a batch with more of them is left to tasks."""

_AT = "__at"
"""The place of a cell in its partition."""


@dataclass(frozen=True)
class Answered:
    """A batch that the driver has answered."""

    results: pa.Table
    reports: tuple[BucketReport, ...]

    def get(self, timeout_s: float) -> dict[str, Any]:  # noqa: ARG002 - nothing is awaited
        """Return the reports as the metrics of a job would have them."""
        reports = (TaskReport(COMPONENT, each.bucket, 0, each) for each in self.reports)
        return {"reports": [each.to_bytes() for each in reports]}


def fetched(made: DataFrame) -> list[pa.RecordBatch] | None:
    """Return the cells of a batch, with their buckets; None if they are too many.

    Of each partition no more come than its share of what the driver holds, and one.
    """
    partitions = made.sparkSession.conf.get("spark.sql.shuffle.partitions")
    most = MOST // int(partitions or 1)
    # Its lower 33 bits count the rows of a partition.
    at = f"monotonically_increasing_id() & {(1 << 33) - 1}L AS {_AT}"
    found = made.selectExpr("*", at).where(f"{_AT} <= {most}L").toArrow()
    if pc.any(pc.equal(found[_AT], most)).as_py():
        return None
    cells: list[pa.RecordBatch] = found.drop_columns([_AT]).to_batches()
    return cells


def answered(worker: AggregateWorker, cells: Sequence[pa.RecordBatch]) -> Answered | None:
    """Return what the buckets answer of the cells of a batch; None if results are too many.

    Raises:
        StateError: their state cannot be read or written.
    """
    reports: list[BucketReport] = []
    results, n_results = [], 0
    for each in _answers(worker, cells, reports):
        results.append(each)
        n_results += each.num_rows
        if n_results > MOST:
            return None
    table = pa.Table.from_batches(results, worker.outputs).combine_chunks()
    return Answered(table, tuple(reports))


def _answers(
    worker: AggregateWorker, cells: Sequence[pa.RecordBatch], reports: list[BucketReport]
) -> Iterator[pa.RecordBatch]:
    """Yield the results of all buckets, and add their reports to others."""
    for bucket in range(worker.n_buckets):
        own = [each.filter(pc.equal(each.column(BUCKET), bucket)) for each in cells]
        report = yield from worker.answer(bucket, [each for each in own if each.num_rows])
        reports.append(report)

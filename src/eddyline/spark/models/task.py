"""The work of Spark's Python workers for models of a stream: one partition, which is one bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from eddyline.errors import StateError
from eddyline.models.streaming import COMPONENT, BucketBatch, BucketState
from eddyline.runtime.reports import TaskReport
from eddyline.spark.arrow_tasks import BUCKET, bucket_of, quiet_when_cut_short
from eddyline.state.rows import as_kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.models.streaming import BucketReport, ModelPart, StreamPlan
    from eddyline.state.place import StatePlace

REPORT = "__report"
"""The column of what a bucket did: set in the last row of its partition, which is no result."""


@dataclass(frozen=True)
class ModelWorker:
    """Answers a bucket in a batch, and keeps what it needs later; goes to workers."""

    plan: StreamPlan
    outputs: pa.Schema
    """The columns of results, and behind them the report."""
    place: StatePlace
    part: ModelPart
    """The state before the batch."""
    until: int
    """The instant before which all rows are there (µs)."""
    offset: int
    """From the time of a row to its instant (µs)."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answer a bucket; the last row is its report.

        Raises:
            StateError: its state cannot be read or written.
        """
        quiet_when_cut_short()
        arrived = list(batches)
        bucket = bucket_of(arrived)
        state = self.part.buckets.get(bucket, BucketState())
        task = BucketBatch(self.plan, self.place, state, bucket, self.until, self.offset)
        try:
            for found in task.run(_rows_of(arrived)):
                yield from self._sent(found)
        except OSError as error:
            msg = (
                f"bucket {bucket} cannot read or write its rows and segments in "
                f"{self.place.folder}: {error}; see that the files are there and that the disk has "
                f"room, then start the query again: nothing is lost"
            )
            raise StateError(msg, bucket=bucket, folder=self.place.folder) from error
        yield self._reported(task.report)

    def _sent(self, found: pa.Table) -> Iterator[pa.RecordBatch]:
        columns = [
            found.column(field.name).cast(field.type)
            if field.name != REPORT
            else pa.nulls(len(found), field.type)
            for field in self.outputs
        ]
        yield from pa.Table.from_arrays(columns, schema=self.outputs).to_batches(65_536)

    def _reported(self, report: BucketReport) -> pa.RecordBatch:
        """Return the row that brings a report home."""
        nothing = [pa.nulls(1, field.type) for field in self.outputs if field.name != REPORT]
        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        sent = TaskReport(COMPONENT, report.bucket, attempt, report).to_bytes()
        return pa.RecordBatch.from_arrays(
            [*nothing, pa.array([sent], pa.binary())], schema=self.outputs
        )


def _rows_of(arrived: list[pa.RecordBatch]) -> pa.Table | None:
    """Return the rows that came to a bucket, in types that files keep whatever the session is."""
    filled = [each for each in arrived if each.num_rows]
    if not filled:
        return None
    table = pa.Table.from_batches(filled).drop_columns([BUCKET])
    kept = pa.schema([pa.field(each.name, as_kept(each.type)) for each in table.schema])
    return table if table.schema.equals(kept) else table.cast(kept)

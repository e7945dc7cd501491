"""What runs in Spark's Python workers for a join: one partition, which is one bucket."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from eddyline.errors import StateError
from eddyline.joins.bucket import BucketBatch, BucketReport
from eddyline.joins.operator import results
from eddyline.joins.ordered import OrderedBatch, results_of_all
from eddyline.joins.rows import FOREVER, Rows, SortedRun
from eddyline.joins.work import JoinWork
from eddyline.spark.join_source import INPUT, KEY, PASSES, START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.joins.bucket import BatchPlan
    from eddyline.joins.manifest import Windows
    from eddyline.spark.join_source import InputLayout

AnyColumn = TypeVar("AnyColumn", pa.Array, pa.ChunkedArray)

REPORT = "__report"
"""The column of what a bucket did: set in the last row of its partition, which is no result."""


@dataclass(frozen=True)
class Shape:
    """How rows come in and results go out."""

    layouts: tuple[InputLayout, ...]
    results: pa.Schema
    """A struct for each input; behind them the report, where there is one."""

    def inputs(self, batches: Iterator[pa.RecordBatch]) -> dict[str, Rows]:
        """Return the rows of a partition by input, of those that have some."""
        arrived = list(batches)
        if not arrived:
            return {}
        table = pa.Table.from_batches(arrived)
        numbers = pc.unique(table[INPUT]).to_pylist()
        if len(numbers) == 1:
            return {self.layouts[numbers[0]].name: _rows(table, self.layouts[numbers[0]])}
        return {
            self.layouts[number].name: _rows(
                table.filter(pc.equal(table[INPUT], number)), self.layouts[number]
            )
            for number in sorted(numbers)
        }

    def outputs(self, found: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield results as Spark takes them."""
        columns: list[pa.Array | pa.ChunkedArray] = []
        for each in self.layouts:
            kind = self.results.field(each.name).type
            parts = [
                _as(found[f"{each.name}.{name}"].combine_chunks(), kind.field(name).type)
                for name, _ in each.columns
            ]
            # A struct without fields says nothing of its length.
            nothing = pa.array([{}] * found.num_rows, kind)
            columns.append(
                pa.StructArray.from_arrays(parts, fields=list(kind)) if parts else nothing
            )
        if REPORT in self.results.names:
            columns.append(pa.nulls(found.num_rows, pa.binary()))
        yield from pa.Table.from_arrays(columns, schema=self.results).to_batches()

    def report(self, report: BucketReport) -> pa.RecordBatch:
        """Return the row that brings a report home."""
        nothing = [pa.nulls(1, field.type) for field in self.results if field.name != REPORT]
        packed = pa.array([pickle.dumps(report, pickle.HIGHEST_PROTOCOL)], pa.binary())
        return pa.RecordBatch.from_arrays([*nothing, packed], schema=self.results)


@dataclass(frozen=True)
class OnceWorker:
    """Joins the rows of a partition with each other; nothing is kept."""

    plan: BatchPlan
    shape: Shape

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a partition."""
        if self.plan.order is not None:
            for found in results_of_all(self.plan, self.shape.inputs(batches)):
                yield from self.shape.outputs(found)
            return
        news = {name: SortedRun.of(rows) for name, rows in self.shape.inputs(batches).items()}
        for found in results(self.plan.graph, self.plan.orders, {}, news, JoinWork()):
            yield from self.shape.outputs(found)


@dataclass(frozen=True)
class BatchWorker:
    """Joins the rows of a batch with each other and with the windows, and keeps them."""

    plan: BatchPlan
    shape: Shape
    files: fs.FileSystem
    folder: str
    """Of the window state."""
    windows: Windows
    """The runs before the batch."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a bucket; the last row is its report.

        Raises:
            StateError: its windows cannot be read or written.
        """
        context = TaskContext.get()
        bucket = 0 if context is None else context.partitionId()
        before = self.windows.get(bucket, {})
        kind = BucketBatch if self.plan.order is None else OrderedBatch
        task = kind(self.plan, self.files, self.folder, before, bucket)
        try:
            for found in task.run(self.shape.inputs(batches)):
                yield from self.shape.outputs(found)
        except OSError as error:
            msg = (
                f"bucket {bucket} cannot read or write its windows in {self.folder}: {error}; "
                f"see that the files are there and that the disk has room, then start the query "
                f"again: nothing is lost"
            )
            raise StateError(msg, bucket=bucket, folder=self.folder) from error
        yield self.shape.report(task.report)


def _rows(table: pa.Table, each: InputLayout) -> Rows:
    starts = table[START].to_numpy()
    if each.length == FOREVER:
        ends = np.full(starts.size, FOREVER)
    else:
        # Where the end of a window is beyond all instants, its rows stay.
        ends = np.where(starts > FOREVER - each.length, FOREVER, starts + each.length)
    codes = {key: _code(table[f"{KEY}{key}"]) for key in each.keys}
    names = [name for name, _ in each.carried]
    payload = pa.table([_kept(table[slot]) for _, slot in each.carried], names=names)
    passes = table[PASSES].to_numpy() if each.is_raw else None
    return Rows(codes, starts, ends, payload, passes)


def _kept(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as windows keep it, whatever the session's time zone and Arrow types are."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _as(column, pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_large_binary(kind) else column


def _as(column: AnyColumn, kind: pa.DataType) -> AnyColumn:
    return column if column.type == kind else column.cast(kind)


def _code(codes: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return codes; any for NULL, which a row has that cannot join."""
    found: NDArray[np.int64] = (pc.fill_null(codes, 0) if codes.null_count else codes).to_numpy()
    return found

"""Arrow tasks in Python workers.

They know their input, their place in the job, and their last batch.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddyline.lane.exchange import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    BatchTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

MANY_MODULES = 50
"""Modules whose objects take some 3 ms to look through. What is left out and then dies in a cycle
stays, so that this is not done for each of a few."""

_n_loaded = 0
"""Modules that were loaded when what lives here was last left out of collections."""


@dataclass(frozen=True)
class Tasks:
    """Tasks that are laid over rows, one for each partition."""

    rows: DataFrame
    work: BatchTask
    """Maps the Arrow batches of a partition to those that the task returns."""

    def returned(self, schema: Any) -> DataFrame:
        """Return what they return, as rows of a schema."""
        return map_batches(self.rows, self.work, schema)


def map_batches(rows: DataFrame, task: BatchTask, schema: Any) -> DataFrame:
    """Run a task over the Arrow batches of rows; columns may have any name.

    PySpark's ``mapInArrow`` reads a dot in a name as access to a struct.
    """
    numbered = _numbered(rows)
    if numbered is rows:
        return rows.mapInArrow(task, schema)
    names = rows.columns

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return numbered.mapInArrow(named, schema)


def map_groups(
    rows: DataFrame, key: str, task: Callable[[pa.Table], pa.Table], schema: Any
) -> DataFrame:
    """Run a task over the Arrow table of each group; columns may have any name."""
    numbered = _numbered(rows)
    if numbered is rows:
        return rows.groupBy(key).applyInArrow(task, schema)
    place = numbered.columns[rows.columns.index(key)]
    names = rows.columns

    # A function, because PySpark would take ``self`` of a method for the key of the group.
    def named(table: pa.Table) -> pa.Table:
        return task(table.rename_columns(names))

    return numbered.groupBy(place).applyInArrow(named, schema)


def _numbered(rows: DataFrame) -> DataFrame:
    """Return rows with numbered columns if a name has a dot or a backtick."""
    if not any("." in name or "`" in name for name in rows.columns):
        return rows
    return rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))


def begin_task() -> None:
    """Do what each task of ours does first in a Python worker."""
    from pyspark import TaskContext  # noqa: PLC0415 - there is one only inside a task

    quiet_when_cut_short()
    if TaskContext.get() is not None:
        leave_out_of_collections()


def leave_out_of_collections() -> None:
    """Leave what lives here out of later collections of cycles, where many modules came since.

    Spark collects all of them after each task, and looks through some 240,000 objects of modules:
    0.1 s of CPU. As it has done so just before, there are no cycles among those that are kept.
    """
    global _n_loaded  # noqa: PLW0603 - of the process, as the collector is
    if len(sys.modules) >= _n_loaded + MANY_MODULES:
        gc.freeze()
        _n_loaded = len(sys.modules)


def task_ids() -> tuple[int, int, int]:
    """Return partition, attempt and micro-batch of the running task."""
    from pyspark import TaskContext  # noqa: PLC0415 - there is one only inside a task

    context = TaskContext.get()
    if context is None:
        return 0, 0, -1
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return context.partitionId(), context.attemptNumber(), int(batch_id or -1)


def gathered(
    batches: Iterator[tuple[pa.Array, ...]], n_rows: Callable[[], int], n_bytes: int
) -> Iterator[tuple[pa.Array, ...]]:
    """Join batches until they have so many rows or bytes; the last one has what is left.

    The number of rows is asked for when a batch begins.
    """
    held: list[tuple[pa.Array, ...]] = []
    least = rows = size = 0
    for columns in batches:
        if not held:
            least = n_rows()
        held.append(columns)
        rows += len(columns[0])
        size += sum(column.nbytes for column in columns)
        if rows >= least or size >= n_bytes:
            yield _one(held)
            held, rows, size = [], 0, 0
    if held:
        yield _one(held)


def _one(held: list[tuple[pa.Array, ...]]) -> tuple[pa.Array, ...]:
    """Return batches that follow each other as one."""
    if len(held) == 1:
        return held[0]
    return tuple(pa.concat_arrays(arrays) for arrays in zip(*held, strict=True))


def with_last(
    batches: Iterator[tuple[pa.Array, ...]],
) -> Iterator[tuple[tuple[pa.Array, ...], bool]]:
    """Pair each batch that has rows with whether it is the last one."""
    held = None
    for columns in batches:
        if held is not None and len(columns[0]):
            yield held, False
        if len(columns[0]):
            held = columns
    if held is not None:
        yield held, True


def on_last_row(n_rows: int, value: bytes | None) -> pa.Array:
    """Return a column of binaries that are NULL but for the last row."""
    if value is None:
        return pa.nulls(n_rows, pa.binary())
    return pa.concat_arrays([pa.nulls(n_rows - 1, pa.binary()), pa.array([value], pa.binary())])


class _WithoutBrokenPipes:
    """Output of a worker, without traces of a pipe that Spark has closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._trace = ""

    def write(self, text: str) -> int:
        """Print a text; a trace may come in pieces, and is held until it says what was raised."""
        if not self._trace and not text.startswith("Traceback (most recent call last)"):
            self._stream.write(text)
            return len(text)
        self._trace += text
        raised = [line for line in self._trace.splitlines()[1:] if line[:1].strip()]
        if raised:
            if not raised[0].startswith(("BrokenPipeError", "ConnectionResetError")):
                self._stream.write(self._trace)
            self._trace = ""
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def quiet_when_cut_short() -> None:
    """Let this worker process end without a trace where Spark wants no more results.

    After a LIMIT, and when a query is stopped, Spark closes the socket of a worker, which says on
    its way out that it could not write to it.
    """
    if not isinstance(sys.stderr, _WithoutBrokenPipes):
        sys.stderr = _WithoutBrokenPipes(sys.stderr)


def bucket_of(arrived: Sequence[pa.RecordBatch]) -> int:
    """Return the bucket that a partition is.

    Rows say it themselves: in a plan that coalesces partitions, or unions them with others, the
    number of the task is another one. A partition without rows has none but that; its report then
    takes the place of another bucket's, so that one is missing and the batch is not whole.
    """
    full = next((batch for batch in arrived if batch.num_rows), None)
    if full is not None:
        return int(full.column(BUCKET)[0].as_py())
    return task_ids()[0]

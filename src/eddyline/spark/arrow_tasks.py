"""Arrow tasks in Python workers: their place in the job, and the last of their batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


def task_ids() -> tuple[int, int, int]:
    """Return partition, attempt and micro-batch of the running task."""
    from pyspark import TaskContext  # noqa: PLC0415 - there is one only inside a task

    context = TaskContext.get()
    if context is None:
        return 0, 0, -1
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return context.partitionId(), context.attemptNumber(), int(batch_id or -1)


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

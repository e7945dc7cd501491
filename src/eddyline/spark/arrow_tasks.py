"""Arrow tasks in Python workers: their place in the job, and the last of their batches."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BatchT = TypeVar("BatchT")
ResultT = TypeVar("ResultT")


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


def handed_over(
    run: Callable[[Iterator[BatchT]], Iterator[ResultT]],
) -> Callable[[Iterator[BatchT]], Iterator[ResultT]]:
    """Return the function of a task's batches such that its worker ends without a trace.

    Where Spark wants no more results, as after a LIMIT or when a query is stopped, it closes the
    socket of the worker, which ends and prints that the pipe is broken. It may find out as late as
    when it waits for the next task, so nothing is printed from the last result on until there is
    one.
    """

    def results(batches: Iterator[BatchT]) -> Iterator[ResultT]:
        try:
            yield from run(batches)
        except BaseException:
            _silence_until_next()
            raise
        _silence_until_next()

    return results


def _silence_until_next() -> None:
    from pyspark import TaskContext  # noqa: PLC0415 - there is one only inside a task

    if TaskContext.get() is None or any(each.__name__ == "speak_again" for each in gc.callbacks):
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    thresholds = gc.get_threshold()

    def speak_again(_phase: str, _info: Mapping[str, int]) -> None:
        # Of all that Spark lets a function see, collections of garbage tell when the next task is
        # there: there is one after each task, and then, with this threshold, at once.
        if TaskContext.get() is None:
            gc.set_threshold(1)
        elif gc.get_threshold() != thresholds:
            gc.set_threshold(*thresholds)
            os.dup2(kept, 2)
            os.close(kept)
            gc.callbacks.remove(speak_again)

    gc.callbacks.append(speak_again)

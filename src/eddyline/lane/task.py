"""A task in the lane: it reads its row groups, and returns the rows that are kept.

``FileTask`` reads what its operator looks at, block by block. ``outcomes``, which each operator
writes for itself, says which rows of a block are kept and what columns they get beside their own.
Columns that it does not look at are decoded from the first of these rows to the last one. The last
row of a task is NULL but for the task's report and the bytes that it has sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.lane.scan import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eddyline.data.arrays import Ints, Mask
    from eddyline.lane.scan import FileColumn, Split

REPORT, SENT = "__eddyline_report", "__eddyline_sent"
"""Columns of the last row: the task's report, and the bytes that it has sent."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task found out of a block of rows; some blocks are joined to one."""

    handed: tuple[pa.Array, ...]
    """The columns that it was handed."""
    keep: Mask
    """The rows that are kept ((N,))."""
    added: Callable[[Ints], list[pa.Array]]
    """Returns the columns that are added to kept rows, for the numbers of some of these."""
    report: bytes | None
    """The report of the task, with the last block."""


@dataclass(frozen=True)
class FileTask:
    """Reads row groups and returns rows; derive one with the work of an operator."""

    tasks: tuple[tuple[Split, ...], ...]
    """The row groups of each task."""
    columns: tuple[FileColumn, ...]
    """The columns of the rows."""
    handed: tuple[str, ...]
    """The columns that the work is handed, in this order."""
    ignores_case: bool
    """Whether names of columns that differ in case alone are one to Spark."""

    @property
    def added(self) -> tuple[pa.Field, ...]:
        """The columns that kept rows get."""
        return ()

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns that the work looks at: ``handed``, and what else it needs of them."""
        return self.handed

    def outcomes(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[Outcome]:
        """Yield what blocks of the columns ``looked_at`` come to; there is a row at least."""
        raise NotImplementedError

    def blocks(self, number: int) -> Iterator[tuple[pa.Array, ...]]:
        """Return the blocks of the columns ``looked_at`` of a task.

        Raises:
            SourceError: a file is gone, another one, or damaged.
        """
        column_of = {column.name: column for column in self.columns}
        return self._rows(number, [column_of[name] for name in self.looked_at]).blocks()

    def _rows(self, number: int, columns: list[FileColumn]) -> Rows:
        return Rows(self.tasks[number], columns, ignores_case=self.ignores_case)

    def kept(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task that are kept, and the last row.

        Raises:
            SourceError: a file is gone, another one, or damaged.
        """
        others = [column for column in self.columns if column.name not in self.handed]
        left = self._rows(number, others)
        n_sent = 0
        for outcome in self.outcomes(self.blocks(number)):
            for first, n_rows, block in _blocks_of(left, outcome.keep):
                rows = np.flatnonzero(outcome.keep[first : first + n_rows])
                if not len(rows):
                    continue
                arrays = {
                    name: array.slice(first, n_rows)
                    for name, array in zip(self.handed, outcome.handed, strict=True)
                }
                arrays |= zip((each.name for each in others), block, strict=True)
                if len(rows) < n_rows:
                    taken = pa.array(rows)
                    arrays = {name: array.take(taken) for name, array in arrays.items()}
                columns = [arrays[column.name] for column in self.columns]
                sent = self._batch([*columns, *outcome.added(first + rows)])
                n_sent += sent.nbytes
                yield sent
            if outcome.report is not None:
                kinds = [each.type for each in (*self.columns, *self.added)]
                yield self._batch([pa.nulls(1, kind) for kind in kinds], outcome.report, n_sent)

    def _batch(
        self, arrays: list[pa.Array], report: bytes | None = None, n_sent: int | None = None
    ) -> pa.RecordBatch:
        names = [*(each.name for each in (*self.columns, *self.added)), REPORT, SENT]
        n_rows = len(arrays[0])
        if report is None:
            ends = [pa.nulls(n_rows, pa.binary()), pa.nulls(n_rows, pa.int64())]
        else:
            ends = [pa.array([report], pa.binary()), pa.array([n_sent], pa.int64())]
        return pa.RecordBatch.from_arrays([*arrays, *ends], names)


def _blocks_of(left: Rows, keep: Mask) -> Iterator[tuple[int, int, list[pa.Array]]]:
    """Yield blocks of the rows from the first to the last one that is kept; see ``Rows.take``.

    Each with its first row and its number of rows. Afterwards all rows are passed.
    """
    kept = np.flatnonzero(keep)
    first, end = (int(kept[0]), int(kept[-1]) + 1) if len(kept) else (0, 0)
    left.skip(first)
    for n_rows, block in left.take(end - first):
        yield first, n_rows, block
        first += n_rows
    left.skip(len(keep) - end)

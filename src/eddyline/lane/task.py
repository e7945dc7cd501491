"""Tasks that read row groups and return the rows they keep.

``FileTask`` reads the columns that its operator evaluates, block by block. ``outcomes``, which each
operator implements, returns a mask of the kept rows and their added columns. The other columns are
decoded only from the first kept row to the last. The last row of a task holds its report and the
bytes it sent; its other columns are NULL.
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

SENT_ROWS = 10_000
"""Rows that are sent at once, unless Spark is set to hand over fewer."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Result of one block of rows, or of several blocks joined."""

    handed: tuple[pa.Array, ...]
    """The columns ``FileTask.handed``."""
    keep: Mask
    """The rows that are kept ((N,))."""
    added: Callable[[Ints], list[pa.Array]]
    """Returns the added columns of some kept rows, given their positions."""
    report: bytes | None
    """The report of the task, with the last block."""


@dataclass(frozen=True)
class FileReader:
    """Reads columns of row groups; derive one with what is done with them."""

    tasks: tuple[tuple[Split, ...], ...]
    """The row groups of each task."""
    columns: tuple[FileColumn, ...]
    """The columns of the rows."""
    handed: tuple[str, ...]
    """The columns that the operator evaluates, in this order."""
    ignores_case: bool
    """Whether names of columns that differ in case alone are one to Spark."""
    sent_rows: int
    """Most rows of a batch that is sent."""

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns that are read first: ``handed``, and others that the operator needs."""
        return self.handed

    def blocks(self, number: int) -> Iterator[tuple[pa.Array, ...]]:
        """Return the columns ``looked_at`` of a task, block by block.

        Raises:
            SourceError: a file is gone, another one, or damaged.
        """
        column_of = {column.name: column for column in self.columns}
        return self._rows(number, [column_of[name] for name in self.looked_at]).blocks()

    def _rows(self, number: int, columns: list[FileColumn]) -> Rows:
        return Rows(self.tasks[number], columns, ignores_case=self.ignores_case)


@dataclass(frozen=True)
class FileTask(FileReader):
    """Reads row groups and returns rows; derive one with the work of an operator."""

    added: tuple[pa.Field, ...]
    """The columns that kept rows get beside their own."""

    def outcomes(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[KeptRows]:
        """Yield the result of each block of the columns ``looked_at``; there is a row at least."""
        raise NotImplementedError

    def kept(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task that are kept, and the last row.

        Raises:
            SourceError: a file is gone, another one, or damaged.
        """
        other_columns = [column for column in self.columns if column.name not in self.handed]
        other_rows = self._rows(number, other_columns)
        n_sent = 0
        for kept in self.outcomes(self.blocks(number)):
            for first, n_rows, block in _blocks_of(other_rows, kept.keep):
                arrays = {
                    name: array.slice(first, n_rows)
                    for name, array in zip(self.handed, kept.handed, strict=True)
                }
                arrays |= zip((column.name for column in other_columns), block, strict=True)
                rows = np.flatnonzero(kept.keep[first : first + n_rows])
                for start in range(0, len(rows), self.sent_rows):
                    sent = self._sent(arrays, rows[start : start + self.sent_rows], first, kept)
                    n_sent += sent.nbytes
                    yield sent
            if kept.report is not None:
                kinds = [column.type for column in (*self.columns, *self.added)]
                yield self._batch([pa.nulls(1, kind) for kind in kinds], kept.report, n_sent)

    def _sent(
        self, arrays: dict[str, pa.Array], rows: Ints, first: int, kept: KeptRows
    ) -> pa.RecordBatch:
        """Return some rows of a part of a block.

        Args:
            arrays: the columns of the part.
            rows: positions in the part.
            first: position of the part in the block.
            kept: the result of the block.
        """
        start, end = int(rows[0]), int(rows[-1]) + 1
        if len(rows) == end - start:
            columns = [arrays[column.name].slice(start, len(rows)) for column in self.columns]
        else:
            taken = pa.array(rows)
            columns = [arrays[column.name].take(taken) for column in self.columns]
        return self._batch([*columns, *kept.added(first + rows)])

    def _batch(
        self, arrays: list[pa.Array], report: bytes | None = None, n_sent: int | None = None
    ) -> pa.RecordBatch:
        names = [*(column.name for column in (*self.columns, *self.added)), REPORT, SENT]
        n_rows = len(arrays[0])
        if report is None:
            ends = [pa.nulls(n_rows, pa.binary()), pa.nulls(n_rows, pa.int64())]
        else:
            ends = [pa.array([report], pa.binary()), pa.array([n_sent], pa.int64())]
        return pa.RecordBatch.from_arrays([*arrays, *ends], names)


def _blocks_of(rows: Rows, keep: Mask) -> Iterator[tuple[int, int, list[pa.Array]]]:
    """Yield blocks of the rows from the first to the last one that is kept; see ``Rows.take``.

    Each with its first row and its number of rows. Afterwards all rows are passed.
    """
    kept = np.flatnonzero(keep)
    first, end = (int(kept[0]), int(kept[-1]) + 1) if len(kept) else (0, 0)
    rows.skip(first)
    for n_rows, block in rows.take(end - first):
        yield first, n_rows, block
        first += n_rows
    rows.skip(len(keep) - end)

"""The work of one bucket for sessions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.aggregates.bucket import BucketBatch
from eddyline.aggregates.cells import group_bounds, in_order, together, whole
from eddyline.aggregates.plan import FIRST, BucketReport, BucketState
from eddyline.aggregates.ranges_kernels import session_ranges
from eddyline.query.windows import SessionWindow
from eddyline.state.row_files import open_rows, write_rows
from eddyline.state.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Ints
    from eddyline.state.run_files import RunFile


class SessionBatch(BucketBatch):
    """Rows of a group that follow each other by no more than a gap.

    The cells of sessions that are open wait, each session as one cell with its first and its last
    instant as start and end.
    """

    @property
    def gap(self) -> int:
        """Most time between two rows of one session (µs)."""
        assert isinstance(self.plan.window, SessionWindow)
        return self.plan.window.gap

    def run(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield the sessions that end, and keep those that are open."""
        started = time.thread_time_ns()
        parts = [self._open(file) for file in self.state.waiting]
        self._n_read = sum(map(len, parts))
        parts += [] if arrived is None else [arrived]
        results, state = 0, BucketState()
        if parts:
            cells = in_order(together(parts))
            firsts, lasts = sessions_of(cells, self.gap)
            is_open = lasts + self.gap >= self.plan.after
            ranges = np.column_stack([firsts, np.append(firsts[1:], len(cells))])
            done, lasting = ranges[~is_open], ranges[is_open]
            if len(done):
                found = self.table(cells, lasts[~is_open] + self.gap, np.column_stack([done, done]))
                results = found.num_rows
                yield found.append_column(FIRST, pa.array(cells.starts[done[:, 0]]))
            state = BucketState(self._sessions(cells, lasting, lasts[is_open]))
        self.report = BucketReport(
            self.report.bucket,
            state,
            n_arrived=0 if arrived is None else len(arrived),
            n_read=self._n_read,
            n_results=results,
            busiest=self.marks.busiest,
            work_ns=time.thread_time_ns() - started,
        )

    def _sessions(self, cells: Rows, ranges: Ints, lasts: Ints) -> tuple[RunFile, ...]:
        """Return the file of sessions that are open, one cell each."""
        if self.place is None or not len(ranges):
            return ()
        lo, hi = np.ascontiguousarray(ranges[:, 0]), np.ascontiguousarray(ranges[:, 1])
        columns = {
            name: self.partials[name].merge(whole(column), lo, hi)
            if name in self.partials
            else column.take(pa.array(lo))
            for name, column in zip(cells.payload.column_names, cells.payload.columns, strict=True)
        }
        codes = {key: of[lo] for key, of in cells.codes.items()}
        rows = Rows(codes, cells.starts[lo], lasts, pa.table(columns))
        return (write_rows(self.place.files, self.place.runs, rows, is_sorted=True),)

    def _open(self, file: RunFile) -> Rows:
        assert self.place is not None
        return open_rows(self.place.files, self.place.runs, file)


def sessions_of(cells: Rows, gap: int) -> tuple[Ints, Ints]:
    """Return the first cell of each session, and its last instant (µs); cells are in order."""
    firsts, lasts = np.empty(len(cells), np.int64), np.empty(len(cells), np.int64)
    n = session_ranges(cells.starts, cells.ends, group_bounds(cells), gap, firsts, lasts)
    return firsts[:n], lasts[:n]

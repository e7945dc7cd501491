"""The work of one bucket for sessions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.aggregates.bucket import BucketBatch, no_cells
from eddyline.aggregates.cells import CODE, group_bounds
from eddyline.aggregates.open_sessions import OpenSessions
from eddyline.aggregates.plan import FIRST, BucketReport, BucketState
from eddyline.aggregates.ranges_kernels import session_ranges
from eddyline.data.one_chunk import whole
from eddyline.data.unique import distinct
from eddyline.query.query import SessionWindow
from eddyline.state.event_time import earlier
from eddyline.state.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Ints


class SessionBatch(BucketBatch):
    """Rows of a group that follow each other by no more than a gap.

    Sessions that are open wait, each as one cell with its first and its last instant as start and
    end. Of these a batch reads those of groups that it has rows of, and those that end.
    """

    @property
    def gap(self) -> int:
        """Most time between two rows of one session (µs)."""
        assert isinstance(self.plan.window, SessionWindow)
        return self.plan.window.gap

    def run(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield the sessions that end, and keep those that are open."""
        started = time.thread_time_ns()
        since, until = (earlier(each, self.gap) for each in (self.plan.before, self.plan.after))
        sessions = OpenSessions(self.place, self.state.waiting, since)
        new = no_cells() if arrived is None else arrived
        codes = distinct(new.codes[CODE])
        read = [*sessions.of_codes(codes), *sessions.ended(until, codes)]
        cells, results, n_bytes = self.entries(read, new), 0, new.payload.nbytes
        changed = no_cells()
        if cells is not None:
            firsts, lasts = sessions_of(cells, self.gap)
            is_open = lasts >= until
            ranges = np.column_stack([firsts, np.append(firsts[1:], len(cells))])
            done, lasting = ranges[~is_open], ranges[is_open]
            if len(done):
                found = self.table(cells, lasts[~is_open] + self.gap, np.column_stack([done, done]))
                results, n_bytes = found.num_rows, n_bytes + found.nbytes
                yield found.append_column(FIRST, pa.array(cells.starts[done[:, 0]]))
            changed = self._sessions(cells, lasting, lasts[is_open])
        self.report = BucketReport(
            self.report.bucket,
            BucketState(sessions.after(until, changed)),
            n_arrived=len(new),
            n_read=self._n_read,
            n_results=results,
            busiest=self.marks.busiest,
            work_ns=time.thread_time_ns() - started,
            n_bytes=n_bytes,
        )

    def _sessions(self, cells: Rows, ranges: Ints, lasts: Ints) -> Rows:
        """Return sessions as one cell each."""
        lo, hi = np.ascontiguousarray(ranges[:, 0]), np.ascontiguousarray(ranges[:, 1])
        columns = {
            name: self.partials[name].merge(whole(column), lo, hi)
            if name in self.partials
            else column.take(pa.array(lo))
            for name, column in zip(cells.payload.column_names, cells.payload.columns, strict=True)
        }
        codes = {key: of[lo] for key, of in cells.codes.items()}
        return Rows(codes, cells.starts[lo], lasts, pa.table(columns))


def sessions_of(cells: Rows, gap: int) -> tuple[Ints, Ints]:
    """Return the first cell of each session, and its last instant (µs); cells are in order."""
    firsts, lasts = np.empty(len(cells), np.int64), np.empty(len(cells), np.int64)
    n = session_ranges(cells.starts, cells.ends, group_bounds(cells), gap, firsts, lasts)
    return firsts[:n], lasts[:n]

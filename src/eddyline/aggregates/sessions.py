"""Sessions: rows of a group without a longer gap between them.

``SessionBatch`` is the work of a bucket. ``OpenSessions`` keeps open sessions in files that never
change. A file has all open sessions of its groups at the time of writing, sorted by group. If
several files have a group, the newest one counts.

A batch reads the sessions of groups with new rows, and the sessions that end. It writes the changed
ones. Files of about the same size are merged, so that there are few of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.aggregates.bucket import BucketBatch
from eddyline.aggregates.cells import (
    BY_END,
    CODE,
    group_bounds,
    in_order,
    no_cells,
    of_groups,
    of_ranges,
    together,
)
from eddyline.aggregates.plan import FIRST, BucketState
from eddyline.aggregates.ranges_kernels import session_ranges
from eddyline.data.arrays import distinct, whole
from eddyline.query.query import SessionWindow
from eddyline.state.event_time import earlier
from eddyline.state.run_files import open_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.data.arrays import Ints, Mask
    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import Rows
    from eddyline.state.run_files import RunFile


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

    def answers(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield the sessions that end, and keep those that are open."""
        since, until = (
            earlier(instant, self.gap) for instant in (self.plan.before, self.plan.after)
        )
        sessions = OpenSessions(self.place, self.state.waiting, since)
        new = no_cells() if arrived is None else arrived
        codes = distinct(new.codes[CODE])
        read = [*sessions.of_codes(codes), *sessions.ended(until, codes)]
        cells, changed = self.entries(read, new), no_cells()
        if cells is not None:
            lo, lasts = np.empty(len(cells), np.int64), np.empty(len(cells), np.int64)
            bounds = group_bounds(cells)
            n = session_ranges(cells.starts, cells.ends, bounds, self.gap, lo, lasts)
            lo, hi, lasts = lo[:n], np.append(lo[1:n], len(cells)), lasts[:n]
            is_open = lasts >= until
            if not is_open.all():
                done, ends = np.column_stack([lo, hi] * 2)[~is_open], lasts[~is_open] + self.gap
                results = self.table(cells, ends, done)
                yield results.append_column(FIRST, pa.array(cells.starts[done[:, 0]]))
            lo, hi, lasts = lo[is_open], hi[is_open], lasts[is_open]
            changed = of_ranges(cells, lo, hi, self.partials, (cells.starts[lo], lasts))
        self.after = BucketState(sessions.after(until, changed))


FULLER = 2
"""Times by which a file has to be larger than the next newer one to be left as it is."""


class OpenSessions:
    """The sessions of a bucket that are open.

    Args:
        place: where their files are.
        files: these, the oldest first.
        since: the last row of a session that is open is not before this instant (µs).

    Raises:
        OSError: they cannot be read.
    """

    def __init__(self, place: StatePlace | None, files: Sequence[RunFile], since: int) -> None:
        self.place = place
        self.since = since
        self.files = [_File(place, file) for file in files] if place is not None else []

    def of_codes(self, codes: Ints) -> list[Rows]:
        """Return the open sessions of the groups of some codes, which ascend."""
        parts = []
        for file in reversed(self.files):
            rows = of_groups(file.rows, codes)
            parts.append(_from_end(rows, self.since))
            codes = codes[~is_in(codes, file.codes)]
        return parts

    def ended(self, until: int, but: Ints) -> list[Rows]:
        """Return those whose last row is before an instant (µs), but of the groups of some codes.

        Args:
            until: the instant.
            but: the codes, which ascend.
        """
        parts, newer = [], [but]
        for file in reversed(self.files):
            places = file.ending(self.since, until)
            for codes in newer:
                places = places[~is_in(file.codes[places], codes)]
            parts.append(file.rows.taken(places))
            newer.append(file.codes)
        return parts

    def after(self, until: int, changed: Rows) -> tuple[RunFile, ...]:
        """Return the files of the sessions that are open with a batch.

        Args:
            until: the last row of an open session is not before this instant (µs).
            changed: all open sessions of the groups that had rows, in order.

        Raises:
            OSError: they cannot be read or written.
        """
        if self.place is None:
            return ()
        stay = [file for file in self.files if file.last >= until]
        if not len(changed):
            return tuple(file.file for file in stay)
        while stay and len(stay[-1].rows) <= FULLER * len(changed):
            older = _from_end(stay.pop().rows, until)
            is_same = ~is_in(older.codes[CODE], changed.codes[CODE])
            changed = in_order(together([older.taken(np.flatnonzero(is_same)), changed]))
        return (*(file.file for file in stay), self._written(changed))

    def _written(self, rows: Rows) -> RunFile:
        assert self.place is not None
        by_end = pa.array(np.argsort(rows.ends, kind="stable"))
        indexed = replace(rows, payload=rows.payload.append_column(BY_END, by_end))
        return write_rows(self.place.files, self.place.runs, indexed, is_sorted=True)


class _File:
    """A file of sessions, of which what is needed is read from a local disk."""

    def __init__(self, place: StatePlace, file: RunFile) -> None:
        self.file = file
        rows = open_rows(place.files, place.runs, file)
        if BY_END in rows.payload.column_names:
            self.by_end = whole(rows.payload[BY_END]).to_numpy()
            rows = replace(rows, payload=rows.payload.drop_columns([BY_END]))
        else:
            self.by_end = np.argsort(rows.ends, kind="stable")
        self.rows = rows

    @property
    def codes(self) -> Ints:
        """The codes of the groups, which ascend."""
        return self.rows.codes[CODE]

    @property
    def last(self) -> int:
        """The last row of all sessions (µs)."""
        return int(self.rows.ends[self.by_end[-1]])

    def ending(self, since: int, until: int) -> Ints:
        """Return the places, which ascend, of sessions whose last row is in a range (µs)."""
        low, high = np.searchsorted(self.rows.ends, [since, until], sorter=self.by_end)
        return np.sort(self.by_end[low:high])


def is_in(values: Ints, others: Ints) -> Mask:
    """Return which values are among others, which ascend.

    >>> is_in(np.array([3, 4, 9]), np.array([1, 3, 3, 7])).tolist()
    [True, False, False]
    """
    if not others.size:
        return np.zeros(values.size, np.bool_)
    places = np.minimum(np.searchsorted(others, values), others.size - 1)
    is_there: Mask = others[places] == values
    return is_there


def _from_end(rows: Rows, since: int) -> Rows:
    """Return the sessions whose last row is not before an instant (µs)."""
    lasting = rows.ends >= since
    return rows if lasting.all() else rows.taken(np.flatnonzero(lasting))

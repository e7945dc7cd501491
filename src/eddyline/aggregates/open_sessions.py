"""Sessions that are open, in files that are never changed.

A file has all open sessions of its groups, as they were when it was written, by group; the newest
one that has a group says what became of it. So a batch reads the sessions of the groups that it has
rows of, and those that end, and writes what the former became. Files of about the same size become
one, so that there are few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.aggregates.cells import CODE, in_order, of_groups, together
from eddyline.data.arrays import whole
from eddyline.state.row_files import open_rows, write_rows
from eddyline.state.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Ints, Mask
    from eddyline.state.place import StatePlace
    from eddyline.state.run_files import RunFile

BY_END = "\0by_end"
"""The column of the places of sessions in the order of their last rows. Files may lack it, such as
where sessions have moved to other buckets."""

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
        self.files = [_File(place, each) for each in files] if place is not None else []

    def of_codes(self, codes: Ints) -> list[Rows]:
        """Return the open sessions of the groups of some codes, which ascend."""
        found = []
        for file in reversed(self.files):
            own = of_groups(file.rows, codes)
            found.append(_from_end(own, self.since))
            codes = codes[~is_in(codes, file.codes)]
        return found

    def ended(self, until: int, but: Ints) -> list[Rows]:
        """Return those whose last row is before an instant (µs), but of the groups of some codes.

        Args:
            until: the instant.
            but: the codes, which ascend.
        """
        found, newer = [], [but]
        for file in reversed(self.files):
            places = file.ending(self.since, until)
            for codes in newer:
                places = places[~is_in(file.codes[places], codes)]
            found.append(file.rows.taken(places))
            newer.append(file.codes)
        return found

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
        stay = [each for each in self.files if each.last >= until]
        if not len(changed):
            return tuple(each.file for each in stay)
        while stay and len(stay[-1].rows) <= FULLER * len(changed):
            older = _from_end(stay.pop().rows, until)
            is_same = ~is_in(older.codes[CODE], changed.codes[CODE])
            changed = in_order(together([older.taken(np.flatnonzero(is_same)), changed]))
        return (*(each.file for each in stay), self._written(changed))

    def _written(self, rows: Rows) -> RunFile:
        assert self.place is not None
        by_end = pa.array(np.argsort(rows.ends, kind="stable"))
        payload = rows.payload.append_column(BY_END, by_end)
        indexed = Rows(rows.codes, rows.starts, rows.ends, payload)
        return write_rows(self.place.files, self.place.runs, indexed, is_sorted=True)


class _File:
    """A file of sessions, of which what is needed is read from a local disk."""

    def __init__(self, place: StatePlace, file: RunFile) -> None:
        self.file = file
        rows = open_rows(place.files, place.runs, file)
        if BY_END in rows.payload.column_names:
            self.by_end = whole(rows.payload[BY_END]).to_numpy()
            payload = rows.payload.drop_columns([BY_END])
            rows = Rows(rows.codes, rows.starts, rows.ends, payload)
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


def is_in(values: Ints, known: Ints) -> Mask:
    """Return which values are among others, which ascend.

    >>> is_in(np.array([3, 4, 9]), np.array([1, 3, 3, 7])).tolist()
    [True, False, False]
    """
    if not known.size:
        return np.zeros(values.size, np.bool_)
    places = np.minimum(np.searchsorted(known, values), known.size - 1)
    found: Mask = known[places] == values
    return found


def _from_end(rows: Rows, since: int) -> Rows:
    """Return the sessions whose last row is not before an instant (µs)."""
    lasting = rows.ends >= since
    return rows if lasting.all() else rows.taken(np.flatnonzero(lasting))

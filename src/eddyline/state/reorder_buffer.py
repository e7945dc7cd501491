"""Rows that wait until no earlier row can come: in files, sorted by event time.

A file is never changed: rows of it that waited long enough are those before an instant, and it goes
when that instant is behind its last row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.state.compaction import upkeep_of
from eddyline.state.row_files import between, open_rows, write_rows
from eddyline.state.rows import FOREVER, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import fs

    from eddyline.state.run_files import RunFile


class HeldRows:
    """The rows of one input that wait, in files of a folder: those from ``since`` on (µs)."""

    def __init__(
        self, files: fs.FileSystem, folder: str, held: Sequence[RunFile], since: int
    ) -> None:
        self.files = files
        self.folder = folder
        self.held = tuple(held)
        self.since = since

    def before(self, until: int) -> list[Rows]:
        """Return the rows that need not wait longer than until an instant (µs).

        Raises:
            OSError: they cannot be read.
        """
        due = [file for file in self.held if file.first_start < until]
        parts = [
            between(open_rows(self.files, self.folder, file), self.since, until) for file in due
        ]
        return [part for part in parts if len(part)]

    def after(self, until: int, new: Rows | None) -> tuple[RunFile, ...]:
        """Return the files of the rows, new ones among them, that wait from ``until`` on (µs).

        Raises:
            OSError: they cannot be read or written.
        """
        upkeep = upkeep_of(self.held, horizon=until, length=FOREVER)
        stay = list(upkeep.stay)
        if upkeep.merge:
            parts = [
                between(open_rows(self.files, self.folder, file), until, FOREVER)
                for file in upkeep.merge
            ]
            stay = [file for file in stay if file not in upkeep.merge]
            stay.insert(0, write_rows(self.files, self.folder, Rows.together(parts)))
        if new is not None and len(new):
            stay.append(write_rows(self.files, self.folder, new))
        return tuple(stay)

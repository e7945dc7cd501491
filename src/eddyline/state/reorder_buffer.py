"""Rows that wait until no earlier row can come: in files, sorted by event time.

A file is never changed: rows of it that waited long enough are those before an instant, and it goes
when that instant is behind its last row.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.state.compaction import upkeep_of
from eddyline.state.rows import FOREVER, Rows
from eddyline.state.run_files import RunFile, open_tables, write_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import fs

_START, _END, _PASSES, _CODE = "\0start", "\0end", "\0passes", "\0code"


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
        parts = [_between(self._open(file), self.since, until) for file in due]
        return [part for part in parts if len(part)]

    def after(self, until: int, new: Rows | None) -> tuple[RunFile, ...]:
        """Return the files of the rows, new ones among them, that wait from ``until`` on (µs).

        Raises:
            OSError: they cannot be read or written.
        """
        upkeep = upkeep_of(self.held, horizon=until, length=FOREVER)
        stay = list(upkeep.stay)
        if upkeep.merge:
            parts = [_between(self._open(file), until, FOREVER) for file in upkeep.merge]
            stay = [file for file in stay if file not in upkeep.merge]
            stay.insert(0, self._write(Rows.together(parts)))
        if new is not None and len(new):
            stay.append(self._write(new))
        return tuple(stay)

    def _write(self, rows: Rows) -> RunFile:
        rows = rows.taken(np.argsort(rows.starts, kind="stable"))
        columns = dict(zip(rows.payload.column_names, rows.payload.columns, strict=True))
        columns |= {_START: pa.array(rows.starts), _END: pa.array(rows.ends)}
        columns |= {f"{_CODE}{key}": pa.array(codes) for key, codes in rows.codes.items()}
        if rows.passes is not None:
            columns[_PASSES] = pa.array(rows.passes)
        name = uuid.uuid4().hex
        path = f"{self.folder}/{name}.held.arrow"
        written = write_tables(self.files, [path], [pa.table(columns).combine_chunks()])
        return RunFile(name, len(rows), int(rows.starts[0]), int(rows.starts[-1]), *written)

    def _open(self, file: RunFile) -> Rows:
        path = f"{self.folder}/{file.name}.held.arrow"
        (table,) = open_tables(self.files, [path], file.checksum)
        own = {
            name: table[name].combine_chunks().to_numpy(zero_copy_only=False)
            for name in table.column_names
            if name in (_START, _END, _PASSES) or name.startswith(_CODE)
        }
        codes = {
            int(name.removeprefix(_CODE)): values
            for name, values in own.items()
            if name.startswith(_CODE)
        }
        payload = table.drop_columns(list(own))
        return Rows(codes, own[_START], own[_END], payload, own.get(_PASSES))


def _between(rows: Rows, since: int, until: int) -> Rows:
    """Return rows from an instant until just before another; they are sorted by event time."""
    low, high = np.searchsorted(rows.starts, [since, until])
    part = slice(int(low), int(high))
    return Rows(
        {key: codes[part] for key, codes in rows.codes.items()},
        rows.starts[part],
        rows.ends[part],
        rows.payload.slice(part.start, part.stop - part.start),
        None if rows.passes is None else rows.passes[part],
    )

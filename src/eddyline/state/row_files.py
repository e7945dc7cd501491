"""Rows as files that are never changed, without an index; opened by mapping them into memory."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import whole
from eddyline.data.files import is_local
from eddyline.state.rows import Rows
from eddyline.state.run_files import RunFile, open_tables, write_tables

if TYPE_CHECKING:
    from pyarrow import fs

_START, _END, _PASSES, _CODE = "\0start", "\0end", "\0passes", "\0code"

MOST_VERIFIED = 4_096
"""Files of which a process remembers that it has compared their checksums."""

_verified: dict[str, tuple[int, int, int]] = {}
"""Inode, size and time of the last change (ns) of local files, by path."""


def write_rows(
    files: fs.FileSystem, folder: str, rows: Rows, *, is_sorted: bool = False
) -> RunFile:
    """Write rows, one or more, by start, or if they are sorted in some way, in their order.

    Raises:
        OSError: they cannot be written.
    """
    if not is_sorted:
        rows = rows.taken(np.argsort(rows.starts, kind="stable"))
    columns = dict(zip(rows.payload.column_names, rows.payload.columns, strict=True))
    columns |= {_START: pa.array(rows.starts), _END: pa.array(rows.ends)}
    columns |= {f"{_CODE}{key}": pa.array(codes) for key, codes in rows.codes.items()}
    if rows.passes is not None:
        columns[_PASSES] = pa.array(rows.passes)
    name = uuid.uuid4().hex
    path = _path(folder, name)
    written = write_tables(files, [path], [pa.table(columns).combine_chunks()])
    _remember(files, path)
    return RunFile(name, len(rows), int(rows.starts.min()), int(rows.starts.max()), *written)


def open_rows(files: fs.FileSystem, folder: str, file: RunFile) -> Rows:
    """Open rows that were written; a process compares their checksum once.

    Raises:
        OSError: they are not there, or are damaged.
    """
    path = _path(folder, file.name)
    is_known = is_local(files) and _verified.get(path) == _stamp(path)
    (table,) = open_tables(files, [path], None if is_known else file.checksum)
    _remember(files, path)
    own = {
        name: whole(table[name]).to_numpy(zero_copy_only=False)
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


def between(rows: Rows, since: int, until: int) -> Rows:
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


def _remember(files: fs.FileSystem, path: str) -> None:
    """Take note that the checksum of a file was compared, or that this process wrote it."""
    if not is_local(files):
        return
    if len(_verified) >= MOST_VERIFIED:
        _verified.clear()
    _verified[path] = _stamp(path)


def _stamp(path: str) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.held.arrow"

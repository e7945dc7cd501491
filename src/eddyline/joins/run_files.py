"""Sorted runs as files: two Arrow IPC files each, opened by mapping them into memory.

``<name>.rows.arrow`` has the payload, a row each. ``<name>.index.arrow`` has one row of lists:
codes, starts and ends in the order of the rows, and for each key class the arrays of its index.
Both are written under their final names by one task only; a run exists once a manifest names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.joins.index import Index
from eddyline.joins.rows import Rows, SortedRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import fs

_INDEX_PARTS = (
    ("hashes", pa.uint64()),
    ("starts", pa.int64()),
    ("ends", pa.int64()),
    ("rows", pa.uint32()),
    ("directory", pa.uint32()),
)


@dataclass(frozen=True, slots=True)
class RunFile:
    """What a manifest says of one run."""

    name: str
    """Unique in its folder."""
    n_rows: int
    first_start: int
    """The earliest event time of its rows (µs)."""
    last_end: int
    """The last instant at which one of its rows is in its window (µs)."""
    n_bytes: int
    """Of both files."""


def write_run(files: fs.FileSystem, folder: str, name: str, run: SortedRun) -> RunFile:
    """Write a run, with the index of each of its key classes.

    Args:
        files: where the folder is.
        folder: an existing folder.
        name: a name that no other run has.
        run: at least one row.

    Raises:
        OSError: it cannot be written, such as where no room is left.
    """
    arrays: dict[str, pa.Array] = {
        "starts": _as_list(run.rows.starts, pa.int64()),
        "ends": _as_list(run.rows.ends, pa.int64()),
    }
    for key, codes in run.rows.codes.items():
        arrays[f"codes_{key}"] = _as_list(codes, pa.int64())
        index = run.index(key)
        for part, kind in _INDEX_PARTS:
            arrays[f"{part}_{key}"] = _as_list(getattr(index, part), kind)
    written = write_table(files, f"{folder}/{name}.index.arrow", pa.table(arrays))
    written += write_table(files, f"{folder}/{name}.rows.arrow", run.rows.payload.combine_chunks())
    starts, ends = run.rows.starts, run.rows.ends
    return RunFile(name, len(run), int(starts.min()), int(ends.max()), written)


def open_run(files: fs.FileSystem, folder: str, name: str, keys: Sequence[int]) -> SortedRun:
    """Open a run that was written; on a local disk nothing is read before it is needed.

    Args:
        files: where the folder is.
        folder: the folder.
        name: the run's name.
        keys: the key classes of its input, ascending.

    Raises:
        OSError: it is not there, or is not whole.
    """
    lists = open_table(files, f"{folder}/{name}.index.arrow")
    parts: dict[str, Any] = {
        column: lists[column].chunk(0).values.to_numpy() for column in lists.column_names
    }
    codes = {key: parts[f"codes_{key}"] for key in keys}
    payload = open_table(files, f"{folder}/{name}.rows.arrow")
    rows = Rows(codes, parts["starts"], parts["ends"], payload)
    indexes = {key: Index(*(parts[f"{part}_{key}"] for part, _ in _INDEX_PARTS)) for key in keys}
    return SortedRun(rows, indexes)


def _as_list(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    offsets = pa.array([0, values.size], pa.int64())
    flat = pa.array(np.ascontiguousarray(values), kind)
    return pa.LargeListArray.from_arrays(offsets, flat)


def write_table(files: fs.FileSystem, path: str, table: pa.Table) -> int:
    """Write a table as one file.

    Returns:
        Its size (bytes).

    Raises:
        OSError: it cannot be written.
    """
    with files.open_output_stream(path) as out:
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        return int(out.tell())


def open_table(files: fs.FileSystem, path: str) -> pa.Table:
    """Open a table that was written; on a local disk nothing is read before it is needed.

    Raises:
        OSError: it is not there, or is not whole.
    """
    from pyarrow import fs  # noqa: PLC0415

    source = pa.memory_map(path) if isinstance(files, fs.LocalFileSystem) else None
    if source is None:
        with files.open_input_file(path) as whole:
            source = pa.BufferReader(whole.read_buffer())
    return pa.ipc.open_file(source).read_all()

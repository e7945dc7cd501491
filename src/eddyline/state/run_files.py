"""Sorted runs as files: two Arrow IPC files each, opened by mapping them into memory.

``<name>.rows.arrow`` has the payload, a row each. ``<name>.index.arrow`` has one row of lists: for
each key class the codes in the order of the rows, and the arrays of its index. Starts and ends of
the rows are those of the index that is in their order. Both files are written under their final
names by one task only; a run exists once a manifest names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_index import Index, bits_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import fs

FORMAT = 2
"""Number of the layout of runs, and of the manifests that name them; another one cannot be read."""

_FORMAT = b"eddyline.format"

_INDEX_PARTS = (
    ("tags", pa.uint32()),
    ("entries", pa.int64()),
    ("directory", pa.uint32()),
    ("places", pa.uint32()),
    ("bounds", pa.int64()),
)


@dataclass(frozen=True, slots=True)
class RunFile:
    """Description of one run, as state names it."""

    name: str
    """Unique in its folder."""
    n_rows: int
    first_start: int
    """The earliest event time of its rows (µs)."""
    last_end: int
    """The last instant at which one of its rows is in its window (µs)."""
    n_bytes: int
    """Size of its files."""


def write_run(files: fs.FileSystem, folder: str, name: str, run: SortedRun) -> RunFile:
    """Write a run of one row or more under a new name, with the index of each of its key classes.

    Raises:
        OSError: it cannot be written, such as where no room is left.
    """
    arrays: dict[str, pa.Array] = {}
    for key, codes in run.rows.codes.items():
        arrays[f"codes_{key}"] = _as_list(codes, pa.int64())
        index = run.index(key)
        for part, kind in _INDEX_PARTS:
            arrays[f"{part}_{key}"] = _as_list(getattr(index, part).reshape(-1), kind)
    lists = pa.table(arrays).replace_schema_metadata({_FORMAT: str(FORMAT)})
    index_path, rows_path = paths_of(folder, name)
    written = write_table(files, index_path, lists)
    written += write_table(files, rows_path, run.rows.payload.combine_chunks())
    starts, ends = run.rows.starts, run.rows.ends
    return RunFile(name, len(run), int(starts.min()), int(ends.max()), written)


def paths_of(folder: str, name: str) -> tuple[str, str]:
    """Return the paths of the index and of the rows of a run."""
    return f"{folder}/{name}.index.arrow", f"{folder}/{name}.rows.arrow"


def open_run(files: fs.FileSystem, folder: str, name: str, keys: Sequence[int]) -> SortedRun:
    """Open a run of some key classes (ascending); from a local disk only what is needed is read.

    Raises:
        OSError: it is not there, is not whole, or is of another format.
    """
    lists, payload = (open_table(files, path) for path in paths_of(folder, name))
    said = (lists.schema.metadata or {}).get(_FORMAT, b"1").decode()
    if said != str(FORMAT):
        msg = f"the run {name} is of format {said}, this version reads {FORMAT}"
        raise OSError(msg)
    parts: dict[str, Any] = {
        column: lists[column].chunk(0).values.to_numpy() for column in lists.column_names
    }
    if not _is_whole(parts, keys, payload):
        msg = f"the run {name} is damaged: its parts do not fit together"
        raise OSError(msg)
    codes = {key: parts[f"codes_{key}"] for key in keys}
    indexes = {key: Index(*(parts[f"{part}_{key}"] for part, _ in _INDEX_PARTS)) for key in keys}
    in_order = next(index for index in indexes.values() if not index.places.size)
    return SortedRun(Rows(codes, in_order.starts, in_order.ends, payload), indexes)


def _is_whole(parts: dict[str, Any], keys: Sequence[int], payload: pa.Table) -> bool:
    """Return whether the parts of a run have the lengths that they must have; shapes entries."""
    wanted = {f"{part}_{key}" for key in keys for part in ("codes", *dict(_INDEX_PARTS))}
    if not keys or not wanted <= parts.keys():
        return False
    n_rows = parts[f"codes_{keys[0]}"].size
    if payload.num_columns and payload.num_rows != n_rows:
        return False
    for key in keys:
        entries, directory = parts[f"entries_{key}"], parts[f"directory_{key}"]
        rows = [parts[f"{part}_{key}"].size for part in ("codes", "tags")]
        may_be_none = [parts[f"{part}_{key}"].size for part in ("places", "bounds")]
        if (
            set(rows) != {n_rows}
            or not set(may_be_none) <= {0, n_rows}
            or entries.size != 3 * n_rows
            or directory.size != 1 + (1 << bits_for(n_rows))
            or directory[-1] != n_rows
        ):
            return False
        parts[f"entries_{key}"] = entries.reshape(-1, 3)
    return any(not parts[f"places_{key}"].size for key in keys)


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

    try:
        if isinstance(files, fs.LocalFileSystem):
            return pa.ipc.open_file(pa.memory_map(path)).read_all()
        with files.open_input_file(path) as whole:
            return pa.ipc.open_file(whole.read_buffer()).read_all()
    except pa.ArrowInvalid as error:
        msg = f"{path} is damaged: {error}"
        raise OSError(msg) from error

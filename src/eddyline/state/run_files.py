"""Sorted runs as files: two Arrow IPC files each, opened by mapping them into memory.

``<name>.rows.arrow`` has the payload, a row each. ``<name>.index.arrow`` has one row of lists: for
each key class the codes in the order of the rows, and the arrays of its index. Starts and ends of
the rows are those of the index that is in their order. Both files are written under their final
names by one task only; a run exists once a manifest names it, which has its checksum too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.files import is_local
from eddyline.state.rows import FOREVER, Rows, SortedRun
from eddyline.state.run_index import Index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import fs

PAGE_WORDS = 512
"""Words of 8 bytes whose sum is one item of a checksum: as many as a page of memory has."""

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
    checksum: int
    """Of its files; see ``checksum_of``."""
    last_start: int = FOREVER
    """The latest event time of its rows (µs); FOREVER if nobody asks for it."""


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
    paths = paths_of(folder, name)
    written = write_tables(files, paths, [pa.table(arrays), run.rows.payload.combine_chunks()])
    starts, ends = run.rows.starts, run.rows.ends
    return RunFile(name, len(run), int(starts.min()), int(ends.max()), *written, int(starts.max()))


def paths_of(folder: str, name: str) -> tuple[str, str]:
    """Return the paths of the index and of the rows of a run."""
    return f"{folder}/{name}.index.arrow", f"{folder}/{name}.rows.arrow"


def open_run(
    files: fs.FileSystem, folder: str, file: RunFile, keys: Sequence[int], *, verify: bool = True
) -> SortedRun:
    """Open a run of some key classes (ascending).

    Args:
        files: where it is.
        folder: of runs.
        file: the run.
        keys: its key classes.
        verify: whether its checksum is compared, for which all of it is read. Else only what is
            needed is read, when it is needed, from a local disk.

    Raises:
        OSError: it is not there, or is damaged.
    """
    paths = paths_of(folder, file.name)
    lists, payload = open_tables(files, paths, file.checksum if verify else None)
    parts = {column: lists[column].chunk(0).values.to_numpy() for column in lists.column_names}
    indexes = {}
    for key in keys:
        own = {part: parts[f"{part}_{key}"] for part, _ in _INDEX_PARTS}
        own["entries"] = own["entries"].reshape(-1, 3)
        indexes[key] = Index(**own)
    codes = {key: parts[f"codes_{key}"] for key in keys}
    in_order = next(index for index in indexes.values() if not index.places.size)
    return SortedRun(Rows(codes, in_order.starts, in_order.ends, payload), indexes)


def _as_list(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    offsets = pa.array([0, values.size], pa.int64())
    flat = pa.array(np.ascontiguousarray(values), kind)
    return pa.LargeListArray.from_arrays(offsets, flat)


def write_tables(
    files: fs.FileSystem, paths: Sequence[str], tables: Sequence[pa.Table]
) -> tuple[int, int]:
    """Write tables as one file each.

    Returns:
        The size of all files (bytes), and their checksum.

    Raises:
        OSError: they cannot be written.
    """
    for path, table in zip(paths, tables, strict=True):
        with files.open_output_stream(path) as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    buffers = [_buffer(files, path) for path in paths]
    return sum(each.size for each in buffers), checksum_of(buffers)


def open_tables(files: fs.FileSystem, paths: Sequence[str], checksum: int | None) -> list[pa.Table]:
    """Open tables that were written; on a local disk they are mapped into memory.

    Args:
        files: where they are.
        paths: of the tables.
        checksum: as it was when they were written; None if nothing is compared.

    Raises:
        OSError: they are not there, or are damaged.
    """
    try:
        buffers = [_buffer(files, path) for path in paths]
        if checksum is None or checksum_of(buffers) == checksum:
            return [pa.ipc.open_file(each).read_all() for each in buffers]
    except pa.ArrowInvalid as error:
        msg = f"{paths[0]} is damaged: {error}"
        raise OSError(msg) from error
    msg = f"{' or '.join(paths)} is damaged: it is not what was written"
    raise OSError(msg)


def checksum_of(buffers: Sequence[pa.Buffer]) -> int:
    """Return the CRC-32 of the sums of all pages, the last bytes of each buffer as they are.

    A sum is four times as fast as CRC-32, and misses no more than words that change places in one
    page, or changes that cancel out.
    """
    checksum = 0
    for each in buffers:
        whole = each.size // (8 * PAGE_WORDS) * 8 * PAGE_WORDS
        pages = np.frombuffer(each, np.uint64, whole // 8).reshape(-1, PAGE_WORDS)
        checksum = zlib.crc32(pages.sum(axis=1), checksum)
        checksum = zlib.crc32(each.slice(whole), checksum)
    return checksum


def _buffer(files: fs.FileSystem, path: str) -> pa.Buffer:
    """Return the content of a file, mapped into memory if it is local."""
    with pa.memory_map(path) if is_local(files) else files.open_input_file(path) as source:
        return source.read_buffer()

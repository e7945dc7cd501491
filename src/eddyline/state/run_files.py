"""Files of state, which never change once they are written.

A write takes rows and returns a ``RunFile``: name, number of rows, times, size and checksum. State
names files by these descriptions. Each file has a new name and one writer, and it counts once a
manifest names it.

* *Sorted runs* are two Arrow IPC files. ``<name>.rows.arrow`` has the payload, a row each.
  ``<name>.index.arrow`` has one row of lists: for each key class the codes in the order of the
  rows, and the arrays of its index. The index that is in the order of the rows has their starts and
  ends.
* *Rows without an index* are one file, ``<name>.held.arrow``, sorted by event time if not
  otherwise.

Local files are mapped into memory. A process compares the checksum of a file when it opens it for
the first time, unless it wrote the file itself. Mapping costs a system call for each file, and the
first look at each page a page fault: with large windows more than all look-ups. So ``MAPPED`` keeps
runs mapped from one batch to the next, and ``ReadFiles`` keeps what was read of other files. Both
are caches only.
"""

from __future__ import annotations

import os
import threading
import uuid
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa

from eddyline.data.arrays import whole
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
        arrays[f"codes_{key}"] = as_list(codes, pa.int64())
        index = run.index(key)
        for part, kind in _INDEX_PARTS:
            arrays[f"{part}_{key}"] = as_list(getattr(index, part).reshape(-1), kind)
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
        arrays = {part: parts[f"{part}_{key}"] for part, _ in _INDEX_PARTS}
        arrays["entries"] = arrays["entries"].reshape(-1, 3)
        indexes[key] = Index(**arrays)
    codes = {key: parts[f"codes_{key}"] for key in keys}
    in_order = next(index for index in indexes.values() if not index.places.size)
    return SortedRun(Rows(codes, in_order.starts, in_order.ends, payload), indexes)


def as_list(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return values as one list of a column with one row."""
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
    return sum(buffer.size for buffer in buffers), checksum_of(buffers)


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
            return [pa.ipc.open_file(buffer).read_all() for buffer in buffers]
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
    for buffer in buffers:
        whole = buffer.size // (8 * PAGE_WORDS) * 8 * PAGE_WORDS
        pages = np.frombuffer(buffer, np.uint64, whole // 8).reshape(-1, PAGE_WORDS)
        checksum = zlib.crc32(pages.sum(axis=1), checksum)
        checksum = zlib.crc32(buffer.slice(whole), checksum)
    return checksum


def _buffer(files: fs.FileSystem, path: str) -> pa.Buffer:
    """Return the content of a file, mapped into memory if it is local."""
    with pa.memory_map(path) if is_local(files) else files.open_input_file(path) as source:
        return source.read_buffer()


MOST_RUNS = 4_096
"""Runs that a process keeps mapped, two files each: far below the 65,530 mappings that Linux allows
a process."""

NEW_SHARE = 1 / 8
"""New runs, as a share of those that are mapped, after which those that are gone are looked for."""

Stamp = tuple[tuple[int, int, int, int], ...]
"""Device, inode, size and time of the last change (ns) of each of some files."""


class MappedRuns:
    """Runs by folder, name and key classes, the one that was used last at the end."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str, tuple[int, ...]], tuple[Stamp, SortedRun]] = {}
        self._own: dict[str, Stamp] = {}
        """Runs that this process wrote and has not mapped yet."""
        self._n_new = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def write(self, files: fs.FileSystem, folder: str, run: SortedRun) -> RunFile:
        """Write a run under a new name; see ``run_files.write_run``."""
        written = write_run(files, folder, uuid.uuid4().hex, run)
        with self._lock:
            if len(self._own) >= MOST_RUNS:
                self._own.clear()
            paths = paths_of(folder, written.name)
            self._own[written.name] = _stamp_of(*paths) if is_local(files) else ()
        return written

    def run(
        self, files: fs.FileSystem, folder: str, file: RunFile, keys: Sequence[int]
    ) -> SortedRun:
        """Return a run, mapped before or now; see ``run_files.open_run``.

        Raises:
            OSError: it is not there, or is damaged.
        """
        # Elsewhere a file that is mapped cannot be removed; and what is not mapped takes memory.
        if os.name != "posix" or not is_local(files):
            return open_run(files, folder, file, keys)
        which = folder, file.name, tuple(keys)
        stamp = _stamp_of(*paths_of(folder, file.name))
        with self._lock:
            kept = self._runs.pop(which, None)
            if kept is not None and kept[0] == stamp:
                self._runs[which] = kept
                return kept[1]
            verify = self._own.pop(file.name, None) != stamp
        run = open_run(files, folder, file, keys, verify=verify)
        with self._lock:
            self._n_new += 1
            if self._n_new > len(self._runs) * NEW_SHARE or len(self._runs) >= MOST_RUNS:
                self._drop(folder)
                self._n_new = 0
            self._runs[which] = stamp, run
        return run

    def _drop(self, folder: str) -> None:
        """Let go of runs that are not there any more, whose room on disk is free only then."""
        gone = [
            which
            for which in self._runs
            if which[0] == folder and not os.path.exists(paths_of(folder, which[1])[0])
        ]
        oldest = list(self._runs)[: max(0, len(self._runs) - MOST_RUNS + 1)]
        for which in {*gone, *oldest}:
            del self._runs[which]


MAPPED = MappedRuns()
"""Those of this process."""


def _stamp_of(*paths: str) -> Stamp:
    stats = map(os.stat, paths)
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


_START, _END, _PASSES, _CODE = "\0start", "\0end", "\0passes", "\0code"

MOST_READ_BYTES = 256 * 2**20
"""Size of the files of one kind whose contents a process keeps: filters of 128 million cold rows
with one key, or slices of dropped rows."""

MOST_VERIFIED = 4_096
"""Files of which a process remembers that it has compared their checksums."""

_verified: dict[str, Stamp] = {}
"""Those of local files, by path."""


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
    is_known = is_local(files) and _verified.get(path) == _stamp_of(path)
    (table,) = open_tables(files, [path], None if is_known else file.checksum)
    _remember(files, path)
    columns = {
        name: whole(table[name]).to_numpy(zero_copy_only=False)
        for name in table.column_names
        if name in (_START, _END, _PASSES) or name.startswith(_CODE)
    }
    codes = {
        int(name.removeprefix(_CODE)): values
        for name, values in columns.items()
        if name.startswith(_CODE)
    }
    payload = table.drop_columns(list(columns))
    return Rows(codes, columns[_START], columns[_END], payload, columns.get(_PASSES))


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
    _verified[path] = _stamp_of(path)


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.held.arrow"


ContentT = TypeVar("ContentT")

Which = tuple[str, int]
"""The path of a file, and its checksum; a name is never used twice."""


class ReadFiles(Generic[ContentT]):
    """The contents of files, those that were used last at the end.

    Args:
        most_bytes: size of the files that are kept.
    """

    def __init__(self, most_bytes: int = MOST_READ_BYTES) -> None:
        self._most_bytes = most_bytes
        self._read: OrderedDict[Which, tuple[int, ContentT]] = OrderedDict()
        """With the size of each file."""
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get(self, which: Which) -> ContentT | None:
        """Return the content of a file; None if it is not kept."""
        with self._lock:
            if which not in self._read:
                return None
            self._read.move_to_end(which)
            return self._read[which][1]

    def keep(self, which: Which, n_bytes: int, content: ContentT) -> None:
        """Keep the content of a file of a size, and let go of those used longest ago."""
        with self._lock:
            if which in self._read:
                return
            self._read[which] = n_bytes, content
            self._n_bytes += n_bytes
            while self._n_bytes > self._most_bytes and len(self._read) > 1:
                self._n_bytes -= self._read.popitem(last=False)[1][0]

"""Cold runs: runs that are hardly asked for, each with filters of its keys in a file beside it."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.state.key_filters import Filters, KeyFilter
from eddyline.state.run_files import open_tables, write_tables

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile

MOST_READ = 1_024
"""Runs whose filters a process keeps."""


def with_filters(run: SortedRun, filters: Filters) -> SortedRun:
    """Return a run that is asked for what its filters let through."""
    return replace(run, filters=filters)


def write_filters(files: fs.FileSystem, folder: str, run: RunFile, rows: SortedRun) -> RunFile:
    """Write the filters of a run beside it, in the same folder.

    Returns:
        What state names beside the run.

    Raises:
        OSError: they cannot be written.
    """
    columns: dict[str, pa.Array] = {}
    for key, codes in rows.rows.codes.items():
        own = KeyFilter.of(codes)
        zone = np.array([own.lowest, own.highest], np.int64)
        columns[f"words_{key}"] = _as_list(own.words)
        columns[f"zone_{key}"] = _as_list(zone)
    name = f"{run.name}-{uuid.uuid4().hex}"
    n_bytes, checksum = write_tables(files, [_path(folder, name)], [pa.table(columns)])
    return replace(run, name=name, n_bytes=n_bytes, checksum=checksum)


_read: OrderedDict[tuple[str, int], Filters] = OrderedDict()
"""Filters that this process has read, by path and checksum; a name is never used twice."""


def read_filters(files: fs.FileSystem, folder: str, file: RunFile) -> Filters:
    """Return the filters that ``write_filters`` wrote; a process reads them once.

    Raises:
        OSError: they cannot be read.
    """
    which = _path(folder, file.name), file.checksum
    if which in _read:
        return _read[which]
    (table,) = open_tables(files, [which[0]], file.checksum)
    parts = {name: table[name].chunk(0).values.to_numpy() for name in table.column_names}
    keys = [int(name.removeprefix("words_")) for name in parts if name.startswith("words_")]
    found = {key: KeyFilter(parts[f"words_{key}"], *map(int, parts[f"zone_{key}"])) for key in keys}
    while len(_read) >= MOST_READ:
        _read.popitem(last=False)
    _read[which] = found
    return found


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.filter.arrow"


def _as_list(values: NDArray[np.generic]) -> pa.Array:
    offsets = pa.array([0, values.size], pa.int64())
    return pa.LargeListArray.from_arrays(offsets, pa.array(values))

"""Runs of rows whose ends come to be known later than the rows are written.

A run stays as it was written. Once ends of its rows are known, they are written as a file of their
own beside it, and hide those that the run has.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.data.jit import compiled
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import RunFile, open_tables, write_tables
from eddyline.state.run_index import Index

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyarrow import fs

_ENDS = "ends"


def with_ends(run: SortedRun, ends: NDArray[np.int64]) -> SortedRun:
    """Return a run with other ends (µs).

    Ends need not ascend with starts, as those of groups do not: so indexes get bounds that do.
    """
    rows = run.rows
    indexes = {}
    for key in rows.codes:
        index = run.index(key)
        own = ends[index.places] if index.places.size else ends
        entries = index.entries.copy()
        entries[:, 2] = own
        bounds = bounds_of(index.hashes, own)
        indexes[key] = Index(index.tags, entries, index.directory, index.places, bounds)
    return SortedRun(Rows(rows.codes, rows.starts, ends, rows.payload), indexes)


def run_of(rows: Rows) -> SortedRun:
    """Return the run of rows whose ends may be in any order."""
    run = SortedRun.of(rows)
    return with_ends(run, run.rows.ends)


def write_ends(
    files: fs.FileSystem, folder: str, run: RunFile, ends: NDArray[np.int64]
) -> tuple[RunFile, RunFile]:
    """Write the ends (µs) of the rows of a run that has been written to the same folder.

    Returns:
        What the manifest says of the run now, and of its ends.

    Raises:
        OSError: they cannot be written.
    """
    name = f"{run.name}-{uuid.uuid4().hex}"
    path = f"{folder}/{name}.ends.arrow"
    n_bytes, checksum = write_tables(files, [path], [pa.table({_ENDS: pa.array(ends)})])
    now = replace(run, last_end=int(ends.max()))
    return now, replace(now, name=name, n_bytes=n_bytes, checksum=checksum)


def read_ends(files: fs.FileSystem, folder: str, file: RunFile) -> NDArray[np.int64]:
    """Return the ends of a run (µs).

    Raises:
        OSError: they cannot be read.
    """
    (table,) = open_tables(files, [f"{folder}/{file.name}.ends.arrow"], file.checksum)
    ends: NDArray[np.int64] = table[_ENDS].to_numpy()
    return ends


def run_with(file: RunFile) -> str:
    """Return the name of the run that a file of ends belongs to."""
    return file.name.partition("-")[0]


@compiled
def bounds_of(hashes: NDArray[np.uint64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each entry of an index the latest end of it and those before it with its hash.

    Hashes ascend, and ends are in any order (µs).
    """
    found = np.empty(ends.size, np.int64)
    for entry in range(ends.size):
        end = ends[entry]
        if entry > 0 and hashes[entry] == hashes[entry - 1]:
            end = max(end, found[entry - 1])
        found[entry] = end
    return found

"""Rows that came too late to be joined: kept beside the window state, so that none is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from eddyline.data.durable_files import sync_files
from eddyline.state.place import names_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from eddyline.state.place import StatePlace
    from eddyline.state.rows import KeyColumn, Rows

TIME = "_time"
"""The column that holds the event time of a late row."""


def write_late(
    place: StatePlace,
    batch_id: int,
    bucket: int,
    name: str,
    rows: Rows,
    keys: Sequence[KeyColumn] = (),
) -> str:
    """Write late rows of an input as one parquet file, and return its name.

    An earlier attempt of the same batch is replaced. Columns that codes say are written as well.

    Raises:
        OSError: it cannot be written.
    """
    file = f"{batch_id:08d}-{bucket:05d}-{quote(name, safe='')}.parquet"
    columns = [*rows.payload.columns, *(key.values(rows.codes) for key in keys)]
    names = [*rows.payload.column_names, *(key.name for key in keys)]
    with place.files.open_output_stream(f"{place.late}/{file}") as out:
        pq.write_table(with_times(pa.table(columns, names=names), rows.starts), out)
    return file


def with_times(payload: pa.Table, starts: NDArray[np.int64]) -> pa.Table:
    """Return rows with their event times (µs) as one more column."""
    times = pa.array(starts, pa.timestamp("us", tz="UTC"))
    return pa.table([*payload.columns, times], names=[*payload.column_names, TIME])


def read_late(place: StatePlace, name: str, until: int) -> pa.Table | None:
    """Return the late rows of an input, by batch; None if there is none.

    Files of batches after ``until`` are of an attempt that failed.

    Raises:
        OSError: they cannot be read.
    """
    tables = []
    for file in sorted(names_in(place.files, place.late)):
        batch_id, _, its_name = file.split("-", 2)
        if its_name == f"{quote(name, safe='')}.parquet" and int(batch_id) <= until:
            with place.files.open_input_file(f"{place.late}/{file}") as source:
                tables.append(pq.read_table(source))
    return pa.concat_tables(tables) if tables else None


def settle_late(place: StatePlace, batch_id: int, written: Collection[str]) -> None:
    """Make the late rows of a batch durable, and remove what only a failed attempt has written.

    Raises:
        OSError: they cannot be flushed or removed.
    """
    for file in names_in(place.files, place.late):
        if int(file.split("-")[0]) >= batch_id and file not in written:
            place.files.delete_file(f"{place.late}/{file}")
    sync_files(place.files, place.late, sorted(written))

"""Late rows, kept beside the window state.

None is lost. A task writes the late rows of an input in a batch as one Parquet file under a new
name, with their event times and the watermark that they were behind. ``settle_late`` makes the
files of a batch durable and removes those that only a failed attempt has written. ``late_rows``
reads them back.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eddyline.data.files import sync_files
from eddyline.errors import StateError
from eddyline.state.manifest import names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import KeyColumn, Rows

TIME = "_time"
"""The column that holds the event time of a late row."""

LOW = b"eddyline.low"
"""Metadata key of a file: the watermark that its rows were behind (µs)."""


def write_late(
    place: StatePlace,
    batch_id: int,
    bucket: int,
    name: str,
    rows: Rows,
    keys: Sequence[KeyColumn] = (),
    low: int | None = None,
) -> str:
    """Write late rows of an input as one parquet file of a new name, and return the name.

    Columns that codes say are written as well. ``low`` is the watermark that the rows were behind
    (µs), or None.

    Raises:
        OSError: it cannot be written.
    """
    columns = [*rows.payload.columns, *(key.values(rows.codes) for key in keys)]
    names = [*rows.payload.column_names, *(key.name for key in keys)]
    table = pa.table(columns, names=names)
    return write_late_table(place, batch_id, bucket, name, table, rows.starts, low)


def write_late_table(
    place: StatePlace,
    batch_id: int,
    bucket: int,
    name: str,
    rows: pa.Table,
    starts: NDArray[np.int64],
    low: int | None = None,
) -> str:
    """Write late rows of an input, with their event times (µs), as ``write_late`` does.

    Raises:
        OSError: it cannot be written.
    """
    file = f"{bucket:05d}-{uuid.uuid4().hex}-{quote(name, safe='')}.parquet"
    folder = _folder(place, batch_id)
    place.files.create_dir(folder, recursive=True)
    table = with_times(rows, starts)
    if low is not None:
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), LOW: str(low)})
    with place.files.open_output_stream(f"{folder}/{file}") as out:
        pq.write_table(table, out)
    return file


def with_times(payload: pa.Table, starts: NDArray[np.int64]) -> pa.Table:
    """Return rows with their event times (µs) as one more column."""
    times = pa.array(starts, pa.timestamp("us", tz="UTC"))
    return pa.table([*payload.columns, times], names=[*payload.column_names, TIME])


def late_rows(
    place: StatePlace,
    name: str,
    until: int,
    schema: Callable[[], pa.Schema],
    *,
    is_local: bool = False,
) -> pa.Table:
    """Return the late rows of an input, by batch, with their event times.

    Args:
        place: where they are.
        name: of the input.
        until: the last batch; files of later ones are of an attempt that failed.
        schema: returns the columns, where there is no row.
        is_local: whether event times are readings of a wall clock, in no time zone.

    Raises:
        StateError: they cannot be read.
    """
    try:
        late = read_late(place, name, until)
    except OSError as error:
        msg = (
            f"late rows cannot be read from {place.late}: {error}; a run without a checkpoint "
            f"removes them when it ends"
        )
        raise StateError(msg, folder=place.late) from error
    if late is None:
        late = with_times(schema().empty_table(), np.empty(0, np.int64))
    if not is_local:
        return late
    place_of_time = late.column_names.index(TIME)
    return late.set_column(place_of_time, TIME, late[TIME].cast(pa.timestamp("us")))


def read_late(place: StatePlace, name: str, until: int) -> pa.Table | None:
    """Return the same; None if there is none.

    Raises:
        OSError: they cannot be read.
    """
    if place.files.get_file_info(place.folder).type.name == "NotFound":
        msg = f"there is no folder {place.folder}"
        raise FileNotFoundError(msg)
    tables = []
    for path in _files(place, name, until):
        with place.files.open_input_file(path) as source:
            tables.append(pq.read_table(source).replace_schema_metadata(None))
    return pa.concat_tables(tables) if tables else None


def late_delays(place: StatePlace, name: str, until: int) -> NDArray[np.int64]:
    """Return how far late rows were behind the watermark (µs, ascending).

    Args:
        place: the durable state.
        name: of the input.
        until: the last batch.

    Raises:
        OSError: a file cannot be read.
    """
    delays = [np.empty(0, np.int64)]
    for path in _files(place, name, until):
        with place.files.open_input_file(path) as source, pq.ParquetFile(source) as file:
            if (low := (file.schema_arrow.metadata or {}).get(LOW)) is not None:
                starts = file.read([TIME])[TIME].cast(pa.int64()).to_numpy()
                delays.append(np.int64(int(low)) - starts)
    return np.sort(np.concatenate(delays))


def _files(place: StatePlace, name: str, until: int) -> Iterator[str]:
    """Yield the files of late rows of an input, by batch."""
    for batch_id in sorted(int(batch) for batch in names_in(place.files, place.late)):
        folder = _folder(place, batch_id)
        for file in sorted(names_in(place.files, folder)) if batch_id <= until else ():
            if file.split("-", 2)[2] == f"{quote(name, safe='')}.parquet":
                yield f"{folder}/{file}"


def settle_late(place: StatePlace, batch_id: int, written: Collection[str]) -> None:
    """Make the late rows of a batch durable, and remove what only a failed attempt has written.

    Raises:
        StateError: they cannot be flushed or removed.
    """
    folder = _folder(place, batch_id)
    try:
        for file in names_in(place.files, folder):
            if file not in written:
                place.files.delete_file(f"{folder}/{file}")
        if written:
            name = folder.removeprefix(f"{place.late}/")
            files = [name, *(f"{name}/{file}" for file in sorted(written))]
            sync_files(place.files, place.late, files)
    except OSError as error:
        msg = (
            f"late rows of batch {batch_id} cannot be kept in {place.late}: {error}; the batch "
            f"runs again when the query is started anew"
        )
        raise StateError(msg, folder=place.late) from error


def _folder(place: StatePlace, batch_id: int) -> str:
    """Return the folder of the late rows of a batch."""
    return f"{place.late}/{batch_id:08d}"

"""Files of tables with a log, written by tasks: Delta and Iceberg.

A task writes new files beside those of the table, where no reader sees them, and returns their
entries. The driver then commits the entries of all tasks at once. A task with few results returns
them instead, and the driver writes those of all tasks to one file, so a batch has few files.

Workers import this module, so it needs no PySpark.
"""

from __future__ import annotations

import json
import pickle
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from eddyline.errors import EddylineError, SourceError
from eddyline.lane.exchange import packed
from eddyline.lane.results import Held
from eddyline.registry import package
from eddyline.sources import delta, iceberg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eddyline.lane.results import Receipt

FILE_BYTES = 128 << 20
"""Results for which a task writes a file of each partition (bytes in memory)."""

FEW_BYTES = 256 << 10
"""Results that a task returns to the driver instead of writing a file (bytes in memory)."""

CODEC = "zstd"
"""Compression of the files of Delta tables."""

LONGEST = 60
"""Most characters of the value of a partition in the name of its folder."""

FILE, ROWS = b"F", b"R"
"""What a receipt starts with: the entry of a file follows, or an Arrow table."""


class TableFiles(Protocol):
    """Writes rows to new files of a table."""

    def write(self, table: pa.Table) -> Iterator[tuple[Any, int]]:
        """Yield the entry of each file, and its number of rows."""

    def remove(self, entries: Iterable[Any]) -> None:
        """Remove files that nobody has committed."""


class TableWriter:
    """Writes the results of one task; a ``ResultWriter``.

    Args:
        files: writes them to files.
    """

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._held = Held()
        self._has_written = False

    def add(self, table: pa.Table) -> Iterator[Receipt]:
        """Hold results, and write those held if they are many."""
        self._held.add(table)
        if self._held.n_bytes >= FILE_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Receipt]:
        """Write what is held to files."""
        if self._held.n_rows:
            self._has_written = True
            for entry, n_rows in self._files.write(self._held.take()):
                yield FILE + pickle.dumps(entry), n_rows

    def close(self) -> Iterator[Receipt]:
        """Write what is held, or return it if it is little."""
        if self._has_written or self._held.n_bytes > FEW_BYTES:
            yield from self.flush()
        elif self._held.n_rows:
            table = self._held.take()
            yield ROWS + bytes(packed(table.to_batches())), table.num_rows


def parted(receipts: Sequence[bytes]) -> tuple[list[Any], list[pa.Table]]:
    """Return the entries of files in receipts, and the rows in them."""
    entries = [pickle.loads(receipt[1:]) for receipt in receipts if receipt[:1] == FILE]
    tables = [
        pa.ipc.open_stream(receipt[1:]).read_all() for receipt in receipts if receipt[:1] == ROWS
    ]
    return entries, tables


@dataclass(frozen=True, slots=True)
class DeltaEntry:
    """A file that was written for a Delta table; see ``AddAction``."""

    path: str
    size: int
    partition_values: dict[str, str | None]
    stats: str


@dataclass(frozen=True)
class DeltaFiles:
    """Writes rows to Parquet files of a Delta table."""

    root: str
    storage: Mapping[str, str]
    partition_by: tuple[str, ...]
    required: tuple[str, ...] = ()
    """Columns without NULL."""

    def write(self, table: pa.Table) -> Iterator[tuple[DeltaEntry, int]]:
        """Write a file for each partition.

        Raises:
            SourceError: a file cannot be written, or a column has NULL and may not.
        """
        files, root = delta.file_system(self.root, self.storage)
        table = without_null(table, self.required, self.root)
        for values, rows in partitions(table, self.partition_by):
            folder = "".join(f"{_folder(name, value)}/" for name, value in values.items())
            path = f"{folder}part-00000-{uuid.uuid4()}-c000.{CODEC}.parquet"
            with _writing(f"{self.root}/{path}"):
                if root:  # of this machine; other storages have no folders
                    files.create_dir(root + folder, recursive=True)
                with files.open_output_stream(root + path) as opened:
                    parquet.write_table(rows, opened, compression=CODEC, store_schema=False)
                n_bytes = files.get_file_info(root + path).size
            entry = DeltaEntry(path, n_bytes, values, statistics(rows))
            yield entry, rows.num_rows

    def remove(self, entries: Iterable[DeltaEntry]) -> None:
        """Remove files that nobody has committed; vacuum removes those that stay."""
        files, root = delta.file_system(self.root, self.storage)
        for entry in entries:
            with suppress(Exception):
                files.delete_file(root + entry.path)


@dataclass(frozen=True)
class IcebergFiles:
    """Writes rows to the files of an Iceberg table, as ``pyiceberg`` does."""

    properties: Mapping[str, str]
    """Of the storage."""
    metadata: Any
    """Of the table, without its snapshots."""

    def write(self, table: pa.Table) -> Iterator[tuple[Any, int]]:
        """Write a file for each partition.

        Raises:
            SourceError: a file cannot be written, or a column has NULL and may not.
        """
        writing = package("pyiceberg.io.pyarrow", iceberg.NEEDS)
        required = [field.name for field in self.metadata.schema().fields if field.required]
        table = without_null(table, required, self.metadata.location)
        with _writing(self.metadata.location):
            for entry in writing._dataframe_to_data_files(self.metadata, table, self._storage()):
                yield entry, int(entry.record_count)

    def remove(self, entries: Iterable[Any]) -> None:
        """Remove files that nobody has committed."""
        for entry in entries:
            with suppress(Exception):
                self._storage().delete(entry.file_path)

    def _storage(self) -> Any:
        loading = package("pyiceberg.io", iceberg.NEEDS)
        return loading.load_file_io(dict(self.properties), self.metadata.location)


@contextmanager
def _writing(where: str) -> Iterator[None]:
    """Say in an error of the storage which file it is about.

    Raises:
        SourceError: there was one.
    """
    try:
        yield
    except EddylineError:
        raise
    except Exception as error:  # of the storage, of Arrow or of pyiceberg
        msg = (
            f"cannot write results to {where}: {error}; see that the storage has room, and that "
            f"all workers reach it and may write there, then start the query again: nothing is lost"
        )
        raise SourceError(msg, path=where) from error


def without_null(table: pa.Table, required: Sequence[str], where: str) -> pa.Table:
    """Return a table whose required columns say that they have no NULL.

    Raises:
        SourceError: one has.
    """
    for name in required:
        if table[name].null_count:
            msg = f"column {name!r} of the table at {where} takes no NULL, and results have some"
            raise SourceError(msg, column=name)
    fields = [field.with_nullable(field.name not in required) for field in table.schema]
    return table.cast(pa.schema(fields))


def partitions(
    table: pa.Table, names: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each partition without its columns, and the values as the log has them."""
    if not names:
        yield {}, table
        return
    if not table.num_rows:
        return
    codes = np.zeros(table.num_rows, np.int64)
    for name in names:
        encoded = pc.dictionary_encode(table[name].combine_chunks(), null_encoding="encode")
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        numbers = encoded.indices.to_numpy(zero_copy_only=False)
        codes = codes * (len(encoded.dictionary) + 1) + numbers
        _, codes = np.unique(codes, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rest = table.drop_columns([*names])
    for rows in np.split(order, starts[1:]):
        first = int(rows[0])
        values = {name: _value(table[name].slice(first, 1)) for name in names}
        yield values, rest.take(pa.array(rows))


def _value(column: pa.ChunkedArray) -> str | None:
    """Return the one value of a column as the log has it; an empty text is NULL there."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        time = column.cast(pa.timestamp("us", "UTC"))[0].as_py()
        return None if time is None else f"{time.replace(tzinfo=None).isoformat()}Z"
    return pc.cast(column, pa.string())[0].as_py() or None


def _folder(name: str, value: str | None) -> str:
    shown = "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value[:LONGEST], safe="")
    return f"{quote(name, safe='')}={shown}"


def statistics(rows: pa.Table) -> str:
    """Return what Delta's log says of a file: numbers of rows and of NULL, least and greatest.

    Texts and floating-point numbers have no extremes there: long texts would have to be cut, and a
    NaN is no extreme.
    """
    least, greatest, n_null = {}, {}, {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_nested(column.type):
            continue
        n_null[name] = column.null_count
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            continue
        extremes = pc.min_max(column).as_py()
        if extremes["min"] is not None:
            least[name], greatest[name] = map(_as_json, (extremes["min"], extremes["max"]))
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": n_null,
        }
    )


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else "Z"
        return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}{zone}"
    return value.isoformat() if isinstance(value, date) else value


def newest_rows(
    table: pa.Table, keys: Sequence[str], newest_by: str | None, where: str
) -> pa.Table:
    """Return one row of each key: the one with the greatest value of a column.

    Args:
        table: the rows.
        keys: the columns of the key.
        newest_by: the column; None: each key has one row.
        where: the table that they are for, as errors call it.

    Raises:
        SourceError: a key has several rows, and there is no such column.
    """
    numbered = table.select([*keys]).append_column("__row", pa.array(np.arange(table.num_rows)))
    if newest_by is not None:
        values = table[newest_by]
        ordered = pa.table({"is_there": pc.is_valid(values), "value": values})
        keys_of_order = [("is_there", "ascending"), ("value", "ascending")]
        order = pc.sort_indices(ordered, keys_of_order)
        numbered = numbered.take(order)
        numbered = numbered.append_column("__place", pa.array(np.arange(table.num_rows)))
        last = numbered.group_by([*keys], use_threads=False).aggregate([("__place", "max")])
        places = pc.sort_indices(last["__place_max"])
        return table.take(numbered["__row"].take(last["__place_max"].take(places)))
    firsts = numbered.group_by([*keys], use_threads=False).aggregate([("__row", "count")])
    if firsts.num_rows < table.num_rows:
        many = firsts.filter(pc.greater(firsts["__row_count"], 1)).slice(0, 1).to_pylist()[0]
        n_rows = many.pop("__row_count")
        shown = ", ".join(f"{name}={value!r}" for name, value in many.items())
        msg = (
            f"a batch has {n_rows} results with the key {shown} for {where}; say by newest_by= "
            f"which column tells the newest of them"
        )
        raise SourceError(msg, key=many)
    return table

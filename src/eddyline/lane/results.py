"""Results of tasks that do not pass through Spark.

The results of a task are Arrow tables. A *step* of each operator behind the task picks the output
columns. A ``ResultWriter``, which the sink chooses, then writes the tables to a file or packs them.
It returns *receipts*: a file name or a blob, and how many rows that stands for. Only receipts go to
the driver, which gives them to the sink.

Workers import this module, so it needs neither PySpark nor an operator.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from eddyline.errors import SourceError
from eddyline.lane.exchange import BLOB_BYTES, HELD_BYTES, binary_of, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.lane.expressions import Values

Receipt = tuple[bytes, int]
"""A file name or a blob, and its number of rows."""

GROUP_ROWS, GROUP_BYTES = 1 << 20, 64 << 20
"""A task writes a row group when it holds so many rows or bytes."""


# -- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picked:
    """Output columns that are picked from the input or computed, without Spark."""

    columns: tuple[Values, ...]
    """What makes each column."""
    schema: pa.Schema
    """The output columns."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the output columns of a table."""
        columns = []
        for values, field in zip(self.columns, self.schema, strict=True):
            column = values.over(table)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class Kept:
    """The rows for which all of some conditions are true."""

    conditions: tuple[Values, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return these rows of a table."""
        truths = [
            pc.fill_null(condition.over(table), fill_value=False) for condition in self.conditions
        ]
        return table.filter(reduce(pc.and_, truths))


def with_places(place: str, places: str, table: pa.Table) -> pa.Table:
    """Return a table whose column of places has a list of one for each row.

    Args:
        place: the column of the one query that a row belongs to.
        places: the column of the lists, which takes its place.
        table: the rows.
    """
    column = table[place].combine_chunks()
    offsets = np.arange(len(column) + 1, dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), column)
    return table.drop_columns([place]).append_column(places, lists)


def rows_by_place(lists: pa.ChunkedArray) -> dict[int, Any]:
    """Return the rows of each place, ascending, by the places of each row."""
    whole = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    places = whole.flatten().to_numpy(zero_copy_only=False)
    sizes = np.diff(whole.offsets.to_numpy(zero_copy_only=False)) if len(whole) else []
    rows = np.repeat(np.arange(len(whole)), sizes)
    order = np.argsort(places, kind="stable")
    distinct, starts = np.unique(places[order], return_index=True)
    # What lies before the first start is nothing, but there where no row has a place.
    return dict(zip(distinct.tolist(), np.split(rows[order], starts)[1:], strict=True))


# -- writers --------------------------------------------------------------------------------------


class ResultWriter(Protocol):
    """Takes the results of one task, in the worker."""

    def add(self, table: pa.Table) -> Iterator[Receipt]:
        """Take some results; yields the receipts of those that are done."""

    def flush(self) -> Iterator[Receipt]:
        """Let go of all results that are held in memory."""

    def close(self) -> Iterator[Receipt]:
        """Finish; yields the last receipts."""


class Held:
    """Results in memory.

    A slice keeps the whole block that it is of. Results that keep twice their bytes are copied.
    """

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.n_rows = self.n_bytes = 0

    def add(self, table: pa.Table) -> None:
        """Hold a table."""
        if table.get_total_buffer_size() > 2 * table.nbytes:
            table = table.take(pa.array(np.arange(table.num_rows)))
        self._tables.append(table)
        self.n_rows += table.num_rows
        self.n_bytes += table.nbytes

    def take(self) -> pa.Table:
        """Return all of them as one table, and hold them no longer."""
        tables, self._tables = self._tables, []
        self.n_rows = self.n_bytes = 0
        return pa.concat_tables(tables)


class BlobWriter:
    """Packs results as blobs: Arrow tables in the IPC format."""

    def __init__(self) -> None:
        self._held = Held()

    def add(self, table: pa.Table) -> Iterator[Receipt]:
        """Hold results, and pack those held if they are many."""
        self._held.add(table)
        if self._held.n_bytes >= BLOB_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Receipt]:
        """Pack what is held."""
        if self._held.n_rows:
            table = self._held.take()
            yield packed(table.to_batches()), table.num_rows

    close = flush


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet files, written by Arrow, that hold what Spark would write."""

    codec: str
    """Their compression, as Arrow calls it."""
    suffix: str
    """The end of their names."""
    is_int96: bool
    """Whether instants are of the type INT96."""
    says: Mapping[str, str]
    """Key-value metadata of the files."""

    def write(self, table: pa.Table, file: Any) -> None:
        """Write the rows of a table to an open file."""
        with self.writer(file, table.schema) as writer:
            writer.write_table(table)

    def writer(self, file: Any, schema: pa.Schema) -> pq.ParquetWriter:
        """Return what writes tables of a schema to a file: its path, or open."""
        writer = pq.ParquetWriter(
            file,
            schema,
            compression=self.codec,
            use_deprecated_int96_timestamps=self.is_int96,
            store_decimal_as_integer=True,
            store_schema=False,
        )
        writer.add_key_value_metadata(self.says)
        return writer


class FileWriter:
    """Writes the results of one task to a Parquet file of its own.

    The name of the file is new, because Spark may run a task several times, even at once.

    Args:
        folder: of the file, which is made with the first results.
        parquet: how it is written.
        partition: number of the task, by which the files of a batch are in order.
    """

    def __init__(self, folder: str, parquet: Parquet, partition: int = 0) -> None:
        self._name = f"part-{partition:05d}-{uuid.uuid4().hex}.{parquet.suffix}"
        self._path = f"{folder}/{self._name}"
        self._parquet = parquet
        self._held = Held()
        self._n_rows = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> Iterator[Receipt]:
        """Hold results, and write those held if they are many."""
        self._held.add(table)
        if self._held.n_rows >= GROUP_ROWS or self._held.n_bytes >= GROUP_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Receipt]:
        """Write what is held as a row group."""
        if self._held.n_rows:
            table = self._held.take()
            with self._naming_file():
                if self._writer is None:
                    self._writer = self._parquet.writer(self._path, table.schema)
                self._writer.write_table(table, table.num_rows)
            self._n_rows += table.num_rows
        yield from ()

    def close(self) -> Iterator[Receipt]:
        """Write what is held; yields the name of the file if there is one."""
        yield from self.flush()
        if self._writer is not None:
            with self._naming_file():
                self._writer.close()
            yield self._name.encode(), self._n_rows

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Say in an error of the file system which file it is about.

        Raises:
            SourceError: there was one.
        """
        try:
            yield
        except OSError as error:
            msg = (
                f"a task cannot write results to {self._path}: {error}; see that the disk has "
                f"room, and that all workers reach the folder and may write there, then start the "
                f"query again: nothing is lost"
            )
            raise SourceError(msg, path=self._path) from error


PLACE_BYTES = 4
"""Bytes of the place of a query, which stand before its receipts."""


class WriterPerQuery:
    """Gives each query its part of the results of a task.

    Args:
        queries: by place, the output columns of a query and what makes its writer.
        places: the column of the places that a row belongs to.
    """

    def __init__(
        self, queries: Mapping[int, tuple[Picked, Callable[[], ResultWriter]]], places: str
    ) -> None:
        self._queries = queries
        self._places = places
        self._writers: dict[int, ResultWriter] = {}
        self._n_held = 0

    def add(self, table: pa.Table) -> Iterator[Receipt]:
        """Hand the rows of each query to its writer."""
        rows_of_queries = rows_by_place(table[self._places])
        table = table.drop_columns([self._places])
        for place, numbers in rows_of_queries.items():
            if place not in self._queries:
                continue  # of a query that was stopped
            picked, make_writer = self._queries[place]
            if place not in self._writers:
                self._writers[place] = make_writer()
            rows = picked(table.take(pa.array(numbers)))
            self._n_held += rows.nbytes
            yield from _marked(place, self._writers[place].add(rows))
        if self._n_held >= HELD_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[Receipt]:
        """Let all writers go of what they hold."""
        self._n_held = 0
        for place, writer in self._writers.items():
            yield from _marked(place, writer.flush())

    def close(self) -> Iterator[Receipt]:
        """Finish all writers."""
        for place, writer in self._writers.items():
            yield from _marked(place, writer.close())


def _marked(place: int, receipts: Iterator[Receipt]) -> Iterator[Receipt]:
    mark = place.to_bytes(PLACE_BYTES)
    return ((mark + bytes(what), n_rows) for what, n_rows in receipts)


def by_place(receipts: list[Receipt]) -> dict[int, list[Receipt]]:
    """Return the receipts of each query, by its place."""
    by_query: dict[int, list[Receipt]] = {}
    for what, n_rows in receipts:
        place = int.from_bytes(what[:PLACE_BYTES])
        by_query.setdefault(place, []).append((what[PLACE_BYTES:], n_rows))
    return by_query


# -- the work of a task ---------------------------------------------------------------------------

RECEIPT, N_ROWS = "__receipt", "__n_rows"
"""The columns of receipts."""


@dataclass(frozen=True)
class WrittenByTasks:
    """The work of tasks whose results go to a writer."""

    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    """Yields results, and a report of the task in a batch of its own."""
    report_columns: tuple[str, ...]
    """The columns that are not results. The first has the report."""
    steps: tuple[Callable[[pa.Table], pa.Table], ...]
    """What is done with results, in this order."""
    schema: pa.Schema
    """Of the results after all steps."""
    make_writer: Callable[[], ResultWriter]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the report of a task and the receipts for its results, each as a row."""
        writer = self.make_writer()
        for batch in self.work(batches):
            report = batch.column(self.report_columns[0])
            if report.null_count < len(report):
                assert len(report) == 1, "a report is in a batch of its own"
                yield self._row(report.cast(pa.binary()), None, None)
                continue
            table = pa.Table.from_batches([batch]).drop_columns([*self.report_columns])
            for step in self.steps:
                table = step(table)
            if table.num_rows:
                for what, n_rows in writer.add(table.cast(self.schema)):
                    yield self._row(pa.nulls(1, pa.binary()), what, n_rows)
        for what, n_rows in writer.close():
            yield self._row(pa.nulls(1, pa.binary()), what, n_rows)

    def _row(self, report: pa.Array, receipt: Any, n_rows: int | None) -> pa.RecordBatch:
        columns = [report, binary_of(receipt), pa.array([n_rows], pa.int64())]
        return pa.RecordBatch.from_arrays(columns, [self.report_columns[0], RECEIPT, N_ROWS])

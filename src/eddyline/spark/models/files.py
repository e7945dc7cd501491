"""Lane of models: fits over rows that tasks read from files.

It serves streams and batches. ``FileModelRows`` reads keys, time and attributes, and sends rows to
the buckets of their entities, as ``lane.exchange`` says. On a stream ``ModelOperator`` lets its
buckets answer them. Over a batch DataFrame ``segments_of_files`` fits them: a task puts the rows of
its bucket in order itself, where Spark would shuffle and sort them.

A fit may be read so if its keys are plain columns of types that tasks hash as Spark does, and its
attributes columns of numbers. Spark computes positions on the earth and declared models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.hashes import KINDS, add_hash, seeds, whole_numbers
from eddyline.lane.exchange import BLOBS, BUCKET, FileBuckets, columns_to_read, unpacked
from eddyline.models.entities.kept import CODE
from eddyline.models.fitting.fit import Fit
from eddyline.models.segments import BLOCK_ROWS, entity_numbers, micros_of
from eddyline.query.predicates import SqlPredicate
from eddyline.spark.arrow_tasks import map_batches
from eddyline.spark.bucketed import shuffled
from eddyline.spark.lane import Lane, Refused, read_by_tasks
from eddyline.spark.operator import Batch
from eddyline.spark.row_tests import row_test
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eddyline.data.arrays import Ints
    from eddyline.lane.exchange import Condition
    from eddyline.models.fitting.declared import Declared
    from eddyline.spark.lane import ListedScan, PlainScan

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
"""Types of attributes that tasks cast to double as Spark does."""

MOST_SORTED, MOST_SORTED_BYTES = 10_000_000, 1 << 30
"""Rows of a batch DataFrame, and bytes of the columns that are read, up to which tasks sort them. A
task holds the rows of its entities twice, and these may be all rows. Of more of them Spark sorts
them, on disk where memory is short."""

BUCKET_ROWS = 500_000
"""Rows of a batch DataFrame for each task that fits some, on average."""


def fit_of(maker: Any) -> Fit:
    """Return how rows of files become segments.

    Raises:
        Refused: Spark computes what is modelled.
    """
    if not isinstance(maker, Fit):
        raise Refused("Spark computes the coefficients of equations")
    if maker.places:
        raise Refused("Spark computes positions on the earth")
    return maker


def columns_of(how: Fit) -> tuple[str, ...]:
    """Return the columns that are read of rows."""
    return (*dict.fromkeys((*how.keys, how.time, *how.columns)),)


def check_columns(how: Fit, scan: PlainScan) -> None:
    """Raise Refused if rows have values that tasks do not hash or cast as Spark does."""
    types = {column.name: column.type_text for column in scan.columns}
    if taken := {BUCKET, CODE} & types.keys():
        raise Refused(f"{min(taken)!r} is the name of a temporary column")
    for names, readable in (((*how.keys, how.time), KINDS), (how.columns, NUMBERS)):
        for name in names:
            if types.get(name) not in readable:
                raise Refused(f"tasks do not read {name!r}, which is of type {types.get(name)}")


@dataclass(frozen=True)
class FileModelRows(FileBuckets):
    """Reads rows that models are made of, and sends them to the buckets of their entities."""

    keys: tuple[str, ...]
    """The columns that say the entity."""
    together: tuple[str, ...]
    """Those of which all entities that have them in common are in one bucket."""
    attributes: tuple[str, ...]
    """The columns that are modelled, which are numbers."""
    since: int | None
    """The time before which rows are late (µs); None if none is."""

    def bucketed(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that have a time and are not late, with the code of their entity."""
        return filter(len, map(self._sent, blocks))

    def _sent(self, block: tuple[pa.Array, ...]) -> pa.RecordBatch:
        columns = dict(zip(self.handed, block, strict=True))
        keep = pc.is_valid(columns[self.time])
        if self.since is not None:
            keep = pc.and_(keep, pa.array(whole_numbers(columns[self.time]) >= self.since))
        if not pc.all(keep).as_py():
            columns = {name: column.filter(keep) for name, column in columns.items()}
        n = len(columns[self.time])
        sent = {name: columns[name] for name in (*self.keys, self.time)}
        for name in self.attributes:
            # As Spark casts: a whole number becomes the nearest double.
            sent[name] = columns[name].cast(pa.float64(), safe=False)
        code = groups = self._hashed(columns, self.keys, n)
        if self.together != self.keys:
            groups = self._hashed(columns, self.together, n)
        buckets = groups % self.n_buckets
        return pa.RecordBatch.from_pydict(
            {**sent, CODE: code, BUCKET: pa.array(buckets.astype(np.int32))}
        )

    def _hashed(self, columns: dict[str, pa.Array], names: tuple[str, ...], n_rows: int) -> Ints:
        """Return the ``xxhash64`` of some columns of each row; 0 without any ((N,))."""
        if not names:
            return np.zeros(n_rows, np.int64)
        hashes = seeds(n_rows)
        for name in names:
            add_hash(hashes, columns[name])
        return hashes


def file_rows(
    files: ListedScan,
    how: Fit,
    n_buckets: int,
    *,
    together: tuple[str, ...],
    where: Condition | None = None,
    since: int | None = None,
) -> FileModelRows:
    """Return what reads the rows of files; arguments as of ``FileModelRows``."""
    return FileModelRows(
        **files.reading(columns_of(how)),
        n_buckets=n_buckets,
        most_rows=None,
        time=how.time,
        spans=False,
        where=where,
        keys=how.keys,
        together=together,
        attributes=(*how.columns,),
        since=since,
    )


# -- batch rows -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FitOfFiles:
    """A fit of a batch DataFrame whose files tasks may read."""

    how: Fit | Declared
    lane: str
    """The option of that name."""
    conditions: tuple[str, ...] = ()
    """On the rows that are fitted, as SQL."""

    def check_may_read(self) -> None:
        """Raise Refused if tasks may not read files, whatever the input is."""
        fit_of(self.how)

    def check_fits(self, scan: PlainScan) -> None:
        """Raise Refused if rows have values that tasks do not hash or cast as Spark does."""
        check_columns(fit_of(self.how), scan)

    def rows_to_read(self, df: DataFrame) -> FileModelRows | None:
        """Return what reads the files of the DataFrame; None if Spark is to read them."""
        if self.lane == "off":
            return None
        try:
            how = fit_of(self.how)
            where = row_test(df, [*map(SqlPredicate, self.conditions)])
        except Refused:
            return None
        lane = Lane(self, "lane", self.lane, is_adaptive=False, keeps_rows=False)
        rows = df.select(*map(quoted, columns_to_read(columns_of(how), where)))
        files = lane.files(rows, Batch(), keeps_plan=False)
        if files is None:
            return None
        n_rows, n_bytes = files.size
        if n_rows > MOST_SORTED or n_bytes > MOST_SORTED_BYTES:
            return None
        n_tasks = max(len(files.tasks), -(-n_rows // BUCKET_ROWS)) if how.keys else 1
        return file_rows(files, how, n_tasks, together=how.keys, where=where)


def segments_of_files(
    spark: SparkSession,
    reading: FileModelRows,
    solve: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Return what a task makes of the rows of its entities, which come by entity and time."""
    sent = read_by_tasks(spark, len(reading.tasks), reading.blobs, BLOBS, is_sized=False)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return solve(iter(rows_of_entities(batches, reading.keys, reading.time)))

    return map_batches(shuffled(sent, reading.n_buckets), task, schema)


def rows_of_entities(
    sent: Iterable[pa.RecordBatch], keys: Sequence[str], time: str
) -> list[pa.RecordBatch]:
    """Return the rows of blobs by entity and time."""
    rows = [*unpacked(sent)]
    if not rows:
        return []
    table = pa.Table.from_batches(rows).drop_columns([BUCKET, CODE]).combine_chunks()
    del rows  # and with them the blobs
    order = _by_entity_and_time(entity_numbers(table, keys), micros_of(table.column(time)))
    batches: list[pa.RecordBatch] = table.take(pa.array(order)).to_batches(BLOCK_ROWS)
    return batches


def _by_entity_and_time(entities: Ints, times: Ints) -> Ints:
    """Return the order of rows by entity and time, given both ((N,)).

    Files mostly have the rows of an entity in the order of time. Then one sort will do, and that of
    short numbers takes a time that grows with the rows alone.
    """
    short = entities.astype(np.uint16) if entities.max(initial=0) < 1 << 16 else entities
    order = np.argsort(short, kind="stable")
    is_same = np.diff(entities[order]) == 0
    if (np.diff(times[order])[is_same] < 0).any():
        order = np.lexsort((times, entities))
    return order

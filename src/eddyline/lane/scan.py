"""Columns of Parquet files as Spark reads them, in footers and tasks.

``refusal`` looks at a footer and says why a column would not be what Spark reads; empty if it is.
It compares the types that the file declares, never those that an Arrow writer left as a hint. What
is not plainly the same is refused: unsigned integers, nanoseconds, nested values, narrower types
than asked for, dates and times that may be of the Julian calendar. Spark writes instants as INT96,
so these are read; of other writers, nothing says their calendar.

``Rows`` reads columns of row groups in order, in blocks. Of two of them over the same splits one
reads what the predicates read, and the other one the rest. The second skips: rows that nobody asks
for are decoded only on the way to later rows of their row group. So memory is bounded by blocks and
not by files. A row group of which no row is left costs nothing but the columns of the predicates.

A file is read as it was when the driver listed it. A task that finds another size or time of change
raises ``SourceError``: the results of two versions are never mixed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from eddyline.data.hashes import add_hash, seeds
from eddyline.errors import SourceError
from eddyline.routing.table import HASH_BITS, attribute
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eddyline.data.arrays import Floats
    from eddyline.data.parquet_spans import Footer
    from eddyline.routing.table import Attribute

BLOCK_ROWS, TEXT_ROWS = 32_768, 4_096
"""Rows that are decoded at once, and as long as nothing is known of how long their texts are. Fewer
make reading numbers slower, and more only take memory."""

BLOCK_BYTES = 32 << 20
"""Bytes of a block for which it gets fewer rows."""

BUFFER_BYTES = 1 << 20
"""Bytes of a column that are read from the file at once."""

TASK_BYTES = 64 << 20
"""Bytes of files for which a job has one more task than there are cores."""

_VERSION, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacy"
"""Keys by which Spark says which of its versions wrote a file, and that days are Julian."""

FIRST_GREGORIAN = (3, 1)
"""The first version of Spark that writes all days by the Gregorian calendar, unless it says so."""

_WRITER = "parquet-mr"
"""The library by which Spark writes Parquet files."""

_STORED = {
    "boolean": r"BOOLEAN None",
    "tinyint": r"INT32 Int\(bitWidth=8, isSigned=true\)",
    "smallint": r"INT32 Int\(bitWidth=16, isSigned=true\)",
    "int": r"INT32 (None|Int\(bitWidth=32, isSigned=true\))",
    "bigint": r"INT64 (None|Int\(bitWidth=64, isSigned=true\))",
    "float": r"FLOAT None",
    "double": r"DOUBLE None",
    "string": r"BYTE_ARRAY String",
    "binary": r"BYTE_ARRAY None",
    "date": r"INT32 Date",
    "timestamp": r"INT96 None|INT64 Timestamp\(isAdjustedToUTC=true, timeUnit=(milli|micro)s.*",
    "timestamp_ntz": r"INT64 Timestamp\(isAdjustedToUTC=false, timeUnit=(milli|micro)s.*",
}
"""By Spark type: the physical and the logical type of a column that is read as it, unchanged."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of the rows, and where files have it."""

    name: str
    """Name in the result."""
    stored: str
    """Name in the files; those that lack it have NULL."""
    type_text: str
    """Spark's type, such as ``decimal(5,2)``."""
    type: pa.DataType
    """The Arrow type that Spark hands over."""


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file as it was when it was listed."""

    path: str
    n_bytes: int
    changed_ns: int
    """Time of its last change (ns since 1970)."""
    group_rows: tuple[int, ...]
    """Rows of each row group."""
    group_bytes: tuple[int, ...]
    """Bytes of the columns that are read, in each row group of the file."""

    @classmethod
    def from_footer(cls, footer: Footer, columns: Iterable[FileColumn]) -> ScannedFile:
        """Return the file of a footer, of which some columns are read."""
        groups = [
            footer.metadata.row_group(number) for number in range(footer.metadata.num_row_groups)
        ]
        stored = tuple(f"{column.stored.lower()}." for column in columns)
        schema = footer.metadata.schema
        read = [
            number
            for number in range(footer.metadata.num_columns)
            if f"{schema.column(number).path.lower()}.".startswith(stored)
        ]
        n_bytes = (
            sum(group.column(number).total_compressed_size for number in read) for group in groups
        )
        n_rows = tuple(group.num_rows for group in groups)
        return cls(footer.path, footer.n_bytes, footer.changed_ns, n_rows, tuple(n_bytes))

    def opened(self) -> parquet.ParquetFile:
        """Open the file.

        Raises:
            SourceError: it is gone, or another one than was listed.
        """
        try:
            stat = os.stat(self.path)
            if (stat.st_size, stat.st_mtime_ns) == (self.n_bytes, self.changed_ns):
                return parquet.ParquetFile(
                    self.path,
                    buffer_size=BUFFER_BYTES,
                    coerce_int96_timestamp_unit="us",
                    page_checksum_verification=True,
                )
            why = "was written again after Spark had listed it"
        except FileNotFoundError:
            why = "was there when Spark listed it, and is gone"
        msg = (
            f"{self.path} {why}; files that are read must stay as they are: write new ones under "
            f"other names"
        )
        raise SourceError(msg, path=self.path)


Split = tuple[ScannedFile, int]
"""A row group of a file, by its number."""


def refusal(
    footer: parquet.FileMetaData,
    columns: Sequence[FileColumn],
    *,
    ignores_case: bool,
    corrects_days: bool,
) -> str:
    """Return why columns of a file would not be read as Spark reads them; empty if they would be.

    Args:
        footer: of the file.
        columns: that are read.
        ignores_case: whether names that differ in case alone are one to Spark.
        corrects_days: whether Spark takes days for Gregorian where a file does not say.
    """
    places = _places(footer, ignores_case=ignores_case)
    try:
        hints = footer.schema.to_arrow_schema()
    except pa.ArrowException as error:
        return f"Arrow does not know the types of a file: {error}"
    if any(_is_of_other_file(footer, group) for group in range(footer.num_row_groups)):
        return "a footer is of several files"
    for column in columns:
        numbers = places.get(column.stored.lower() if ignores_case else column.stored, [])
        if len(numbers) > 1:
            return f"a file has {len(numbers)} columns called {column.stored!r}"
        if numbers and (why := _column_refusal(footer, numbers[0], column, hints, corrects_days)):
            return f"{column.stored!r} {why}"
    return ""


def _column_refusal(
    footer: parquet.FileMetaData,
    number: int,
    column: FileColumn,
    hints: pa.Schema,
    corrects_days: bool,
) -> str:
    """Return why a column of a file would not be read as Spark reads it; empty if it would be."""
    leaf = footer.schema.column(number)
    if _is_nested(leaf):
        return "has nested values, or a dot in its name"
    stored = f"{leaf.physical_type} {leaf.logical_type}"
    if not _is_read_as(stored, column.type_text):
        return f"is stored as {stored}, which is not {column.type_text}"
    if pa.types.is_dictionary(hints.field(leaf.path).type):
        return "is a category, whose texts Arrow checks and Spark does not"
    if column.type_text.startswith(("date", "timestamp")) and not _is_gregorian(
        footer, is_int96=leaf.physical_type == "INT96", corrects_days=corrects_days
    ):
        return "may have days of the Julian calendar"
    return ""


def _places(footer: parquet.FileMetaData, *, ignores_case: bool) -> dict[str, list[int]]:
    """Return, by name, the numbers of the columns of that name; of a nested one, its first value's.

    A dot may be of a name or of a nested value, so what has one is found by both names.
    """
    numbers: dict[str, list[int]] = {}
    nested: set[str] = set()
    for number in range(footer.num_columns):
        path = footer.schema.column(number).path
        outer = path.split(".", 1)[0]
        if outer == path:
            numbers.setdefault(path.lower() if ignores_case else path, []).append(number)
        for name in {path, outer} if outer != path else ():
            if name not in nested:
                nested.add(name)
                numbers.setdefault(name.lower() if ignores_case else name, []).append(number)
    return numbers


def _is_nested(leaf: parquet.ColumnSchema) -> bool:
    return "." in leaf.path or leaf.max_repetition_level > 0


def _is_read_as(stored: str, kind: str) -> bool:
    """Return whether Spark reads values of a stored type as a type of its own, unchanged."""
    if match := _DECIMAL.fullmatch(kind):
        return stored.endswith(f" Decimal(precision={match[1]}, scale={match[2]})")
    return kind in _STORED and re.fullmatch(_STORED[kind], stored) is not None


def _is_of_other_file(footer: parquet.FileMetaData, group: int) -> bool:
    """Return whether a row group is in another file, as in the ``_metadata`` of a folder."""
    chunks = footer.row_group(group)
    return chunks.num_columns > 0 and bool(chunks.column(0).file_path)


def _is_gregorian(footer: parquet.FileMetaData, *, is_int96: bool, corrects_days: bool) -> bool:
    """Return whether Spark takes the days of a file as they are."""
    metadata = footer.metadata or {}
    if any(key.startswith(_LEGACY) for key in metadata):
        return False
    version = metadata.get(_VERSION)
    # Others copy what Spark has said of itself.
    if is_int96 and not str(footer.created_by).startswith(_WRITER):
        return False
    if version is None:
        return corrects_days and not is_int96
    return tuple(map(int, re.findall(rb"\d+", version)[:2])) >= FIRST_GREGORIAN


def size_of(tasks: Iterable[Iterable[Split]]) -> tuple[int, int]:
    """Return the rows of the row groups of tasks, and the bytes of the columns that are read."""
    splits = [split for task in tasks for split in task]
    n_rows = sum(file.group_rows[group] for file, group in splits)
    return n_rows, sum(file.group_bytes[group] for file, group in splits)


def tasks_of(files: Sequence[ScannedFile], n_cores: int) -> list[tuple[Split, ...]]:
    """Return the row groups of files, in their order, in tasks of about as many bytes.

    There are as many tasks as cores, or more for large files.

    >>> files = [ScannedFile(name, 9, 0, (1, 1), (5, 1)) for name in "ab"]
    >>> [[(file.path, group) for file, group in task] for task in tasks_of(files, 2)]
    [[('a', 0), ('a', 1)], [('b', 0), ('b', 1)]]
    """
    splits = [
        (file, group) for file in files for group, n_rows in enumerate(file.group_rows) if n_rows
    ]
    n_bytes = [file.group_bytes[group] for file, group in splits]
    total = max(sum(n_bytes), 1)
    n_tasks = max(n_cores, -(-total // TASK_BYTES))
    tasks: dict[int, list[Split]] = {}
    start = 0
    for split, size in zip(splits, n_bytes, strict=True):
        # A row group belongs where its middle lies.
        tasks.setdefault(n_tasks * (2 * start + size) // (2 * total + 1), []).append(split)
        start += size
    return [tuple(task) for task in tasks.values()]


class Rows:
    """The rows of row groups, one after the other, with some of their columns.

    Args:
        splits: the row groups.
        columns: that are read.
        ignores_case: whether names that differ in case alone are one to Spark.
    """

    def __init__(
        self, splits: Sequence[Split], columns: Sequence[FileColumn], *, ignores_case: bool
    ) -> None:
        self._columns = tuple(columns)
        self._ignores_case = ignores_case
        self._splits = iter(splits)
        self._file: tuple[ScannedFile, parquet.ParquetFile] | None = None
        self._blocks: Iterator[pa.RecordBatch] | None = None
        self._block: list[pa.Array] = []
        self._split: Split | None = None
        self._n_block = 0
        """Rows of the block that are left."""
        self._n_group = 0
        """Rows of the row group that are left, those of the block included."""
        self._n_skipped = 0
        """Rows that are passed over once later ones are asked for."""
        is_fixed = all(pa.types.is_primitive(column.type) for column in columns)
        self._block_rows = BLOCK_ROWS if is_fixed else min(TEXT_ROWS, BLOCK_ROWS)
        """Rows of a block of the next row group."""

    def blocks(self) -> Iterator[tuple[pa.Array, ...]]:
        """Yield all rows that are left, block by block.

        Raises:
            SourceError: a file is gone, another one, or damaged.
        """
        while self._reaches_row():
            yield tuple(self._taken(self._n_block))

    def skip(self, n_rows: int) -> None:
        """Pass over rows; they are read only if they stand between others of a row group."""
        self._n_skipped += n_rows

    def take(self, n_rows: int) -> Iterator[tuple[int, list[pa.Array]]]:
        """Yield the next rows, of which there are so many: of each block its rows and its columns.

        Raises:
            SourceError: a file is gone, another one, or damaged.
        """
        while n_rows and self._reaches_row():
            n = min(n_rows, self._n_block)
            n_rows -= n
            yield n, self._taken(n)

    def _taken(self, n_rows: int) -> list[pa.Array]:
        """Return the first rows of the block and move on."""
        start = len(self._block[0]) - self._n_block if self._block else 0
        self._n_block -= n_rows
        self._n_group -= n_rows
        return [array.slice(start, n_rows) for array in self._block]

    def _reaches_row(self) -> bool:
        """Decode up to a row that is not skipped; False if no row is left."""
        while True:
            is_over = self._n_group == 0
            if is_over or self._n_skipped >= self._n_group:
                self._n_skipped -= self._n_group
                self._split = next(self._splits, None)
                self._blocks, self._n_block = None, 0
                if self._split is None:
                    self._n_group = 0
                    return False
                file, group = self._split
                self._n_group = file.group_rows[group]
                continue
            if not self._n_block:
                self._decode()
            n = min(self._n_skipped, self._n_block)
            self._n_skipped -= n
            self._n_block -= n
            self._n_group -= n
            if self._n_block:
                return True

    def _decode(self) -> None:
        """Decode the next block of the row group."""
        assert self._split is not None
        file, group = self._split
        try:
            if self._blocks is None:
                self._blocks = self._of_group(file, group)
            batch = next(self._blocks)
            names = {self._key(name): place for place, name in enumerate(batch.schema.names)}
            self._block = [
                _as_spark(batch.column(place), column.type)
                if (place := names.get(self._key(column.stored))) is not None
                else pa.nulls(batch.num_rows, column.type)
                for column in self._columns
            ]
        except (OSError, pa.ArrowException, StopIteration) as error:
            msg = f"{file.path} cannot be read: {error or 'it has fewer rows than its footer says'}"
            raise SourceError(msg, path=file.path) from error
        self._n_block = batch.num_rows
        row_bytes = sum(array.nbytes for array in self._block) / max(self._n_block, 1)
        self._block_rows = max(1, min(BLOCK_ROWS, int(BLOCK_BYTES / max(row_bytes, 1.0))))

    def _of_group(self, file: ScannedFile, group: int) -> Iterator[pa.RecordBatch]:
        if self._file is None or self._file[0] is not file:
            self._file = file, file.opened()
        opened = self._file[1]
        wanted = {self._key(column.stored) for column in self._columns}
        names = [name for name in opened.schema_arrow.names if self._key(name) in wanted]
        if not names:  # only the number of rows is of the file
            n_rows, step = file.group_rows[group], BLOCK_ROWS
            sizes = (min(step, n_rows - start) for start in range(0, n_rows, step))
            return (pa.record_batch([pa.nulls(size)], names=["no column"]) for size in sizes)
        batches: Iterator[pa.RecordBatch] = opened.iter_batches(
            batch_size=self._block_rows, row_groups=[group], columns=names, use_threads=False
        )
        return batches

    def _key(self, name: str) -> str:
        return name.lower() if self._ignores_case else name


def _as_spark(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array in the type that Spark hands over: a hint of the writer may be another."""
    return array if array.type == kind else array.cast(kind)


# -- columns as attributes -------------------------------------------------------------------------
# Columns as the numbers by which classes of rows are told apart, as Spark's SQL computes them.
#
# What was learned of classes in the lane holds outside of it, too, so each value has to be the one
# of
# ``Attribute.sql``: a number, 0 or 1 of a boolean, days, or 52 bits of the hash of a text.


def is_plain(attr: Attribute, kind: str) -> bool:
    """Return whether an attribute is a column of a Spark type that ``values_of`` knows."""
    expected = attribute(attr.name, quoted(attr.name), kind, [attr.name])
    return attr == expected and not kind.startswith("timestamp")


def values_of(array: pa.Array) -> Floats:
    """Return a column as an attribute's values (nan: NULL; (N,))."""
    if pa.types.is_string(array.type):
        numbers: Floats = hashes_of(array).astype(np.float64)
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return numbers
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    doubles: Floats = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return doubles


def hashes_of(texts: pa.Array) -> Any:
    """Return 52 bits of the hash of each text ((N,) of int64; of NULL, any)."""
    hashes = seeds(len(texts))
    add_hash(hashes, texts)
    return hashes & HASH_BITS

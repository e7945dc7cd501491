"""Spans of instants in a column of Parquet files, mostly from footers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import compute, parquet

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ROWS_READ = 1 << 20
"""Most rows of which a column is read where footers do not tell its span: some 10 ms."""

FIRST_KNOWN = -2_208_988_800_000_000
"""1900 (µs since 1970): of what is before, files need not say by which calendar it was written."""

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""µs of the units of instants; those of nanoseconds would be rounded."""


@dataclass(frozen=True, slots=True)
class Span:
    """The instants of some rows."""

    n_rows: int = 0
    n_timed: int = 0
    """Those of them that have one."""
    earliest: int | None = None
    latest: int | None = None
    """The least and the greatest (µs since 1970); None if no row has one."""

    def merge(self, other: Span) -> Span:
        """Return the span of both."""
        ends = [span for span in (self, other) if span.earliest is not None]
        return Span(
            self.n_rows + other.n_rows,
            self.n_timed + other.n_timed,
            min((span.earliest for span in ends if span.earliest is not None), default=None),
            max((span.latest for span in ends if span.latest is not None), default=None),
        )


@dataclass(frozen=True, slots=True)
class Footer:
    """Footer of a file, with the size and modification time from just before reading it."""

    path: str
    n_bytes: int
    changed_ns: int
    """Time of its last change (ns since 1970)."""
    metadata: parquet.FileMetaData

    @classmethod
    def from_file(cls, path: str) -> Footer:
        """Read the footer of a file.

        Raises:
            OSError: it cannot be read.
            pa.ArrowException: it is no Parquet.
        """
        # First: if the file is replaced in between, tasks find other times and refuse it.
        stat = os.stat(path)
        return cls(path, stat.st_size, stat.st_mtime_ns, parquet.read_metadata(path))


@dataclass(frozen=True)
class ParquetFiles:
    """Files on this machine."""

    paths: tuple[str, ...]

    @cached_property
    def n_rows(self) -> int:
        """Their rows.

        Raises:
            OSError: a file cannot be read.
            pa.ArrowException: a file is no Parquet.
        """
        return sum(self.footer(path).metadata.num_rows for path in self.paths)

    def span(self, column: str) -> Span | None:
        """Return the instants of a column; None if that takes reading many rows, or it is none.

        Instants are those of a time zone, from 1900 on.

        Raises:
            OSError: a file cannot be read.
            pa.ArrowException: a file is no Parquet.
        """
        if any(_is_of_folder(column, path) for path in self.paths):
            return None
        n_left = MOST_ROWS_READ
        whole = Span()
        for path in self.paths:
            footer = self.footer(path).metadata
            span = _said(footer, column)
            if span is None:
                n_left -= footer.num_rows
                span = _read(path, footer, column) if n_left >= 0 else None
            if span is None or (span.earliest is not None and span.earliest < FIRST_KNOWN):
                return None
            whole = whole.merge(span)
        return whole

    def footer(self, path: str) -> Footer:
        """Return the footer of one of the files, which is read once.

        Raises:
            OSError: the file cannot be read.
            pa.ArrowException: it is no Parquet.
        """
        if path not in self._footers:
            self._footers[path] = Footer.from_file(path)
        return self._footers[path]

    @cached_property
    def _footers(self) -> dict[str, Footer]:
        return {}


def _is_of_folder(column: str, path: str) -> bool:
    """Return whether the rows of a file may have the value of a column from a folder's name."""
    return any(part.startswith(f"{column.lower()}=") for part in path.lower().split("/"))


def _said(footer: parquet.FileMetaData, column: str) -> Span | None:
    """Return what a footer says of the instants of a column; None if it does not."""
    kind = _kind(footer, column)
    place = _place(footer, column)
    if kind is None or place is None or kind.tz is None or kind.unit not in _MICROS:
        return None
    scale = _MICROS[kind.unit]
    groups = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
    whole = Span()
    for chunk in groups:
        statistics = chunk.statistics
        if statistics is None or chunk.physical_type != "INT64" or not statistics.has_null_count:
            return None
        n_timed = chunk.num_values - statistics.null_count
        if n_timed and not statistics.has_min_max:
            return None
        ends = (statistics.min_raw * scale, statistics.max_raw * scale) if n_timed else (None, None)
        whole = whole.merge(Span(chunk.num_values, n_timed, *ends))
    return whole


def _read(path: str, footer: parquet.FileMetaData, column: str) -> Span | None:
    """Return the instants of a column that is read; None if it has no instants of a time zone."""
    kind, place = _kind(footer, column), _place(footer, column)
    if kind is None or place is None:
        return None
    is_old = footer.schema.column(place).physical_type == "INT96"  # an instant without saying so
    if not is_old and (kind.tz is None or kind.unit not in _MICROS):
        return None
    with parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        instants = file.read(columns=[column]).column(0)
    ends = compute.min_max(
        instants.cast(pa.timestamp("us", instants.type.tz)).cast(pa.int64())
    ).as_py()
    n_timed = len(instants) - instants.null_count
    return Span(len(instants), n_timed, ends["min"], ends["max"])


def _kind(footer: parquet.FileMetaData, column: str) -> pa.TimestampType | None:
    """Return the type of a column of instants; None if the file has no such one."""
    schema = footer.schema.to_arrow_schema()
    if schema.names.count(column) != 1:
        return None
    kind = schema.field(column).type
    return kind if isinstance(kind, pa.TimestampType) else None


def _place(footer: parquet.FileMetaData, column: str) -> int | None:
    """Return the number of a column among those of values; None if there is not one."""
    paths: Iterable[str] = (
        footer.schema.column(number).path for number in range(footer.num_columns)
    )
    numbers = [number for number, path in enumerate(paths) if path == column]
    return numbers[0] if len(numbers) == 1 else None

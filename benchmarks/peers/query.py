"""A query over CSV files, said for eddyline and for Flink, and the files of its streams.

Each stream is a folder of CSV files without a header. A stream of several files is cut row by row,
not by time: every file has the whole span of event time, in order. Two readers of Flink then stay
close to each other, and no row is late. A last row per stream lies far ahead. It ends the windows
of eddyline, which waits for the watermark; Flink ends all windows with its bounded input. The
results about that row differ, so the condition ``kept`` leaves them out.

Times are whole milliseconds: event time of Flink has no finer ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

FAR_MS = 40 * 86_400_000
"""Distance of the last row from the row before it (ms of event time)."""

LATENESS_S = 1
"""How late rows may come, for both engines (s)."""

N_FILES = 2
"""Files of a large stream: one for each reader."""

SMALL_ROWS = 100_000
"""A smaller stream has one file: of two, the first reader to start could take both in turn."""


@dataclass(frozen=True)
class PeerQuery:
    """A query as both engines read it."""

    eddyline: str
    flink: str
    results: Mapping[str, str]
    """Types of the columns of results by name: BIGINT, DOUBLE, STRING, TIMESTAMP or DECIMAL."""
    kept: str
    """SQL of the results to compare: those that are not about the last rows of streams."""
    times: Mapping[str, str]
    """Event-time column of each stream."""
    steps: tuple[tuple[str, str, str | None], ...] = ()
    """Streams of eddyline that are results of queries: name, text and event-time column."""

    def job(self, folder: str, columns: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """Return the job description of a child process, as plain values.

        Args:
            folder: has a folder of CSV files for each stream.
            columns: SQL types of the columns of each stream, by name.
        """
        streams = {name: dict(columns[name]) for name in self.times}
        fields = asdict(self)
        return {**fields, "folder": folder, "streams": streams, "lateness_s": LATENESS_S}


def written(tables: Mapping[str, pa.Table], times: Mapping[str, str]) -> str:
    """Write streams as CSV files, with the row that ends all windows; returns the folder."""
    folder = Path(tempfile.mkdtemp(prefix="eddyline_peers_"))
    for name, table in tables.items():
        (folder / name).mkdir()
        n_files = N_FILES if table.num_rows >= SMALL_ROWS else 1
        for number in range(n_files):
            rows = table.take(pa.array(np.arange(number, table.num_rows, n_files)))
            if number == 0:
                rows = pa.concat_tables([rows, _far(table, times[name])])
            options = csv.WriteOptions(include_header=False, quoting_style="needed")
            csv.write_csv(rows, folder / name / f"part-{number}.csv", options)
    return str(folder)


def _far(table: pa.Table, time: str) -> pa.Table:
    """Return a copy of the last row, far ahead, whose whole numbers are negative."""
    row = table.slice(table.num_rows - 1)
    for number, field in enumerate(row.schema):
        if field.name == time:
            latest = row[field.name].cast(pa.int64()).to_numpy() + FAR_MS
            row = row.set_column(number, field, pa.array(latest).cast(field.type))
        elif pa.types.is_integer(field.type):
            row = row.set_column(number, field, pa.array([-7 - number], field.type))
    return row


def columns_of(tables: Mapping[str, pa.Table]) -> dict[str, dict[str, str]]:
    """Return the SQL types of the columns of streams.

    Raises:
        ValueError: the CSV files of both engines have no such type.
    """
    return {
        name: {field.name: _sql_type(field.type) for field in table.schema}
        for name, table in tables.items()
    }


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_int64(kind):
        return "BIGINT"
    if pa.types.is_string(kind):
        return "STRING"
    if kind == pa.timestamp("ms"):
        return "TIMESTAMP"
    msg = f"no column of type {kind}"
    raise ValueError(msg)

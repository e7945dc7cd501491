"""A query over streams, said once for each that runs it: eddyline, Spark, DuckDB.

Its answer is the number of results and a sum over all of their columns, which is the same in the
SQL of all three.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.joins.data import times_of

PRIME, FACTOR = 998_244_353, 1_000_003
"""The sum is one of the columns' values, each by a power of the factor, modulo the prime."""

FINER = 1_000
"""Numbers that are not whole are summed up in thousandths."""

FAR_US = 40 * 86_400_000_000
"""How long after the last row those come that end all windows (µs)."""

N_FAR = 2
"""Batches of such rows: Spark gives results one batch after event time allows them."""


@dataclass(frozen=True)
class Asked:
    """A query over streams."""

    text: str
    """As eddyline reads it."""
    spark: str = ""
    """As Spark reads it, over views of the streams with a watermark; empty: Spark has no such."""
    duckdb: str = ""
    """As DuckDB reads it, over all rows as tables. ``{low}`` stands for the instant before which
    all rows have come."""
    mode: str = "append"
    """Spark's output mode."""
    duckdb_of_spark: str = ""
    """What DuckDB says to Spark's results where they are other ones; ``duckdb`` if empty."""
    times: Mapping[str, str] = field(default_factory=lambda: {"s": "ts"})
    """The event-time column of each stream."""
    lateness_us: int = 1_000_000
    results: tuple[tuple[str, str, str | None], ...] = ()
    """Streams that are results of queries of eddyline, which the text reads: name, text, and their
    event-time column where they do not have that of their stream."""
    tables: tuple[str, ...] = ()
    """Static tables that it reads."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Those of the query."""
    folder: str = field(default="", compare=False)
    """Where its rows are: ``<batch>/<stream>.parquet``, and ``tables/<table>.parquet``."""

    @property
    def batches(self) -> list[Path]:
        """The folders of the batches, in order."""
        return sorted(path for path in Path(self.folder).iterdir() if path.name.isdigit())


def written(
    batches: Iterable[Mapping[str, pa.Table]],
    tables: Mapping[str, pa.Table] | None = None,
    times: Mapping[str, str] | None = None,
    n_far: int = N_FAR,
) -> str:
    """Write the rows of queries, and some batches of a row a stream that end all windows.

    Returns the folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="eddyline_aggregates_"))
    number = -1
    rows: Mapping[str, pa.Table] = {}
    for number, rows in enumerate(batches):
        _write_batch(folder, number, rows)
    times = times or {"s": "ts"}
    latest = max(_latest(table, times[name]) for name, table in rows.items())
    for each in range(n_far):
        far = {name: _far(table, times[name], latest) for name, table in rows.items()}
        _write_batch(folder, number + 1 + each, far)
    for name, table in (tables or {}).items():
        _write(table, folder / "tables" / f"{name}.parquet")
    return str(folder)


def _latest(table: pa.Table, time: str) -> int:
    return int(table[time].cast(pa.int64()).to_numpy().max())


def _far(table: pa.Table, time: str, latest: int) -> pa.Table:
    """Return a row that is far behind all others, and whose ids and groups are its own."""
    row = table.slice(table.num_rows - 1)
    for at, each in enumerate(row.schema):
        if each.name == time:
            row = row.set_column(at, each, times_of(np.array([latest + FAR_US])).cast(each.type))
        elif pa.types.is_integer(each.type):
            row = row.set_column(at, each, pa.array([-7 - at], each.type))
    return row


def _write_batch(folder: Path, number: int, rows: Mapping[str, pa.Table]) -> None:
    for name, table in rows.items():
        _write(table, folder / f"{number:05d}" / f"{name}.parquet")


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


def over(asked: Asked, folder: str) -> Asked:
    """Return a query over the rows of a folder."""
    return replace(asked, folder=folder)


# -- answers --------------------------------------------------------------------------------------


def summed(columns: Sequence[tuple[str, str]], dialect: str) -> list[str]:
    """Return SQL of the number of results and of the sum over their columns.

    Args:
        columns: name and type of each, as the dialect says it.
        dialect: ``spark`` or ``duckdb``.
    """
    terms, power = [], 1
    for name, kind in columns:
        terms.append(f"coalesce(({_whole(name, kind.lower(), dialect)}) % {PRIME}, 17) * {power}")
        power = power * FACTOR % 1_000_000_007 % 1_000_000
    return ["count(*)", f"sum(({' + '.join(terms)}) % {PRIME})"]


def _whole(name: str, kind: str, dialect: str) -> str:
    """Return SQL of a value as a whole number."""
    if kind.startswith("timestamp"):
        return f"unix_micros({name})" if dialect == "spark" else f"epoch_us({name})"
    if kind in ("string", "varchar"):
        return f"CAST(length({name}) * 257 + ascii({name}) AS BIGINT)"
    if kind in ("double", "float") or kind.startswith("decimal"):
        return f"CAST(floor({name} * {FINER}) AS BIGINT)"
    return f"CAST({name} AS BIGINT)"


def duckdb_answer(asked: Asked, text: str, threads: int = 2) -> dict[str, Any]:
    """Return the answer of DuckDB, all rows in its memory."""
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        latest = []
        for name, column in asked.times.items():
            source = f"read_parquet('{asked.folder}/[0-9]*/{name}.parquet')"
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
            (found,) = connection.sql(f"SELECT epoch_us(max({column})) FROM {name}").fetchall()
            latest.append(int(found[0]))
        for name in asked.tables:
            source = f"read_parquet('{asked.folder}/tables/{name}.parquet')"
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {source}")
        low = f"make_timestamptz({min(latest) - asked.lateness_us})"
        wanted = text.replace("{low}", low)
        started = time.perf_counter()
        relation = connection.sql(wanted)
        columns = list(zip(relation.columns, map(str, relation.types), strict=True))
        sums = ", ".join(summed(columns, "duckdb"))
        (row,) = connection.sql(f"SELECT {sums} FROM ({wanted})").fetchall()
        seconds = time.perf_counter() - started
    return {"answer": [int(row[0]), int(row[1] or 0)], "seconds": seconds}

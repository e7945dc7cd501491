"""Aggregates of each row over windows of a minute, an hour and a day: ``OVER``.

The operator alone: what a bucket does on Arrow in one process, state in files, beside DuckDB, which
computes the same once from its memory. End to end beside Spark, which has OVER for batches only.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import fs

from benchmarks.aggregates.asked import Asked, written
from benchmarks.aggregates.data import Shape, narrow_batches_v1, wide_batches_v1
from benchmarks.aggregates.race import compared, ratios, told
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from eddyline.aggregates.changes import RowBatch
from eddyline.aggregates.plan import AggregatePlan, BucketState, Frame, Partials
from eddyline.data.arrays import Ints
from eddyline.query.query import UNBOUNDED, RangeWindow
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, Rows

HOUR_US = 3_600_000_000

SPAN_US = 3 * HOUR_US
"""How long a batch is (µs)."""

WINDOWS = {"m": ("1 MINUTE", 60_000_000), "h": ("1 HOUR", HOUR_US), "d": ("24 HOURS", 24 * HOUR_US)}
"""By a name, each as SQL says it, and its length (µs)."""


MONOIDS = {"sum": "sum", "avg": "mean", "max": "max"}
"""How the partial aggregates of a row are put together, by column."""


def _values(window: str) -> str:
    """Return the output columns of a window."""
    calls = {"sum(v)": "total", "avg(v)": "mean", "max(v)": "most"}
    return ", ".join(f"{call} OVER {window} AS {name}_{window}" for call, name in calls.items())


def statement(frame: str, *, partition: str = "k", columns: str = "id, ts, k") -> str:
    """Return the query; ``frame`` says how the dialect writes an interval of ``{n} {unit}``."""
    windows = ", ".join(
        f"{name} AS (PARTITION BY {partition} ORDER BY ts RANGE BETWEEN "
        f"{frame.format(*said.split(' '))} PRECEDING AND CURRENT ROW)"
        for name, (said, _) in WINDOWS.items()
    )
    return f"SELECT {columns}, {', '.join(map(_values, WINDOWS))} FROM s WINDOW {windows}"


# -- the operator ---------------------------------------------------------------------------------


class Operator:
    """One bucket of OVER: rows in, rows with values out, state in files.

    Args:
        folder: of the state.
        lateness: how late rows may come (µs).
    """

    def __init__(self, folder: str, lateness: int = 1_000_000) -> None:
        self.place = ManifestFolder(fs.LocalFileSystem(), folder).place("over")
        self.lateness = lateness
        self.state = BucketState()
        self.low = ALWAYS
        self.frames = tuple(
            Frame(RangeWindow(length), Partials(MONOIDS), {f"{name}_{of}": of for of in MONOIDS})
            for name, (_, length) in WINDOWS.items()
        )

    def batch(self, rows: Rows, latest: int) -> list[pa.Table]:
        """Return the results that a batch brings."""
        after = latest - self.lateness
        plan = AggregatePlan(self.low, after, (), Partials({}), UNBOUNDED, frames=self.frames)
        task = RowBatch(plan, self.place, self.state, 0)
        found = list(task.run(rows))
        self.state, self.low = task.report.after, after
        return found


def lifted(table: pa.Table) -> Rows:
    """Return rows as Spark hands them to a bucket: with codes, and what each call combines."""
    k = table["k"].to_numpy()
    starts = table["ts"].cast(pa.int64()).to_numpy()
    value = table["v"].combine_chunks()
    ones = pa.array(np.ones(len(value), np.int64))
    mean = pa.StructArray.from_arrays([value.cast(pa.float64()), ones], ["sum", "n"])
    payload = table.select(["id", "ts", "k"])
    for name, column in zip(MONOIDS, (value, mean, value), strict=True):
        payload = payload.append_column(name, column)
    return Rows({0: _mixed(k, 3), 1: _mixed(k, 5)}, starts, starts, payload)


def _mixed(k: Ints, by: int) -> Ints:
    """Return codes of groups that are in another order than these."""
    with np.errstate(over="ignore"):
        codes: Ints = k * np.int64(0x1E37_79B9_7F4A_7C15) + by
    return codes


def _duckdb(rows: pa.Table, threads: int) -> tuple[float, pa.Table]:
    """Return the time and the results of DuckDB, loading the rows left out."""
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows)
        connection.execute("CREATE TABLE s AS SELECT * FROM rows")
        started = time.perf_counter()
        found = connection.sql(statement("INTERVAL {} {}")).to_arrow_table()
        return time.perf_counter() - started, found


def operator(settings: Settings) -> Measurement:
    """The bucket's work in ten batches over DuckDB's once, both in one thread."""
    shape = Shape(10, settings.pick(300_000, 30_000), SPAN_US)
    tables = [each["s"] for each in narrow_batches_v1(shape)]
    whole = pa.concat_tables(tables)
    n_rounds = settings.pick(3, 1)
    ours, theirs = [], []
    seconds: list[float] = []
    for number in range(n_rounds + 1):
        with tempfile.TemporaryDirectory(prefix="eddyline_over_") as folder:
            bucket, found, seconds = Operator(folder), [], []
            for table in tables:
                rows, latest = lifted(table), int(table["ts"].cast(pa.int64())[-1].as_py())
                started = time.perf_counter()
                found += bucket.batch(rows, latest)
                seconds.append(time.perf_counter() - started)
        own = pa.concat_tables(found)
        took, wanted = _duckdb(whole, 1)
        if number == 0:
            _check(own, wanted, bucket.low)
        else:
            ours.append(sum(seconds))
            theirs.append(took)
    two, _ = _duckdb(whole, 2)
    gains = [one / other for one, other in zip(ours, theirs, strict=True)]
    note = (
        f"{spread(gains)}; {whole.num_rows:,} rows in {len(tables)} batches: ours "
        f"{median(ours):.3g} s, the last batch {seconds[-1]:.3g}; DuckDB all rows once "
        f"{median(theirs):.3g} s on one thread, {two:.3g} on two"
    )
    details = {"ours": ours, "duckdb": theirs, "duckdb_two_threads": two, "batches": seconds}
    return Measurement(median(gains), note, details)


def _check(own: pa.Table, wanted: pa.Table, low: int) -> None:
    """Compare results by id.

    Raises:
        AssertionError: they are other ones.
    """
    own = own.sort_by("id")
    wanted = wanted.sort_by("id").slice(0, own.num_rows)
    last = int(wanted["ts"].cast(pa.int64())[-1].as_py())
    assert own["id"].equals(wanted["id"]), "other rows"
    assert own.num_rows > 0, "no rows"
    assert last < low, "rows that are not final"
    for window in WINDOWS:
        for kind, name in (("sum", "total"), ("max", "most"), ("avg", "mean")):
            one, other = (
                each.cast(pa.float64()).to_numpy()
                for each in (own[f"{window}_{kind}"], wanted[f"{name}_{window}"])
            )
            assert np.allclose(one, other, rtol=1e-9), f"{name} over {window} is another one"


# -- end to end -----------------------------------------------------------------------------------


def asked(folder: str, *, has_history: bool) -> Asked:
    """Return the query for all; of Spark's results every row is told at once."""
    text, plain = statement("INTERVAL '{}' {}"), statement("INTERVAL {} {}")
    by_batch = statement("INTERVAL {} {}", partition=f"k, (epoch_us(ts) // {SPAN_US})")
    return Asked(
        text,
        text,
        f"SELECT * FROM ({plain}) WHERE ts < {{low}}",
        duckdb_of_spark=plain if has_history else by_batch,
        folder=folder,
    )


def beside_batches(settings: Settings) -> Measurement:
    """Ours beside a batch query of Spark over the rows of each micro-batch alone.

    Its windows end where the micro-batch begins, so it does less, and answers something else.
    """
    shape = Shape(settings.pick(6, 3), settings.pick(300_000, 20_000), SPAN_US)
    folder = written(wide_batches_v1(shape), n_far=0)
    ways = ("eddyline", "spark batch", "read")
    found = compared(asked(folder, has_history=False), *ways, n_far=0)
    return _measured(found, ways, shape.n_rows)


def beside_history(settings: Settings) -> Measurement:
    """Ours beside a batch query of Spark that reads the rows of before, too: equal answers."""
    shape = Shape(settings.pick(3, 2), settings.pick(100_000, 10_000), SPAN_US)
    folder = written(wide_batches_v1(shape), n_far=0)
    ways = ("eddyline", "spark history")
    found = compared(asked(folder, has_history=True), *ways, n_far=0)
    return _measured(found, ways, shape.n_rows)


def _measured(found: dict[str, Any], ways: Sequence[str], n_rows: int) -> Measurement:
    gains = ratios(found, ways[1], ways[0])
    note = (
        f"ratio of batches {spread(gains)}; {n_rows:,} rows a batch, "
        f"{found['eddyline']['answer'][0]:,} results; {told(found, *ways)}; in buckets "
        f"{found['eddyline']['work_s']:.3g} s in all"
    )
    return Measurement(median(gains), note, found)


RUNS: Runs = {
    "aggregates_over_operator": operator,
    "aggregates_over_spark": beside_batches,
    "aggregates_over_spark_history": beside_history,
}

"""Time of a batch as state grows, end to end on Spark: windows of a hundred times as many rows.

The same files go to both sizes in turns. They fill the long windows in large batches first, which
are not timed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from benchmarks.aggregates.asked import Asked, duckdb_answer, over, written
from benchmarks.aggregates.data import Shape, narrow_batches_v1
from benchmarks.aggregates.race import race, told
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median

PER_S = 1_000
"""Rows a second, of as many groups."""

N_FULL = 10
"""Batches that fill the long windows."""

SIZES = (100, 10_000)
"""Lengths of windows (s)."""


def batches_v1(n_full: int, n_batches: int, n_rows: int) -> Iterator[dict[str, pa.Table]]:
    """Yield batches of a tenth of the rows of the long windows, and then those to be timed."""
    first = narrow_batches_v1(Shape(N_FULL, n_full, n_full * 1_000_000 // PER_S, PER_S, seed=1))
    yield from first
    offset = N_FULL * n_full * 1_000_000 // PER_S
    for each in narrow_batches_v1(Shape(n_batches, n_rows, n_rows * 1_000_000 // PER_S, PER_S)):
        rows = each["s"]
        micros = pa.array(rows["ts"].cast(pa.int64()).to_numpy() + offset).cast(rows["ts"].type)
        yield {"s": rows.set_column(1, "ts", micros)}


def over_rows(length_s: int) -> Asked:
    """Return aggregates of each row over rows so long ago."""

    def said(interval: str) -> str:
        frame = f"PARTITION BY k ORDER BY ts RANGE BETWEEN {interval} PRECEDING AND CURRENT ROW"
        return (
            f"SELECT id, ts, sum(v) OVER w AS total, max(v) OVER w AS most FROM s "
            f"WINDOW w AS ({frame})"
        )

    final = f"SELECT * FROM ({said(f'INTERVAL {length_s} SECONDS')}) WHERE ts < {{low}}"
    return Asked(said(f"INTERVAL '{length_s}' SECONDS"), duckdb=final)


def sliding(length_s: int) -> Asked:
    """Return aggregates by group over windows so long that end every second."""
    columns = "k, count(*) AS n, sum(v) AS total, max(v) AS most"
    second = "epoch_us(ts) // 1000000"
    cells = f"SELECT {second} AS cell, {columns} FROM s GROUP BY ALL"
    grid = (
        f"SELECT k, cell FROM (SELECT DISTINCT k FROM s), (SELECT unnest("
        f"range(min({second}), max({second}) + 1)) AS cell FROM s)"
    )
    values = ", ".join(
        f"{call}({name}) OVER w AS {name}"
        for name, call in {"n": "sum", "total": "sum", "most": "max"}.items()
    )
    windows = (
        f"SELECT to_timestamp(cell + 1) AS wend, k, {values} FROM ({grid}) LEFT JOIN ({cells}) "
        f"USING (k, cell) WINDOW w AS (PARTITION BY k ORDER BY cell "
        f"ROWS BETWEEN {length_s - 1} PRECEDING AND CURRENT ROW)"
    )
    return Asked(
        f"SELECT window.end AS wend, {columns} FROM s [RANGE {length_s} SECONDS SLIDE 1 SECOND] "
        f"GROUP BY k",
        duckdb=f"SELECT * FROM ({windows}) WHERE n > 0 AND wend <= {{low}}",
    )


KINDS = {"OVER": over_rows, "sliding": sliding}


def growth(settings: Settings) -> Measurement:
    """Batches over long windows beside those over short ones, the worse of OVER and sliding."""
    n_full, n_rows = settings.pick(1_000_000, 20_000), settings.pick(100_000, 10_000)
    n_timed = settings.pick(7, 2)
    lengths = SIZES[0] // settings.pick(1, 10), N_FULL * n_full // PER_S
    folder = written(batches_v1(n_full, n_timed, n_rows), n_far=0)
    asked = {
        f"{kind} {length}": over(make(length), folder)
        for kind, make in KINDS.items()
        for length in lengths
    }
    try:
        entered = {name: ("eddyline", [each]) for name, each in asked.items()}
        entered["read"] = ("read", [next(iter(asked.values()))])
        found = race(entered, n_far=0)
        for name, each in asked.items():
            wanted, got = duckdb_answer(each, each.duckdb)["answer"], found[name]["answer"]
            assert got == wanted, f"{name} answers {got} where DuckDB has {wanted}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _measured(found, lengths, n_rows)


def _measured(found: dict[str, Any], lengths: tuple[int, int], n_rows: int) -> Measurement:
    for each in (found[name] for name in found if name != "workers_peak_bytes"):
        each["seconds"] = each["seconds"][N_FULL - 1 :]
    short, long = lengths
    floor, values, notes = median(found["read"]["seconds"][1:]), {}, []
    for kind in KINDS:
        times = [median(found[f"{kind} {length}"]["seconds"][1:]) for length in (short, long)]
        values[kind] = times[1] / times[0]
        kept = [found[f"{kind} {n}"]["n_kept"] for n in (short, long)]
        notes.append(
            f"{kind} {values[kind]:.2f} ({(times[1] - floor) / (times[0] - floor):.2f} without "
            f"reading), {kept[0]:,} and {kept[1]:,} kept, "
            f"{told(found, f'{kind} {short}', f'{kind} {long}')}"
        )
    note = f"{n_rows:,} rows a batch; {'; '.join(notes)}; {told(found, 'read')}"
    return Measurement(max(values.values()), note, found)


RUNS: Runs = {"aggregates_growth": growth}

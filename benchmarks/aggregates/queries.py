"""Many queries with windows of their own over one stream, beside one of them and beside Spark's."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.aggregates.asked import Asked, duckdb_answer, over, written
from benchmarks.aggregates.data import Shape, wide_batches_v1
from benchmarks.aggregates.race import race, ratios, told
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread

N_SPARK = 5
"""Queries that Spark runs at a time: their time is scaled to all."""


NESTED = ("k % 10 AS region", "k % 100 AS place", "k")
"""Groups, each of which lies in one of those before."""


def windowed(number: int, by: Sequence[str] = ("k",)) -> Asked:
    """Return a query with a window of its own, one of a hundred, by some groups."""
    names = ", ".join(each.split()[-1] for each in by)
    columns = f"window.end AS wend, {', '.join(by)}, count(*) AS n, sum(v) AS total"
    groups = ", ".join(each.partition(" AS ")[0] for each in by)
    slide_s = 1 + number % 10
    length_s = slide_s * (5 + number // 10)
    cells = (
        f"SELECT {', '.join(by)}, epoch_us(ts) // 1000000 AS cell, count(*) AS n, sum(v) AS v "
        "FROM s GROUP BY ALL"
    )
    ends = (
        f"SELECT *, unnest(range(0, {length_s}, {slide_s})) + {slide_s} + (cell // {slide_s}) "
        f"* {slide_s} AS wend FROM ({cells})"
    )
    return Asked(
        f"SELECT {columns} FROM s [RANGE {length_s} SECONDS SLIDE {slide_s} SECONDS] "
        f"GROUP BY {groups}",
        f"SELECT {columns} FROM s GROUP BY "
        f"window(ts, '{length_s} seconds', '{slide_s} seconds'), {groups}",
        f"SELECT to_timestamp(wend) AS wend, {names}, sum(n) AS n, sum(v) AS total FROM ({ends}) "
        f"WHERE to_timestamp(wend) <= {{low}} GROUP BY wend, {names}",
    )


def _raced(settings: Settings, sink: str) -> dict[str, Any]:
    """Let one query, all, and Spark's run one after the other, as many would disturb each other.

    ``sink`` is `` files`` where results are written to files; else each query sums up its own.
    """
    n_queries = settings.pick(100, 10)
    shape = Shape(settings.pick(4, 3), settings.pick(300_000, 20_000), 60_000_000)
    folder = written(wide_batches_v1(shape))
    try:
        every = [over(windowed(number), folder) for number in range(0, 100, 100 // n_queries)]
        some = every[:: len(every) // N_SPARK]
        entered = {
            "one": (f"eddyline{sink}", every[len(every) // 2 :][:1]),
            "all": (f"eddyline{sink}", every),
            "spark": (f"spark{sink}", some),
        }
        found = _checked(entered)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found["n_queries"], found["n_rows"] = n_queries, shape.n_rows
    return found


def _checked(entered: Mapping[str, tuple[str, Sequence[Asked]]]) -> dict[str, Any]:
    """Let contestants run one after the other; fail where one's answer is not DuckDB's."""
    found = race(entered, in_turns=False)
    for name, (_, asked) in entered.items():
        answers = [duckdb_answer(each, each.duckdb)["answer"] for each in asked]
        wanted = [sum(each[k] for each in answers) for k in range(2)]
        got = found[name]["answer"]
        assert got == wanted, f"{name} answers {got} where DuckDB has {wanted}"
    return found


_found: dict[tuple[bool, str], dict[str, Any]] = {}


def _once(settings: Settings, sink: str) -> dict[str, Any]:
    """Return what two scenarios are about, run once in a process."""
    key = settings.quick, sink
    if key not in _found:
        _found[key] = _raced(settings, sink)
    return _found[key]


def beside_one(settings: Settings, sink: str = "") -> Measurement:
    """All queries over one of them."""
    found = _once(settings, sink)
    gains = ratios(found, "all", "one")
    return Measurement(median(gains), _note(found, gains), found)


def beside_spark(settings: Settings, sink: str = "") -> Measurement:
    """As many queries of Spark, their time scaled from a few, over ours."""
    found = _once(settings, sink)
    scale = found["n_queries"] / N_SPARK
    gains = [each * scale for each in ratios(found, "spark", "all")]
    note = f"{_note(found, gains)}; Spark's time of {N_SPARK} queries times {scale:g}"
    return Measurement(median(gains), note, found)


def groupings(settings: Settings) -> Measurement:
    """Queries over three nested groupings over one of the finest."""
    n_each = settings.pick(4, 2)
    shape = Shape(settings.pick(4, 3), settings.pick(300_000, 20_000), 60_000_000)
    folder = written(wide_batches_v1(shape))
    numbers = range(len(NESTED) * n_each)
    try:
        every = [over(windowed(each, NESTED[: 1 + each // n_each]), folder) for each in numbers]
        coarse, finest = every[0], every[-1]
        entered = {
            "one": ("eddyline", [finest]),
            "coarse": ("eddyline", [coarse]),
            "all": ("eddyline", every),
        }
        found = _checked(entered)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found["n_queries"], found["n_rows"] = len(every), shape.n_rows
    gains = ratios(found, "all", "one")
    note = f"{_note(found, gains, 'one', 'coarse', 'all')}; coarse is one of the coarsest, alone"
    return Measurement(median(gains), note, found)


def _note(found: dict[str, Any], gains: list[float], *names: str) -> str:
    return (
        f"ratio of batches {spread(gains)}; {found['n_queries']} queries, {found['n_rows']:,} rows "
        f"a batch, {found['all']['answer'][0]:,} results; "
        f"{told(found, *(names or ('one', 'all', 'spark')))}"
    )


RUNS: Runs = {
    "aggregates_queries_100": beside_one,
    "aggregates_queries_100_spark": beside_spark,
    "aggregates_queries_100_files": partial(beside_one, sink=" files"),
    "aggregates_queries_100_files_spark": partial(beside_spark, sink=" files"),
    "aggregates_groupings": groupings,
}

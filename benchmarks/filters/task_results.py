"""What tasks that read and write files themselves save of a batch of real order-book messages.

Parquet in and out. Two ways run the same query over the same files in one session, in turns.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow.compute as pc

from benchmarks.filters.local_files import run_over_ticks, ticks
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, ratios, spread
from eddyline.spark import projection
from eddyline.spark.sinks.files import FileSink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Way = Callable[[str], tuple[list[float], int]]
    """Runs a query over a folder; returns what each batch took (ms), and the results."""

OVER = "PARTITION BY symbol ORDER BY ts RANGE BETWEEN INTERVAL 10 SECONDS PRECEDING AND CURRENT ROW"

QUERIES = {
    "where": "SELECT * FROM ticks WHERE dear(price)",
    "over": (
        f"SELECT *, count(*) OVER w AS n, max(price) OVER w AS high FROM ticks WINDOW w AS ({OVER})"
    ),
    "join": (
        "SELECT a.*, b.seq AS before, b.price AS price_before "
        "FROM ticks a [RANGE 0 SECONDS], ticks b [RANGE 50 MILLISECONDS] "
        "WHERE a.symbol = b.symbol"
    ),
    "filter": (
        "SELECT symbol, window.end AS until, count(*) FILTER (WHERE type = 4) AS trades, "
        "sum(size) FILTER (WHERE type = 4) AS volume, max(price) AS high, "
        "count_if(direction = 1 AND size > 100) AS large "
        "FROM ticks [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY symbol"
    ),
}

COMPUTED = {
    "computed where": (
        "SELECT symbol, ts, price * size AS value, price - 30 AS over, direction = 1 AS is_buy, "
        "CASE WHEN size >= 100 THEN 'large' ELSE 'small' END AS kind "
        "FROM ticks WHERE dear(price)"
    ),
    "computed join": (
        "SELECT a.symbol, a.ts, a.price - b.price AS change, (a.price + b.price) / 2 AS middle, "
        "a.size + b.size AS both FROM ticks a [RANGE 0 SECONDS], ticks b [RANGE 50 MILLISECONDS] "
        "WHERE a.symbol = b.symbol"
    ),
    "computed sums": (
        "SELECT symbol, window.end AS until, sum(price) / count(*) AS mean, "
        "max(price) - min(price) AS spread "
        "FROM ticks [RANGE 10 SECONDS SLIDE 1 SECOND] GROUP BY symbol"
    ),
}
"""Queries whose output columns have to be computed."""

QUERIES |= COMPUTED

N_BATCHES = {"where": 10, "over": 10, "join": 3, "filter": 10}
N_BATCHES |= {"computed where": 10, "computed join": 3, "computed sums": 10}
"""The driver itself answers a join of fewer rows and results."""

ROUNDS = 3


def results(settings: Settings, kind: str) -> Measurement:
    """A batch whose results Spark writes over one whose results tasks write."""
    ways = {name: partial(_run, kind=kind, by_tasks=name == "tasks") for name in ("spark", "tasks")}
    return _in_turns(settings, kind, ways)


def conditions(settings: Settings) -> Measurement:
    """A batch whose rows Spark hands over over one in the lane, of an aggregate with FILTER."""
    ways = {name: partial(_run, kind="filter", lane=name) for name in ("off", "auto")}
    return _in_turns(settings, "filter", ways)


def computed(settings: Settings, kind: str) -> Measurement:
    """A batch whose output columns Spark computes over one where Arrow does."""
    kind = f"computed {kind}"
    ways = {name: partial(_run, kind=kind, by_spark=name == "spark") for name in ("spark", "arrow")}
    return _in_turns(settings, kind, ways)


def _in_turns(settings: Settings, kind: str, ways: Mapping[str, Way]) -> Measurement:
    """Return the time of a batch in the first way over the second, of the later half of a run."""
    n_batches = settings.pick(N_BATCHES[kind], 3)
    folder = str(ticks(n_batches))
    took: dict[str, list[list[float]]] = {name: [] for name in ways}
    n_results = set()
    for _ in range(settings.pick(ROUNDS, 1)):
        for name, way in ways.items():
            ms, n_rows = way(folder)
            took[name].append(ms[n_batches // 2 :])
            n_results.add(n_rows)
    assert len(n_results) == 1, f"the ways have {n_results} results"
    by_round = ratios(took)
    told = ", ".join(f"{name} {spread([*chain(*rounds)])}" for name, rounds in took.items())
    note = f"{n_results.pop():,} results; later batches (ms): {told}; ratios {spread(by_round)}"
    return Measurement(median(by_round), note, {"ms": took})


def _run(
    folder: str,
    *,
    kind: str,
    by_tasks: bool | None = None,
    by_spark: bool = False,
    lane: str = "auto",
) -> tuple[list[float], int]:
    """Run a query over all files; see ``Way``.

    Args:
        folder: the files; each is a batch.
        kind: of ``QUERIES``.
        by_tasks: whether tasks write the results, or Spark; None: as ever.
        by_spark: whether Spark computes output columns that are not picked.
        lane: the option.
    """
    changed: Any = nullcontext()
    if by_tasks is False:
        changed = mock.patch.object(FileSink, "takes_results", return_value=False)
    if by_spark:
        changed = mock.patch.object(projection, "column_values", return_value=None)
    with (
        changed,
        run_over_ticks(folder, QUERIES[kind], _with_dear, lane=lane) as (run, ms, n_rows),
    ):
        assert by_tasks in (None, run.outlet.by_tasks), "the results were written by others"
    return ms, n_rows


def _with_dear(engine: Any) -> None:
    engine.function("dear", lambda price: pc.greater(price, 30.0), reads=["price"])


RUNS: Runs = {
    "lane_results_where": partial(results, kind="where"),
    "lane_results_over": partial(results, kind="over"),
    "lane_results_join": partial(results, kind="join"),
    "lane_conditions": conditions,
    "lane_computed_where": partial(computed, kind="where"),
    "lane_computed_join": partial(computed, kind="join"),
    "lane_computed_sums": partial(computed, kind="sums"),
}

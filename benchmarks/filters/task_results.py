"""What tasks that read and write files themselves save of a batch of real order-book messages.

Parquet in and out. Two ways run the same query over the same files in one session, in turns.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow.compute as pc
from pyarrow import parquet

import eddyline as el
from benchmarks.filters.local_files import ticks
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session
from benchmarks.harness.statistics import median, spread
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

N_BATCHES = {"where": 10, "over": 10, "join": 3, "filter": 10}
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
    ratios = [
        above / below
        for rounds in zip(*took.values(), strict=True)
        for above, below in zip(*rounds, strict=True)
    ]
    told = ", ".join(f"{name} {spread([*chain(*rounds)])}" for name, rounds in took.items())
    note = f"{n_results.pop():,} results; later batches (ms): {told}; ratios {spread(ratios)}"
    return Measurement(median(ratios), note, {"ms": took})


def _run(
    folder: str,
    *,
    kind: str,
    by_tasks: bool | None = None,
    lane: str = "auto",
) -> tuple[list[float], int]:
    """Run a query over all files; see ``Way``.

    Args:
        folder: the files; each is a batch.
        kind: of ``QUERIES``.
        by_tasks: whether tasks write the results, or Spark; None: as ever.
        lane: the option.
    """
    spark = spark_session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1_000)
    stream = spark.readStream.schema(spark.read.parquet(folder).schema)
    engine = el.Engine(spark)
    rows = stream.option("maxFilesPerTrigger", 1).parquet(folder)
    engine.stream("ticks", rows, time="ts", lateness="1 second")
    engine.function("dear", lambda price: pc.greater(price, 30.0), reads=["price"])
    if by_tasks is False:
        by_spark: Any = mock.patch.object(FileSink, "takes_results", return_value=False)
    else:
        by_spark = nullcontext()
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out, by_spark:
        run = engine.query(QUERIES[kind], name="results", lane=lane).start(
            "parquet", trigger="available_now", path=f"{out}/rows", checkpoint=f"{out}/state"
        )
        run.await_termination()
        took = [batch["durationMs"] for batch in run.streaming_query.recentProgress]
        n_rows = parquet.read_table(f"{out}/rows").num_rows
        assert by_tasks in (None, run.outlet.by_tasks), "the results were written by others"
    return [batch["triggerExecution"] for batch in took if "addBatch" in batch], n_rows


RUNS: Runs = {
    "lane_results_where": partial(results, kind="where"),
    "lane_results_over": partial(results, kind="over"),
    "lane_results_join": partial(results, kind="join"),
    "lane_conditions": conditions,
}

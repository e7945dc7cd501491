"""What aggregates over a join take beside the join itself, on real order-book messages.

Parquet in and out. Both queries run over the same files in one session, in turns.
"""

from __future__ import annotations

import tempfile

import eddyline as el
from benchmarks.filters.local_files import ticks
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session
from benchmarks.harness.statistics import median, spread

FROM = (
    "FROM ticks a [RANGE 20 MILLISECONDS], ticks b [RANGE 10 MILLISECONDS] "
    "WHERE a.symbol = b.symbol AND a.type = 4"
)
QUERIES = {
    "join": f"SELECT a.symbol, a.size, b.price, a.ts AS at, b.ts AS bt {FROM}",
    "aggregates": (
        "SELECT a.symbol, count(*) AS n, sum(a.size) AS size, max(b.price) AS high, "
        f"window.end AS until {FROM} GROUP BY a.symbol"
    ),
}

N_BATCHES = 6
ROUNDS = 3


def over_join(settings: Settings) -> Measurement:
    """The time of a batch of aggregates over a join over that of the join that returns its rows."""
    n_batches = settings.pick(N_BATCHES, 3)
    folder = str(ticks(n_batches))
    took: dict[str, list[float]] = {name: [] for name in QUERIES}
    n_rows = {}
    for _ in range(settings.pick(ROUNDS, 1)):
        for name, text in QUERIES.items():
            ms, n_rows[name] = _run(folder, text)
            took[name] += ms[n_batches // 2 :]
    ratios = [above / below for above, below in zip(took["aggregates"], took["join"], strict=True)]
    told = ", ".join(f"{name} {n_rows[name]:,} results, {spread(took[name])} ms" for name in took)
    return Measurement(median(ratios), f"later batches: {told}; {spread(ratios)}", {"ms": took})


def _run(folder: str, text: str) -> tuple[list[float], int]:
    """Run a query over all files; return what each batch took (ms), and the number of results."""
    spark = spark_session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1_000)
    stream = spark.readStream.schema(spark.read.parquet(folder).schema)
    engine = el.Engine(spark)
    rows = stream.option("maxFilesPerTrigger", 1).parquet(folder)
    engine.stream("ticks", rows, time="ts", lateness="1 second")
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
        run = engine.query(text, name="joined").start(
            "parquet", trigger="available_now", path=f"{out}/rows", checkpoint=f"{out}/state"
        )
        run.await_termination()
        took = [batch["durationMs"] for batch in run.streaming_query.recentProgress]
        n_rows = spark.read.parquet(f"{out}/rows").count()
    return [batch["triggerExecution"] for batch in took if "addBatch" in batch], n_rows


RUNS: Runs = {"aggregates_over_join": over_join}

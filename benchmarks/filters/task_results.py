"""What a batch costs whose results tasks write to files, and one whose results Spark writes.

A day of real order-book messages, Parquet in and out. Both ways run the same query over the same
files in one session, in turns; they differ in who writes alone.
"""

from __future__ import annotations

import tempfile
from functools import partial
from unittest import mock

import pyarrow.compute as pc
from pyarrow import parquet

import eddyline as el
from benchmarks.filters.local_files import ticks
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session
from benchmarks.harness.statistics import median, spread
from eddyline.spark.sinks.files import FileSink

OVER = "PARTITION BY symbol ORDER BY ts RANGE BETWEEN INTERVAL 10 SECONDS PRECEDING AND CURRENT ROW"

QUERIES = {
    "where": "SELECT * FROM ticks WHERE dear(price)",
    "over": (
        f"SELECT *, count(*) OVER w AS n, max(price) OVER w AS high FROM ticks WINDOW w AS ({OVER})"
    ),
    "join": (
        "SELECT a.*, b.seq AS before, b.price AS price_before "
        "FROM ticks a [RANGE 0 SECONDS], ticks b [RANGE 100 MILLISECONDS] "
        "WHERE a.order_id = b.order_id"
    ),
}

ROUNDS = 3


def results(settings: Settings, kind: str) -> Measurement:
    """A batch whose results Spark writes over one whose results tasks write."""
    n_batches = settings.pick(10, 3)
    folder = str(ticks(n_batches))
    took: dict[str, list[list[float]]] = {"spark": [], "tasks": []}
    n_results = set()
    for _ in range(settings.pick(ROUNDS, 1)):
        for way, rounds in took.items():
            takes = FileSink.takes_results if way == "tasks" else lambda *_: False
            with mock.patch.object(FileSink, "takes_results", takes):
                ms, n_rows, has_tasks = _run(folder, kind)
            assert has_tasks == (way == "tasks"), f"{way}: the results were not written so"
            rounds.append(ms)
            n_results.add(n_rows)
    assert len(n_results) == 1, f"the ways have {n_results} results"
    ratios = [
        theirs / ours
        for rounds in zip(*took.values(), strict=True)
        for theirs, ours in zip(*(ms[n_batches // 2 :] for ms in rounds), strict=True)
    ]
    told = ", ".join(
        f"{way} {spread([each for ms in rounds for each in ms[n_batches // 2 :]])}"
        for way, rounds in took.items()
    )
    note = f"{n_results.pop():,} results; later batches (ms): {told}; ratios {spread(ratios)}"
    return Measurement(median(ratios), note, {"ms": took})


def _run(folder: str, kind: str) -> tuple[list[float], int, bool]:
    """Run a query over all files; return what each batch took (ms), its results, and who wrote."""
    spark = spark_session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1_000)
    stream = spark.readStream.schema(spark.read.parquet(folder).schema)
    engine = el.Engine(spark)
    rows = stream.option("maxFilesPerTrigger", 1).parquet(folder)
    engine.stream("ticks", rows, time="ts", lateness="1 second")
    engine.function("dear", lambda price: pc.greater(price, 30.0), reads=["price"])
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
        run = engine.query(QUERIES[kind], name="results").start(
            "parquet", trigger="available_now", path=f"{out}/rows", checkpoint=f"{out}/state"
        )
        run.await_termination()
        took = [batch["durationMs"] for batch in run.streaming_query.recentProgress]
        n_rows = parquet.read_table(f"{out}/rows").num_rows
        has_tasks = bool(run.outlet.by_tasks)
    return [batch["triggerExecution"] for batch in took if "addBatch" in batch], n_rows, has_tasks


RUNS: Runs = {
    "lane_results_where": partial(results, kind="where"),
    "lane_results_over": partial(results, kind="over"),
    "lane_results_join": partial(results, kind="join"),
}

"""What a batch of a stream costs with Hadoop's local file system, and with eddyline's.

A day of real order-book messages, one file a batch, Parquet in and out. Each run is a process of
its own, as a JVM keeps its file system.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import eddyline as el
from benchmarks.harness.isolated import alone
from benchmarks.harness.needs import data_folder
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session, written
from benchmarks.harness.statistics import median, spread
from eddyline.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THEIR_FILES = "org.apache.hadoop.fs.LocalFileSystem"

CONDITION = "price > 100 AND size > 50"

QUERIES = {
    "where": f"SELECT * FROM ticks WHERE {CONDITION}",
    "window": (
        "SELECT symbol, count(*) AS n, avg(price) AS price "
        "FROM ticks [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY symbol"
    ),
}


@cache
def ticks(n_files: int) -> Path:
    """Return the folder of a day of order-book messages, in the order of time."""
    table = parquet.read_table(data_folder() / "ticks" / "messages.parquet")
    instants = pc.divide(table["ts"].cast(pa.int64()), 1_000).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(table.schema.get_field_index("ts"), "ts", instants)
    return written(table.sort_by("ts"), n_files=n_files)


@contextmanager
def run_over_ticks(
    folder: str, text: str, prepare: Callable[[Any], None] | None = None, **options: Any
) -> Iterator[tuple[Any, list[float], int]]:
    """Run a query over all files of messages in the session of benchmarks, Parquet in and out.

    Args:
        folder: the files; each is a batch.
        text: the query.
        prepare: gets the engine before the query is made.
        options: of the query.

    Yields:
        The run, which has ended; what each batch took (ms); the number of results.
    """
    spark = spark_session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1_000)
    stream = spark.readStream.schema(spark.read.parquet(folder).schema)
    engine = el.Engine(spark)
    rows = stream.option("maxFilesPerTrigger", 1).parquet(folder)
    engine.stream("ticks", rows, time="ts", lateness="1 second")
    if prepare is not None:
        prepare(engine)
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
        run = engine.query(text, name="results", **options).start(
            "parquet", trigger="available_now", path=f"{out}/rows", checkpoint=f"{out}/state"
        )
        run.await_termination()
        took = [batch["durationMs"] for batch in run.streaming_query.recentProgress]
        n_rows = parquet.read_table(f"{out}/rows").num_rows
        yield run, [each["triggerExecution"] for each in took if "addBatch" in each], n_rows


def ticks_alone(folder: str, kind: str, *, is_ours: bool) -> dict[str, list[float]]:
    """Return how long each batch of a stream took in a process (ms), Parquet in and out.

    Args:
        folder: the files of the messages; each is a batch.
        kind: a query of ``QUERIES``, run by the engine, or ``plain``: the condition of ``where`` in
            a stream of Spark's.
        is_ours: whether eddyline's local file system is installed, or Hadoop's stays.
    """
    more = {} if is_ours else {"spark.hadoop.fs.file.impl": THEIR_FILES}
    spark = session(more, master="local[2]", app="eddyline benchmarks")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1_000)
    stream = spark.readStream.schema(spark.read.parquet(folder).schema)
    rows = stream.option("maxFilesPerTrigger", 1).parquet(folder)
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
        state, into = f"{out}/state", f"{out}/rows"
        if kind == "plain":
            writer = rows.where(CONDITION).writeStream.format("parquet")
            writer = writer.option("path", into).option("checkpointLocation", state)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        else:
            engine = el.Engine(spark)
            engine.stream("ticks", rows, time="ts" if kind == "window" else None)
            run = engine.query(QUERIES[kind], name="ticks").start(
                "parquet", trigger="available_now", path=into, checkpoint=state
            )
            run.await_termination()
            query = run.streaming_query
        took = [batch["durationMs"] for batch in query.recentProgress]
    spark.stop()
    return {"ms": [batch["triggerExecution"] for batch in took if "addBatch" in batch]}


def local_files(settings: Settings, kind: str) -> Measurement:
    """A batch of real ticks with Hadoop's local file system over one with eddyline's."""
    n_batches = settings.pick(60, 20)
    folder = str(ticks(n_batches))
    took: dict[str, list[float]] = {"theirs": [], "ours": []}
    for _ in range(settings.pick(5, 1)):
        for name, batches in took.items():
            where = "benchmarks.filters.local_files:ticks_alone"
            run = alone(where, folder=folder, kind=kind, is_ours=name == "ours")
            batches.append(median(run["ms"][n_batches // 3 :]))
    ratios = [theirs / ours for theirs, ours in zip(*took.values(), strict=True)]
    told = ", ".join(f"{name} {spread(batches)}" for name, batches in took.items())
    note = f"medians of {n_batches} batches by process (ms): {told}; ratios {spread(ratios)}"
    return Measurement(median(ratios), note, {"ms": took})


RUNS: Runs = {
    "local_files_where": partial(local_files, kind="where"),
    "local_files_window": partial(local_files, kind="window"),
    "local_files_plain": partial(local_files, kind="plain"),
}

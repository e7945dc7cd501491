"""One query in eddyline, in a process of its own: the same job as ``flink_child``."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

import eddyline as el
from benchmarks.harness.processor import seconds_below

HERE = "benchmarks.peers.eddyline_child:run"

CORES = 2

HEAP = "6g"
"""Most memory of the JVM, Flink's too."""


def run(job: dict[str, Any], options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a job; returns its times (s), and those of Spark's micro-batches.

    Args:
        job: see ``PeerQuery.job``.
        options: of the query.
    """
    with tempfile.TemporaryDirectory(prefix="eddyline_peer_") as folder:
        conf = {
            "spark.driver.memory": HEAP,
            "spark.local.dir": f"{folder}/local",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
        }
        spark = el.session(conf, master=f"local[{CORES}]", app="eddyline beside Flink")
        engine = el.Engine(spark)
        ready_s = time.time() - job["spawned"]
        busy, started = seconds_below(), time.perf_counter()
        add_streams(engine, job, spark)
        query = engine.query(job["eddyline"], name="peer", **(options or {}))
        run = query.start(
            "csv", path=job["out"], checkpoint=f"{folder}/checkpoint", trigger="available_now"
        )
        run.await_termination()
        seconds = time.perf_counter() - started
        times = {
            "ready_s": ready_s,
            "seconds": seconds,
            "busy_s": seconds_below() - busy,
            "batches": [progress["durationMs"] for progress in run.recentProgress],
        }
        spark.stop()
        return times


def add_streams(engine: el.Engine, job: dict[str, Any], spark: SparkSession) -> None:
    """Add the streams of a job to an engine.

    Args:
        engine: a new one.
        job: see ``PeerQuery.job``.
        spark: the session of the engine.
    """
    for name, columns in job["streams"].items():
        schema = ", ".join(f"`{column}` {kind}" for column, kind in columns.items())
        rows = spark.readStream.schema(schema).csv(f"{job['folder']}/{name}")
        lateness = f"{job['lateness_s']} seconds"
        engine.stream(name, rows, time=job["times"][name], lateness=lateness)
    for name, text, instant in job["steps"]:
        engine.stream(name, engine.query(text), time=instant)

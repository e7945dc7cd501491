"""A session in which streaming queries take turns over files that are put before them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from eddyline.spark.session import session

POLL_MS = 200
"""How long a query that has nothing to do waits before it looks for files again (ms)."""


@contextmanager
def arena() -> Iterator[tuple[SparkSession, Path]]:
    """Return a session for contestants, and a folder; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="eddyline_race_", ignore_cleanup_errors=True) as folder:
        conf = {
            "spark.driver.memory": "6g",
            "spark.local.dir": f"{folder}/local",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.streaming.pollingDelay": f"{POLL_MS}ms",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            # So that the files of its last version are not all that it ever wrote.
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": "4",
            "spark.sql.streaming.stateStore.maintenanceInterval": "20s",
            "spark.sql.streaming.numRecentProgressUpdates": "100000",
            "spark.log.level": "OFF",
        }
        spark = session(conf, master="local[2]", app="eddyline benchmarks")
        try:
            yield spark, Path(folder)
        finally:
            spark.stop()

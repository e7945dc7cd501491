"""One query in Flink, run by the Python of its own environment, which lacks eddyline.

``run`` takes a job (see ``PeerQuery.job``) and runs its query in streaming mode over bounded files.
"""

from __future__ import annotations

import time
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment
from pyflink.version import __version__

from benchmarks.harness.processor import seconds_below

PARALLELISM = 2

SETTINGS = {
    "parallelism.default": str(PARALLELISM),
    "table.local-time-zone": "UTC",
    # No operator of these queries changes a row that it got, so none needs a copy.
    "pipeline.object-reuse": "true",
}


def _columns(columns: dict[str, str]) -> str:
    """Return columns as Flink declares them; event time has milliseconds."""
    kinds = {"TIMESTAMP": "TIMESTAMP(3)"}
    return ", ".join(f"`{name}` {kinds.get(kind, kind)}" for name, kind in columns.items())


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job; returns its times (s) and the version of Flink."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        tables.get_config().set(name, value)
    ready_s = time.time() - job["spawned"]
    busy, started = seconds_below(), time.perf_counter()
    for name, columns in job["streams"].items():
        instant = f"`{job['times'][name]}`"
        tables.execute_sql(
            f"CREATE TABLE {name} ({_columns(columns)}, WATERMARK FOR {instant} AS "
            f"{instant} - INTERVAL '{job['lateness_s']}' SECOND) WITH ('connector' = 'filesystem', "
            f"'path' = '{job['folder']}/{name}', 'format' = 'csv')"
        )
    tables.execute_sql(
        f"CREATE TABLE results ({_columns(job['results'])}) WITH ('connector' = 'filesystem', "
        f"'path' = '{job['out']}', 'format' = 'csv')"
    )
    tables.execute_sql(f"INSERT INTO results {job['flink']}").wait()
    seconds = time.perf_counter() - started
    busy = seconds_below() - busy
    return {"ready_s": ready_s, "seconds": seconds, "busy_s": busy, "version": __version__}

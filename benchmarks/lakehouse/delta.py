"""A Delta table as a stream: tasks that read its files (the lane) beside rows of the JVM."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

import eddyline as el
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session
from benchmarks.harness.statistics import median, ratios, spread

QUERY = (
    "SELECT city, COUNT(*) AS n, SUM(amount) AS total "
    "FROM clicks [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY city"
)
WAYS = {"lane off": "off", "lane auto": "auto"}


def _append(path: str, n_rows: int, n_versions: int, seed: int) -> None:
    from deltalake import write_deltalake  # noqa: PLC0415

    random = np.random.default_rng(seed)
    for version in range(n_versions):
        micros = 1_700_000_000_000_000 + 100 * (np.arange(n_rows) + version * n_rows)
        columns = {
            "ts": pa.array(micros, pa.timestamp("us", tz="UTC")),
            "city": random.integers(0, 1_000, n_rows),
            "amount": random.uniform(0, 100, n_rows),
            **{f"other_{number}": random.random(n_rows) for number in range(10)},
        }
        write_deltalake(path, pa.table(columns), mode="append")


def lane(settings: Settings) -> Measurement:
    """Time of a batch with ``lane="off"`` over the default."""
    n_rows, n_versions = settings.pick(300_000, 30_000), settings.pick(12, 4)
    took: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    n_results = set()
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as folder:
        path = str(Path(folder) / "clicks")
        _append(path, n_rows, n_versions, settings.unseen or 1)
        engine = el.Engine(spark_session())
        source = el.delta(path, start="earliest", max_per_batch=n_rows)
        engine.stream("clicks", source, time="ts", lateness="1 second")
        for _ in range(settings.pick(3, 1)):
            for name, wanted in WAYS.items():
                query = engine.query(QUERY, name="clicks", replace=True, lane=wanted)
                run = query.start("memory", trigger="available_now")
                run.await_termination()
                seconds = [1e3 * record.seconds for record in run.records]
                took[name].append(seconds[n_versions // 2 :])
                n_results.add(run.to_arrow().num_rows)
    assert len(n_results) == 1, f"the ways have {n_results} results"
    by_round = ratios(took)
    shown = ", ".join(f"{name} {spread([*chain(*rounds)])}" for name, rounds in took.items())
    note = f"{n_rows:,} rows a version; later batches (ms): {shown}; ratios {spread(by_round)}"
    return Measurement(median(by_round), note, {"ms": took})


RUNS: Runs = {"delta_stream_lane": lane}

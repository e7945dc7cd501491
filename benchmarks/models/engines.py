"""Models end to end on Spark: beside its own SQL, DuckDB, and hop windows of eddyline's aggregates.

All read the same Parquet files, of twenty columns, anew each time. Wall-clock times: each uses both
cores as it likes.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import eddyline as el
from benchmarks.harness.isolated import alone
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import noop, spark_session, written
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import Times, interleaved, paired_ratio
from benchmarks.models.data import trades

N_COLUMNS = 20

SPARK_MACD = """
SELECT s.key, s.t, s.ap - l.ap AS apart
FROM (SELECT key, window.end AS t, avg(price) AS ap FROM rows
      GROUP BY key, window(ts, '10 seconds', '2 seconds')) s
JOIN (SELECT key, window.end AS t, avg(price) AS ap FROM rows
      GROUP BY key, window(ts, '60 seconds', '2 seconds')) l
ON s.key = l.key AND s.t = l.t WHERE s.ap > l.ap
"""

DUCKDB_MACD = """
WITH panes AS (SELECT key, epoch_us(ts) // 2000000 AS pane, sum(price) AS total, count(*) AS n
               FROM read_parquet('{files}') GROUP BY ALL),
     s AS (SELECT key, pane + d AS tick, sum(total) / sum(n) AS ap
           FROM panes, range(1, 6) r(d) GROUP BY ALL),
     l AS (SELECT key, pane + d AS tick, sum(total) / sum(n) AS ap
           FROM panes, range(1, 31) r(d) GROUP BY ALL)
SELECT count(*), sum(s.ap - l.ap) FROM s JOIN l USING (key, tick) WHERE s.ap > l.ap
"""
"""Windows ``[tick - 10 s, tick)`` as those of Spark, by panes."""


@cache
def files(n_copies: int) -> Path:
    """Return a folder with trades, and columns that nobody asks for, as Parquet."""
    table = trades().copies(n_copies).table
    times = table["ts"].cast(pa.timestamp("us", "UTC"))
    table = table.set_column(1, "ts", times)
    rng = np.random.default_rng(0)
    for each in range(N_COLUMNS - table.num_columns):
        table = table.append_column(f"other_{each}", [rng.integers(0, 1_000, len(table)) / 8])
    return written(table)


def fitted(folder: Path) -> Any:
    """Return segments of the rows of a folder at 1 %."""
    df = spark_session().read.parquet(str(folder))
    return el.models.fit(df, key="key", time="ts", within={"price": "1 %"})


def macd(segments: Any) -> DataFrame:
    """Return where the short average is above the long one, every two seconds."""
    fast = segments.avg("price", window="10 seconds")
    slow = segments.avg("price", window="60 seconds")
    crossed = fast.join(slow, "fast.price > slow.price", names=("fast", "slow"))
    found: DataFrame = crossed.select(apart="fast_price - slow_price").sample("2 seconds")
    return found


def macd_race(settings: Settings, value: str) -> Measurement:
    """MACD of a day's trades by each engine; results are counted or dropped."""
    folder = files(settings.pick(20, 2))
    spark = spark_session()
    kept = f"{tempfile.mkdtemp(prefix='eddyline_bench_')}/segments"
    fitted(folder).write.parquet(kept)
    query = DUCKDB_MACD.format(files=f"{folder}/*.parquet")

    def by_spark() -> None:
        spark.read.parquet(str(folder)).createOrReplaceTempView("rows")
        noop(spark.sql(SPARK_MACD))

    variants: dict[str, Callable[[], object]] = {
        "Spark": by_spark,
        "fitting and asking": lambda: noop(macd(fitted(folder))),
        "asking": lambda: noop(macd(el.models.read(kept))),
        "DuckDB": lambda: duckdb.connect().sql(query).fetchall(),
    }
    times = interleaved(variants, settings.pick(3, 1))
    cold = alone("benchmarks.models.engines:cold", kept=kept)
    shutil.rmtree(kept)
    told = ", ".join(f"{name} {each}" for name, each in times.items())
    gains = _ratios(times, "Spark", value)
    note = (
        f"{spread(gains)}; {told}; a new process with a session has the first answer of kept "
        f"segments after {cold['asked_s']:.3g} s; over DuckDB "
        f"{paired_ratio(times['DuckDB'], times[value]):.3g}"
    )
    return Measurement(median(gains), note, {name: each.seconds for name, each in times.items()})


def cold(kept: str) -> dict[str, float]:
    """Return how long the first answer of kept segments takes in this process (s)."""
    spark_session()
    started = time.perf_counter()
    noop(macd(el.models.read(kept)))
    return {"asked_s": time.perf_counter() - started}


def hops(settings: Settings) -> Measurement:
    """Averages of 10 seconds every two: hop windows of rows beside windows over segments."""
    folder = files(settings.pick(20, 2))
    spark = spark_session()
    place = Path(tempfile.mkdtemp(prefix="eddyline_bench_"))
    schema = spark.read.parquet(str(folder)).schema
    engine = el.Engine(spark)
    stream = spark.readStream.schema(schema).parquet(str(folder))
    engine.stream("s", stream, time="ts", lateness="1 second")
    text = (
        "SELECT window.end AS wend, key, avg(price) AS ap FROM s "
        "[RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY key"
    )
    n = 0

    def by_rows() -> None:
        nonlocal n
        n += 1
        run = engine.query(text, name=f"models_hops_{n}").start(
            "parquet", path=f"{place}/rows_{n}", checkpoint=f"{place}/at_{n}",
            trigger="available_now",
        )  # fmt: skip
        run.await_termination()

    def by_segments() -> None:
        averages = fitted(folder).avg("price", window="10 seconds", slide="2 seconds")
        averages.write.mode("overwrite").parquet(f"{place}/segments")

    times = interleaved({"rows": by_rows, "segments": by_segments}, settings.pick(3, 1))
    results = [spark.read.parquet(f"{place}/{each}").count() for each in ("rows_1", "segments")]
    shutil.rmtree(place)
    gains = _ratios(times, "rows", "segments")
    note = (
        f"{spread(gains)}; rows {times['rows']}, segments {times['segments']}; {results[0]:,} "
        f"averages of rows, {results[1]:,} of segments, which have windows without rows, too"
    )
    return Measurement(median(gains), note, {name: each.seconds for name, each in times.items()})


def _ratios(times: dict[str, Times], above: str, below: str) -> list[float]:
    pairs = zip(times[above].seconds, times[below].seconds, strict=True)
    return [long / short for long, short in pairs]


RUNS: Runs = {
    "models_macd_spark": lambda settings: macd_race(settings, "fitting and asking"),
    "models_macd_spark_historical": lambda settings: macd_race(settings, "asking"),
    "models_hops": hops,
}

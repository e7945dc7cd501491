"""The lane: Python predicates over scanned Parquet files, whose columns tasks read themselves.

Shapes are those of the day's seed: columns, types, files, costs and shares are drawn. Stock Spark
runs beside, each predicate an Arrow UDF, written worst first as eddyline gets them. Batch jobs take
the lane with ``lane="on"``, streams by default.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import eddyline as el
from benchmarks.filters.as_read import dear, over_arrow, scanned
from benchmarks.filters.stock_udfs import arrow_udf_of
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import noop, spark_session, written
from benchmarks.harness.statistics import median
from benchmarks.harness.timing import Times, interleaved, paired_ratio, times_told
from eddyline.query.predicates import FunctionPredicate

N_PREDICATES = 5


@dataclass(frozen=True)
class Shape:
    """Drawn rows in files, and predicates over them."""

    folder: Path
    drops: tuple[float, ...]
    n_sines: tuple[int, ...]
    text: str
    """What was drawn, in words."""

    @property
    def rows(self) -> DataFrame:
        """The rows, to be read in every job."""
        return scanned(self.folder)

    def predicates(self) -> list[FunctionPredicate]:
        """The predicates of eddyline, written from the one that drops least."""
        return [
            el.predicate(dear(drop, n), reads=[f"c{f}"], name=f"p{f}", arrays="numpy")
            for f, (drop, n) in enumerate(zip(self.drops, self.n_sines, strict=True))
        ]

    def stock(self) -> Any:
        """The same as one condition of Spark."""
        udfs = [
            arrow_udf_of(over_arrow(dear(drop, n)))
            for drop, n in zip(self.drops, self.n_sines, strict=True)
        ]
        return reduce(and_, [udf(f"c{f}") for f, udf in enumerate(udfs)])


def drawn(seed: int, n_rows: int) -> Shape:
    """Return a shape: numbers that predicates read, and 5 to 20 columns more of any type."""
    rng = np.random.default_rng(seed)
    n_more, n_files = int(rng.integers(5, 21)), int(rng.integers(3, 13))
    columns: dict[str, Any] = {f"c{f}": rng.random(n_rows) for f in range(N_PREDICATES)}
    for number in range(n_more):
        kind = rng.integers(0, 4)
        if kind == 0:
            columns[f"d{number}"] = rng.random(n_rows)
        elif kind == 1:
            columns[f"i{number}"] = rng.integers(0, 1 << 40, n_rows)
        elif kind == 2:
            instants = np.sort(rng.integers(0, 1 << 50, n_rows))
            columns[f"t{number}"] = pa.array(instants, pa.timestamp("us", "UTC"))
        else:
            names = [f"name {at}" for at in range(int(rng.integers(3, 5_000)))]
            places = pa.array(rng.integers(0, len(names), n_rows))
            columns[f"s{number}"] = pa.array(names).take(places)
    drops = tuple(sorted(rng.uniform(0.02, 0.95, N_PREDICATES).tolist()))
    n_sines = tuple(rng.integers(25, 60, N_PREDICATES).tolist())
    text = f"seed {seed}: {n_more} more columns in {n_files} files, " + " ".join(
        f"{drop:.2f}" for drop in drops
    )
    return Shape(written(pa.table(columns), n_files=n_files), drops, n_sines, f"{text} dropped")


def shapes(settings: Settings) -> list[Shape]:
    """Return the shapes of the day."""
    first = settings.unseen
    n_rows = settings.pick(1_000_000, 150_000)
    return [drawn(seed, n_rows) for seed in range(first, first + settings.pick(3, 1))]


def predicates(settings: Settings, act: Callable[[DataFrame], object]) -> Measurement:
    """Five heavy Python predicates in stock Spark over eddyline, median of the shapes."""
    ratios, told = [], []
    for shape in shapes(settings):
        rows = shape.rows
        ways: dict[str, Callable[[DataFrame], DataFrame]] = {
            "arrow_udf": partial(DataFrame.where, condition=shape.stock()),
            "eddyline": el.all_of(*shape.predicates(), lane="on"),
            "lane off": el.all_of(*shape.predicates(), lane="off"),
        }
        times = _timed(rows, ways, act, settings)
        ratios.append(paired_ratio(times["arrow_udf"], times["eddyline"]))
        told.append(f"{ratios[-1]:.2f} ({shape.text}; {times_told(times)})")
    return Measurement(median(ratios), "; ".join(told), {"ratios": ratios})


def _timed(
    rows: DataFrame,
    ways: dict[str, Callable[[DataFrame], DataFrame]],
    act: Callable[[DataFrame], object],
    settings: Settings,
) -> dict[str, Times]:
    """Time what is done with rows that are filtered in several ways."""
    variants = {name: partial(_done, rows, way, act) for name, way in ways.items()}
    return interleaved(variants, settings.pick(5, 2))


def _done(
    rows: DataFrame,
    way: Callable[[DataFrame], DataFrame],
    act: Callable[[DataFrame], object],
) -> None:
    act(rows.transform(way))


def stream(settings: Settings) -> Measurement:
    """A stream of the same rows, Parquet files in and out, later batches."""
    shape = drawn(settings.unseen, settings.pick(2_000_000, 200_000))
    n_batches = len(list(shape.folder.iterdir()))
    took: dict[str, list[float]] = {"spark": [], "eddyline": [], "lane off": []}
    for _ in range(settings.pick(3, 1)):
        with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
            took["spark"].append(_of_spark(shape, f"{out}/spark"))
            took["eddyline"].append(_of_engine(shape, f"{out}/lane", "auto"))
            took["lane off"].append(_of_engine(shape, f"{out}/off", "off"))
    times = {name: Times(tuple(each)) for name, each in took.items()}
    value = paired_ratio(times["spark"], times["eddyline"])
    note = f"s of the later half of {n_batches} batches: {times_told(times)}; {shape.text}"
    return Measurement(value, note, {"seconds": took})


def _rows(shape: Shape) -> DataFrame:
    reader = spark_session().readStream.schema(shape.rows.schema)
    return reader.option("maxFilesPerTrigger", 1).parquet(str(shape.folder))


def _of_spark(shape: Shape, out: str) -> float:
    writer = _rows(shape).where(shape.stock()).writeStream.format("parquet")
    query = writer.option("checkpointLocation", f"{out}/state").trigger(availableNow=True)
    started = query.start(f"{out}/rows")
    started.awaitTermination()
    return later_s(started)


def _of_engine(shape: Shape, out: str, lane: str) -> float:
    engine = el.Engine(spark_session())
    engine.stream("rows", _rows(shape))
    for each in shape.predicates():
        engine.function(each.name, each)
    where = " AND ".join(f"p{f}(c{f})" for f in range(N_PREDICATES))
    query = engine.query(f"SELECT * FROM rows WHERE {where}", name="lane", lane=lane)
    run = query.start(
        "parquet", path=f"{out}/rows", checkpoint=f"{out}/state", trigger="available_now"
    )
    run.await_termination()
    return later_s(run.streaming_query)


def later_s(query: Any) -> float:
    """Return the time of the later half of a query's batches (s)."""
    took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
    return float(sum(took[len(took) // 2 :])) / 1e3


RUNS: Runs = {
    "lane_predicates_count": partial(predicates, act=DataFrame.count),
    "lane_predicates_all": partial(predicates, act=noop),
    "lane_stream": stream,
}

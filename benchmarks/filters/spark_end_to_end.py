"""End to end on Spark, beside stock Spark, DuckDB and Polars on the same rows.

Every time is a median over interleaved runs, of which the first is left out. The result goes to
Spark's ``noop`` sink. The rows are cached, so filtering is what is timed; those of ``scan_*`` have
twenty columns and are read from Parquet files in every run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial, reduce
from itertools import permutations
from operator import and_
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

import eddyline as el
from benchmarks.filters.simulated_loop import Stream, best_work, fixed_work
from benchmarks.filters.stock_udfs import arrow_udf_of, pandas_udf_of
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import cached, noop, spark_session, written
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, on_over_off, paired_ratio, seconds_of, times_told
from benchmarks.workloads import LOG_REGEXES, log_lines_v1, regex_functions, regex_predicates
from eddyline.query.predicates import Arrays
from eddyline.stats.profile import Order

WORST: Order = (0, 1, 2, 3, 4)
"""The order of ``LOG_REGEXES`` in which the least selective comes first."""

BEST: Order = WORST[::-1]

Rows = Callable[[int], DataFrame]
"""Returns so many log lines."""


@cache
def _table(n_rows: int) -> pa.Table:
    return log_lines_v1(n_rows).select(["id", "line"])


@cache
def _folder(n_rows: int) -> Path:
    """Return the folder of the rows."""
    return written(_table(n_rows))


@cache
def _lines(n_rows: int) -> DataFrame:
    """Return the rows as a cached frame."""
    return cached(_folder(n_rows))


@cache
def _wide_folder(n_rows: int, fracs: tuple[float, ...] | None = None) -> Path:
    """Return the folder of rows of twenty columns; regexes pass given fractions, if any are."""
    lines = log_lines_v1(n_rows) if fracs is None else log_lines_v1(n_rows, fracs=fracs)
    rng, columns = np.random.default_rng(45), {"id": lines["id"], "line": lines["line"]}
    return written(pa.table(columns | {f"c{number}": rng.random(n_rows) for number in range(18)}))


def _scanned(folder: Path) -> DataFrame:
    """Return the rows of a folder, to be read in every job."""
    return spark_session().read.parquet(str(folder))


def _wide_lines(n_rows: int) -> DataFrame:
    return _scanned(_wide_folder(n_rows))


def _conditions(order: Sequence[int]) -> list[str]:
    return [f"line RLIKE '{LOG_REGEXES[f]}'" for f in order]


def _chain(order: Sequence[int]) -> str:
    return " AND ".join(f"({each})" for each in _conditions(order))


def native_regexes(settings: Settings, rows: Rows) -> Measurement:
    """Five regexes written worst first; a fresh conjunction in every run, its sample included."""
    df = rows(settings.pick(2_000_000, 400_000))
    known = el.all_of(*_conditions(WORST))
    times = interleaved(
        {
            "as written": lambda: noop(df.where(_chain(WORST))),
            "adaptive": lambda: noop(df.transform(el.all_of(*_conditions(WORST)))),
            "adaptive, known": lambda: noop(df.transform(known)),
            "best fixed": lambda: noop(df.where(_chain(BEST))),
        },
        settings.pick(5, 3),
    )
    gain = paired_ratio(times["as written"], times["adaptive"])
    to_best = paired_ratio(times["adaptive, known"], times["best fixed"])
    note = (
        f"a conjunction that has learned already over the best fixed order {to_best:.3f}; "
        f"{times_told(times)}"
    )
    return Measurement(gain, note, {**seconds_of(times), "known_over_best_fixed": to_best})


def _known_stream(n_rows: int) -> Stream:
    lines = _table(n_rows)["line"].combine_chunks()
    passes = [
        pc.match_substring_regex(lines, regex).to_numpy(zero_copy_only=False)
        for regex in LOG_REGEXES
    ]
    return Stream(~np.stack(passes, axis=1), np.ones(len(LOG_REGEXES)))


def native_order(settings: Settings) -> Measurement:
    """Evaluations under the order that a sample of the input gave, over all 120 orders' least."""
    n_rows = settings.pick(1_000_000, 400_000)
    stream, df = _known_stream(n_rows), _lines(n_rows)
    histograms = stream.histograms()
    best = best_work(histograms, stream.costs_ns)
    written = list(permutations(range(5)))[:: settings.pick(10, 40)]
    ratios, orders = [], []
    for order in written:
        keep = el.all_of(*_conditions(order))
        df.transform(keep)
        block = keep.facts().blocks[0]
        learned = tuple(order[f] for f in block.order)
        sampled = 2000 * len(LOG_REGEXES)
        work = fixed_work(histograms, learned, stream.costs_ns).sum() + sampled
        ratios.append(work / best)
        orders.append(learned)
    note = f"{len(written)} written orders, {spread(ratios)}; the sample's evaluations included"
    return Measurement(median(ratios), note, {"ratios": ratios, "orders": orders})


def native_stream(settings: Settings) -> Measurement:
    """The engine over micro-batches, beside the same stream with the conditions as written."""
    n_rows = settings.pick(1_000_000, 400_000)
    spark, folder = spark_session(), str(_folder(n_rows))
    schema = _lines(n_rows).schema

    def source() -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)

    def stock(order: Order) -> None:
        checkpoint = tempfile.mkdtemp(prefix="eddyline_bench_")
        stream = source().where(_chain(order)).writeStream.option("checkpointLocation", checkpoint)
        query = stream.foreachBatch(lambda df, _: noop(df)).trigger(availableNow=True).start()
        query.awaitTermination()

    def engine() -> None:
        made = el.Engine(spark)
        made.stream("lines", source())
        query = made.query(f"SELECT id FROM lines WHERE {_chain(WORST)}")
        query.start(lambda df, _: noop(df), trigger="available_now").await_termination()

    times = interleaved(
        {"as written": lambda: stock(WORST), "engine": engine, "best fixed": lambda: stock(BEST)},
        settings.pick(3, 1),
    )
    value = paired_ratio(times["as written"], times["engine"])
    over_best = paired_ratio(times["engine"], times["best fixed"])
    note = f"8 micro-batches; engine over best fixed order {over_best:.3f}; {times_told(times)}"
    return Measurement(value, note, {**seconds_of(times), "over_best_fixed": over_best})


def _by_udf(df: DataFrame, udfs: Iterable[Callable[..., Any]]) -> DataFrame:
    """Filter as stock Spark does with one UDF per predicate."""
    return df.where(reduce(and_, [udf("line") for udf in udfs]))


def _over_arrow(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function over pandas as one over Arrow arrays."""
    return lambda line: pa.array(fn(line.to_pandas()))


def python_chain(settings: Settings, arrays: Arrays, rows: Rows) -> Measurement:
    """Five regexes of Python, written worst first, that ignore the case.

    By Arrow's compiled kernel they do not, and crossing to Python costs as much as they do.
    """
    n_rows = settings.pick(400_000, 200_000)
    df = rows(n_rows)
    predicates = regex_predicates(arrays, case=False)
    functions = regex_functions(arrays, case=False)
    over_arrow = functions if arrays == "arrow" else [_over_arrow(fn) for fn in functions]
    variants = {
        "arrow_udf": lambda: noop(_by_udf(df, map(arrow_udf_of, over_arrow))),
        "eddyline": lambda: noop(df.transform(el.all_of(*predicates))),
        "eddyline, best order": lambda: noop(
            df.transform(el.all_of(*predicates[::-1], adaptive=False))
        ),
    }
    if arrays == "pandas":
        variants["pandas_udf"] = lambda: noop(_by_udf(df, map(pandas_udf_of, functions)))
    times = interleaved(variants, settings.pick(5, 3))
    gains = {
        name: paired_ratio(times[name], times["eddyline"])
        for name in ("arrow_udf", "pandas_udf")
        if name in times
    }
    told = ", ".join(f"{name} over eddyline {gain:.2f}" for name, gain in gains.items())
    note = f"{n_rows:,} rows, written worst first; {told}; {times_told(times)}"
    return Measurement(min(gains.values()), note, {**seconds_of(times), "gains": gains})


def neutral_spark(settings: Settings) -> Measurement:
    """Five equal Python regexes that drop next to nothing, with adaptation on and off."""
    n_rows = settings.pick(300_000, 100_000)
    lines = log_lines_v1(n_rows, fracs=(0.97,) * len(LOG_REGEXES)).select(["id", "line"])
    df = spark_session().createDataFrame(lines).repartition(2).cache()
    df.count()
    predicates = regex_predicates("pandas")
    value, control, times = on_over_off(
        lambda adaptive: noop(df.transform(el.all_of(*predicates, adaptive=adaptive))),
        settings.pick(9, 4),
    )
    df.unpersist()
    note = f"off/off control {control:.3f}; {times_told(times)}"
    return Measurement(value, note, {**seconds_of(times), "control": control})


def neutral_scanned(settings: Settings, *, is_known: bool) -> Measurement:
    """The same over rows that are scanned, by a conjunction that has learned or by a new one."""
    df = _scanned(_wide_folder(settings.pick(1_000_000, 100_000), (0.97,) * len(LOG_REGEXES)))
    predicates = regex_predicates("pandas")
    known = el.all_of(*predicates)
    if is_known:
        noop(df.transform(known))

    def run(adaptive: bool) -> None:
        keep = known if adaptive and is_known else el.all_of(*predicates, adaptive=adaptive)
        noop(df.transform(keep))

    value, control, times = on_over_off(run, settings.pick(9, 3))
    note = f"off/off control {control:.3f}; {times_told(times)}"
    return Measurement(value, note, {**seconds_of(times), "control": control})


def peers(settings: Settings) -> Measurement:
    """What a bad written order costs in each engine, on the same rows in memory."""
    n_rows = settings.pick(1_000_000, 400_000)
    df, table = _lines(n_rows), _table(n_rows)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)  # of a table, not of an array
    database = duckdb.connect()
    database.execute("SET threads = 2")
    database.register("arriving", table)
    database.execute("CREATE TABLE lines AS SELECT * FROM arriving")

    def in_duckdb(order: Order) -> None:
        chain = " AND ".join(f"regexp_matches(line, '{LOG_REGEXES[f]}')" for f in order)
        database.execute(f"SELECT count(*), sum(id) FROM lines WHERE {chain}").fetchall()

    def in_polars(order: Order) -> None:
        conditions = [pl.col("line").str.contains(LOG_REGEXES[f]) for f in order]
        frame.lazy().filter(*conditions).select(pl.len(), pl.col("id").sum()).collect()

    def in_eddyline(order: Order) -> None:
        noop(df.transform(el.all_of(*_conditions(order))))

    engines: dict[str, Callable[[Order], None]] = {
        "spark": lambda order: noop(df.where(_chain(order))),
        "eddyline": in_eddyline,
        "duckdb": in_duckdb,
        "polars": in_polars,
    }
    variants = {
        f"{name} {which}": (lambda call=call, order=order: call(order))
        for name, call in engines.items()
        for which, order in (("worst", WORST), ("best", BEST))
    }
    times = interleaved(variants, settings.pick(5, 2))
    database.close()
    penalties = {
        name: paired_ratio(times[f"{name} worst"], times[f"{name} best"]) for name in engines
    }
    told = ", ".join(f"{name} {penalty:.2f}" for name, penalty in penalties.items())
    note = f"time written worst over written best: {told}; {times_told(times)}"
    return Measurement(
        penalties["eddyline"], note, {**seconds_of(times), "worst_over_best": penalties}
    )


RUNS: Runs = {
    "spark_native_regexes": partial(native_regexes, rows=_lines),
    "spark_native_order": native_order,
    "spark_native_stream": native_stream,
    "spark_python_chain": partial(python_chain, arrays="pandas", rows=_lines),
    "spark_python_chain_kernels": partial(python_chain, arrays="arrow", rows=_lines),
    "spark_neutral": neutral_spark,
    "scan_native_regexes": partial(native_regexes, rows=_wide_lines),
    "scan_python_chain": partial(python_chain, arrays="pandas", rows=_wide_lines),
    "scan_python_chain_kernels": partial(python_chain, arrays="arrow", rows=_wide_lines),
    "scan_neutral_cold": partial(neutral_scanned, is_known=False),
    "scan_neutral_warm": partial(neutral_scanned, is_known=True),
    "peers_bad_order": peers,
}

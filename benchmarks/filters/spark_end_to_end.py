"""End to end on Spark, beside stock Spark, DuckDB and Polars on the same rows.

Every time is a median over interleaved runs, of which the first is left out. The rows are cached
and the result goes to Spark's ``noop`` sink, so filtering is what is timed.
"""

from __future__ import annotations

import tempfile
from functools import cache, wraps
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.filters.simulated_loop import Stream, best_order, fixed_work
from benchmarks.harness.scenario import Measurement, Scenario, Settings, at_least, at_most, skipped
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import Times, interleaved, paired_ratio
from benchmarks.workloads import LOG_REGEXES, log_lines_v1

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.filters.simulated_loop import Order

WORST: Order = (0, 1, 2, 3, 4)
"""The order of ``LOG_REGEXES`` in which the least selective comes first."""

BEST: Order = WORST[::-1]

NEEDS_SPARK = frozenset({"spark"})


def with_spark(run: Callable[[Settings], Measurement]) -> Callable[[Settings], Measurement]:
    """Return a measurement that is skipped, saying so, where Spark cannot run."""

    @wraps(run)
    def checked(settings: Settings) -> Measurement:
        from eddyline.errors import SourceError  # noqa: PLC0415 - with the session

        try:
            spark_session()
        except SourceError as error:
            return skipped(error.message)
        return run(settings)

    return checked


@cache
def spark_session() -> SparkSession:
    from eddyline.spark.session import session  # noqa: PLC0415 - only where Spark is needed

    folder = tempfile.mkdtemp(prefix="eddyline_bench_")
    conf = {
        "spark.driver.memory": "3g",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.local.dir": f"{folder}/local",
    }
    return session(conf, master="local[2]", app="eddyline benchmarks")


@cache
def _table(n_rows: int) -> pa.Table:
    return log_lines_v1(n_rows).select(["id", "line"])


@cache
def _folder(n_rows: int) -> Path:
    """Write the rows as eight Parquet files and return their folder."""
    folder = Path(tempfile.mkdtemp(prefix="eddyline_bench_"))
    table = _table(n_rows)
    step = -(-n_rows // 8)
    for number in range(8):
        parquet.write_table(table.slice(number * step, step), folder / f"part-{number}.parquet")
    return folder


@cache
def _lines(n_rows: int) -> DataFrame:
    """Return the rows as a cached DataFrame."""
    df = spark_session().read.parquet(str(_folder(n_rows))).cache()
    df.count()
    return df


def noop(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def _conditions(order: Sequence[int]) -> list[str]:
    return [f"line RLIKE '{LOG_REGEXES[f]}'" for f in order]


def _chain(order: Sequence[int]) -> str:
    return " AND ".join(f"({each})" for each in _conditions(order))


def seconds_of(times: dict[str, Times]) -> dict[str, Any]:
    return {name: each.seconds for name, each in times.items()}


def times_told(times: dict[str, Times]) -> str:
    return ", ".join(f"{name} {each}" for name, each in times.items())


# -- native regexes -------------------------------------------------------------------------------


def native_regexes(settings: Settings) -> Measurement:
    """Five regexes written worst first; a fresh conjunction in every run, its sample included."""
    import eddyline as el  # noqa: PLC0415

    df = _lines(settings.pick(2_000_000, 400_000))
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
    import eddyline as el  # noqa: PLC0415

    n_rows = settings.pick(1_000_000, 400_000)
    stream, df = _known_stream(n_rows), _lines(n_rows)
    histograms = stream.histograms()
    best = fixed_work(histograms, best_order(histograms.sum(0), stream.costs_ns), stream.costs_ns)
    written = list(permutations(range(5)))[:: settings.pick(10, 40)]
    ratios, orders = [], []
    for order in written:
        keep = el.all_of(*_conditions(order))
        df.transform(keep)
        block = keep.view().blocks[0]
        learned = tuple(order[f] for f in block.order)
        sampled = 2000 * len(LOG_REGEXES)
        work = fixed_work(histograms, learned, stream.costs_ns).sum() + sampled
        ratios.append(work / best.sum())
        orders.append(learned)
    note = f"{len(written)} written orders, {spread(ratios)}; the sample's evaluations included"
    return Measurement(median(ratios), note, {"ratios": ratios, "orders": orders})


def native_stream(settings: Settings) -> Measurement:
    """The engine over micro-batches, beside the same stream with the conditions as written."""
    import eddyline as el  # noqa: PLC0415

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
        {
            "as written": lambda: stock(WORST),
            "engine": engine,
            "best fixed": lambda: stock(BEST),
        },
        settings.pick(3, 1),
    )
    value = paired_ratio(times["as written"], times["engine"])
    over_best = paired_ratio(times["engine"], times["best fixed"])
    note = f"8 micro-batches; engine over best fixed order {over_best:.3f}; {times_told(times)}"
    return Measurement(value, note, {**seconds_of(times), "over_best_fixed": over_best})


# -- Python predicates ----------------------------------------------------------------------------


def _pandas_regexes(*, case: bool = True) -> list[Callable[[Any], Any]]:
    """Return the five regexes as functions over pandas.

    They take about a microsecond a row each, and 2.5 where they ignore the case.
    """
    return [lambda line, regex=regex: line.str.contains(regex, case=case) for regex in LOG_REGEXES]


def _arrow_regexes() -> list[Callable[[Any], Any]]:
    """Return them as functions over Arrow arrays: some 100 ns a row each."""
    return [
        lambda line, regex=regex: pc.match_substring_regex(line, regex) for regex in LOG_REGEXES
    ]


def _by_arrow_udf(df: DataFrame, functions: Sequence[Callable[[Any], Any]]) -> DataFrame:
    """Filter as stock Spark does with one Arrow UDF per predicate."""
    from benchmarks.filters.stock_udfs import arrow_udf_of  # noqa: PLC0415

    condition = arrow_udf_of(functions[0])("line")
    for fn in functions[1:]:
        condition = condition & arrow_udf_of(fn)("line")
    return df.where(condition)


def _by_pandas_udf(df: DataFrame, functions: Sequence[Callable[[Any], Any]]) -> DataFrame:
    from benchmarks.filters.stock_udfs import pandas_udf_of  # noqa: PLC0415

    condition = pandas_udf_of(functions[0])("line")
    for fn in functions[1:]:
        condition = condition & pandas_udf_of(fn)("line")
    return df.where(condition)


def _over_arrow(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function over pandas as one over Arrow arrays."""
    import pyarrow as pa  # noqa: PLC0415

    return lambda line: pa.array(fn(line.to_pandas()))


def _python_chain(settings: Settings, arrays: str) -> Measurement:
    import eddyline as el  # noqa: PLC0415

    n_rows = settings.pick(400_000, 200_000)
    df = _lines(n_rows)
    functions = _pandas_regexes(case=False) if arrays == "pandas" else _arrow_regexes()
    predicates = [
        el.predicate(fn, reads=["line"], name=f"regex {f}", arrays=arrays)
        for f, fn in enumerate(functions)
    ]
    over_arrow = [_over_arrow(fn) for fn in functions] if arrays == "pandas" else functions
    variants = {
        "arrow_udf": lambda: noop(_by_arrow_udf(df, over_arrow)),
        "eddyline": lambda: noop(df.transform(el.all_of(*predicates))),
        "eddyline, best order": lambda: noop(
            df.transform(el.all_of(*predicates[::-1], adaptive=False))
        ),
    }
    if arrays == "pandas":
        variants["pandas_udf"] = lambda: noop(_by_pandas_udf(df, functions))
    times = interleaved(variants, settings.pick(5, 3))
    gains = {
        name: paired_ratio(times[name], times["eddyline"])
        for name in ("arrow_udf", "pandas_udf")
        if name in times
    }
    told = ", ".join(f"{name} over eddyline {gain:.2f}" for name, gain in gains.items())
    note = f"{n_rows:,} rows, written worst first; {told}; {times_told(times)}"
    return Measurement(min(gains.values()), note, {**seconds_of(times), "gains": gains})


def python_chain(settings: Settings) -> Measurement:
    """Five regexes of Python that ignore the case, written worst first."""
    return _python_chain(settings, "pandas")


def python_chain_kernels(settings: Settings) -> Measurement:
    """The same five by Arrow's compiled kernel: crossing to Python costs as much as they do."""
    return _python_chain(settings, "arrow")


# -- nothing to win -------------------------------------------------------------------------------


def neutral_spark(settings: Settings) -> Measurement:
    """Five equal Python regexes that drop next to nothing, with adaptation on and off."""
    import eddyline as el  # noqa: PLC0415

    n_rows = settings.pick(300_000, 100_000)
    lines = log_lines_v1(n_rows, fracs=(0.97,) * len(LOG_REGEXES)).select(["id", "line"])
    df = spark_session().createDataFrame(lines).repartition(2).cache()
    df.count()
    predicates = [
        el.predicate(fn, reads=["line"], name=f"regex {f}", arrays="pandas")
        for f, fn in enumerate(_pandas_regexes())
    ]

    def go(adaptive: bool) -> None:
        noop(df.transform(el.all_of(*predicates, adaptive=adaptive)))

    times = interleaved(
        {"off": lambda: go(False), "on": lambda: go(True), "off again": lambda: go(False)},
        settings.pick(9, 4),
    )
    df.unpersist()
    value = paired_ratio(times["on"], times["off"])
    control = paired_ratio(times["off again"], times["off"])
    note = f"off/off control {control:.3f}; {times_told(times)}"
    return Measurement(value, note, {**seconds_of(times), "control": control})


# -- peers ----------------------------------------------------------------------------------------


def peers(settings: Settings) -> Measurement:
    """What a bad written order costs in each engine, on the same rows in memory."""
    import duckdb  # noqa: PLC0415
    import polars as pl  # noqa: PLC0415

    import eddyline as el  # noqa: PLC0415

    n_rows = settings.pick(1_000_000, 400_000)
    df, table = _lines(n_rows), _table(n_rows)
    frame = pl.from_arrow(table)
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


SCENARIOS = (
    Scenario(
        id="spark_native_regexes",
        shows="time of five native regexes as written (worst first) over adaptive",
        run=with_spark(native_regexes),
        target=at_least(3),
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="spark_native_order",
        shows="evaluations under the learned order over the best of all 120 orders",
        run=with_spark(native_order),
        target=at_most(1.05),
        policies=("a_greedy",),
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="spark_native_stream",
        shows="time of a stream of 8 micro-batches as written (worst first) over the engine's",
        run=with_spark(native_stream),
        target=None,
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="spark_python_chain",
        shows="time of five Python regexes in stock Spark over eddyline, lesser of arrow and "
        "pandas UDFs",
        run=with_spark(python_chain),
        target=at_least(2.5),
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="spark_python_chain_kernels",
        shows="the same by Arrow's compiled regex kernel, where the crossing is half the cost",
        run=with_spark(python_chain_kernels),
        target=None,
        policies=("a_greedy",),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="spark_neutral",
        shows="time with adaptation over without, five equal Python regexes that drop next to "
        "nothing",
        run=with_spark(neutral_spark),
        target=at_most(1.02),
        policies=("a_greedy", "fixed"),
        counted=False,
        needs=NEEDS_SPARK,
    ),
    Scenario(
        id="peers_bad_order",
        shows="time of eddyline written worst over written best; DuckDB, Polars, Spark beside it",
        run=with_spark(peers),
        target=None,
        policies=("a_greedy", "hill_climb"),
        counted=False,
        needs=NEEDS_SPARK,
    ),
)

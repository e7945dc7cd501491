"""Filters over Parquet files as users read them: scanned in every run, wide rows, cold, busy cores.

The rows have twenty columns and are not cached, so Spark hands over Arrow batches of 4,096 rows.
The bounds are those for shapes that the code was not written against.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial, reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import eddyline as el
from benchmarks.filters.stock_udfs import arrow_udf_of
from benchmarks.harness.isolated import alone
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import noop, spark_session, written
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, paired_ratio, seconds_of, times_told
from eddyline.errors import QueryError
from eddyline.query.predicates import FunctionPredicate
from eddyline.spark.filters.conjunction import Conjunction

HERE = "benchmarks.filters.as_read"

N_COLUMNS = 20

DROPS = (0.05, 0.1, 0.2, 0.5, 0.95)
"""Share of the rows that each of five predicates drops, written worst first."""

N_TENANTS = 8

N_SINES = 42
"""Sines that a predicate takes of a number: some 300 ns a row."""


@cache
def numbers(n_rows: int, n_files: int = 8) -> Path:
    """Return the folder of rows of twenty uniform numbers c0 to c19, and a tenant."""
    rng = np.random.default_rng(41)
    columns = {f"c{number}": rng.random(n_rows) for number in range(N_COLUMNS)}
    table = pa.table(columns | {"tenant": rng.integers(0, N_TENANTS, n_rows)})
    return written(table, n_files=n_files)


@cache
def texts(n_rows: int) -> Path:
    """Return the folder of rows of a number c0 and nineteen texts c1 to c19 of 200 characters."""
    rng = np.random.default_rng(43)
    columns: dict[str, Any] = {"c0": rng.random(n_rows)}
    for number in range(1, N_COLUMNS):
        marks = rng.integers(0, 1 << 60, n_rows)
        columns[f"c{number}"] = [f"{mark:016x}{'q' * 168}{mark:016x}" for mark in marks.tolist()]
    return written(pa.table(columns))


def scanned(folder: Path | str) -> DataFrame:
    """Return the rows of a folder, to be read in every job."""
    return spark_session().read.parquet(str(folder))


def dear(bound: float, n_sines: int = N_SINES) -> Callable[[Any], Any]:
    """Return a function that passes the numbers from a bound on, for some 7 ns a sine each."""

    def passes(values: Any) -> Any:
        found = values
        for _ in range(n_sines):
            found = np.sin(found)
        return (found > -2.0) & (values >= bound)

    return passes


def over_arrow(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function over NumPy arrays as one over Arrow arrays."""
    return lambda column: pa.array(fn(column.to_numpy(zero_copy_only=False)))


def _predicates(bounds: tuple[float, ...] = DROPS) -> list[FunctionPredicate]:
    return [
        el.predicate(dear(bound), reads=[f"c{number}"], name=f"dear {number}", arrays="numpy")
        for number, bound in enumerate(bounds)
    ]


def equal_predicates(settings: Settings) -> Measurement:
    """Five predicates of the same cost, each on a column of its own, written worst first."""
    df = scanned(numbers(settings.pick(1_000_000, 200_000)))
    udfs = [arrow_udf_of(over_arrow(dear(bound))) for bound in DROPS]
    chain = reduce(and_, [udf(f"c{number}") for number, udf in enumerate(udfs)])
    best = _predicates()[::-1]
    times = interleaved(
        {
            "arrow_udf": lambda: noop(df.where(chain)),
            "eddyline": lambda: noop(df.transform(el.all_of(*_predicates()))),
            "best order": lambda: noop(df.transform(el.all_of(*best, adaptive=False))),
            "last alone": lambda: noop(df.transform(el.all_of(best[0], adaptive=False))),
            "last alone as arrow_udf": lambda: noop(df.where(udfs[-1](f"c{len(DROPS) - 1}"))),
            "rows alone": lambda: noop(df),
        },
        settings.pick(5, 2),
    )
    value = paired_ratio(times["arrow_udf"], times["eddyline"])
    ordered = paired_ratio(times["arrow_udf"], times["best order"])
    floor = paired_ratio(times["arrow_udf"], times["last alone as arrow_udf"])
    note = (
        f"the best order from the first row on {ordered:.2f}; Spark with the last predicate alone, "
        f"which all orders evaluate, {floor:.2f}; {times_told(times)}"
    )
    return Measurement(value, note, {**seconds_of(times), "best_order": ordered, "floor": floor})


def unseen_predicates(settings: Settings) -> Measurement:
    """Predicates of the day: how many there are, what they cost and drop, in any written order.

    The best order of independent predicates goes by cost over share dropped.
    """
    df, ratios, told = scanned(numbers(settings.pick(1_000_000, 200_000))), [], []
    for seed in range(settings.unseen, settings.unseen + settings.pick(5, 1)):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 9))
        drops, n_sines = rng.uniform(0.02, 0.95, n), rng.integers(5, 100, n)
        columns = rng.permutation(N_COLUMNS)[:n].tolist()
        written = [
            el.predicate(
                dear(float(drops[f]), int(n_sines[f])),
                reads=[f"c{columns[f]}"],
                name=f"p{f}",
                arrays="numpy",
            )
            for f in range(n)
        ]
        best = [written[f] for f in np.argsort(n_sines / drops)]
        known = el.all_of(*written)
        noop(df.transform(known))
        variants = {
            "learned": lambda known=known: noop(df.transform(known)),
            "best": lambda best=best: noop(df.transform(el.all_of(*best, adaptive=False))),
        }
        times = interleaved(variants, settings.pick(4, 2))
        ratios.append(paired_ratio(times["learned"], times["best"]))
        told.append(f"{n} predicates {ratios[-1]:.3f} ({times_told(times)})")
    note = f"seeds {settings.unseen} and on: {'; '.join(told)}"
    return Measurement(median(ratios), note, {"ratios": ratios})


def _tenant_predicates() -> list[FunctionPredicate]:
    """Return eight predicates; the one of a row's tenant drops 95 %, the others 5 %."""

    def of(number: int) -> FunctionPredicate:
        own, others = dear(0.95), dear(0.05)

        def passes(values: Any, tenant: Any) -> Any:
            return np.where(tenant == number, own(values), others(values))

        reads = [f"c{number}", "tenant"]
        return el.predicate(passes, reads=reads, name=f"rule {number}", arrays="numpy")

    return [of(number) for number in range(N_TENANTS)]


def _evaluations(keep: Conjunction, df: DataFrame) -> float:
    """Filter rows and return the evaluations that each of them took."""
    n_rows, n_evaluations = _counted(keep)
    noop(df.transform(keep))
    rows_after, evaluations_after = _counted(keep)
    return (evaluations_after - n_evaluations) / (rows_after - n_rows)


def _counted(keep: Conjunction) -> tuple[int, float]:
    """Return the rows that were filtered, and the evaluations that they took.

    To be called while no job is laid and has not run, as its reports would be waited for.
    """
    try:
        totals = keep.facts().blocks[0].totals
    except QueryError:  # not applied yet
        return 0, 0.0
    assert totals is not None
    return totals.n_rows, float(totals.n_evaluations)


def tenants(settings: Settings, value: str) -> Measurement:
    """Eight tenants and eight predicates, in each tenant another one drops most rows."""
    df = scanned(numbers(settings.pick(1_000_000, 200_000)))
    routed = el.all_of(*_tenant_predicates())
    single = el.all_of(*_tenant_predicates(), routing=False)
    first = _evaluations(routed, df)
    taken: dict[str, list[float]] = {"one order": [], "routed": []}
    times = interleaved(
        {
            "one order": lambda: taken["one order"].append(_evaluations(single, df)),
            "routed": lambda: taken["routed"].append(_evaluations(routed, df)),
        },
        settings.pick(5, 2),
    )
    gain = paired_ratio(times["one order"], times["routed"])
    one, by_class = (median(taken[name][1:]) for name in ("one order", "routed"))
    saved = 100 * (1 - by_class / one)
    note = (
        f"evaluations a row: one order {one:.2f}, routed {by_class:.2f} "
        f"({spread(taken['routed'][1:])}), its first job {first:.2f}; saved {saved:.0f} %, "
        f"{gain:.2f} times faster; {times_told(times)}"
    )
    found = {"saved": saved, "time": gain}
    return Measurement(found[value], note, {**seconds_of(times), "evaluations": taken, **found})


def staged(settings: Settings) -> Measurement:
    """A number that 5 % of the rows pass, then four wide texts: over the number alone."""
    df = scanned(texts(settings.pick(400_000, 80_000)))

    def text(number: int) -> FunctionPredicate:
        return el.predicate(
            lambda column: pc.match_substring(column, "a"), reads=[f"c{number}"], name=f"t{number}"
        )

    first = el.predicate(lambda c0: pc.less(c0, 0.05), reads=["c0"], name="few")
    rest = [text(number) for number in range(1, 5)]
    several = el.all_of(*rest, first)
    alone_ = el.all_of(first, adaptive=False)
    together = el.all_of(first, *rest, adaptive=False)
    by_hand = el.all_of(*rest, adaptive=False)
    times = interleaved(
        {
            "eddyline": lambda: noop(df.transform(several)),
            "one column alone": lambda: noop(df.transform(alone_)),
            "one crossing": lambda: noop(df.transform(together)),
            "two conjunctions": lambda: noop(df.transform(alone_).transform(by_hand)),
        },
        settings.pick(9, 3),
    )
    value = paired_ratio(times["eddyline"], times["one column alone"])
    hand = paired_ratio(times["two conjunctions"], times["one column alone"])
    note = f"two conjunctions written by hand {hand:.3f}; {times_told(times)}"
    return Measurement(value, note, {**seconds_of(times), "by_hand": hand})


def _proxy() -> list[FunctionPredicate]:
    """Return a cheap test, three dear ones that pass where it does, and one that is independent."""

    def costly(column: str, name: str) -> FunctionPredicate:
        return el.predicate(dear(0.7), reads=[column], name=name, arrays="numpy")

    cheap = el.predicate(lambda c0: pc.greater_equal(c0, 0.7), reads=["c0"], name="cheap")
    implied = [costly("c0", f"implied {number}") for number in range(3)]
    return [cheap, *implied, costly("c1", "independent")]


def proxy_alone(folder: str, n_jobs: int) -> dict[str, list[float]]:
    """Return the evaluations a row of each job of a process: the redundant proxy, cheap first."""
    keep, df = el.all_of(*_proxy()), scanned(folder)
    return {"evaluations": [_evaluations(keep, df) for _ in range(n_jobs)]}


def cold_proxy(settings: Settings) -> Measurement:
    """Evaluations of the first job of a process over those of its fourth, worst of some."""
    folder = str(numbers(settings.pick(2_000_000, 400_000)))
    where = f"{HERE}:proxy_alone"
    runs = [alone(where, folder=folder, n_jobs=4) for _ in range(settings.pick(3, 1))]
    found = [each["evaluations"] for each in runs]
    ratios = [jobs[0] / jobs[-1] for jobs in found]
    told = "; ".join(" ".join(f"{each:.2f}" for each in jobs) for jobs in found)
    return Measurement(max(ratios), f"evaluations a row by job: {told}", {"jobs": found})


def first_jobs(settings: Settings, kind: str) -> Measurement:
    """Dear evaluations a row of the first job of fresh conjunctions, worst of twenty draws.

    Of ``proxy``, three dear predicates tell what a cheap one does, and a fourth is independent. Of
    ``equal``, five are as dear and drop other shares, on busy cores. Written orders are drawn.
    """
    df = scanned(numbers(settings.pick(2_000_000, 400_000)))
    rng = np.random.default_rng(settings.unseen)
    found = []
    with busy() if kind == "equal" else contextlib.nullcontext():
        for _ in range(settings.pick(20, 3)):
            predicates = _proxy() if kind == "proxy" else _predicates()
            keep = el.all_of(*(predicates[f] for f in rng.permutation(len(predicates))))
            noop(df.transform(keep))
            totals = keep.facts().blocks[0].totals
            assert totals is not None
            cheap = [f for f, name in enumerate(totals.filter_ids) if name == "cheap"]
            n_dear = float(totals.n_evaluations - totals.rows_in[cheap].sum())
            found.append(n_dear / totals.n_rows)
    told = " ".join(f"{each:.2f}" for each in sorted(found))
    return Measurement(max(found), f"seed {settings.unseen}: {told}", {"evaluations": found})


@contextlib.contextmanager
def busy(n_processes: int = 4) -> Iterator[None]:
    """Keep all cores at other work."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(n_processes)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def busy_costs(settings: Settings) -> Measurement:
    """Costs of five equal predicates as learned on busy cores: the worst distance from their mean.

    Each of them drops a tenth, so that all meet enough rows to be told.
    """
    df = scanned(numbers(settings.pick(1_000_000, 200_000)))
    worst, costs = [], []
    with busy():
        for _ in range(settings.pick(5, 2)):
            keep = el.all_of(*_predicates((0.1,) * len(DROPS)))
            noop(df.transform(keep))
            learned = keep.facts().blocks[0].profile.costs.per_row_ns
            costs.append(learned.tolist())
            worst.append(100 * float(np.abs(learned / learned.mean() - 1).max()))
    told = "; ".join(" ".join(f"{each:.0f}" for each in run) for run in costs)
    return Measurement(max(worst), f"ns a row by run: {told}", {"costs": costs, "worst": worst})


SQL_CHAIN = "c0 > 0.1 AND c1 > 0.2"

LOW = {"c2": 0.9, "c3": 0.8}
"""Bounds below which two more predicates keep the numbers of a column."""


def _low(bound: float) -> Callable[[Any], Any]:
    return lambda column: pc.less(column, bound)


def _plain_stream(rows: DataFrame, kind: str, out: str) -> Any:
    """Filter a stream in a plain foreachBatch and return its query, which has ended."""
    if kind == "sql":
        more = reduce(and_, [F.col(column) < bound for column, bound in LOW.items()])
    else:
        more = reduce(and_, [arrow_udf_of(_low(bound))(c) for c, bound in LOW.items()])

    def write(df: DataFrame, _: int) -> None:
        df.where(SQL_CHAIN).where(more).write.mode("append").parquet(f"{out}/rows")

    stream = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
    query = stream.option("checkpointLocation", f"{out}/checkpoint").start()
    query.awaitTermination()
    return query


def _engine_stream(rows: DataFrame, kind: str, out: str) -> Any:
    """Do the same by the engine."""
    engine, conditions = el.Engine(spark_session()), [SQL_CHAIN]
    engine.stream("numbers", rows)
    for column, bound in LOW.items():
        if kind == "sql":
            conditions.append(f"{column} < {bound}")
        else:
            name = f"low_{column}"
            engine.function(name, el.predicate(_low(bound), reads=[column], name=name))
            conditions.append(f"{name}({column})")
    made = engine.query(f"SELECT * FROM numbers WHERE {' AND '.join(conditions)}", name="share")
    run = made.start(
        "parquet", trigger="available_now", path=f"{out}/rows", checkpoint=f"{out}/state"
    )
    run.await_termination()
    return run.streaming_query


def _batch_ms(folder: str, filtered: Callable[[DataFrame, str], Any]) -> float:
    """Return what a micro-batch takes once the first third of them is over, median (ms)."""
    spark = spark_session()
    stream = spark.readStream.schema(spark.read.parquet(folder).schema)
    rows = stream.option("maxFilesPerTrigger", 1).parquet(folder)
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
        batches = [each for each in filtered(rows, out).recentProgress if each["numInputRows"]]
    took = [each["durationMs"]["triggerExecution"] for each in batches]
    return median(took[len(took) // 3 :])


def engine_share(settings: Settings, kind: str) -> Measurement:
    """What a batch of 2,000 rows takes by the engine beyond a plain foreachBatch (ms)."""
    n_batches = settings.pick(100, 10)
    spark_session().conf.set("spark.sql.streaming.numRecentProgressUpdates", n_batches + 10)
    folder = str(numbers(2_000 * n_batches, n_batches))
    took: dict[str, list[float]] = {"plain": [], "engine": []}
    for _ in range(settings.pick(3, 1)):
        took["plain"].append(_batch_ms(folder, lambda rows, out: _plain_stream(rows, kind, out)))
        took["engine"].append(_batch_ms(folder, lambda rows, out: _engine_stream(rows, kind, out)))
    beyond = [engine - plain for plain, engine in zip(*took.values(), strict=True)]
    told = ", ".join(f"{name} {spread(each)}" for name, each in took.items())
    note = f"medians of {n_batches} batches (ms): {told}; beyond {spread(beyond)}"
    return Measurement(median(beyond), note, {"ms": took})


RUNS: Runs = {
    "scan_equal_predicates": equal_predicates,
    "scan_unseen": unseen_predicates,
    "scan_tenants_saved": partial(tenants, value="saved"),
    "scan_tenants_time": partial(tenants, value="time"),
    "scan_staged": staged,
    "cold_redundant_proxy": cold_proxy,
    "first_job_proxy": partial(first_jobs, kind="proxy"),
    "first_job_equal": partial(first_jobs, kind="equal"),
    "busy_costs": busy_costs,
    "engine_share_sql": partial(engine_share, kind="sql"),
    "engine_share_python": partial(engine_share, kind="python"),
}

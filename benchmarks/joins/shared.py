"""Joins of the same streams by the same keys, shared and apart, over real order-book messages.

The trades, quotes and messages of a day are scanned Parquet files, a batch each. All queries start
at once, with Parquet as sink: in one run that shares the exchange and the windows, or in a run
each. Both ways have the same answers, and take turns in one session. The note has the time of the
processors, too, which other work on the machine hardly changes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pyarrow import parquet
from pyspark.sql import SparkSession

import eddyline as el
from benchmarks.harness.arena import arena
from benchmarks.harness.processor import seconds_below
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.joins.real import ticks_by_time
from eddyline.spark.joins.operator import JoinOperator

TWO = {
    "near": (
        "SELECT t.id, q.id AS quote, t.price, q.bid FROM trades [NOW] t, "
        "quotes [RANGE 20 MILLISECONDS] q WHERE t.symbol = q.symbol"
    ),
    "large": (
        "SELECT t.id, q.id AS quote, q.ask - t.price AS off FROM quotes [RANGE 50 MILLISECONDS] q, "
        "trades [NOW] t WHERE q.symbol = t.symbol AND t.size >= 100"
    ),
}
FOUR = TWO | {
    "inside": (
        "SELECT t.id, t.size, q.ask FROM trades [RANGE 5 MILLISECONDS] t, quotes [NOW] q "
        "WHERE t.symbol = q.symbol AND t.price < q.ask AND t.price > q.bid"
    ),
    "sums": (
        "SELECT t.symbol, count(*) AS n, sum(t.size) AS size, window.end AS until FROM trades "
        "[NOW] t, quotes [RANGE 5 MILLISECONDS] q WHERE t.symbol = q.symbol GROUP BY t.symbol"
    ),
}
THREE_STREAMS = {
    name: (
        f"SELECT t.id, q.bid, m.type FROM trades [NOW] t, quotes [RANGE {ms} MILLISECONDS] q, "
        f"messages [RANGE {ms} MILLISECONDS] m WHERE t.symbol = q.symbol AND q.symbol = m.symbol"
    )
    for name, ms in {"near": 1, "far": 4}.items()
}

N_BATCHES = 6
ROUNDS = 3


def _run(
    spark: SparkSession, folder: Path, queries: Mapping[str, str], *, is_shared: bool
) -> tuple[tuple[float, float], int, dict[str, int]]:
    """Return what all batches took, the rows that went to buckets, and the results by query.

    What they took is by the clock and in processor time (s).
    """
    engine = el.Engine(spark)
    for name in sorted({part for text in queries.values() for part in _streams(text)}):
        path = str(folder / name)
        stream = spark.readStream.schema(spark.read.parquet(path).schema)
        rows = stream.option("maxFilesPerTrigger", 1).parquet(path)
        engine.stream(name, rows, time="ts", lateness="1 second")
    for name, text in queries.items():
        engine.query(text, name=name)
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
        where: dict[str, Any] = {"path": f"{out}/rows", "checkpoint": f"{out}/state"}
        started, before = time.perf_counter(), seconds_below()
        runs = engine.start_all(
            "parquet", trigger="available_now", shared=is_shared and "all", **where
        )
        for run in runs:
            run.await_termination()
        seconds = time.perf_counter() - started, seconds_below() - before
        together: list[Any] = [each.run for each in engine.groups] if is_shared else [*runs]
        joins = [
            operator
            for run in together
            for operator in run.chain.operators
            if isinstance(operator, JoinOperator)
        ]
        n_sent = sum(each.n_joined for join in joins for each in join.facts().inputs)
        found = {name: parquet.read_table(f"{out}/rows/{name}").num_rows for name in queries}
    return seconds, n_sent, found


def _streams(text: str) -> list[str]:
    return [name for name in ("trades", "quotes", "messages") if f"{name} [" in text]


@cache
def _raced(settings: Settings, kind: str) -> dict[str, Any]:
    """Return what runs took (s), and the rows that went to buckets, shared and apart."""
    queries = {"two": TWO, "four": FOUR, "three streams": THREE_STREAMS}[kind]
    folder = ticks_by_time(settings.pick(N_BATCHES, 3))
    took: dict[str, list[tuple[float, float]]] = {"apart": [], "shared": []}
    sent, answers = {}, []
    with arena() as (spark, _):
        for number in range(settings.pick(ROUNDS, 1) + 1):
            for name, of in took.items():
                seconds, sent[name], found = _run(
                    spark, folder, queries, is_shared=name == "shared"
                )
                answers.append(found)
                if number:  # the first round compiles kernels and starts workers
                    of.append(seconds)
    assert all(each == answers[0] for each in answers), answers
    return {"seconds": took, "sent": sent, "results": answers[0]}


def _time(settings: Settings, kind: str) -> Measurement:
    """Time of the queries apart over that of the queries that share."""
    found, said, ratios = _raced(settings, kind), [], []
    for at, what in enumerate(("s by the clock", "s of processors")):
        took = {name: [each[at] for each in of] for name, of in found["seconds"].items()}
        by_round = [one / other for one, other in zip(*took.values(), strict=True)]
        told = ", ".join(f"{name} {spread(seconds)}" for name, seconds in took.items())
        said.append(f"{what}: {told}, ratios {spread(by_round)}")
        ratios.append(median(by_round))
    return Measurement(ratios[0], f"{'; '.join(said)}; results {found['results']}", found)


def two(settings: Settings) -> Measurement:
    """Two queries over two streams."""
    return _time(settings, "two")


def four(settings: Settings) -> Measurement:
    """Four queries over two streams, of which one aggregates."""
    return _time(settings, "four")


def three_streams(settings: Settings) -> Measurement:
    """Two queries over three streams."""
    return _time(settings, "three streams")


def rows_sent(settings: Settings) -> Measurement:
    """Rows that go to buckets for two queries apart over those that go there if they share."""
    sent = _raced(settings, "two")["sent"]
    told = ", ".join(f"{name} {n:,}" for name, n in sent.items())
    return Measurement(sent["apart"] / sent["shared"], f"rows that went to buckets: {told}", sent)


RUNS: Runs = {
    "joins_shared_2": two,
    "joins_shared_4": four,
    "joins_shared_3_streams": three_streams,
    "joins_shared_rows": rows_sent,
}

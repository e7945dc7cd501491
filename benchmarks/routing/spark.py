"""Routing end to end on Spark: regexes over log lines, and a stream that joins eight tables.

Each tenant's lines seldom hold another marker, so that each has another best order, while over all
rows the five regexes drop alike: one order for all has nothing to win.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame
from tests.oracles.star import N_KEYS, StarStream

import eddyline as el
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import cached, noop, spark_session, written
from benchmarks.harness.statistics import median, spread
from benchmarks.harness.timing import interleaved, on_over_off, paired_ratio, seconds_of, times_told
from benchmarks.workloads import LOG_REGEXES, log_lines_v1, regex_predicates
from eddyline.query.predicates import Arrays
from eddyline.spark.joins.operator import JoinOperator

FRACS = (0.05, 0.9, 0.9, 0.9, 0.9)
"""Share of a tenant's lines that hold a marker: the first is the tenant's own."""


@cache
def _lines(n_rows: int) -> DataFrame:
    """Return the lines of five tenants, mixed, with columns that tell nothing, cached."""
    n_tenants = len(FRACS)
    parts = []
    for tenant in range(n_tenants):
        fracs = tuple(np.roll(FRACS, tenant).tolist())
        lines = log_lines_v1(n_rows // n_tenants, seed=tenant, fracs=fracs).select(["line"])
        names = pa.array([f"tenant-{tenant}"] * lines.num_rows)
        parts.append(lines.append_column("tenant", names))
    table = pa.concat_tables(parts)
    rng = np.random.default_rng(0)
    table = table.take(pa.array(rng.permutation(table.num_rows)))
    for number in range(3):
        noise = pa.array(rng.integers(0, 20, table.num_rows))
        table = table.append_column(f"noise{number}", noise)
    return cached(written(table))


def _predicates(kind: Arrays | Literal["sql"]) -> list[Any]:
    """Return the five regexes in SQL, or as functions over arrays of a kind."""
    if kind == "sql":
        return [f"line RLIKE '{regex}'" for regex in LOG_REGEXES]
    return list(regex_predicates(kind, case=False))


def by_tenant(settings: Settings, kind: Arrays | Literal["sql"]) -> Measurement:
    """Lines of five tenants, each with a marker of its own that few of its lines hold."""
    df = _lines(settings.pick(600_000 if kind == "pandas" else 1_500_000, 300_000))
    known = el.all_of(*_predicates(kind))
    single = el.all_of(*_predicates(kind), routing=False)
    times = interleaved(
        {
            "one order": lambda: noop(df.transform(single)),
            "fresh": lambda: noop(df.transform(el.all_of(*_predicates(kind)))),
            "known": lambda: noop(df.transform(known)),
        },
        settings.pick(5, 3),
    )
    routed_by = known.facts().blocks[0].routed_by
    gain = paired_ratio(times["one order"], times["known"])
    fresh = paired_ratio(times["one order"], times["fresh"])
    by = ", ".join(routed_by) or "nothing"
    note = f"routed by {by}; a fresh conjunction {fresh:.3f}; {times_told(times)}"
    details = {**seconds_of(times), "fresh": fresh, "routed_by": routed_by}
    return Measurement(gain, note, details)


def nothing_to_route(settings: Settings) -> Measurement:
    """Two regexes of a few ns; four attributes are handed over and tell nothing."""
    df = _lines(settings.pick(1_500_000, 300_000)).drop("tenant")
    predicates = regex_predicates("arrow", ("zebra", "yak"))
    value, control, times = on_over_off(
        lambda routing: noop(df.transform(el.all_of(*predicates, routing=routing))),
        settings.pick(9, 3),
    )
    note = f"off against off {control:.3f}; {times_told(times)}"
    return Measurement(value, note, seconds_of(times))


N_BATCHES = 10
"""Batches of the stream that joins tables."""

STAR_KEYS = {"tables sent to the rows": 10_000, "one order": 20_000, "classes": 20_000}
"""Rows of each of eight tables: with 20,000 they are too many to be sent to the rows."""


@cache
def _star_files(n_rows: int, n_keys: int) -> Path:
    """Return a folder with a stream, a file for each batch, and eight tables."""
    folder = Path(tempfile.mkdtemp(prefix="eddyline_star_"))
    star = StarStream.skewed(8, 0.05)
    rows = star.table(n_rows)
    for f in range(star.n_filters):
        name = f"fk{f}"
        key = pc.multiply(rows[name], n_keys // N_KEYS)
        rows = rows.set_column(rows.column_names.index(name), name, key)
        (folder / f"d{f}").mkdir()
        keys = np.arange(n_keys)
        parquet.write_table(pa.table({"key": keys, "v": keys + f}), folder / f"d{f}" / "0.parquet")
    at = pa.array(np.arange(n_rows) * 100, pa.timestamp("us"))
    rows = rows.append_column("ts", at)
    (folder / "s").mkdir()
    step = n_rows // N_BATCHES
    for number in range(N_BATCHES):
        file = folder / "s" / f"{number:05d}.parquet"
        parquet.write_table(rows.slice(number * step, step), file)
        os.utime(file, (1_700_000_000 + number,) * 2)
    return folder


def _star_run(n_rows: int, variant: str) -> dict[str, Any]:
    """Join the stream with the tables; the time of its micro-batches by Spark's clock (s)."""
    folder, spark = _star_files(n_rows, STAR_KEYS[variant]), spark_session()
    schema = spark.read.parquet(str(folder / "s")).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    engine = el.Engine(spark)
    engine.stream("s", stream.parquet(str(folder / "s")), time="ts", lateness="1 second")
    names = [f"d{f}" for f in range(8)]
    for name in names:
        engine.table(name, spark.read.parquet(str(folder / name)))
    columns = ", ".join(f"d{f}.v AS v{f}" for f in range(8))
    keys = " AND ".join(f"s.fk{f} = d{f}.key" for f in range(8))
    text = f"SELECT s.id, s.attr_c, {columns} FROM s [NOW], {', '.join(names)} WHERE {keys}"
    counts: list[int] = []

    def count(df: DataFrame, _batch_id: int) -> None:
        counts.append(df.count())

    count.takes_all = True  # type: ignore[attr-defined]
    query = engine.query(text, routing=variant == "classes")
    checkpoint = tempfile.mkdtemp(prefix="eddyline_star_")
    run = query.start(count, checkpoint=checkpoint, trigger="available_now")
    run.await_termination()
    done = [each for each in run.streaming_query.recentProgress if each["numInputRows"]]
    (join,) = (each for each in run.chain.operators if isinstance(each, JoinOperator))
    facts = join.facts()
    (pipeline,) = (each for each in facts.pipelines if each.name == "s")
    return {
        "seconds": [each["durationMs"]["triggerExecution"] / 1e3 for each in done],
        "n_results": sum(counts),
        "look_ups": sum(each.n_in for each in pipeline.probes),
        "probe_s": sum(each.ns for each in pipeline.probes) / 1e9,
        "groups": len(pipeline.classes),
        "way": facts.way,
    }


def star(settings: Settings) -> Measurement:
    """A stream of the paper's best case joins eight tables, ten batches."""
    n_rows = settings.pick(1_000_000, 100_000)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in STAR_KEYS}
    for number in range(settings.pick(3, 2)):
        for name in STAR_KEYS if number % 2 else reversed(STAR_KEYS):
            ran = _star_run(n_rows, name)
            if number:
                runs[name].append(ran)
    later = slice(N_BATCHES // 2, None)
    seconds = {name: [sum(each["seconds"][later]) for each in of] for name, of in runs.items()}
    gain = median(
        one / many for one, many in zip(seconds["one order"], seconds["classes"], strict=True)
    )
    told = "; ".join(
        f"{name} {median(of):.2f} s ({spread(of)}), {runs[name][-1]['look_ups']:,} look-ups in "
        f"Python of {runs[name][-1]['probe_s']:.2f} s"
        for name, of in seconds.items()
    )
    note = f"{n_rows:,} rows, the later half of {N_BATCHES} batches: {told}"
    return Measurement(round(gain, 3), note, {**runs})


RUNS: Runs = {
    "routing_joins_spark": star,
    "routing_spark_python": partial(by_tenant, kind="pandas"),
    "routing_spark_kernels": partial(by_tenant, kind="arrow"),
    "routing_spark_sql": partial(by_tenant, kind="sql"),
    "routing_spark_neutral": nothing_to_route,
}

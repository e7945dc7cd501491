"""Many rules over scanned Parquet files, whose columns tasks read themselves.

Rows and rules are those of the day's seed. Every contestant scans the same files in each run.
Matches are counted by default from files that tasks read; names of a batch need ``lane="on"``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.filters.lane import later_s
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import noop, spark_session, written
from benchmarks.harness.timing import Times, interleaved, paired_ratio, times_told
from benchmarks.rules.data import equality_rules_v1, mixed_rules_v1, range_rules_v1, rows_v1
from benchmarks.rules.forms import arrays_by_statement, by_operator, ours_by_rule, pairs_in
from benchmarks.rules.numbers import polars_counts
from eddyline.spark.rules.rule_set import RuleSet

N_RULES = 500

KINDS: dict[str, Callable[..., dict[str, str]]] = {
    "ranges": range_rules_v1,
    "equalities": equality_rules_v1,
    "mixed": mixed_rules_v1,
}


@cache
def _folder(n_rows: int, seed: int) -> Path:
    """Return files of the rows, with numbers and texts that no rule reads."""
    rng = np.random.default_rng([seed, 48])
    rows = rows_v1(n_rows, seed)
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    for number in range(int(rng.integers(2, 6))):
        columns[f"d{number}"] = pa.array(rng.random(n_rows))
    for number in range(int(rng.integers(1, 4))):
        names = pa.array([f"a name {at}" for at in range(int(rng.integers(3, 50_000)))])
        columns[f"s{number}"] = names.take(pa.array(rng.integers(0, len(names), n_rows)))
    return written(pa.table(columns), n_files=int(rng.integers(3, 9)))


def _rows(folder: Path) -> DataFrame:
    return spark_session().read.parquet(str(folder))


def by_polars(folder: Path, rules: dict[str, str]) -> dict[str, int]:
    """Return the matches of each rule as Polars counts them, scanning the files."""
    import polars as pl  # noqa: PLC0415 - a peer, which no other figure needs

    return polars_counts(pl.scan_parquet(f"{folder}/*.parquet"), rules)


def counts(settings: Settings) -> Measurement:
    """Time of Polars over ours where matches are counted by rule, the worst of three kinds."""
    folder = _folder(settings.pick(1_000_000, 150_000), settings.unseen)
    df, ratios, told = _rows(folder), {}, []
    for kind, made in KINDS.items():
        rules = made(N_RULES, settings.unseen)
        ours, off = RuleSet(rules), RuleSet(rules, lane="off")
        assert ours_by_rule(ours, df) == by_polars(folder, rules), "other counts"
        times = interleaved(
            {
                "polars": partial(by_polars, folder, rules),
                "eddyline": partial(ours_by_rule, ours, df),
                "lane off": partial(ours_by_rule, off, df),
            },
            settings.pick(5, 2),
        )
        ratios[kind] = paired_ratio(times["polars"], times["eddyline"])
        gain = paired_ratio(times["lane off"], times["eddyline"])
        told.append(f"{kind} {ratios[kind]:.2f}, lane off {gain:.2f} ({times_told(times)})")
    return Measurement(min(ratios.values()), "; ".join(told), {"ratios": ratios})


def names(settings: Settings) -> Measurement:
    """Time of one Spark statement, of a column and names, over ours with all columns and names."""
    folder = _folder(settings.pick(1_000_000, 20_000), settings.unseen)
    df, rules = _rows(folder), range_rules_v1(N_RULES, settings.unseen)
    ours, off = (RuleSet(rules, lane=lane) for lane in ("on", "off"))
    assert _pairs(ours, df) == _pairs(off, df), "other matches"
    stated = partial(arrays_by_statement, df, rules, N_RULES)
    times = interleaved(
        {
            "spark": by_operator(df, stated),
            "eddyline": lambda: noop(df.transform(ours.matches("found"))),
            "lane off": lambda: noop(df.transform(off.matches("found"))),
        },
        settings.pick(3, 1),
    )
    value = paired_ratio(times["spark"], times["eddyline"])
    gain = paired_ratio(times["lane off"], times["eddyline"])
    note = f"lane off over ours {gain:.2f}; {times_told(times)}"
    return Measurement(value, note, {"gain": gain})


def _pairs(rules: RuleSet, df: DataFrame) -> int:
    return pairs_in(df.transform(rules.matches("found")))


def stream(settings: Settings) -> Measurement:
    """Later batches with ``lane="off"`` over those by default, Parquet in and out."""
    folder = _folder(settings.pick(2_000_000, 200_000), settings.unseen)
    rules = KINDS["mixed"](N_RULES, settings.unseen)
    took: dict[str, list[float]] = {"off": [], "auto": []}
    for _ in range(settings.pick(3, 1)):
        with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as out:
            for lane, seconds in took.items():
                seconds.append(_streamed(folder, rules, f"{out}/{lane}", lane))
    times = {f"lane {lane}": Times(tuple(each)) for lane, each in took.items()}
    value = paired_ratio(times["lane off"], times["lane auto"])
    n_batches = len(list(folder.iterdir()))
    note = f"s of the later half of {n_batches} batches: {times_told(times)}"
    return Measurement(value, note, {"seconds": took})


def _streamed(folder: Path, rules: dict[str, str], out: str, lane: str) -> float:
    rows = spark_session().readStream.schema(_rows(folder).schema)
    run = RuleSet(rules, lane=lane, name=f"lane_{lane}").start(
        rows.option("maxFilesPerTrigger", 1).parquet(str(folder)),
        "parquet",
        path=f"{out}/rows",
        checkpoint=f"{out}/state",
        trigger="available_now",
    )
    run.await_termination()
    return later_s(run.streaming_query)


RUNS: Runs = {
    "lane_rules_counts": counts,
    "lane_rules_names": names,
    "lane_rules_stream": stream,
}

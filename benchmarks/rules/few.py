"""Few rules over Parquet files as users read them, beside the statement that a person would write.

The rows have twenty columns and are scanned in every run. Each output is asked of both: names of
the rules of rows that have some, these rows alone, and how many rows each rule is true for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import noop, spark_session, written
from benchmarks.harness.timing import interleaved, paired_ratio, seconds_of, times_told
from benchmarks.rules.data import equality_rules_v1, mixed_rules_v1, range_rules_v1, rows_v1
from eddyline.spark.rules.rule_set import RuleSet

N_NUMBERS = 4
"""Columns ``d0`` to ``d3``, which no rule reads."""

COMMON = {"common": "a0 < 2000"}
"""A rule that is true for a fifth of the rows; the others are for one in hundreds."""


@cache
def _folder(n_rows: int) -> Path:
    rng = np.random.default_rng(47)
    numbers = {f"d{number}": pa.array(rng.random(n_rows)) for number in range(N_NUMBERS)}
    rows = rows_v1(n_rows)
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    return written(pa.table(columns | numbers))


def rules_of(n_rules: int) -> dict[str, str]:
    """Return ranges, equalities and texts in equal parts, and a rule that is often true."""
    third = (n_rules - 1) // 3
    kinds = range_rules_v1(n_rules - 1 - 2 * third) | equality_rules_v1(third)
    return COMMON | kinds | mixed_rules_v1(third)


def _some(rules: dict[str, str]) -> str:
    return " OR ".join(f"({text})" for text in rules.values())


def _plain(df: DataFrame, rules: dict[str, str]) -> dict[str, Callable[[], object]]:
    """Return the outputs as a person would write them."""
    named = (F.when(F.expr(text), F.lit(name)) for name, text in rules.items())
    names = F.array_compact(F.array(*named))
    counts = [F.count_if(F.expr(text)).alias(name) for name, text in rules.items()]
    return {
        "names": lambda: noop(df.where(_some(rules)).withColumn("found", names)),
        "rows": lambda: noop(df.where(_some(rules))),
        "counts": lambda: df.agg(*counts).collect(),
    }


def _ours(df: DataFrame, rules: RuleSet) -> dict[str, Callable[[], object]]:
    return {
        "names": lambda: noop(df.transform(rules.matches("found"))),
        "rows": lambda: noop(df.transform(rules.any())),
        "counts": lambda: df.transform(rules.count_by_rule()).collect(),
    }


def few(settings: Settings, n_rules: int) -> Measurement:
    """Time of ours over the plain statement's, the worst of three outputs."""
    df = spark_session().read.parquet(str(_folder(settings.pick(1_000_000, 200_000))))
    rules = rules_of(n_rules)
    chosen, matcher = RuleSet(rules), RuleSet(rules, method="blocks")
    ways = {"plain": _plain(df, rules), "eddyline": _ours(df, chosen)}
    variants = {f"{way}, {output}": run for way, of in ways.items() for output, run in of.items()}
    variants["matcher, names"] = _ours(df, matcher)["names"]
    variants["scan"] = lambda: noop(df)
    times = interleaved(variants, settings.pick(5, 2))
    n_found = {row["rule"]: row["count"] for row in df.transform(chosen.count_by_rule()).collect()}
    theirs = df.agg(*(F.count_if(F.expr(t)).alias(n) for n, t in rules.items())).first()
    assert theirs is not None  # counts without groups are always a row
    assert n_found == {name: n for name, n in theirs.asDict().items() if n}, "other counts"
    ratios = {
        output: paired_ratio(times[f"eddyline, {output}"], times[f"plain, {output}"])
        for output in ways["plain"]
    }
    by_matcher = paired_ratio(times["matcher, names"], times["plain, names"])
    told = ", ".join(f"{output} {ratio:.3f}" for output, ratio in ratios.items())
    note = (
        f"{told}; names by the matcher {by_matcher:.2f}; plan: {chosen.facts().plan}; "
        f"{times_told(times)}"
    )
    return Measurement(max(ratios.values()), note, {**seconds_of(times), **ratios})


RUNS: Runs = {
    f"sharing_scanned_{n_rules}_rules": partial(few, n_rules=n_rules) for n_rules in (3, 10, 50)
}

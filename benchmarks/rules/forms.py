"""Ways to ask Spark for many rules, and to compare what engines answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from benchmarks.harness.spark import noop

if TYPE_CHECKING:  # its import is part of what ``sharing_sigma_start`` times
    from eddyline.spark.rules.rule_set import RuleSet

Statement = dict[str, str]
"""Conditions by rule."""


def spark_text(text: str) -> str:
    """Return a text as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def counts_by_statement(df: DataFrame, conditions: Statement, size: int) -> dict[str, int]:
    """Return the matches of each rule by statements of so many rules, each one row of counts."""
    names = list(conditions)
    counts: dict[str, int] = {}
    for start in range(0, len(names), size):
        part = names[start : start + size]
        chosen = [f"count_if({conditions[name]}) AS `{name}`" for name in part]
        row = df.selectExpr(*chosen).first()
        assert row is not None  # counts without groups are always a row
        counts.update(row.asDict())
    return counts


def arrays_by_statement(df: DataFrame, conditions: Statement, size: int) -> None:
    """Find the rules of each row as an array, by statements of so many rules."""
    names = list(conditions)
    for start in range(0, len(names), size):
        part = names[start : start + size]
        listed = ", ".join(f"CASE WHEN {conditions[n]} THEN {spark_text(n)} END" for n in part)
        noop(df.selectExpr(df.columns[0], f"filter(array({listed}), x -> x IS NOT NULL) AS found"))


def jobs_by_rule(df: DataFrame, conditions: Statement) -> None:
    """Find the rows of each rule in a job of its own."""
    for condition in conditions.values():
        noop(df.where(condition).select(df.columns[0]))


def by_operator(df: DataFrame, call: Callable[[], object]) -> Callable[[], object]:
    """Return a call during which Spark compiles operators by themselves.

    Whole stages with many conditions exceed what Java compiles, and are interpreted.
    """
    conf = df.sparkSession.conf

    def run() -> object:
        conf.set("spark.sql.codegen.wholeStage", "false")
        try:
            return call()
        finally:
            conf.unset("spark.sql.codegen.wholeStage")

    return run


def forms(df: DataFrame, conditions: Statement) -> dict[str, Callable[[], object]]:
    """Return the ways to ask Spark for all rules, by name."""
    n_all = len(conditions)

    def stepwise(call: Callable[[], object]) -> Callable[[], object]:
        return by_operator(df, call)

    return {
        "counts of 10 rules a statement": lambda: counts_by_statement(df, conditions, 10),
        "arrays of 10": lambda: arrays_by_statement(df, conditions, 10),
        "arrays of 100, by operator": stepwise(lambda: arrays_by_statement(df, conditions, 100)),
        "one array, by operator": stepwise(lambda: arrays_by_statement(df, conditions, n_all)),
        "a job a rule": lambda: jobs_by_rule(df, conditions),
    }


def ours_by_rule(rules: RuleSet, events: DataFrame) -> dict[str, int]:
    """Return the matches of each rule, 0 included."""
    found = {row["rule"]: row["count"] for row in events.transform(rules.count_by_rule()).collect()}
    return {name: found.get(name, 0) for name in rules.names}


def pairs_in(found: DataFrame) -> int:
    """Return the pairs of row and rule in a column ``found`` of arrays."""
    row = found.selectExpr("sum(size(found))").first()
    assert row is not None  # a sum without groups is always a row
    n: int = row[0]
    return n


def differing(ours: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the rules with other counts: ours and theirs."""
    return {
        name: (ours[name], theirs[name])
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    }

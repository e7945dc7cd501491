"""Filters before another operator, evaluated by its tasks over files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import EddylineError
from eddyline.query.predicates import SqlPredicate
from eddyline.query.rules.sources import PredicateRule
from eddyline.report.formatting import one_line
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.row_test import RowTest
from eddyline.spark.lane import Refused
from eddyline.spark.rules.binding import RuleBinder, session_settings
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.query.predicates import Predicate


def row_test(rows: DataFrame, predicates: Sequence[Predicate]) -> RowTest | None:
    """Return the conjunction of some predicates over rows; None if there are none.

    Args:
        rows: a DataFrame with the columns of the rows, for analysis only.
        predicates: as written.

    Raises:
        Refused: the kernels of rules do not decide it by columns alone.
    """
    if not predicates:
        return None
    for predicate in predicates:
        if not isinstance(predicate, SqlPredicate):
            raise Refused(f"{predicate.name} is evaluated in Python")
    rule = PredicateRule("where", tuple(predicates), noun="query")
    try:
        bound = RuleBinder().bind(rows, [rule], skips=False)
    except EddylineError as error:
        raise Refused(error.message) from error
    program = compile_rules(bound.rules)
    if program.natives or program.externals:
        raise Refused(f"Spark evaluates {one_line(rule.text)}")
    names = {quoted(name): name for name in rows.columns} | {name: name for name in rows.columns}
    columns = tuple(names.get(text, "") for text in program.columns)
    if not all(columns):
        raise Refused(f"Spark evaluates {one_line(rule.text)}")
    return RowTest(program, columns, tuple(session_settings(rows.sparkSession)))


def check_settings(conditions: Iterable[RowTest | None], spark: SparkSession) -> None:
    """Raise Refused if a condition means something else by the settings of a session."""
    settings = {condition.settings for condition in conditions if condition is not None}
    if settings and settings != {tuple(session_settings(spark))}:
        raise Refused("settings that conditions depend on have changed since the query was made")

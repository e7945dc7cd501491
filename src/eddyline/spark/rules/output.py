"""Outputs of rules: a column of those that are true, a filter, or counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.spark.operator import PREFIX
from eddyline.spark.rules.udf import add_matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from eddyline.spark.rules.task import RuleTask

    Output = Callable[[DataFrame, RuleTask, tuple[str, ...], Any], DataFrame]
    """Makes a result of what tasks find, from rows, what workers run and get, and an Observation or
    a name; the reports of tasks are its metric ``rules``."""

STRUCT = f"{PREFIX}_rules"
"""The temporary column of matches and reports."""

Columns = tuple[str, ...]
"""The columns, or SQL expressions, that workers get."""


@dataclass(frozen=True, slots=True)
class MatchesColumn:
    """A column of the rules that are true."""

    column: str = "matches"
    keep_unmatched: bool = False
    """Whether rows for which no rule is true are kept, with an empty array."""
    as_places: bool = False
    """Whether rules are told by their places in the set, and not by their names."""

    def check(self, df: DataFrame) -> None:
        """Raise QueryError if a column of the input would be replaced."""
        if self.column.lower() in (each.lower() for each in df.columns):
            msg = (
                f"the input has a column {self.column!r} already; choose another: matches('…') or "
                f"column='…'"
            )
            raise QueryError(msg, column=self.column)

    def lay(self, df: DataFrame, task: RuleTask, columns: Columns, observation: Any) -> DataFrame:
        """Add the column."""
        task = replace(task, as_places=self.as_places)
        found = add_matches(df, task, columns, STRUCT, observation)
        kept = found if self.keep_unmatched else _matched(found)
        return kept.withColumn(self.column, F.col(f"{STRUCT}.matches")).drop(STRUCT)

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        kind = "array<int>" if self.as_places else "array<string>"
        return df.withColumn(self.column, F.lit(None).cast(kind))


class MatchedRows:
    """The rows for which some rule is true."""

    def lay(self, df: DataFrame, task: RuleTask, columns: Columns, observation: Any) -> DataFrame:
        """Keep them."""
        return keep_matched(df, task, columns, observation)

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df


def keep_matched(df: DataFrame, task: RuleTask, columns: Columns, observation: Any) -> DataFrame:
    """Return the rows for which some rule is true."""
    task = replace(task, as_places=True)
    return _matched(add_matches(df, task, columns, STRUCT, observation)).drop(STRUCT)


def _matched(df: DataFrame) -> DataFrame:
    return df.where(F.size(f"{STRUCT}.matches") > 0)

"""Outputs of rules: a column of those that are true, a filter, or counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.query.rules.rule import Rule
from eddyline.spark.operator import PREFIX
from eddyline.spark.rules.udf import ABOUT_RULE, add_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from eddyline.query.conditions import RuleSource
    from eddyline.spark.rules.udf import Work

    Output = Callable[[DataFrame, Work, Any], DataFrame]
    """Makes a result of what tasks find, from rows, what workers do, and an Observation or a name;
    the reports of tasks are its metric ``rules``."""

STRUCT = f"{PREFIX}_rules"
"""The temporary column of matches and reports."""


@dataclass(frozen=True, slots=True)
class MatchesColumn:
    """A column of the rules that are true."""

    column: str = "matches"
    keep_unmatched: bool = False
    """Whether rows for which no rule is true are kept, with an empty array."""
    as_places: bool = False
    """Whether rules are told by their places in the set, and not by their names."""
    as_struct: bool = False
    """Whether they are told by id, title and level."""

    def check(self, df: DataFrame) -> None:
        """Raise QueryError if a column of the input would be replaced."""
        if self.column.lower() in (each.lower() for each in df.columns):
            msg = (
                f"the input has a column {self.column!r} already; choose another: matches('…') or "
                f"column='…'"
            )
            raise QueryError(msg, column=self.column)

    @property
    def kind(self) -> str:
        """The Spark type of the column."""
        element = "int" if self.as_places else "string"
        return f"array<{ABOUT_RULE.simpleString() if self.as_struct else element}>"

    def lay(self, df: DataFrame, work: Work, observation: Any) -> DataFrame:
        """Add the column."""
        about = about_rules(work.rules) if self.as_struct else None
        task = replace(work.task, as_places=self.as_places or self.as_struct)
        found = add_matches(df, replace(work, task=task), STRUCT, observation, about=about)
        kept = found if self.keep_unmatched else _matched(found)
        return kept.withColumn(self.column, F.col(f"{STRUCT}.matches")).drop(STRUCT)

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df.withColumn(self.column, F.lit(None).cast(self.kind))


class MatchedRows:
    """The rows for which some rule is true."""

    def lay(self, df: DataFrame, work: Work, observation: Any) -> DataFrame:
        """Keep them."""
        return keep_matched(df, work, observation)

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df


def keep_matched(df: DataFrame, work: Work, observation: Any) -> DataFrame:
    """Return the rows for which some rule is true."""
    return _matched(_with_places(df, work, observation)).drop(STRUCT)


def keep_unmatched(df: DataFrame, work: Work, observation: Any) -> DataFrame:
    """Return the rows for which no rule is true."""
    return _with_places(df, work, observation).where(F.size(f"{STRUCT}.matches") == 0).drop(STRUCT)


def about_rules(sources: Iterable[RuleSource]) -> pa.StructArray:
    """Return what is told of rules, by their places; see ``ABOUT_RULE``."""
    rules = [(each.name, Rule.of(each)) for each in sources]
    told = [
        [name for name, _ in rules],
        [rule.title for _, rule in rules],
        [rule.level for _, rule in rules],
    ]
    texts = [pa.array(each, pa.string()) for each in told]
    return pa.StructArray.from_arrays(texts, ["id", "title", "level"])


def _with_places(df: DataFrame, work: Work, observation: Any) -> DataFrame:
    work = replace(work, task=replace(work.task, as_places=True))
    return add_matches(df, work, STRUCT, observation)


def _matched(df: DataFrame) -> DataFrame:
    return df.where(F.size(f"{STRUCT}.matches") > 0)

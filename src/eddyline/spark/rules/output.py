"""Outputs of rules: a column of those that are true, a filter, or counts.

Each is made of what tasks find, and of one statement of Spark's, where the plan is that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.query.rules.rule import Rule
from eddyline.spark.operator import PREFIX
from eddyline.spark.rules.statement import as_told
from eddyline.spark.rules.udf import ABOUT_RULE, add_matches, with_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column, DataFrame

    from eddyline.query.conditions import RuleSource
    from eddyline.spark.rules.statement import Statement
    from eddyline.spark.rules.udf import Work

    Observe = Callable[[], Any]
    """Returns an Observation or a name, for what a job will report."""

STRUCT = f"{PREFIX}_rules"
"""The temporary column of matches and reports."""


class Output(Protocol):
    """Makes a result of rows and the rules that are true for them."""

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Return the result by tasks; their reports are the metric ``rules`` of what is observed.

        Args:
            df: the rows.
            work: what workers do.
            observe: called once.
        """
        ...

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame | None:
        """Return the result by one statement of Spark's; None if it takes tasks.

        Args:
            df: the rows.
            statement: the rules.
            observe: not called where the statement reports nothing.
        """
        ...


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

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Add the column."""
        about = about_rules(work.rules) if self.as_struct else None
        task = replace(work.task, as_places=self.as_places or self.as_struct)
        found = add_matches(df, replace(work, task=task), STRUCT, observe(), about=about)
        kept = found if self.keep_unmatched else _matched(found)
        return kept.withColumn(self.column, F.col(f"{STRUCT}.matches")).drop(STRUCT)

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame:
        """Add the column."""
        rows = statement.every(df) if self.keep_unmatched else statement.matched(df)
        found = statement.counted(rows, observe(), is_all=self.keep_unmatched)
        return statement.bare(found.withColumn(self.column, self._told(statement)))

    def _told(self, statement: Statement) -> Column:
        if self.as_struct:
            told = statement.structs
        else:
            told = statement.places if self.as_places else statement.names
        return as_told(told)

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df.withColumn(self.column, F.lit(None).cast(self.kind))


class MatchedRows:
    """The rows for which some rule is true."""

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Keep them."""
        return _matched(_with_places(df, work, observe())).drop(STRUCT)

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame:
        """Keep them."""
        return statement.bare(statement.counted(statement.matched(df), observe()))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df


class UnmatchedRows:
    """The rows for which no rule is true."""

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Keep them."""
        found = _with_places(df, work, observe())
        return found.where(F.size(f"{STRUCT}.matches") == 0).drop(STRUCT)

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame:  # noqa: ARG002
        """Keep them; no match is among them that could be counted."""
        return statement.unmatched(df)


class CountByRule:
    """For how many rows each rule is true."""

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Count them in tasks."""
        return with_counts(df, work, observe())

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame | None:
        """Count them, in a batch: the state of a streaming aggregate is no plan's to change."""
        return None if df.isStreaming else statement.counts(df, observe())


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

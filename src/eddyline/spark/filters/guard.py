"""Rows that a conjunction sees, and rows that it drops."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.spark.operator import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Guard:
    """The rows of a DataFrame that predicates are evaluated on; the others pass untouched.

    The inputs of a join share a DataFrame: a conjunction over one of them must leave the others
    alone. Where windows count all rows, those that a predicate drops stay and are only marked.
    """

    rows: str = ""
    """SQL condition that is never NULL; all rows if empty."""
    marks: str = ""
    """A boolean column that is set on rows that are dropped; they go if empty."""
    dropped: str = "false"
    """SQL of what it is set to: ``false`` or ``NULL``."""

    @property
    def survivors(self) -> Guard:
        """The rows that are not marked, whatever they are of."""
        return replace(self, rows="")

    @property
    def condition(self) -> str:
        """SQL for the rows that still count; empty for all."""
        marked = f"{self.marks} IS TRUE" if self.marks else ""
        return " AND ".join(f"({condition})" for condition in (self.rows, marked) if condition)

    def only(self, df: DataFrame) -> DataFrame:
        """Return the rows alone that the conjunction is about."""
        return df.where(self.condition) if self.condition else df

    def where(self, df: DataFrame, condition: str) -> DataFrame:
        """Drop, or mark, the rows on which a SQL condition is not true."""
        if self.marks:
            kept = f"CASE WHEN ({condition}\n) THEN true ELSE {self.dropped} END"
            now = f"CASE WHEN {self.condition} THEN {kept} ELSE {self.marks} END"
            return df.withColumn(self.marks, F.expr(now))
        return df.where(f"NOT ({self.rows}) OR ({condition}\n)" if self.rows else condition)


MAX_CONJUNCTS = 300
"""Most conjuncts of one filter of Spark. Spark walks the chain of conjuncts by recursion: 500 pass
and 1,500 end in a StackOverflowError, on a stack of 1 MB."""

_AND = re.compile(r"\bAND\b", re.IGNORECASE)

CUT = 200
"""Conjuncts that stay in the chain, if there are more than ``MAX_CONJUNCTS``."""


def steps_of(conditions: Sequence[str]) -> list[str]:
    """Return the conditions of a conjunction in steps that Spark can compile.

    The first conditions stay unchanged, so Spark may push them down to files. The others become one
    step; see ``in_turn``.
    """
    sizes = [_conjuncts_of(condition) for condition in conditions]
    if sum(sizes) <= MAX_CONJUNCTS:
        return list(conditions)
    n, room = 0, CUT
    while sizes[n] <= room:
        room -= sizes[n]
        n += 1
    return [*conditions[:n], in_turn(conditions[n:])]


def in_turn(conditions: Sequence[str]) -> str:
    """Return a conjunction in which a row meets a condition only if those before it hold.

    Spark's AND evaluates its right side where the left one is NULL, and nests by a level for each
    condition. A CASE has all conditions on one level.
    """
    if len(conditions) == 1 and _conjuncts_of(conditions[0]) <= MAX_CONJUNCTS - CUT:
        return conditions[0]
    drops = (f"WHEN ({condition}) IS NOT TRUE THEN false" for condition in conditions)
    return f"CASE {' '.join(drops)} ELSE true END"


def _conjuncts_of(condition: str) -> int:
    """Return how many conjuncts the text of a condition has at most."""
    return 1 + len(_AND.findall(condition))


def settled(df: DataFrame) -> DataFrame:
    """Return a DataFrame such that what is laid over it meets no row that it drops.

    Spark moves a filter below others as long as what it reads is deterministic. A random number is
    not. (A row number would do as well, but streaming DataFrames have none.)
    """
    last = f"{PREFIX}_last"
    return df.withColumn(last, F.rand(0)).where(f"{last} >= 0").drop(last)


EVERY_ROW = Guard()

"""Columns that are built once for all batches of a query.

Python needs a call to the JVM for each column, and a dozen calls for a column that is made of
others. In a small batch these calls take longer than the work. So steps that are the same in every
batch keep their columns in the JVM, and a step is one call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame


class Selected:
    """The columns that are selected of DataFrames with equal columns; texts are SQL."""

    def __init__(self, *columns: Column | str) -> None:
        self._columns = columns
        self._known: Any = None

    def over(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with these columns alone."""
        java: Any = df
        if self._known is None:
            self._known = java._jcols(*(_column(column) for column in self._columns))
        return _made(df, java._jdf.select(self._known))


class Added:
    """Columns by name that are added to DataFrames, or take the place of those of their name."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns
        self._known: Any = None

    def over(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with these columns, too."""
        java: Any = df
        if self._known is None:
            columns = self._columns
            self._known = java._jseq([*columns]), java._jcols(*columns.values())
        return _made(df, java._jdf.withColumns(*self._known))


class Reduced:
    """Aggregates of the rows of DataFrames by keys."""

    def __init__(self, keys: Sequence[Column], aggregates: Sequence[Column]) -> None:
        self._keys, self._aggregates = keys, aggregates
        self._known: Any = None

    def over(self, df: DataFrame) -> DataFrame:
        """Return the keys and their aggregates."""
        java: Any = df
        if self._known is None:
            first: Any
            first, *others = self._aggregates
            self._known = java._jcols(*self._keys), first._jc, java._jcols(*others)
        keys, one, more = self._known
        return _made(df, java._jdf.groupBy(keys).agg(one, more))


class Renamed:
    """DataFrames with other names for their columns; each new list of names is handed over once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Any] = {}

    def over(self, df: DataFrame, names: Mapping[str, str]) -> DataFrame:
        """Return a DataFrame with other names for some columns, of which it need not have all."""
        java: Any = df
        renamed = tuple(names.get(name, name) for name in df.columns)
        if renamed not in self._known:
            self._known[renamed] = java._jseq(renamed)
        return _made(df, java._jdf.toDF(self._known[renamed]))


@dataclass(slots=True)
class Known:
    """Steps of an operator that were laid before, by what tells them apart."""

    reductions: dict[int, Reduced] = field(default_factory=dict)
    """By the number of their keys."""
    _selections: dict[tuple[str, ...], Selected] = field(default_factory=dict)

    def selected(self, df: DataFrame, *texts: str) -> DataFrame:
        """Return what SQL texts say over a DataFrame; they must be the same in every batch."""
        return self._selections.setdefault(texts, Selected(*texts)).over(df)


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of some rows, where an observation tells it."""

    observation: Observation
    metric: str = "n"


class RowCount:
    """The number of rows that pass, observed."""

    def over(self, df: DataFrame) -> tuple[DataFrame, Counted]:
        """Return a DataFrame that is observed, and where its count comes to be."""
        counted = Counted(Observation())
        return df.observe(counted.observation, self._count), counted

    @cached_property
    def _count(self) -> Column:
        return F.count(F.lit(1)).alias("n")


def _column(column: Column | str) -> Column:
    return F.expr(column) if isinstance(column, str) else column


def _made(like: DataFrame, java: Any) -> DataFrame:
    """Return a DataFrame of the session of another one."""
    kind: Any = type(like)
    frame: DataFrame = kind(java, like.sparkSession)
    return frame

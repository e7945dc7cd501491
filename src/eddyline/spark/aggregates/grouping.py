"""Groups of rows on Spark: their columns, their codes, and the buckets that they are in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType, VariantType

from eddyline.errors import QueryError
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

CODE, CHECK = "__code", "__check"
"""Columns of the two hashes that a group is known by; see ``aggregates.cells``."""

START = "__start"
"""The column of the first instant of a cell (µs)."""

CHECK_SEED = 0x9E3779B9
"""Hashed before a group for its second hash, which is another one by that."""


@dataclass(frozen=True)
class Groups:
    """The groups of rows of a DataFrame."""

    columns: tuple[tuple[str, str], ...]
    """Name and SQL text of each."""
    fields: tuple[StructField, ...]
    """Their names and types."""

    @classmethod
    def of(cls, df: DataFrame, columns: Sequence[tuple[str, str]]) -> Groups:
        """Return the groups by expressions over a DataFrame.

        Raises:
            QueryError: one that Spark refuses, or of a type that cannot be grouped by.
        """
        found = []
        for name, text in columns:
            try:
                kind = df.selectExpr(f"({text}\n) AS g").schema[0].dataType
            except AnalysisException as error:
                msg = f"GROUP BY {text}: {error.getMessage() or error}"
                raise QueryError(msg, group=text) from error
            if _has_no_order(kind):
                msg = f"GROUP BY {text}: {kind.simpleString()} is no type to group by"
                raise QueryError(msg, group=text)
            found.append(StructField(name, kind))
        return cls(tuple(columns), tuple(found))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of their columns."""
        return tuple(name for name, _ in self.columns)

    @property
    def values(self) -> list[str]:
        """SQL of their columns, over the rows."""
        return [f"({text}\n) AS {quoted(name)}" for name, text in self.columns]

    @cached_property
    def keys(self) -> list[Column]:
        """The columns that tell cells apart."""
        return [F.col(each) for each in (BUCKET, CODE, CHECK, START, *map(quoted, self.names))]

    def codes(self, n_buckets: int) -> list[str]:
        """Return SQL of the codes and the bucket of groups, over rows with their columns."""
        hashes = self.hashes(CODE, CHECK)
        code = hashes[0].removesuffix(f" AS {CODE}")
        return [*hashes, f"CAST(pmod({code}, {n_buckets}L) AS INT) AS {BUCKET}"]

    def hashes(self, code: str, check: str) -> list[str]:
        """Return SQL of the two hashes of groups, over rows with their columns, by some names."""
        parts = [part for each in self.fields for part in _hashed(each)]
        # A hash steps over NULL, so the places of NULLs are hashed, too.
        nulls = [f"IF({quoted(name)} IS NULL, {1 << k}, 0)" for k, name in enumerate(self.names)]
        hashed = ", ".join([" + ".join(nulls) or "0", *parts])
        return [f"xxhash64({hashed}) AS {code}", f"xxhash64({CHECK_SEED}L, {hashed}) AS {check}"]


def _hashed(field: StructField) -> list[str]:
    """Return what is hashed of a column; of nested ones their text, too, which shows NULLs."""
    column = quoted(field.name)
    is_nested = isinstance(field.dataType, StructType | ArrayType)
    return [column, f"CAST({column} AS STRING)"] if is_nested else [column]


def _has_no_order(kind: object) -> bool:
    if isinstance(kind, StructType):
        return any(_has_no_order(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_no_order(kind.elementType)
    return isinstance(kind, MapType | VariantType)

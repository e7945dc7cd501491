"""Groups of rows on Spark: their columns, their codes, and the buckets that they are in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    StructField,
    StructType,
)

from eddyline.errors import NotSupportedError, QueryError
from eddyline.spark.aggregates.travelling import plain_name
from eddyline.spark.analysis import check_travel, has_no_order, is_collated, refused, unlogged
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

CODE, CHECK = "__code", "__check"
"""Columns of the two hashes that a group is known by; see ``aggregates.cells``. Those of coarser
groups have numbers: see ``code_columns``."""

START = "__start"
"""The column of the first instant of a cell (µs)."""

ROWS = "__rows"
"""The column of the number of rows of a cell."""

CHECK_SEED = 0x9E3779B9
"""Hashed before a group for its second hash, which is another one by that."""


_NESTED = StructType, ArrayType

_FLOATS = FloatType, DoubleType


def code_columns() -> Iterator[str]:
    """Yield the columns of codes, in the order of their keys.

    >>> [*islice(code_columns(), 4)]
    ['__code', '__check', '__code1', '__check1']
    """
    yield from (CODE, CHECK)
    for level in count(1):
        yield from (f"{CODE}{level}", f"{CHECK}{level}")


@dataclass(frozen=True)
class Groups:
    """The groups of rows of a DataFrame."""

    columns: tuple[tuple[str, str], ...]
    """Name and SQL text of each."""
    fields: tuple[StructField, ...]
    """Their names and types."""
    coarser: tuple[tuple[str, ...], ...] = ()
    """Names of the columns of coarser groups that cells have codes of, too: one or more, all of
    them among those before. A group of the last ones lies in one bucket."""

    @classmethod
    def of(cls, df: DataFrame, columns: Sequence[tuple[str, str]]) -> Groups:
        """Return the groups by expressions over a DataFrame.

        Raises:
            QueryError: one that Spark refuses, or of a type that cannot be grouped by.
            NotSupportedError: texts of a collation.
        """
        found = []
        for name, text in columns:
            try:
                with unlogged():
                    kind = df.selectExpr(f"({text}\n) AS g").schema[0].dataType
            except AnalysisException as error:
                raise refused(f"GROUP BY {text}", error, group=text) from error
            if has_no_order(kind):
                msg = f"GROUP BY {text}: {kind.simpleString()} is no type to group by"
                raise QueryError(msg, group=text)
            if is_collated(kind):
                msg = (
                    f"GROUP BY {text}: texts that are equal without being the same "
                    f"({kind.simpleString()}) are not supported yet; write lower(…), or "
                    f"… COLLATE UTF8_BINARY"
                )
                raise NotSupportedError(msg, group=text)
            check_travel(f"GROUP BY {text}", [StructField(text, kind)])
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

    @property
    def travelling(self) -> dict[str, str]:
        """SQL of their columns over rows that have these, by name; of a column, that column."""
        return {
            name: quoted(name) if plain_name(text) is None else text for name, text in self.columns
        }

    @property
    def are_nested(self) -> bool:
        """Whether some have parts: a zero in these has a sign until Spark groups by them."""
        return any(isinstance(each.dataType, _NESTED) for each in self.fields)

    @property
    def are_exact(self) -> bool:
        """Whether equal groups have equal bits: zeros have a sign, and there are many NaN."""
        return not any(isinstance(each.dataType, (*_NESTED, *_FLOATS)) for each in self.fields)

    @cached_property
    def own_keys(self) -> list[Column]:
        """The columns that tell cells apart."""
        return [F.col(each) for each in (START, *map(quoted, self.names))]

    @cached_property
    def keys(self) -> list[Column]:
        """The same and what is computed of them."""
        coded = islice(code_columns(), 2 * (1 + len(self.coarser)))
        return [*(F.col(each) for each in (BUCKET, *coded)), *self.own_keys]

    def codes(self, n_buckets: int) -> list[str]:
        """Return SQL of the codes and the bucket of groups, over rows with their columns."""
        every = (self.names, *self.coarser)
        hashes = [each for names in every for each in self._hashes(names)]
        bucket = f"CAST(pmod({hashes[-2]}, {n_buckets}L) AS INT)"
        coded = [f"{each} AS {name}" for each, name in zip(hashes, code_columns(), strict=False)]
        return [*coded, f"{bucket} AS {BUCKET}"]

    def hashes(self, code: str, check: str) -> list[str]:
        """Return SQL of the two hashes of groups, over rows with their columns, by some names."""
        first, second = self._hashes(self.names)
        return [f"{first} AS {code}", f"{second} AS {check}"]

    def _hashes(self, names: Sequence[str]) -> tuple[str, str]:
        """Return SQL of both hashes of some of the columns."""
        parts = [part for each in self.fields if each.name in names for part in _hashed(each)]
        # A hash steps over NULL, so the places of NULLs are hashed, too.
        nulls = [f"IF({quoted(name)} IS NULL, {1 << k}, 0)" for k, name in enumerate(names)]
        hashed = ", ".join([" + ".join(nulls) or "0", *parts])
        return f"xxhash64({hashed})", f"xxhash64({CHECK_SEED}L, {hashed})"


def _hashed(field: StructField) -> list[str]:
    """Return what is hashed of a column; of nested ones their text, too, which shows NULLs."""
    column = quoted(field.name)
    is_nested = isinstance(field.dataType, _NESTED)
    return [column, f"CAST({column} AS STRING)"] if is_nested else [column]

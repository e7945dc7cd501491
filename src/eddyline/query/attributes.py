"""Attributes that may tell classes of rows apart.

They are columns, as numbers that can be cut into bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

from eddyline.sql.parsing import quoted

_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_REAL = {"float", "double"}
_TEXTS = ("string", "varchar", "char")

_SHOWN_CHARS = 24
"""Characters of a text that people are shown."""

HASH_BITS = (1 << 52) - 1
"""A text's hash is cut to as many bits as a double holds exactly."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of the rows of an input."""

    name: str
    """The column, or the SQL expression, as its user names it."""
    kind: Literal["number", "category"]
    """``number``: values have an order; ``category``: only equality means anything."""
    sql: str
    """Its value as a DOUBLE: a number, 0 or 1 for a boolean, the hash of a text."""
    reads: frozenset[str] = frozenset()
    """The columns that it is made of."""
    text_sql: str = ""
    """For a text, the start of the text as SQL; empty if the value needs no text."""

    @property
    def labels(self) -> dict[float, str]:
        """Meaning of values, as far as the type alone says it."""
        return {0.0: "false", 1.0: "true"} if self.kind == "category" and not self.text_sql else {}

    def decides(self, columns: AbstractSet[str]) -> bool:
        """Return whether a filter that reads these columns reads nothing but the attribute's.

        A bin of the attribute is no prediction then, but the filter's own work [Bizarro05 Fig 8].
        """
        return bool(columns) and columns <= self.reads


def attribute(name: str, sql: str, kind: str, reads: Iterable[str]) -> Attribute | None:
    """Return an attribute, or None if a value of that type says nothing useful.

    Args:
        name: of the attribute.
        sql: its value as Spark SQL that cannot raise.
        kind: its type as ``DataFrame.dtypes`` writes it.
        reads: the columns that it is made of.
    """
    read = frozenset(reads)
    base = _base(kind)
    if base in _TEXTS:
        # The hash of NULL is a number like any other.
        hashed = (
            f"CASE WHEN {sql} IS NOT NULL THEN CAST(xxhash64({sql}) & {HASH_BITS}L AS DOUBLE) END"
        )
        return Attribute(name, "category", hashed, read, f"substring({sql}, 1, {_SHOWN_CHARS})")
    if base == "boolean":
        return Attribute(name, "category", f"CAST({sql} AS DOUBLE)", read)
    if base in _WHOLE | _REAL | {"decimal"}:
        return Attribute(name, "number", f"CAST({sql} AS DOUBLE)", read)
    if base == "date":
        return Attribute(name, "number", f"CAST(unix_date({sql}) AS DOUBLE)", read)
    if base.startswith("timestamp"):
        # Classes of rows need an order alone: a time without a zone may be read in the session's.
        micros = f"unix_micros(CAST({sql} AS TIMESTAMP))"
        return Attribute(name, "number", f"CAST({micros} AS DOUBLE)", read)
    return None


def candidates(types: Mapping[str, str], limit: int) -> tuple[Attribute, ...]:
    """Return the columns that may tell classes apart, at most so many.

    Texts, booleans, whole numbers and dates come first, in the order of the input, then real
    numbers. Times are left out: rows to come have others.
    """
    names = [name for name, kind in types.items() if not _base(kind).startswith("timestamp")]
    names.sort(key=lambda name: _base(types[name]) in _REAL | {"decimal"})
    columns = (attribute(name, quoted(name), types[name], [name]) for name in names)
    return tuple(column for column in columns if column is not None)[:limit]


def _base(kind: str) -> str:
    """Return a type without its digits or length."""
    return kind.split("(", maxsplit=1)[0].strip().lower()

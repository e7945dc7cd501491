"""Classes of expressions that are equal in every result of a join, from its equalities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.query import KeyClass
from eddyline.sql.analysis import Expression
from eddyline.sql.functions import as_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sqlglot import Expr


_KINDS = {
    "integer": "a number",
    "decimal": "a number",
    "float": "a float",
    "string": "a string",
    "boolean": "a boolean",
    "date": "a date",
    "timestamp": "a timestamp",
    "timestamp_ntz": "a timestamp without a time zone",
    "binary": "binary",
}
"""Types of one kind compare exactly, so their equality is transitive: 1 = 1.00, but a string can
equal two numbers, and two bigints one float."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an equality: an expression over one input."""

    input: str
    text: str
    """Over the input's unqualified columns."""
    kind: str
    """Kind of its values, in words; empty if that cannot be told."""
    identity: str
    """Equal for sides that are the same but for blanks, comments and case of functions."""


def side_of(name: str, text: str, columns: Mapping[str, str]) -> Side | None:
    """Return a side of an equality as a key, or None where equal values need not be one key.

    Those are arrays, maps, structs and intervals, inside which NULL equals NULL or which have
    several forms of one value, and strings with a collation.
    """
    side = Expression(text, text, columns, ansi=True)
    tree, kind = side.tree, side.type_of(side.tree)
    is_compound = isinstance(tree, exp.Tuple) or (kind.is_known and kind.family not in _KINDS)
    types = [columns[column] for column in side.columns_of(tree)]
    if is_compound or _has_collation(tree, types):
        return None
    identity = tree.unnest().sql(comments=False, normalize_functions="upper")
    return Side(name, text, _KINDS.get(kind.family, ""), identity)


def _has_collation(tree: Expr, types: Iterable[str]) -> bool:
    said = any(isinstance(node, exp.Collate) or as_name(node) == "collate" for node in tree.walk())
    return said or any("collate" in each.lower() for each in types)


class Keys:
    """Expressions in classes, joined by the equalities that are added."""

    def __init__(self) -> None:
        self._classes: list[list[Side]] = []

    def add(self, left: Side, right: Side) -> tuple[Side, Side] | None:
        """Make two sides and all equal to them equal, or return two that are of other kinds."""
        touched = [each for each in self._classes if _has(each, left) or _has(each, right)]
        merged = [side for each in touched for side in each]
        merged += [side for side in (left, right) if not _has(merged, side)]
        known = [side for side in (left, right, *merged) if side.kind]
        for side in known:
            if side.kind != known[0].kind:
                return known[0], side
        others = [each for each in self._classes if each not in touched]
        first = self._classes.index(touched[0]) if touched else len(others)
        self._classes = [*others[:first], merged, *others[first:]]
        return None

    def classes(self) -> tuple[KeyClass, ...]:
        """Return the classes in the order of the first equality of each."""
        return tuple(KeyClass(_members(each)) for each in self._classes)


def _has(sides: list[Side], side: Side) -> bool:
    return any((each.input, each.identity) == (side.input, side.identity) for each in sides)


def _members(sides: list[Side]) -> dict[str, tuple[str, ...]]:
    members: dict[str, tuple[str, ...]] = {}
    for side in sides:
        members[side.input] = (*members.get(side.input, ()), side.text)
    return members

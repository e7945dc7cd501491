"""Classes of expressions that are equal in every result of a join, from its equalities."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.query.query import KeyClass
from eddyline.sql.analysis import Expression
from eddyline.sql.functions import says_collation

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

_DEFAULTS = {
    "integer": "0",
    "decimal": "0",
    "float": "0",
    "string": "''",
    "boolean": "false",
    "date": "'1970-01-01'",
    "timestamp": "'1970-01-01 00:00:00'",
    "timestamp_ntz": "'1970-01-01 00:00:00'",
    "binary": "''",
}
"""A value of each type that replaces NULL in a key; another key says whether it is NULL."""

_INEXACT = re.compile(r"[<:,](float|double|map|variant|interval|void)\b(?!:)|collate")
"""Types inside structs and arrays whose equal values may differ in bits, or have no equality."""

_OF_DAYS = re.compile("day|hour|minute|second")


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

    @property
    def is_plain(self) -> bool:
        """Whether its values are, as far as known, no structs, arrays or intervals."""
        return self.kind in ("", *_KINDS.values())


def side_of(name: str, text: str, columns: Mapping[str, str]) -> Side | str:
    """Return a side of an equality as a key, or in words why it cannot be one."""
    side = Expression(text, text, columns, ansi=True)
    tree, kind = side.tree, side.type_of(side.tree)
    types = [columns[column] for column in side.columns_of(tree)]
    if says_collation(tree) or any("collate" in each.lower() for each in types):
        return (
            f"{text} has a collation, so different texts may be equal; compare "
            f"lower(…), or … COLLATE UTF8_BINARY"
        )
    is_whole = kind.family in ("struct", "array") and not _INEXACT.search(kind.text)
    if is_whole or (kind.family == "interval" and _OF_DAYS.search(kind.text)):
        words = kind.text
    elif kind.family == "interval":
        return f"{text} is of the type {kind.text}, which Arrow does not have; compare its months"
    elif kind.is_known and kind.family not in _KINDS:
        return f"{text} is of the type {kind.text}; compare parts of it that are plain values"
    else:
        words = _KINDS.get(kind.family, "")
    return Side(name, text, words, identity_of(tree))


def null_safe_sides(
    sides: Iterable[tuple[str, str]], inputs: Mapping[str, Mapping[str, str]]
) -> list[tuple[Side, Side]] | str:
    """Return ``a <=> b`` as two equalities of keys, or in words why that is impossible.

    The first compares whether the sides are NULL. The second compares the sides with a default
    value instead of NULL.
    """
    pairs: list[list[Side]] = [[], []]
    for name, text in sides:
        side = Expression(text, text, inputs[name], ansi=True)
        kind = side.type_of(side.tree)
        plain = side_of(name, text, inputs[name])
        if isinstance(plain, str):
            return plain
        if kind.family not in _DEFAULTS:
            words = kind.text if kind.is_known else "of a type that the text does not tell"
            return f"NULL equals NULL in it, which takes plain types; {text} is {words}; CAST it"
        default = f"CAST({_DEFAULTS[kind.family]} AS {kind.text})"
        for pair, key, words in (
            (pairs[0], f"(({text}) IS NULL)", "a boolean"),
            (pairs[1], f"coalesce({text}, {default})", plain.kind),
        ):
            tree = Expression(key, key, inputs[name], ansi=True).tree
            pair.append(Side(name, key, words, identity_of(tree)))
    if pairs[1][0].kind != pairs[1][1].kind:
        one, other = pairs[1]
        return f"{one.input} has {one.kind} and {other.input} {other.kind}; CAST one of them"
    return [(one, other) for one, other in pairs]


def identity_of(tree: Expr) -> str:
    """Return a text that is the same for expressions that differ only in blanks and case."""
    return tree.unnest().sql(comments=False, normalize_functions="upper")


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

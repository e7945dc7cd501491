"""Columns that a SQL expression reads.

Names are resolved as Spark does: in any case by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from sqlglot import exp

from eddyline.registry import hint
from eddyline.sql.functions import UNITS, WITH_UNIT, WITHOUT_PARENTHESES
from eddyline.sql.parsing import offset_of, quoted, refuse
from eddyline.sql.types import SqlType, field_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from sqlglot import Expr

ColumnT = TypeVar("ColumnT")


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """One mention of a column, or of a field inside it."""

    column: str
    """The column's name in the schema."""
    text: str
    """The mention in SQL, quoted and without a qualifier."""
    type: SqlType


class Columns:
    """The columns of an input, and the names by which they may be qualified (None: by any)."""

    def __init__(self, types: Mapping[str, str], qualifiers: Collection[str] | None = ()) -> None:
        self._types = types
        self._takes_any = qualifiers is None
        self._qualifiers = {name.lower() for name in qualifiers or ()}
        self._by_name: dict[str, list[str]] = {}
        for name in types:
            self._by_name.setdefault(name.lower(), []).append(name)

    def references(self, tree: Expr, text: str, what: str) -> dict[int, ColumnRef]:
        """Return the reference of each column of the tree, by the node's ``id``, or refuse it."""
        references: dict[int, ColumnRef] = {}
        for node in column_nodes(tree):
            parts = [part.name for part in node.parts]
            if len(parts) == 1 and is_no_column(node, self._by_name):
                continue
            references[id(node)] = self._resolve(parts, text, offset_of(node), what)
        return references

    def _resolve(self, parts: list[str], text: str, offset: int, what: str) -> ColumnRef:
        prefix: list[str] = []
        if self._takes_any and self._is_qualified(parts):
            # The alias of a DataFrame, which its schema does not tell; Spark will check it.
            prefix, parts = parts[:1], parts[1:]
        matches, is_qualified = matching(parts, self._inside, self._named)
        parts = parts[is_qualified:]
        if len(matches) != 1:
            candidates = [(name, name) for name in self._types]
            refuse_column(parts[0], list(map(repr, matches)), candidates, text, offset, what)
        column = matches[0]
        kind = parse_type(self._types[column])
        for field in parts[1:]:
            kind = field_type(kind, field)
        return ColumnRef(column, ".".join(map(quoted, [*prefix, column, *parts[1:]])), kind)

    def _named(self, name: str) -> list[str]:
        names = self._by_name.get(name.lower(), [])
        return [name] if name in names else names

    def _inside(self, qualifier: str, name: str) -> list[str] | None:
        return self._named(name) if qualifier.lower() in self._qualifiers else None

    def _is_qualified(self, parts: list[str]) -> bool:
        return len(parts) > 1 and not self._named(parts[0]) and bool(self._named(parts[1]))


def matching(
    parts: Sequence[str],
    inside: Callable[[str, str], Sequence[ColumnT] | None],
    named: Callable[[str], Sequence[ColumnT]],
) -> tuple[Sequence[ColumnT], bool]:
    """Return the columns that a name may mean, and whether an input stands before it.

    A name is split at its points: ``k``, ``s.k``, ``s.k.field``, ``k.field``. Its first part is an
    input where there is one with that column, or no column is called so.

    Args:
        parts: of the name.
        inside: the columns of an input that have a name; None if there is no such input.
        named: the columns of any input that have a name.
    """
    if len(parts) > 1:
        columns = inside(parts[0], parts[1])
        if columns is not None and (columns or not named(parts[0])):
            return columns, True
    return named(parts[0]), False


def refuse_column(
    name: str,
    matches: Sequence[str],
    candidates: Sequence[tuple[str, str]],
    text: str,
    offset: int,
    what: str,
    relation: str = "",
) -> NoReturn:
    """Refuse a name that means several columns, or none of those known (of one input, if told).

    Columns found and known are told as people see them, the known ones behind their names.
    """
    if matches:
        message = f"{what}: column {name!r} may be {' or '.join(matches)}; write which"
        refuse(message, text, offset, name=name)
    shown = [label for _, label in candidates]
    listed = f"unknown column {name!r}{relation and f' of {relation}'}; known: {', '.join(shown)}"
    message = f"{what}: {listed}{hint(name, candidates)}"
    refuse(message, text, offset, name=name, known=shown)


def is_no_column(node: exp.Column, names: Collection[str]) -> bool:
    """Return whether a name is a unit of time, or a function without () and no column."""
    name = node.name.lower()
    call = node.parent
    if isinstance(call, exp.Anonymous) and call.name.lower() in WITH_UNIT:
        return len(call.expressions) == 3 and call.expressions[0] is node and name in UNITS
    return name in WITHOUT_PARENTHESES and name not in names


def column_nodes(tree: Expr) -> Iterator[exp.Column]:
    """Return the nodes that name columns, and units or functions that look like one; no stars."""
    for node in tree.find_all(exp.Column):
        if not isinstance(node.this, exp.Star):
            yield node

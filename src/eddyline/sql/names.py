"""Which columns a SQL expression reads, resolved as Spark does: regardless of case by default."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.sql.functions import UNITS, WITH_UNIT, WITHOUT_PARENTHESES
from eddyline.sql.parsing import offset_of, quoted, refuse
from eddyline.sql.types import SqlType, field_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlglot import Expr


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
        """Return what each column of the tree refers to, by the node's ``id``, or refuse it."""
        found: dict[int, ColumnRef] = {}
        for node in column_nodes(tree):
            parts = [part.name for part in node.parts]
            if len(parts) == 1 and is_no_column(node, self._by_name):
                continue
            found[id(node)] = self._resolve(parts, text, offset_of(node), what)
        return found

    def _resolve(self, parts: list[str], text: str, offset: int, what: str) -> ColumnRef:
        prefix: list[str] = []
        if len(parts) > 1 and parts[0].lower() in self._qualifiers:
            qualified = parts[1].lower() in self._by_name or parts[0].lower() not in self._by_name
            parts = parts[1:] if qualified else parts
        elif self._takes_any and self._is_qualified(parts):
            # The alias of a DataFrame, which its schema does not tell; Spark will check it.
            prefix, parts = parts[:1], parts[1:]
        matches = self._by_name.get(parts[0].lower(), [])
        exact = [name for name in matches if name == parts[0]]
        if not matches:
            self._refuse_unknown(parts[0], text, offset, what)
        if len(matches) > 1 and not exact:
            message = f"{what}: column {parts[0]!r} may be {' or '.join(map(repr, matches))}"
            refuse(message, text, offset, name=parts[0])
        column = (exact or matches)[0]
        kind = parse_type(self._types[column])
        for field in parts[1:]:
            kind = field_type(kind, field)
        return ColumnRef(column, ".".join(map(quoted, [*prefix, column, *parts[1:]])), kind)

    def _is_qualified(self, parts: list[str]) -> bool:
        names = [part.lower() for part in parts[:2]]
        return len(names) > 1 and names[0] not in self._by_name and names[1] in self._by_name

    def _refuse_unknown(self, name: str, text: str, offset: int, what: str) -> None:
        close = difflib.get_close_matches(name.lower(), self._by_name, n=1)
        hint = f"; did you mean {self._by_name[close[0]][0]!r}?" if close else ""
        known = list(self._types)
        message = f"{what}: unknown column {name!r}; known: {', '.join(known)}{hint}"
        refuse(message, text, offset, name=name, known=known)


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

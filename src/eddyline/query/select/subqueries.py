"""Queries in queries: the columns of their results, and UNION ALL."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import ParseError

from eddyline.errors import QueryError
from eddyline.query.aggregates import WINDOW
from eddyline.query.query import Query
from eddyline.sql.analysis import Expression
from eddyline.sql.parsing import SparkText, parse_column, refuse
from eddyline.sql.types import OTHER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.select.from_clause import FromItem
    from eddyline.query.select.statement import Statement

_WINDOW_TYPE = "struct<start:timestamp,end:timestamp>"

Output = tuple[int, str, str]
"""Of an output column the position of its item in SELECT, its name ("" if Spark makes one up) and
its Spark type ("?" if the text does not tell it)."""


class Part:
    """A statement that was read: one SELECT of UNION ALL, or a subquery."""

    def __init__(self, statement: Statement, query: Query, items: Sequence[FromItem]) -> None:
        self.statement = statement
        self.query = query
        self._items = items
        self._types = self._known()
        """Of the columns that output columns are of."""
        self.outputs = tuple(self._outputs())

    def _known(self) -> Mapping[str, str]:
        if self.query.is_join:
            return {}
        types = dict.fromkeys(self.query.calls, "boolean")
        types |= {each.call.column: OTHER.text for over in self.query.overs for each in over.calls}
        read, grouping = self._items[0].columns, self.query.grouping
        if grouping is None:
            return {**read, **types}
        types |= {each.column: OTHER.text for each in grouping.calls}
        types |= {name: _type_of(text, read) for name, text in grouping.groups}
        return {**types, WINDOW: _WINDOW_TYPE}

    def _outputs(self) -> list[Output]:
        found: list[Output] = []
        for at, text in enumerate(self.query.projections):
            tree = _column_of(text)
            if tree is None:
                found.append((at, "", OTHER.text))
            elif isinstance(tree, exp.Star) and not any(tree.args.values()):
                found += [(at, name, kind) for name, kind in self._items[0].columns.items()]
            else:
                found.append((at, tree.alias_or_name, self._type(tree.unalias())))
        return found

    def _type(self, tree: Expr) -> str:
        parts = [each.name for each in tree.parts] if isinstance(tree, exp.Column) else []
        for item in self._items if self.query.is_join and len(parts) == 2 else ():
            if item.name == parts[0]:
                return item.columns.get(parts[1], OTHER.text)
        return _type_of(tree.sql(dialect=SparkText), self._types)


def _column_of(text: str) -> Expr | None:
    """Return the tree of an output column; None if it has none without the query's tokens."""
    with suppress(ParseError):
        return parse_column(text)
    return None


def _type_of(text: str, columns: Mapping[str, str]) -> str:
    """Return the type of an expression as far as it is known."""
    with suppress(QueryError):
        found = Expression(text, text, columns, ansi=True)
        plain = columns.get(found.tree.name) if isinstance(found.tree, exp.Column) else None
        return plain or found.type_of(found.tree).text
    return OTHER.text


def columns_of(parts: Sequence[Part]) -> dict[str, str]:
    """Return the columns of a subquery by name, each with its type.

    Args:
        parts: the subquery, or those of its UNION ALL.

    Raises:
        QueryError: a column without a name, or two of one name.
    """
    first, found = parts[0], dict[str, str]()
    for number, (at, name, _) in enumerate(first.outputs):
        statement = first.statement
        start, text = _place(statement, at)
        if not name:
            message = f"output column {text!r} of a subquery needs a name: {text} AS …"
            refuse(message, statement.text, start)
        if name.lower() in map(str.lower, found):
            message = f"two output columns of a subquery are called {name!r}"
            refuse(f"{message}; give one another name with AS", statement.text, start, name=name)
        kinds = {each.outputs[number][2] for each in parts}
        found[name] = kinds.pop() if len(kinds) == 1 else OTHER.text
    return found


def _place(statement: Statement, at: int) -> tuple[int, str]:
    """Return the offset and the text of an item of SELECT, or of SELECT where stars are many."""
    columns = statement.output_columns
    column = columns[min(at, len(columns) - 1)]
    return column.start, column.text


def union_of(parts: Sequence[Part]) -> Query:
    """Return the query that has the rows of all parts; of one part it is that.

    Raises:
        QueryError: a part has more or fewer columns than the first.
    """
    first, *others = parts
    for each in others:
        if len(each.outputs) != len(first.outputs):
            message = (
                f"UNION ALL needs equally many output columns in each SELECT: "
                f"{len(each.outputs)} here, {len(first.outputs)} in the first"
            )
            refuse(message, each.statement.text, each.statement.own[0].start)
    if not others:
        return first.query
    inputs = tuple(each for part in parts for each in part.query.inputs)
    queries = tuple(part.query for part in parts)
    text = first.statement.text
    return Query(inputs, (), (), (), first.query.projections, None, text, parts=queries)

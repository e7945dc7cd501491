"""Reads the output columns of a join: each with its name, and with every column qualified."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.query.select.scope import Named, identifier
from eddyline.sql.parsing import refuse

if TYPE_CHECKING:
    from sqlglot import Expr

    from eddyline.query.select.names import JoinNames
    from eddyline.query.select.statement import Part, Statement


class OutputColumns:
    """The output columns of a join, whose inputs are all in the scope of its names."""

    def __init__(self, statement: Statement, names: JoinNames) -> None:
        self._statement = statement
        self._names = names

    def projections(self) -> tuple[str, ...]:
        """Return the columns as SQL, such as ``s.v AS v``.

        Raises:
            QueryError: a column that is unknown or ambiguous, or two of one name.
            NotSupportedError: a star that stands for other than the columns of inputs.
        """
        made: dict[str, tuple[str, str]] = {}
        for column in self._statement.output_columns:
            for name, text in self._column(column):
                if name.lower() in made:
                    self._refuse_twice(made[name.lower()], (name, text), column.start)
                made[name.lower()] = name, text
        return tuple(f"{text} AS {identifier(name)}" for name, text in made.values())

    def _column(self, column: Part) -> list[tuple[str, str]]:
        """Return name and text of what one item of SELECT stands for."""
        what = f"output column {column.text!r}"
        if is_star(column.tree):
            return [(each.column, each.text) for each in self._star(column, what)]
        self._names.check_no_star(column, what)
        if isinstance(column.tree, exp.Aliases):
            self._statement.refuse(f"{what}: several names are not supported yet", column.start)
        is_named = isinstance(column.tree, exp.Alias)
        part = self._statement.part(column.tree.this if is_named else column.tree)
        name = column.tree.alias if is_named else self._default_name(part, what)
        return [(name, self._names.qualified(part, what))]

    def _star(self, column: Part, what: str) -> list[Named]:
        scope, qualifier = self._names.scope, column.tree.args.get("table")
        if qualifier is None:
            return list(scope.output)
        name = scope.input_of(qualifier.name)
        if name is None:
            scope.resolve([qualifier.name, "*"], column.query, column.start, what)
            message = f"{what}: a star of a struct (name its fields) is not supported yet"
            self._statement.refuse(message, column.start)
        return [Named(name, each) for each in scope.inputs[name]]

    def _default_name(self, part: Part, what: str) -> str:
        """Return the name of a column or field; else the text, on one line."""
        inner = part.tree.unnest()
        if not isinstance(inner, exp.Column | exp.Dot):
            return " ".join(part.text.split())
        mentions = self._names.mentions(part, what)
        is_column = len(mentions) == 1 and mentions[0].end == self._statement.part(inner).end
        return mentions[0].named.column if is_column else str(inner.name)

    def _refuse_twice(self, one: tuple[str, str], other: tuple[str, str], start: int) -> NoReturn:
        message = (
            f"two output columns are called {other[0]!r}: {one[1]} and {other[1]}; "
            f"give one another name with AS"
        )
        refuse(message, self._statement.text, start, name=other[0])


def is_star(tree: Expr) -> bool:
    """Return whether an output column is ``*`` or ``s.*``."""
    if isinstance(tree, exp.Star):
        return not any(tree.args.values())
    return isinstance(tree, exp.Column) and len(tree.parts) == 2 and is_star(tree.this)

"""Output columns: their names, and the columns that a star stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.select.names import Named, identifier
from eddyline.sql.parsing import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import Expr

    from eddyline.query.select.names import JoinNames
    from eddyline.query.select.statement import Fragment, Statement


def is_star(tree: Expr) -> bool:
    """Return whether an output column is ``*`` or ``s.*``."""
    if isinstance(tree, exp.Star):
        return not any(tree.args.values())
    return isinstance(tree, exp.Column) and len(tree.parts) == 2 and is_star(tree.this)


def columns_of_star(column: Fragment, statement: Statement, names: JoinNames) -> list[Named]:
    """Return the columns that ``*`` or ``s.*`` stands for."""
    scope, qualifier = names.scope, column.tree.args.get("table")
    if qualifier is None:
        return list(scope.output)
    name = scope.input_of(qualifier.name)
    if name is None:
        what = f"output column {column.text!r}"
        scope.resolve([qualifier.name, "*"], column.query, column.start, what)
        message = f"{what}: a star of a struct (name its fields) is not supported yet"
        statement.refuse(message, column.start)
    return [Named(name, each) for each in scope.inputs[name]]


def named_part(column: Fragment, statement: Statement, names: JoinNames) -> tuple[str, Fragment]:
    """Return the name of an output column that is no star, and its expression."""
    alias, part = unaliased(column, statement)
    return alias or default_name(part, f"output column {column.text!r}", statement, names), part


def unaliased(column: Fragment, statement: Statement) -> tuple[str, Fragment]:
    """Return the alias of an output column ("" if it has none), and its expression."""
    if isinstance(column.tree, exp.Aliases):
        what = f"output column {column.text!r}"
        statement.refuse(f"{what}: several names are not supported yet", column.start)
    if isinstance(column.tree, exp.Alias):
        return column.tree.alias, statement.part(column.tree.this)
    return "", statement.part(column.tree)


def default_name(part: Fragment, what: str, statement: Statement, names: JoinNames) -> str:
    """Return the name of a column or field; else the text, on one line."""
    inner = part.tree.unnest()
    if not isinstance(inner, exp.Column | exp.Dot):
        return " ".join(part.text.split())
    mentions = names.mentions(part, what)
    is_column = len(mentions) == 1 and mentions[0].end == statement.part(inner).end
    return mentions[0].named.column if is_column else str(inner.name)


def with_names(found: Iterable[tuple[Fragment, str, str]]) -> tuple[str, ...]:
    """Return output columns as SQL, such as ``s.v AS v``; a bare column of its own name as it is.

    Args:
        found: of each, the item of SELECT that it is of, its name, and its SQL text.

    Raises:
        QueryError: two have the same name.
    """
    made: dict[str, tuple[str, str, str]] = {}
    for column, name, text in found:
        shown = text if is_star(column.tree) else column.text
        if name.lower() in made:
            one, other = made[name.lower()][2], shown
            message = (
                f"two output columns are called {name!r}: {one} and {other}; "
                f"give one another name with AS"
            )
            refuse(message, column.query, column.start, name=name)
        made[name.lower()] = name, text, shown
    named = ((text, identifier(name)) for name, text, _ in made.values())
    return tuple(text if text == name else f"{text} AS {name}" for text, name in named)

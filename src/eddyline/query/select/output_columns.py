"""Reads the output columns of a join: each with its name, and with every column qualified."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp

from eddyline.query.select.scope import Named, identifier
from eddyline.sql.conjuncts import unwrapped
from eddyline.sql.parsing import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr, Token

    from eddyline.query.select.names import ScopedNames
    from eddyline.query.select.statement import Statement


class OutputColumns:
    """The output columns of a join.

    Args:
        statement: the query.
        names: resolves the names in its parts; all inputs are in its scope.
    """

    def __init__(self, statement: Statement, names: ScopedNames) -> None:
        self._statement = statement
        self._names = names

    def projections(self) -> tuple[str, ...]:
        """Return the columns as SQL, such as ``s.v AS v``.

        Raises:
            QueryError: a column that is unknown or ambiguous, or two of one name.
            NotSupportedError: a star that stands for other than the columns of inputs.
        """
        made: dict[str, tuple[str, str]] = {}
        for tokens, tree in self._statement.output_columns:
            for name, text in self._column(tokens, tree):
                if name.lower() in made:
                    self._refuse_twice(made[name.lower()], (name, text), tokens)
                made[name.lower()] = name, text
        return tuple(f"{text} AS {identifier(name)}" for name, text in made.values())

    def _column(self, tokens: Sequence[Token], tree: Expr) -> list[tuple[str, str]]:
        """Return name and text of what one item of SELECT stands for."""
        what, start = self._statement.called(tokens), tokens[0].start
        if tokens[-1].token_type == TokenType.STAR and len(tokens) in (1, 3):
            return [(each.column, each.text) for each in self._star(tokens, what)]
        self._names.check_no_star(tree, start, what)
        if isinstance(tree, exp.Aliases):
            self._statement.refuse(f"{what}: several names are not supported yet", start)
        expression = tree.this if isinstance(tree, exp.Alias) else tree
        tokens = self._statement.tokens_of(expression)
        name = tree.alias or self._default_name(tokens, tree, what)
        return [(name, self._names.qualified(tokens, what))]

    def _star(self, tokens: Sequence[Token], what: str) -> list[Named]:
        scope, first = self._names.scope, tokens[0]
        if len(tokens) == 1:
            return list(scope.output)
        name = scope.input_of(first.text)
        if name is None:
            scope.resolve([first.text, "*"], self._statement.text, first.start, what)
            message = f"{what}: a star of a struct (name its fields) is not supported yet"
            self._statement.refuse(message, first.start)
        return [Named(name, column) for column in scope.inputs[name]]

    def _default_name(self, tokens: Sequence[Token], tree: Expr, what: str) -> str:
        """Return the name of a column or field; else the text, on one line."""
        if isinstance(tree.unnest(), exp.Column | exp.Dot):
            mentions, tokens = self._names.mentions(tokens, what), unwrapped(tokens)
            is_column = len(mentions) == 1 and mentions[0].end == tokens[-1].end + 1
            return mentions[0].named.column if is_column else tokens[-1].text
        return " ".join(self._statement.source_text(tokens).split())

    def _refuse_twice(
        self, one: tuple[str, str], other: tuple[str, str], tokens: Sequence[Token]
    ) -> NoReturn:
        message = (
            f"two output columns are called {other[0]!r}: {one[1]} and {other[1]}; "
            f"give one another name with AS"
        )
        refuse(message, self._statement.text, tokens[0].start, name=other[0])

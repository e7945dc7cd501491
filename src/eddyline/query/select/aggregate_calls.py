"""The calls of aggregate functions in a query, and the columns that stand for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError
from eddyline.query.aggregates import CALL, AggregateCall
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import NON_DETERMINISTIC, as_name
from eddyline.sql.parsing import offset_of, refuse, tokens_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlglot import Expr

    from eddyline.query.select.conditions import Calls
    from eddyline.query.select.names import JoinNames
    from eddyline.query.select.statement import Fragment, Statement

AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_TAKES_NULLS = ("first", "last", "first_value", "last_value", "any_value")
"""Functions that may ignore NULL, as their second argument says."""


def called(tree: Expr, known: Collection[str]) -> exp.Anonymous | None:
    """Return the call if a part is one of an aggregate function, with FILTER and such or without.

    Args:
        tree: the part.
        known: names of the functions, in lower case.
    """
    while isinstance(tree, AROUND):
        tree = tree.this
    is_known = isinstance(tree, exp.Anonymous) and str(tree.name).lower() in known
    return tree if is_known and isinstance(tree, exp.Anonymous) else None


def calls_in(tree: Expr, known: Collection[str]) -> list[exp.Anonymous]:
    """Return the calls in an expression but for those before OVER."""
    nodes = tree.walk(prune=lambda each: isinstance(each, exp.Window))
    calls = (called(node, known) for node in nodes if isinstance(node, exp.Anonymous))
    return [each for each in calls if each is not None]


def comparable(text: str) -> tuple[str, ...]:
    """Return the words of an expression: equal if two say the same but for blanks and case.

    >>> comparable("F( a,'X')") == comparable("f(a, 'X') -- twice"), comparable("'x'")
    (True, ("'x",))
    """
    return tuple(
        f"'{each.text}" if each.token_type == TokenType.STRING else each.text.lower()
        for each in tokens_of(text)
    )


class AggregateCalls:
    """The calls of aggregate functions that a query makes; equal ones are made once."""

    def __init__(
        self, statement: Statement, names: JoinNames, functions: Calls, known: Collection[str]
    ) -> None:
        self._statement = statement
        self._names = names
        self._functions = functions
        self.known = known
        """Names of the functions, in lower case."""
        self.made: list[AggregateCall] = []
        self._columns: dict[tuple[tuple[str, ...], ...], str] = {}

    def call_of(self, tree: Expr) -> AggregateCall | None:
        """Return the call, whose column is not known yet, if a part is one."""
        node = called(tree, self.known)
        return None if node is None else self._read(tree, node)

    def column_of(self, tree: Expr) -> str | None:
        """Return the column of a call if a part is one."""
        call = self.call_of(tree)
        if call is None:
            return None
        key = self.key(call)
        if key not in self._columns:
            self._columns[key] = f"{CALL}{len(self.made)}"
            self.made.append(replace(call, column=self._columns[key]))
        return self._columns[key]

    def key(self, call: AggregateCall) -> tuple[tuple[str, ...], ...]:
        """Return what equal calls have in common."""
        texts = (call.function, *call.arguments, "is_distinct" * call.is_distinct, call.where)
        return tuple(map(comparable, texts))

    def _read(self, tree: Expr, node: exp.Anonymous) -> AggregateCall:
        """Return a call, whose column is not known yet."""
        name, where = str(node.name).lower(), ""
        more: tuple[str, ...] = ()
        while tree is not node:
            if isinstance(tree, exp.Filter):
                where = self._text(tree.expression.this, f"FILTER of {name}()")
            elif isinstance(tree, exp.IgnoreNulls):
                more = self._ignoring(name, node)
            elif isinstance(tree, exp.WithinGroup):
                self._refuse(f"{name}() WITHIN GROUP is not supported yet", node)
            tree = tree.this
        is_distinct = isinstance(node.expressions and node.expressions[0], exp.Distinct)
        arguments = (*self._arguments(name, node), *more)
        return AggregateCall(name, arguments, "", is_distinct=is_distinct, where=where)

    def _arguments(self, name: str, node: exp.Anonymous) -> tuple[str, ...]:
        given: Sequence[Expr] = node.expressions
        if given and isinstance(given[0], exp.Distinct):
            given = [*given[0].expressions, *given[1:]]
        if name == "count" and [type(each) for each in given] == [exp.Star]:
            return ()
        if not given:
            refuse(f"{name}() needs an argument", self._statement.text, offset_of(node))
        texts: list[str] = []
        for each in given:
            inner = each.this if isinstance(each, exp.IgnoreNulls | exp.RespectNulls) else each
            if isinstance(inner, exp.Star | exp.Order | exp.Kwarg | exp.PropertyEQ | exp.Alias):
                self._refuse(
                    f"{name}({self._statement.part(inner).text}) is not supported yet", node
                )
            texts.append(self._text(inner, f"argument of {name}()"))
            texts += self._ignoring(name, node) if isinstance(each, exp.IgnoreNulls) else ()
        if name in _TAKES_NULLS and len(given) == 2:
            if not isinstance(given[1], exp.Boolean):
                message = f"the second argument of {name}() is TRUE (NULL is left out) or FALSE"
                refuse(message, self._statement.text, offset_of(node))
            texts[1:] = self._ignoring(name, node) if given[1].this else ()
        return tuple(texts)

    def _ignoring(self, name: str, node: exp.Anonymous) -> tuple[str]:
        if name not in _TAKES_NULLS:
            self._refuse(f"IGNORE NULLS of {name}() is not supported yet", node)
        return ("true",)

    def _text(self, tree: Expr, what: str) -> str:
        """Return what a call reads of each row, over the columns of the input."""
        part = self._statement.part(tree)
        self.check_is_of_rows(part, what)
        return self._names.canonical(part, what)

    def check_is_of_rows(self, part: Fragment, what: str) -> None:
        """Refuse what is not computed of each row, always in the same way.

        Raises:
            NotSupportedError: it is not.
        """
        nested = calls_in(part.tree, self.known)
        if nested:
            message = f"{what}: an aggregate such as {nested[0].name}() cannot stand here"
            refuse(message, part.query, offset_of(nested[0]))
        check_is_row_wise(part.tree, part.query, what)
        self._functions.check_none(part.tree, f"as {what}")
        self._names.check_no_star(part, what)
        self.check_deterministic(part, what)

    def check_deterministic(self, part: Fragment, what: str) -> None:
        """Refuse functions that answer equal rows differently.

        Raises:
            NotSupportedError: there is one.
        """
        for node in part.tree.walk():
            if (name := as_name(node)) in NON_DETERMINISTIC:
                message = f"{what}: {name}() is not deterministic, which is not supported yet"
                refuse(
                    f"{message} beside aggregates", part.query, offset_of(node), NotSupportedError
                )

    def _refuse(self, message: str, node: Expr) -> None:
        self._statement.refuse(message, offset_of(node))

"""Sorts the conjuncts of a query by the inputs that they read.

All joins are inner, so it is all one whether a condition stands in ON or in WHERE: what reads one
input filters it, an equality of two makes a key, and everything else is asked of results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.predicates import SqlPredicate
from eddyline.query.select.key_classes import Keys, side_of
from eddyline.query.select.scope import identifier
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.conjuncts import conjunct_tokens, unwrapped
from eddyline.sql.functions import NON_DETERMINISTIC, as_name
from eddyline.sql.parsing import parse_condition, refuse, slice_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr, Token

    from eddyline.query.predicates import Predicate
    from eddyline.query.select.calls import Call, Calls
    from eddyline.query.select.key_classes import Side
    from eddyline.query.select.names import Names, ScopedNames
    from eddyline.query.select.scope import Named
    from eddyline.query.select.statement import Statement


class Conditions:
    """The conditions of a query over one input.

    Args:
        statement: the query.
        calls: the functions that it may call.
        names: resolves the names in its parts.
        inputs: the names of its inputs.
    """

    def __init__(
        self, statement: Statement, calls: Calls, names: Names, inputs: Sequence[str]
    ) -> None:
        self.statement = statement
        self._text = statement.text
        self._calls = calls
        self._names = names
        self.predicates: dict[str, list[Predicate]] = {name: [] for name in inputs}
        """By input, the conjuncts that read it alone; the first input has what reads none."""
        self._part = "WHERE"

    def add(self, part: str, tree: Expr) -> None:
        """Sort the conjuncts of a condition.

        Args:
            part: ``ON`` or ``WHERE``.
            tree: the condition.

        Raises:
            QueryError: a column that is unknown or ambiguous, or a call that does not fit.
            NotSupportedError: a condition that eddyline does not run yet, with its position.
        """
        self._part = part
        check_is_row_wise(tree, self._text, part, self._calls.functions)
        for tokens in conjunct_tokens(self._text, self.statement.tokens_of(tree)):
            call = self._calls.call(tokens)
            if call is not None:
                self._add_call(call)
                continue
            self._calls.check_none(tokens)
            self._add_conjunct(tokens, self._names.inputs(tokens, part))

    def _add_conjunct(self, tokens: Sequence[Token], inputs: Sequence[str]) -> None:
        """Add a conjunct that reads one input, or none."""
        written = SqlPredicate(self._names.unqualified(tokens, self._part))
        self._predicates_of(inputs).append(written)

    def _predicates_of(self, inputs: Sequence[str]) -> list[Predicate]:
        return self.predicates[inputs[0] if inputs else next(iter(self.predicates))]

    def _add_call(self, call: Call) -> None:
        """Add a conjunct that calls a function of the user."""
        if call.arguments:
            names = [self._names.inputs(each, self._part) for each in call.arguments]
            inputs = list(dict.fromkeys(name for each in names for name in each))
        else:
            reads, inputs = self._names.own_reads(call)
        if len(inputs) > 1:
            message = (
                f"the function {call.function.name} reads {' and '.join(inputs)}; "
                f"over several inputs it is not supported yet"
            )
            facts = {"function": call.function.name}
            refuse(message, self._text, call.name.start, NotSupportedError, **facts)
        if call.arguments:
            reads = [self._names.unqualified(each, self._part) for each in call.arguments]
        self._predicates_of(inputs).append(call.predicate(reads))


class JoinConditions(Conditions):
    """The conditions of a query over several inputs; see ``Conditions``."""

    def __init__(
        self, statement: Statement, calls: Calls, names: ScopedNames, inputs: Sequence[str]
    ) -> None:
        super().__init__(statement, calls, names, inputs)
        self._scoped = names
        self.keys = Keys()
        self.equalities: list[str] = []
        """As written, with every column qualified."""
        self.residual: list[str] = []
        """The other conjuncts over several inputs, with every column qualified."""

    def add_using(self, left: Named, right: Named, start: int) -> None:
        """Add the equality of two columns that USING names.

        Args:
            left: of the inputs before.
            right: of the input that is joined.
            start: the offset of its name, for errors.

        Raises:
            NotSupportedError: they are of different types.
        """
        sides = [(each.input, identifier(each.column)) for each in (left, right)]
        self._add_equality(sides, f"{left.text} = {right.text}", start)

    def _add_conjunct(self, tokens: Sequence[Token], inputs: Sequence[str]) -> None:
        if len(inputs) != 1:
            self._check_deterministic(tokens)
        if len(inputs) < 2:
            super()._add_conjunct(tokens, inputs)
            return
        qualified = self._scoped.qualified(tokens, self._part)
        sides = self._sides(tokens)
        read = [self._scoped.inputs(side, self._part) for side in sides]
        if [len(each) for each in read] != [1, 1] or read[0] == read[1]:
            self.residual.append(qualified)
            return
        texts = [self._scoped.canonical(side, self._part) for side in sides]
        named = [(name, text) for (name,), text in zip(read, texts, strict=True)]
        self._add_equality(named, qualified, tokens[0].start)

    def _check_deterministic(self, tokens: Sequence[Token]) -> None:
        for node in self._parsed(tokens).walk():
            if as_name(node) in NON_DETERMINISTIC:
                message = (
                    f"{self._part}: {as_name(node)}() is not deterministic, "
                    f"which is not supported yet in a condition over several inputs"
                )
                self.statement.refuse(message, tokens[0].start)

    # -- equalities -------------------------------------------------------------------------------

    def _sides(self, tokens: Sequence[Token]) -> list[Sequence[Token]]:
        """Return the two sides of an equality; nothing if it is none."""
        tokens = unwrapped(tokens)
        tree = self._parsed(tokens)
        if not isinstance(tree, exp.EQ):
            return []
        for position in range(1, len(tokens) - 1):
            left, right = tokens[:position], tokens[position + 1 :]
            if self._reads_as(left, tree.left) and self._reads_as(right, tree.right):
                return [self._without_parentheses(left), self._without_parentheses(right)]
        return []

    def _without_parentheses(self, tokens: Sequence[Token]) -> Sequence[Token]:
        """Return an expression without parentheses around it, unless they make it a row."""
        is_row = isinstance(self._parsed(tokens).unnest(), exp.Tuple)
        return tokens if is_row else unwrapped(tokens)

    def _reads_as(self, tokens: Sequence[Token], tree: Expr) -> bool:
        try:
            return bool(self._parsed(tokens) == tree)
        except QueryError:
            return False

    def _parsed(self, tokens: Sequence[Token]) -> Expr:
        return parse_condition(slice_of(self._text, tokens))

    def _add_equality(self, sides: Sequence[tuple[str, str]], written: str, start: int) -> None:
        """Add an equality of two expressions, each of one input, as written at an offset."""
        inputs = self._scoped.scope.inputs
        a, b = (side_of(name, text, inputs[name]) for name, text in sides)
        if a is None or b is None:
            self.residual.append(written)
            return
        clash = self.keys.add(a, b)
        if clash is not None:
            self._refuse_kinds(clash, start)
        self.equalities.append(written)

    def _refuse_kinds(self, clash: tuple[Side, Side], start: int) -> NoReturn:
        a, b = (f"{side.text} of {side.input} is {side.kind}" for side in clash)
        message = (
            f"an equality of different types is not supported yet as the key of a join: "
            f"{a}, {b}; CAST one to the type of the other"
        )
        self.statement.refuse(message, start)

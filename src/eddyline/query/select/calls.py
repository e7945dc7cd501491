"""Calls of the user's functions: conjuncts of their own, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError
from eddyline.sql.conjuncts import unwrapped
from eddyline.sql.parsing import closing, offset_of, parse_condition, refuse, slice_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.predicates import FunctionPredicate

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


@dataclass(frozen=True, slots=True)
class Call:
    """A conjunct that is ``[NOT] f(…)`` of a function of the user."""

    function: FunctionPredicate
    negated: bool
    name: Token
    arguments: tuple[Sequence[Token], ...]
    """Empty for ``f()`` and ``f(*)``, which read the function's own columns."""

    def predicate(self, reads: Sequence[str]) -> FunctionPredicate:
        """Return the function as a predicate on what it reads here."""
        made = replace(self.function, reads=tuple(reads))
        return ~made if self.negated else made


class Calls:
    """The functions that a query may call.

    Args:
        text: the query.
        functions: the predicates, by name.
    """

    def __init__(self, text: str, functions: Mapping[str, FunctionPredicate]) -> None:
        self._text = text
        self.functions = {name.lower(): made for name, made in functions.items()}
        """By name in lower case."""

    def call(self, tokens: Sequence[Token]) -> Call | None:
        """Return the call if the tokens of a conjunct are ``[NOT] f(…)`` of a known function.

        Raises:
            QueryError: a call that does not fit the function, or an argument that cannot be read.
            NotSupportedError: a function inside a larger expression.
        """
        negated = False
        while (tokens := unwrapped(tokens)) and tokens[0].token_type == TokenType.NOT:
            negated, tokens = not negated, tokens[1:]
        if len(tokens) < 3 or closing(tokens, 1) != len(tokens) - 1:
            return None
        found = self.functions.get(tokens[0].text.lower())
        if found is None or tokens[1].token_type != TokenType.L_PAREN:
            return None
        call = Call(found, negated, tokens[0], self._arguments(tokens[2:-1]))
        self._check_arguments(call)
        return call

    def _arguments(self, tokens: Sequence[Token]) -> tuple[Sequence[Token], ...]:
        arguments = tuple(each for each in _split_at_commas(tokens) if each)
        is_star = [slice_of(self._text, each) for each in arguments] == ["*"]
        return () if is_star else arguments

    def _check_arguments(self, call: Call) -> None:
        found, given = call.function, len(call.arguments)
        if given and given != len(found.reads):
            takes = f"{found.name}({', '.join(found.reads)})"
            message = f"{takes} takes {len(found.reads)} argument(s), got {given}"
            refuse(message, self._text, call.name.start, function=found.name)
        for each in call.arguments:
            self.check_none(each)
            argument = slice_of(self._text, each)
            parse_condition(argument, f"argument {argument!r} of {found.name}")

    def check_none(self, tokens: Sequence[Token]) -> None:
        """Refuse a function in a part of the text that is no call.

        Raises:
            NotSupportedError: it is inside a larger expression.
        """
        for token, after in pairwise(tokens):
            if token.text.lower() in self.functions and after.token_type == TokenType.L_PAREN:
                self._refuse(token.text, token.start)

    def check_none_in(self, tree: Expr) -> None:
        """Refuse a function in an output column.

        Raises:
            NotSupportedError: there is one.
        """
        for node in tree.find_all(exp.Anonymous):
            if str(node.name).lower() in self.functions:
                self._refuse(str(node.name), offset_of(node))

    def _refuse(self, name: str, offset: int) -> NoReturn:
        message = (
            f"the function {name} inside a larger expression is not supported yet; "
            f"it may stand between the ANDs of WHERE, alone or after NOT"
        )
        refuse(message, self._text, offset, NotSupportedError, function=name)


def _split_at_commas(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Return what stands between the commas outside parentheses and brackets."""
    cuts, depth = [-1], 0
    for position, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if token.token_type == TokenType.COMMA and depth == 0:
            cuts.append(position)
    return [tokens[start + 1 : end] for start, end in pairwise([*cuts, len(tokens)])]

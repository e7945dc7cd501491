"""Splits a condition at its top-level ANDs, without rewriting it.

The parts are slices of the text, so that what Spark evaluates is what the user wrote: comments,
strings and CASE … END are left alone. Parentheses around a whole part fall away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from eddyline.errors import QueryError
from eddyline.sql.parsing import closing, parse_condition, slice_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr, Token

_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}


def split_conjuncts(text: str) -> tuple[str, ...]:
    """Return the conjuncts of a condition as slices of its text.

    Joined by AND, each in parentheses and on a line of its own, they mean what the text means.

    Raises:
        QueryError: the text cannot be read.

    Example:
        >>> split_conjuncts("a BETWEEN 1 AND 2 AND (b OR c) AND (d AND NOT e)")
        ('a BETWEEN 1 AND 2', 'b OR c', 'd', 'NOT e')
    """
    return tuple(slice_of(text, part) for part in conjunct_tokens(text, tokens_of(text)))


def conjunct_tokens(text: str, tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the tokens of each conjunct of a condition that stands somewhere in the text.

    Raises:
        QueryError: the condition cannot be read.
    """
    parts = _split(tokens)
    slices = [slice_of(text, part) for part in parts]
    return parts if _means_the_same(slice_of(text, tokens), slices) else [tokens]


def _split(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    tokens = unwrapped(tokens)
    cuts = _top_level_ands(tokens)
    if not cuts:
        return [tokens]
    bounds = zip([-1, *cuts], [*cuts, len(tokens)], strict=True)
    parts = [tokens[start + 1 : end] for start, end in bounds]
    if not all(parts):
        return [tokens]
    return [conjunct for part in parts for conjunct in _split(part)]


def unwrapped(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens without parentheses around all of them."""
    while _is_wrapped(tokens):
        tokens = tokens[1:-1]
    return tokens


def _is_wrapped(tokens: Sequence[Token]) -> bool:
    if len(tokens) < 3 or tokens[0].token_type != TokenType.L_PAREN:
        return False
    return closing(tokens, 0) == len(tokens) - 1


def _top_level_ands(tokens: Sequence[Token]) -> list[int]:
    """Return the positions of the ANDs that separate conjuncts; none if there is an OR beside."""
    cuts: list[int] = []
    depth = open_betweens = 0
    for position, token in enumerate(tokens):
        kind = token.token_type
        depth += kind in _OPENS
        if depth > 0:
            depth -= kind in _CLOSES
        elif kind == TokenType.OR:
            return []
        elif kind == TokenType.BETWEEN:
            open_betweens += 1
        elif kind == TokenType.AND and open_betweens:
            open_betweens -= 1
        elif kind == TokenType.AND:
            cuts.append(position)
    return cuts


def _means_the_same(text: str, slices: Sequence[str]) -> bool:
    """Compare the trees: a column called ``end`` or ``case`` could mislead the tokens."""
    whole = [_bare(part) for part in _flat(parse_condition(text))]
    try:
        return whole == [_bare(parse_condition(part)) for part in slices]
    except QueryError:
        return False


def _flat(tree: Expr) -> list[Expr]:
    tree = tree.unnest()
    if not isinstance(tree, exp.And):
        return [tree]
    return [leaf for part in tree.flatten() for leaf in _flat(part)]


def _bare(tree: Expr) -> str:
    return tree.unnest().sql(comments=False)

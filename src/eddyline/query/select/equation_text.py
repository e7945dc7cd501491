"""Equations of declared models: from the tokens behind ``=`` to SQL that Spark reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

TIME = "T"
"""The variable of equations."""
ENDS = frozenset(
    {TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ON, TokenType.USING}
    | {TokenType.JOIN, TokenType.LEFT, TokenType.RIGHT, TokenType.INNER, TokenType.CROSS}
    | {TokenType.FULL, TokenType.NATURAL, TokenType.SEMI, TokenType.ANTI, TokenType.UNION}
    | {TokenType.EXCEPT, TokenType.INTERSECT, TokenType.ORDER_BY, TokenType.SORT_BY}
    | {TokenType.LIMIT, TokenType.OFFSET, TokenType.ALIAS, TokenType.SEMICOLON, TokenType.WINDOW}
    | {TokenType.LATERAL, TokenType.PIVOT, TokenType.UNPIVOT, TokenType.TABLE_SAMPLE}
)
"""What cannot stand in an equation: there it ends, unless it is the name of a function."""


@dataclass(frozen=True, slots=True)
class EquationText:
    """The right side of an equation as SQL, and where in the query its pieces stand."""

    text: str
    places: tuple[tuple[int, int], ...]
    """Offsets of pieces in the text, ascending, and those in the query."""

    def offset(self, position: int) -> int:
        """Return the offset in the query of one in the text."""
        at, start = max((each for each in self.places if each[0] <= position), default=(0, 0))
        return start + position - at


def equation_of(tokens: Sequence[Token], qualifiers: Sequence[str], query: str) -> EquationText:
    """Return the right side of an equation, as SQL that Spark reads.

    ``A.v t`` is a product, and ``t^2`` a power. Between tokens, which are those of the query, is
    one blank: equal equations are equal texts.

    Args:
        tokens: of the right side.
        qualifiers: names of the stream in lower case, which go.
        query: the text that the tokens are of.
    """
    made = _Pieces()
    at = 0
    while at < len(tokens):
        token, behind = tokens[at], tokens[at + 1 : at + 3]
        kinds = [each.token_type for each in behind]
        if token.text.lower() in qualifiers and kinds[:1] == [TokenType.DOT]:
            at += 2
            continue
        is_time = token.text.upper() == TIME and token.token_type == TokenType.VAR
        is_bare = is_time and not (at and tokens[at - 1].token_type == TokenType.DOT)
        if is_bare and at and ends_operand(tokens[at - 1]):
            made.add("*", token.start)
        if is_bare and kinds == [TokenType.CARET, TokenType.NUMBER]:
            made.add(f"pow(t, {behind[1].text})", token.start)
            at += 3
            continue
        if not at or tokens[at - 1].start != token.start:  # of 2L there are three tokens
            made.add(query[token.start : token.end + 1], token.start)
        at += 1
    return EquationText(made.text, tuple(made.places))


class _Pieces:
    def __init__(self) -> None:
        self.text = ""
        self.places: list[tuple[int, int]] = []

    def add(self, text: str, start: int) -> None:
        is_tight = text in {".", ",", ")", "(", "["} or self.text.endswith((".", "(", "["))
        self.text += "" if not self.text or is_tight else " "
        self.places.append((len(self.text), start))
        self.text += text


def ends_operand(token: Token) -> bool:
    """Return whether what a token ends may be multiplied by what follows."""
    kind = token.token_type
    return kind in {TokenType.NUMBER, TokenType.R_PAREN, TokenType.IDENTIFIER, TokenType.VAR} or (
        kind not in ENDS and token.text.isidentifier()
    )

"""Cuts out of a join what sqlglot has no tree for: windows, and ISTREAM(…) around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType

from eddyline.query.select.clauses import from_marks, is_clause
from eddyline.sql.parsing import closing, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

    from eddyline.query.query import Emits

_EMITS: dict[str, Emits] = {"ISTREAM": "istream", "DSTREAM": "dstream", "RSTREAM": "rstream"}


@dataclass(frozen=True, slots=True)
class CutWindow:
    """A window that was cut out."""

    position: int
    """Of the token that it stood before, among those that were kept."""
    opening: Token
    closing: Token
    tokens: Sequence[Token]
    """Those between the brackets."""


def says_what_is_emitted(tokens: Sequence[Token]) -> bool:
    """Return whether a query starts with ISTREAM( or SELECT ISTREAM(."""
    is_select = bool(tokens) and tokens[0].token_type == TokenType.SELECT
    return _is_stream_word(tokens, int(is_select))


def without_stream_word(text: str, tokens: Sequence[Token]) -> tuple[Emits | None, list[Token]]:
    """Return what a query emits, if it says so, and its tokens without ISTREAM( and its end.

    Raises:
        QueryError: it says so twice, or the parentheses are not around what is emitted.
    """
    said, inner = None, list(tokens)
    if inner and _is_stream_word(inner, 0):
        said = _EMITS[inner[0].text.upper()]
        end = closing(inner, 1)
        if end == len(inner):
            refuse(f"{inner[0].text} has a parenthesis that is left open", text, inner[1].start)
        if end < len(inner) - 1:
            message = f"nothing may follow {inner[0].text}(…), got {inner[end + 1].text!r}"
            refuse(message, text, inner[end + 1].start)
        if end == 2:
            refuse(f"{inner[0].text}(…) needs a SELECT", text, inner[end].start)
        inner = inner[2:-1]
    is_select = bool(inner) and inner[0].token_type == TokenType.SELECT
    if is_select and _is_stream_word(inner, 1):
        word, end = inner[1], closing(inner, 2)
        if said is not None:
            refuse("what the query emits is said twice", text, word.start)
        if end + 1 >= len(inner) or not is_clause(inner, end + 1, TokenType.FROM):
            message = f"{word.text}(…) stands around all output columns and before FROM"
            refuse(message, text, word.start)
        said = _EMITS[word.text.upper()]
        inner = [inner[0], *inner[3:end], *inner[end + 1 :]]
    elif is_select and len(inner) > 2 and _is_bare_stream_word(inner):
        refuse(f"write SELECT {inner[1].text}(…) FROM …", text, inner[1].start)
    return said, inner


def _is_bare_stream_word(tokens: Sequence[Token]) -> bool:
    """Return whether SELECT ISTREAM starts a list of columns without parentheses."""
    is_word = tokens[1].token_type == TokenType.VAR and tokens[1].text.upper() in _EMITS
    return is_word and tokens[2].token_type in (
        TokenType.VAR,
        TokenType.IDENTIFIER,
        TokenType.STAR,
        TokenType.DISTINCT,
    )


def _is_stream_word(tokens: Sequence[Token], position: int) -> bool:
    """Return whether ISTREAM( stands there."""
    is_call = len(tokens) > position + 1 and tokens[position + 1].token_type == TokenType.L_PAREN
    is_word = is_call and tokens[position].token_type == TokenType.VAR
    return is_word and tokens[position].text.upper() in _EMITS


def without_windows(text: str, tokens: Sequence[Token]) -> tuple[list[Token], list[CutWindow]]:
    """Return the tokens without the windows of FROM, and the windows.

    Raises:
        QueryError: a bracket is left open.
    """
    kept: list[Token] = []
    windows: list[CutWindow] = []
    openings = {
        each for each in from_marks(tokens) if tokens[each].token_type == TokenType.L_BRACKET
    }
    end = -1
    for position, token in enumerate(tokens):
        if position in openings:
            end = _closing_bracket(text, tokens, position)
            inside = tokens[position + 1 : end]
            windows.append(CutWindow(len(kept), token, tokens[end], inside))
        elif position > end:
            kept.append(token)
    return kept, windows


def _closing_bracket(text: str, tokens: Sequence[Token], opening: int) -> int:
    closes = (
        position
        for position in range(opening, len(tokens))
        if tokens[position].token_type == TokenType.R_BRACKET
    )
    found = next(closes, None)
    if found is None:
        refuse("a window has a bracket that is left open", text, tokens[opening].start)
    return found

"""CQL's windows behind streams, and its output keywords [CQL].

The grammar of queries, which these are part of, is ``select.grammar``.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn, Self

from sqlglot import TokenType, exp

from eddyline.query.query import (
    LONGEST,
    MAX_ROWS,
    MAX_SPAN,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
    UnboundedWindow,
    too_long,
)
from eddyline.query.spans import UNITS, micros_in
from eddyline.registry import unknown
from eddyline.sql.parsing import SparkText, refuse, slice_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr, Token

    from eddyline.query.query import Emits, Window

EMITS: dict[str, Emits] = {"ISTREAM": "istream", "DSTREAM": "dstream", "RSTREAM": "rstream"}

_FORMS = (
    "RANGE 10 SECONDS, RANGE 10 MINUTES SLIDE 1 MINUTE, ROWS 1000, PARTITION BY k ROWS 10, "
    "SESSION 5 MINUTES, NOW or UNBOUNDED"
)
_NUMBER = re.compile(r"\d+\.?\d*(e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)
MAX_DIGITS = 400
"""Characters of a number; Python reads whole numbers of up to 4,300 digits."""

_SIGNS = (TokenType.DASH, TokenType.PLUS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_window(text: str, where: str = "the window") -> Window:
    """Read a window, with its brackets or without.

    It is ``RANGE 10 SECONDS``, ``ROWS 1000``, ``PARTITION BY k ROWS 10``, ``NOW`` or ``UNBOUNDED``,
    in any case, in units from microseconds to weeks; or, of rows that are aggregated, ``RANGE 10
    MINUTES SLIDE 1 MINUTE``, ``UNBOUNDED SLIDE 1 HOUR`` or ``SESSION 5 MINUTES``. Behind SLIDE,
    ORIGIN says when a window ends, from 1970 on in UTC or as an instant: ``ORIGIN 15 SECONDS``,
    ``ORIGIN TIMESTAMP '2026-01-01T00:00:15Z'``. Where SLIDE is longer than RANGE, the rows of the
    gaps are in no window.

    Raises:
        QueryError: it is no window; the message shows where.

    Example:
        >>> read_window("[RANGE 1.5 SECONDS]")
        RangeWindow(length=1500000)
        >>> read_window("partition by k rows 10")
        RowsWindow(rows=10, partition_by=('k',))
        >>> read_window("RANGE 1 MINUTE SLIDE 1 SECOND")
        SlideWindow(length=60000000, slide=1000000, origin=0)
    """
    tokens = tokens_of(text, where)
    if tokens and tokens[0].token_type == TokenType.L_BRACKET:
        if tokens[-1].token_type != TokenType.R_BRACKET:
            refuse(f"{where} has a bracket that is left open", text, tokens[0].start)
        return window_of(text, tokens[1:-1], tokens[-1].start, where)
    return window_of(text, tokens, len(text), where)


def window_of(text: str, tokens: Sequence[Token], end: int, where: str) -> Window:
    """Read a window that stands somewhere in a text; errors are those of ``read_window``.

    The tokens are those of the window without its brackets; it ends at the offset ``end``.
    """
    return WindowParser.before(text, tokens, end, where).window()


class WindowParser(SparkText.Parser):
    """Reads windows from tokens that follow each other."""

    sql: str
    _end: int
    """The offset behind the last token."""
    _where: str
    """The subject of errors."""

    @classmethod
    def before(cls, text: str, tokens: Sequence[Token], end: int, where: str) -> Self:
        """Return the parser before the first of the tokens; see ``window_of``."""
        parser = cls(dialect=SparkText())
        parser.reset()
        parser.sql, parser._end, parser._where = text, end, where
        parser._chunks = [list(tokens)]
        parser._advance_chunk()
        return parser

    def window(self) -> Window:
        """Read a window, behind which nothing may stand."""
        window = self._any_window()
        if self._curr:
            message = f"nothing may follow {self._text_from(0)}, got {self._curr.text!r}"
            self._refuse(message, self._curr.start)
        return window

    def _any_window(self) -> Window:
        if self._match_text_seq("NOW"):
            return RangeWindow(0)
        if self._match(TokenType.PARTITION_BY):
            return self._partitioned()
        if self._match_text_seq("SESSION"):
            return self._session()
        is_range = self._match_text_seq("RANGE")
        is_rows = not is_range and self._match_text_seq("ROWS")
        if self._match_text_seq("UNBOUNDED"):
            return UnboundedWindow() if is_rows else self._slid(LONGEST) or UnboundedWindow()
        if not is_range and not is_rows:
            self._refuse_next(f"{self._where} is {_FORMS}")
        if is_rows:
            return RowsWindow(self._n_rows())
        start, length = self._offset, self._length("RANGE", "10 SECONDS")
        slid = self._slid(length)
        if slid is not None and length == 0:
            message = f"RANGE {self._text_between(start)} would hold nothing; write a longer one"
            self._refuse(message, start)
        return slid or RangeWindow(length)

    def _slid(self, length: int) -> SlideWindow | None:
        """Return the window of a length if SLIDE comes next."""
        if not self._match_text_seq("SLIDE"):
            return None
        slide = self._positive("SLIDE", "1 MINUTE")
        origin = self._origin() if self._match_text_seq("ORIGIN") else 0
        return SlideWindow(length, slide, origin % slide)

    def _origin(self) -> int:
        if not self._match_text_seq("TIMESTAMP"):
            return self._length("ORIGIN", "15 SECONDS")
        micros = _micros_of(self._curr)
        if micros is None:
            example = "'2026-01-01T00:00:15Z'"
            message = f"ORIGIN TIMESTAMP needs an instant and its zone: {example}{self._got()}"
            self._refuse(message, self._offset)
        self._advance()
        return micros

    def _session(self) -> SessionWindow:
        self._match_text_seq("GAP")
        return SessionWindow(self._positive("SESSION", "5 MINUTES"))

    def _positive(self, word: str, example: str) -> int:
        """Read a length that is not 0."""
        start = self._offset
        length = self._length(word, example)
        if length == 0:
            message = f"{word} {self._text_between(start)} is no time; write 1 microsecond or more"
            self._refuse(message, start)
        return length

    def _partitioned(self) -> RowsWindow:
        columns: list[str] = []
        while not columns or self._match(TokenType.COMMA):
            columns.append(self._column(columns))
        if not self._match_text_seq("ROWS"):
            self._refuse_next(
                f"{self._where} needs ROWS and a number behind the columns of PARTITION BY"
            )
        return RowsWindow(self._n_rows(), tuple(columns))

    def _column(self, others: Sequence[str]) -> str:
        token: Token = self._curr
        if not token or not _is_name(token) or token.token_type == TokenType.ROWS:
            self._refuse_next(f"{self._where} needs a column behind PARTITION BY")
        if token.text.lower() in (other.lower() for other in others):
            self._refuse(f"column {token.text!r} stands twice in PARTITION BY", token.start)
        self._advance()
        if self._curr.token_type == TokenType.DOT:
            message = "PARTITION BY takes columns of the stream by their bare names"
            self._refuse(message, token.start)
        return token.text

    def _n_rows(self) -> int:
        start = self._offset
        number = self._number("ROWS needs how many, such as ROWS 1000")
        if not number.isdecimal():
            self._refuse(f"ROWS needs a whole number, got {number}", start)
        if len(number) > MAX_DIGITS or (rows := int(number)) > MAX_ROWS:
            self._refuse(f"ROWS {number:.20} is too many; the most are {MAX_ROWS}", start)
        if rows == 0:
            self._refuse("ROWS 0 would hold nothing; write 1 or more", start)
        return rows

    def _length(self, word: str, example: str) -> int:
        """Read a length of time (µs) behind a word of the grammar."""
        quotes = bool(self._match_text_seq("INTERVAL"))
        start, position = self._offset, self._index
        needs = f"{word} needs a number and a unit, such as {word} {example}"
        number = self._number(needs, quotes=quotes)
        if len(number) > MAX_DIGITS:
            self._refuse(too_long(f"{word} {number[:20]}…"), start)
        length = self._unit(f"{word} {number}") * Fraction(number)
        phrase = f"{word} {slice_of(self.sql, self._tokens[position : self._index])}"
        if length > MAX_SPAN:
            hint = "; write UNBOUNDED" if word == "RANGE" else ""
            self._refuse(f"{too_long(phrase)}{hint}", start)
        if length.denominator != 1:
            self._refuse(f"{phrase} is not a whole number of microseconds", start)
        return int(length)

    def _number(self, needs: str, *, quotes: bool = False) -> str:
        """Read a number that is not negative, as text; a string only where quotes may stand."""
        start = self._index
        sign = self._prev.text if self._match_set(_SIGNS) else ""
        lead = "0." if self._match(TokenType.DOT) else ""
        token: Token = self._curr
        number = lead + token.text.strip()
        # 10L is two tokens that stand at one place.
        is_literal = token.token_type == TokenType.NUMBER and self._shown(token) == token.text
        is_string = token.token_type == TokenType.STRING and quotes
        if not (is_literal or is_string) or not _NUMBER.fullmatch(number.lstrip("+-")):
            offset = self._tokens[start].start if start < len(self._tokens) else self._end
            self._refuse(f"{needs}{self._got()}", offset)
        self._advance()
        if "-" in (sign, number[0]):
            message = f"a window cannot be negative, got {self._text_from(start)}"
            self._refuse(message, self._tokens[start].start)
        return number.lstrip("+")

    def _unit(self, behind: str) -> int:
        if not self._curr:
            self._refuse(f"{behind} needs a unit, such as SECONDS", self._end)
        name = self._curr.text.lower()
        if name.removesuffix("s") not in UNITS or not _is_name(self._curr):
            units = [f"{unit}s" for unit in UNITS]
            self._refuse(unknown("unit of time", name, units), self._curr.start)
        self._advance()
        return UNITS[name.removesuffix("s")]

    # -- errors of windows --------------------------------------------------------------------

    @property
    def _offset(self) -> int:
        """The offset of what comes next."""
        return self._curr.start if self._curr else self._end

    def _shown(self, token: Token) -> str:
        return slice_of(self.sql, [token])

    def _got(self) -> str:
        return f", got {self._shown(self._curr)!r}" if self._curr else ", got nothing"

    def _text_between(self, start: int) -> str:
        """Return what was read from an offset on."""
        return self.sql[start : self._prev.end + 1]

    def _text_from(self, position: int) -> str:
        """Return the tree that was read from the token at a position on."""
        return slice_of(self.sql, self._tokens[position : self._index])

    def _refuse_next(self, needs: str) -> NoReturn:
        refuse(f"{needs}{self._got()}", self.sql, self._offset)

    def _refuse(self, message: str, offset: int) -> NoReturn:
        refuse(f"{self._where}: {message}", self.sql, offset)


def _micros_of(token: Token) -> int | None:
    """Return an instant in quotes with its zone in µs since 1970; None if it is none."""
    with suppress(ValueError):
        instant = datetime.fromisoformat(token.text if token else "")
        if token.token_type == TokenType.STRING and instant.tzinfo is not None:
            return (instant - _EPOCH) // timedelta(microseconds=1)
    return None


def _is_name(token: Token) -> bool:
    """Return whether a token may be the name of a column or of a unit."""
    return token.token_type == TokenType.IDENTIFIER or token.text.isidentifier()


def micros_of(tree: Expr) -> int | None:
    """Return the length of an interval, or of one in quotes, in µs; None if it is none."""
    if isinstance(tree, exp.Add):  # INTERVAL 1 HOUR 30 MINUTES
        parts = micros_of(tree.left), micros_of(tree.right)
        return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
    if isinstance(tree, exp.Interval):
        unit = tree.args.get("unit")
        is_plain = isinstance(tree.this, exp.Literal) and isinstance(unit, exp.Var | None)
        return (
            micros_in(f"{tree.this.name} {'' if unit is None else unit.name}") if is_plain else None
        )
    is_text = isinstance(tree, exp.Literal) and tree.is_string
    return micros_in(tree.name) if is_text else None

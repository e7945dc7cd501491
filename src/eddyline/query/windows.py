"""Windows over streams as values, and how they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType

from eddyline.registry import unknown
from eddyline.sql.parsing import refuse, slice_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """``[RANGE 10 SECONDS]``: the rows whose event time is at most so long ago, ends included.

    ``[NOW]`` is a range of length 0: the rows of the same instant.
    """

    length: int
    """µs, 0 or more."""

    @property
    def text(self) -> str:
        """The window as a query would write it.

        >>> RangeWindow(90_000_000).text, RangeWindow(0).text
        ('RANGE 90 SECONDS', 'NOW')
        """
        if self.length == 0:
            return "NOW"
        unit, size = next(
            each
            for each in reversed(_UNITS.items())
            if self.length % each[1] == 0 and each[0] != "week"
        )
        number = self.length // size
        return f"RANGE {number} {unit.upper()}{'' if number == 1 else 'S'}"


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """``[ROWS 1000]``, ``[PARTITION BY k ROWS 10]``: so many latest rows of the stream, or a group.

    The count runs over all rows of the stream, before its own predicates. The order is that of
    event time; among equal times that of the rows' contents, so it does not depend on arrival.
    """

    rows: int
    """1 or more."""
    partition_by: tuple[str, ...] = ()
    """Columns of the stream, by name."""

    @property
    def text(self) -> str:
        """The window as a query would write it.

        >>> RowsWindow(10, ("k",)).text
        'PARTITION BY k ROWS 10'
        """
        by = f"PARTITION BY {', '.join(self.partition_by)} " if self.partition_by else ""
        return f"{by}ROWS {self.rows}"


@dataclass(frozen=True, slots=True)
class UnboundedWindow:
    """``[UNBOUNDED]``: all rows so far; what a stream without a window has."""

    @property
    def text(self) -> str:
        """The window as a query would write it."""
        return "UNBOUNDED"


Window = RangeWindow | RowsWindow | UnboundedWindow

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
"""µs of each unit of time; a day has 24 hours, as in Spark's intervals."""

_LONGEST = 2**63 - 1
"""µs of the longest range: what an event time in 64 bits can hold."""

_FORMS = "RANGE 10 SECONDS, ROWS 1000, PARTITION BY k ROWS 10, NOW or UNBOUNDED"


def read_window(text: str, where: str = "the window") -> Window:
    """Read a window, with its brackets or without.

    Args:
        text: ``RANGE 10 SECONDS``, ``ROWS 1000``, ``PARTITION BY k ROWS 10``, ``NOW``,
            ``UNBOUNDED``; in any case, in units from microseconds to weeks.
        where: whose window it is, for the error.

    Raises:
        QueryError: it is no window; the message shows where.

    Example:
        >>> read_window("[RANGE 1.5 SECONDS]")
        RangeWindow(length=1500000)
        >>> read_window("partition by k rows 10")
        RowsWindow(rows=10, partition_by=('k',))
    """
    tokens = tokens_of(text, where)
    if tokens and tokens[0].token_type == TokenType.L_BRACKET:
        if tokens[-1].token_type != TokenType.R_BRACKET:
            refuse(f"{where} has a bracket that is left open", text, tokens[0].start)
        return window_of(text, tokens[1:-1], tokens[-1].start, where)
    return window_of(text, tokens, len(text), where)


def window_of(text: str, tokens: Sequence[Token], end: int, where: str) -> Window:
    """Read a window that stands somewhere in a text.

    Args:
        text: the whole text.
        tokens: those of the window, without its brackets.
        end: the offset in the text at which the window ends.
        where: whose window it is, for the error.

    Raises:
        QueryError: it is no window; the message shows where.
    """
    return _Reader(text, tokens, end, where).window()


class _Reader:
    """One window, read token by token."""

    def __init__(self, text: str, tokens: Sequence[Token], end: int, where: str) -> None:
        self._text = text
        self._tokens = tokens
        self._end = end
        self._where = where
        self._next = 0

    def window(self) -> Window:
        """Read the window and see that nothing follows it."""
        made = self._any_window()
        if (token := self._peek()) is not None:
            self._refuse(f"nothing may follow {self._read()}, got {token.text!r}", token.start)
        return made

    def _any_window(self) -> Window:
        if self._take("NOW"):
            return RangeWindow(0)
        if self._take("UNBOUNDED"):
            return UnboundedWindow()
        if self._take("RANGE"):
            return UnboundedWindow() if self._take("UNBOUNDED") else RangeWindow(self._length())
        if self._take("ROWS"):
            return UnboundedWindow() if self._take("UNBOUNDED") else RowsWindow(self._rows())
        if not self._take("PARTITION BY"):
            self._refuse_next(f"is {_FORMS}")
        return self._partitioned()

    def _partitioned(self) -> RowsWindow:
        columns: list[str] = []
        while not columns or self._take(","):
            columns.append(self._column(columns))
        if not self._take("ROWS"):
            self._refuse_next("needs ROWS and a number behind the columns of PARTITION BY")
        return RowsWindow(self._rows(), tuple(columns))

    def _column(self, others: Sequence[str]) -> str:
        token = self._peek()
        if token is None or not _is_name(token) or token.token_type == TokenType.ROWS:
            self._refuse_next("needs a column behind PARTITION BY")
        if token.text.lower() in (other.lower() for other in others):
            self._refuse(f"column {token.text!r} stands twice in PARTITION BY", token.start)
        self._next += 1
        if (after := self._peek()) is not None and after.token_type == TokenType.DOT:
            message = "PARTITION BY takes columns of the stream by their bare names"
            self._refuse(message, token.start)
        return token.text

    def _rows(self) -> int:
        start = self._start()
        text = self._number("ROWS needs how many, such as ROWS 1000")
        if not text.isdecimal():
            self._refuse(f"ROWS needs a whole number, got {text}", start)
        if (rows := int(text)) == 0:
            self._refuse("ROWS 0 would hold nothing; write 1 or more", start)
        return rows

    def _length(self) -> int:
        quotes = self._take("INTERVAL")
        start = self._start()
        needs = "RANGE needs a number and a unit, such as RANGE 10 SECONDS"
        number = self._number(needs, quotes=quotes)
        length = self._unit(number) * Fraction(number)
        if length > _LONGEST:
            message = f"{self._read()} is longer than time in 64 bits; write UNBOUNDED"
            self._refuse(message, start)
        if length.denominator != 1:
            self._refuse(f"{self._read()} is not a whole number of microseconds", start)
        return int(length)

    def _number(self, needs: str, *, quotes: bool = False) -> str:
        """Read a number that is not negative, as text; as a string only where quotes may stand."""
        start, sign = self._start(), ""
        token = self._peek()
        if token is not None and token.token_type in (TokenType.DASH, TokenType.PLUS):
            sign = token.text
            self._next += 1
        lead = "0." if self._take(".") else ""
        token = self._peek()
        text = "" if token is None else lead + token.text.strip()
        if token is None or not self._is_number(token, text.lstrip("+-"), quotes=quotes):
            self._refuse(needs + self._got(), start)
        self._next += 1
        if "-" in (sign, text[0]):
            self._refuse(f"a window cannot be negative, got {self._text_from(start)}", start)
        return text.lstrip("+")

    def _unit(self, number: str) -> int:
        token = self._peek()
        if token is None:
            self._refuse(f"RANGE {number} needs a unit, such as SECONDS", self._end)
        name = token.text.lower()
        if name.removesuffix("s") not in _UNITS or not _is_name(token):
            known = [f"{unit}s" for unit in _UNITS]
            self._refuse(unknown("unit of time", name, known), token.start)
        self._next += 1
        return _UNITS[name.removesuffix("s")]

    def _is_number(self, token: Token, text: str, *, quotes: bool) -> bool:
        """Return whether a token is a number; 10L is two tokens that stand at one place."""
        is_whole = token.text == slice_of(self._text, [token])
        is_literal = token.token_type == TokenType.NUMBER and is_whole
        is_string = token.token_type == TokenType.STRING and quotes
        return (is_literal or is_string) and _NUMBER.fullmatch(text) is not None

    # Tokens

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _start(self) -> int:
        token = self._peek()
        return self._end if token is None else token.start

    def _take(self, word: str) -> bool:
        """Step over the next token if it is the word."""
        token = self._peek()
        found = token is not None and " ".join(token.text.upper().split()) == word
        if found and token is not None and token.token_type not in _QUOTED:
            self._next += 1
            return True
        return False

    def _got(self) -> str:
        token = self._peek()
        return ", got nothing" if token is None else f", got {slice_of(self._text, [token])!r}"

    def _read(self) -> str:
        """Return what was read so far."""
        return self._text_from(self._tokens[0].start)

    def _text_from(self, start: int) -> str:
        return self._text[start : self._tokens[self._next - 1].end + 1]

    def _refuse_next(self, needs: str) -> NoReturn:
        refuse(f"{self._where} {needs}{self._got()}", self._text, self._start())

    def _refuse(self, message: str, offset: int) -> NoReturn:
        refuse(f"{self._where}: {message}", self._text, offset)


_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


def _is_name(token: Token) -> bool:
    """Return whether a token may be the name of a column or of a unit."""
    return token.token_type == TokenType.IDENTIFIER or token.text.isidentifier()


_NUMBER = re.compile(r"\d+\.?\d*(e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)

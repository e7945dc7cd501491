"""CQL's own syntax: windows behind streams, and ISTREAM(…) around what a query emits [CQL].

sqlglot has no tree for either. They are part of the grammar here, and what is read stays the user's
text: the tree says at which tokens windows, output columns and conditions stand. The parser
overrides methods of sqlglot that are not public, which is why pyproject.toml pins it narrowly.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import TokenType, exp

from eddyline.errors import NotSupportedError
from eddyline.query.windows import (
    LONGEST,
    UNITS,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
    UnboundedWindow,
)
from eddyline.registry import unknown
from eddyline.sql.parsing import SparkText, refuse, slice_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlglot import Expr, Token

    from eddyline.query.query import Emits
    from eddyline.query.windows import Window

Span = tuple[int, int]
"""The positions of a first token and of that behind the last one."""

EMITS: dict[str, Emits] = {"ISTREAM": "istream", "DSTREAM": "dstream", "RSTREAM": "rstream"}

SPAN, ITEM, WINDOWS, FIRST, EMITTED = "span", "item", "windows", "first", "emitted"
"""Keys of ``meta`` of nodes: the span of an expression, that of an output column with its name,
those of the windows behind a name or an alias, the first token of a join, the word that says what
is emitted."""

_BEHIND_NAMES = "a window stands behind the name or the alias of a stream"
_BEHIND_BARE_WORD = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STAR, TokenType.DISTINCT)
_FORMS = (
    "RANGE 10 SECONDS, RANGE 10 MINUTES SLIDE 1 MINUTE, ROWS 1000, PARTITION BY k ROWS 10, "
    "SESSION 5 MINUTES, NOW or UNBOUNDED"
)
_NUMBER = re.compile(r"\d+\.?\d*(e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)
_SIGNS = (TokenType.DASH, TokenType.PLUS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tokens_of_query(text: str) -> list[Token]:
    """Return the tokens of a query, in which ``window`` is a name but in ``WINDOW w AS (…)``.

    Raises:
        QueryError: a quote or comment is left open.
    """
    tokens = tokens_of(text, "the query")
    for position, token in enumerate(tokens):
        behind = [each.token_type for each in tokens[position + 1 : position + 3]]
        is_clause = TokenType.ALIAS in behind[1:] and behind[0] != TokenType.COMMA
        if token.token_type == TokenType.WINDOW and not is_clause:
            token.token_type = TokenType.VAR
    return tokens


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
    return WindowParser(dialect=CqlText()).window(text, tokens, end, where)


class WindowParser(SparkText.Parser):
    """Reads windows."""

    def window(self, text: str, tokens: Sequence[Token], end: int, where: str) -> Window:
        """Read a window; see ``window_of``."""
        self.reset()
        self.sql, self._end, self._where = text, end, where
        self._chunks = [list(tokens)]
        self._advance_chunk()
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
        found = _micros_of(self._curr)
        if found is None:
            example = "'2026-01-01T00:00:15Z'"
            message = f"ORIGIN TIMESTAMP needs an instant and its zone: {example}{self._got()}"
            self._refuse(message, self._offset)
        self._advance()
        return found

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
        if not _is_name(token) or token.token_type == TokenType.ROWS:
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
        if (rows := int(number)) == 0:
            self._refuse("ROWS 0 would hold nothing; write 1 or more", start)
        return rows

    def _length(self, word: str, example: str) -> int:
        """Read a length of time (µs) behind a word of the grammar."""
        quotes = bool(self._match_text_seq("INTERVAL"))
        start, position = self._offset, self._index
        needs = f"{word} needs a number and a unit, such as {word} {example}"
        number = self._number(needs, quotes=quotes)
        length = self._unit(f"{word} {number}") * Fraction(number)
        said = f"{word} {slice_of(self.sql, self._tokens[position : self._index])}"
        if length > LONGEST:
            hint = "; write UNBOUNDED" if word == "RANGE" else ""
            self._refuse(f"{said} is longer than time in 64 bits{hint}", start)
        if length.denominator != 1:
            self._refuse(f"{said} is not a whole number of microseconds", start)
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
            known = [f"{unit}s" for unit in UNITS]
            self._refuse(unknown("unit of time", name, known), self._curr.start)
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


class CqlText(SparkText):
    """Spark SQL as it is written, with CQL's windows and relation-to-stream operators."""

    class Parser(WindowParser):
        """See the dialect."""

        ADD_JOIN_ON_TRUE: ClassVar[bool] = False  # conditions are those that are written

        # -- queries ------------------------------------------------------------------------------

        def reset(self) -> None:
            """Forget the text before."""
            super().reset()
            self._emits: Token | None = None

        def _parse_statement(self) -> Expr | None:
            """Read SELECT, perhaps in ISTREAM(…)."""
            word = self._stream_word()
            if word is not None:
                self._emits = word
                self._advance(2)
                if self._curr.token_type == TokenType.R_PAREN:
                    refuse(f"{word.text}(…) needs a SELECT", self.sql, self._curr.start)
            self._check_is_select()
            tree: Expr | None = super()._parse_statement()
            if word is not None:
                self._close(word)
            if tree is not None:
                tree.meta[EMITTED] = self._emits
            return tree

        def _check_is_select(self) -> None:
            first = self._curr or self._prev
            if first.token_type == TokenType.WITH:
                message = "WITH is not supported yet; write one SELECT"
                refuse(message, self.sql, first.start, NotSupportedError)
            if first.token_type != TokenType.SELECT:
                message = f"a query starts with SELECT, got {first.text!r}"
                refuse(message, self.sql, first.start)

        def _close(self, word: Token) -> None:
            """Step over the parenthesis that ends ISTREAM(…), and the query with it."""
            if not self._curr:
                opening = self._tokens[self._tokens.index(word) + 1]
                message = f"{word.text} has a parenthesis that is left open"
                refuse(message, self.sql, opening.start)
            if self._match(TokenType.R_PAREN) and self._curr:
                message = f"nothing may follow {word.text}(…), got {self._curr.text!r}"
                refuse(message, self.sql, self._curr.start)

        def _stream_word(self) -> Token | None:
            """Return the word if ISTREAM( comes next."""
            token: Token = self._curr
            is_call = self._next.token_type == TokenType.L_PAREN
            is_word = token.token_type == TokenType.VAR and token.text.upper() in EMITS
            return token if is_call and is_word else None

        def _parse_projections(self) -> tuple[list[Expr], None]:
            word, is_word = self._stream_word(), self._curr.text.upper() in EMITS
            if word is None:
                is_bare = is_word and self._curr.token_type == TokenType.VAR
                if is_bare and self._next.token_type in _BEHIND_BARE_WORD:
                    message = f"write SELECT {self._curr.text}(…) FROM …"
                    refuse(message, self.sql, self._curr.start)
                return self._output_columns(), None
            if self._emits is not None:
                refuse("what the query emits is said twice", self.sql, word.start)
            self._emits = word
            self._advance(2)
            if self._curr.token_type == TokenType.DISTINCT:
                message = f"write {word.text}(SELECT DISTINCT … FROM …)"
                refuse(message, self.sql, self._curr.start, NotSupportedError)
            columns = self._output_columns()
            if not self._match(TokenType.R_PAREN) or self._curr.token_type != TokenType.FROM:
                message = f"{word.text}(…) stands around all output columns and before FROM"
                refuse(message, self.sql, word.start)
            return columns, None

        def _output_columns(self) -> list[Expr]:
            if self._prev.token_type == TokenType.ALIAS:  # SELECT AS STRUCT, in other dialects
                message = "the output columns cannot be read; write words of SQL in backticks"
                refuse(message, self.sql, self._prev.start)
            columns: list[Expr] = []
            while not columns or self._match(TokenType.COMMA):
                start = self._index
                column = self._parse_expression()
                if column is None and self._curr:
                    refuse("an output column is missing", self.sql, self._curr.start)
                if column is None:
                    break
                column.meta[ITEM] = (start, self._index)
                columns.append(column)
            return columns

        def _spanned(self, parse: Callable[..., Expr | None], *args: Any, **how: Any) -> Any:
            """Note the span of what a method parses."""
            start = self._index
            tree = parse(*args, **how)
            if tree is not None:
                tree.meta[SPAN] = (start, self._index)
            return tree

        def _parse_disjunction(self) -> Any:  # a condition
            before = self._prev
            tree = self._spanned(super()._parse_disjunction)
            if tree is None and before.token_type == TokenType.ON:
                refuse("the condition of ON is missing", self.sql, before.start)
            return tree

        def _parse_equality(self, *args: Any, **how: Any) -> Any:  # a conjunct
            return self._spanned(super()._parse_equality, *args, **how)

        def _parse_comparison(self, *args: Any, **how: Any) -> Any:  # a side of an equality
            return self._spanned(super()._parse_comparison, *args, **how)

        def _parse_unary(self) -> Any:  # a side of + or *
            return self._spanned(super()._parse_unary)

        def _parse_function(self, *args: Any, **how: Any) -> Any:  # a call with FILTER and OVER
            return self._spanned(super()._parse_function, *args, **how)

        def _parse_lambda(self, *args: Any, **how: Any) -> Any:  # an argument
            return self._spanned(super()._parse_lambda, *args, **how)

        def _parse_using_identifiers(self) -> list[Expr]:
            using = self._prev
            names: list[Expr] = super()._parse_using_identifiers()
            if not names:
                refuse("USING needs the names of columns", self.sql, using.start)
            return names

        def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
            start, first = self._index, self._curr
            join: exp.Join | None = super()._parse_join(*args, **kwargs)
            if join is not None:
                join.meta[FIRST] = start
            elif self._index > start:
                refuse("a stream is missing behind the comma", self.sql, first.start)
            return join

        def _parse_table_parts(self, *args: Any, **kwargs: Any) -> Expr | None:
            if self._curr.token_type == TokenType.L_BRACKET:
                refuse(_BEHIND_NAMES, self.sql, self._curr.start)
            table: Expr | None = super()._parse_table_parts(*args, **kwargs)
            if table is not None:
                self._skip_windows(table)
            return table

        def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
            if self._match_pair(TokenType.ALIAS, TokenType.L_BRACKET, advance=False):
                refuse(_BEHIND_NAMES, self.sql, self._next.start)
            alias: exp.TableAlias | None = super()._parse_table_alias(*args, **kwargs)
            if alias is not None:
                self._skip_windows(alias)
            return alias

        def _skip_windows(self, node: Expr) -> None:
            """Note the spans of the windows behind a name; they are read once it is known whose."""
            spans: list[Span] = []
            while self._match(TokenType.L_BRACKET):
                start = self._index
                while self._curr and self._curr.token_type != TokenType.R_BRACKET:
                    self._advance()
                if not self._curr:
                    message = "a window has a bracket that is left open"
                    refuse(message, self.sql, self._tokens[start - 1].start)
                spans.append((start, self._index))
                self._advance()
            node.meta[WINDOWS] = spans


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

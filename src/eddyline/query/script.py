"""Reads a script: streams, tables, functions and queries, each a statement up to a semicolon.

CREATE STREAM packets WITH (format='parquet', path='in/', schema='port INT, payload STRING');
CREATE TABLE hosts WITH (format='csv', path='hosts.csv', header=true);
CREATE FUNCTION suspicious USING 'rules:suspicious';
CREATE QUERY bad WITH (sink='parquet', path='out/') AS
  SELECT * FROM packets WHERE port > 1024 AND suspicious(payload, port);
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sqlglot import TokenType

from eddyline.registry import unknown
from eddyline.sql.parsing import place, refuse, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot import Token

QUERY_OPTIONS = ("sink", "path", "checkpoint", "trigger")
"""What a query may say in WITH: the arguments of ``Query.start``."""

OF_STREAMS = ("time", "lateness")
"""What only a stream may say in WITH."""

_TARGET = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")
_SYNTAX = {
    "STREAM": "CREATE STREAM name WITH (format='parquet', path='…')",
    "TABLE": "CREATE TABLE name WITH (format='parquet', path='…')",
    "FUNCTION": "CREATE FUNCTION name USING 'module:attribute'",
    "QUERY": "CREATE QUERY name [WITH (sink='parquet', path='…')] AS SELECT …",
}


@dataclass(frozen=True, slots=True)
class CreateStream:
    """A stream and where it comes from."""

    name: str
    options: Mapping[str, str]
    """``format`` and, if said, ``path``, ``schema``, ``time``, ``lateness``; all others are
    options of Spark's reader."""


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A table that does not change, to be joined with streams, and where it comes from."""

    name: str
    options: Mapping[str, str]
    """``format`` and, if said, ``path``, ``schema``; all others are options of Spark's reader."""


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """A predicate function and where it is found."""

    name: str
    target: str
    """``module:attribute``."""


@dataclass(frozen=True, slots=True)
class CreateQuery:
    """A query and where its rows go."""

    name: str
    text: str
    """The SELECT, as written."""
    options: Mapping[str, str]
    """Some of ``QUERY_OPTIONS``."""
    line: int = 1
    """The line of the script on which the SELECT starts."""


Created = CreateStream | CreateTable | CreateFunction | CreateQuery


@dataclass(frozen=True, slots=True)
class Script:
    """What a script defines, in its order."""

    streams: tuple[CreateStream, ...] = ()
    tables: tuple[CreateTable, ...] = ()
    functions: tuple[CreateFunction, ...] = ()
    queries: tuple[CreateQuery, ...] = ()


def read_script(text: str) -> Script:
    """Read a script.

    Raises:
        QueryError: a statement that is not known or not complete, a name that is taken, an option
            that is missing, unknown or said twice; the message shows where.

    Example:
        >>> script = read_script("CREATE STREAM s WITH (format = 'rate'); "
        ...                      "CREATE QUERY q AS SELECT * FROM s WHERE value > 3")
        >>> script.queries[0].text
        'SELECT * FROM s WHERE value > 3'
    """
    made: list[Created] = []
    for tokens in _statements(tokens_of(text, "the script")):
        made.append(_Statement(text, tokens).read(made))
    return Script(
        streams=tuple(each for each in made if isinstance(each, CreateStream)),
        tables=tuple(each for each in made if isinstance(each, CreateTable)),
        functions=tuple(each for each in made if isinstance(each, CreateFunction)),
        queries=tuple(each for each in made if isinstance(each, CreateQuery)),
    )


def _space(made: Created) -> type[Created]:
    """Return a kind within which names differ: those of streams and tables all do."""
    return CreateStream if isinstance(made, CreateTable) else type(made)


def _statements(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield statement
            statement = []
    if statement:
        yield statement


class _Statement:
    """One statement, read token by token."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._places: dict[str, int] = {}  # the offsets of options that were read
        self._syntax = "CREATE STREAM, CREATE TABLE, CREATE FUNCTION or CREATE QUERY"

    def read(self, made: Sequence[Created]) -> Created:
        """Return what the statement creates; ``made`` is what those before it created."""
        self._word("CREATE")
        start = self._peek()
        kind = self._word(*_SYNTAX)
        self._syntax = _SYNTAX[kind]
        at = self._peek()
        name = self._name()
        statement = self._rest(kind, name)
        if self._next < len(self._tokens):
            self._refuse_token("the end of the statement")
        for other in made:
            if _space(other) is _space(statement) and other.name.lower() == name.lower():
                message = f"{kind.lower()} {name!r} is created twice; choose another name"
                if type(other) is not type(statement):
                    message = f"a stream and a table are called {name!r}; choose another name"
                refuse(message, self._text, (at or start or self._tokens[0]).start, name=name)
        return statement

    def _rest(self, kind: str, name: str) -> Created:
        if kind == "STREAM":
            return self._stream(name)
        if kind == "TABLE":
            return self._table(name)
        return self._function(name) if kind == "FUNCTION" else self._query(name)

    def _stream(self, name: str) -> CreateStream:
        self._word("WITH")
        options = self._options()
        self._check_format(f"stream {name!r}", name, options)
        if "lateness" in options and "time" not in options:
            message = f"stream {name!r} has a lateness but no time column; add time='…'"
            refuse(message, self._text, self._tokens[0].start, name=name)
        return CreateStream(name, options)

    def _table(self, name: str) -> CreateTable:
        self._word("WITH")
        options = self._options()
        for option in OF_STREAMS:
            if option in options:
                message = (
                    f"table {name!r} does not change, so it has no {option}; rows that arrive "
                    f"are a stream: CREATE STREAM"
                )
                refuse(message, self._text, self._places[option], option=option)
        self._check_format(f"table {name!r}", name, options)
        return CreateTable(name, options)

    def _check_format(self, what: str, name: str, options: Mapping[str, str]) -> None:
        if "format" not in options:
            message = f"{what} has no format; add format='parquet' to WITH"
            refuse(message, self._text, self._tokens[0].start, name=name)

    def _function(self, name: str) -> CreateFunction:
        self._word("USING")
        token = self._peek()
        target = self._take("'module:attribute'", TokenType.STRING).text
        if not _TARGET.fullmatch(target):
            message = f"function {name!r}: {target!r} is not of the form 'module:attribute'"
            refuse(message, self._text, token.start if token else 0, name=name, target=target)
        return CreateFunction(name, target)

    def _query(self, name: str) -> CreateQuery:
        options: dict[str, str] = {}
        if self._word("WITH", "AS") == "WITH":
            options = self._options(QUERY_OPTIONS, f"option of query {name!r}")
            self._word("AS")
        first = self._peek()
        if first is None or first.text.upper() != "SELECT":
            self._refuse_token("SELECT")
        self._next = len(self._tokens)
        text = self._text[first.start : self._tokens[-1].end + 1]
        return CreateQuery(name, text, options, place(self._text, first.start)["line"])

    # Parts

    def _options(self, known: Sequence[str] = (), kind: str = "option") -> dict[str, str]:
        self._take("(", TokenType.L_PAREN)
        options: dict[str, str] = {}
        while True:
            key, start = self._key()
            if known and key not in known:
                refuse(unknown(kind, key, known), self._text, start, option=key)
            if key in options:
                refuse(f"option {key!r} is said twice", self._text, start, option=key)
            options[key] = self._value(key)
            self._places[key] = start
            if self._take(", or )", TokenType.COMMA, TokenType.R_PAREN).text == ")":
                return options

    def _key(self) -> tuple[str, int]:
        """Read the name of an option, such as ``kafka.bootstrap.servers``, and its ``=``."""
        first = self._peek()
        parts = []
        while (token := self._peek()) is not None and token.token_type != TokenType.EQ:
            if token.token_type in (TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN):
                self._refuse_token("option = 'value'")
            parts.append(token.text)
            self._next += 1
        if first is None or not parts:
            self._refuse_token("the name of an option")
        self._take("=", TokenType.EQ)
        return "".join(parts), first.start

    def _value(self, key: str) -> str:
        token = self._peek()
        if token is not None and token.text.lower() in ("true", "false"):
            self._next += 1
            return token.text.lower()
        return self._take(f"a value in quotes for {key!r}", TokenType.STRING, TokenType.NUMBER).text

    def _name(self) -> str:
        token = self._peek()
        is_name = token is not None and re.fullmatch(r"\w+", token.text) is not None
        if token is None or token.token_type == TokenType.STRING or not is_name:
            self._refuse_token("a name")
        self._next += 1
        return token.text

    # Tokens

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, what: str, *kinds: TokenType) -> Token:
        token = self._peek()
        if token is None or token.token_type not in kinds:
            self._refuse_token(what)
        self._next += 1
        return token

    def _word(self, *words: str) -> str:
        token = self._peek()
        if token is None or token.text.upper() not in words:
            self._refuse_token(" or ".join(words))
        self._next += 1
        return token.text.upper()

    def _refuse_token(self, wanted: str) -> NoReturn:
        token = self._peek()
        got = "the end of the statement" if token is None else repr(token.text)
        offset = self._tokens[-1].end if token is None else token.start
        message = f"expected {wanted}, got {got}; the form is: {self._syntax}"
        refuse(message, self._text, offset, wanted=wanted)

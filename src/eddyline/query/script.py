"""Reader of scripts, whose statements each end with a semicolon.

CREATE STREAM packets WITH (format='parquet', path='in/', schema='port INT, payload STRING');
CREATE TABLE hosts WITH (format='csv', path='hosts.csv', header=true);
CREATE FUNCTION suspicious USING 'rules:suspicious';
CREATE AGGREGATE geomean USING 'statistics:GeometricMean';
CREATE STREAM odd AS SELECT * FROM packets WHERE port > 1024 AND suspicious(payload, port);
CREATE QUERY bad WITH (sink='parquet', path='out/') AS SELECT * FROM odd WHERE port < 5000;
CREATE RULES known ON packets FROM 'rules/' WITH (sink='parquet', path='known/', column='rules');
CREATE RULE big IN known WITH (level='high', tags='size, web', title='Too big') AS bytes > 1000000;

In: the text of a script. Out: what its statements create, as values, which come first here.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import TokenType

from eddyline.errors import EddylineError, OptionError
from eddyline.query.cql import EMITS
from eddyline.query.rules.rule import Rule
from eddyline.registry import unknown
from eddyline.sql.parsing import place, refuse, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlglot import Token


@dataclass(frozen=True, slots=True)
class _Read:
    name: str
    options: Mapping[str, str]
    """``format`` and, if said, ``path``, ``schema``, of streams ``time``, ``lateness`` and
    ``key``, and of tables ``refresh``; all others are options of Spark's reader."""


class CreateStream(_Read):
    """A stream and where it comes from."""


class CreateTable(_Read):
    """A table, to be joined with streams, and where it comes from; see ``REFRESH``."""


@dataclass(frozen=True, slots=True)
class _Selected:
    name: str
    text: str
    """The SELECT, as written."""
    options: Mapping[str, str]
    """``time`` and ``lateness``; or arguments of ``Query.start`` and ``option.…`` of the writer."""
    line: int = 1
    """The line of the script on which the SELECT starts."""


class CreateResult(_Selected):
    """A stream that is made of the results of a query."""


class CreateQuery(_Selected):
    """A query and where its rows go."""


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    target: str
    """``module:attribute``."""


class CreateFunction(_Found):
    """A predicate function and where it is found."""


class CreateAggregate(_Found):
    """A class of the user that aggregates, and where it is found."""


@dataclass(frozen=True, slots=True)
class CreateRule:
    """A rule of a set."""

    name: str
    rules: str
    """The set."""
    rule: Rule
    line: int = 1
    """The line of the script on which the condition starts."""


@dataclass(frozen=True, slots=True)
class CreateRules:
    """Rules over a stream, and where the rows that they match go."""

    name: str
    stream: str
    path: str | None
    """The file or folder of rules, if there is one."""
    options: Mapping[str, str]
    """Arguments of ``Query.start``; ``option.…`` are of the writer."""
    column: str = "matches"
    """The column of the names of the rules that a row matches."""
    keep_unmatched: bool = False
    """Whether rows that no rule matches are kept, too."""
    as_struct: bool = False
    """Whether that column has title and level of a rule, too."""
    own: tuple[CreateRule, ...] = ()
    """The rules that stand in the script."""
    start: int = field(default=0, compare=False)
    """The offset of the statement in the script."""


Created = (
    CreateStream
    | CreateResult
    | CreateTable
    | CreateFunction
    | CreateAggregate
    | CreateQuery
    | CreateRules
    | CreateRule
)


@dataclass(frozen=True, slots=True)
class Script:
    """Definitions of a script, in its order."""

    streams: tuple[CreateStream, ...] = ()
    tables: tuple[CreateTable, ...] = ()
    functions: tuple[CreateFunction, ...] = ()
    aggregates: tuple[CreateAggregate, ...] = ()
    results: tuple[CreateResult, ...] = ()
    """Streams made by queries; one may read those before it."""
    queries: tuple[CreateQuery, ...] = ()
    rules: tuple[CreateRules, ...] = ()


SINK_ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "parquet": (("path",), ("options",)),
    "orc": (("path",), ("options",)),
    "json": (("path",), ("options",)),
    "csv": (("path",), ("options",)),
    "format": (("format",), ("path", "options")),
    "delta": (("path",), ("storage", "mode", "on", "newest_by", "partition_by")),
    "iceberg": (("table", "catalog"), ("mode", "on", "newest_by", "partition_by")),
    "memory": ((), ()),
    "console": ((), ()),
    "kafka": (("servers", "topic"), ("key", "value", "tasks", "timeout", "settings")),
}
"""Arguments of ``Query.start`` by sink: those that it needs, and those that it may take."""

SINK_MAPPINGS = {
    "option.": "options",
    "setting.": "settings",
    "catalog.": "catalog",
    "storage.": "storage",
}
"""Starts of names of options in WITH, and the argument that has these options by name."""

_OF_SINKS = dict.fromkeys(
    name for needed, others in SINK_ARGUMENTS.values() for name in (*needed, *others)
)
QUERY_OPTIONS = (
    "sink",
    *(name for name in _OF_SINKS if name not in ("options", "settings", "storage")),
    *("checkpoint", "trigger"),
)
"""Options of a query in WITH: arguments of ``Query.start``."""

OF_STREAMS = ("time", "lateness", "key")
"""Options of streams that tables do not have."""

REFRESH = "refresh"
"""Option of tables that streams do not have."""

OF_RESULTS = ("time", "lateness")
"""Those of streams made by a query, which have no others."""

OF_RULES = ("column", "keep_unmatched", "as_struct")
"""Options of rules beside those of a query."""

OF_RULE = ("level", "tags", "title")
"""Options of one rule; tags are told apart by commas."""

_TARGET = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")
_SYNTAX = {
    "STREAM": "CREATE STREAM name WITH (format='parquet', path='…'), or … name AS SELECT …",
    "TABLE": "CREATE TABLE name WITH (format='parquet', path='…')",
    "FUNCTION": "CREATE FUNCTION name USING 'module:attribute'",
    "AGGREGATE": "CREATE AGGREGATE name USING 'module:Class'",
    "QUERY": "CREATE QUERY name [WITH (sink='parquet', path='…')] AS SELECT …",
    "RULES": "CREATE RULES name ON stream [FROM 'rules/'] [WITH (sink='parquet', path='…')]",
    "RULE": "CREATE RULE name IN rules [WITH (level='high', tags='…', title='…')] AS condition",
}
_KINDS = ", ".join(f"CREATE {kind}" for kind in _SYNTAX)
_TRUTH = {"true": True, "false": False}


def read_script(text: str, problems: list[EddylineError] | None = None) -> Script:
    """Read a script.

    Args:
        text: the script.
        problems: collects the errors of statements, which the script then lacks. Without a list
            the first error is raised.

    Raises:
        QueryError: a statement that is not known or not complete, a name that is taken, an option
            that is missing, unknown or said twice; the message shows where.

    Example:
        >>> script = read_script("CREATE STREAM s WITH (format = 'rate'); "
        ...                      "CREATE QUERY q AS SELECT * FROM s WHERE value > 3")
        >>> script.queries[0].text
        'SELECT * FROM s WHERE value > 3'
    """
    statements: list[Created] = []
    for tokens in _statements(tokens_of(text, "the script")):
        with collected(problems, tokens[2].text if len(tokens) > 2 else ""):
            statements.append(_Statement(text, tokens).read(statements))
    rules = [statement for statement in statements if isinstance(statement, CreateRule)]
    sets = [
        replace(statement, own=tuple(rule for rule in rules if rule.rules == statement.name))
        for statement in statements
        if isinstance(statement, CreateRules)
    ]
    for rule_set in sets:
        if rule_set.path is None and not rule_set.own:
            message = (
                f"rules {rule_set.name!r} are empty: name a file or folder (FROM 'rules/'), or add "
                f"a rule: CREATE RULE name IN {rule_set.name} AS condition"
            )
            with collected(problems, rule_set.name):
                refuse(message, text, rule_set.start, name=rule_set.name)
    return Script(
        streams=tuple(statement for statement in statements if isinstance(statement, CreateStream)),
        tables=tuple(statement for statement in statements if isinstance(statement, CreateTable)),
        functions=tuple(
            statement for statement in statements if isinstance(statement, CreateFunction)
        ),
        aggregates=tuple(
            statement for statement in statements if isinstance(statement, CreateAggregate)
        ),
        results=tuple(statement for statement in statements if isinstance(statement, CreateResult)),
        queries=tuple(statement for statement in statements if isinstance(statement, CreateQuery)),
        rules=tuple(sets),
    )


@contextmanager
def collected(problems: list[EddylineError] | None, name: str) -> Iterator[None]:
    """Add an error of the block to ``problems``; without a list, raise it.

    Args:
        problems: the list.
        name: of the object that the block checks; the fact ``created`` of the error.
    """
    try:
        yield
    except EddylineError as error:
        if problems is None:
            raise
        error.facts["created"] = name
        problems.append(error)


_SPACES: tuple[dict[type[Created], str], ...] = (
    {CreateStream: "stream", CreateResult: "stream", CreateTable: "table"},
    {CreateFunction: "function", CreateAggregate: "aggregate"},
    {CreateQuery: "query", CreateRules: "set of rules"},
    {CreateRule: "rule"},
)
"""Kinds within which names differ: whatever FROM names, whatever runs, the rules of a set."""


def _clash(one: Created, other: Created) -> str:
    """Return the reason why two statements cannot both be; empty if they can."""
    kinds = next(space for space in _SPACES if type(one) in space)
    if type(other) not in kinds or one.name.lower() != other.name.lower():
        return ""
    if isinstance(one, CreateRule) and isinstance(other, CreateRule) and one.rules != other.rules:
        return ""
    words = list(dict.fromkeys(kinds[kind] for kind in kinds if kind in (type(one), type(other))))
    if len(words) == 1:
        return f"{words[0]} {one.name!r} is created twice; choose another name"
    one_word, other_word = (f"an {word}" if word[0] in "aeiou" else f"a {word}" for word in words)
    return f"{one_word} and {other_word} are called {one.name!r}; choose another name"


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
        self._syntax = _KINDS

    def read(self, created: Sequence[Created]) -> Created:
        """Return the object that the statement creates; ``created`` has those created before it."""
        self._word("CREATE")
        start = self._peek()
        kind = self._word(*_SYNTAX)
        self._syntax = _SYNTAX[kind]
        name_token = self._peek()
        name = self._name()
        readers: dict[str, Callable[[str], Created]] = {
            "STREAM": self._stream,
            "TABLE": self._table,
            "FUNCTION": lambda name: CreateFunction(name, self._target("function", name)),
            "AGGREGATE": lambda name: CreateAggregate(name, self._target("aggregate", name)),
            "QUERY": self._query,
            "RULES": self._rules,
            "RULE": lambda name: self._rule(name, created),
        }
        statement = readers[kind](name)
        if self._next < len(self._tokens):
            self._refuse_token("the end of the statement")
        for other in created:
            if message := _clash(statement, other):
                refuse(
                    message, self._text, (name_token or start or self._tokens[0]).start, name=name
                )
        return statement

    def _stream(self, name: str) -> CreateStream | CreateResult:
        options: dict[str, str] = {}
        is_result = self._word("WITH", "AS") == "AS"
        if not is_result:
            options = self._options()
            is_result = self._peek() is not None and self._word("AS") == "AS"
        if "lateness" in options and "time" not in options:
            message = f"stream {name!r} has a lateness but no time column; add time='…'"
            refuse(message, self._text, self._tokens[0].start, name=name)
        if not is_result:
            self._check_format(f"stream {name!r}", name, options)
            return CreateStream(name, options)
        for option in options:
            if option not in OF_RESULTS:
                message = f"stream {name!r} is made by a query, so it has no {option}"
                refuse(message, self._text, self._places[option], option=option)
        return CreateResult(name, *self._select(options))

    def _table(self, name: str) -> CreateTable:
        self._word("WITH")
        options = self._options()
        for option in OF_STREAMS:
            if option in options:
                message = (
                    f"eddyline finds the keys of tables itself; leave out key of table {name!r}"
                    if option == "key"
                    else f"table {name!r} does not change, so it has no {option}; rows that arrive "
                    f"are a stream: CREATE STREAM"
                )
                refuse(message, self._text, self._places[option], option=option)
        self._check_format(f"table {name!r}", name, options)
        return CreateTable(name, options)

    def _check_format(self, what: str, name: str, options: Mapping[str, str]) -> None:
        if "format" not in options:
            message = f"{what} has no format; add format='parquet' to WITH"
            refuse(message, self._text, self._tokens[0].start, name=name)

    def _target(self, kind: str, name: str) -> str:
        """Read where a function or an aggregate is found."""
        self._word("USING")
        form = "'module:attribute'" if kind == "function" else "'module:Class'"
        token = self._take(form, TokenType.STRING)
        if not _TARGET.fullmatch(token.text):
            message = f"{kind} {name!r}: {token.text!r} is not of the form {form}"
            refuse(message, self._text, token.start, name=name, target=token.text)
        return token.text

    def _query(self, name: str) -> CreateQuery:
        options: dict[str, str] = {}
        if self._word("WITH", "AS") == "WITH":
            options = self._options(QUERY_OPTIONS, f"option of query {name!r}")
            self._word("AS")
        return CreateQuery(name, *self._select(options))

    def _rules(self, name: str) -> CreateRules:
        self._word("ON")
        stream = self._name()
        path, options = None, {}
        if self._peek() is not None and self._word("FROM", "WITH") == "FROM":
            path = self._take("the path of the rules in quotes", TokenType.STRING).text
            if self._peek() is not None:
                self._word("WITH")
        if self._next < len(self._tokens):
            options = self._options((*QUERY_OPTIONS, *OF_RULES), f"option of rules {name!r}")
        return CreateRules(
            name,
            stream,
            path,
            keep_unmatched=self._truth(name, options, "keep_unmatched"),
            as_struct=self._truth(name, options, "as_struct"),
            column=options.pop("column", "matches"),
            options=options,
            start=self._tokens[0].start,
        )

    def _truth(self, name: str, options: dict[str, str], option: str) -> bool:
        text = options.pop(option, "false").lower()
        if text not in _TRUTH:
            message = f"rules {name!r}: {option} is true or false, got {text!r}"
            refuse(message, self._text, self._places[option], option=option)
        return _TRUTH[text]

    def _rule(self, name: str, created: Sequence[Created]) -> CreateRule:
        self._word("IN")
        token = self._peek()
        rules = self._name()
        sets = {
            statement.name.lower(): statement.name
            for statement in created
            if isinstance(statement, CreateRules)
        }
        if token is not None and rules.lower() not in sets:
            message = unknown("set of rules", rules, sets.values())
            message = f"{message}; a set is created before its rules"
            refuse(message, self._text, token.start, name=rules)
        options: dict[str, str] = {}
        if self._word("WITH", "AS") == "WITH":
            options = self._options(OF_RULE, f"option of rule {name!r}", has_mappings=False)
            self._word("AS")
        condition, line = self._remaining("a condition")
        facts: dict[str, Any] = dict(options)
        if "tags" in options:
            facts["tags"] = [tag.strip() for tag in options["tags"].split(",")]
        rule = Rule(condition)
        for option, value in facts.items():
            try:
                rule = replace(rule, **{option: value})
            except OptionError as error:
                message = f"rule {name!r}: {error.message}"
                refuse(message, self._text, self._places[option], option=option)
        return CreateRule(name, sets[rules.lower()], rule, line)

    # Parts

    def _remaining(self, wanted: str) -> tuple[str, int]:
        """Take the rest of the statement as a text, with its line."""
        first = self._peek()
        if first is None:
            self._refuse_token(wanted)
        self._next = len(self._tokens)
        text = self._text[first.start : self._tokens[-1].end + 1]
        return text, place(self._text, first.start)["line"]

    def _select(self, options: dict[str, str]) -> tuple[str, dict[str, str], int]:
        """Read the rest as a query: its text, the options before it, and its line."""
        first = self._peek()
        if first is None or first.text.upper() not in ("SELECT", "WITH", *EMITS):
            self._refuse_token("SELECT")
        text, line = self._remaining("SELECT")
        return text, options, line

    def _options(
        self, allowed: Sequence[str] = (), kind: str = "option", *, has_mappings: bool = True
    ) -> dict[str, str]:
        self._take("(", TokenType.L_PAREN)
        options: dict[str, str] = {}
        while True:
            key, start = self._key()
            is_in_mapping = has_mappings and key.startswith((*SINK_MAPPINGS,))
            if allowed and key not in allowed and not is_in_mapping:
                refuse(unknown(kind, key, allowed), self._text, start, option=key)
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

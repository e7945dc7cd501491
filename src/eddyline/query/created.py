"""What the statements of a script create, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.query.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class _Read:
    name: str
    options: Mapping[str, str]
    """``format`` and, if said, ``path``, ``schema`` and (of streams) ``time``, ``lateness`` and
    ``key``; all others are options of Spark's reader."""


class CreateStream(_Read):
    """A stream and where it comes from."""


class CreateTable(_Read):
    """A table that does not change, to be joined with streams, and where it comes from."""


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

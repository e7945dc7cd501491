"""A Sigma rule, read once: it binds to every input that it meets."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the cache decodes by these types
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from eddyline.errors import OptionError, QueryError
from eddyline.query.conditions import And, Rule, SkippedRule
from eddyline.sigma.binding import Binder
from eddyline.sigma.conditions import Condition, fields_of
from eddyline.sigma.correlations import SigmaCorrelation  # noqa: TC001 - the cache decodes by it
from eddyline.sigma.fields import Columns, likely_columns
from eddyline.sigma.log_sources import LogSource, restriction
from eddyline.sql.depth import deep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.query.conditions import Node


@lru_cache(maxsize=8)
def _columns(columns: tuple[tuple[str, str], ...]) -> Columns:
    return Columns(dict(columns))


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of rules whose events have less than the rules expect."""

    restrict: str | bool = "auto"
    """Whether a rule meets only events of its log source: ``auto`` (as far as the events carry
    a channel and an event id), True (they have to carry them) or False."""
    missing: str = "null"
    """The value of a test whose field an event lacks: ``null`` (unknown) or ``false``."""

    def __post_init__(self) -> None:
        if self.restrict not in ("auto", True, False):
            msg = f"restrict is 'auto', True or False, not {self.restrict!r}"
            raise OptionError(msg, restrict=self.restrict)
        if self.missing not in ("null", "false"):
            msg = f"missing is 'null' or 'false', not {self.missing!r}"
            raise OptionError(msg, missing=self.missing)


@dataclass(frozen=True, slots=True)
class SkippedSigmaRule(SkippedRule):
    """A Sigma rule that cannot be read, and why."""

    title: str = ""
    """Empty if it has none that can be read."""
    path: str = ""
    """Of its file; empty for a text."""


@dataclass(frozen=True, slots=True)
class SigmaRule:
    """A Sigma rule (a ``RuleSource``): small, picklable, without pySigma's objects."""

    name: str
    """Its id; if it has none, its title or file name as a word."""
    text: str
    """The YAML document."""
    info: Mapping[str, str | tuple[str, ...] | None]
    """``title level status tags author description falsepositives references date logsource
    events fields path``; None or empty where the rule does not say."""
    condition: Condition
    """The events that it is true for."""
    log_source: LogSource
    """The events it is for."""
    reading: Reading = field(default=Reading())
    """The reading of it."""

    @property
    def meaning(self) -> str:
        """What it means: not the text, in which titles and levels stand, too."""
        return repr((self.condition, self.log_source, self.reading))

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, SigmaRule):
            return self is other
        # Not the conditions themselves: 1 and 1.0 are equal numbers, and other texts.
        return (self.name, self.meaning) == (other.name, other.meaning)

    def __hash__(self) -> int:
        return hash(self.name)

    def named(self, name: str) -> SigmaRule:
        """Return the rule under another name."""
        return replace(self, name=name)

    def read_as(self, reading: Reading) -> SigmaRule:
        """Return the rule, understood in another way."""
        return self if reading == self.reading else replace(self, reading=reading)

    def lacking(self, columns: Mapping[str, str]) -> tuple[str, ...]:
        """Return the fields that events with these columns lack."""
        known = _columns(tuple(columns.items()))
        return tuple(each for each in fields_of(self.condition) if known.find(each) is None)

    def likely_columns(self, fields: Iterable[str], columns: Mapping[str, str]) -> dict[str, str]:
        """Return the likely columns of fields that events lack, by field."""
        return likely_columns(fields, columns)

    @deep
    def bind(self, columns: Mapping[str, str], *, ansi: bool) -> Rule:  # noqa: ARG002 - a protocol
        """Return the rule over an input; it never raises on a row, in ANSI mode or not.

        Raises:
            QueryError: a field is of a type that cannot be tested, or the log source is demanded
                and the events do not tell it.
        """
        known = _columns(tuple(columns.items()))
        try:
            tree = Binder(known, self.reading.missing).node(self.condition)
            return Rule(self.name, self._restricted(tree, known), self.text)
        except QueryError as error:
            msg = f"Sigma rule {self.name} ({self.info['path'] or 'text'}): {error.message}"
            raise type(error)(msg, rule=self.name) from error

    def _restricted(self, tree: Node, columns: Columns) -> Node:
        wanted = self.reading.restrict
        if wanted is False:
            return tree
        source = restriction(self.log_source, columns, demanded=wanted is True)
        return tree if source is None else And((source, tree))


@dataclass(frozen=True, slots=True)
class SigmaRules:
    """Rules that were read, and those that do not run."""

    sources: tuple[SigmaRule, ...]
    """The rules, in the order of their files."""
    skipped: tuple[SkippedSigmaRule, ...]
    """Those that do not run, and why."""
    correlations: tuple[SigmaCorrelation, ...] = ()
    """Those over several events, in the order of their files."""

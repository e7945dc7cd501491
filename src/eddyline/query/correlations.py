"""Correlations: conditions on several events within a timespan.

The events are matches of rules. A correlation looks at *matches*: rows with an event time, the
places of the rules that are true for the event, the values that it is grouped by, and perhaps a
value that is counted or summed up. Matches of a correlation that refers to another one are the
alerts of that one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from eddyline.query.query import span_text
from eddyline.query.rules.rule import Described
from eddyline.query.steps import OverOne

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = (
    "event_count",
    "value_count",
    "temporal",
    "temporal_ordered",
    "value_sum",
    "value_avg",
    "value_percentile",
)
"""The kinds of correlations, as Sigma calls them; a median is a percentile."""

TESTS = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<", "eq": "=", "neq": "<>"}
"""Comparisons of conditions, as Sigma writes them and as they are shown."""

MAX_REFERENCES = 62
"""Most rules that a correlation refers to: they are the bits of a number."""

AND, OR, NOT = -1, -2, -3
"""Operators in the program of a boolean condition; places of rules are 0 and more."""

PLACE, MASK, KEY, TEXT, WHOLE, FRACTION, CARRIED, EVENT, ALERT = (
    f"__{name}"
    for name in ("place", "mask", "key", "text", "whole", "fraction", "carried", "event", "alert")
)
"""Columns of matches: the place of the correlation (less than 0: an event, which only passes); a
bit for each rule that is true; the group; the value as text, and as a number its whole part and
10^-9ths; what correlations of alerts need of the event, as JSON; the event; the alert, if it is
one."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule, or another correlation, that a correlation refers to."""

    name: str
    by: tuple[str | int, ...]
    """What it is grouped by: SQL texts over the columns of events that give a text or NULL; or of
    the alerts of a correlation, also the place among the values that this one is grouped by."""
    value: tuple[str | int, ...] = ()
    """The same of what is counted or summed up; several are counted as one."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation over known columns."""

    name: str
    kind: str
    """One of ``KINDS``."""
    references: tuple[Reference, ...]
    """In the order in which the correlation names them."""
    length: int
    """The timespan (µs)."""
    tests: tuple[tuple[str, int], ...] = ()
    """Comparisons of ``TESTS`` that all hold for the value; none where there is a program."""
    program: tuple[int, ...] = ()
    """A boolean condition over the rules that were seen, in postfix order: places of references,
    and ``AND``, ``OR``, ``NOT``."""
    percentile: int = 0
    """The percentile of ``value_percentile``, from 0 to 100."""
    groups: tuple[str, ...] = ()
    """Names of what it is grouped by, as it calls them."""
    fields: tuple[str, ...] = ()
    """Names of what is counted or summed up."""
    title: str | None = field(default=None, compare=False, repr=False)
    level: str | None = field(default=None, compare=False, repr=False)
    generate: bool = False
    """Whether the rules that it refers to are still told of by themselves."""

    @property
    def text(self) -> str:
        """The correlation in a line of words.

        >>> rule = Reference("failed", ("User",))
        >>> Correlation("c", "event_count", (rule,), 60_000_000, (("gte", 5),), groups=("u",)).text
        'c: event_count >= 5 of failed in 1 MINUTE by u'
        """
        tests = " and ".join(f"{TESTS[op]} {number}" for op, number in self.tests)
        what = f"{self.kind}({', '.join(self.fields)})" if self.fields else self.kind
        what += f" {self.percentile}" if self.kind == "value_percentile" else ""
        rules = ", ".join(reference.name for reference in self.references)
        by = f" by {', '.join(self.groups)}" if self.groups else ""
        condition = f"{what} {tests}" if tests else f"{what} by a boolean condition"
        return f"{self.name}: {condition} of {rules} in {span_text(self.length)}{by}"


class CorrelationSource(Described, Protocol):
    """A correlation that does not know the columns of an input yet."""

    @property
    def refers_to(self) -> tuple[str, ...]:
        """The names of the rules and correlations that it refers to."""

    @property
    def generate(self) -> bool:
        """Whether the rules that it refers to are still told of by themselves."""

    def bind(
        self, columns: Mapping[str, str], others: Mapping[str, CorrelationSource]
    ) -> Correlation:
        """Return the correlation over an input.

        Args:
            columns: name and Spark type of each column.
            others: the correlations of the set, by name.

        Raises:
            QueryError: it does not fit; the message names it.
        """


@dataclass(frozen=True, slots=True)
class CorrelateStep(OverOne):
    """Finds alerts in the matches of a relation, and takes those matches out; other rows pass."""

    correlations: tuple[tuple[int, Correlation], ...]
    """By their places; none of them refers to another."""

    def __str__(self) -> str:
        texts = "; ".join(correlation.text for _, correlation in self.correlations)
        return f"correlate {self.input}: {texts}"

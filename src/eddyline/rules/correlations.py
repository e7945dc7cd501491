"""The correlations of a set of rules: which there are, and which fit an input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.errors import QueryError
from eddyline.query.conditions import SkippedRule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eddyline.query.correlations import Correlation, CorrelationSource

NEEDS_TIME = (
    "a correlation looks at events within a timespan, so it needs their event time: "
    "start(…, time='…'), or of a named stream engine.stream(…, time='…')"
)


class CorrelationStore:
    """Correlations, each behind those that it refers to."""

    def __init__(self, sources: Iterable[CorrelationSource] = ()) -> None:
        self.sources = _in_order(sources)
        self.unfit: tuple[SkippedRule, ...] = ()
        """Those that do not fit the input that they met last, and why."""

    def check_new(self, other: CorrelationStore, rules: Collection[str]) -> None:
        """Raise QueryError if one of another set has a name that is taken."""
        taken = {*rules, *(each.name for each in self.sources)}
        for each in other.sources:
            if each.name in taken:
                msg = f"{each.name!r} exists already; names are unique in a set"
                raise QueryError(msg, name=each.name)

    def add(self, other: CorrelationStore) -> None:
        """Take in the correlations of another set."""
        self.sources = _in_order((*self.sources, *other.sources))

    def of(self, rules: Collection[str]) -> tuple[CorrelationSource, ...]:
        """Return the correlations of which all rules are among some."""
        known, found = set(rules), []
        for each in self.sources:
            if known.issuperset(each.refers_to):
                known.add(each.name)
                found.append(each)
        return tuple(found)

    def bound(
        self,
        columns: Mapping[str, str],
        *,
        has_time: bool,
        why_not: Callable[[str], str | None],
    ) -> tuple[Correlation, ...]:
        """Return the correlations that run over an input, and note why others do not.

        Args:
            columns: name and Spark type of each column.
            has_time: whether rows have an event time.
            why_not: says of a rule why it does not run, or None.
        """
        others = {each.name: each for each in self.sources}
        found: dict[str, Correlation] = {}
        unfit: dict[str, SkippedRule] = {}
        for each in self.sources:
            reason = None if has_time else NEEDS_TIME
            for name in each.refers_to:
                if name in unfit:
                    reason = reason or f"it refers to {name!r}, which does not run"
                elif name not in found:
                    reason = reason or why_not(name)
            try:
                if reason is None:
                    found[each.name] = each.bind(columns, others)
            except QueryError as error:
                reason = error.message
            if reason is not None:
                unfit[each.name] = SkippedRule(each.name, reason, each.text)
        self.unfit = tuple(unfit.values())
        return tuple(found.values())


def _in_order(sources: Iterable[CorrelationSource]) -> tuple[CorrelationSource, ...]:
    """Return correlations, each behind those that it refers to."""
    waiting = {each.name: each for each in sources}
    found: dict[str, CorrelationSource] = {}
    while waiting:
        ready = [each for each in waiting.values() if not waiting.keys() & set(each.refers_to)]
        for each in ready or list(waiting.values()):
            found[each.name] = waiting.pop(each.name)
    return tuple(found.values())

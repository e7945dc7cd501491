"""Named rules of a set while they change.

The step of a query that finds the true rules is here, too. No Spark, no columns. Operators ask for
the rules of the moment before each micro-batch. What is added from several threads, or not at all
because of an error, is never seen in part. Correlations of a set refer to its rules, each behind
those that it refers to.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Protocol

from eddyline.errors import EddylineError, OptionError, QueryError
from eddyline.query.conditions import SkippedRule
from eddyline.query.rules.rule import chosen
from eddyline.query.rules.sources import check_rule, rule_source
from eddyline.query.steps import RESULT, OverOne
from eddyline.registry import checked_text, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from eddyline.options import SharingOptions
    from eddyline.query.conditions import RuleSource
    from eddyline.query.correlations import Correlation, CorrelationSource
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.rules.rule import Facts
    from eddyline.query.rules.sources import PredicateRule, SqlRule
    from eddyline.runtime.journal import JournalEntry

    Unfit = Callable[[Collection[RuleSource], bool], Iterable[SkippedRule]]

ON_ERROR = ("raise", "skip")

MAX_NAMED = 10
"""Rules that an error names."""

MAX_SHOWN = 60
"""Characters of a text that an error shows."""

MAX_CHECKED = 10_000
"""Rules added at once that are read at once; of more, each is read when it meets columns."""

SIGMA = re.compile(r"^\s*(detection|logsource)\s*:", re.MULTILINE)
"""A line that Sigma rules have."""

HOW_TO_ADD = (
    "write add('r1', \"a > 5\") or add({'r1': \"a > 5\"}); Sigma rules, as YAML or files, come "
    "with add(el.sigma.load(…))"
)


def rules_by_name(rules: Any, rule: Any) -> dict[str, Any]:
    """Return rules by their names.

    Raises:
        QueryError: they have none.
    """
    if isinstance(rules, Mapping):
        return dict(rules)
    if isinstance(rules, str) and rule is not None:
        return {rules: rule}
    got = type(rules).__name__
    if isinstance(rules, str):
        got = f"the text {shorten(rules, MAX_SHOWN, placeholder='…')!r} alone"
    msg = f"rules are given by their names, got {got}; {HOW_TO_ADD}"
    raise QueryError(msg, got=got)


class Follower(Protocol):
    """Keeps a set as something else says, such as a folder of files."""

    @property
    def place(self) -> str:
        """What it follows, such as the path of a folder."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """What it could not take in, and why."""

    def look(self, store: RuleStore, batch_id: int) -> list[JournalEntry]:
        """Change the set, if that has changed.

        Args:
            store: the set.
            batch_id: the micro-batch that is about to begin.

        Returns:
            What could not be taken in, once.
        """


class RuleStore:
    """Named rules in an order.

    Of some rules, ``unfit`` returns those that do not fit a stream that is being read, or raises if
    they may not be skipped: an error is better here than in a run.

    Raises:
        OptionError: ``on_error`` is neither.
    """

    def __init__(
        self,
        name: str,
        options: SharingOptions,
        functions: Mapping[str, FunctionPredicate],
        on_error: str = "raise",
        unfit: Unfit = lambda _rules, _skips: (),
    ) -> None:
        if on_error not in ON_ERROR:
            raise OptionError(unknown("on_error", on_error, ON_ERROR), on_error=on_error)
        self.name = name
        self.options = options
        self.functions = functions
        self.on_error = on_error
        self.skips_new = self.skips
        """Whether that holds for rules that are added by themselves, too: their author is there."""
        self.unread: tuple[SkippedRule, ...] = ()
        """Rules that could not be read at all, and why."""
        self.follower: Follower | None = None
        """What the set follows, if it follows something."""
        self._unfit_of = unfit
        self._unfit: dict[str, SkippedRule] = {}
        self._sources: dict[str, RuleSource] = {}
        self._version = 0
        self._lock = threading.RLock()

    @property
    def skips(self) -> bool:
        """Whether rules that cannot be read or do not fit are skipped, and not an error."""
        return self.on_error == "skip"

    def now(self) -> tuple[int, dict[str, RuleSource]]:
        """Return the rules as they are, and a number that is another one after each change."""
        with self._lock:
            return self._version, dict(self._sources)

    def follow(self, batch_id: int) -> list[JournalEntry]:
        """Take in what has changed where the set comes from; returns what could not be."""
        return [] if self.follower is None else self.follower.look(self, batch_id)

    @property
    def troubles(self) -> tuple[str, ...]:
        """What could not be taken in from where the set comes from, and why."""
        return () if self.follower is None else self.follower.troubles

    def skipped(
        self, met: Mapping[str, RuleSource], refused: Iterable[SkippedRule]
    ) -> tuple[SkippedRule, ...]:
        """Return the rules that do not run, and why; those met may be gone or replaced by now."""
        with self._lock:
            names = {name for name, source in met.items() if self._sources.get(name) == source}
            here = (rule for rule in refused if rule.name in names)
            unfit = (rule for name, rule in self._unfit.items() if name not in names)
            return (*self.unread, *here, *unfit)

    # -- changes --------------------------------------------------------------------------------

    def add(self, rules: Mapping[str, Any]) -> None:
        """Add rules of texts and predicates under new names, all or none."""
        with self._lock:
            self._check_new(rules)
            sources = {name: self._source(name, condition) for name, condition in rules.items()}
            unread: list[SkippedRule] = []
            if len(sources) <= MAX_CHECKED:
                wrong = [(source, self._why_unreadable(source)) for source in sources.values()]
                unread = [
                    SkippedRule(source.name, why, source.text) for source, why in wrong if why
                ]
            left_out = {rule.name for rule in unread}
            fine = {name: source for name, source in sources.items() if name not in left_out}
            self.put(fine, unread, skips=self.skips_new)

    def add_rules(self, rules: Mapping[str, RuleSource], unread: Iterable[SkippedRule]) -> None:
        """Add rules that were read elsewhere, and those that could not be read; see ``add``."""
        unread = tuple(unread)
        with self._lock:
            self._check_new([*rules, *(rule.name for rule in unread)])
            self.put(rules, unread, skips=self.skips)

    def chosen(
        self, names: Collection[str], facts: Facts | None = None
    ) -> tuple[dict[str, RuleSource], tuple[SkippedRule, ...]]:
        """Return the rules of some names, or of all, that have the facts; none if nothing is said.

        Those that could not be read come apart: of these nothing is known but their names.
        """
        with self._lock:
            for name in names:
                self._check_known(name)
            if facts is None or all(fact is None for fact in facts.values()):
                unread = tuple(rule for rule in self.unread if rule.name in names)
                return {
                    name: source for name, source in self._sources.items() if name in names
                }, unread
            sources = chosen(self._sources, facts)
            return {
                name: source for name, source in sources.items() if not names or name in names
            }, ()

    def remove(self, names: Collection[str], facts: Facts | None = None) -> None:
        """Remove rules, all or, if one is not there, none; see ``chosen``."""
        with self._lock:
            sources, unread = self.chosen(names, facts)
            names = {*sources, *(rule.name for rule in unread)}
            for name in names:
                self._sources.pop(name, None)
                self._unfit.pop(name, None)
            self.unread = tuple(rule for rule in self.unread if rule.name not in names)
            self._version += bool(names)

    def replace(self, name: str, condition: Any) -> None:
        """Replace a rule by a text or predicate that fits, at its place."""
        with self._lock:
            self._check_known(name)
            self.put({name: self._readable(name, condition)})

    def replace_rules(self, rules: Mapping[str, RuleSource], unread: Iterable[SkippedRule]) -> None:
        """Replace rules at their places by those that were read elsewhere, all or none."""
        unread = tuple(unread)
        with self._lock:
            for name in (*rules, *(skipped.name for skipped in unread)):
                self._check_known(name)
            for rule in unread:
                if rule.name in self._sources:
                    msg = (
                        f"rule {rule.name!r} is not replaced: the new one is skipped: {rule.reason}"
                    )
                    raise QueryError(msg, name=rule.name)
            self.put(rules, unread)

    def put(
        self,
        rules: Mapping[str, RuleSource],
        unread: Iterable[SkippedRule] = (),
        *,
        skips: bool = False,
    ) -> None:
        """Take rules in, whether or not there are others of their names.

        With ``skips``, rules that do not fit a stream are skipped, and not an error.

        Raises:
            QueryError: one does not fit, and may not be skipped; then nothing changes.
        """
        with self._lock:
            unfit = {rule.name: rule for rule in self._unfit_of(rules.values(), skips)}
            skipped = {rule.name: rule for rule in unread}
            new = {*rules, *skipped}
            self.unread = (
                *(rule for rule in self.unread if rule.name not in new),
                *skipped.values(),
            )
            if rules:
                kept = {name: why for name, why in self._unfit.items() if name not in rules}
                self._unfit = kept | unfit
                self._sources.update(rules)
                self._version += 1

    # -- checks ---------------------------------------------------------------------------------

    def check(self, name: str, condition: Any, *, is_new: bool) -> None:
        """Check that a rule could be added, or replace the one of its name; nothing is changed.

        Raises:
            QueryError: it could not, whatever ``on_error`` is.
        """
        with self._lock:
            if is_new:
                self._check_new([name])
            else:
                self._check_known(name)
            self._unfit_of([self._readable(name, condition)], False)

    def _readable(self, name: str, condition: Any) -> SqlRule | PredicateRule:
        source = self._source(name, condition)
        self._check_readable(source)
        return source

    def _source(self, name: Any, rule: Any) -> SqlRule | PredicateRule:
        if not isinstance(name, str) or not name:
            msg = f"a rule is named by a text that is not empty, got {name!r}"
            raise QueryError(msg, name=name)
        return rule_source(name, rule, self.functions)

    def _why_unreadable(self, source: SqlRule | PredicateRule) -> str:
        """Return the reason to skip a rule; its names are looked up when it meets columns."""
        try:
            self._check_readable(source)
        except EddylineError as error:
            if not self.skips_new:
                raise
            return error.message
        return ""

    @staticmethod
    def _check_readable(source: SqlRule | PredicateRule) -> None:
        try:
            check_rule(source)
        except EddylineError as error:
            if not SIGMA.search(source.text):
                raise
            msg = f"rule {source.name!r} is no SQL condition but a Sigma rule; {HOW_TO_ADD}"
            raise QueryError(msg, name=source.name) from error

    def _check_known(self, name: str) -> None:
        names = [*self._sources, *(rule.name for rule in self.unread)]
        if checked_text("name of a rule", name) not in names:
            raise QueryError(unknown("rule", name, names), name=name)

    def _check_new(self, names: Iterable[str]) -> None:
        taken = [name for name in names if name in self._sources]
        if len(taken) == 1:
            msg = f"rule {taken[0]!r} exists already; use replace({taken[0]!r}, …)"
            raise QueryError(msg, name=taken[0])
        if taken:
            more = f", … {len(taken) - MAX_NAMED:,} more" if len(taken) > MAX_NAMED else ""
            listed = ", ".join(map(repr, taken[:MAX_NAMED])) + more
            msg = f"rules {listed} exist already; use replace"
            raise QueryError(msg, names=tuple(taken))


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
        taken = {*rules, *(source.name for source in self.sources)}
        for correlation in other.sources:
            if correlation.name in taken:
                msg = f"{correlation.name!r} exists already; names are unique in a set"
                raise QueryError(msg, name=correlation.name)

    def add(self, other: CorrelationStore) -> None:
        """Take in the correlations of another set."""
        self.sources = _in_order((*self.sources, *other.sources))

    def of(self, rules: Collection[str]) -> tuple[CorrelationSource, ...]:
        """Return the correlations of which all rules are among some."""
        names, correlations = set(rules), []
        for correlation in self.sources:
            if names.issuperset(correlation.refers_to):
                names.add(correlation.name)
                correlations.append(correlation)
        return tuple(correlations)

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
        others = {source.name: source for source in self.sources}
        correlations: dict[str, Correlation] = {}
        unfit: dict[str, SkippedRule] = {}
        for correlation in self.sources:
            reason = None if has_time else NEEDS_TIME
            for name in correlation.refers_to:
                if name in unfit:
                    reason = reason or f"it refers to {name!r}, which does not run"
                elif name not in correlations:
                    reason = reason or why_not(name)
            try:
                if reason is None:
                    correlations[correlation.name] = correlation.bind(columns, others)
            except QueryError as error:
                reason = error.message
            if reason is not None:
                unfit[correlation.name] = SkippedRule(correlation.name, reason, correlation.text)
        self.unfit = tuple(unfit.values())
        return tuple(correlations.values())


def _in_order(sources: Iterable[CorrelationSource]) -> tuple[CorrelationSource, ...]:
    """Return correlations, each behind those that it refers to."""
    waiting = {source.name: source for source in sources}
    ordered: dict[str, CorrelationSource] = {}
    while waiting:
        ready = [
            source for source in waiting.values() if not waiting.keys() & set(source.refers_to)
        ]
        for correlation in ready or list(waiting.values()):
            ordered[correlation.name] = waiting.pop(correlation.name)
    return tuple(ordered.values())


class Rules(Protocol):
    """A set of rules that may change while it runs; on Spark, ``el.RuleSet``."""

    @property
    def name(self) -> str:
        """The set's name."""

    @property
    def text(self) -> str:
        """The rules as they were written, each on a line, the first of many."""

    @property
    def options(self) -> SharingOptions:
        """Options by which plans are made."""

    @property
    def functions(self) -> Mapping[str, FunctionPredicate]:
        """The Python functions that the rules call, by their names in the rules."""

    def operator(self, step: RuleStep, site: Any) -> Any:
        """Return the operator of a step with these rules."""


@dataclass(frozen=True, slots=True)
class RuleStep(OverOne):
    """Adds the names of the rules that are true for each row of a relation."""

    rules: Rules = field(repr=False)
    column: str = "matches"
    """The new column: an array of names, in the order of the set; or of ``as_struct``."""
    keep_unmatched: bool = False
    """Whether rows for which no rule is true stay, with an empty array."""
    output: str = RESULT
    as_struct: bool = field(default=False, repr=False)
    """Whether it is an array of id, title and level of rules."""

    @property
    def functions(self) -> Mapping[str, FunctionPredicate]:
        """The Python functions that the rules call, by their names in the rules."""
        return self.rules.functions

    def __str__(self) -> str:
        which = "every row" if self.keep_unmatched else "rows with a match"
        name = "" if self.rules.name == "rules" else f" {self.rules.name}"
        content = f"{self.column} (id, title, level)" if self.as_struct else self.column
        return f"rules{name} over {self.input}: {content} of {which}"

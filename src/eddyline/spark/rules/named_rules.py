"""The rules of a set by their names: added, removed, replaced, chosen; nothing of how they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self, Unpack

from eddyline.errors import QueryError
from eddyline.query.rules.sources import functions_of
from eddyline.rules.store import CorrelationStore, rules_by_name
from eddyline.spark.rules.operator import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.query.conditions import RuleSource, SkippedRule
    from eddyline.query.correlations import CorrelationSource
    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.query.rules.rule import Facts, Rule
    from eddyline.rules.store import RuleStore

    Given = str | Predicate | Rule
    """A condition as SQL text or predicate, or one with its level, tags and title."""


class NamedRules(ABC):
    """Named rules over one schema that may change at any time."""

    name: str
    store: RuleStore
    correlated: CorrelationStore
    """The correlations of the rules."""

    @abstractmethod
    def __init__(self, rules: Any = None, **options: Any) -> None:
        """Take in rules and the options of a set."""

    @property
    @abstractmethod
    def skipped(self) -> tuple[SkippedRule, ...]:
        """The rules that do not run, and why."""

    @abstractmethod
    def _made_with(self) -> dict[str, Any]:
        """Return the arguments that a set like this one is made with, but for its rules."""

    @abstractmethod
    def _changed_since(self, version: int) -> None:
        """Is told after a change which version the rules had before."""

    @classmethod
    def of(
        cls,
        sources: Iterable[RuleSource],
        skipped: Sequence[SkippedRule] = (),
        correlations: Sequence[CorrelationSource] = (),
        **options: Any,
    ) -> Self:
        """Return a set of rules that were read elsewhere, and correlations of them.

        Rules that could not be read are listed in ``skipped``; options are as for ``RuleSet``, but
        a rule that is added by itself and cannot be read, or does not fit, is always an error.

        Raises:
            QueryError: two rules have one name.
        """
        made = cls(**options)
        by_name: dict[str, RuleSource] = {}
        for source in sources:
            if by_name.setdefault(source.name, source) is not source:
                msg = f"two rules are called {source.name!r}; names are unique in a set"
                raise QueryError(msg, name=source.name)
        made.store.put(by_name)
        made.store.unread = tuple(skipped)
        made.store.skips_new = False
        made.correlated = CorrelationStore(correlations)
        return made

    @property
    def correlations(self) -> dict[str, Mapping[str, Any]]:
        """The correlations of the set's rules by their names: text, title, level, type, rules.

        A run finds their alerts where its stream has an event time; see ``start``.
        """
        sources = self.correlated.sources
        return {each.name: {"text": each.text, **each.info} for each in sources}

    @property
    def names(self) -> tuple[str, ...]:
        """The rules that run, in the order of the set."""
        skipped = {each.name for each in self.skipped}
        return tuple(name for name in self.store.now()[1] if name not in skipped)

    @property
    def info(self) -> dict[str, Mapping[str, Any]]:
        """Facts about each rule: its text, and those that its source has (title, level, tags)."""
        _, sources = self.store.now()
        return {name: {"text": source.text, **source.info} for name, source in sources.items()}

    @property
    def functions(self) -> dict[str, FunctionPredicate]:
        """The Python functions that the rules call, by their names in the rules."""
        sources = self.store.now()[1].values()
        return {name: each for source in sources for name, each in functions_of(source).items()}

    @property
    def text(self) -> str:
        """The rules as they were written or by their titles, each on a line, the first of many."""
        return text_of(self.store.now()[1].values())

    def add(
        self,
        rules: str | Mapping[str, Given] | NamedRules,
        rule: Given | None = None,
    ) -> None:
        """Add rules: ``add("r1", "a > 5")``, several by their names, or those of another set.

        Instead of a condition, ``el.Rule`` gives one with its level, tags and title.

        With ``on_error="skip"`` a rule that cannot be read, or does not fit the columns of a stream
        that an active run of the set reads, is listed in ``skipped`` at once. What another set (one
        of ``el.sigma.load``, say) has skipped is skipped here too.

        Raises:
            QueryError: a name is taken; or with ``on_error="raise"``, or in a set that was read
                from files, a rule is no condition or does not fit the stream of an active run. Then
                none is added.
        """
        version, _ = self.store.now()
        if isinstance(rules, NamedRules):
            self.correlated.check_new(rules.correlated, self.info)
            self.store.add_rules(rules.store.now()[1], rules.store.unread)
            self.correlated.add(rules.correlated)
        else:
            self.store.add(rules_by_name(rules, rule))
        self._changed_since(version)

    def select(self, *names: str, name: str | None = None, **facts: Unpack[Facts]) -> Self:
        """Return a set of some of the rules, which from then on is a set of its own.

        It has the functions and options of this one. Of what is said all has to hold:
        ``select(min_level="high", tag="pii")`` are the rules with that tag from that level on.
        Correlations come along where all of their rules do.

        Args:
            *names: of rules; without any, those of all names.
            name: what the new set is called, as for ``RuleSet``.
            **facts: ``level`` (exactly this one, or one of several), ``min_level`` (this or a
                higher one: informational < low < medium < high < critical) and ``tag`` (this one,
                or one of several). A rule without a level is of none.

        Raises:
            QueryError: nothing is said, there is no rule of a name, or none has the tag.
            OptionError: an unknown level.
        """
        if not names and all(each is None for each in facts.values()):
            msg = "select takes names of rules, level=…, min_level=… or tag=…; got none of them"
            raise QueryError(msg, rules=self.name)
        found, unread = self.store.chosen(names, facts)
        with_rules = self.correlated.of(found)
        made = type(self).of(
            found.values(), unread, with_rules, **{**self._made_with(), "name": name}
        )
        made.store.skips_new = self.store.skips_new
        return made

    def remove(self, *names: str, **facts: Unpack[Facts]) -> None:
        """Remove rules by their names, or by level or tag as ``select`` chooses them.

        Correlations go with any of their rules.

        Raises:
            QueryError: there is no rule of a name, or none has the tag; then none is removed.
            OptionError: an unknown level.
        """
        version, _ = self.store.now()
        self.store.remove(names, facts)
        self.correlated = CorrelationStore(self.correlated.of(self.info))
        self._changed_since(version)

    def replace(self, name: str | NamedRules, rule: Given | None = None) -> None:
        """Replace a rule, or several by the rules of another set; each keeps its place in the set.

        Level, tags and title are those of the new rule. If only these change, counts and plan stay.

        Raises:
            QueryError: there is no rule of a name, the new one is no condition, or it does not
                fit the columns of a stream that an active run of the set reads. Then the old rules
                stay, whatever ``on_error`` is.
        """
        version, _ = self.store.now()
        if isinstance(name, NamedRules):
            self.store.replace_rules(name.store.now()[1], name.store.unread)
        else:
            ((name, given),) = rules_by_name(name, rule).items()
            self.store.replace(name, given)
        self._changed_since(version)

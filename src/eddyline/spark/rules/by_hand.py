"""The rules of a set as a person changes them while a run has them; see ``runtime.by_hand``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from eddyline.errors import QueryError
from eddyline.query.rules.rule import Rule
from eddyline.query.rules.sources import SqlRule
from eddyline.registry import unknown
from eddyline.rules.description import to_come
from eddyline.rules.view import COMPONENT
from eddyline.runtime.by_hand import BY_PERSON, RuleList, RuleShown
from eddyline.runtime.journal import JournalEntry
from eddyline.sql.functions import JAVA_CALLS, as_name
from eddyline.sql.parsing import parse_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from eddyline.query.conditions import SkippedRule
    from eddyline.runtime.by_hand import RuleChange
    from eddyline.spark.rules.named_rules import NamedRules
    from eddyline.spark.rules.operator import RuleOperator

DONE = {"add": "added", "replace": "replaced", "remove": "removed"}
"""What was done, as the journal has it of changes by programs."""


class RulesByHand:
    """The rules of a set in one run; a ``ChangeableRules``.

    Args:
        rules: the set.
        operator: finds them in the run.
        note: tells the journal of the set.
    """

    def __init__(
        self,
        rules: NamedRules,
        operator: RuleOperator,
        note: Callable[[Sequence[JournalEntry]], None],
    ) -> None:
        self._rules = rules
        self._store = rules.store
        self._operator = operator
        self._note = note
        self._changing = threading.Lock()

    # -- what a person sees -----------------------------------------------------------------------

    def found(self, part: str, most: int) -> RuleList:
        """Return the first rules whose names have a part; see ``ChangeableRules``."""
        _, sources = self._store.now()
        skipped = {each.name: each for each in self._operator.skipped}
        names = [*sources, *(name for name in skipped if name not in sources)]
        found = [name for name in names if part.casefold() in name.casefold()]
        follower = self._store.follower
        after = {name: each for name, each in sources.items() if name not in skipped}
        return RuleList(
            name=self._rules.name,
            rules=self._shown(found[:most]),
            n_found=len(found),
            n_all=len(names),
            follows="" if follower is None else follower.place,
            notes=to_come(self._operator.compiled.running, after),
        )

    def rule(self, name: str) -> RuleShown:
        """Return one rule; see ``ChangeableRules``."""
        found = self._shown([name])
        if not found:
            raise QueryError(unknown("rule", name, list(self._store.now()[1])), name=name)
        return found[0]

    def _shown(self, names: Iterable[str]) -> tuple[RuleShown, ...]:
        """Return rules of some names, without those that there are not."""
        wanted = dict.fromkeys(names)
        _, sources = self._store.now()
        skipped = {each.name: each for each in self._operator.skipped}
        counts = {each.name: each for each in self._operator.counts() if each.name in wanted}
        met = self._operator.compiled.sources

        def shown(name: str) -> RuleShown:
            source, why = sources.get(name), skipped.get(name)
            if source is None:
                return _unread(skipped[name])
            is_met = met.get(name) == source
            count = counts.get(name) if is_met else None
            return RuleShown(
                name=name,
                text=source.text,
                level=str(source.info.get("level") or ""),
                is_sql=isinstance(source, SqlRule),
                why_not="" if why is None else why.reason,
                is_in_force=is_met,
                n_rows=None if count is None else count.n_rows,
                n_matches=None if count is None else count.n_matches,
            )

        return tuple(shown(name) for name in wanted if name in sources or name in skipped)

    # -- what a person changes --------------------------------------------------------------------

    def check(self, change: RuleChange) -> None:
        """Raise if a change is not possible; see ``ChangeableRules``."""
        if self._store.follower is not None:
            msg = (
                f"the rules of {self._rules.name!r} follow {self._store.follower.place}; change "
                f"its files, and what changed is in force from the next micro-batch on"
            )
            raise QueryError(msg, rules=self._rules.name)
        if change.how != "add":
            self._check_is_seen(change)
        if change.how != "remove":
            _check_calls_no_java(change)
            self._store.check(change.name, self._made(change), is_new=change.how == "add")

    def _check_is_seen(self, change: RuleChange) -> None:
        now = self.rule(change.name)
        if now.mark != change.mark:
            msg = (
                f"rule {change.name!r} is another one than was shown: somebody has changed it "
                f"meanwhile; it is now {now.text!r:.300}"
            )
            raise QueryError(msg, name=change.name)
        if change.how == "replace" and change.text == now.text:
            msg = f"rule {change.name!r} has this text already"
            raise QueryError(msg, name=change.name)

    def _made(self, change: RuleChange) -> Rule:
        """Return the new rule: one that takes the place of another keeps its level, title, tags."""
        source: Any = self._store.now()[1].get(change.name)
        if source is None or change.how == "add":
            return Rule(change.text, level=change.level or None)
        before = Rule.of(source)
        return Rule(change.text, level=before.level, tags=before.tags, title=before.title)

    def change(self, change: RuleChange, batch_id: int) -> JournalEntry:
        """Change the rules from the next micro-batch on; see ``ChangeableRules``."""
        with self._changing:
            self.check(change)
            before = None if change.how == "add" else self.rule(change.name).text
            if change.how == "add":
                self._rules.add(change.name, self._made(change))
            elif change.how == "replace":
                self._rules.replace(change.name, self._made(change))
            else:
                self._rules.remove(change.name)
        evidence = {**BY_PERSON, DONE[change.how]: [change.name]}
        after = None if change.how == "remove" else change.text
        entry = JournalEntry(batch_id, COMPONENT, "rules", before, after, evidence)
        self._note([entry])
        return entry


def _unread(skipped: SkippedRule) -> RuleShown:
    return RuleShown(skipped.name, skipped.text, is_sql=False, why_not=skipped.reason)


def _check_calls_no_java(change: RuleChange) -> None:
    """Raise if a condition calls Java: who may change rules may not run anything else."""
    try:
        tree = parse_condition(change.text, f"rule {change.name!r}")
    except QueryError:
        return  # whoever reads the whole rule says better what is wrong
    called = next((name for each in tree.walk() if (name := as_name(each)) in JAVA_CALLS), None)
    if called is not None:
        msg = (
            f"rule {change.name!r} calls {called}, which can run any method of Java: such a rule "
            f"comes from the program alone"
        )
        raise QueryError(msg, name=change.name)

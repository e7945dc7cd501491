"""Decisions of a person while a query runs: pins, options and rules.

``Pins`` holds plans in force whatever the evidence says, until they may adapt. A choice that is
held goes on learning and decides nothing, in tasks and on the driver alike. A pin is written down
at once and outlives its run. Like every plan it changes the work, never the answer. A ``Property``
is an option that may have another value until the run ends.

``ChangeableRules`` is what a rule set shows of its rules and lets a person change. A change is
checked first, in full; one that is not possible changes nothing. It is in force from the next
micro-batch on and ends with the process: the program that starts the query has its own rules.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import PlanError, StateError
from eddyline.runtime.checkpoint import read_struct
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eddyline.runtime.choice import Advice, Choice

BY_PERSON = {"by": "person"}
"""Evidence of what a person has decided."""


class Pin(msgspec.Struct, frozen=True):
    """What a person has pinned."""

    plan: Any
    batch_id: int
    """The micro-batch after which it was pinned; -1 before the first."""


@dataclass(frozen=True, slots=True)
class PinView:
    """A plan that is pinned, as people may want to see it."""

    component: str
    pin: Pin
    words: Any
    """The plan as people are told of it."""
    advice: Advice | None
    """What the evidence says, its plan in such words, too."""
    is_in_force: bool
    """False until the next micro-batch begins."""


class Pins:
    """The pins of one run, in a file of its checkpoint.

    Args:
        path: of the file; it is made with the first pin.

    Raises:
        StateError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        advice = "move the file away to adapt again"
        self._pins = read_struct(path, dict[str, Pin], advice, "the pinned plans in ") or {}
        self._waiting = set(self._pins)
        """Components whose plan is put in force by the next micro-batch."""

    def __len__(self) -> int:
        return len(self._pins)

    def pin(
        self, targets: Mapping[str, Choice], plans: Mapping[str, Any], batch_id: int
    ) -> list[JournalEntry]:
        """Pin plans; those that are not in force yet are from the next micro-batch on.

        Args:
            targets: what may be pinned, by component.
            plans: by component; each is one of the targets.
            batch_id: the newest micro-batch that is done.

        Returns:
            The decisions, a person's.

        Raises:
            PlanError: one of the plans is not possible; nothing is pinned then.
            StateError: the pins cannot be written.
        """
        for component, plan in plans.items():
            targets[component].check(plan)
        plans = {name: msgspec.to_builtins(plan) for name, plan in plans.items()}  # kept as it is
        self._save(
            {**self._pins, **{name: Pin(kept_plan, batch_id) for name, kept_plan in plans.items()}}
        )
        entries = []
        for component, plan in plans.items():
            target = targets[component]
            words = target.in_words(target.plan), target.in_words(plan)
            entries.append(JournalEntry(batch_id, component, "pin", *words, BY_PERSON))
            if plan == target.plan:
                target.hold(plan)
                self._waiting.discard(component)
            else:
                self._waiting.add(component)
        return entries

    def adapt(self, targets: Mapping[str, Choice], batch_id: int) -> list[JournalEntry]:
        """Let plans adapt again; what is not pinned goes on as it does.

        Returns:
            The decisions, a person's.

        Raises:
            StateError: the pins cannot be written.
        """
        free = [name for name in targets if name in self._pins]
        entries = []
        for component in free:
            evidence = BY_PERSON | {"pinned_after_batch": self._pins[component].batch_id}
            words = targets[component].in_words(targets[component].plan)
            entries.append(JournalEntry(batch_id, component, "adapt", words, words, evidence))
        self._drop(free)
        for component in free:
            targets[component].release()
        return entries

    def apply(self, targets: Mapping[str, Choice], batch_id: int) -> list[JournalEntry]:
        """Put pinned plans in force; called before each micro-batch.

        A pin ends with what it was of, such as the rules of a set that has changed.

        Returns:
            The decisions to let plans go that no longer fit.
        """
        entries = []
        for component, pin in self._pins.items():
            why = self._why_gone(component, pin, targets.get(component))
            if why:
                entries.append(
                    JournalEntry(batch_id, component, "adapt", pin.plan, evidence={"why": why})
                )
        self._waiting.clear()
        self._drop([entry.component for entry in entries])
        return entries

    def _why_gone(self, component: str, pin: Pin, target: Choice | None) -> str:
        """Put a pinned plan in force, or return why it cannot be; "" if it is."""
        if target is None:
            return "the query has no such component any more"
        if component not in self._waiting:
            return "" if target.is_held else "what the plan was of has changed"
        try:
            target.hold(pin.plan)
        except PlanError as error:
            return error.message
        return ""

    def views(self, targets: Mapping[str, Choice]) -> tuple[PinView, ...]:
        """Return the pins, with what the evidence says of them."""
        views = []
        for name, pin in self._pins.items():
            if (target := targets.get(name)) is None:
                continue
            # What a pin was of may have changed, until the next batch ends it.
            words = target.in_words(pin.plan) if target.is_possible(pin.plan) else pin.plan
            advice = target.advice()
            if advice is not None:
                advice = replace(advice, plan=target.in_words(advice.plan))
            views.append(PinView(name, pin, words, advice, name not in self._waiting))
        return tuple(views)

    def _drop(self, components: Sequence[str]) -> None:
        if components:
            self._save({name: pin for name, pin in self._pins.items() if name not in components})
            self._waiting -= set(components)

    def _save(self, pins: dict[str, Pin]) -> None:
        try:
            replace_file(self.path, msgspec.json.encode(pins))
        except OSError as error:
            reason = f"{error}; free space, or give write permission"
            if not self.path.parent.is_dir():
                reason = (
                    "the folder is gone, as a temporary checkpoint is when its run ends; pin while "
                    "the query runs, or start it with checkpoint="
                )
            msg = f"cannot write the pins to {self.path}: {reason}"
            raise StateError(msg, path=str(self.path)) from error
        self._pins = pins


@dataclass(frozen=True, slots=True)
class Property:
    """A numeric option that a person may change while a query runs."""

    component: str
    """The operator that has it."""
    name: str
    value: float | None
    """None: it has no limit of its own."""
    meaning: str


@dataclass(frozen=True, slots=True)
class RuleShown:
    """A rule as a person sees it who may change it."""

    name: str
    text: str
    """As its author wrote it."""
    level: str = ""
    """Empty if it has none."""
    is_sql: bool = True
    """Whether the text is the condition in SQL; else it is Sigma, or names a function."""
    why_not: str = ""
    """Why it does not run; empty if it does."""
    is_in_force: bool = True
    """Whether the last micro-batch used the rule in this form."""
    n_rows: int | None = None
    """Rows that the rule was tested on; None if unknown."""
    n_matches: int | None = None
    """Rows among them that matched."""

    @property
    def mark(self) -> str:
        """Hash of the text: it shows whether the rule changed after a person saw it."""
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class RuleList:
    """Some of the rules of a query."""

    name: str
    """Of the set."""
    rules: Sequence[RuleShown]
    n_found: int
    """Rules that the search found; ``rules`` are the first of them."""
    n_all: int
    """All rules of the set."""
    follows: str = ""
    """The folder or file that decides what rules there are; empty if a person may."""
    notes: tuple[str, ...] = ()
    """Changes that no micro-batch has used yet."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """What a person asks for: ``add``, ``replace`` or ``remove``."""

    how: str
    name: str
    text: str = ""
    """The new condition, as SQL."""
    level: str = ""
    """Of a rule that is added; one that is replaced keeps its own."""
    mark: str = ""
    """``RuleShown.mark`` of the rule that the person saw; empty if there was none."""


class ChangeableRules(Protocol):
    """The rules of a query that runs; from any thread."""

    def found(self, part: str, most: int) -> RuleList:
        """Return the first rules whose names contain a text, in upper or lower case.

        Args:
            part: the text; empty for all rules.
            most: most rules to return.
        """

    def rule(self, name: str) -> RuleShown:
        """Return one rule.

        Raises:
            QueryError: there is none of that name.
        """

    def check(self, change: RuleChange) -> None:
        """Raise if a change is not possible; nothing is changed.

        Raises:
            QueryError: the set follows files; the name is taken, or unknown; the rule is another
                one than the person saw; the condition cannot be read, does not fit the stream, or
                calls Java.
            OptionError: an unknown level.
        """

    def change(self, change: RuleChange, batch_id: int) -> JournalEntry:
        """Change the rules, from the next micro-batch on; raises as ``check`` does.

        Args:
            change: what a person asks for.
            batch_id: the newest micro-batch that is done.

        Returns:
            The decision, for the journal.
        """

"""What a person decides about a query that runs: pinned plans, those that adapt again, rules.

What is asked is written down and journaled at once; a plan that is not in force yet is from the
next micro-batch on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eddyline.errors import PlanError, QueryError
from eddyline.registry import unknown
from eddyline.report import decisions as words
from eddyline.runtime.by_hand import Pins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eddyline.report.sections import Section
    from eddyline.runtime.by_hand import ChangeableRules, PinView, RuleChange
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.run.chain import Chain


class Steering:
    """The hand of a person on the plans of a run.

    Args:
        path: file of the pins.
        chain: returns the operators of the run.
        note: appends decisions to the journal.
        last_batch: returns the newest micro-batch that is done, -1 before the first.

    Raises:
        StateError: the pins cannot be read.
    """

    def __init__(
        self,
        path: Path,
        chain: Callable[[], Chain],
        note: Callable[[list[JournalEntry]], None],
        last_batch: Callable[[], int],
    ) -> None:
        self.deciding = threading.Lock()
        """Held while plans are decided: by operators that learn, or by a person."""
        self._chain = chain
        self._note = note
        self._last_batch = last_batch
        self._pins = Pins(path)

    def plan(self) -> dict[str, Any]:
        """Return the plans in force that could be others, by component."""
        return {name: each.plan for name, each in self._chain().chosen().items()}

    def plans_in_words(self) -> dict[str, Any]:
        """Return the same plans as people are told of them."""
        choices = self._chain().chosen().items()
        return {name: choice.in_words(choice.plan) for name, choice in choices}

    def pin(self, plan: Any, component: str | None) -> None:
        """Pin plans; see ``Steered.pin``."""
        targets = self._chain().chosen(component)
        with self.deciding:
            plans = _plans(plan, targets, component)
            self._note(self._pins.pin(targets, plans, self._last_batch()))

    def adapt(self, component: str | None) -> None:
        """Let plans adapt again; see ``Steered.adapt``."""
        targets = self._chain().chosen(component)
        able = {name: each for name, each in targets.items() if each.is_adaptive}
        if not able:
            msg = (
                f"{', '.join(targets)} cannot adapt: adaptation is switched off; start the query "
                f"with adaptive=True"
            )
            raise PlanError(msg, components=list(targets))
        with self.deciding:
            self._note(self._pins.adapt(able, self._last_batch()))

    def rules(self) -> ChangeableRules | None:
        """Return the rules that a person may change.

        None of a query without rules, and of one with several sets.
        """
        found = [each.by_hand for each in self._chain().operators if each.by_hand is not None]
        return found[0] if len(found) == 1 else None

    def change_rules(self, change: RuleChange) -> None:
        """Change the rules from the next micro-batch on; see ``ChangeableRules.change``.

        Raises:
            QueryError: it is not possible, or the query has no rules to change.
        """
        rules = self.rules()
        if rules is None:
            msg = "the query has no rules that can be changed"
            raise QueryError(msg)
        self._note([rules.change(change, self._last_batch())])

    def apply(self) -> None:
        """Put pinned plans in force; called where a run starts, and before each micro-batch."""
        with self.deciding:
            self._note(self._pins.apply(self._chain().choices, self._last_batch()))

    @property
    def n_pinned(self) -> int:
        """How many plans are pinned."""
        return len(self._pins)

    def views(self) -> tuple[PinView, ...]:
        """Return what is pinned."""
        with self.deciding:
            return self._pins.views(self._chain().choices)

    def lines(self) -> tuple[str, ...]:
        """Return what is pinned on a line for the progress; none if nothing is."""
        return words.pin_lines(self.views())

    def sections(self) -> list[Section]:
        """Return for people each plan in force, what is pinned, and the evidence on it."""
        with self.deciding:
            chosen = words.choice_sections([*self._chain().choices.values()])
        return [*chosen, *words.pin_sections(self.views())]


def _plans(plan: Any, targets: Mapping[str, Choice], component: str | None) -> dict[str, Any]:
    """Return plans by component from what was given as one.

    Raises:
        PlanError: it is of no component of the query, or it is not told of which.
    """
    if plan is None:
        return {name: each.plan for name, each in targets.items()}
    if isinstance(plan, Mapping) and not (len(targets) == 1 and component in targets):
        for name in plan:
            if name not in targets:
                raise PlanError(unknown("component", str(name), list(targets)), component=name)
        return dict(plan)
    if len(targets) > 1:
        msg = (
            f"{plan!r:.300} does not say of which component it is; give a dict with plans of some "
            f"of {', '.join(targets)}, or component="
        )
        raise PlanError(msg, components=list(targets))
    return dict.fromkeys(targets, plan)


class Steered:
    """A query that runs, and whose plans a person may pin."""

    steering: Steering
    """The hand of a person on its plans."""

    def plan(self) -> dict[str, Any]:
        """Return the plans in force that could be others, by component, as ``pin`` takes them.

        Raises:
            PlanError: the query has no such plan.
        """
        return self.steering.plan()

    def pin(self, plan: Any = None, *, component: str | None = None) -> None:
        """Keep plans in force whatever the evidence says, from the next micro-batch on.

        A pin outlives a restart from the checkpoint; it changes the work, never the answer.

        Args:
            plan: plans by component, as ``plan`` returns them, or
                the plan of the only component. The plans in force if omitted.
            component: a component, such as ``native`` or ``pipeline s``, or an operator, such as
                ``filter`` or ``join``, that it is about; all that the query has if omitted.

        Raises:
            PlanError: there is no such component, or the plan is not possible; nothing is pinned.
            StateError: the pin cannot be written.
        """
        self.steering.pin(plan, component)

    def adapt(self, component: str | None = None) -> None:
        """Let plans that are pinned follow the evidence again; they begin with those in force.

        Args:
            component: a component or an operator; all that the query has if omitted.

        Raises:
            PlanError: there is no such component, or the query was started with
                ``adaptive=False``.
            StateError: it cannot be written.
        """
        self.steering.adapt(component)

"""What a person may change of a run from its page, where that is switched on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.runtime.by_hand import ChangeableRules, RuleChange


@runtime_checkable
class Steerable(Protocol):
    """A run that a person may change; those of other processes are none."""

    def plans(self) -> Mapping[str, Any]:
        """Return the plans in force that could be others, by component.

        Raises:
            PlanError: it has none.
        """
        ...

    def pin(self, component: str | None) -> None:
        """Keep the plan in force of a component, or of all."""
        ...

    def adapt(self, component: str | None) -> None:
        """Let plans adapt again."""
        ...

    def stop(self) -> None:
        """Stop the run; a batch that is under way is interrupted."""
        ...


@runtime_checkable
class HasRules(Protocol):
    """A run that may have rules which a person may change."""

    def rules(self) -> ChangeableRules | None:
        """Return its rules; None if it has none."""
        ...

    def change_rules(self, change: RuleChange) -> None:
        """Change its rules from the next micro-batch on.

        Raises:
            EddylineError: that is not possible; nothing is changed.
        """
        ...


def rules_of(run: object) -> ChangeableRules | None:
    """Return the rules of a run that a person may change, if it has some."""
    return run.rules() if isinstance(run, HasRules) else None


@dataclass(frozen=True, slots=True)
class Hand:
    """One thing that a person may do."""

    label: str
    says: str
    """What it would do."""
    is_of_plans: bool = True
    """Whether it is about the plan of a component, or of all."""

    def do(self, name: str, run: Steerable, component: str | None) -> None:
        """Do it; ``name`` is its name in ``HANDS``."""
        if self.is_of_plans:
            getattr(run, name)(component)
        else:
            run.stop()


HANDS = {
    "pin": Hand(
        "Pin the plan",
        "The plan in force stays whatever the evidence says, also over restarts, until somebody "
        "lets it adapt again. Answers are the same under every plan.",
    ),
    "adapt": Hand(
        "Adapt again",
        "Plans that are pinned follow the evidence again, from the next batch on.",
    ),
    "stop": Hand(
        "Stop the run",
        "The run stops, in the middle of a batch if one is under way. From its checkpoint it goes "
        "on where it was when somebody starts it again: that batch then runs again.",
        is_of_plans=False,
    ),
}
"""What a person may do, by the name in addresses."""


@dataclass(frozen=True, slots=True)
class RuleHand:
    """One thing that a person may do with rules."""

    label: str
    says: str
    """What it would do."""


RULE_HANDS = {
    "add": RuleHand("Add a rule", "Rows are tested against this rule, too."),
    "replace": RuleHand("Replace the rule", "Rows are tested against the new condition only."),
    "remove": RuleHand(
        "Remove the rule",
        "No row is tested against it any more, and a correlation that refers to it finds nothing "
        "new.",
    ),
}
"""What a person may do with rules, by the name in addresses."""

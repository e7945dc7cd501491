"""What a person may change of a run from its page, where that is switched on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping


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

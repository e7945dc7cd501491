"""Plans that a person pins: they stay in force whatever the evidence says, until they may adapt.

A loop that is held goes on learning and decides nothing, in tasks and on the driver alike. A pin is
written down at once and outlives its run; like every plan it changes the work, never the answer.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import PlanError, StateError
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.loggable import UNKNOWN_NS, Held, Loggable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


BY_PERSON = {"by": "person"}
"""Evidence of what a person has decided."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What the evidence says of a plan that is held."""

    plan: Any
    """The plan that it calls the best, as plain values."""
    cost_ns: float = UNKNOWN_NS
    """Expected cost of that plan (ns per input row; nan: unknown)."""
    held_cost_ns: float = UNKNOWN_NS
    """Expected cost of the plan that is held (ns per input row; nan: unknown)."""


class Pinnable(Loggable):
    """One plan that a person may pin, by the component that the journal names.

    What can be pinned can be logged, too, and recalled where its conditions come again.
    """

    why_unlogged: str = "nothing is measured by which its conditions would be known again"

    @property
    def logged(self) -> tuple[Loggable, ...]:
        """What the log of plans knows of it: itself, or parts with conditions of their own."""
        return (self,)

    @property
    @abstractmethod
    def possible(self) -> str:
        """The plans that may be pinned, in words."""

    def advice(self) -> Advice | None:
        """Return what the evidence says; None if it says nothing."""
        return None

    # -- what a person decides ------------------------------------------------------------------

    def check(self, plan: Any) -> None:
        """Raise PlanError if a plan cannot be pinned."""
        if not self.is_possible(plan):
            msg = (
                f"{plan!r:.300} is no plan of {self.component!r}; possible is {self.possible}; in "
                f"force is {self.plan!r}"
            )
            raise PlanError(msg, component=self.component, plan=plan)

    def hold(self, plan: Any) -> None:
        """Put a plan in force, and keep it there; between batches, unless it is in force.

        Raises:
            PlanError: it cannot be pinned.
        """
        self.check(plan)
        if plan != self.plan:
            self.adopt(plan)
        self.loop.is_held = True

    def release(self) -> None:
        """Let the plan adapt again, from the one in force."""
        self.loop.is_held = False


class PlannedLoop(Held, Protocol):
    """A loop whose plan is one text of a few."""

    plan: str


class OneOf(Pinnable):
    """A plan that is one text of a few; all that a loop needs beside is to heed ``is_held``."""

    loop: PlannedLoop

    def __init__(
        self,
        loop: PlannedLoop,
        plans: Sequence[str],
        best: Callable[[], str | None] = lambda: None,
    ) -> None:
        super().__init__(loop)
        self.plans = tuple(plans)
        self.best = best
        """Returns the plan that the evidence calls the best; None if it does not tell."""

    @property
    def plan(self) -> str:
        """The plan in force."""
        return self.loop.plan

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return f"one of {', '.join(map(repr, self.plans))}"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is one of the plans."""
        return isinstance(plan, str) and plan in self.plans

    def adopt(self, plan: str) -> None:
        """Put another plan in force."""
        self.loop.plan = plan

    def advice(self) -> Advice | None:
        """Return the plan that the evidence calls the best."""
        best = self.best()
        return None if best is None else Advice(best)


class AsItStands(Pinnable):
    """A plan that nobody writes by hand: only the one in force can be pinned."""

    def __init__(self, loop: Held, plan: Callable[[], Any], why_unlogged: str = "") -> None:
        super().__init__(loop)
        self._plan = plan
        self.why_unlogged = why_unlogged or Pinnable.why_unlogged

    @property
    def plan(self) -> Any:
        """The plan in force."""
        return self._plan()

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return "only the plan in force"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is the plan in force."""
        return type(plan) is type(self.plan) and bool(plan == self.plan)


def are_names(plan: Any) -> bool:
    """Return whether a plan of any type is a list of texts, as orders are."""
    return isinstance(plan, list | tuple) and all(isinstance(each, str) for each in plan)


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
    advice: Advice | None
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
        self._pins = _read(path)
        self._waiting = set(self._pins)
        """Components whose plan is put in force by the next micro-batch."""

    def __len__(self) -> int:
        return len(self._pins)

    def pin(
        self, targets: Mapping[str, Pinnable], plans: Mapping[str, Any], batch_id: int
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
        self._save({**self._pins, **{name: Pin(each, batch_id) for name, each in plans.items()}})
        entries = []
        for component, plan in plans.items():
            before = targets[component].plan
            entries.append(JournalEntry(batch_id, component, "pin", before, plan, BY_PERSON))
            if plan == before:
                targets[component].hold(plan)
                self._waiting.discard(component)
            else:
                self._waiting.add(component)
        return entries

    def adapt(self, targets: Mapping[str, Pinnable], batch_id: int) -> list[JournalEntry]:
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
            plan = targets[component].plan
            entries.append(JournalEntry(batch_id, component, "adapt", plan, plan, evidence))
        self._drop(free)
        for component in free:
            targets[component].release()
        return entries

    def apply(self, targets: Mapping[str, Pinnable], batch_id: int) -> list[JournalEntry]:
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
        self._drop([each.component for each in entries])
        return entries

    def _why_gone(self, component: str, pin: Pin, target: Pinnable | None) -> str:
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

    def views(self, targets: Mapping[str, Pinnable]) -> tuple[PinView, ...]:
        """Return the pins, with what the evidence says of them."""
        return tuple(
            PinView(name, pin, targets[name].advice(), name not in self._waiting)
            for name, pin in self._pins.items()
            if name in targets
        )

    def _drop(self, components: Sequence[str]) -> None:
        if components:
            self._save({name: pin for name, pin in self._pins.items() if name not in components})
            self._waiting -= set(components)

    def _save(self, pins: dict[str, Pin]) -> None:
        try:
            replace_file(self.path, msgspec.json.encode(pins))
        except OSError as error:
            reason = f"{error}; make room or rights"
            if not self.path.parent.is_dir():
                reason = (
                    "the folder is gone, as a temporary checkpoint is when its run ends; pin while "
                    "the query runs, or start it with checkpoint="
                )
            msg = f"cannot write the pins to {self.path}: {reason}"
            raise StateError(msg, path=str(self.path)) from error
        self._pins = pins


def _read(path: Path) -> dict[str, Pin]:
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Pin])
    except (OSError, ValueError, RecursionError) as error:
        msg = f"cannot read the pinned plans in {path}: {error}; move the file away to adapt again"
        raise StateError(msg, path=str(path)) from error

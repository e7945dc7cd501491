"""A choice: one plan of an operator that could be another, and all that is done with it.

An operator has a choice for each thing that it decides, such as the order of its filters or the cut
of its rows. It lists them as ``choices``. From there each choice is found by all who need it:

* **the run** gives it what a batch observed (``step``, whose arguments are its own), and writes the
  returned decisions to the journal;
* **a person** holds a plan in force (``run.pin``) and lets it adapt again (``run.adapt``);
* **the log of plans** knows its ``situation`` and what plans cost there, and recalls the plan that
  was good when the situation comes again;
* **the checkpoint** keeps what it has learned (``snapshot``, ``restore``).

A choice with a plan in force, the words of what is ``possible`` and a test of it can be pinned. One
that also tells its situation and the cost of plans is logged. Everything else has defaults.

Invariants: a plan changes the work and never the answer. A choice sees counts and profiles, and
never rows. While it is held it goes on to learn and decides nothing, in tasks and on the driver. A
new choice is one class derived from ``Choice``, and one line in the ``choices`` of its operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from eddyline.errors import PlanError, StateError
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.runtime.records import Record
    from eddyline.runtime.situations import Situation

UNKNOWN_NS = float("nan")

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Advice:
    """What the evidence says of a plan that is held."""

    plan: Any
    """The plan that it calls the best, as plain values."""
    cost_ns: float = UNKNOWN_NS
    """Expected cost of that plan (ns per input row; nan: unknown)."""
    held_cost_ns: float = UNKNOWN_NS
    """Expected cost of the plan that is held (ns per input row; nan: unknown)."""


class Choice(ABC):
    """One plan of an operator; derive choices from it."""

    component: str
    """Its name in the journal, in pins and in the log; unique in the query."""
    is_adaptive: bool = True
    """Whether the plan may change at all, by the options of its query."""
    is_held: bool = False
    """Whether the plan stays as it is, whatever the evidence."""

    # -- the plan -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def plan(self) -> Any:
        """The plan in force, as plain values that JSON knows."""

    @property
    @abstractmethod
    def possible(self) -> str:
        """The plans that may be pinned, in words."""

    @abstractmethod
    def is_possible(self, plan: Any) -> bool:
        """Return whether a plan may be put in force; it is of any type."""

    def adopt(self, plan: Any) -> None:
        """Put a possible plan in force in place of another; between batches only.

        Needed where others than the one in force are possible.
        """
        raise NotImplementedError

    def in_words(self, plan: Any) -> Any:
        """Return a plan as people and the journal are told of it."""
        return plan

    def decision(
        self, batch_id: int, event: str, before: Any, after: Any, evidence: dict[str, Any]
    ) -> JournalEntry:
        """Return the journal's entry of another plan, and why."""
        return JournalEntry(batch_id, self.component, event, before, after, evidence)

    # -- a person -------------------------------------------------------------------------------

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
        self.is_held = True

    def release(self) -> None:
        """Let the plan adapt again, from the one in force."""
        self.is_held = False

    def advice(self) -> Advice | None:
        """Return what the evidence says while the plan is held; None if it says nothing."""
        return None

    # -- the log of plans -----------------------------------------------------------------------

    why_unlogged: str = "nothing is measured by which its conditions would be known again"
    """Why the plans that were in force are not logged; empty if they are."""
    cost_unit: str = "ns"
    """Unit of ``cost_of``: time, or what is counted in place of it."""
    per: str = "row"
    """What costs are of."""
    recalls: bool = True
    """Whether a plan of before may be put in force for what is known of its situation."""
    changes_within: bool = False
    """Whether tasks change the plan within a batch: most rows of one meet the plan after it."""
    min_gain: float = 1.0
    """How many times cheaper a plan has to be, by enough of the newest rows, to be recalled."""

    @property
    def identity(self) -> str:
        """What plans and evidence are of, where that may change in a run; another begins anew."""
        return ""

    def situation(self) -> Situation | None:
        """Return the conditions of the plan, as measured since they last changed.

        None while too little is known of them.
        """
        return None

    def cost_of(self, plan: Any, evidence: Any) -> float:  # noqa: ARG002
        """Return what a plan costs by the evidence of a situation (nan: unknown)."""
        return UNKNOWN_NS

    def rows_met(self, n_rows: int) -> int:
        """Return how many rows the plan met in the last batch, in which a query took in some."""
        return n_rows

    def foreseen(self, plan: Any, evidence: Any) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return what rows would show under a plan by the evidence of a situation.

        Returns:
            Shares and counts, as in ``Situation.met``.
        """
        return np.zeros(0), np.zeros(0)

    def best_single(self, held: Sequence[tuple[Any, float]]) -> Any | None:  # noqa: ARG002
        """Return the best plan for all situations together; None if only those in force are known.

        Args:
            held: the evidence of each situation, and the rows for which it held.
        """
        return None

    def take(self, plan: Any, evidence: Any) -> None:  # noqa: ARG002
        """Put a possible plan in force, and begin with the evidence of a situation before."""
        self.adopt(plan)

    def let_go(self) -> None:  # noqa: B027 - nothing was begun with
        """Let go of the evidence that ``take`` began with: it was of another situation."""

    # -- the checkpoint and the progress --------------------------------------------------------

    def record(self) -> Record | None:
        """Return the state of the plan after a batch, for progress and report; None: nothing."""
        return None

    def snapshot(self) -> Any:
        """Return what was learned, as values that msgspec encodes; None: nothing."""
        return None

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: the state is damaged, or of another plan.
        """
        raise NotImplementedError


class OneOfFew(Choice):
    """A choice whose plan is one text of a few; it heeds ``is_held`` where it decides."""

    plan: str = ""
    plans: tuple[str, ...]
    """The plans that are possible."""
    advised: str | None = None
    """The plan that the evidence calls the best; None if it does not tell."""

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return f"one of {', '.join(map(repr, self.plans))}"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is one of the plans."""
        return isinstance(plan, str) and plan in self.plans

    def adopt(self, plan: str) -> None:
        """Put another plan in force."""
        self.plan = plan

    def advice(self) -> Advice | None:
        """Return the plan that the evidence calls the best."""
        return None if self.advised is None else Advice(self.advised)


class AsItStands(Choice):
    """A choice whose plan nobody writes by hand: only the one in force can be pinned."""

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return "only the plan in force"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is the plan in force."""
        return type(plan) is type(self.plan) and bool(plan == self.plan)


def are_names(plan: Any) -> bool:
    """Return whether a plan of any type is a list of texts, as orders are."""
    return isinstance(plan, list | tuple) and all(isinstance(name, str) for name in plan)


def restored(state: Any, kind: type[StateT], what: str, **facts: str) -> StateT:
    """Return learned state that was decoded from JSON as the kind that was saved.

    Args:
        state: what ``snapshot`` returned, or its values as JSON knows them.
        kind: the type of the state, such as a struct.
        what: the subject of the state in words, such as "the clusters of a join's keys".
        **facts: of the error.

    Raises:
        StateError: it is damaged.
    """
    try:
        return msgspec.convert(state, kind, str_keys=True)
    except msgspec.ValidationError as error:
        msg = f"what was learned of {what} cannot be read: {error}"
        raise StateError(msg, **facts) from error

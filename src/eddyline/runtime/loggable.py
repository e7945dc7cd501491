"""What the log of plans asks of a plan: its conditions, and what plans cost under some of them.

A plan is logged as soon as it tells its ``situation`` and the ``cost_of`` plans by the evidence of
one; for that it is recalled where its conditions come again, and it is known what adapting brought.
The rest has defaults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.runtime.situations import Situation

UNKNOWN_NS = float("nan")


class Held(Protocol):
    """A loop that can be held: ``step`` takes in profiles, and leaves the plan as it is."""

    component: str
    is_held: bool

    @property
    def is_adaptive(self) -> bool:
        """Whether its plan may change at all, by its options."""
        ...


class Loggable(ABC):
    """A plan of a component that the log may know; see ``runtime.plan_log``."""

    why_unlogged: str = ""
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

    def __init__(self, loop: Held) -> None:
        self.loop = loop

    @property
    def component(self) -> str:
        """Name of what decides, as in the journal."""
        return self.loop.component

    @property
    def is_held(self) -> bool:
        """Whether the plan stays as it is."""
        return self.loop.is_held

    @property
    def can_adapt(self) -> bool:
        """Whether the plan may change at all, by the options of its query."""
        return self.loop.is_adaptive

    @property
    def identity(self) -> str:
        """What plans and evidence are of, where that may change in a run; another begins anew."""
        return ""

    @property
    @abstractmethod
    def plan(self) -> Any:
        """The plan in force, as plain values that JSON knows."""

    @abstractmethod
    def is_possible(self, plan: Any) -> bool:
        """Return whether a plan may be put in force; it is of any type."""

    def adopt(self, plan: Any) -> None:
        """Put a possible plan in force in place of another; between batches only.

        Needed where others than the one in force are possible.
        """
        raise NotImplementedError

    def said(self, plan: Any) -> Any:
        """Return a plan as people and the journal are told of it."""
        return plan

    # -- statistics and prices ------------------------------------------------------------------

    def situation(self) -> Situation | None:
        """Return the conditions of the plan, as measured since they last changed.

        None while too little is known of them.
        """
        return None

    def cost_of(self, plan: Any, evidence: Any) -> float:  # noqa: ARG002
        """Return what a plan costs by the evidence of a situation (nan: unknown)."""
        return UNKNOWN_NS

    # -- where the defaults do not do -----------------------------------------------------------

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

"""The protocols of an adaptive operator, as far as they need no Spark.

An operator has a plan, and a loop that keeps the plan good: profiles in, decisions out. The half
that lays a plan over DataFrames is ``spark.operator.Operator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from eddyline.runtime.journal import JournalEntry


ProfileT_contra = TypeVar("ProfileT_contra", contravariant=True)


class Loop(Protocol[ProfileT_contra]):
    """Keeps one plan good: takes in profiles, never rows, and decides.

    Profiles are keyed by identities, never by positions in a plan. The same class works inside a
    task, between Arrow batches, and on the driver, between micro-batches.
    """

    component: str
    """Name of what decides, in the journal."""

    def step(self, fresh: ProfileT_contra, batch_id: int = -1) -> list[JournalEntry]:
        """Take in what a batch observed, and change the plan if the evidence says so.

        Called once for each batch, in their order. Never called for a batch that runs again.

        Args:
            fresh: what the batch observed.
            batch_id: the micro-batch, for the journal.

        Returns:
            The findings and decisions, each with its evidence.
        """
        ...

    def record(self) -> Record:
        """Return the state of the plan after the last batch."""
        ...

    def snapshot(self) -> Any:
        """Return the learned state, as values that msgspec encodes."""
        ...

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, decoded from JSON.

        Raises:
            StateError: the state is damaged, or of another plan.
        """
        ...


class Record(Protocol):
    """One component of an operator after one micro-batch: a frozen value.

    Progress and reports show it; what else it holds is between an operator and its own words in
    ``report/``.
    """

    @property
    def component(self) -> str:
        """Name of what decides, as in the journal."""
        ...

    @property
    def plan(self) -> Any:
        """The plan in force as plain values, as in the journal; None if it has none."""
        ...

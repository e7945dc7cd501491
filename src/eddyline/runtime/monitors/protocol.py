"""The protocol of monitors: they tell the fresh part of the evidence, and when to ask the policy.

A monitor sees profiles and orders, never rows. [Tsamoura16 4]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from eddyline.stats.profile import FilterProfile, Order

DUE_FRAC = 0.05
"""Share of a fixed window that must be new before the policy is asked again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A change that a monitor found."""

    n_fresh: int | None
    """Newest profile tuples that came after the change; None if what filters drop is unchanged."""
    costs: NDArray[np.bool_] | None
    """Filters whose cost changed ((F,)); None if none did."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check."""


class Monitor(Protocol):
    """Watches the evidence of one conjunction.

    The loop calls ``observe`` once per batch, before the batch's profile joins the window, and
    ``reordered`` after each change of order. All calls come from one thread.
    """

    block_rows: int
    """Input rows per block of counts that the profiles should bring; 0: none."""

    def observe(
        self,
        fresh: FilterProfile,
        order: Order,
        known: FilterProfile,
        cost_ratios: NDArray[np.float64],
    ) -> Finding | None:
        """Take in what a batch observed.

        Args:
            fresh: the profile of the batch, which ran under ``order``.
            order: the order in force.
            known: the profile of the window, without the batch.
            cost_ratios: time that each filter took over the time that was expected; nan where it
                was not called or nothing was expected ((F,)).

        Returns:
            A change, if there is one.
        """
        ...

    def is_due(self, n_tuples: int, n_new: int, max_tuples: int) -> bool:
        """Return whether the policy is to be asked for a better order.

        Args:
            n_tuples: profile tuples in the window.
            n_new: of those, the ones since the policy was asked last.
            max_tuples: profile tuples that the window can hold.
        """
        ...

    def reordered(self, before: Order, after: Order) -> None:
        """Take note of a change of order: what was conditional on the old one means nothing now."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values (JSON)."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""
        ...


class MonitorOptions(Protocol):
    """The options of a monitor: a frozen dataclass that validates itself and builds monitors."""

    def build(self, n_filters: int, seed: int) -> Monitor:
        """Return a fresh monitor for a conjunction of ``n_filters`` filters."""
        ...


class StatelessMonitor:
    """Base of the monitors that keep nothing between batches and review at fixed intervals."""

    block_rows = 0

    def is_due(self, n_tuples: int, n_new: int, max_tuples: int) -> bool:  # noqa: ARG002 protocol
        """Return whether a twentieth of a full window is new."""
        return n_new >= DUE_FRAC * max_tuples

    def reordered(self, before: Order, after: Order) -> None:
        """Do nothing: nothing is kept."""

    def snapshot(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing."""

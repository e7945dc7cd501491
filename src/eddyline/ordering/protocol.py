"""The protocol of ordering policies: they see profiles and an order, and may propose another.

A policy never sees rows, never reads a clock and never draws its own random numbers. So it is
testable without Spark, and the same evidence always gives the same proposals. ``Fixed`` is the
smallest policy: it never proposes.

Words: ``order[position] -> filter index``; filter index ``f`` names ``profile.filter_ids[f]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    from eddyline.data.arrays import Mask
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another order, and the evidence for it."""

    order: Order
    """The proposed order."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check: the position violated, the two ratios, counts."""


def reasons(
    profile: FilterProfile,
    order: Order,
    position: int,
    better: int,
    ratios: tuple[float, float],
    n_tuples: int,
) -> dict[str, Any]:
    """Return the evidence that a filter would be better at a position than the one there.

    Both are given by position; ratios are what they drop there (weight per ns).
    """
    return {
        "position": position,
        "filter": profile.filter_ids[order[position]],
        "ratio": float(ratios[0]),
        "better_filter": profile.filter_ids[order[better]],
        "better_ratio": float(ratios[1]),
        "n_tuples": n_tuples,
    }


class OrderingPolicy(Protocol):
    """Keeps the order of one conjunction good while evidence arrives.

    The loop calls, once per batch: ``observe`` with that batch's profile, then ``propose`` with
    the window. Both are called from one thread. A policy must not keep references to arrays of
    profiles that it would later change.
    """

    needs_all_bits: ClassVar[bool]
    """Whether every bit of every code must be known. If not, ``extra`` says which are taken."""

    def extra(self, n_filters: int) -> Mask:
        """Say which filters are evaluated on a sampled row beyond its first drop.

        Called before each batch. Element [d, c] (positions; (F, F)): for a row first dropped at
        position d, evaluate position c > d as well.
        """
        ...

    def observe(self, fresh: FilterProfile, order: Order) -> None:
        """Take in the profile of the last batch, which ran under ``order``."""
        ...

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return a better order than ``order`` on the evidence, or None to keep it."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the learned state as plain values (JSON)."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""
        ...


class PolicyOptions(Protocol):
    """The options of a policy: a frozen dataclass that validates itself and builds the policy."""

    def build(self, n_filters: int, rng: np.random.Generator) -> OrderingPolicy:
        """Return a fresh policy for a conjunction of ``n_filters`` filters."""
        ...


class WindowPolicy:
    """Base of the policies that decide on the window alone and need every bit."""

    needs_all_bits: ClassVar[bool] = True

    def extra(self, n_filters: int) -> Mask:
        """Ask for every filter on every sampled row."""
        return np.triu(np.ones((n_filters, n_filters), dtype=np.bool_), 1)

    def observe(self, fresh: FilterProfile, order: Order) -> None:
        """Do nothing: the window holds the evidence."""

    def snapshot(self) -> dict[str, Any]:
        """Return nothing: the window is saved by the loop."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedOptions:
    """Nothing to choose."""

    def build(self, n_filters: int, rng: np.random.Generator) -> Fixed:  # noqa: ARG002 protocol
        """Return the policy."""
        return Fixed()


class Fixed(WindowPolicy):
    """Never proposes."""

    needs_all_bits: ClassVar[bool] = False

    def extra(self, n_filters: int) -> Mask:
        """Ask for nothing."""
        return np.zeros((n_filters, n_filters), dtype=np.bool_)

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:  # noqa: ARG002 protocol
        """Keep the order."""
        return None

"""Static greedy: the order that A-Greedy converges to, from a whole distribution at once.

A reference for tests and benchmarks: given a profile of every outcome with its exact probability
as weight it is the thesis' GREEDY, within 4 times the optimum [Babu05 4.3].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.ordering.greedy import Evidence, restore_invariant
from eddyline.ordering.matrix_view import expected_cost_ns
from eddyline.ordering.protocol import Proposal, WindowPolicy

if TYPE_CHECKING:
    import numpy as np

    from eddyline.stats.profile import FilterProfile, Order

_ROUNDING = 1e-9
"""Relative difference of two predicted costs that is rounding, not a better order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticGreedyOptions:
    """Nothing to choose."""

    def build(self, n_filters: int, rng: np.random.Generator) -> StaticGreedy:  # noqa: ARG002 protocol
        """Return the policy."""
        return StaticGreedy()


class StaticGreedy(WindowPolicy):
    """Proposes the greedy order of the window whenever it is predicted to be cheaper."""

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return the greedy order, without any guard against noise."""
        return propose_cheaper(order, static_greedy(window), window)


def static_greedy(profile: FilterProfile) -> Order:
    """Return the greedy order of a profile; ties go to the smaller filter index."""
    evidence = Evidence.of(profile)
    order, position = tuple(range(profile.n_filters)), 0
    while position < profile.n_filters:
        order, position = restore_invariant(order, position, evidence)
    return order


def propose_cheaper(order: Order, other: Order, window: FilterProfile) -> Proposal | None:
    """Return ``other`` as a proposal if the window predicts that it is cheaper than ``order``."""
    before, after = expected_cost_ns(order, window), expected_cost_ns(other, window)
    if window.basis is not None or after >= before * (1.0 - _ROUNDING):
        return None
    evidence = {"n_tuples": window.n_tuples, "cost_ns": before, "proposed_cost_ns": after}
    return Proposal(other, evidence)

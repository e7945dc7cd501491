"""Orders that a person pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.matrix_view import expected_cost_ns
from eddyline.runtime.pins import Advice, Pinnable, are_names

if TYPE_CHECKING:
    from eddyline.runtime.order_loop import OrderLoop

GREEDY = AGreedyOptions(hysteresis=1.0, min_fill=1, min_gain=0.0)
"""What the best order is on the evidence, whatever the policy of the loop waits for."""


class OrderPin(Pinnable):
    """The order of a loop, by the names of its filters."""

    loop: OrderLoop

    def __init__(self, loop: OrderLoop) -> None:
        super().__init__(loop)

    @property
    def plan(self) -> list[str]:
        """The order in force."""
        return self.loop.names(self.loop.order)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return f"a list of all of {list(self.loop.filter_ids)}, each once, in any order"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it has every filter once."""
        return are_names(plan) and sorted(plan) == sorted(self.loop.filter_ids)

    def adopt(self, plan: list[str]) -> None:
        """Put another order in force."""
        self.loop.adopt(tuple(map(self.loop.filter_ids.index, plan)))

    def advice(self) -> Advice | None:
        """Return the order that a greedy algorithm chooses on the evidence, and its cost."""
        found = best_order(self.loop)
        if found is None:
            return None
        order, cost_ns, held_ns = found
        return Advice(self.loop.names(order), cost_ns, held_ns)


def best_order(loop: OrderLoop) -> tuple[tuple[int, ...], float, float] | None:
    """Return the best order on the evidence of a loop, its cost and that of the order in force.

    Costs are of an input row (ns). None while too little is known, and where the policy takes
    evidence of one order alone.
    """
    known = loop.window.profile()
    if not known.n_tuples or known.basis is not None or not known.costs.is_known.all():
        return None
    policy = GREEDY.build(len(loop.filter_ids), np.random.default_rng(0))
    proposal = policy.propose(loop.order, known)
    best = loop.order if proposal is None else proposal.order
    return best, expected_cost_ns(best, known), expected_cost_ns(loop.order, known)

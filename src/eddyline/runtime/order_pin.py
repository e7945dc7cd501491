"""Orders that a person pins."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.matrix_view import drop_fracs, expected_cost_ns
from eddyline.runtime.by_hand import OfLoop
from eddyline.runtime.choice import Advice, are_names
from eddyline.runtime.order_loop import WARMUP_SAMPLES
from eddyline.runtime.plan_log import LEAST_ROWS
from eddyline.runtime.situations import Met, Situation
from eddyline.stats.profile import FilterProfile, merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.runtime.order_loop import OrderLoop
    from eddyline.stats.profile import Order

MOST_PAIRED = 8
"""Filters up to which it is a condition, too, how many rows each pair of them drops. Of more, what
each drops alone has to do."""

ONE_ORDER = "the policy takes evidence of the order in force alone"
"""Said of an order that is not logged."""

GREEDY = AGreedyOptions(hysteresis=1.0, min_fill=1, min_gain=0.0)
"""What the best order is on the evidence, whatever the policy of the loop waits for."""


class OrderPin(OfLoop):
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
        self.loop.adopt(self._order(plan))

    def advice(self) -> Advice | None:
        """Return the order that a greedy algorithm chooses on the evidence, and its cost."""
        found = best_order(self.loop)
        if found is None:
            return None
        order, cost_ns, held_ns = found
        return Advice(self.loop.names(order), cost_ns, held_ns)

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why orders are not logged, if they are not."""
        all_bits = self.loop.policy.needs_all_bits
        return "" if all_bits else ONE_ORDER

    def situation(self) -> Situation | None:
        """Return what each filter, and each pair of them, drops."""
        return situation_of(self.loop)

    def rows_met(self, n_rows: int) -> int:
        """Return the rows that the order met, or those of the query where nobody counts them."""
        return self.loop.n_met or n_rows

    def cost_of(self, plan: list[str], evidence: Any) -> float:
        """Return the expected cost of an order (ns per row)."""
        return expected_cost_ns(self._order(plan), self._profile(evidence))

    def foreseen(self, plan: list[str], evidence: Any) -> tuple[Floats, Floats]:
        """Return the share of rows that each position of an order would drop."""
        known = self._profile(evidence)
        shares = drop_fracs(self._order(plan), known)
        reach = np.concatenate([[1.0], np.cumprod(1.0 - shares)[:-1]])
        return shares, (known.n_tuples + known.n_passed) * reach

    def best_single(self, held: Sequence[tuple[Any, float]]) -> list[str] | None:
        """Return the order that a greedy algorithm chooses for all situations together."""
        profiles = [(self._profile(evidence), n_rows) for evidence, n_rows in held]
        return self.loop.names(order_for(profiles, self.loop.order))

    def take(self, plan: list[str], evidence: Any) -> None:
        """Put an order in force, and the evidence that it was chosen by behind the newest."""
        self.adopt(plan)
        begin_with(self.loop, self._profile(evidence))

    def let_go(self) -> None:
        """Let all evidence go but what came since the last change."""
        self.loop.window.begin_with(self.loop.recent.profile())

    def _order(self, plan: list[str]) -> Order:
        return tuple(map(self.loop.filter_ids.index, plan))

    def _profile(self, evidence: Any) -> FilterProfile:
        return FilterProfile.from_state(self.loop.filter_ids, evidence)


def situation_of(loop: OrderLoop) -> Situation | None:
    """Return the conditions of an order; see ``OrderPin.situation``.

    Costs are none of them: what a call seems to cost for each row depends on how many rows reach
    it, and so on the order in force.

    Returns:
        None while nothing was seen since the last change, and where the policy takes evidence of
        one order alone.
    """
    known, met = loop.recent.profile(), _met(loop)
    n_sampled, n_tuples = known.n_tuples + known.n_passed, known.n_tuples
    nothing = met is None and not n_sampled
    if nothing or known.basis is not None or not loop.policy.needs_all_bits:
        return None
    n, ids = len(loop.filter_ids), loop.filter_ids
    bits, weights = known.bits()
    total = known.passed + float(weights.sum())
    together = (weights[:, None] * bits).T @ bits / (total or np.nan)
    pairs = list(combinations(range(n), 2)) if n <= MOST_PAIRED else []
    least = min(loop.min_fill, loop.recent.max_tuples)
    is_enough = n_tuples >= least or n_sampled >= WARMUP_SAMPLES * least
    return Situation(
        names=(
            *(f"{each} drops" for each in ids),
            *(f"{ids[f]} and {ids[g]} drop" for f, g in pairs),
        ),
        shares=np.array([*together.diagonal(), *(together[pair] for pair in pairs)]),
        counts=np.full(n + len(pairs), max(n_sampled, 1.0)),
        evidence=known.to_state(),
        n_sampled=n_sampled,
        is_settled=is_enough and bool(known.costs.is_known.all()),
        met=met,
    )


def _met(loop: OrderLoop) -> Met | None:
    """Return the share of the rows of the last batch that each position has dropped."""
    order, n_in, n_out = loop.newest.ran_under, loop.newest.rows_in, loop.newest.rows_out
    if order is None or n_in[order[0]] < LEAST_ROWS:
        return None
    n_in, n_out = n_in[list(order)], n_out[list(order)]
    shares = np.divide(n_in - n_out, n_in, out=np.full(len(order), np.nan), where=n_in > 0)
    return Met(loop.names(order), shares, n_in)


def begin_with(loop: OrderLoop, profile: FilterProfile) -> None:
    """Let the evidence of a loop be an older profile, and what came since the last change.

    What filters cost is known newer.
    """
    recent = loop.recent.profile()
    costs = profile.costs.without(recent.costs.is_known)
    loop.window.begin_with(replace(profile, costs=costs), recent)


def best_order(loop: OrderLoop) -> tuple[tuple[int, ...], float, float] | None:
    """Return the best order on the evidence of a loop, its cost and that of the order in force.

    Costs are of an input row (ns). None while too little is known, and where the policy takes
    evidence of one order alone.
    """
    known = loop.window.profile()
    if not known.n_tuples or known.basis is not None or not known.costs.is_known.all():
        return None
    best = _greedy(loop.order, known)
    return best, expected_cost_ns(best, known), expected_cost_ns(loop.order, known)


def order_for(profiles: Sequence[tuple[FilterProfile, float]], order: Order) -> Order:
    """Return the order that a greedy algorithm chooses for several profiles together.

    Args:
        profiles: each with the rows that it stands for.
        order: one to begin with.
    """
    scaled = []
    for each, n_rows in profiles:
        share = n_rows / ((each.passed + float(each.weights.sum())) or 1.0)
        scaled.append(replace(each, weights=share * each.weights, passed=share * each.passed))
    return _greedy(order, merge(scaled))


def _greedy(order: Order, known: FilterProfile) -> Order:
    policy = GREEDY.build(len(order), np.random.default_rng(0))
    proposal = policy.propose(order, known)
    return order if proposal is None else proposal.order

"""Optimal: the cheapest order of a profile, by dynamic programming over sets of filters.

A reference for tests and benchmarks: O(2^F · F) time and memory, so F is limited. Finding the
optimum is NP-hard in general [Babu05 4.3.3].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import OptionError
from eddyline.ordering.protocol import Proposal, WindowPolicy
from eddyline.ordering.static_greedy import propose_cheaper

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats
    from eddyline.stats.profile import FilterProfile, Order

MAX_FILTERS = 20
"""Most filters: 2^20 sets need about 30 MB and a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalOptions:
    """Nothing to choose."""

    def build(self, n_filters: int, rng: np.random.Generator) -> Optimal:  # noqa: ARG002 protocol
        """Return the policy.

        Raises:
            OptionError: there are too many filters to search all orders.
        """
        _check(n_filters)
        return Optimal()


class Optimal(WindowPolicy):
    """Proposes the cheapest order of the window."""

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return the cheapest order, without any guard against noise."""
        return propose_cheaper(order, optimal(window), window)


def optimal(profile: FilterProfile) -> Order:
    """Return the cheapest order of a profile; ties keep smaller filter indices in front.

    Raises:
        OptionError: there are too many filters to search all orders.
    """
    n = profile.n_filters
    _check(n)
    last = _cheapest_last(_alive(profile), profile.costs.per_row_ns)
    order: list[int] = []
    chosen = 2**n - 1
    while chosen:
        order.append(int(last[chosen]))
        chosen ^= 1 << order[-1]
    return tuple(reversed(order))


def _alive(profile: FilterProfile) -> Floats:
    """Return the weight that no filter of each set drops ((2^F,), by bit mask)."""
    n = profile.n_filters
    bits, weights = profile.bits()
    masks = bits @ (1 << np.arange(n))
    within = np.bincount(masks, weights, minlength=2**n).astype(np.float64)
    within[0] += profile.passed
    for f in range(n):  # sum over subsets: within[m] = weight of the codes with bits in m only
        halves = within.reshape(-1, 2, 1 << f)
        halves[:, 1] += halves[:, 0]
    return within[::-1]  # a set drops nothing of a code iff the code lies in its complement


def _cheapest_last(alive: Floats, costs: Floats) -> NDArray[np.int8]:
    """Return, for each set, the filter that is last in the cheapest order of that set."""
    n = len(costs)
    best = np.full(2**n, np.inf)
    best[0] = 0.0
    last = np.zeros(2**n, dtype=np.int8)
    sets = np.arange(2**n)
    sizes = np.bitwise_count(sets)
    for size in range(1, n + 1):
        layer = sets[sizes == size]
        for f in range(n):
            with_f = layer[(layer >> f) & 1 == 1]
            before = with_f ^ (1 << f)
            cost = best[before] + costs[f] * alive[before]
            better = cost <= best[with_f]
            best[with_f[better]] = cost[better]
            last[with_f[better]] = f
    return last


def _check(n_filters: int) -> None:
    if n_filters > MAX_FILTERS:
        msg = (
            f"the optimal order is searched for at most {MAX_FILTERS} filters, got {n_filters};"
            " use 'static_greedy'"
        )
        raise OptionError(msg, n_filters=n_filters)

"""Orders of a whole profile at once: what policies are measured against.

``static_greedy`` is the order that A-Greedy converges to; with the exact probability of every
outcome as weight it is the thesis' GREEDY, within 4 times the optimum [Babu05 4.3]. ``optimal`` is
the cheapest order, by dynamic programming over sets of filters: O(2^F · F) time and memory, as
finding it is NP-hard in general [Babu05 4.3.3].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import OptionError
from eddyline.ordering.a_greedy import Evidence, restore_invariant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats
    from eddyline.stats.profile import FilterProfile, Order

MAX_FILTERS = 20
"""Most filters: 2^20 sets need about 30 MB and a second."""


def static_greedy(profile: FilterProfile) -> Order:
    """Return the greedy order of a profile; ties go to the smaller filter index."""
    evidence = Evidence.from_profile(profile)
    order, position = tuple(range(profile.n_filters)), 0
    while position < profile.n_filters:
        order, position = restore_invariant(order, position, evidence)
    return order


def optimal(profile: FilterProfile) -> Order:
    """Return the cheapest order of a profile; ties keep smaller filter indices in front.

    Raises:
        OptionError: there are too many filters to search all orders.
    """
    _check(profile.n_filters)
    return cheapest_order(histogram(profile), profile.costs.per_row_ns)


def histogram(profile: FilterProfile) -> Floats:
    """Return the weight of the rows that just the filters of a set drop ((2^F,), by mask)."""
    n = profile.n_filters
    bits, weights = profile.bits()
    masses = np.bincount(bits @ (1 << np.arange(n)), weights, minlength=2**n).astype(np.float64)
    masses[0] += profile.passed
    return masses


def cheapest_order(weights: Floats, costs: Floats) -> Order:
    """Return the cheapest of all orders; ties keep smaller filter indices in front.

    Args:
        weights: weight of the rows that exactly the filters of a set drop ((2^F,), by bit mask).
        costs: cost of one evaluation of each filter ((F,)).

    Raises:
        OptionError: there are too many filters to search all orders.
    """
    _check(len(costs))
    within = weights.astype(np.float64)
    for f in range(len(costs)):  # sum over subsets: what filters of the set drop, and no other
        halves = within.reshape(-1, 2, 1 << f)
        halves[:, 1] += halves[:, 0]
    # A set drops nothing of a row iff all that drop it lie in the complement.
    last = _cheapest_last(within[::-1], costs)
    order: list[int] = []
    chosen = len(last) - 1
    while chosen:
        order.append(int(last[chosen]))
        chosen ^= 1 << order[-1]
    return tuple(reversed(order))


def _check(n_filters: int) -> None:
    if n_filters > MAX_FILTERS:
        msg = f"the optimal order is searched for at most {MAX_FILTERS} filters, got {n_filters}; "
        msg += "use static_greedy"
        raise OptionError(msg, n_filters=n_filters)


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

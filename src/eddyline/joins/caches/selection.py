"""The choice of caches: the best one where it can be found in time, else a good one.

[Babu05 5.5.4, 5.7]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.joins.caches.selection_problem import by_groups, exhaustive, n_shared
from eddyline.joins.caches.set_cover import greedy, lp_rounding, polished

if TYPE_CHECKING:
    import numpy as np

    from eddyline.joins.caches.selection_problem import CacheProblem, Chosen

MAX_SHARED = 16
"""Shared stores up to which every set of them is tried: 65,536 sets, in tens of milliseconds."""


def select(
    problem: CacheProblem, rng: np.random.Generator, *, max_shared: int = MAX_SHARED
) -> Chosen:
    """Return the caches to use; every set is tried up to so many shared stores.

    If a store has partners, candidates may exclude each other in any way and all sets are tried, so
    there must be few; see ``candidates``.
    """
    if any(store.partners for store in problem.groups):
        return exhaustive(problem)
    if n_shared(problem) <= max_shared:
        return by_groups(problem)
    return max(polished(problem, greedy(problem)), lp_rounding(problem, rng), key=problem.net)

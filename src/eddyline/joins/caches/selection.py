"""Which caches to use: the best choice where it can be found in time, else a good one.

[Babu05 5.5.4, 5.7]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.joins.caches.selection_problem import by_groups, exhaustive, n_shared
from eddyline.joins.caches.set_cover import greedy, lp_rounding, polished

if TYPE_CHECKING:
    import numpy as np

    from eddyline.joins.caches.selection_problem import CacheProblem, Chosen

MAX_SHARED = 16
"""Shared stores up to which every set of them is tried: 65,536 sets, in tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Caches to use, and how they were found."""

    caches: Chosen
    net: float
    """What they save, less what they cost (per unit of time; ≥ 0)."""
    method: str
    """``exact``, ``greedy``, ``lp`` (neither of those two is proven best) or ``exhaustive``."""


def select(
    problem: CacheProblem, rng: np.random.Generator, *, max_shared: int = MAX_SHARED
) -> Selection:
    """Return the caches to use.

    Args:
        problem: what to choose from. If a store has partners, candidates may exclude each other
            in any way and all sets are tried, so there must be few; see ``candidates``.
        rng: decides how the linear program is rounded, if it comes to that.
        max_shared: shared stores up to which every set of them is tried.
    """
    if any(store.partners for store in problem.groups):
        found = {"exhaustive": exhaustive(problem)}
    elif n_shared(problem) <= max_shared:
        found = {"exact": by_groups(problem)}
    else:
        found = {
            "greedy": polished(problem, greedy(problem)),
            "lp": lp_rounding(problem, rng),
        }
    method = max(found, key=lambda name: problem.net(found[name]))
    return Selection(found[method], problem.net(found[method]), method)

"""Rank: sort by drop fraction per cost, one predicate at a time. For benchmarks.

What engines with adaptive filter reordering do (Trino, Velox): they know how much each predicate
drops and what it costs, not what it drops given the others. With ``counters`` the drop fractions
are those of the rows that reached the predicate in the main pass, as such engines count them;
otherwise they are the true marginals of the profiled rows, which is the ranking of the textbooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.options import in_range
from eddyline.ordering.fixed import Fixed
from eddyline.ordering.protocol import OrderingPolicy, Proposal, WindowPolicy

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """Where the drop fractions come from.

    Raises:
        OptionError: a value is out of its range.
    """

    counters: bool = False
    """Use the counts of the main pass, which depend on the order in force, instead of samples."""
    min_fill: int = 50
    """Profile tuples, or counted rows, before it ranks (≥ 1)."""

    def __post_init__(self) -> None:
        in_range(self, "min_fill", 1, 2**31)

    def build(self, n_filters: int, rng: np.random.Generator) -> OrderingPolicy:  # noqa: ARG002 protocol
        """Return a fresh policy."""
        return RankByCounters(self) if self.counters else Rank(self)


class Rank(WindowPolicy):
    """Proposes the order by marginal drop fraction of the profiled rows per cost."""

    def __init__(self, options: RankOptions) -> None:
        self._options = options

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return the sorted order if it is another one."""
        if window.n_tuples < self._options.min_fill or window.basis is not None:
            return None
        bits, weights = window.bits()
        return _ranked(order, weights @ bits / (weights.sum() + window.passed), window)


class RankByCounters(Fixed):
    """Proposes the order by counted drop fraction per cost; asks for no extra evaluation."""

    def __init__(self, options: RankOptions) -> None:
        self._options = options

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return the sorted order if it is another one; what no row reached goes last."""
        reached = window.rows_in
        if reached.max() < self._options.min_fill:
            return None
        dropped = reached - window.rows_out
        fracs = np.divide(dropped, reached, out=np.zeros(len(reached)), where=reached > 0)
        return _ranked(order, fracs, window)


def _ranked(order: Order, fracs: Floats, window: FilterProfile) -> Proposal | None:
    """Sort by drop fraction ((F,), by filter index) per cost; ties keep their order."""
    ratios = (fracs / window.costs.per_row_ns)[list(order)]
    ranked = tuple(order[i] for i in np.argsort(-ratios, kind="stable"))
    if ranked == order:
        return None
    return Proposal(ranked, {"drop_fracs": fracs.tolist(), "n_tuples": window.n_tuples})

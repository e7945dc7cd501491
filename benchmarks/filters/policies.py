"""Policies of other engines, which those of eddyline are measured against.

``rank`` is what engines with adaptive filter reordering do (Trino, Velox): sort by drop fraction
per cost, one predicate at a time. They know how much each predicate drops and what it costs, not
what it drops given the others. With ``counters`` the drop fractions are those of the rows that
reached the predicate in the main pass, as such engines count them; otherwise they are the true
marginals of the profiled rows, which is the ranking of the textbooks.

``hill_climb`` is what DuckDB's adaptive filter does [DuckDB src/execution/adaptive_filter.cpp]: try
a random swap of neighbours, keep it if rows got cheaper. It measures only the total time, so it
needs no profile, no model and many trials. A swap that did not help halves its own likeliness of
being tried again; one that helped resets it. Deviation: rows, not vectors, count the length of a
trial, and there is no separate warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eddyline.data.arrays import Floats
from eddyline.errors import OptionError
from eddyline.options import in_range
from eddyline.ordering.protocol import Fixed, OrderingPolicy, PolicyOptions, Proposal, WindowPolicy
from eddyline.registry import unknown
from eddyline.stats.profile import FilterProfile, Order

_CERTAIN = 100
"""Likeliness (percent) of trying a swap that never failed; halved by each failure, at least 1."""

MEASURES = ("time", "evaluations")
"""What a hill climber can minimise per row: measured ns, or counted evaluations."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HillClimbOptions:
    """How long a trial lasts and what it measures.

    Raises:
        OptionError: a value is out of its range.
    """

    trial_rows: int = 10 * 2048
    """Rows on which a swap is tried (≥ 1). Ten vectors of DuckDB."""
    settle_rows: int = 20 * 2048
    """Rows between trials, which give the cost to beat (≥ 1). Twenty vectors of DuckDB."""
    measure: str = "time"
    """``time``: measured ns per row; ``evaluations``: evaluations per row, which is repeatable but
    blind to what a filter costs."""

    def __post_init__(self) -> None:
        in_range(self, "trial_rows", 1, 2**31)
        in_range(self, "settle_rows", 1, 2**31)
        if self.measure not in MEASURES:
            raise OptionError(unknown("measure", self.measure, MEASURES), measure=self.measure)

    def build(self, n_filters: int, rng: np.random.Generator) -> HillClimb:
        """Return a fresh policy that draws its swaps from ``rng``."""
        return HillClimb(self, n_filters, rng)


class HillClimb(Fixed):
    """Alternates between settling, which sets the cost to beat, and trying a swap."""

    def __init__(self, options: HillClimbOptions, n_filters: int, rng: np.random.Generator) -> None:
        self._options = options
        self._rng = rng
        self._order: Order = tuple(range(n_filters))
        self._likeliness = [_CERTAIN] * (n_filters - 1)
        self._baseline = 0.0
        self._trial: int | None = None
        self._rows = 0
        self._cost = 0.0

    def observe(self, fresh: FilterProfile, order: Order) -> None:
        """Add up rows and cost; an order that somebody else chose ends a trial."""
        if order != self._order:
            self._trial = None
            self._restart(order)
        self._rows += fresh.n_rows
        if self._options.measure == "time":
            self._cost += float(fresh.costs.total_ns.sum())
        else:
            self._cost += fresh.n_evaluations - fresh.n_extra

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:  # noqa: ARG002 protocol
        """Return the order with a swap tried or taken back."""
        is_trial = self._trial is not None
        due = self._options.trial_rows if is_trial else self._options.settle_rows
        if order != self._order or not self._likeliness or self._rows < due:
            return None
        mean = self._cost / self._rows
        proposal = self._judge(mean) if is_trial else self._try(mean)
        self._restart(proposal.order if proposal else order)
        return proposal

    def snapshot(self) -> dict[str, Any]:
        """Return the trial, what was learned from earlier ones and the random state."""
        return {
            "order": list(self._order),
            "likeliness": self._likeliness,
            "baseline": self._baseline,
            "trial": self._trial,
            "rows": self._rows,
            "cost": self._cost,
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue the trial and the random sequence."""
        self._order = tuple(state["order"])
        self._likeliness = list(state["likeliness"])
        self._baseline = state["baseline"]
        self._trial = state["trial"]
        self._rows = state["rows"]
        self._cost = state["cost"]
        self._rng.bit_generator.state = state["rng"]

    def _try(self, mean: float) -> Proposal | None:
        """Draw a swap; likely ones are tried."""
        swap = int(self._rng.integers(len(self._likeliness)))
        if self._likeliness[swap] <= self._rng.integers(_CERTAIN):
            return None
        self._baseline, self._trial = mean, swap
        return Proposal(_swapped(self._order, swap), {"trial": swap, "cost": mean})

    def _judge(self, mean: float) -> Proposal | None:
        """Keep the swap on trial or take it back."""
        swap, self._trial = self._trial, None
        assert swap is not None, "only a trial is judged"
        if mean < self._baseline:
            self._likeliness[swap] = _CERTAIN
            return None
        self._likeliness[swap] = max(1, self._likeliness[swap] // 2)
        evidence = {"failed_trial": swap, "cost": mean, "cost_to_beat": self._baseline}
        return Proposal(_swapped(self._order, swap), evidence)

    def _restart(self, order: Order) -> None:
        self._order, self._rows, self._cost = order, 0, 0.0


def _swapped(order: Order, i: int) -> Order:
    return (*order[:i], order[i + 1], order[i], *order[i + 2 :])


BENCHMARK_POLICIES: dict[str, type[PolicyOptions]] = {
    "rank": RankOptions,
    "hill_climb": HillClimbOptions,
}
"""The policies of other engines by name."""

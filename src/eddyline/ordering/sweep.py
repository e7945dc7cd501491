"""Sweep: profiling of one position at a time.

A sample costs at most one extra evaluation. Reaches the greedy invariant when the statistics hold
still, but a bad order can stay unnoticed until its position's stage comes round [Babu05 4.4].

Deviations: a stage is judged when it ends, because judging on a few tuples moves the wrong filter
(``judge_early`` brings the thesis' behaviour back); every profile tuple counts towards the stage,
also those dropped behind the profiled position; after a move the next position is profiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eddyline.data import outcomes as outcome
from eddyline.data.learned import Learns
from eddyline.options import in_range
from eddyline.ordering.protocol import Proposal, by_position, reasons

if TYPE_CHECKING:
    from eddyline.data.arrays import Mask
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options of Sweep: how long it looks at a position, and when it moves the filter there.

    Raises:
        OptionError: a value is out of its range.
    """

    stage_rows: int = 500
    """Profile tuples of a stage (≥ 1). The thesis prespecifies it without a number; this is its
    window for Sweep [Babu05 Table 4.1]."""
    hysteresis: float = 0.9
    """The profiled filter must beat an earlier one by 1 / hysteresis to move ((0, 1])."""
    judge_early: bool = False
    """Judge from ``min_fill`` tuples on instead of at the end of the stage."""
    min_fill: int = 50
    """Profile tuples before an early judgement (≥ 1)."""

    def __post_init__(self) -> None:
        in_range(self, "stage_rows", 1, 2**31)
        in_range(self, "hysteresis", 1e-3, 1.0)
        in_range(self, "min_fill", 1, 2**31)

    def build(self, n_filters: int, rng: np.random.Generator) -> Sweep:  # noqa: ARG002 protocol
        """Return a fresh policy."""
        return Sweep(self, n_filters)


class Sweep(Learns):
    """Moves the profiled filter forward when its stage shows a violation."""

    needs_all_bits: ClassVar[bool] = False
    learned = ("_order", "_position", "_n_tuples", "_first", "_hits")

    def __init__(self, options: SweepOptions, n_filters: int) -> None:
        self.options = options
        self._n_filters = n_filters
        self._start_stage(tuple(range(n_filters)), 1)

    def extra(self, n_filters: int) -> Mask:
        """Ask for the profiled position alone."""
        matrix = np.zeros((n_filters, n_filters), dtype=np.bool_)
        if n_filters > 1:
            matrix[: self._position, self._position] = True
        return matrix

    def observe(self, fresh: FilterProfile, order: Order) -> None:
        """Add the tuples of one batch to the stage; bits of another order say nothing."""
        if order != self._order:
            self._start_stage(order, self._position)
        if fresh.basis not in (None, order) or self._n_filters < 2:
            return
        drops, first = by_position(order, outcome.unpack(fresh.codes, fresh.n_filters))
        hit = fresh.weights * drops[:, self._position]
        self._first += np.bincount(first, fresh.weights, minlength=self._n_filters)
        self._hits += np.bincount(first, hit, minlength=self._n_filters)
        self._n_tuples += fresh.n_tuples

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return the order with the profiled filter moved forward, once the stage says so."""
        options, position, n_tuples = self.options, self._position, self._n_tuples
        is_over = n_tuples >= options.stage_rows
        if order != self._order or not (is_over or self._is_early()):
            return None
        costs = window.costs.per_row_ns[list(order)]
        own_ratio = self._first[:position] / costs[:position]
        profiled = self._hits[::-1].cumsum()[::-1][:position] / costs[position]
        flagged = own_ratio < options.hysteresis * profiled
        if not flagged.any():
            if is_over:
                self._start_stage(order, self._next_position())
            return None
        to = int(flagged.argmax())
        moved = (*order[:to], order[position], *order[to:position], *order[position + 1 :])
        self._start_stage(moved, self._next_position())
        ratios = own_ratio[to], profiled[to]
        return Proposal(moved, reasons(window, order, to, position, ratios, n_tuples))

    def _is_early(self) -> bool:
        return self.options.judge_early and self._n_tuples >= self.options.min_fill

    def _next_position(self) -> int:
        return self._position + 1 if self._position < self._n_filters - 1 else 1

    def _start_stage(self, order: Order, position: int) -> None:
        """Forget the tuples: they do not know the bits of another position or order."""
        self._order = order
        self._position = position
        self._n_tuples = 0
        self._first = np.zeros(self._n_filters)
        """Weight first dropped at each position."""
        self._hits = np.zeros(self._n_filters)
        """Of it, the weight that the profiled position drops as well."""

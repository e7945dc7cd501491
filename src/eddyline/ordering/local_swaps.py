"""LocalSwaps: comparisons of neighbours only.

A sample costs at most one extra evaluation. Can stay in a local optimum, up to O(F) times the
greedy order (Example 4.6.1); a long move takes many swaps [Babu05 4.6].

Deviation: the thesis does not say what a swap does to its window. The bits that the two new
neighbour pairs need were never taken, so a swap starts the window afresh.
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
    from eddyline.data.arrays import Floats, Indices, Mask
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSwapsOptions:
    """Options of LocalSwaps: the conditions of a swap.

    Raises:
        OptionError: a value is out of its range.
    """

    window_rows: int = 1000
    """Profile tuples that it remembers (≥ 1) [Babu05 Table 4.1]."""
    min_fill: int = 500
    """Profile tuples since the last swap before it decides (≥ 1, at most ``window_rows``). Half a
    window: judging earlier swaps on noise, waiting for all of it makes long moves very slow."""
    hysteresis: float = 0.9
    """A filter must beat its left neighbour by 1 / hysteresis to swap ((0, 1])."""

    def __post_init__(self) -> None:
        in_range(self, "window_rows", 1, 2**31)
        in_range(self, "min_fill", 1, self.window_rows)
        in_range(self, "hysteresis", 1e-3, 1.0)

    def build(self, n_filters: int, rng: np.random.Generator) -> LocalSwaps:  # noqa: ARG002 protocol
        """Return a fresh policy."""
        return LocalSwaps(self, n_filters)


class LocalSwaps(Learns):
    """Swaps two neighbours when the right one drops more per cost of what reaches the left."""

    needs_all_bits: ClassVar[bool] = False
    learned = ("_order", "_first", "_hit", "_weights")
    growing = ("_first", "_hit", "_weights")

    def __init__(self, options: LocalSwapsOptions, n_filters: int) -> None:
        self.options = options
        self._n_filters = n_filters
        self._order: Order = tuple(range(n_filters))
        self._first: Indices = np.zeros(0, dtype=np.intp)
        """Position of the first drop of each tuple."""
        self._hit: Mask = np.zeros(0, dtype=np.bool_)
        """Whether the position behind drops it as well."""
        self._weights: Floats = np.zeros(0)

    def extra(self, n_filters: int) -> Mask:
        """Ask for the position behind the first drop."""
        return np.eye(n_filters, k=1, dtype=np.bool_)

    def observe(self, fresh: FilterProfile, order: Order) -> None:
        """Add the tuples of one batch; bits of another order say nothing."""
        if order != self._order:
            self._start_window(order)
        if fresh.basis not in (None, order):
            return
        drops, first = by_position(order, outcome.unpack(fresh.codes, fresh.n_filters))
        behind = np.minimum(first + 1, self._n_filters - 1)
        hit = drops[np.arange(len(drops)), behind] & (behind > first)
        keep = slice(-self.options.window_rows, None)
        self._first = np.concatenate([self._first, first])[keep]
        self._hit = np.concatenate([self._hit, hit])[keep]
        self._weights = np.concatenate([self._weights, fresh.weights])[keep]

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return the order with two neighbours swapped, if they stand the wrong way round."""
        n_tuples = len(self._first)
        if order != self._order or n_tuples < self.options.min_fill:
            return None
        costs = window.costs.per_row_ns[list(order)]
        drops, behind = self._drops()
        own_ratio, behind_ratio = drops[:-1] / costs[:-1], behind / costs[1:]
        flagged = own_ratio < self.options.hysteresis * behind_ratio
        if not flagged.any():
            return None
        i = int(flagged.argmax())
        swapped = (*order[:i], order[i + 1], order[i], *order[i + 2 :])
        self._start_window(swapped)
        ratios = own_ratio[i], behind_ratio[i]
        return Proposal(swapped, reasons(window, order, i, i + 1, ratios, n_tuples))

    def _drops(self) -> tuple[Floats, Floats]:
        """Return V[i, i] ((F,)) and V[i, i + 1] ((F - 1,)).

        A tuple first dropped at i + 1 reached i and is dropped by its right neighbour too.
        """
        drops = self._weigh(self._weights)
        return drops, self._weigh(self._weights * self._hit)[:-1] + drops[1:]

    def _weigh(self, weights: Floats) -> Floats:
        """Return the sum of the weights by position of the first drop ((F,))."""
        return np.bincount(self._first, weights, minlength=self._n_filters).astype(np.float64)

    def _start_window(self, order: Order) -> None:
        self._order = order
        self._first, self._hit, self._weights = self._first[:0], self._hit[:0], self._weights[:0]

"""From sampled rows to one order per class, and what each row costs under them.

Rows with the same outcomes and the same class are one *cell* with a weight, so the work depends on
how many different rows there are, not on how many.

A filter's pass fraction in a bin is drawn towards its overall pass fraction, by as much as its
pass fractions differ between bins no more than by chance (empirical Bayes); a filter that an
attribute says nothing of has its overall one everywhere. On top of these fractions, taken as
independent, come the rows of the class itself: they say how the filters depend on each other there.
With few rows the order is the paper's, by content-specific pass fraction; with many it is the
greedy order of the class. [Bizarro05 4.2; Babu05 4.3]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from eddyline.data.arrays import Bytes, Floats, Indices, Mask
from eddyline.data.outcomes import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import Order

Orders = Indices
"""Orders as rows of a matrix ((G, F))."""

MAX_CANDIDATES = 32
"""Orders that are weighed against each other for the table."""

MIN_GROUP_GAIN = 0.001
"""Least saving of an order group, as a share of the cost of all rows: less is noise, and
each group is a branch."""


MAX_WEIGHT = 2.0
"""Most that a row may weigh, in medians: a few rows of a time when little was sampled would make
everything uncertain [truncated importance weights, Ionides08]."""

MIN_LOSS = 0.02
"""Least loss of a class by another order to need its own, as a share of the cost of a row."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Sampled rows by their outcomes alone."""

    drops: Bits
    """Mask of the filters that drop a row of each code ((Q, F))."""
    of_row: Indices
    """Code of each row ((M,))."""
    weights: Floats
    """Weight of each row, 1 on average ((M,))."""

    @classmethod
    def of(cls, drops: Bits, codes: Bytes, weights: Floats) -> Self:
        """Return sampled rows grouped by outcome: bits ((M, F)), and the same packed ((M, B))."""
        if len(weights) == 0:
            return cls(drops, np.zeros(0, dtype=np.intp), weights)
        first, of_row = grouped(codes)
        weights = np.minimum(weights, MAX_WEIGHT * np.median(weights))
        return cls(drops[first], of_row, weights / weights.mean())

    @property
    def n_rows(self) -> int:
        """M, the number of rows."""
        return len(self.weights)

    def costs(self, orders: Orders, costs_ns: Floats) -> Floats:
        """Return the cost of a row of each code under each order ((G, F)) (ns; (Q, G))."""
        drops = self.drops[:, orders]
        drops[:, :, -1] = True  # whoever comes this far pays for the last filter either way
        spent = costs_ns[orders].cumsum(axis=1)
        found: Floats = spent[np.arange(len(orders)), drops.argmax(axis=2)]
        return found

    def least_costs(self, costs_ns: Floats) -> Floats:
        """Return the least cost of a row of each code, under whatever order (ns; (Q,))."""
        least = np.where(self.drops, costs_ns, np.inf).min(axis=1)
        found: Floats = np.minimum(least, costs_ns.sum())
        return found


@dataclass(frozen=True, slots=True)
class Cells:
    """Sampled rows by class and outcome."""

    classes: Indices
    """The classes that have rows, ascending ((C,))."""
    starts: Indices
    """First cell of each class ((C,))."""
    owner: Indices
    """Class of each cell, as a place in ``classes`` ((N,))."""
    code: Indices
    """Outcome code of each cell ((N,))."""
    of_row: Indices
    """Cell of each row ((M,))."""

    @classmethod
    def of(cls, class_of_row: Indices, outcomes: Outcomes) -> Self:
        """Return the cells of rows whose class is known ((M,))."""
        n_codes = len(outcomes.drops)
        keys, of_row = np.unique(class_of_row * n_codes + outcomes.of_row, return_inverse=True)
        classes = keys // n_codes
        starts = np.flatnonzero(np.diff(classes, prepend=-1))
        owner = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(classes)))
        return cls(classes[starts], starts, owner, keys % n_codes, of_row.ravel())

    def sums(self, weights: Floats) -> Floats:
        """Return the weight of each cell ((N,)) from that of each row ((M,))."""
        return np.bincount(self.of_row, weights=weights).astype(np.float64)


def shrunk(seen: Floats, passed: Floats) -> Floats:
    """Return the pass fraction in each bin, drawn towards the overall one ([0, 1]; (D,)).

    How strongly is estimated: by how much the bins differ beyond chance [DerSimonian86].

    >>> shrunk(np.array([50.0, 50.0]), np.array([25.0, 26.0])).round(2)
    array([0.51, 0.51])
    >>> shrunk(np.array([50.0, 50.0, 0.0]), np.array([5.0, 45.0, 0.0])).round(2)
    array([0.11, 0.89, 0.5 ])
    """
    total = seen.sum()
    overall = passed.sum() / max(total, 1.0)
    chance = overall * (1.0 - overall)
    fracs = np.divide(passed, seen, out=np.full(len(seen), overall), where=seen > 0)
    spread = seen @ (fracs - overall) ** 2 - (np.count_nonzero(seen) - 1) * chance
    scale = total - (seen @ seen) / max(total, 1.0)
    if spread <= 0.0 or scale <= 0.0:
        return np.full(len(seen), overall)
    prior_rows = chance * scale / spread
    found: Floats = (passed + prior_rows * overall) / (seen + prior_rows)
    return found


def greedy_orders(
    cells: Cells, drops: Bits, weights: Floats, prior_drops: Floats, costs_ns: Floats
) -> Orders:
    """Return for each class the order of the most dropped per cost ((C, F)).

    ``drops`` ((N, F)) and ``weights`` ((N,)) are of the cells. ``prior_drops`` is the weight that
    each filter is taken to drop at any position before anything is seen there ((C, F)).
    """
    n_classes, n_filters = prior_drops.shape
    orders = np.empty((n_classes, n_filters), dtype=np.intp)
    every, places = np.arange(n_classes), np.arange(len(weights))
    left = np.ones((n_classes, n_filters), dtype=np.bool_)
    alive = drops * weights[:, None]
    for position in range(n_filters):
        ratio = (np.add.reduceat(alive, cells.starts, axis=0) + prior_drops) / costs_ns
        best = np.where(left, ratio, -1.0).argmax(axis=1)
        orders[:, position] = best
        left[every, best] = False
        alive[drops[places, best[cells.owner]]] = 0.0
    return orders


def independent_costs(pass_fracs: Floats, orders: Orders, costs_ns: Floats) -> Floats:
    """Return a row's cost under each order ((G, F)) if filters are independent (ns; (C, G)).

    ``pass_fracs`` are of each filter in each class ((C, F)).
    """
    reach = np.cumprod(pass_fracs[:, orders[:, :-1]], axis=2)
    costs = costs_ns[orders]
    found: Floats = costs[:, 0] + (reach * costs[:, 1:]).sum(axis=2)
    return found


@dataclass(frozen=True, slots=True)
class Learned:
    """Orders, and which class takes which."""

    orders: Orders
    """The orders in use, the default first ((G, F)); perhaps once more, for classes that need it
    whatever becomes of the default."""
    groups: Indices
    """Place in ``orders`` of each class of the cells ((C,))."""


def learn(
    cells: Cells,
    outcomes: Outcomes,
    weights: Floats,
    pass_fracs: Floats,
    default: Order,
    costs_ns: Floats,
    *,
    prior_rows: float,
    max_groups: int,
    group_ns: float,
) -> Learned:
    """Return an order for each class: few different ones, and the default where none is better.

    Args:
        cells: the rows by class.
        outcomes: their outcomes.
        weights: weight of each cell; 0 for what is not to be learned from ((N,)).
        pass_fracs: of each filter in each class ((C, F)).
        default: the order of all rows.
        costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)).
        prior_rows: rows of independent filters that each class is taken to have (≥ 0).
        max_groups: most groups (≥ 2).
        group_ns: what one more order costs per input row (ns; ≥ 0).
    """
    prior = prior_rows * (1.0 - pass_fracs)
    drops = outcomes.drops[cells.code]
    greedy = greedy_orders(cells, drops, weights, prior, costs_ns)
    of_class = np.add.reduceat(weights, cells.starts)
    candidates = _distinct(greedy, of_class + prior_rows, default)
    by_code = outcomes.costs(candidates, costs_ns)
    seen = np.add.reduceat(by_code[cells.code] * weights[:, None], cells.starts, axis=0)
    costs = seen + prior_rows * independent_costs(pass_fracs, candidates, costs_ns)
    # The prior stands for rows that are not there: in proportion, it is not to weigh in a choice.
    costs *= (of_class / np.maximum(of_class + prior_rows, 1e-9))[:, None]
    least = max(group_ns * weights.sum(), MIN_GROUP_GAIN * costs[:, 0].sum())
    chosen = _choose(costs, max(2, max_groups - 1), least)
    groups = costs[:, chosen].argmin(axis=1)
    needs = (groups == 0) & _needs_default(costs[:, chosen], of_class)
    if needs.any() and len(chosen) < max_groups:
        groups[needs] = len(chosen)
        chosen.append(0)
    return Learned(candidates[chosen], groups)


def _needs_default(costs: Floats, of_class: Floats) -> Mask:
    """Return a mask of the classes that would lose far more by another order than all rows ((C,)).

    What is the order of all rows today is one of several that are as good to rows in general, and
    may be another one tomorrow; such a class keeps it. The first column of costs ((C, G)) is its.
    """
    rows = max(of_class.sum(), 1e-9)
    in_general = np.maximum((costs - costs[:, :1]).sum(axis=0) / rows, 0.0)
    of_each = (costs - costs[:, :1]) / np.maximum(of_class, 1e-9)[:, None]
    least = MIN_LOSS * costs[:, 0].sum() / rows
    found: Mask = (of_each > 2.0 * in_general + least).any(axis=1)
    return found


def _distinct(orders: Orders, weights: Floats, default: Order) -> Orders:
    """Return the default and the distinct orders that most rows want ((G, F))."""
    place: dict[bytes, int] = {np.array(default, dtype=np.intp).tobytes(): 0}
    number = np.array([place.setdefault(order.tobytes(), len(place)) for order in orders])
    wanted = np.bincount(number, weights=weights, minlength=len(place))
    wanted[0] = np.inf
    distinct = np.array([np.frombuffer(key, dtype=np.intp) for key in place])
    return distinct[np.argsort(-wanted, kind="stable")[:MAX_CANDIDATES]]


def _choose(costs: Floats, max_groups: int, least: float) -> list[int]:
    """Return the orders to use, best first: each must save ``least`` (ns) beside those before it.

    The first one, the default, is always used.
    """
    chosen, best = [0], costs[:, 0]
    while len(chosen) < min(max_groups, costs.shape[1]):
        saved = np.maximum(best[:, None] - costs, 0.0).sum(axis=0)
        found = int(saved.argmax())
        if saved[found] <= least:
            break
        chosen.append(found)
        best = np.minimum(best, costs[:, found])
    return chosen


def class_bins(classes: Indices, sizes: Sequence[int]) -> list[Indices]:
    """Return the bin of each class in each attribute: mixed radix taken apart (U times (C,))."""
    return list(np.unravel_index(classes, tuple(sizes))) if sizes else []

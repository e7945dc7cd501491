"""Costs of orders of constructs on sampled rows whose bitmaps are all known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Words


@compiled
def order_cost(
    bitmaps: Words,
    left: Words,
    usage: Words,
    rows: Ints,
    order: Ints,
    costs: Floats,
    skips: bool,
) -> float:
    """Return the cost of some rows that visit constructs in an order until they are dropped.

    Bitmaps are those of each row in each construct ((T, n, W)); at first each row has the rules
    ``left`` ((T, W)), and each construct can decide those of ``usage`` ((n, W)). The order may lack
    constructs; costs are those of an evaluation, in any unit ((n,)). With ``skips``, constructs
    that cannot decide a rule that is left are passed over.
    """
    now = np.empty(left.shape[1], dtype=np.uint64)
    total = 0.0
    for row in rows:
        _and(left[row], left[row], now)
        for construct in order:
            if skips and not _meet(now, usage[construct]):
                continue
            total += costs[construct]
            _and(now, bitmaps[row, construct], now)
            if not _meet(now, now):
                break
    return total


@compiled
def subset_visits(bitmaps: Words, initial: Words, usage: Words, skips: bool) -> Ints:
    """Return the number of rows that would visit a construct after each set of others ((2**n, n)).

    Whatever the order within the set: the rules that a row has left depend on the set alone.

    Arguments are as for ``order_cost``; before any construct the rules ``initial`` are left ((W,)).
    """
    n_rows, n, _ = bitmaps.shape
    visits = np.zeros((1 << n, n), dtype=np.int64)
    left = np.empty((1 << n, len(initial)), dtype=np.uint64)
    _and(initial, initial, left[0])
    for row in range(n_rows):
        for members in range(1 << n):
            if members > 0:
                lowest = 0
                while not (members >> lowest) & 1:
                    lowest += 1
                _and(left[members & (members - 1)], bitmaps[row, lowest], left[members])
            if not _meet(left[members], initial):
                continue
            for construct in range(n):
                if not (members >> construct) & 1:
                    visits[members, construct] += not skips or _meet(
                        left[members], usage[construct]
                    )
    return visits


@compiled
def _and(some: Words, others: Words, found: Words) -> None:
    # Word by word: assigning a slice compiles the text of an error, which takes two seconds.
    for word in range(len(some)):
        found[word] = some[word] & others[word]


@compiled
def _meet(some: Words, others: Words) -> bool:
    found = np.uint64(0)
    for word in range(len(some)):
        found |= some[word] & others[word]
    return bool(found != np.uint64(0))


@compiled
def best_path(visits: Ints, costs: Floats) -> Ints:
    """Return the cheapest order by visits of sets ((2**n, n)) and costs of constructs ((n,))."""
    n_sets, n = visits.shape
    best = np.full(n_sets, np.inf)
    last = np.zeros(n_sets, dtype=np.int64)
    best[0] = 0.0
    for members in range(1, n_sets):
        for construct in range(n):
            if (members >> construct) & 1:
                before = members ^ (1 << construct)
                cost = best[before] + visits[before, construct] * costs[construct]
                if cost < best[members]:
                    best[members] = cost
                    last[members] = construct
    order = np.empty(n, dtype=np.int64)
    members = n_sets - 1
    for position in range(n - 1, -1, -1):
        order[position] = last[members]
        members ^= 1 << last[members]
    return order

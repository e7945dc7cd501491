"""Block estimates of what filters drop, given an order's prefix.

Each comes from a few sampled rows. Change detectors watch numbers, not rows. For each prefix of the
order, the sampled rows that the prefix lets through are cut into consecutive blocks; a full block
gives one estimate of the drop fraction of every filter that stands behind the prefix [Tsamoura16
6].

Deviation: the paper cuts the profile into blocks of k rows before it looks which of them a prefix
lets through. Deep in the order too few of them are left to estimate anything, so here the rows
that are let through fill the block, however many sampled rows that takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.data.learned import Learns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Floats, Ints, Mask
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import Order

_MOST_CELLS = 2**16
"""Estimates that are made together (half a MiB)."""


class BlockEstimates(Learns):
    """Open blocks of the F prefixes of an order: k rows that the prefix lets through fill one."""

    learned = ("_reached", "_dropped")

    def __init__(self, n_filters: int, block_rows: int) -> None:
        self.n_filters = n_filters
        self.block_rows = block_rows
        self._reached = np.zeros(n_filters)
        """Rows of the open block of each prefix; entry i is the first i filters of the order."""
        self._dropped = np.zeros((n_filters, n_filters))
        """Of those, the rows that each filter drops, by prefix and filter."""

    def add(self, drops: Bits, order: Order) -> Iterator[tuple[Ints, Floats]]:
        """Take in sampled rows.

        Args:
            drops: which filter drops which row, oldest row first ((R, F)); rows that pass
                included.
            order: the order whose prefixes are watched.

        Yields:
            For T runs of at most ``block_rows`` rows: the length of each run ((T,)), and the drop
            fraction of each filter given each prefix ((T, F, F), by run, prefix length and filter;
            nan where the run filled no block, and where the filter is of the prefix).
        """
        rows, filters = np.ascontiguousarray(drops, dtype=np.bool_), np.array(order, dtype=np.int64)
        most_rows = max(_MOST_CELLS // self.n_filters**2, 1) * self.block_rows
        for start in range(0, len(rows), most_rows):
            part = rows[start : start + most_rows]
            n_runs = -(-len(part) // self.block_rows)
            lengths = np.full(n_runs, self.block_rows)
            lengths[-1] = len(part) - (n_runs - 1) * self.block_rows
            estimates = np.full((n_runs, self.n_filters, self.n_filters), np.nan)
            fill_blocks(part, filters, self.block_rows, self._reached, self._dropped, estimates)
            yield lengths, estimates

    def forget(self, prefixes: Mask) -> None:
        """Empty the open blocks of some prefixes ((F,))."""
        self._reached[prefixes] = 0.0
        self._dropped[prefixes] = 0.0

    def check_learned(self) -> None:
        """Raise StateError if a restored block is not open."""
        is_open = (self._reached >= 0.0) & (self._reached < self.block_rows)
        fits = (self._dropped >= 0.0) & (self._dropped <= self._reached[:, None])
        if not (is_open.all() and fits.all()):
            self._damaged("an open block has more rows than it can, or drops more than it has")


@compiled
def fill_blocks(
    drops: Mask, order: Ints, block_rows: int, reached: Floats, dropped: Floats, estimates: Floats
) -> None:
    """Count rows into the open block of each prefix; write estimates of the blocks they fill.

    Args:
        drops: which filter drops which row ((R, F)).
        order: the order whose prefixes are watched ((F,)).
        block_rows: rows of a run, and of a block.
        reached: rows of each open block ((F,)).
        dropped: of those, the rows that each filter drops ((F, F), by prefix and filter).
        estimates: takes the fractions after each run that filled a block ((T, F, F)).
    """
    n = len(order)
    for row in range(len(drops)):
        for i in range(n):
            reached[i] += 1.0
            for c in range(i, n):
                dropped[i, order[c]] += drops[row, order[c]]
            if drops[row, order[i]]:
                break
        if (row + 1) % block_rows and row + 1 < len(drops):
            continue
        for i in range(n):
            if reached[i] >= block_rows:
                for c in range(i, n):
                    estimates[row // block_rows, i, order[c]] = dropped[i, order[c]] / reached[i]
                reached[i] = 0.0
                dropped[i] = 0.0


def changed_prefixes(before: Order, after: Order) -> Mask:
    """Return a mask of the prefix lengths that name other filters in another order ((F,)).

    >>> changed_prefixes((0, 1, 2), (1, 0, 2))
    array([False,  True, False])
    """
    n = len(before)
    # The sets of the first i agree iff as many distinct filters are in both of them together.
    rank = np.empty(n, dtype=np.int64)
    rank[list(before)] = np.arange(n)
    furthest = np.maximum.accumulate(rank[list(after)])
    changed = np.zeros(n, dtype=np.bool_)
    changed[1:] = furthest[:-1] >= np.arange(1, n)
    return changed

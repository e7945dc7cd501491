"""Block estimates: what filters drop given a prefix of the order, from a few sampled rows each.

Change detectors watch numbers, not rows. For each prefix of the order, the sampled rows that the
prefix lets through are cut into consecutive blocks; a full block gives one estimate of the drop
fraction of every filter that stands behind the prefix [Tsamoura16 6].

Deviation: the paper cuts the profile into blocks of k rows before it looks which of them a prefix
lets through. Deep in the order too few of them are left to estimate anything, so here the rows
that are let through fill the block, however many sampled rows that takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.learned import Learns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Floats, Mask
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import Order


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

    def add(self, drops: Bits, order: Order) -> Iterator[tuple[int, Floats]]:
        """Take in sampled rows.

        Args:
            drops: which filter drops which row, oldest row first ((R, F)); rows that pass
                included.
            order: the order whose prefixes are watched.

        Yields:
            After at most ``block_rows`` rows, how many rows came since the last time, and the
            drop fraction of each filter given each prefix ((F, F), by prefix length and filter;
            nan where no block was filled, and where the filter is of the prefix).
        """
        behind = behind_prefix(order)
        positions = list(order)
        for start in range(0, len(drops), self.block_rows):
            by_position = drops[start : start + self.block_rows, positions]
            dropped = np.logical_or.accumulate(by_position, axis=1)
            alive = np.ones(by_position.shape)
            alive[:, 1:] = ~dropped[:, :-1]
            self._reached += alive.sum(axis=0)
            self._dropped[:, positions] += alive.T @ by_position.astype(np.float64)
            full = self._reached >= self.block_rows
            estimates = np.full((self.n_filters, self.n_filters), np.nan)
            estimates[full] = np.where(
                behind[full], self._dropped[full] / self._reached[full, None], np.nan
            )
            self.forget(full)
            yield len(by_position), estimates

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


def behind_prefix(order: Order) -> Mask:
    """Return a mask of the filters behind each prefix of an order ((F, F), prefix and filter).

    >>> behind_prefix((1, 0))
    array([[ True,  True],
           [ True, False]])
    """
    place = np.empty(len(order), dtype=np.int64)
    place[list(order)] = np.arange(len(order))
    return place[None, :] >= np.arange(len(order))[:, None]


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

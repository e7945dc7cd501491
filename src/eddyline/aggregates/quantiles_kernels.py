"""Compiled: the value of a rank in each range, for ranges that follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def places_of_ranks(
    places: NDArray[np.int64],
    wanted: NDArray[np.float64],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return which place among all sorted entries has a rank in each range, -1 of none.

    Places that are in the range are counted in a tree (Fenwick): an entry comes, goes and is found
    in the logarithm of their number.

    Args:
        places: the place of each entry among all of them sorted, -1 if it does not count.
        wanted: the rank that is asked for at each entry (fraction of the entries); of a range,
            its last entry says.
        lo: first entry of each range.
        hi: the one behind the last.
    """
    found, counts = np.empty(lo.size, np.int64), np.zeros(places.size + 1, np.int64)
    top = np.int64(1)
    while 2 * top <= places.size:
        top *= 2
    left, right, n, last = np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    for each in range(lo.size):
        start, stop = lo[each], hi[each]
        if start >= right:  # nothing in common with the range before
            while left < right:
                n -= _moved(places[left], -1, counts)
                left += 1
            left = right = start
        while right < stop:
            if places[right] >= 0:
                last = right
            n += _moved(places[right], 1, counts)
            right += 1
        while left < start:
            n -= _moved(places[left], -1, counts)
            left += 1
        found[each] = -1
        if n:
            rank = min(max(np.int64(np.ceil(wanted[last] * n)), np.int64(1)), n)
            found[each] = _place_of(rank, top, counts)
    return found


@compiled
def _moved(place: np.int64, by: int, counts: NDArray[np.int64]) -> int:
    """Count a place in or out, and return whether it counts."""
    if place < 0:
        return 0
    at = place + 1
    while at < counts.size:
        counts[at] += by
        at += at & -at
    return 1


@compiled
def _place_of(rank: np.int64, top: np.int64, counts: NDArray[np.int64]) -> np.int64:
    """Return the place of the entry of a rank (from 1 on)."""
    at, step, rest = np.int64(0), top, rank
    while step > 0:
        if at + step < counts.size and counts[at + step] < rest:
            at += step
            rest -= counts[at]
        step //= 2
    return at

"""Compiled: sketches of how many rows of each key were dropped, which never count too few.

Count-min: each key has a counter in each of some rows of counters, chosen by its hash. Any other
key may have the same, so that the least of them is an upper bound. What others add to a counter on
average is known, so that without it the median of them is an estimate that is neither too high nor
too low (count-mean-min).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEPTH = 4
"""Counters of a key; the estimate is the mean of the two in the middle."""

BITS = 15
"""Counters of a row, as a power of two."""

_SHIFT = np.uint64(64 - BITS)
_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)
"""Odd, so that each row of counters takes other bits of a hash together."""


@compiled
def add_counts(
    counters: NDArray[np.int64], hashes: NDArray[np.uint64], counts: NDArray[np.int64]
) -> None:
    """Add rows, by the hash of their key, to counters ((DEPTH, 2^BITS))."""
    for depth in range(DEPTH):
        for key in range(hashes.size):
            counters[depth, (hashes[key] * _FACTORS[depth]) >> _SHIFT] += counts[key]


@compiled
def counts_of(
    counters: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return how many rows of each key there are at most, and about how many."""
    most, about = np.empty(hashes.size, np.int64), np.empty(hashes.size, np.float64)
    found, n_rows = np.empty(DEPTH, np.int64), counters[0].sum()
    for key in range(hashes.size):
        for depth in range(DEPTH):
            found[depth] = counters[depth, (hashes[key] * _FACTORS[depth]) >> _SHIFT]
        found.sort()
        most[key] = found[0]
        middle = 0.5 * (found[DEPTH // 2 - 1] + found[DEPTH // 2])
        about[key] = middle - (n_rows - middle) / (counters.shape[1] - 1)
    return most, about

"""Compiled: distinct values over ranges that follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def before_of(codes: NDArray[np.int64], n_codes: int) -> NDArray[np.int64]:
    """Return where the code of each place was last before it, -1 if it was not."""
    found, last = np.empty(codes.size, np.int64), np.full(n_codes, -1, np.int64)
    for place in range(codes.size):
        found[place] = last[codes[place]]
        last[codes[place]] = place
    return found


@compiled
def distinct_counts(
    codes: NDArray[np.int64], n_codes: int, lo: NDArray[np.int64], hi: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many distinct codes each range has."""
    found, counts = np.empty(lo.size, np.int64), np.zeros(n_codes, np.int64)
    left, right, n_distinct = np.int64(0), np.int64(0), 0
    for each in range(lo.size):
        while right < hi[each]:
            n_distinct += counts[codes[right]] == 0
            counts[codes[right]] += 1
            right += 1
        while left < lo[each]:
            counts[codes[left]] -= 1
            n_distinct -= counts[codes[left]] == 0
            left += 1
        found[each] = n_distinct
    return found

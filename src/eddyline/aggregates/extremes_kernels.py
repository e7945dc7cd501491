"""Compiled: where the least entry of each range is, for ranges that follow each other.

Entries that a lesser one follows are no longer looked at: what is left is in ascending order, its
head is the least, and each entry comes and goes once. Of equal entries the first one is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HEAD = 8
"""Bytes of a text that are compared at once."""


@compiled
def least_words(
    keys: NDArray[np.int64],
    there: NDArray[np.bool_],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the position of the least key in each range, -1 where nothing is there."""
    found = np.empty(lo.size, np.int64)
    queue = np.empty(keys.size, np.int64)
    head, tail, right = 0, 0, np.int64(0)
    for each in range(lo.size):
        start = lo[each]
        right = max(right, start)
        while right < hi[each]:
            if there[right]:
                key = keys[right]
                while tail > head and keys[queue[tail - 1]] > key:
                    tail -= 1
                queue[tail] = right
                tail += 1
            right += 1
        while head < tail and queue[head] < start:
            head += 1
        found[each] = queue[head] if head < tail else -1
    return found


@compiled
def least_pairs(
    high: NDArray[np.int64],
    low: NDArray[np.uint64],
    there: NDArray[np.bool_],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the same for keys of two words, of which the high one counts first."""
    found = np.empty(lo.size, np.int64)
    queue = np.empty(high.size, np.int64)
    head, tail, right = 0, 0, np.int64(0)
    for each in range(lo.size):
        start = lo[each]
        right = max(right, start)
        while right < hi[each]:
            if there[right]:
                upper, lower = high[right], low[right]
                while tail > head:
                    last = queue[tail - 1]
                    if high[last] < upper or (high[last] == upper and low[last] <= lower):
                        break
                    tail -= 1
                queue[tail] = right
                tail += 1
            right += 1
        while head < tail and queue[head] < start:
            head += 1
        found[each] = queue[head] if head < tail else -1
    return found


@compiled
def least_bytes(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    sign: int,
    there: NDArray[np.bool_],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the same for bytes; the greatest if the sign is -1."""
    heads = heads_of(data, offsets)
    found = np.empty(lo.size, np.int64)
    queue = np.empty(there.size, np.int64)
    head, tail, right = 0, 0, np.int64(0)
    for each in range(lo.size):
        start = lo[each]
        right = max(right, start)
        while right < hi[each]:
            if there[right]:
                while tail > head and (
                    sign * compared(queue[tail - 1], right, heads, data, offsets) > 0
                ):
                    tail -= 1
                queue[tail] = right
                tail += 1
            right += 1
        while head < tail and queue[head] < start:
            head += 1
        found[each] = queue[head] if head < tail else -1
    return found


@compiled
def heads_of(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the first bytes of each text as a number that sorts as they do."""
    found = np.zeros(offsets.size - 1, np.uint64)
    for each in range(found.size):
        first = offsets[each]
        length = min(offsets[each + 1] - first, _HEAD)
        number = np.uint64(0)
        for at in range(length):
            number |= np.uint64(data[first + at]) << np.uint64(8 * (_HEAD - 1 - at))
        found[each] = number
    return found


@compiled
def compared(
    one: np.int64,
    other: np.int64,
    heads: NDArray[np.uint64],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> int:
    """Return -1, 0 or 1, as one text is less than another, equal, or greater."""
    if heads[one] != heads[other]:
        return -1 if heads[one] < heads[other] else 1
    first, second = offsets[one], offsets[other]
    size, size_other = offsets[one + 1] - first, offsets[other + 1] - second
    for at in range(_HEAD, min(size, size_other)):
        if data[first + at] != data[second + at]:
            return -1 if data[first + at] < data[second + at] else 1
    if size == size_other:
        return 0
    return -1 if size < size_other else 1

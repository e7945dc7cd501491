"""Compiled: pairs of ranges that overlap in time and are near each other in value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints


@compiled
def near_pairs(
    first: Ints,
    last: Ints,
    keys: Ints,
    other_keys: Ints,
    low: Floats,
    high: Floats,
    other_low: Floats,
    other_high: Floats,
) -> tuple[Ints, Ints]:
    """Return which of the others from ``first`` to before ``last`` are near each range.

    Near are two of different entities whose boxes meet in each attribute.
    """
    room = 1024
    ones, others = np.empty(room, np.int64), np.empty(room, np.int64)
    count = 0
    for one in range(first.size):
        for other in range(first[one], last[one]):
            is_apart = False
            for axis in range(low.shape[1]):
                # No branch for each of the two, which the processor would often guess wrong.
                is_apart = (low[one, axis] > other_high[other, axis]) | (
                    high[one, axis] < other_low[other, axis]
                )
                if is_apart:
                    break
            if is_apart or keys[one] == other_keys[other]:
                continue
            if count == room:
                ones = np.concatenate((ones, np.empty(room, np.int64)))
                others = np.concatenate((others, np.empty(room, np.int64)))
                room *= 2
            ones[count], others[count] = one, other
            count += 1
    return ones[:count], others[:count]


@compiled
def set_ends(
    coefs: Floats, since: Floats, length: Floats, axis: int, low: Floats, high: Floats
) -> None:
    """Set the least and the greatest values of lines, of which the higher coefficients are 0."""
    for row in range(coefs.shape[0]):
        begin, change = coefs[row, 0], 0.0
        if coefs.shape[1] > 1:
            begin += coefs[row, 1] * since[row]
            change = coefs[row, 1] * length[row]
        end = begin + change
        low[row, axis], high[row, axis] = min(begin, end), max(begin, end)
        if np.isnan(end):
            low[row, axis], high[row, axis] = end, end


@compiled
def widen(
    coefs: Floats,
    since: Floats,
    length: Floats,
    margin: float,
    axis: int,
    low: Floats,
    high: Floats,
) -> None:
    """Widen bounds by a margin, and so far that rounding parts none that is exactly at it."""
    for row in range(coefs.shape[0]):
        reach, size = abs(since[row]) + length[row], 0.0
        for power in range(coefs.shape[1] - 1, -1, -1):
            size = size * reach + abs(coefs[row, power])
        wider = margin * (1 + 1e-12) + 1e-12 * size
        low[row, axis] -= wider
        high[row, axis] += wider

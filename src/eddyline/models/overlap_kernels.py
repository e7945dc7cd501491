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
            if keys[one] == other_keys[other]:
                continue
            meets = True
            for axis in range(low.shape[1]):
                if (
                    low[one, axis] > other_high[other, axis]
                    or high[one, axis] < other_low[other, axis]
                ):
                    meets = False
                    break
            if not meets:
                continue
            if count == room:
                ones = np.concatenate((ones, np.empty(room, np.int64)))
                others = np.concatenate((others, np.empty(room, np.int64)))
                room *= 2
            ones[count], others[count] = one, other
            count += 1
    return ones[:count], others[:count]

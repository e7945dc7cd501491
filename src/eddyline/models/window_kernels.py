"""Compiled: sums of all that came before, without digits being lost however long that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Mask


@compiled
def sums_before(values: Floats, is_first: Mask) -> tuple[Floats, Floats]:
    """Return the sum of the values before each one of its entity, and what rounding took from it.

    The two together have twice the digits of a float: the difference of two of them is as exact as
    if only what lies between had been summed.
    """
    high, low = np.empty(values.size), np.empty(values.size)
    total = rest = 0.0
    for each in range(values.size):
        if is_first[each]:
            total = rest = 0.0
        high[each], low[each] = total, rest
        value = values[each]
        summed = total + value
        part = summed - total
        rest += (total - (summed - part)) + (value - part)
        total = summed
    return high, low

"""Compiled: which of sorted constants lie between the bounds of a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints


@compiled
def places(
    constants: Floats, first: Indices, last: Indices, values: Floats, is_after: bool
) -> Ints:
    """Return for each value where it stands among the constants of its own range.

    Args:
        constants: ascending within each range.
        first: where the range of a value begins, ``[n]``.
        last: where it ends, exclusive, ``[n]``.
        values: no NaN, ``[n]``.
        is_after: whether it stands behind constants that are equal to it.
    """
    found = np.empty(values.size, np.int64)
    for at in range(values.size):
        low, high, value = first[at], last[at], values[at]
        while low < high:
            middle = (low + high) // 2
            if constants[middle] < value or (is_after and constants[middle] == value):
                low = middle + 1
            else:
                high = middle
        found[at] = low
    return found

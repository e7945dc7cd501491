"""Compiled: finds where values lie among sorted constants, byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Bytes, Ints, Mask


@compiled
def _compared(
    data: Bytes,
    start: int,
    end: int,
    constants: Bytes,
    low: int,
    high: int,
) -> int:
    """Return -1, 0 or 1: how the bytes of a value compare with those of a constant."""
    shorter = min(end - start, high - low)
    for at in range(shorter):
        left, right = data[start + at], constants[low + at]
        if left != right:
            return -1 if left < right else 1
    if end - start == high - low:
        return 0
    return -1 if end - start < high - low else 1


@compiled
def rank(
    data: Bytes,
    offsets: Ints,
    nulls: Mask,
    constants: Bytes,
    constants_at: Ints,
    found: Ints,
) -> None:
    """Find the rank of each value that is there.

    Values and constants are bytes one after the other, and where each starts; of starts there is
    one more. Constants are sorted and distinct; ``found`` is filled.
    """
    for row in range(len(found)):
        if nulls[row]:
            continue
        start, end = offsets[row], offsets[row + 1]
        low, high = 0, len(constants_at) - 1
        key = 2 * high
        while low < high:
            middle = (low + high) // 2
            sign = _compared(
                data, start, end, constants, constants_at[middle], constants_at[middle + 1]
            )
            if sign == 0:
                low = high = middle
                key = 2 * middle + 1
            elif sign < 0:
                high = middle
                key = 2 * middle
            else:
                low = middle + 1
        found[row] = key

"""Compiled: sums over ranges that follow each other.

Whole numbers are added and taken away again in 192 bits, which is exact. Floating point is never
subtracted, as what was lost does not come back (and infinity minus infinity is no number): sums
from the right end of what was seen and sums from there on are added ("two stacks"), each with the
error of its rounding beside it, so that the result hardly depends on where that end was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NONE = np.uint64(0)
_ONE = np.uint64(1)
_SIGN = np.int64(63)
_LAST = np.uint64(63)


@compiled
def whole_sums(
    low: NDArray[np.uint64],
    high: NDArray[np.int64],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sums of numbers of 128 bits over ranges, as three words from the lowest on."""
    lows = np.empty(lo.size, np.uint64)
    highs, tops = np.empty(lo.size, np.int64), np.empty(lo.size, np.int64)
    left, right = np.int64(0), np.int64(0)
    first, second, third = _NONE, _NONE, np.int64(0)
    for each in range(lo.size):
        start, stop = lo[each], hi[each]
        if start >= right:  # nothing in common with the range before
            left = right = start
            first, second, third = _NONE, _NONE, np.int64(0)
        while right < stop:
            word, upper = low[right], np.uint64(high[right])
            first = first + word
            carry = np.uint64(first < word)
            middle = second + upper
            carried = middle + carry
            third += (high[right] >> _SIGN) + np.int64(middle < upper) + np.int64(carried < carry)
            second = carried
            right += 1
        while left < start:
            word, upper = low[left], np.uint64(high[left])
            borrow = np.uint64(first < word)
            first = first - word
            middle = second - upper
            third -= (high[left] >> _SIGN) + np.int64(second < upper) + np.int64(middle < borrow)
            second = middle - borrow
            left += 1
        lows[each], highs[each], tops[each] = first, np.int64(second), third
    return lows, highs, tops


@compiled
def are_within(
    low: NDArray[np.uint64],
    high: NDArray[np.int64],
    top: NDArray[np.int64],
    bound_low: np.uint64,
    bound_high: np.uint64,
) -> NDArray[np.bool_]:
    """Return which numbers of three words are less than a bound, whatever their sign."""
    found = np.empty(low.size, np.bool_)
    for each in range(low.size):
        first, second, third = low[each], np.uint64(high[each]), top[each]
        if third < 0:
            first, second, third = ~first, ~second, ~third
            first = first + _ONE
            if first == _NONE:
                second = second + _ONE
                third += np.int64(second == _NONE)
        is_less = second < bound_high or (second == bound_high and first < bound_low)
        found[each] = third == 0 and is_less
    return found


@compiled
def float_sums(
    values: NDArray[np.float64], lo: NDArray[np.int64], hi: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the sums of numbers over ranges."""
    found = np.empty(lo.size, np.float64)
    sums, lost = np.empty(values.size, np.float64), np.empty(values.size, np.float64)
    middle, right = np.int64(0), np.int64(0)
    back, back_lost = 0.0, 0.0
    for each in range(lo.size):
        start, stop = lo[each], hi[each]
        if start >= middle:
            middle = right = stop
            back, back_lost = 0.0, 0.0
            total, error = 0.0, 0.0
            for place in range(stop - 1, start - 1, -1):
                total, error = plus(total, error, values[place], 0.0)
                sums[place], lost[place] = total, error
        while right < stop:
            back, back_lost = plus(back, back_lost, values[right], 0.0)
            right += 1
        total, error = back, back_lost
        if start < middle:
            total, error = plus(sums[start], lost[start], total, error)
        found[each] = total + error
    return found


@compiled
def plus(one: float, one_lost: float, other: float, other_lost: float) -> tuple[float, float]:
    """Add two numbers with what their rounding lost; of infinities and NaN nothing is lost."""
    total = one + other
    part = total - one
    lost = (one - (total - part)) + (other - part)
    if not np.isfinite(total):
        return total, 0.0
    return total, lost + one_lost + other_lost

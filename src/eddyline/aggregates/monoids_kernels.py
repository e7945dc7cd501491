"""Compiled combination of partials over ranges, for each monoid.

A kernel passes once over the entries of a column. Ranges follow each other, so entries come in at
the right end and leave at the left. Nothing that was rounded is taken away again: what is known of
the entries up to the right end of what was seen, and of those from there on, is combined ("two
stacks"). So what left a range leaves no trace.

* *Sums.* Whole numbers are added and taken away in 192 bits, which is exact. Sums of doubles are
  two stacks, each with the error of its rounding beside it, so that the result hardly depends on
  where the right end was.
* *Moments.* Means and sums of squared deviations are two stacks, combined as by Chan, Golub and
  LeVeque (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979).
* *Extremes.* Entries that a lesser one follows are no longer looked at: what is left is in
  ascending order, its head is the least, and each entry comes and goes once. Of equal entries the
  first one is found.
* *Distinct values*, and *ranks*: the value of a rank in each range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Bytes, Floats, Ints, Mask, Words

_NONE = np.uint64(0)
_ONE = np.uint64(1)
_SIGN = np.int64(63)


@compiled
def whole_sums(low: Words, high: Ints, lo: Ints, hi: Ints) -> tuple[Words, Ints, Ints]:
    """Return the sums of numbers of 128 bits over ranges, as three words from the lowest on."""
    lows = np.empty(lo.size, np.uint64)
    highs, tops = np.empty(lo.size, np.int64), np.empty(lo.size, np.int64)
    left, right = np.int64(0), np.int64(0)
    first, second, third = _NONE, _NONE, np.int64(0)
    for index in range(lo.size):
        start, stop = lo[index], hi[index]
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
        lows[index], highs[index], tops[index] = first, np.int64(second), third
    return lows, highs, tops


@compiled
def are_within(
    low: Words, high: Ints, top: Ints, bound_low: np.uint64, bound_high: np.uint64
) -> Mask:
    """Return which numbers of three words are less than a bound, whatever their sign."""
    is_within = np.empty(low.size, np.bool_)
    for index in range(low.size):
        first, second, third = low[index], np.uint64(high[index]), top[index]
        if third < 0:
            first, second, third = ~first, ~second, ~third
            first = first + _ONE
            if first == _NONE:
                second = second + _ONE
                third += np.int64(second == _NONE)
        is_less = second < bound_high or (second == bound_high and first < bound_low)
        is_within[index] = third == 0 and is_less
    return is_within


@compiled
def float_sums(values: Floats, lo: Ints, hi: Ints) -> Floats:
    """Return the sums of numbers over ranges."""
    totals = np.empty(lo.size, np.float64)
    sums, lost = np.empty(values.size, np.float64), np.empty(values.size, np.float64)
    middle, right = np.int64(0), np.int64(0)
    back, back_lost = 0.0, 0.0
    for index in range(lo.size):
        start, stop = lo[index], hi[index]
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
        totals[index] = total + error
    return totals


@compiled
def plus(one: float, one_lost: float, other: float, other_lost: float) -> tuple[float, float]:
    """Add two numbers with what their rounding lost; of infinities and NaN nothing is lost."""
    total = one + other
    part = total - one
    lost = (one - (total - part)) + (other - part)
    if not np.isfinite(total):
        return total, 0.0
    return total, lost + one_lost + other_lost


@compiled
def moments(cells: Floats, lo: Ints, hi: Ints) -> Floats:
    """Return the moments of ranges of cells of numbers ((cells, 3)) or of pairs ((cells, 6)).

    Columns: number, mean, squares; or number, mean of x and of y, products, squares of x and of y.
    Products and squares are sums of those of deviations.
    """
    totals, ahead = np.empty((lo.size, cells.shape[1])), np.empty_like(cells)
    middle, right = np.int64(0), np.int64(0)
    back = np.zeros(cells.shape[1])
    for index in range(lo.size):
        start, stop = lo[index], hi[index]
        if start >= middle:
            middle = right = stop
            back[:] = 0.0
            for place in range(stop - 1, start - 1, -1):
                join_moments(cells[place], back)
                ahead[place] = back
            back[:] = 0.0
        while right < stop:
            join_moments(cells[right], back)
            right += 1
        totals[index] = back
        if start < middle:
            join_moments(ahead[start], totals[index])
    return totals


@compiled
def join_moments(cell: Floats, into: Floats) -> None:
    """Add the moments of a cell to others."""
    if cell[0] == 0:
        return
    if into[0] == 0:
        into[:] = cell
        return
    n, total = into[0], into[0] + cell[0]
    share = cell[0] / total
    into[0] = total
    if cell.size == 3:
        delta = cell[1] - into[1]
        into[1] += delta * share
        into[2] = into[2] + cell[2] + delta * delta * n * share
        return
    delta_x, delta_y = cell[1] - into[1], cell[2] - into[2]
    into[1] += delta_x * share
    into[2] += delta_y * share
    into[3] += cell[3] + delta_x * delta_y * n * share
    into[4] += cell[4] + delta_x * delta_x * n * share
    into[5] += cell[5] + delta_y * delta_y * n * share


_HEAD = 8
"""Bytes of a text that are compared at once."""


@compiled
def least_words(keys: Ints, there: Mask, lo: Ints, hi: Ints) -> Ints:
    """Return the position of the least key in each range, -1 where nothing is there."""
    least = np.empty(lo.size, np.int64)
    queue = np.empty(keys.size, np.int64)
    head, tail, right = 0, 0, np.int64(0)
    for index in range(lo.size):
        start = lo[index]
        right = max(right, start)
        while right < hi[index]:
            if there[right]:
                key = keys[right]
                while tail > head and keys[queue[tail - 1]] > key:
                    tail -= 1
                queue[tail] = right
                tail += 1
            right += 1
        while head < tail and queue[head] < start:
            head += 1
        least[index] = queue[head] if head < tail else -1
    return least


@compiled
def least_bytes(data: Bytes, offsets: Ints, sign: int, there: Mask, lo: Ints, hi: Ints) -> Ints:
    """Return the same for bytes; the greatest if the sign is -1."""
    heads = heads_of(data, offsets)
    least = np.empty(lo.size, np.int64)
    queue = np.empty(there.size, np.int64)
    head, tail, right = 0, 0, np.int64(0)
    for index in range(lo.size):
        start = lo[index]
        right = max(right, start)
        while right < hi[index]:
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
        least[index] = queue[head] if head < tail else -1
    return least


@compiled
def heads_of(data: Bytes, offsets: Ints) -> Words:
    """Return the first bytes of each text as a number that sorts as they do."""
    heads = np.zeros(offsets.size - 1, np.uint64)
    for index in range(heads.size):
        first = offsets[index]
        length = min(offsets[index + 1] - first, _HEAD)
        number = np.uint64(0)
        for place in range(length):
            number |= np.uint64(data[first + place]) << np.uint64(8 * (_HEAD - 1 - place))
        heads[index] = number
    return heads


@compiled
def compared(one: np.int64, other: np.int64, heads: Words, data: Bytes, offsets: Ints) -> int:
    """Return -1, 0 or 1, as one text is less than another, equal, or greater."""
    if heads[one] != heads[other]:
        return -1 if heads[one] < heads[other] else 1
    first, second = offsets[one], offsets[other]
    size, size_other = offsets[one + 1] - first, offsets[other + 1] - second
    for place in range(_HEAD, min(size, size_other)):
        if data[first + place] != data[second + place]:
            return -1 if data[first + place] < data[second + place] else 1
    if size == size_other:
        return 0
    return -1 if size < size_other else 1


@compiled
def before_of(codes: Ints, n_codes: int) -> Ints:
    """Return where the code of each place was last before it, -1 if it was not."""
    before, last = np.empty(codes.size, np.int64), np.full(n_codes, -1, np.int64)
    for place in range(codes.size):
        before[place] = last[codes[place]]
        last[codes[place]] = place
    return before


@compiled
def distinct_counts(codes: Ints, n_codes: int, lo: Ints, hi: Ints) -> Ints:
    """Return how many distinct codes each range has."""
    numbers, counts = np.empty(lo.size, np.int64), np.zeros(n_codes, np.int64)
    left, right, n_distinct = np.int64(0), np.int64(0), 0
    for index in range(lo.size):
        while right < hi[index]:
            n_distinct += counts[codes[right]] == 0
            counts[codes[right]] += 1
            right += 1
        while left < lo[index]:
            counts[codes[left]] -= 1
            n_distinct -= counts[codes[left]] == 0
            left += 1
        numbers[index] = n_distinct
    return numbers


@compiled
def places_of_ranks(places: Ints, wanted: Floats, lo: Ints, hi: Ints) -> Ints:
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
    positions, counts = np.empty(lo.size, np.int64), np.zeros(places.size + 1, np.int64)
    top = np.int64(1)
    while 2 * top <= places.size:
        top *= 2
    left, right, n, last = np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    for index in range(lo.size):
        start, stop = lo[index], hi[index]
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
        positions[index] = -1
        if n:
            rank = min(max(np.int64(np.ceil(wanted[last] * n)), np.int64(1)), n)
            positions[index] = _place_of(rank, top, counts)
    return positions


@compiled
def _moved(place: np.int64, by: int, counts: Ints) -> int:
    """Count a place in or out, and return whether it counts."""
    if place < 0:
        return 0
    node = place + 1
    while node < counts.size:
        counts[node] += by
        node += node & -node
    return 1


@compiled
def _place_of(rank: np.int64, top: np.int64, counts: Ints) -> np.int64:
    """Return the place of the entry of a rank (from 1 on)."""
    node, step, rest = np.int64(0), top, rank
    while step > 0:
        if node + step < counts.size and counts[node + step] < rest:
            node += step
            rest -= counts[node]
        step //= 2
    return node

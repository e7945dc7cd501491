"""Compiled: the ranges of time on which a condition holds, of one segment after the other.

Bounds by the terms say of most comparisons that they hold all along, or nowhere. Where they leave
the condition open, each polynomial is solved on its own; then the roots of all of them cut the
segment into instants and gaps, on each of which every sign is known, and AND and OR are the lesser
and the greater of two (Pulse 3.2, 3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled, inlined
from eddyline.models.expressions import ROUNDING
from eddyline.models.polynomial_kernels import roots_of, value_at
from eddyline.models.segments import MICROS

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

HALF_MICRO = MICROS / 2
"""Seconds around an instant within which a root is at the instant."""
UNKNOWN = 2
"""Instead of a sign: bounds do not settle it."""
NONE = 3
"""Instead of a sign: an attribute has no value (NaN coefficients), and no comparison is true."""

AND, OR = -1, -2
OPS = ("<", "<=", "=", "<>", ">=", ">")
_TRUE_FOR = (0b001, 0b011, 0b010, 0b101, 0b110, 0b100)
"""For each comparison the signs for which it is true: bits for -1, 0 and 1."""
_NO, _MAYBE, _SURE = 0, 1, 2


@inlined
def verdict_on(program: Ints, signs: Ints, stack: Ints) -> int:
    """Return whether signs make a condition false (0), or true (2), or leave it open (1).

    Args:
        program: the condition, parts before what joins them: 8 times the place of a polynomial and
            that of its comparison among ``OPS``, or ``AND`` or ``OR``.
        signs: of the polynomials.
        stack: room for what was found, as long as the program.
    """
    top = 0
    for token in program:
        if token >= 0:
            sign, found = signs[token >> 3], _NO
            if sign == UNKNOWN:
                found = _MAYBE
            elif sign != NONE and (_TRUE_FOR[token & 7] >> (sign + 1)) & 1:
                found = _SURE
            stack[top] = found
            top += 1
        else:
            top -= 1
            one, other = stack[top - 1], stack[top]
            stack[top - 1] = min(one, other) if token == AND else max(one, other)
    return int(stack[0])


@inlined
def settled_sign(coefs: Floats, at: int, row: int, length: float) -> int:
    """Return the sign on all of a range if bounds or zeros settle it."""
    first = least = most = coefs[at, row, 0]
    is_zero, reach = first == 0, 1.0
    for power in range(1, coefs.shape[2]):
        reach *= length
        if coefs[at, row, power] != 0:
            is_zero = False
            term = coefs[at, row, power] * reach
            if np.isnan(term):
                return NONE
            least += min(term, 0.0)
            most += max(term, 0.0)
    if is_zero:
        return 0
    if np.isnan(least):
        return NONE
    margin = ROUNDING * (most - least + abs(first))
    if least > margin:
        return 1
    return -1 if most < -margin else UNKNOWN


@inlined
def first_sign(coefs: Floats, at: int, row: int) -> int:
    """Return the sign at the origin, 0 with a root within half a microsecond."""
    change = 0.0
    for power in range(coefs.shape[2] - 1, 0, -1):
        change = (change + abs(coefs[at, row, power])) * HALF_MICRO
    first = coefs[at, row, 0]
    if np.isnan(first + change):
        return NONE
    if abs(first) <= change:
        return 0
    return 1 if first > 0 else -1


@compiled
def cut(
    coefs: Floats, lo: int, hi: int, found: Floats, work: Floats, instants: Ints, signs: Ints
) -> int:
    """Put the instants of the roots of a polynomial, and its signs in the gaps, into rows.

    Args:
        coefs: with ``lo`` as the origin.
        lo: microseconds.
        hi: microseconds.
        found: room for the roots.
        work: room for derivatives.
        instants: where the instants go, at most ``hi``.
        signs: where the signs go: before the first, between each two, and behind the last.

    Returns:
        How many roots there are in the range.
    """
    degree = coefs.size - 1
    left, end = 0.0, (hi - lo) * MICROS
    count = roots_of(coefs, end, found, work)
    for gap in range(count + 1):
        right = end
        if gap < count:
            right = found[gap]
            instants[gap] = min(lo + int(np.rint(right / MICROS)), hi)
        value = value_at(coefs, degree, (left + right) / 2)
        signs[gap] = (value > 0) - (value < 0)
        left = right
    return count


@inlined
def cut_line(
    coefs: Floats, at: int, row: int, lo: int, hi: int, instants: Ints, signs: Ints
) -> int:
    """Do the same for a line that is not settled; arrays come whole, as making views takes longer.

    Its sign is asked where ``cut`` would: in the middle of each gap.
    """
    value, slope = coefs[at, row, 0], coefs[at, row, 1]
    end = (hi - lo) * MICROS
    root = -value / slope
    if not 0 < root < end:
        signs[at, 0] = sign_on_line(value, slope, end / 2)
        return 0
    instants[at, 0] = min(lo + int(np.rint(root / MICROS)), hi)
    signs[at, 0] = sign_on_line(value, slope, root / 2)
    signs[at, 1] = sign_on_line(value, slope, (root + end) / 2)
    return 1


@inlined
def sign_on_line(value: float, slope: float, at: float) -> int:
    """Return the sign of a line at an instant, 0 where rounding cannot tell it from 0."""
    found, size = slope * at + value, abs(slope) * at + abs(value)
    return 0 if abs(found) <= ROUNDING * size else (found > 0) - (found < 0)


@inlined
def is_line(coefs: Floats, at: int, row: int) -> bool:
    """Return whether a polynomial has a slope and no higher powers."""
    for power in range(2, coefs.shape[2]):
        if coefs[at, row, power] != 0:
            return False
    return bool(coefs.shape[2] > 1 and coefs[at, row, 1] != 0)


@inlined
def sort_few(numbers: Ints, n: int) -> int:
    """Sort the first of some numbers, each once, by insertion; return how many are left."""
    kept = 1
    for at in range(1, n):
        number, place = numbers[at], kept
        while place > 0 and numbers[place - 1] > number:
            place -= 1
        if place > 0 and numbers[place - 1] == number:
            continue
        for other in range(kept, place, -1):
            numbers[other] = numbers[other - 1]
        numbers[place] = number
        kept += 1
    return kept


@compiled
def larger(array: Ints, n: int) -> Ints:
    """Return a longer array that begins with the first of another's places."""
    found = np.empty(2 * array.size, array.dtype)
    found[:n] = array[:n]
    return found


@inlined
def cut_all(
    coefs: Floats,
    row: int,
    lo: int,
    hi: int,
    known: Ints,
    counts: Ints,
    instants: Ints,
    signs: Ints,
    left: Ints,
    found: Floats,
    work: Floats,
) -> int:
    """Cut a segment by the roots of all polynomials; return how many gaps there are.

    Args:
        coefs: by polynomial and segment, with ``lo`` as the origin.
        row: the segment.
        lo: microseconds.
        hi: microseconds.
        known: the sign of each polynomial, or ``UNKNOWN``.
        counts: where the number of roots of each goes.
        instants: where the instants of these go, by polynomial.
        signs: where the signs between these go, by polynomial.
        left: where the begins of gaps go.
        found: room for roots.
        work: room for derivatives.
    """
    left[0], n_left = lo, 1
    for at in range(known.size):
        if known[at] != UNKNOWN:
            counts[at], signs[at, 0] = 0, known[at]
        elif is_line(coefs, at, row):
            counts[at] = cut_line(coefs, at, row, lo, hi, instants, signs)
        else:
            counts[at] = cut(coefs[at, row], lo, hi, found, work, instants[at], signs[at])
        for root in range(counts[at]):
            if instants[at, root] < hi:
                left[n_left] = instants[at, root]
                n_left += 1
    return sort_few(left, n_left)


@inlined
def signs_from(
    begin: int, counts: Ints, instants: Ints, signs: Ints, known: Ints, first: Ints, is_first: bool
) -> None:
    """Set the signs of all polynomials in a gap, and at the instant where it begins.

    Args:
        begin: where the gap begins (µs).
        counts: see ``cut_all``.
        instants: likewise.
        signs: likewise.
        known: where the signs in the gap go.
        first: where those at its begin go; before the first gap those at the segment's origin.
        is_first: whether it is the first gap.
    """
    for at in range(counts.size):
        if first[at] == NONE:
            known[at] = NONE
            continue
        passed, is_root = 0, False
        for root in range(counts[at]):
            if instants[at, root] <= begin:
                passed += 1
                is_root = is_root or instants[at, root] == begin
        known[at] = signs[at, passed]
        if is_root:
            first[at] = 0
        elif not is_first:
            first[at] = known[at]


@inlined
def settled(
    coefs: Floats, row: int, length: float, is_point: bool, known: Ints, first: Ints
) -> None:
    """Set the signs of all polynomials as far as they are settled, and those at their origin."""
    for at in range(known.size):
        first[at] = first_sign(coefs, at, row)
        known[at] = first[at] if is_point else settled_sign(coefs, at, row, length)


@compiled
def solve(
    program: Ints, coefs: Floats, lo: Ints, hi: Ints, is_point: Mask
) -> tuple[Ints, Ints, Ints, Mask]:
    """Return where a condition holds: rows, begins, ends, and whether each is one instant.

    Args:
        program: see ``verdict_on``.
        coefs: of each polynomial by segment, with ``lo`` as the origin, without terms that are
            rounding, ``[polynomials, n, degree + 1]``.
        lo: where segments begin (µs), ``[n]``.
        hi: where they end, after that but for points (µs), ``[n]``.
        is_point: whether a segment is the instant ``lo``, ``[n]``.
    """
    n_polynomials, n, size = coefs.shape
    most = n_polynomials * (size - 1) + 1
    rows, begins, ends = np.empty((3, n + most), np.int64)
    points = np.empty(n + most, np.bool_)
    stack = np.empty(program.size, np.int64)
    known, first, counts = np.empty((3, n_polynomials), np.int64)
    instants, signs = np.empty((2, n_polynomials, size), np.int64)
    found, work, left = np.empty(size), np.empty((size + 2, size + 1)), np.empty(most, np.int64)
    m = 0
    for row in range(n):
        if m + most > rows.size:
            rows, begins = larger(rows, m), larger(begins, m)
            ends, points = larger(ends, m), larger(points, m)
        settled(coefs, row, (hi[row] - lo[row]) * MICROS, is_point[row], known, first)
        verdict = verdict_on(program, known, stack)
        if verdict == _SURE:
            rows[m], begins[m], ends[m], points[m] = row, lo[row], hi[row], is_point[row]
            m += 1
        if verdict != _MAYBE:
            continue
        n_left = cut_all(
            coefs, row, lo[row], hi[row], known, counts, instants, signs, left, found, work
        )
        is_open = False
        for gap in range(n_left):
            signs_from(left[gap], counts, instants, signs, known, first, gap == 0)
            is_along = verdict_on(program, known, stack) == _SURE
            is_there = verdict_on(program, first, stack) == _SURE
            is_alone = is_there and not is_along and not is_open
            if is_open and not (is_along and is_there):
                ends[m - 1], is_open = left[gap], False
            if is_alone or (is_along and not is_open):
                rows[m], begins[m], ends[m], points[m] = row, left[gap], left[gap], is_alone
                is_open = is_along
                m += 1
        if is_open:
            ends[m - 1] = hi[row]
    return rows[:m], begins[:m], ends[:m], points[:m]

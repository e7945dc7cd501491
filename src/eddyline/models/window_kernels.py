"""Compiled: when windows' formulas change, and the integrals of polynomials over windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.segments import MICROS

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints, Mask

    Pieces = tuple[Ints, Ints, Ints, Indices]
    """Of the pieces of a track entity, begin and end (µs), and segment, -1 for a gap."""
    Closing = tuple[Ints, Indices, Indices]
    """Of windows the closing time (µs), the piece that it is in, and the one they begin in."""


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


@compiled
def changes_of(keys: Ints, lo: Ints, hi: Ints, width: int) -> tuple[Ints, Ints, Indices, Indices]:
    """Return the windows at whose closing times an end passes from one piece into the next.

    Args:
        keys: entities of pieces, which follow each other in time; the first and the last one of an
            entity are gaps as long as a window.
        lo: where pieces begin (µs).
        hi: where they end, exclusive.
        width: how long windows are (µs).

    Returns:
        Closing times, until when the formula holds, and the pieces that windows close and begin in,
        by entity and time.
    """
    room = 2 * keys.size
    at, until = np.empty(room, np.int64), np.empty(room, np.int64)
    head, tail = np.empty(room, np.int64), np.empty(room, np.int64)
    n = start = 0
    while start < keys.size:
        stop = start + 1
        while stop < keys.size and keys[stop] == keys[start]:
            stop += 1
        begins, closes, time = start, start, lo[start] + width
        while closes < stop and hi[closes] <= time:
            closes += 1
        while closes < stop:
            following = min(hi[closes], hi[begins] + width)
            at[n], until[n], head[n], tail[n] = time, following, closes, begins
            n += 1
            closes, begins = (
                closes + (hi[closes] == following),
                begins + (hi[begins] + width == following),
            )
            time = following
        start = stop
    return at[:n], until[:n], head[:n], tail[:n]


@compiled
def antiderivative_from(coefs: Floats, origin: Ints, row: int, at: int, found: Floats) -> None:
    """Set an antiderivative of a segment's polynomial that has its origin, and is 0, at an instant.

    Args:
        coefs: of segments, (segments, degree + 1).
        origin: of segments (µs).
        row: the segment, -1: there is none, and all is 0.
        at: the instant (µs).
        found: where it goes, (degree + 2,).
    """
    found[:] = 0.0
    if row < 0:
        return
    size = coefs.shape[1]
    by = np.float64(at - origin[row]) * MICROS
    found[1:] = coefs[row]
    if by != 0.0:
        for low in range(1, size):
            for power in range(size - 1, low - 1, -1):
                found[power] += by * found[power + 1]
    for power in range(2, size + 1):
        found[power] /= power


@compiled
def integral(coefs: Floats, origin: Ints, row: int, start: int, stop: int, work: Floats) -> float:
    """Return the integral of a segment's polynomial over a range of time, 0 where there is none."""
    if row < 0:
        return 0.0
    antiderivative_from(coefs, origin, row, start, work)
    length, value = np.float64(stop - start) * MICROS, 0.0
    for power in range(work.size - 1, -1, -1):
        value = value * length + work[power]
    return value


@compiled
def window_integrals(
    coefs: Floats, origin: Ints, pieces: Pieces, closing: Closing, width: int
) -> Floats:
    """Return the integrals of polynomials over windows, 0 where there is no segment."""
    keys, lo, hi, rows = pieces
    at, head, tail = closing
    work = np.empty(coefs.shape[1] + 1)
    whole, is_first = np.empty(keys.size), np.empty(keys.size, np.bool_)
    for each in range(keys.size):
        whole[each] = integral(coefs, origin, rows[each], lo[each], hi[each], work)
        is_first[each] = each == 0 or keys[each] != keys[each - 1]
    high, low = sums_before(whole, is_first)
    found = np.empty(at.size)
    for each in range(at.size):
        first, last, begin = tail[each], head[each], at[each] - width
        if first == last:
            found[each] = integral(coefs, origin, rows[first], begin, at[each], work)
            continue
        between = (high[last] - high[first + 1]) + (low[last] - low[first + 1])
        found[each] = (
            integral(coefs, origin, rows[first], begin, hi[first], work)
            + between
            + integral(coefs, origin, rows[last], lo[last], at[each], work)
        )
    return found


@compiled
def window_formulas(
    coefs: Floats, origin: Ints, pieces: Pieces, closing: Closing, width: int
) -> Floats:
    """Return the same as polynomials of how much later windows close, (windows, degree + 2)."""
    at, head, tail = closing
    size = coefs.shape[1] + 1
    whole = window_integrals(coefs, origin, pieces, closing, width)
    found, begins, closes = np.empty((at.size, size)), np.empty(size), np.empty(size)
    for each in range(at.size):
        antiderivative_from(coefs, origin, pieces[3][head[each]], at[each], closes)
        antiderivative_from(coefs, origin, pieces[3][tail[each]], at[each] - width, begins)
        for power in range(size):
            found[each, power] = closes[power] - begins[power]
        found[each, 0] += whole[each]
    return found

"""Compiled: the ranges of cells that the result of a group at an instant is computed of.

Cells are sorted by group and start; ``bounds`` has the first cell of each group, and the number of
all. Each function is called twice: with no room (arrays of size 0), to count, and with room for as
many. Ranges are half-open, and neither end of them ever goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Ints, Mask


@compiled
def slide_ranges(
    starts: Ints,
    bounds: Ints,
    first: int,
    n_instants: int,
    slide: int,
    length: int,
    with_old: bool,
    instants: Ints,
    ranges: Ints,
) -> int:
    """Find the windows [instant - length, instant) with cells, of ``n_instants`` from a first on.

    ``ranges`` has for each a row of lo and hi, and with the old ones those at the slide before,
    where either of them is not empty ((results, 4)). A length less than 0 is one without end.
    """
    n = 0
    for group in range(bounds.size - 1):
        begin, end = bounds[group], bounds[group + 1]
        lo, hi, old_lo, old_hi = begin, begin, begin, begin
        step = np.int64(-1) if with_old else np.int64(0)
        while step < n_instants:
            instant = first + step * slide
            while hi < end and starts[hi] < instant:
                hi += 1
            while length >= 0 and lo < hi and starts[lo] < instant - length:
                lo += 1
            is_result = lo < hi or (with_old and old_lo < old_hi)
            if is_result and step >= 0:
                if ranges.shape[0]:
                    instants[n] = instant
                    ranges[n, 0], ranges[n, 1], ranges[n, 2], ranges[n, 3] = lo, hi, old_lo, old_hi
                n += 1
            old_lo, old_hi = lo, hi
            if lo == hi and hi == end:
                step = np.int64(n_instants) if not with_old or not is_result else step + 1
            elif lo == hi and not is_result:
                step = max(step + 1, (starts[hi] - first) // slide + 1)
            else:
                step += 1
    return n


@compiled
def change_ranges(  # noqa: C901, PLR0912 - one walk over instants
    starts: Ints,
    bounds: Ints,
    since: int,
    until: int,
    length: int,
    n_rows: int,
    instants: Ints,
    ranges: Ints,
) -> int:
    """Find the instants in [since, until) at which rows of a group come or leave.

    ``ranges`` has lo and hi of the rows that are there, and of those before it ((results, 4)). A
    row is there for ``length`` (µs) and leaves after it (less than 0: for ever), or until
    ``n_rows`` others have come (less than 0: however many).
    """
    n = 0
    for group in range(bounds.size - 1):
        begin, end = bounds[group], bounds[group + 1]
        come, leave = begin, begin  # the first row that has not come, and not left
        while come < end and starts[come] < since:
            come += 1
        while length >= 0 and leave < come and starts[leave] + length < since - 1:
            leave += 1
        if n_rows >= 0:
            leave = max(begin, come - n_rows)
        while True:
            instant = np.int64(until)
            if come < end:
                instant = min(instant, starts[come])
            if length >= 0 and leave < end:
                instant = min(instant, starts[leave] + length + 1)
            if instant >= until:
                break
            old_come, old_leave = come, leave
            while come < end and starts[come] <= instant:
                come += 1
            while length >= 0 and leave < come and starts[leave] + length < instant:
                leave += 1
            if n_rows >= 0:
                leave = max(leave, come - n_rows)
            if instant < since:
                continue
            if ranges.shape[0]:
                instants[n] = instant
                ranges[n, 0], ranges[n, 1] = leave, come
                ranges[n, 2], ranges[n, 3] = old_leave, old_come
            n += 1
    return n


@compiled
def row_ranges(
    starts: Ints, bounds: Ints, is_new: Mask, length: int, n_rows: int, ranges: Ints
) -> int:
    """Find for each new row the rows of its group up to it that its frame has.

    ``ranges`` has lo and hi ((new rows, 2)). A frame has rows of at most ``length`` ago (µs; less
    than 0: all), and those of the same instant; or, if ``n_rows`` is 0 or more, so many last rows.
    """
    n = 0
    for group in range(bounds.size - 1):
        begin, end = bounds[group], bounds[group + 1]
        lo, hi = begin, begin
        for row in range(begin, end):
            if not is_new[row]:
                continue
            hi = max(hi, row + 1)
            if n_rows >= 0:
                lo = max(begin, row + 1 - n_rows)
                hi = row + 1
            else:
                while hi < end and starts[hi] <= starts[row]:
                    hi += 1
                while length >= 0 and starts[lo] < starts[row] - length:
                    lo += 1
            ranges[n, 0], ranges[n, 1] = lo, hi
            n += 1
    return n


@compiled
def session_ranges(
    starts: Ints, ends: Ints, bounds: Ints, gap: int, firsts: Ints, lasts: Ints
) -> int:
    """Find the first cell of each session, and its last instant (µs); returns how many.

    A cell of a group starts another session if it is more than ``gap`` (µs) after all before it.
    """
    n = -1
    for group in range(bounds.size - 1):
        for cell in range(bounds[group], bounds[group + 1]):
            if cell == bounds[group] or starts[cell] - lasts[n] > gap:
                n += 1
                firsts[n], lasts[n] = cell, ends[cell]
            else:
                lasts[n] = max(lasts[n], ends[cell])
    return n + 1

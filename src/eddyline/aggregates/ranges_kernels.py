"""Compiled search for the ranges of cells of each result.

A result belongs to a group at an instant. Cells are sorted by group and start; ``bounds`` has the
first cell of each group, and the number of all. Each function is called twice: with no room (arrays
of size 0), to count, and with room for as many. Ranges are half-open, and neither end of them ever
goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    leaves: Ints,
    asked: Ints,
    since: int,
    until: int,
    instants: Ints,
    ranges: Ints,
) -> int:
    """Find the rows of each group that are there at instants in [since, until).

    Instants are those ``asked`` for, which ascend, or if none is, those at which rows of the group
    come or leave. ``ranges`` has lo and hi of the rows that are there, and of those at the instant
    before ((results, 4)). From the instant of ``leaves`` on a row is not there; no row of a group
    leaves before an earlier one. An instant that is asked for gives a result if a row is there.
    """
    n = 0
    for group in range(bounds.size - 1):
        begin, end = bounds[group], bounds[group + 1]
        come, leave, step = begin, begin, 0  # the first row that has not come, and not left
        while come < end and starts[come] < since:
            come += 1
        while leave < come and leaves[leave] < since:
            leave += 1
        while True:
            instant = np.int64(until)
            if asked.size:
                if step < asked.size:
                    instant = asked[step]
                step += 1
            else:
                if come < end:
                    instant = min(instant, starts[come])
                if leave < end:
                    instant = min(instant, leaves[leave])
            if instant >= until:
                break
            old_come, old_leave = come, leave
            while come < end and starts[come] <= instant:
                come += 1
            while leave < come and leaves[leave] <= instant:
                leave += 1
            if leave == come and (asked.size or old_leave == old_come):  # none, or left as it came
                continue
            if ranges.shape[0]:
                instants[n] = instant
                ranges[n, 0], ranges[n, 1] = leave, come
                ranges[n, 2], ranges[n, 3] = old_leave, old_come
            n += 1
    return n


@compiled
def held_rows(  # noqa: C901, PLR0912, PLR0915 - one walk over instants
    starts: Ints,
    bounds: Ints,
    leaves: Ints,
    leaving: Ints,
    asked: Ints,
    since: int,
    until: int,
    instants: Ints,
    ranges: Ints,
    rows: Ints,
    sizes: Ints,
) -> None:
    """Find the rows that are there at instants in [since, until), where they leave in any order.

    ``leaving`` has the rows of each group in the order in which they leave. Instants are those
    ``asked`` for, which ascend, or if none is, those at which rows of a group come or leave.
    ``rows`` has the rows of each result behind each other, and ``ranges`` their lo and hi among
    these, and those of the instant before ((results, 4)); ``sizes``, how many results and rows.
    """
    n, n_rows, n_most = 0, 0, 0
    has_room = rows.size > 0
    for group in range(bounds.size - 1):
        n_most = max(n_most, bounds[group + 1] - bounds[group])
    held = np.empty(n_most, np.int64)
    for group in range(bounds.size - 1):
        begin, end = bounds[group], bounds[group + 1]
        come, leave, n_held, step = begin, begin, 0, 0
        while come < end and starts[come] < since:
            if leaves[come] >= since:
                held[n_held] = come
                n_held += 1
            come += 1
        while leave < end and leaves[leaving[leave]] < since:
            leave += 1
        old_lo = n_rows
        if has_room:
            rows[n_rows : n_rows + n_held] = held[:n_held]
        n_rows += n_held
        old_hi = n_rows
        while True:
            instant = np.int64(until)
            if asked.size:
                if step < asked.size:
                    instant = asked[step]
                step += 1
            else:
                if come < end:
                    instant = min(instant, starts[come])
                if leave < end:
                    instant = min(instant, leaves[leaving[leave]])
            if instant >= until:
                break
            n_stay = 0
            for place in range(n_held):
                if leaves[held[place]] > instant:
                    held[n_stay] = held[place]
                    n_stay += 1
            n_held = n_stay
            while come < end and starts[come] <= instant:
                if leaves[come] > instant:
                    held[n_held] = come
                    n_held += 1
                come += 1
            while leave < end and leaves[leaving[leave]] <= instant:
                leave += 1
            lo = n_rows
            if has_room:
                rows[n_rows : n_rows + n_held] = held[:n_held]
            n_rows += n_held
            if lo < n_rows or (old_lo < old_hi and not asked.size):
                if ranges.shape[0]:
                    instants[n] = instant
                    ranges[n, 0], ranges[n, 1] = lo, n_rows
                    ranges[n, 2], ranges[n, 3] = old_lo, old_hi
                n += 1
            old_lo, old_hi = lo, n_rows
    sizes[0], sizes[1] = n, n_rows


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


@compiled
def group_order(codes: Any, checks: Any, starts: Any, order: Any, bounds: Any) -> Any:
    """Put rows of one group and cell behind each other, in the order in which they are found.

    Args:
        codes: of the groups of rows ((N,)).
        checks: of the same ((N,)).
        starts: of the cells of rows ((N,)).
        order: filled with the rows, those of a cell in their order ((N,)).
        bounds: filled with the place of the first row of each cell in ``order``, and with the
            number of rows behind the last one ((N + 1,)).

    Returns:
        The number of cells.
    """
    n_rows, size = len(codes), 16
    while size < 2 * n_rows:
        size *= 2
    slots = np.zeros(size, np.int32)
    firsts = np.empty(n_rows, np.int32)
    cells = np.empty(n_rows, np.int32)
    n_cells = 0
    for row in range(n_rows):
        place = np.uint64(codes[row]) ^ (np.uint64(starts[row]) * np.uint64(0x9E3779B97F4A7C15))
        slot = np.int64((place ^ (place >> np.uint64(32))) & np.uint64(size - 1))
        while True:
            cell = slots[slot] - 1
            if cell < 0:
                cell = n_cells
                slots[slot], firsts[cell], bounds[cell] = cell + 1, row, 0
                n_cells += 1
                break
            first = firsts[cell]
            if (
                codes[first] == codes[row]
                and checks[first] == checks[row]
                and starts[first] == starts[row]
            ):
                break
            slot = (slot + 1) & (size - 1)
        cells[row] = cell
        bounds[cell] += 1
    place_of = 0
    for cell in range(n_cells):
        place_of, bounds[cell] = place_of + bounds[cell], place_of
    for row in range(n_rows):
        order[bounds[cells[row]]] = row
        bounds[cells[row]] += 1
    for cell in range(n_cells, 0, -1):
        bounds[cell] = bounds[cell - 1]
    bounds[0] = 0
    return n_cells

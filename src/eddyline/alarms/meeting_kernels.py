"""Compiled bounds of expressions on segments, against sorted constants.

A kernel says which constants lie between the bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Indices, Ints, Mask

    States = NDArray[np.int8]

MISSED, OPEN, SURE = 0, 1, 2
"""Of a pair of a segment and a constant: nowhere does the comparison hold, perhaps, all along. So
an AND is the least of its parts, and an OR the greatest."""

ABOVE, BELOW, EQUAL, OTHER = range(4)
"""Comparisons that hold above their constant, below it, at it, and everywhere else."""


@compiled
def bounded(
    coefs: Floats, size: Floats, since: Floats, until: Floats, rounding: float, wider: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return polynomials without terms that are rounding, the first one's size, and bounds.

    Args:
        coefs: on the origins of segments, ``[n, degree + 1]``.
        size: of the terms that coefficients are sums of, likewise.
        since: where segments begin, in seconds after their origins, ``[n]``.
        until: where they end, ``[n]``.
        rounding: in parts of its size, what a coefficient is more than.
        wider: how much wider bounds are, in parts of the size of all terms.
    """
    n, width = coefs.shape
    cleaned, sizes = np.empty((n, width)), np.empty(n)
    lows, highs = np.empty(n), np.empty(n)
    begun = np.empty(width)
    for row in range(n):
        sizes[row] = size[row, 0]
        begin, farthest, largest = since[row], max(abs(since[row]), abs(until[row])), 0.0
        is_none = False
        for power in range(width - 1, -1, -1):
            coef = coefs[row, power]
            is_none = is_none or np.isnan(coef)
            largest = largest * farthest + size[row, power]
            if power > 0 and abs(coef) <= rounding * size[row, power] < np.inf:
                coef = 0.0
            cleaned[row, power] = begun[power] = coef
        if begin != 0:
            for lowest in range(width - 1):
                for power in range(width - 2, lowest - 1, -1):
                    begun[power] += begin * begun[power + 1]
        least = most = begun[0]
        length, reach = until[row] - begin, 1.0
        for power in range(1, width):
            reach *= length
            least += min(begun[power] * reach, 0.0)
            most += max(begun[power] * reach, 0.0)
        margin = wider * largest
        low, high = least - margin, most + margin
        if is_none:
            low, high = np.inf, -np.inf
        elif not (np.isfinite(low) and np.isfinite(high)):
            low, high = -np.inf, np.inf  # overflow: the solver decides
        lows[row], highs[row] = low, high
    return cleaned, sizes, lows, highs


@inlined
def place(constants: Floats, low: int, high: int, value: float, is_after: bool) -> int:
    """Return where a value stands among ascending constants.

    Args:
        constants: ascending from ``low`` on, as far as to before ``high``.
        low: where they begin.
        high: where they end, exclusive.
        value: no NaN.
        is_after: whether it stands behind constants that are equal to it.
    """
    # Steps that jump nowhere: which way it goes cannot be foretold.
    start, length, one = np.uint64(low), np.uint64(high - low), np.uint64(1)
    while length > one:
        half = length >> one
        start += half if is_before(constants[start + half - one], value, is_after) else np.uint64(0)
        length -= half
    return int(start) + int(length == one and is_before(constants[start], value, is_after))


@inlined
def is_before(constant: float, value: float, is_after: bool) -> bool:
    """Return whether a constant stands before a value."""
    return (constant < value) | (is_after & (constant == value))


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
    positions = np.empty(values.size, np.int64)
    for number in range(values.size):
        positions[number] = place(constants, first[number], last[number], values[number], is_after)
    return positions


@compiled
def spans(
    constants: Floats, first: Indices, last: Indices, low: Floats, high: Floats
) -> tuple[Ints, Ints]:
    """Return for each pair of values from where to before where constants are between them.

    Args:
        constants: ascending within each range.
        first: where the range of a pair begins, ``[n]``.
        last: where it ends, exclusive, ``[n]``.
        low: no NaN, ``[n]``.
        high: no NaN, ``[n]``.
    """
    from_, to = np.empty(low.size, np.int64), np.empty(low.size, np.int64)
    for number in range(low.size):
        from_[number] = place(constants, first[number], last[number], low[number], False)
        to[number] = place(constants, first[number], last[number], high[number], True)
    return from_, to


@compiled
def met(
    kind: int,
    low: Floats,
    high: Floats,
    rows: Indices,
    alarms: Indices,
    constants: Floats,
    slot: int,
) -> States:
    """Return how pairs of a segment and a constant stand: ``MISSED``, ``OPEN`` or ``SURE``.

    Args:
        kind: of the comparison.
        low: bounds of an expression, by segment.
        high: likewise.
        rows: the segments, ``[m]``.
        alarms: the alarms whose constants they are, ``[m]``.
        constants: by alarm and slot.
        slot: the slot.
    """
    outcomes = np.empty(rows.size, np.int8)
    for pair in range(rows.size):
        constant = constants[alarms[pair], slot]
        least, most = low[rows[pair]], high[rows[pair]]
        is_there = least <= most
        may, sure = is_there, False
        if kind == ABOVE:
            may, sure = constant <= most, is_there and constant < least
        elif kind == BELOW:
            may, sure = constant >= least, is_there and constant > most
        elif kind == EQUAL:
            may = constant >= least and constant <= most
        else:
            sure = is_there and (constant < least or constant > most)
        outcomes[pair] = SURE if sure else (OPEN if may else MISSED)
    return outcomes


@compiled
def sorted_out(
    states: States, pair_alarms: Indices, rows: Indices, is_linked: Mask, n_alarms: int
) -> tuple[Indices, Indices, Indices, Indices, Indices]:
    """Return where alarms hold all along, over segments that follow each other, and what is open.

    Args:
        states: of pairs, ``[m]``.
        pair_alarms: their alarms, ``[m]``.
        rows: their segments; of an alarm they rise, or what could be one run are several, ``[m]``.
        is_linked: whether a segment goes on where the one before ends.
        n_alarms: how many there are.

    Returns:
        Alarm, first and last segment of each run; alarm and segment of each open pair.
    """
    n_sure = n_open = 0
    for state in states:
        n_sure += state == SURE
        n_open += state == OPEN
    alarms, first, last = np.empty((3, n_sure), np.int64)
    open_own, open_rows = np.empty((2, n_open), np.int64)
    newest = np.full(n_alarms, -1, np.int64)
    n_runs = n_left = 0
    for pair in range(states.size):
        alarm, row = pair_alarms[pair], rows[pair]
        if states[pair] == OPEN:
            open_own[n_left], open_rows[n_left] = alarm, row
            n_left += 1
        elif states[pair] == SURE:
            run = newest[alarm]
            if run >= 0 and last[run] == row - 1 and is_linked[row]:
                last[run] = row
            else:
                alarms[n_runs], first[n_runs], last[n_runs] = alarm, row, row
                newest[alarm] = n_runs
                n_runs += 1
    return alarms[:n_runs], first[:n_runs], last[:n_runs], open_own, open_rows


@compiled
def less(
    coefs: Floats,
    size: Floats,
    rows: Indices,
    alarms: Indices,
    constants: Floats,
    slot: int,
    rounding: float,
    output: Floats,
) -> None:
    """Put the polynomials of segments less a constant each, as they are solved, into an array.

    Args:
        coefs: by segment, ``[n, degree + 1]``.
        size: how large the terms are that the first one was summed from, ``[n]``.
        rows: the segments, ``[m]``.
        alarms: the alarms whose constants they are, ``[m]``.
        constants: by alarm and slot.
        slot: the slot.
        rounding: in parts of its terms, what a first coefficient is more than.
        output: by slot and pair; only its slot is filled.
    """
    width = coefs.shape[1]
    for pair in range(rows.size):
        row, constant = rows[pair], constants[alarms[pair], slot]
        first = coefs[row, 0] - constant
        is_rounding = abs(first) <= rounding * (size[row] + abs(constant)) < np.inf
        output[slot, pair, 0] = 0.0 if is_rounding else first
        for power in range(1, output.shape[2]):
            output[slot, pair, power] = coefs[row, power] if power < width else 0.0


@compiled
def along(
    constants: Floats,
    first: Indices,
    last: Indices,
    low: Floats,
    high: Floats,
    is_linked: Mask,
    is_up: bool,
) -> tuple[Indices, Indices, Indices, Indices, Indices]:
    """Return the runs of segments on which thresholds surely hold, and which others may.

    Args:
        constants: ascending within the range of each entity.
        first: where the constants of a segment's entity begin, ``[n]``.
        last: where they end, exclusive, ``[n]``.
        low: bounds by segment.
        high: likewise.
        is_linked: whether a segment goes on where the one before ends.
        is_up: whether thresholds hold above their constants.

    Returns:
        The constant of each run by its place, its first and its last segment; and for each segment
        from where to before where constants are open.
    """
    n = low.size
    sure_first, sure_last = np.empty(n, np.int64), np.empty(n, np.int64)
    open_first, open_last = np.empty(n, np.int64), np.empty(n, np.int64)
    n_runs = 0
    for row in range(n):
        from_, to = first[row], last[row]
        is_there = low[row] <= high[row]
        if is_up:
            near = place(constants, from_, to, low[row] if is_there else -np.inf, False)
            other = place(constants, from_, to, high[row], True)
            sure_first[row], sure_last[row] = from_, near
            open_first[row], open_last[row] = near, other
        else:
            near = place(constants, from_, to, high[row] if is_there else np.inf, True)
            other = place(constants, from_, to, low[row], False)
            sure_first[row], sure_last[row] = near, to
            open_first[row], open_last[row] = other, near
        n_runs += sure_last[row] - sure_first[row]
        if is_linked[row]:
            n_runs -= max(
                min(sure_last[row], sure_last[row - 1]) - max(sure_first[row], sure_first[row - 1]),
                0,
            )
    alarms, begins, ends = np.empty((3, n_runs), np.int64)
    began = np.zeros(constants.size, np.int64)
    m = old_first = old_last = 0
    for row in range(n + 1):
        new_first, new_last = (sure_first[row], sure_last[row]) if row < n else (0, 0)
        kept_first, kept_last = max(old_first, new_first), min(old_last, new_last)
        if row == n or not is_linked[row] or kept_first >= kept_last:
            m = ended(old_first, old_last, row, began, alarms, begins, ends, m)
            begun(new_first, new_last, row, began)
        else:
            m = ended(old_first, kept_first, row, began, alarms, begins, ends, m)
            m = ended(kept_last, old_last, row, began, alarms, begins, ends, m)
            begun(new_first, kept_first, row, began)
            begun(kept_last, new_last, row, began)
        old_first, old_last = new_first, new_last
    return alarms, begins, ends, open_first, open_last


@inlined
def ended(
    first: int,
    last: int,
    row: int,
    began: Indices,
    alarms: Indices,
    begins: Indices,
    ends: Indices,
    m: int,
) -> int:
    """Put the runs of some constants that end before a segment behind others; return how many."""
    for constant in range(first, last):
        alarms[m], begins[m], ends[m] = constant, began[constant], row - 1
        m += 1
    return m


@inlined
def begun(first: int, last: int, row: int, began: Indices) -> None:
    """Take note of the segment with which the runs of some constants begin."""
    for constant in range(first, last):
        began[constant] = row

"""Compiled: the state of one growing segment that is a constant, a cone or a best line.

Every instant of an attribute is an interval of values, ``[low, high]``, and a segment grows as long
as one function passes all of them. ``x`` is microseconds since the segment began, exact in a
double. Rounding may let in an instant too many: what is stored is verified afterwards, always.

The best line keeps the lines of least and of greatest slope that pass all intervals, and the two
hulls on which they turn; each point enters and leaves a hull once, so a row costs O(1) on average
and segments are the fewest that do not join (O'Rourke, An on-line algorithm for fitting straight
lines between data ranges, 1981; Xie, Pang, Zhou, Zhang and Deng, Maximum error-bounded piecewise
linear representation for online stream approximation, 2014). The cone is the swing filter
(Elmeleegy, Elmagarmid, Cecchet, Aref and Zwaenepoel, Online piece-wise linear approximation of
numerical streams with precision guarantees, 2009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints


@compiled
def narrow(at: int, start: int, stop: int, mid: Floats, reach: Floats, state: Floats) -> int:
    """Narrow the constants that pass all intervals; return the first instant that none passes.

    Args:
        at: the attribute.
        start: the first instant.
        stop: where to stop at the latest.
        mid: middles of intervals, NaN: there is none, (attributes, instants).
        reach: half their lengths, (attributes, instants).
        state: of each attribute the number of instants, least and greatest constant; left as it is
            if an instant is not passed.
    """
    n = state[at, 0]
    least, most = (state[at, 1], state[at, 2]) if n > 0 else (-np.inf, np.inf)
    for instant in range(start, stop):
        value, far = mid[at, instant], reach[at, instant]
        if np.isnan(value):
            continue
        low, high = value - far, value + far
        if not (low <= most and high >= least):
            return instant
        least, most = max(least, low), min(most, high)
        n += 1
    state[at, 0], state[at, 1], state[at, 2] = n, least, most
    return stop


@compiled
def add_to_cone(at: int, x: float, low: float, high: float, state: Floats) -> bool:
    """Narrow the slopes from the anchor that pass all intervals; False if none is left.

    Args:
        at: the attribute.
        x: microseconds since the segment began.
        low: the least value of the instant.
        high: its greatest value.
        state: of each attribute the number of instants, least and greatest slope, ``x`` and value
            of the anchor.
    """
    if state[at, 0] == 0:
        state[at, 1], state[at, 2] = -np.inf, np.inf
        state[at, 3], state[at, 4] = x, 0.5 * low + 0.5 * high
    elif x > state[at, 3]:
        least, most = (
            (low - state[at, 4]) / (x - state[at, 3]),
            (high - state[at, 4]) / (x - state[at, 3]),
        )
        if not (least <= state[at, 2] and most >= state[at, 1]):
            return False
        state[at, 1], state[at, 2] = max(state[at, 1], least), min(state[at, 2], most)
    state[at, 0] += 1
    return True


@compiled
def add_to_line(
    at: int, x: float, low: float, high: float, state: Floats, hulls: Floats, ends: Ints
) -> bool:
    """Turn the lines of least and of greatest slope into an interval; False if none passes all.

    Arrays come whole, with the place of the attribute: making views costs more than the rest.

    Args:
        at: the attribute.
        x: microseconds since the segment began.
        low: the least value of the instant.
        high: its greatest value.
        state: of each attribute the number of instants; from place 1 on two points of the line of
            least slope, which comes from above and leaves below, and from place 5 on of that of
            greatest slope.
        hulls: ``x`` and value of the points of the hulls of high ends and of low ends,
            (attributes, 4, rows).
        ends: first and last place in use of both hulls, (attributes, 4).
    """
    n = state[at, 0]
    state[at, 0] = n + 1
    if n == 0:
        state[at, 1], state[at, 2], state[at, 5], state[at, 6] = x, high, x, low
        hulls[at, 0, 0], hulls[at, 1, 0] = x, high
        hulls[at, 2, 0], hulls[at, 3, 0] = x, low
        ends[at, 0] = ends[at, 1] = ends[at, 2] = ends[at, 3] = 0
        return True
    if n == 1:
        state[at, 3], state[at, 4], state[at, 7], state[at, 8] = x, low, x, high
        push(at, x, high, hulls, 0, ends, 1.0)
        push(at, x, low, hulls, 2, ends, -1.0)
        return True
    least_x, least_y = state[at, 3] - state[at, 1], state[at, 4] - state[at, 2]
    most_x, most_y = state[at, 7] - state[at, 5], state[at, 8] - state[at, 6]
    is_below = (high - state[at, 4]) * least_x < least_y * (x - state[at, 3])
    is_above = (low - state[at, 8]) * most_x > most_y * (x - state[at, 7])
    if is_below or is_above:
        state[at, 0] = n
        return False
    if (high - state[at, 6]) * most_x < most_y * (x - state[at, 5]):
        turn(at, x, high, hulls, 2, ends, -1.0, state, 5)
        push(at, x, high, hulls, 0, ends, 1.0)
    if (low - state[at, 2]) * least_x > least_y * (x - state[at, 1]):
        turn(at, x, low, hulls, 0, ends, 1.0, state, 1)
        push(at, x, low, hulls, 2, ends, -1.0)
    return True


@compiled
def push(at: int, x: float, y: float, hulls: Floats, which: int, ends: Ints, side: float) -> None:
    """Add a point to a hull, and drop those of its end that are not on it any more."""
    first, last = ends[at, which], ends[at, which + 1]
    while last > first:
        from_x, from_y = hulls[at, which, last - 1], hulls[at, which + 1, last - 1]
        ax, ay = hulls[at, which, last] - from_x, hulls[at, which + 1, last] - from_y
        if side * (ax * (y - from_y) - ay * (x - from_x)) > 0:
            break
        last -= 1
    last += 1
    hulls[at, which, last], hulls[at, which + 1, last] = x, y
    ends[at, which + 1] = last


@compiled
def turn(
    at: int,
    x: float,
    y: float,
    hulls: Floats,
    which: int,
    ends: Ints,
    side: float,
    state: Floats,
    line: int,
) -> None:
    """Lay a line through a new point and the point of a hull that bounds its slope most."""
    best = ends[at, which]
    ax, ay = x - hulls[at, which, best], y - hulls[at, which + 1, best]
    for place in range(best + 1, ends[at, which + 1] + 1):
        bx, by = x - hulls[at, which, place], y - hulls[at, which + 1, place]
        if side * (by * ax - ay * bx) < 0:
            break
        best, ax, ay = place, bx, by
    state[at, line], state[at, line + 1] = hulls[at, which, best], hulls[at, which + 1, best]
    state[at, line + 2], state[at, line + 3] = x, y
    ends[at, which] = best


@compiled
def constant_of(at: int, state: Floats, coefs: Floats, into: int) -> None:
    """Set the coefficient of a constant, without a value NaN."""
    coefs[into, at, :] = 0.0
    coefs[into, at, 0] = 0.5 * state[at, 1] + 0.5 * state[at, 2] if state[at, 0] > 0 else np.nan


@compiled
def simplest(least: float, most: float) -> float:
    """Return a slope between two: 0 if it is between them, otherwise their middle."""
    if least <= 0.0 <= most:
        return 0.0
    return 0.5 * least + 0.5 * most


@compiled
def cone_of(at: int, state: Floats, is_joined: bool, coefs: Floats, into: int) -> None:
    """Set the coefficients (of seconds) of a line through the anchor.

    A line that others are joined to has the middle slope: from its end, the next has more room.
    """
    coefs[into, at, :] = 0.0
    if state[at, 0] == 0:
        coefs[into, at, 0] = np.nan
        return
    slope = 0.5 * state[at, 1] + 0.5 * state[at, 2]
    if not is_joined or np.isnan(slope):
        slope = simplest(state[at, 1], state[at, 2])
    coefs[into, at, 0] = state[at, 4] - slope * state[at, 3]
    coefs[into, at, 1] = slope * 1e6


@compiled
def line_of(at: int, state: Floats, coefs: Floats, into: int) -> None:
    """Set the coefficients (of seconds) of a line between that of least and of greatest slope.

    All lines through the point in which the two meet, with a slope between theirs, pass all
    intervals.
    """
    coefs[into, at, :] = 0.0
    if state[at, 0] < 2:
        coefs[into, at, 0] = (
            0.5 * state[at, 2] + 0.5 * state[at, 6] if state[at, 0] == 1 else np.nan
        )
        return
    least = (state[at, 4] - state[at, 2]) / (state[at, 3] - state[at, 1])
    most = (state[at, 8] - state[at, 6]) / (state[at, 7] - state[at, 5])
    slope = simplest(least, most)
    at_x, at_y = state[at, 1], state[at, 2]
    if most > least:
        # Where they meet, from the first point of the line of least slope on.
        step = (state[at, 2] - state[at, 6] - most * (state[at, 1] - state[at, 5])) / (most - least)
        at_x, at_y = state[at, 1] + step, state[at, 2] + least * step
    coefs[into, at, 0] = at_y - slope * at_x
    coefs[into, at, 1] = slope * 1e6

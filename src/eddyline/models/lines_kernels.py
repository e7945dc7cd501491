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
def add_to_range(low: float, high: float, state: Floats) -> bool:
    """Narrow the constants that pass all intervals; False if none is left.

    Args:
        low: the least value of the instant.
        high: its greatest value.
        state: number of instants, least and greatest constant.
    """
    if state[0] == 0:
        state[1], state[2] = low, high
    elif not (low <= state[2] and high >= state[1]):
        return False
    else:
        state[1], state[2] = max(state[1], low), min(state[2], high)
    state[0] += 1
    return True


@compiled
def add_to_cone(x: float, low: float, high: float, state: Floats) -> bool:
    """Narrow the slopes from the anchor that pass all intervals; False if none is left.

    Args:
        x: microseconds since the segment began.
        low: the least value of the instant.
        high: its greatest value.
        state: number of instants, least and greatest slope, ``x`` and value of the anchor.
    """
    if state[0] == 0:
        state[1], state[2] = -np.inf, np.inf
        state[3], state[4] = x, 0.5 * low + 0.5 * high
    elif x > state[3]:
        least, most = (low - state[4]) / (x - state[3]), (high - state[4]) / (x - state[3])
        if not (least <= state[2] and most >= state[1]):
            return False
        state[1], state[2] = max(state[1], least), min(state[2], most)
    state[0] += 1
    return True


@compiled
def add_to_line(
    x: float, low: float, high: float, state: Floats, hulls: Floats, ends: Ints
) -> bool:
    """Turn the lines of least and greatest slope into an interval; False if none passes all.

    Args:
        x: microseconds since the segment began.
        low: the least value of the instant.
        high: its greatest value.
        state: number of instants; from place 1 on two points of the line of least slope, which
            comes from above and leaves below, and from place 5 on of that of greatest slope.
        hulls: ``x`` and value of the points of the hulls of high ends and of low ends, (4, rows).
        ends: first and last place in use of both hulls, (4,).
    """
    if state[0] == 0:
        state[1], state[2], state[5], state[6] = x, high, x, low
        hulls[0, 0], hulls[1, 0], hulls[2, 0], hulls[3, 0] = x, high, x, low
        ends[:] = 0
    elif state[0] == 1:
        state[3], state[4], state[7], state[8] = x, low, x, high
        push(x, high, hulls[0], hulls[1], ends[0:2], 1.0)
        push(x, low, hulls[2], hulls[3], ends[2:4], -1.0)
    else:
        least_x, least_y = state[3] - state[1], state[4] - state[2]
        most_x, most_y = state[7] - state[5], state[8] - state[6]
        if (high - state[4]) * least_x < least_y * (x - state[3]):
            return False
        if (low - state[8]) * most_x > most_y * (x - state[7]):
            return False
        if (high - state[6]) * most_x < most_y * (x - state[5]):
            turn(x, high, hulls[2], hulls[3], ends[2:4], -1.0, state[5:9])
            push(x, high, hulls[0], hulls[1], ends[0:2], 1.0)
        if (low - state[2]) * least_x > least_y * (x - state[1]):
            turn(x, low, hulls[0], hulls[1], ends[0:2], 1.0, state[1:5])
            push(x, low, hulls[2], hulls[3], ends[2:4], -1.0)
    state[0] += 1
    return True


@compiled
def push(x: float, y: float, xs: Floats, ys: Floats, ends: Ints, side: float) -> None:
    """Add a point to a hull, and drop those of its end that are not on it any more."""
    first, last = ends[0], ends[1]
    while last > first:
        ax, ay = xs[last] - xs[last - 1], ys[last] - ys[last - 1]
        bx, by = x - xs[last - 1], y - ys[last - 1]
        if side * (ax * by - ay * bx) > 0:
            break
        last -= 1
    last += 1
    xs[last], ys[last] = x, y
    ends[1] = last


@compiled
def turn(x: float, y: float, xs: Floats, ys: Floats, ends: Ints, side: float, line: Floats) -> None:
    """Lay a line through a new point and the point of a hull that bounds its slope most."""
    best = ends[0]
    for place in range(ends[0] + 1, ends[1] + 1):
        ax, ay = x - xs[best], y - ys[best]
        bx, by = x - xs[place], y - ys[place]
        if side * (by * ax - ay * bx) < 0:
            break
        best = place
    line[0], line[1], line[2], line[3] = xs[best], ys[best], x, y
    ends[0] = best


@compiled
def constant_of(state: Floats, coefs: Floats) -> None:
    """Set the coefficient of a constant, without a value NaN."""
    coefs[:] = 0.0
    coefs[0] = 0.5 * state[1] + 0.5 * state[2] if state[0] > 0 else np.nan


@compiled
def simplest(least: float, most: float) -> float:
    """Return a slope between two: 0 if it is between them, otherwise their middle."""
    if least <= 0.0 <= most:
        return 0.0
    return 0.5 * least + 0.5 * most


@compiled
def cone_of(state: Floats, is_joined: bool, coefs: Floats) -> None:
    """Set the coefficients (of seconds) of a line through the anchor.

    A line that others are joined to has the middle slope: from its end, the next has more room.
    """
    coefs[:] = 0.0
    if state[0] == 0:
        coefs[0] = np.nan
        return
    slope = 0.5 * state[1] + 0.5 * state[2]
    if not is_joined or np.isnan(slope):
        slope = simplest(state[1], state[2])
    coefs[0] = state[4] - slope * state[3]
    coefs[1] = slope * 1e6


@compiled
def line_of(state: Floats, coefs: Floats) -> None:
    """Set the coefficients (of seconds) of a line between that of least and of greatest slope.

    All lines through the point in which the two meet, with a slope between theirs, pass all
    intervals.
    """
    coefs[:] = 0.0
    if state[0] < 2:
        coefs[0] = 0.5 * state[2] + 0.5 * state[6] if state[0] == 1 else np.nan
        return
    least = (state[4] - state[2]) / (state[3] - state[1])
    most = (state[8] - state[6]) / (state[7] - state[5])
    slope = simplest(least, most)
    at_x, at_y = state[1], state[2]
    if most > least:
        # Where they meet, from the first point of the line of least slope on.
        step = (state[2] - state[6] - most * (state[1] - state[5])) / (most - least)
        at_x, at_y = state[1] + step, state[2] + least * step
    coefs[0] = at_y - slope * at_x
    coefs[1] = slope * 1e6

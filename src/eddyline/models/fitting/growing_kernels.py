"""Compiled state of one growing segment.

The function of a segment is a constant, a cone, a best line, or a polynomial. Every instant of an
attribute is an interval of values, ``[low, high]``. A segment grows as long as one function passes
through all intervals. ``x`` is microseconds since the segment began, exact in a double. Rounding
may accept an instant too many, so every stored segment is verified afterwards.

Kernels share names of arguments. ``attribute`` is its place, and ``low`` and ``high`` are the ends
of its interval at ``x``. ``mid`` and ``reach`` are the middles and half lengths of all intervals,
(attributes, instants); a middle of NaN is no interval. ``state`` has for each attribute the number
of instants that were passed, and what each kernel says. Arrays come whole, because views cost more
than the rest.

The best line keeps the lines of least and of greatest slope that pass all intervals, and the two
hulls on which they turn. Each point enters and leaves a hull once, so a row costs O(1) on average
and segments are the fewest that do not join (O'Rourke, An on-line algorithm for fitting straight
lines between data ranges, 1981; Xie, Pang, Zhou, Zhang and Deng, Maximum error-bounded piecewise
linear representation for online stream approximation, 2014). The cone is the swing filter
(Elmeleegy, Elmagarmid, Cecchet, Aref and Zwaenepoel, Online piece-wise linear approximation of
numerical streams with precision guarantees, 2009).

Polynomials of degree 2 to 4 are fitted by least squares, in time scaled to ``[-1, 1]``, where the
equations keep their digits. They are then moved up or down to balance the largest distances above
and below. A range is accepted only if the coefficients as stored pass all of its intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints


@compiled
def narrow(attribute: int, start: int, stop: int, mid: Floats, reach: Floats, state: Floats) -> int:
    """Narrow the constants that pass all intervals; return the first instant that none passes.

    Instants are those from ``start`` to before ``stop``. ``state`` has the least and the greatest
    constant, and is left as it is if an instant is not passed.
    """
    n = state[attribute, 0]
    least, most = (state[attribute, 1], state[attribute, 2]) if n > 0 else (-np.inf, np.inf)
    for instant in range(start, stop):
        value, far = mid[attribute, instant], reach[attribute, instant]
        if np.isnan(value):
            continue
        low, high = value - far, value + far
        if not (low <= most and high >= least):
            return instant
        least, most = max(least, low), min(most, high)
        n += 1
    state[attribute, 0], state[attribute, 1], state[attribute, 2] = n, least, most
    return stop


@compiled
def add_to_cone(attribute: int, x: float, low: float, high: float, state: Floats) -> bool:
    """Narrow the slopes from the anchor that pass all intervals; False if none is left.

    ``state`` has the least and the greatest slope, and ``x`` and value of the anchor.
    """
    if state[attribute, 0] == 0:
        state[attribute, 1], state[attribute, 2] = -np.inf, np.inf
        state[attribute, 3], state[attribute, 4] = x, 0.5 * low + 0.5 * high
    elif x > state[attribute, 3]:
        least, most = (
            (low - state[attribute, 4]) / (x - state[attribute, 3]),
            (high - state[attribute, 4]) / (x - state[attribute, 3]),
        )
        if not (least <= state[attribute, 2] and most >= state[attribute, 1]):
            return False
        state[attribute, 1], state[attribute, 2] = (
            max(state[attribute, 1], least),
            min(state[attribute, 2], most),
        )
    state[attribute, 0] += 1
    return True


@compiled
def add_to_line(
    attribute: int, x: float, low: float, high: float, state: Floats, hulls: Floats, ends: Ints
) -> bool:
    """Turn the lines of least and of greatest slope into an interval; False if none passes all.

    ``state`` has from place 1 on two points of the line of least slope, which comes from above and
    leaves below, and from place 5 on those of the line of greatest slope. ``hulls`` has ``x`` and
    value of the points of the hulls of high ends and of low ends, (attributes, 4, rows), and
    ``ends`` the first and the last place in use of both, (attributes, 4).
    """
    n = state[attribute, 0]
    state[attribute, 0] = n + 1
    if n == 0:
        state[attribute, 1], state[attribute, 2], state[attribute, 5], state[attribute, 6] = (
            x,
            high,
            x,
            low,
        )
        hulls[attribute, 0, 0], hulls[attribute, 1, 0] = x, high
        hulls[attribute, 2, 0], hulls[attribute, 3, 0] = x, low
        ends[attribute, 0] = ends[attribute, 1] = ends[attribute, 2] = ends[attribute, 3] = 0
        return True
    if n == 1:
        state[attribute, 3], state[attribute, 4], state[attribute, 7], state[attribute, 8] = (
            x,
            low,
            x,
            high,
        )
        push(attribute, x, high, hulls, 0, ends, 1.0)
        push(attribute, x, low, hulls, 2, ends, -1.0)
        return True
    least_x, least_y = (
        state[attribute, 3] - state[attribute, 1],
        state[attribute, 4] - state[attribute, 2],
    )
    most_x, most_y = (
        state[attribute, 7] - state[attribute, 5],
        state[attribute, 8] - state[attribute, 6],
    )
    is_below = (high - state[attribute, 4]) * least_x < least_y * (x - state[attribute, 3])
    is_above = (low - state[attribute, 8]) * most_x > most_y * (x - state[attribute, 7])
    if is_below or is_above:
        state[attribute, 0] = n
        return False
    if (high - state[attribute, 6]) * most_x < most_y * (x - state[attribute, 5]):
        turn(attribute, x, high, hulls, 2, ends, -1.0, state, 5)
        push(attribute, x, high, hulls, 0, ends, 1.0)
    if (low - state[attribute, 2]) * least_x > least_y * (x - state[attribute, 1]):
        turn(attribute, x, low, hulls, 0, ends, 1.0, state, 1)
        push(attribute, x, low, hulls, 2, ends, -1.0)
    return True


@compiled
def push(
    attribute: int, x: float, y: float, hulls: Floats, which: int, ends: Ints, side: float
) -> None:
    """Add a point to a hull, and drop those of its end that are not on it any more."""
    first, last = ends[attribute, which], ends[attribute, which + 1]
    while last > first:
        from_x, from_y = hulls[attribute, which, last - 1], hulls[attribute, which + 1, last - 1]
        ax, ay = hulls[attribute, which, last] - from_x, hulls[attribute, which + 1, last] - from_y
        if side * (ax * (y - from_y) - ay * (x - from_x)) > 0:
            break
        last -= 1
    last += 1
    hulls[attribute, which, last], hulls[attribute, which + 1, last] = x, y
    ends[attribute, which + 1] = last


@compiled
def turn(
    attribute: int,
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
    best = ends[attribute, which]
    ax, ay = x - hulls[attribute, which, best], y - hulls[attribute, which + 1, best]
    for place in range(best + 1, ends[attribute, which + 1] + 1):
        bx, by = x - hulls[attribute, which, place], y - hulls[attribute, which + 1, place]
        if side * (by * ax - ay * bx) < 0:
            break
        best, ax, ay = place, bx, by
    state[attribute, line], state[attribute, line + 1] = (
        hulls[attribute, which, best],
        hulls[attribute, which + 1, best],
    )
    state[attribute, line + 2], state[attribute, line + 3] = x, y
    ends[attribute, which] = best


@compiled
def constant_of(attribute: int, state: Floats, coefs: Floats, into: int) -> None:
    """Set the coefficient of a constant, without a value NaN."""
    coefs[into, attribute, :] = 0.0
    coefs[into, attribute, 0] = (
        0.5 * state[attribute, 1] + 0.5 * state[attribute, 2] if state[attribute, 0] > 0 else np.nan
    )


@compiled
def simplest(least: float, most: float) -> float:
    """Return a slope between two: 0 if it is between them, otherwise their middle."""
    if least <= 0.0 <= most:
        return 0.0
    return 0.5 * least + 0.5 * most


@compiled
def cone_of(attribute: int, state: Floats, is_joined: bool, coefs: Floats, into: int) -> None:
    """Set the coefficients (of seconds) of a line through the anchor.

    A line that others are joined to has the middle slope: from its end, the next has more room.
    """
    coefs[into, attribute, :] = 0.0
    if state[attribute, 0] == 0:
        coefs[into, attribute, 0] = np.nan
        return
    slope = 0.5 * state[attribute, 1] + 0.5 * state[attribute, 2]
    if not is_joined or np.isnan(slope):
        slope = simplest(state[attribute, 1], state[attribute, 2])
    coefs[into, attribute, 0] = state[attribute, 4] - slope * state[attribute, 3]
    coefs[into, attribute, 1] = slope * 1e6


@compiled
def line_of(attribute: int, state: Floats, coefs: Floats, into: int) -> None:
    """Set the coefficients (of seconds) of a line between that of least and of greatest slope.

    All lines through the point in which the two meet, with a slope between theirs, pass all
    intervals.
    """
    coefs[into, attribute, :] = 0.0
    if state[attribute, 0] < 2:
        coefs[into, attribute, 0] = (
            0.5 * state[attribute, 2] + 0.5 * state[attribute, 6]
            if state[attribute, 0] == 1
            else np.nan
        )
        return
    least = (state[attribute, 4] - state[attribute, 2]) / (
        state[attribute, 3] - state[attribute, 1]
    )
    most = (state[attribute, 8] - state[attribute, 6]) / (state[attribute, 7] - state[attribute, 5])
    slope = simplest(least, most)
    at_x, at_y = state[attribute, 1], state[attribute, 2]
    if most > least:
        # Where they meet, from the first point of the line of least slope on.
        step = (
            state[attribute, 2]
            - state[attribute, 6]
            - most * (state[attribute, 1] - state[attribute, 5])
        ) / (most - least)
        at_x, at_y = state[attribute, 1] + step, state[attribute, 2] + least * step
    coefs[into, attribute, 0] = at_y - slope * at_x
    coefs[into, attribute, 1] = slope * 1e6


# -- least squares --------------------------------------------------------------------------------


SINGULAR = 1e-12
"""A pivot below this share of its diagonal: the instants do not tell so many coefficients."""


@compiled
def polynomial_of(
    degree: int, times: Ints, mid: Floats, reach: Floats, work: Floats, coefs: Floats
) -> bool:
    """Set the coefficients (of seconds since the first instant) of a polynomial, if one is found.

    Args:
        degree: the highest degree; less where there are too few instants.
        times: the instants of a range (µs, ascending).
        mid: middles of the attribute's intervals.
        reach: half their lengths.
        work: room for sums and equations, (8, 16).
        coefs: where the coefficients go.

    Returns:
        Whether the polynomial passes all intervals.
    """
    coefs[:] = 0.0  # there may be room for more than the degree asks for
    if degree == 2 and quadratic_of(times, mid, coefs):
        shift = balance(2, times, mid, reach, coefs)
        coefs[0] += shift
        return not np.isnan(shift)
    half = 0.5 * np.float64(times[-1] - times[0])
    n, base = sums(degree, times, mid, half, work)
    if n == 0:
        coefs[0] = np.nan
        return True
    order = solved(min(degree, n - 1), work)
    to_seconds(order, half, base, work, coefs)
    shift = balance(order, times, mid, reach, coefs)
    coefs[0] += shift
    return not np.isnan(shift)


@compiled
def quadratic_of(times: Ints, mid: Floats, coefs: Floats) -> bool:
    """Set the coefficients of degree 2 of least squares; False if too few instants tell them.

    What the other functions do for any degree, in variables: most segments are short, and arrays
    cost them more than the sums.
    """
    half = 0.5 * np.float64(times[-1] - times[0])
    if not half > 0:
        return False
    n, base, scale = 0.0, 0.0, 1.0 / half
    u1 = u2 = u3 = u4 = y0 = y1 = y2 = 0.0
    for place in range(times.size):
        value = mid[place]
        if np.isnan(value):
            continue
        if n == 0:
            base = value
        n += 1.0
        u = np.float64(times[place] - times[0]) * scale - 1.0
        square, y = u * u, value - base
        u1 += u
        u2 += square
        u3 += square * u
        u4 += square * square
        y0 += y
        y1 += u * y
        y2 += square * y
    # Gauss' elimination, with the pivots of ``factored``.
    inverse = 1.0 / n
    a11, a12, b1 = u2 - u1 * u1 * inverse, u3 - u1 * u2 * inverse, y1 - u1 * y0 * inverse
    if not (n >= 3 and a11 > SINGULAR * u2):
        return False
    share = a12 / a11
    a22, b2 = u4 - u2 * u2 * inverse - share * a12, y2 - u2 * y0 * inverse - share * b1
    if not a22 > SINGULAR * u4:
        return False
    top = b2 / a22
    middle = (b1 - a12 * top) / a11
    low = (y0 - u1 * middle - u2 * top) * inverse
    per_second = 1e6 * scale
    coefs[0] = low - middle + top + base
    coefs[1] = (middle - 2.0 * top) * per_second
    coefs[2] = top * per_second * per_second
    return True


@compiled
def sums(degree: int, times: Ints, mid: Floats, half: float, work: Floats) -> tuple[int, float]:
    """Sum powers of scaled time, alone and with values; return the number and the first value."""
    powers, products = work[0], work[1]
    powers[:] = 0.0
    products[:] = 0.0
    n, base = 0, 0.0
    scale = 1.0 / half if half > 0 else 0.0
    for place in range(times.size):
        value = mid[place]
        if np.isnan(value):
            continue
        if n == 0:
            base = value
        n += 1
        u = np.float64(times[place] - times[0]) * scale - 1.0
        power, y = 1.0, value - base
        for k in range(degree + 1):
            powers[k] += power
            products[k] += power * y
            power *= u
        for k in range(degree + 1, 2 * degree + 1):
            powers[k] += power
            power *= u
    return n, base


@compiled
def solved(order: int, work: Floats) -> int:
    """Solve the equations for the degree that they tell; return it."""
    products, answer, lower = work[1], work[2], work[3:]
    order = factored(order, work)
    answer[:] = 0.0
    for row in range(order + 1):
        rest = products[row]
        for k in range(row):
            rest -= lower[row, k] * answer[k]
        answer[row] = rest / lower[row, row]
    for row in range(order, -1, -1):
        rest = answer[row]
        for k in range(row + 1, order + 1):
            rest -= lower[k, row] * answer[k]
        answer[row] = rest / lower[row, row]
    return order


@compiled
def factored(order: int, work: Floats) -> int:
    """Factor the equations (Cholesky) up to the degree that they tell; return it."""
    powers, lower = work[0], work[3:]
    for row in range(order + 1):
        for column in range(row + 1):
            rest = powers[row + column]
            for k in range(column):
                rest -= lower[row, k] * lower[column, k]
            if row > column:
                lower[row, column] = rest / lower[column, column]
            elif rest > SINGULAR * powers[2 * row]:
                lower[row, row] = np.sqrt(rest)
            else:
                return row - 1
    return order


@compiled
def to_seconds(order: int, half: float, base: float, work: Floats, coefs: Floats) -> None:
    """Set coefficients of seconds from those of scaled time, ``u = t / half - 1``."""
    answer = work[2]
    for start in range(order):  # the Taylor shift by -1
        for k in range(order - 1, start - 1, -1):
            answer[k] -= answer[k + 1]
    scale = 1e6 / half if half > 0 else 0.0
    power = 1.0
    for k in range(order + 1):
        coefs[k] = answer[k] * power
        power *= scale
    coefs[0] += base


@compiled
def balance(order: int, times: Ints, mid: Floats, reach: Floats, coefs: Floats) -> float:
    """Return how far to move a polynomial up for it to pass all intervals; NaN if it cannot."""
    least, most = -np.inf, np.inf
    for place in range(times.size):
        value = mid[place]
        if np.isnan(value):
            continue
        tau = np.float64(times[place] - times[0]) * 1e-6
        estimate = coefs[order]
        for k in range(order - 1, -1, -1):
            estimate = estimate * tau + coefs[k]
        rest = value - estimate
        least, most = max(least, rest - reach[place]), min(most, rest + reach[place])
        if not least <= most:
            return np.nan
    return 0.5 * least + 0.5 * most

"""Compiled: polynomials of degree 2 to 4 through intervals, by least squares and a check of all.

The fit is made in time scaled to ``[-1, 1]``, where the equations keep their digits, and moved up
or down so that its largest distances above and below are in balance. Accepted is a range only if
the coefficients as they are stored pass all of its intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints

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
        mid: middles of their intervals; NaN: the attribute has no value then.
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
        found = coefs[order]
        for k in range(order - 1, -1, -1):
            found = found * tau + coefs[k]
        rest = value - found
        least, most = max(least, rest - reach[place]), min(most, rest + reach[place])
        if not least <= most:
            return np.nan
    return 0.5 * least + 0.5 * most

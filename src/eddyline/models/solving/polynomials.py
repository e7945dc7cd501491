"""Polynomials by their coefficients, many at once: values, shifts, products, roots.

Coefficients are rows of ascending powers, ``[n, degree + 1]``, of seconds. Sums and products of one
polynomial with many follow NumPy's rules. Sources: Pulse 3.1, 3.2, 3.5.

Roots: the critical points of a polynomial split its range into pieces on which it is monotone, and
each piece holds at most one root. Critical points are the roots of the derivative, of a degree less
(Pulse 3.2). A value that rounding cannot tell from 0 is 0, so a curve that touches 0 has a root.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.segments import MICROS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Ints

LARGE = 2.0**850
"""Linear functions of smaller numbers do not overflow, because spans of time are below 2**64."""
SCALE = 64
"""Exponent of the power of 2 that divides larger numbers."""


def in_range(
    compute: Callable[[Floats], Floats], values: Floats, *, grows_back: bool = True
) -> Floats:
    """Return the values of a linear function, also where an intermediate value overflows.

    Args:
        compute: a linear function of ``values``.
        values: coefficients; NaN where there is no value.
        grows_back: whether to scale results back. If not, each row has one scale, and only its
            signs and roots are valid.

    Returns:
        The results, infinite where a double cannot hold them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        results = compute(values)
        is_there = np.isfinite(results)
        if is_there.all() or not (np.abs(values) > LARGE).any():
            return results
        smaller = compute(np.ldexp(values, -SCALE))
        is_kept = is_there if grows_back else np.all(is_there, axis=-1, keepdims=True)
        rescaled: Floats = np.where(is_kept, results, np.ldexp(smaller, SCALE * grows_back))
    return rescaled


def evaluate(coefs: Floats, seconds: Floats) -> Floats:
    """Return values by Horner's rule.

    Args:
        coefs: ``[n, degree + 1]``.
        seconds: seconds since the origin, ``[n]`` or ``[n, m]`` for m instants of each polynomial.
    """
    return in_range(lambda some: _evaluated(some, seconds), coefs)


def _evaluated(coefs: Floats, seconds: Floats) -> Floats:
    columns = coefs if seconds.ndim == 1 else coefs[:, None, :]
    value = np.broadcast_to(columns[..., -1], np.broadcast(columns[..., -1], seconds).shape)
    for power in range(coefs.shape[-1] - 2, -1, -1):
        value = value * seconds + columns[..., power]
    return value.copy() if value.base is not None else value


def shifted(coefs: Floats, by: Floats) -> Floats:
    """Return ``q(t) = p(t + by)``: the polynomials on an origin that is ``by`` seconds later.

    Args:
        coefs: ``[n, degree + 1]``.
        by: seconds, ``[n]``.
    """
    if coefs.shape[-1] == 1 or not by.any():
        return np.array(coefs, order="C")
    return in_range(lambda some: _shifted(some, by), coefs)


def _shifted(coefs: Floats, by: Floats) -> Floats:
    shifted_coefs = np.array(coefs, order="C")
    shift(shifted_coefs, by)
    return shifted_coefs


def derivative(coefs: Floats) -> Floats:
    """Return the derivatives, of a degree less, ``[n, max(degree, 1)]``."""
    if coefs.shape[-1] == 1:
        return np.zeros_like(coefs)
    slopes = np.empty((len(coefs), coefs.shape[-1] - 1))
    for power in range(1, coefs.shape[-1]):  # along columns: rows are too short for NumPy
        slopes[:, power - 1] = power * coefs[:, power]
    return slopes


def padded(coefs: Floats, size: int) -> Floats:
    """Return the same polynomials with at least ``size`` coefficients."""
    missing = size - coefs.shape[-1]
    if missing <= 0:
        return coefs
    return np.concatenate([coefs, np.zeros((len(coefs), missing))], axis=1)


def total(one: Floats, other: Floats) -> Floats:
    """Return sums of polynomials; degrees may differ."""
    size = max(one.shape[-1], other.shape[-1])
    sums: Floats = padded(one, size) + padded(other, size)
    return sums


def product(one: Floats, other: Floats) -> Floats:
    """Return products of polynomials, ``[n, degree + other degree + 1]``."""
    n = max(len(one), len(other)) if len(one) and len(other) else 0
    products = np.zeros((n, one.shape[-1] + other.shape[-1] - 1))
    multiply(np.ascontiguousarray(one), np.ascontiguousarray(other), products)
    return products


def breaks(coefs: Floats, length: Floats) -> Floats:
    """Return where polynomials are 0 inside ``(0, length)``, in ascending order.

    Roots at which the sign does not change are among them. A polynomial that is 0 everywhere has
    none.

    Args:
        coefs: ``[n, degree + 1]``.
        length: seconds, ``[n]``.

    Returns:
        Seconds, ``[n, degree]``: the roots, and ``length`` in the places that are left.
    """
    return roots(np.ascontiguousarray(coefs), np.ascontiguousarray(length))


def bounds(coefs: Floats, length: Floats) -> tuple[Floats, Floats]:
    """Return bounds of the values on ``[0, length]`` by the terms, without a root being sought.

    They are exact for degree 1 and below but for rounding.
    """
    return bounds_of(np.ascontiguousarray(coefs), np.ascontiguousarray(length))


def extremes(coefs: Floats, length: Floats) -> tuple[Floats, Floats]:
    """Return the least and the greatest value on ``[0, length]``, ``[n]`` each."""
    ends = [np.zeros((len(coefs), 1)), length[:, None]]
    inner = breaks(derivative(coefs), length)
    values = evaluate(coefs, np.concatenate([*ends, inner], axis=1))
    return values.min(axis=1), values.max(axis=1)


# -- compiled: roots ------------------------------------------------------------------------------


_ROUNDING = 16 * 2.0**-53
"""How far from 0 a computed sum may be that is 0 exactly, in parts of the sum of its terms' sizes.

Horner's rule errs by less than 2 d parts in 2**53 for degree d; coefficients have errors too.
"""
_STEPS = 200
"""Steps in which halving alone finds any root to the last digit."""
_SMALL, _LARGE = 2.0**-200, 2.0**200
"""Products of a few coefficients between these neither overflow nor vanish."""
_ACCURACY = 1e-13
"""The last step to a root, in parts of the root: Newton's is then far nearer than that."""


@compiled
def shift(coefs: Floats, by: Floats) -> None:
    """Move the origins of polynomials by some seconds: Horner's rule once for each power."""
    degree = coefs.shape[1] - 1
    for row in range(coefs.shape[0]):
        for low in range(degree):
            for power in range(degree - 1, low - 1, -1):
                coefs[row, power] += by[row] * coefs[row, power + 1]


@compiled
def moved(coefs: Floats, by: Floats) -> tuple[Floats, Floats]:
    """Return polynomials on origins that are some seconds later, and the sizes of their terms."""
    moved_coefs, size = coefs.copy(), np.abs(coefs)
    degree = coefs.shape[1] - 1
    for row in range(coefs.shape[0]):
        step = by[row]
        if step == 0.0:
            continue
        for low in range(degree):
            for power in range(degree - 1, low - 1, -1):
                moved_coefs[row, power] += step * moved_coefs[row, power + 1]
                size[row, power] += abs(step) * size[row, power + 1]
    return moved_coefs, size


@compiled
def without_rounding(coefs: Floats, size: Floats, part: float) -> Floats:
    """Return coefficients with 0 for those that are no more than a part of their terms' size."""
    cleaned = coefs.copy()
    for row in range(coefs.shape[0]):
        for power in range(coefs.shape[1]):
            if abs(coefs[row, power]) <= part * size[row, power] < np.inf:
                cleaned[row, power] = 0.0
    return cleaned


@compiled
def multiply(one: Floats, other: Floats, products: Floats) -> None:
    """Add products of polynomials to zeros; one polynomial stands for as many as the others are."""
    width = other.shape[1]
    step, other_step = one.shape[0] > 1, other.shape[0] > 1
    for row in range(products.shape[0]):
        for power in range(one.shape[1]):
            factor = one[row * step, power]
            for other_power in range(width):
                products[row, power + other_power] += factor * other[row * other_step, other_power]


@compiled
def bounds_of(coefs: Floats, length: Floats) -> tuple[Floats, Floats]:
    """Return bounds of the values on ``[0, length]`` by the terms."""
    low, high = np.empty((2, coefs.shape[0]))
    for row in range(coefs.shape[0]):
        least = most = coefs[row, 0]
        reach = 1.0
        for power in range(1, coefs.shape[1]):
            reach *= length[row]
            term = coefs[row, power] * reach
            if np.isnan(term):
                least = most = np.nan
            least += min(term, 0.0)
            most += max(term, 0.0)
        low[row], high[row] = least, most
    return low, high


@compiled
def roots(coefs: Floats, length: Floats) -> Floats:
    """Return the roots inside ``(0, length)`` of each polynomial, ascending, then ``length``."""
    n, size = coefs.shape
    root_rows, work = np.empty((n, size - 1)), np.empty((size + 2, size + 1))
    for row in range(n):
        count = roots_of(coefs[row], 0.0, length[row], root_rows[row], work)
        root_rows[row, count:] = length[row]
    return root_rows


@compiled
def scaled(coefs: Floats, room: Floats) -> Floats:
    """Scale a polynomial by a power of 2 if squares of its coefficients may overflow.

    Roots and signs stay. Coefficients of usual size are returned unchanged; ``room`` is as long.
    """
    largest = 0.0
    for coef in coefs:
        largest = max(largest, abs(coef))
    if largest == 0 or _SMALL < largest < _LARGE:
        return coefs
    exponent = math.frexp(largest)[1]
    for power in range(coefs.size):
        # In two steps: one power of 2 alone may be too large for a double.
        half = math.ldexp(coefs[power], -(exponent // 2))
        room[power] = math.ldexp(half, exponent // 2 - exponent)
    return room[: coefs.size]


@compiled
def roots_of(coefs: Floats, begin: float, end: float, output: Floats, work: Floats) -> int:
    """Put the roots inside ``(begin, end)`` of a polynomial, ascending, into ``output``.

    Args:
        coefs: of one polynomial.
        begin: seconds since its origin.
        end: seconds since its origin.
        output: where roots go.
        work: room for derivatives, at least two longer than ``coefs`` and one wider.

    Returns:
        How many there are.
    """
    coefs = scaled(coefs, work[coefs.size])
    degree = degree_within(coefs, begin, end)
    if degree == 1:
        root = -coefs[0] / coefs[1]
        if begin < root < end:
            output[0] = root
            return 1
        return 0
    if degree == 2:
        return quadratic_roots(coefs, begin, end, output)
    if degree < 1:
        return 0
    derive(coefs, degree, work)
    near = work[coefs.size + 1]
    count = quadratic_roots(work[degree - 2], begin, end, near)
    for order in range(degree - 3, -1, -1):
        count = next_roots(work, order, degree - order, begin, end, near, count)
    output[:count] = near[:count]
    return count


@compiled
def degree_within(coefs: Floats, begin: float, end: float) -> int:
    """Return the degree of a polynomial, 0 if its terms show that it has no root in the range."""
    degree = coefs.size - 1
    while degree > 0 and coefs[degree] == 0:
        degree -= 1
    low = high = coefs[0]
    power, reach = 1.0, max(-begin, end)
    for place in range(1, degree + 1):
        power *= reach
        term = coefs[place] * power
        low += -abs(term) if begin < 0 else min(term, 0.0)
        high += abs(term) if begin < 0 else max(term, 0.0)
    # What rounding could hide is looked for: both bounds are compared with the size of the terms.
    margin = _ROUNDING * (high - low + abs(coefs[0]))
    return 0 if low > margin or high < -margin else degree


@compiled
def quadratic_roots(coefs: Floats, begin: float, end: float, output: Floats) -> int:
    """Put the roots in a range of a polynomial of degree 2 or less, ascending, into a row."""
    c, b, a = coefs[0], coefs[1], coefs[2]
    one = other = begin  # which is no root inside
    if a == 0:
        one = -c / b if b != 0 else begin
    else:
        square = b * b - 4 * a * c
        if abs(square) <= _ROUNDING * (b * b + 4 * abs(a * c)):
            one = -b / (2 * a)
        elif square > 0:
            larger = -(b + np.copysign(np.sqrt(square), b)) / 2  # terms of one sign: no digit lost
            one, other = larger / a, c / larger
            one, other = min(one, other), max(one, other)
    count = 0
    for root in (one, other):
        if begin < root < end:
            output[count] = root
            count += 1
    return count


@compiled
def derive(coefs: Floats, degree: int, derivatives: Floats) -> None:
    """Put a polynomial and all its derivatives into the rows of a matrix."""
    derivatives[0, : degree + 1] = coefs[: degree + 1]
    for order in range(1, degree + 1):
        for place in range(degree + 1 - order):
            derivatives[order, place] = derivatives[order - 1, place + 1] * (place + 1)


@compiled
def value_at(coefs: Floats, degree: int, seconds: float) -> float:
    """Return the value at an instant, 0 where rounding cannot tell it from 0."""
    value = size = 0.0
    for power in range(degree, -1, -1):
        value = value * seconds + coefs[power]
        size = size * abs(seconds) + abs(coefs[power])
    return 0.0 if abs(value) <= _ROUNDING * size else value


@compiled
def next_roots(
    derivatives: Floats,
    order: int,
    degree: int,
    begin: float,
    end: float,
    near: Floats,
    count: int,
) -> int:
    """Replace the roots of a derivative by those of the polynomial that it is derived from."""
    coefs, slopes = derivatives[order], derivatives[order + 1]
    critical = near[:count].copy()
    left, before = begin, value_at(coefs, degree, begin)
    n_roots = 0
    for piece in range(count + 1):
        right = critical[piece] if piece < count else end
        after = value_at(coefs, degree, right)
        if before * after < 0:
            near[n_roots] = root_between(coefs, slopes, degree, left, right, before)
            n_roots += 1
        elif after == 0 and piece < count:
            near[n_roots] = right
            n_roots += 1
        left, before = right, after
    return n_roots


@compiled
def root_between(
    coefs: Floats, slopes: Floats, degree: int, left: float, right: float, before: float
) -> float:
    """Return the root in a piece with one change of sign: Newton's steps, or halves of it."""
    guess = (left + right) / 2
    width = right - left
    accuracy = _ACCURACY * max(abs(left), abs(right))
    for _ in range(_STEPS):
        value, slope = 0.0, 0.0
        for power in range(degree, 0, -1):
            value = value * guess + coefs[power]
            slope = slope * guess + slopes[power - 1]
        value = value * guess + coefs[0]
        if value == 0:
            return guess
        if value * before > 0:
            left = guess
        else:
            right = guess
        step = -value / slope if slope != 0 else width
        if not left < guess + step < right or abs(step) > width / 2:
            step = (left + right) / 2 - guess
        width = abs(step)
        guess += step
        if width <= accuracy:
            return guess
    return guess


@compiled
def all_cuts(coefs: Floats, lo: Ints, hi: Ints) -> tuple[Ints, NDArray[np.int8]]:
    """Return the instants of the roots of polynomials, and their signs in the gaps between them.

    Args:
        coefs: with ``lo`` as the origin, ``[n, degree + 1]``.
        lo: microseconds, ``[n]``.
        hi: microseconds, ``[n]``.

    Returns:
        Instants in ascending order, ``hi`` in the places that are left, ``[n, degree]``, and signs,
        ``[n, degree + 1]``: before the first, between each two, and behind the last.
    """
    n, size = coefs.shape
    root_rows, room = roots(coefs, np.multiply(hi - lo, MICROS)), np.empty(size)
    instants = np.empty((n, size - 1), np.int64)
    signs = np.empty((n, size), np.int8)
    for row in range(n):
        left, end = 0.0, (hi[row] - lo[row]) * MICROS
        polynomial = scaled(coefs[row], room)
        for gap in range(size):
            # The seconds of ``hi`` may be rounded: what is no root ends where the range does.
            right = root_rows[row, gap] if gap < size - 1 else end
            if gap < size - 1:
                instant = lo[row] + np.int64(np.rint(right / MICROS))
                instants[row, gap] = min(instant, hi[row]) if right < end else hi[row]
            signs[row, gap] = np.sign(value_at(polynomial, size - 1, (left + right) / 2))
            left = right
    return instants, signs

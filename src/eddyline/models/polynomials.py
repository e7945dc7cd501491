"""Polynomials by their coefficients, many at once: values, shifts, products, roots.

Coefficients are rows of ascending powers, ``[n, degree + 1]``; what they take is in seconds. Sums
and products of one with many follow NumPy's rules. Sources: Pulse 3.1, 3.2, 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.models.polynomial_kernels import bounds_of, multiply, roots, shift

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.data.arrays import Floats


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
        found = compute(values)
        is_there = np.isfinite(found)
        if is_there.all() or not (np.abs(values) > LARGE).any():
            return found
        smaller = compute(np.ldexp(values, -SCALE))
        is_kept = is_there if grows_back else np.all(is_there, axis=-1, keepdims=True)
        made: Floats = np.where(is_kept, found, np.ldexp(smaller, SCALE * grows_back))
    return made


def evaluate(coefs: Floats, at: Floats) -> Floats:
    """Return values by Horner's rule.

    Args:
        coefs: ``[n, degree + 1]``.
        at: seconds since the origin, ``[n]`` or ``[n, m]`` for m instants of each polynomial.
    """
    return in_range(lambda some: _evaluated(some, at), coefs)


def _evaluated(coefs: Floats, at: Floats) -> Floats:
    columns = coefs if at.ndim == 1 else coefs[:, None, :]
    value = np.broadcast_to(columns[..., -1], np.broadcast(columns[..., -1], at).shape)
    for power in range(coefs.shape[-1] - 2, -1, -1):
        value = value * at + columns[..., power]
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
    found = np.array(coefs, order="C")
    shift(found, by)
    return found


def derivative(coefs: Floats) -> Floats:
    """Return the derivatives, of a degree less, ``[n, max(degree, 1)]``."""
    if coefs.shape[-1] == 1:
        return np.zeros_like(coefs)
    found = np.empty((len(coefs), coefs.shape[-1] - 1))
    for power in range(1, coefs.shape[-1]):  # along columns: rows are too short for NumPy
        found[:, power - 1] = power * coefs[:, power]
    return found


def antiderivative(coefs: Floats) -> Floats:
    """Return the antiderivatives that are 0 at the origin, ``[n, degree + 2]``."""
    found = np.zeros((len(coefs), coefs.shape[-1] + 1))
    for power in range(coefs.shape[-1]):
        found[:, power + 1] = coefs[:, power] / (power + 1)
    return found


def padded(coefs: Floats, size: int) -> Floats:
    """Return the same polynomials with at least ``size`` coefficients."""
    missing = size - coefs.shape[-1]
    if missing <= 0:
        return coefs
    return np.concatenate([coefs, np.zeros((len(coefs), missing))], axis=1)


def total(one: Floats, other: Floats) -> Floats:
    """Return sums of polynomials; degrees may differ."""
    size = max(one.shape[-1], other.shape[-1])
    found: Floats = padded(one, size) + padded(other, size)
    return found


def product(one: Floats, other: Floats) -> Floats:
    """Return products of polynomials, ``[n, degree + other degree + 1]``."""
    n = max(len(one), len(other)) if len(one) and len(other) else 0
    found = np.zeros((n, one.shape[-1] + other.shape[-1] - 1))
    multiply(np.ascontiguousarray(one), np.ascontiguousarray(other), found)
    return found


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
    low, high = np.empty((2, len(coefs)))
    bounds_of(np.ascontiguousarray(coefs), np.ascontiguousarray(length), low, high)
    return low, high


def extremes(coefs: Floats, length: Floats) -> tuple[Floats, Floats]:
    """Return the least and the greatest value on ``[0, length]``, ``[n]`` each."""
    ends = [np.zeros((len(coefs), 1)), length[:, None]]
    inner = breaks(derivative(coefs), length)
    values = evaluate(coefs, np.concatenate([*ends, inner], axis=1))
    return values.min(axis=1), values.max(axis=1)

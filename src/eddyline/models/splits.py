"""Splits of an error: how far inputs may be off, so that what is computed of them is near enough.

Inputs that are each within their share are together within the whole: sums add the errors of their
parts, and a product ``p q`` errs by at most ``|p| e_q + |q| e_p + e_p e_q``. Shares are equal, or
as the inputs move (Pulse 3.12). As printed there the latter divides by values and lets slopes of
two signs cancel; here it is by absolute slopes, so that no share is above the whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import NotSupportedError
from eddyline.models import polynomials
from eddyline.models.expressions import (
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Sum,
    names_in,
    terms_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eddyline.data.arrays import Floats, Mask
    from eddyline.models.expressions import Terms

    Reach = Callable[[Expression], Floats]
    """Gives the greatest distance from 0 of a part of an expression, ``[n]`` or ``[1]``."""

LEAST_SHARE = 1 / 64
"""The least share that slopes leave to an input, in parts of an equal one."""
_SHRUNK = 1 - 2.0**-44
"""What is left of bounds, so that rounding does not take them beyond what they were."""
_STEPS = 30
"""Newton's steps from above to where an error that grows like a polynomial is the whole."""


def spread(
    expression: Expression,
    amount: Floats,
    reach: Reach,
    shares: Mapping[str, Floats] | None = None,
) -> dict[str, Floats]:
    """Return how far each attribute may be off, so that an expression of them is off by no more.

    Args:
        expression: without ``Absolute`` and ``Root``.
        amount: how far the expression may be off, 0 or more, ``[n]``; infinite is any distance.
        reach: the greatest values of its parts, of models or of rows; only products need them.
        shares: for each attribute its part of the amount, ``[n]``, 1 together; None is equal ones.

    Returns:
        For each attribute its bound, ``[n]``; infinite where it changes nothing.

    Raises:
        NotSupportedError: it has a slope, which no distance of values bounds.
    """
    names = sorted(names_in(expression))
    n = len(amount)
    alone = {name: _grown(expression, reach, {name: np.ones(n)}, n) for name in names}

    def raised(part: Expression) -> Floats:
        return reach(part) + 1 if names_in(part) else reach(part)

    # Beside a factor that is 0 an attribute matters as soon as that one is off.
    matters = {
        name: np.asarray(_grown(expression, raised, {name: np.ones(n)}, n).any(axis=1))
        for name in names
    }
    parts = _equal(matters, n) if shares is None else shares
    ways = {}
    for name, growth in alone.items():
        first = growth[:, 1] if growth.shape[1] > 1 else np.zeros(n)
        ways[name] = np.where(matters[name], parts[name] / np.where(first > 0, first, 1.0), 0.0)
    scale = _largest(_grown(expression, reach, ways, n), amount)
    free = np.isposinf(amount)
    found = {}
    for name, way in ways.items():
        with np.errstate(invalid="ignore"):
            bound = np.where(free, np.inf, scale * way)
        found[name] = np.where(matters[name], bound, np.inf)
    if isinstance(expression, Attribute):
        found[expression.name] = amount.copy()
    return found


def weights_of(expression: Expression) -> dict[str, float] | None:
    """Return the factor of each attribute in a weighted sum, None if an expression is none."""
    found = _weighted(expression)
    return None if found is None else found[0]


def shares_of(paces: Mapping[str, float]) -> dict[str, float]:
    """Return shares in proportion to how fast attributes move: what moves most soon needs most.

    Where nothing moves, or one is not known, shares are equal; none is below ``LEAST_SHARE`` of an
    equal one.

    Args:
        paces: for each attribute the mean of absolute changes per second, 0 or more.
    """
    total, equal = sum(paces.values()), 1 / len(paces)
    is_known = 0 < total < math.inf
    shares = {
        name: max(pace / total if is_known else equal, LEAST_SHARE * equal)
        for name, pace in paces.items()
    }
    whole = sum(shares.values())
    return {name: each / whole for name, each in shares.items()}


def reach_on(given: Mapping[str, Terms], length: Floats) -> Reach:
    """Return what gives the greatest values of expressions on segments.

    Args:
        given: for each attribute its polynomials from where segments begin.
        length: how long segments are, in seconds, ``[n]``.
    """

    def reach(part: Expression) -> Floats:
        coefs = terms_of(part, given).coefs
        rows = np.broadcast_to(coefs, (len(length), coefs.shape[1]))
        low, high = polynomials.extremes(rows, length)
        return np.maximum(np.abs(low), np.abs(high))

    return reach


def _equal(matters: Mapping[str, Mask], n: int) -> dict[str, Floats]:
    count = np.zeros(n)
    for each in matters.values():
        count += each
    return dict.fromkeys(matters, 1 / np.maximum(count, 1.0))


def _grown(expression: Expression, reach: Reach, ways: Mapping[str, Floats], n: int) -> Floats:
    """Return the error of an expression as a polynomial of s if attributes err by ``s * way``."""
    found = _growth(expression, reach, ways)
    return np.zeros((n, 1)) if found is None else found


def _growth(expression: Expression, reach: Reach, ways: Mapping[str, Floats]) -> Floats | None:
    """Return the same, None for what has no error: its reach may be anything."""
    found = None
    match expression:
        case Number() | Power(_, 0):
            pass
        case Attribute(name):
            if name in ways:
                found = np.stack([np.zeros(len(ways[name])), ways[name]], axis=1)
        case Sum(left, right):
            found = _both(_growth(left, reach, ways), _growth(right, reach, ways))
        case Product(left, right):
            found = _of_product(left, right, reach, ways)
        case Power(part, 1):
            found = _growth(part, reach, ways)
        case Power(part, exponent):
            found = _of_product(part, Power(part, exponent - 1), reach, ways)
        case _:
            msg = "no distance of values bounds that of slopes: no output with a bound has d()"
            raise NotSupportedError(msg)
    return found


def _of_product(
    left: Expression, right: Expression, reach: Reach, ways: Mapping[str, Floats]
) -> Floats | None:
    one, other = (_growth(each, reach, ways) for each in (left, right))
    found = None if one is None else _times(reach(right), one)
    found = _both(found, None if other is None else _times(reach(left), other))
    return found if one is None or other is None else _both(found, polynomials.product(one, other))


def _times(far: Floats, growth: Floats) -> Floats:
    """Return a growth times a reach, which may be infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(growth == 0, 0.0, far[:, None] * growth)


def _both(one: Floats | None, other: Floats | None) -> Floats | None:
    """Return the sum of two errors, of which None is none."""
    if one is None or other is None:
        return other if one is None else one
    return polynomials.total(one, other)


def _largest(growth: Floats, amount: Floats) -> Floats:
    """Return the largest s, not quite, at which a growing error is no more than an amount."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        powers = np.arange(1, growth.shape[1])
        alone = (amount[:, None] / growth[:, 1:]) ** (1 / powers)
        scale = np.fmin.reduce(alone, axis=1, initial=np.inf)
        slope = polynomials.derivative(growth)
        for _ in range(_STEPS if growth.shape[1] > 2 else 0):
            over = polynomials.evaluate(growth, scale) - amount
            step = np.where(over > 0, over / polynomials.evaluate(slope, scale), 0.0)
            scale = np.where(np.isfinite(step), scale - step, scale)
        # The error is convex in s and 0 at 0: a part of s has at most that part of the error.
        error = polynomials.evaluate(growth, scale)
        scale = np.where(error > amount, scale * (amount / error), scale) * _SHRUNK
    return np.where(np.isfinite(scale) & (amount > 0), scale, 0.0)


def _weighted(expression: Expression) -> tuple[dict[str, float], float] | None:
    """Return factors and constant of a weighted sum."""
    found: tuple[dict[str, float], float] | None = None
    match expression:
        case Number(value):
            found = {}, value
        case Attribute(name):
            found = {name: 1.0}, 0.0
        case Sum(left, right) | Product(left, right):
            one, other = _weighted(left), _weighted(right)
            if one is not None and other is not None:
                is_sum = isinstance(expression, Sum)
                found = _added(one, other) if is_sum else _multiplied(one, other)
        case Power(_, 0):
            found = {}, 1.0
        case Power(part, 1):
            found = _weighted(part)
    return found


def _added(
    one: tuple[dict[str, float], float], other: tuple[dict[str, float], float]
) -> tuple[dict[str, float], float]:
    names = dict.fromkeys([*one[0], *other[0]])
    summed = {each: one[0].get(each, 0.0) + other[0].get(each, 0.0) for each in names}
    return summed, one[1] + other[1]


def _multiplied(
    one: tuple[dict[str, float], float], other: tuple[dict[str, float], float]
) -> tuple[dict[str, float], float] | None:
    if one[0] and other[0]:
        return None
    factor, (weights, constant) = (one[1], other) if not one[0] else (other[1], one)
    return {each: factor * weight for each, weight in weights.items()}, factor * constant

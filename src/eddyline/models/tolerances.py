"""How far what is computed of models may be from what the rows would give, rounding included.

A row's value is within the certified error of its segment's polynomial. What is computed of it errs
by more: coefficients and values are rounded, roots are found to some digits and stored as whole
microseconds. ``doubt`` has all of this, so a sign that is farther from 0 is the sign of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import NotSupportedError
from eddyline.models.conditions import comparisons
from eddyline.models.expressions import (
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Slope,
    Sum,
    error_of,
    names_in,
    terms_of,
    walk,
)
from eddyline.models.segments import MICROS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Mask
    from eddyline.models.conditions import Condition
    from eddyline.models.expressions import Terms

ROUNDED = 2.0**-30
"""What rounding takes at most, in parts of the size of the terms.

Evaluating a tree of degree 32, or finding a root of it, takes less than 2**-40 of them.
"""

_LEAST, _LARGEST = 1e-100, 1e100
"""Rounding outside is of numbers whose squares, in which roots are sought, may be 0 or infinite."""


def doubt(
    expression: Expression, given: Mapping[str, Terms], errors: Mapping[str, Floats], length: Floats
) -> Floats:
    """Return how far an expression of rows may be from its polynomial, ``[n]``.

    Args:
        expression: without ``Absolute`` and ``Root``.
        given: for each attribute its polynomials from where segments begin.
        errors: for each attribute how far a row may be from it, ``[n]``.
        length: how long segments are, in seconds, ``[n]``.

    Returns:
        In the expression's unit, 0 or more; infinite where a number is too large to be computed,
        or nothing bounds it.
    """
    longer = length + MICROS
    error = error_of(expression, given, errors, longer)
    found = error + rounding_of(expression, given, errors, length)
    return np.where(np.isnan(found), np.inf, np.broadcast_to(found, length.shape))


def rounding_of(
    expression: Expression, given: Mapping[str, Terms], errors: Mapping[str, Floats], length: Floats
) -> Floats:
    """Return what rounding of numbers and instants alone takes; arguments as above."""
    longer = length + MICROS
    size = terms_of(expression, given).size
    rounding = ROUNDED * _size(expression, given, errors, longer)
    found: Floats = rounding + MICROS * _steepness(size, longer)
    return found


def is_solvable(far: Floats) -> Mask:
    """Return whether polynomials whose values are rounded by so much can be solved; 0 are 0."""
    found: Mask = ((far > _LEAST) & (far < _LARGEST)) | (far == 0)
    return found


def without_values(expression: Expression, given: Mapping[str, Terms], n: int) -> Mask:
    """Return on which of ``n`` segments an attribute of an expression has no value."""
    found = np.zeros(n, np.bool_)
    for name in names_in(expression):
        found |= np.isnan(given[name].coefs).any(axis=1)
    return found


def check_rows_have(condition: Condition) -> None:
    """Refuse what a row alone has no value of.

    Raises:
        NotSupportedError: a comparison reads a slope.
    """
    for each in comparisons(condition):
        if any(isinstance(part, Slope) for part in walk(each.expression)):
            msg = (
                "d() is the slope of a model, and a row alone has none: nothing bounds how far it "
                "is from that of the rows; leave it out of what is to be exact or validated"
            )
            raise NotSupportedError(msg)


def _size(
    expression: Expression, given: Mapping[str, Terms], errors: Mapping[str, Floats], length: Floats
) -> Floats:
    """Return the greatest size of the terms of an expression, of rows as of models, ``[n]``."""
    match expression:
        case Number(value):
            return np.full(1, abs(value))
        case Attribute(name):
            return _values(given[name].size, length) + errors[name]
        case Sum(left, right):
            one, other = (_size(each, given, errors, length) for each in (left, right))
            return one + other
        case Product(left, right):
            one, other = (_size(each, given, errors, length) for each in (left, right))
            return one * other
        case Power(part, exponent):
            raised: Floats = _size(part, given, errors, length) ** exponent
            return raised
    return np.full(1, np.inf)


def _values(sizes: Floats, length: Floats) -> Floats:
    found = np.zeros(len(length))
    for power in range(sizes.shape[1] - 1, -1, -1):
        found = found * length + sizes[:, power]
    return found


def _steepness(sizes: Floats, length: Floats) -> Floats:
    """Return the greatest slope that terms of such sizes have, per second, ``[n]``."""
    found = np.zeros(len(length))
    for power in range(sizes.shape[1] - 1, 0, -1):
        found = found * length + power * sizes[:, power]
    return found

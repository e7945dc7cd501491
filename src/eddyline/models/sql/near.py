"""Distances of two entities in a query: sums of squares of differences, and their roots.

A distance is no polynomial (Pulse 3.10). Its comparison with a number is one of squares, its
average over windows has a closed form; either says how near two entities have to come at all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eddyline.models.expressions import (
    Absolute,
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Root,
    Sum,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SLACK = 1e-9
"""The share by which entities may be farther apart and still are paired: roots are rounded."""


def distance_axes(expression: Expression, names: tuple[str, str]) -> tuple[str, ...] | None:
    """Return the attributes whose distance an expression is; None if it is none.

    Args:
        expression: over attributes of pairs, such as ``a_x`` and ``b_x``.
        names: of the two sides.
    """
    match expression:
        case Root(squares):
            return _axes(squares, names)
        case Absolute(part):
            axis = _axis(part, names)
            return None if axis is None else (axis,)
    return None


def nearness(
    left: Expression, right: Expression, names: tuple[str, str]
) -> tuple[tuple[str, ...], float] | None:
    """Return the attributes and the most by which they differ where ``left < right`` holds.

    None if that is no distance, or sum of squares, below a number.
    """
    most = constant(right)
    if most is None or most < 0:
        return None
    axes = distance_axes(left, names)
    if axes is not None:
        return axes, most * (1 + SLACK)
    axes = _axes(left, names)
    return None if axes is None else (axes, math.sqrt(most) * (1 + SLACK))


def constant(expression: Expression) -> float | None:
    """Return the value of arithmetic over numbers; None if there is more in it."""
    match expression:
        case Number(value):
            return value
        case Sum(left, right) | Product(left, right):
            one, other = constant(left), constant(right)
            if one is None or other is None:
                return None
            return one + other if isinstance(expression, Sum) else one * other
        case Power(part, exponent):
            base = constant(part)
            return None if base is None else base**exponent
    return None


def _axes(squares: Expression, names: tuple[str, str]) -> tuple[str, ...] | None:
    """Return the attributes of a sum of squares of differences of both sides."""
    found = [_axis(each, names) for each in _squared(squares)]
    axes = tuple(each for each in found if each is not None)
    return axes if len(axes) == len(found) == len({*axes}) else None


def _squared(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Sum(left, right):
            yield from _squared(left)
            yield from _squared(right)
        case Power(part, 2):
            yield part
        case Product(left, right) if left == right:
            yield left
        case _:
            yield Number(0.0)  # no difference


def _axis(difference: Expression, names: tuple[str, str]) -> str | None:
    match difference:
        case Sum(Attribute(one), Product(Number(-1.0), Attribute(other))):
            for left, right in (names, names[::-1]):
                axis = one.removeprefix(f"{left}_")
                if one == f"{left}_{axis}" and other == f"{right}_{axis}":
                    return axis
    return None

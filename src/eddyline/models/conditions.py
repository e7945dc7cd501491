"""Conditions on modelled attributes as values: AND and OR of comparisons of a polynomial with 0.

There is no NOT: it is the opposite comparison, as a model has no NULL. ``|p|`` and the square root
are rewritten as comparisons of polynomials that hold at the same instants (Pulse 3.1, 3.10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

from eddyline.errors import NotSupportedError
from eddyline.models.expressions import (
    Absolute,
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Root,
    Sum,
    difference,
    names_in,
    negative,
    walk,
    with_instead,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eddyline.data.arrays import Mask

    T = TypeVar("T")

OPPOSITE = {"<": ">=", "<=": ">", "=": "<>", "<>": "=", ">=": "<", ">": "<="}
"""The comparison that holds where another does not."""
MIRRORED = {"<": ">", "<=": ">=", "=": "=", "<>": "<>", ">=": "<=", ">": "<"}
"""The comparison of ``-p`` that holds where one of ``p`` does."""
MOST_ABSOLUTE = 6
"""Absolute values in one comparison: each doubles the comparisons that it is rewritten as."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``expression op 0``."""

    expression: Expression
    op: str
    """One of ``< <= = <> >= >``."""


@dataclass(frozen=True, slots=True)
class And:
    """All of one or more."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of one or more."""

    parts: tuple[Condition, ...]


Condition = Comparison | And | Or


def compared(left: Expression, op: str, right: Expression) -> Condition:
    """Return ``left op right`` as comparisons of polynomials with 0.

    Raises:
        NotSupportedError: a square root stands where no polynomial says the same.
    """
    return _closed(Comparison(difference(left, right), op))


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons of a condition, from left to right."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts:
            yield from comparisons(part)


def attributes(condition: Condition) -> set[str]:
    """Return the attributes that a condition reads."""
    return {name for each in comparisons(condition) for name in names_in(each.expression)}


def holds(condition: Condition, leaf: Callable[[Comparison], Mask]) -> Mask:
    """Return where a condition holds, if ``leaf`` says where its comparisons do.

    A condition is monotone in its comparisons: if ``leaf`` gives less than what holds, so does
    this; if it gives more, so does this.
    """
    if isinstance(condition, Comparison):
        return leaf(condition)
    found = (holds(each, leaf) for each in condition.parts)
    if isinstance(condition, And):
        return reduce(lambda one, other: one & other, found)
    return reduce(lambda one, other: one | other, found)


def near(axes: dict[str, str], op: str, distance: float) -> Condition:
    """Return whether two positions are near each other: their distance, compared by its square.

    Args:
        axes: for each attribute of one position that of the other: ``{"a.x": "b.x", …}``.
        op: ``<``, ``<=``, ``>`` or ``>=``.
        distance: what the distance is compared with, in the attributes' unit, 0 or more.
    """
    apart: list[Expression] = [
        Power(difference(Attribute(one), Attribute(other)), 2) for one, other in axes.items()
    ]
    squares = reduce(Sum, apart)
    square = float(distance) * distance
    is_exact = 0 < square < math.inf or distance == 0
    return compared(squares, op, Number(square) if is_exact else Power(Number(distance), 2))


def _closed(comparison: Comparison) -> Condition:
    nodes = [*walk(comparison.expression)]
    absolute = [each for each in nodes if isinstance(each, Absolute)]
    if len(absolute) > MOST_ABSOLUTE:
        msg = (
            f"a comparison has {len(absolute)} absolute values, at most {MOST_ABSOLUTE} are "
            "rewritten; write it as several"
        )
        raise NotSupportedError(msg)
    if absolute:
        return _by_sign(comparison, absolute[-1])
    root = next((each for each in nodes if isinstance(each, Root)), None)
    return comparison if root is None else _squared(comparison, root)


def _by_sign(comparison: Comparison, absolute: Absolute) -> Condition:
    """Return a comparison as what it is where ``part`` is not negative, and where it is."""
    part, (expression, op) = absolute.part, (comparison.expression, comparison.op)
    positive = Comparison(with_instead(expression, absolute, part), op)
    other = Comparison(with_instead(expression, absolute, negative(part)), op)
    return Or(
        (
            And((_closed(Comparison(part, ">=")), _closed(positive))),
            And((_closed(Comparison(part, "<")), _closed(other))),
        )
    )


def _squared(comparison: Comparison, root: Root) -> Condition:
    """Return ``factor * root + rest op 0`` without the root."""
    found = _linear(comparison.expression, root)
    if found is None or found[0] == 0:
        msg = (
            "a square root is compared only alone or times a constant, as in sqrt(p) < q; "
            "write the comparison by squares, p < q * q"
        )
        raise NotSupportedError(msg)
    factor, rest = found
    op = comparison.op if factor > 0 else MIRRORED[comparison.op]
    other = Product(Number(-1 / factor), rest)
    below, square = root.part, Product(other, other)
    squares = _closed(Comparison(difference(below, square), op))
    there = _closed(Comparison(below, ">="))
    if op in {"<", "<=", "="}:
        sign = ">" if op == "<" else ">="
        return And((there, _closed(Comparison(other, sign)), squares))
    return And((there, Or((_closed(Comparison(other, "<")), squares))))


def _linear(expression: Expression, root: Root) -> tuple[float, Expression] | None:
    """Return factor and rest with ``expression = factor * root + rest``, None if there are none."""
    if expression == root:
        return 1.0, Number(0.0)
    if not any(isinstance(each, Root) for each in walk(expression)):
        return 0.0, expression
    if isinstance(expression, Sum):
        one, other = _linear(expression.left, root), _linear(expression.right, root)
        if one is None or other is None:
            return None
        return one[0] + other[0], Sum(one[1], other[1])
    if isinstance(expression, Product):
        for number, part in (
            (expression.left, expression.right),
            (expression.right, expression.left),
        ):
            found = _linear(part, root)
            if isinstance(number, Number) and found is not None:
                return number.value * found[0], Product(number, found[1])
    return None

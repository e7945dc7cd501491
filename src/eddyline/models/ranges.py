"""Ranges of attributes' values, and of what is computed of them, with how fast they move."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from eddyline.models.expressions import (
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Slope,
    Sum,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Ranges = dict[str, "Range"]
    """The range of each attribute that one is known of."""


class Range(NamedTuple):
    """The least and the greatest value, and the mean of absolute changes per second."""

    low: float
    high: float
    pace: float = math.nan
    """NaN: not known."""

    @property
    def nearest(self) -> float:
        """The least distance from 0."""
        return max(self.low, -self.high, 0.0)

    @property
    def farthest(self) -> float:
        """The greatest distance from 0."""
        return max(abs(self.low), abs(self.high))

    @property
    def has_one_sign(self) -> bool:
        """Whether no two values have different signs."""
        return self.low >= 0 or self.high <= 0

    def plus(self, other: Range) -> Range:
        """Return the range of sums."""
        return Range(self.low + other.low, self.high + other.high, self.pace + other.pace)

    def times(self, other: Range) -> Range:
        """Return the range of products."""
        ends = [a * b for a in self[:2] for b in other[:2]]
        pace = self.farthest * other.pace + other.farthest * self.pace
        return Range(min(ends), max(ends), pace)

    def power(self, exponent: int) -> Range:
        """Return the range of a whole power, 0 or more."""
        ends = sorted((_power(self.low, exponent), _power(self.high, exponent)))
        is_even = exponent % 2 == 0 and exponent > 0
        pace = exponent * _power(self.farthest, exponent - 1) * self.pace if exponent else 0.0
        return Range(_power(self.nearest, exponent) if is_even else ends[0], ends[1], pace)

    def scaled(self, factor: float) -> Range:
        """Return the range times a factor above 0."""
        return Range(self.low * factor, self.high * factor, self.pace * factor)

    def widened(self, by: float) -> Range:
        """Return a wider range, which does not come to have 0 in it."""
        more, less = 1 + by, 1 / (1 + by)
        low = self.low * (less if self.low > 0 else more)
        return Range(low, self.high * (more if self.high > 0 else less), self.pace)


def _power(value: float, exponent: int) -> float:
    """Return a whole power, infinite where a double cannot hold it."""
    try:
        return float(value**exponent)
    except OverflowError:
        return math.copysign(math.inf, value) if exponent % 2 else math.inf


def range_of(expression: Expression, known: Mapping[str, Range]) -> Range | None:
    """Return the range of an expression by those of its attributes, None if one is not known."""
    found = None
    match expression:
        case Number(value):
            found = Range(value, value, 0.0)
        case Attribute(name):
            found = known.get(name)
        case Sum(left, right) | Product(left, right):
            one, other = range_of(left, known), range_of(right, known)
            if one is not None and other is not None:
                found = one.plus(other) if isinstance(expression, Sum) else one.times(other)
        case Power(part, exponent):
            one = range_of(part, known)
            found = None if one is None else one.power(exponent)
        case Slope():
            found = None
    return found

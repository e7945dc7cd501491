"""Arithmetic and conditions over modelled attributes, as values.

An ``Expression`` is a tree whose result is a polynomial again: sums, products, whole powers and
slopes of polynomials are polynomials (Pulse 3.5). Trees stay as they are written: ``(a - b)``
squared keeps digits that ``a*a - 2*a*b + b*b`` loses. ``terms_of`` computes the coefficients,
``error_of`` how far they may be off, and ``range_of`` between which values they are.

A ``Condition`` is AND and OR of comparisons of a polynomial with 0. There is no NOT: a model has no
NULL, so the opposite comparison says the same. ``Absolute`` and ``Root`` are no polynomials.
``compared`` rewrites a comparison with one of them as comparisons of polynomials that hold at the
same instants (Pulse 3.1, 3.10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import and_, mul, or_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from eddyline.errors import NotSupportedError
from eddyline.models.segments import in_seconds
from eddyline.models.solving import polynomials
from eddyline.models.solving.polynomials import moved, without_rounding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.data.arrays import Floats, Ints, Mask
    from eddyline.models.segments import Segments

    Ranges = dict[str, "Range"]
    """The range of each attribute that one is known of."""
    T = TypeVar("T")

ROUNDING = 16 * 2.0**-53
"""Coefficients of a smaller part of the terms that they are sums of are rounding, and 0."""
_OF_ZERO = -5000
"""The exponent of 0: less than that of any other double."""


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:.15g}"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A modelled attribute by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sum:
    """``left + right``."""

    left: Expression
    right: Expression

    def __str__(self) -> str:
        match self.right:
            case Product(Number(-1.0), part):
                return f"{self.left} - {_inner(part)}"
        return f"{self.left} + {_inner(self.right)}"


@dataclass(frozen=True, slots=True)
class Product:
    """``left * right``."""

    left: Expression
    right: Expression

    def __str__(self) -> str:
        if self.left == Number(-1.0):
            return f"-{_inner(self.right)}"
        return f"{_inner(self.left)} * {_inner(self.right)}"


@dataclass(frozen=True, slots=True)
class Power:
    """``part`` to a whole power, 0 or more."""

    part: Expression
    exponent: int

    def __str__(self) -> str:
        return f"pow({self.part}, {self.exponent})"


@dataclass(frozen=True, slots=True)
class Slope:
    """The derivative of ``part`` by time, per second."""

    part: Expression

    def __str__(self) -> str:
        return f"d({self.part})"


@dataclass(frozen=True, slots=True)
class Absolute:
    """``|part|``."""

    part: Expression

    def __str__(self) -> str:
        return f"abs({self.part})"


@dataclass(frozen=True, slots=True)
class Root:
    """The square root of ``part``, without a value where that is negative."""

    part: Expression

    def __str__(self) -> str:
        return f"sqrt({self.part})"


Expression = Number | Attribute | Sum | Product | Power | Slope | Absolute | Root


def _inner(part: Expression) -> str:
    """Return the words of a part, in brackets where it is a sum or a product."""
    return f"({part})" if isinstance(part, Sum | Product) else str(part)


def negative(part: Expression) -> Expression:
    """Return ``-part``."""
    return Number(-part.value) if isinstance(part, Number) else Product(Number(-1.0), part)


def difference(left: Expression, right: Expression) -> Expression:
    """Return ``left - right``."""
    return left if right == Number(0.0) else Sum(left, negative(right))


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all below it, each before its parts."""
    waiting = [expression]
    while waiting:
        yield (part := waiting.pop())
        waiting.extend(reversed(parts_of(part)))


def names_in(expression: Expression) -> set[str]:
    """Return the attributes that an expression reads."""
    return {part.name for part in walk(expression) if isinstance(part, Attribute)}


def with_instead(expression: Expression, old: Expression, new: Expression) -> Expression:
    """Return an expression with a part replaced wherever it stands."""
    if expression == old:
        return new
    parts = _parts(expression)
    replacements: dict[str, Any] = {
        name: with_instead(part, old, new) for name, part in parts.items()
    }
    return replace(expression, **replacements) if replacements else expression


def parts_of(expression: Expression) -> list[Expression]:
    """Return the operands of an expression, from left to right."""
    return list(_parts(expression).values())


def _parts(expression: Expression) -> dict[str, Expression]:
    values = {member.name: getattr(expression, member.name) for member in fields(expression)}
    return {name: part for name, part in values.items() if isinstance(part, Expression)}


@dataclass(frozen=True, slots=True)
class Terms:
    """Polynomials, and beside each coefficient the size of the terms that it was summed from.

    The size says how much of a coefficient may be rounding. Both are ``[n, degree + 1]``.
    """

    coefs: Floats
    size: Floats

    @classmethod
    def from_coefs(cls, coefs: Floats) -> Terms:
        """Return polynomials with the sizes of their own terms."""
        return cls(coefs, np.abs(coefs))

    @classmethod
    def since(cls, coefs: Floats, by: Floats) -> Terms:
        """Return polynomials on an origin that is ``by`` seconds later, ``[n]``."""
        return cls(*moved(np.ascontiguousarray(coefs), np.ascontiguousarray(by)))

    @classmethod
    def number(cls, value: float) -> Terms:
        """Return one constant polynomial, ``[1, 1]``."""
        return cls(np.array([[value]]), np.array([[abs(value)]]))

    @property
    def cleaned(self) -> Floats:
        """The coefficients with 0 for those that are no more than rounding."""
        coefs, size = (np.ascontiguousarray(array) for array in (self.coefs, self.size))
        return without_rounding(coefs, size, ROUNDING)

    def slope(self) -> Terms:
        """Return the derivatives."""
        return Terms(*map(polynomials.derivative, (self.coefs, self.size)))

    def divided(self, by: Ints) -> Terms:
        """Return polynomials divided by powers of 2, whose exponents are ``[n]``."""
        return Terms(*(np.ldexp(array, -by[:, None]) for array in (self.coefs, self.size)))

    def __add__(self, other: Terms) -> Terms:
        total = polynomials.total
        return Terms(total(self.coefs, other.coefs), total(self.size, other.size))

    def __mul__(self, other: Terms) -> Terms:
        product = polynomials.product
        return Terms(product(self.coefs, other.coefs), product(self.size, other.size))


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Polynomials that are divided by powers of 2 against overflow; ``up`` has the exponents."""

    terms: Terms
    up: Ints

    @classmethod
    def from_terms(cls, terms: Terms, up: Ints | int = 0) -> _Scaled:
        largest = terms.size.max(axis=1)
        # 0 is 0 on any scale, and takes the scale of the other operand.
        by = np.where(largest == 0, _OF_ZERO, np.frexp(largest)[1].astype(np.int64))
        return cls(terms.divided(by), up + by)

    def slope(self) -> _Scaled:
        return _Scaled.from_terms(self.terms.slope(), self.up)

    def __add__(self, other: _Scaled) -> _Scaled:
        most = np.maximum(self.up, other.up)
        both = self.terms.divided(most - self.up) + other.terms.divided(most - other.up)
        return _Scaled.from_terms(both, most)

    def __mul__(self, other: _Scaled) -> _Scaled:
        return _Scaled.from_terms(self.terms * other.terms, self.up + other.up)


def computed(
    expression: Expression,
    values: Mapping[str, T],
    number: Callable[[float], T],
    slope: Callable[[T], T],
) -> T:
    """Return what an expression is in an arithmetic with ``+`` and ``*``.

    Args:
        expression: without ``Absolute`` and ``Root``.
        values: what each attribute is.
        number: gives what a constant is.
        slope: gives the derivative of a result.
    """

    def value_of(part: Expression) -> Any:
        match part:
            case Number(value):
                return number(value)
            case Attribute(name):
                return values[name]
            case Sum(left, right):
                return value_of(left) + value_of(right)
            case Product(left, right):
                return value_of(left) * value_of(right)
            case Power(base, exponent):
                factors = [value_of(base)] * exponent
                return reduce(mul, factors) if factors else number(1.0)
            case Slope(below):
                return slope(value_of(below))
        msg = f"{part} is no polynomial: it has to be rewritten before"
        raise TypeError(msg)

    result: T = value_of(expression)
    return result


def terms_of(expression: Expression, inputs: Mapping[str, Terms]) -> Terms:
    """Return the polynomials that an expression is, ``[n, degree + 1]``, or ``[1, 1]`` if constant.

    Args:
        expression: without ``Absolute`` and ``Root``.
        inputs: for each attribute its polynomials; all of a row on one origin.
    """
    return computed(expression, inputs, Terms.number, Terms.slope)


def overflowing(terms: Terms, expression: Expression, inputs: Mapping[str, Terms]) -> Mask | None:
    """Return a mask of the rows in which an expression overflows, ``[n]``; None if no row does.

    Args:
        terms: the expression, as ``terms_of`` returned it.
        expression: the same.
        inputs: for each attribute its polynomials; NaN where it has no value.
    """
    if np.isfinite(terms.size).all():
        return None
    overflows = np.logical_not(np.isfinite(terms.size).all(axis=1))
    for name in names_in(expression):
        overflows &= np.logical_not(np.isnan(inputs[name].coefs).any(axis=1))
    return overflows if overflows.any() else None


def cleaned_of(
    expression: Expression, inputs: Mapping[str, Terms], n: int, *, grows_back: bool = False
) -> Floats:
    """Return the polynomials of an expression without rounding terms, ``[n, degree + 1]``.

    A polynomial whose numbers would overflow is divided by a power of 2.

    Args:
        expression: without ``Absolute`` and ``Root``.
        inputs: for each attribute its polynomials; all of a row on one origin.
        n: the number of rows.
        grows_back: whether to multiply by that power again; the result may then be infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        terms = terms_of(expression, inputs)
        coefs = terms.cleaned
        if len(coefs) != n:  # a constant
            coefs = np.repeat(coefs, n, axis=0)
        lost = overflowing(terms, expression, inputs)
        if lost is not None:
            rows = np.flatnonzero(np.broadcast_to(lost, n))
            some = {
                name: _Scaled.from_terms(
                    Terms(attribute_terms.coefs[rows], attribute_terms.size[rows])
                )
                for name, attribute_terms in inputs.items()
            }
            scaled = computed(
                expression,
                some,
                lambda value: _Scaled.from_terms(Terms.number(value)),
                _Scaled.slope,
            )
            coefs[rows] = np.ldexp(scaled.terms.cleaned, scaled.up[:, None] * grows_back)
    return coefs


def error_of(
    expression: Expression,
    inputs: Mapping[str, Terms],
    errors: Mapping[str, Floats],
    length: Floats,
) -> Floats:
    """Return how far an expression may be from what the rows would give, ``[n]`` or ``[1]``.

    Sums add the errors of their parts; a product ``p q`` errs by at most
    ``|p| e_q + |q| e_p + e_p e_q``. Nothing bounds a slope: its error is infinite.

    Args:
        expression: without ``Absolute`` and ``Root``.
        inputs: for each attribute its polynomials from where segments begin.
        errors: for each attribute its bound, ``[n]``.
        length: how long segments are, in seconds, ``[n]``.
    """
    error = np.zeros(1)
    match expression:
        case Attribute(name):
            error = errors[name]
        case Sum(left, right):
            one, other = (error_of(side, inputs, errors, length) for side in (left, right))
            error = one + other
        case Product(left, right):
            error = _of_product(left, right, inputs, errors, length)
        case Power(part, exponent) if exponent:
            error = _of_product(part, Power(part, exponent - 1), inputs, errors, length)
        case Slope(part) if names_in(part):
            error = np.full(1, np.inf)
    return error


def _of_product(
    left: Expression,
    right: Expression,
    inputs: Mapping[str, Terms],
    errors: Mapping[str, Floats],
    length: Floats,
) -> Floats:
    one, other = (error_of(side, inputs, errors, length) for side in (left, right))
    reach, other_reach = (_reach(terms_of(side, inputs).coefs, length) for side in (left, right))
    error: Floats = reach * other + other_reach * one + one * other
    return error


def _reach(coefs: Floats, length: Floats) -> Floats:
    """Return the greatest distance from 0 on a range."""
    low, high = polynomials.extremes(np.broadcast_to(coefs, (len(length), coefs.shape[1])), length)
    return np.maximum(np.abs(low), np.abs(high))


def projected(segments: Segments, columns: Mapping[str, Expression]) -> Segments:
    """Return segments with attributes that are computed from theirs (Pulse 3.5).

    Args:
        segments: any; tombstones stay what they are.
        columns: the new attributes, instead of all there were.
    """
    terms = {name: Terms.from_coefs(matrix) for name, matrix in segments.coefs.items()}
    since_lo = segments.seconds(segments.lo)
    begun = {name: Terms.since(matrix, since_lo) for name, matrix in segments.coefs.items()}
    length = in_seconds(segments.hi - segments.lo)
    coefs, errors = {}, {}
    for name, expression in columns.items():
        coefs[name] = cleaned_of(expression, terms, len(segments), grows_back=True)
        with np.errstate(over="ignore", invalid="ignore"):
            error = error_of(expression, begun, segments.errors, length)
        errors[name] = np.array(np.broadcast_to(error, len(segments)))
    return replace(segments, coefs=coefs, errors=errors)


# -- ranges of values -----------------------------------------------------------------------------


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


def range_of(expression: Expression, ranges: Mapping[str, Range]) -> Range | None:
    """Return the range of an expression by those of its attributes, None if one is not known."""
    span = None
    match expression:
        case Number(value):
            span = Range(value, value, 0.0)
        case Attribute(name):
            span = ranges.get(name)
        case Sum(left, right) | Product(left, right):
            one, other = range_of(left, ranges), range_of(right, ranges)
            if one is not None and other is not None:
                span = one.plus(other) if isinstance(expression, Sum) else one.times(other)
        case Power(part, exponent):
            one = range_of(part, ranges)
            span = None if one is None else one.power(exponent)
        case Slope():
            span = None
    return span


# -- conditions -----------------------------------------------------------------------------------


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
    return {
        name for comparison in comparisons(condition) for name in names_in(comparison.expression)
    }


def holds(condition: Condition, leaf: Callable[[Comparison], Mask]) -> Mask:
    """Return where a condition holds, if ``leaf`` says where its comparisons do.

    A condition is monotone in its comparisons: if ``leaf`` gives less than what holds, so does
    this; if it gives more, so does this.
    """
    if isinstance(condition, Comparison):
        return leaf(condition)
    join = and_ if isinstance(condition, And) else or_
    mask: Mask = reduce(join, (holds(part, leaf) for part in condition.parts))
    return mask


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
    absolute = [node for node in nodes if isinstance(node, Absolute)]
    if len(absolute) > MOST_ABSOLUTE:
        msg = (
            f"a comparison has {len(absolute)} absolute values, at most {MOST_ABSOLUTE} are "
            "rewritten; write it as several"
        )
        raise NotSupportedError(msg)
    if absolute:
        return _by_sign(comparison, absolute[-1])
    root = next((node for node in nodes if isinstance(node, Root)), None)
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
    linear = _linear(comparison.expression, root)
    if linear is None or linear[0] == 0:
        msg = (
            "a square root is compared only alone or times a constant, as in sqrt(p) < q; "
            "write the comparison by squares, p < q * q"
        )
        raise NotSupportedError(msg)
    factor, rest = linear
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
    if not any(isinstance(node, Root) for node in walk(expression)):
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
            linear = _linear(part, root)
            if isinstance(number, Number) and linear is not None:
                return number.value * linear[0], Product(number, linear[1])
    return None

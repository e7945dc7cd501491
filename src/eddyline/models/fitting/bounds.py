"""Bounds of attributes, and their way back from results to inputs.

``FitOptions`` and ``Bound`` say how a model is fitted. The rest serves ``graph.required``: if
inputs are within their bounds at every instant, results are within theirs.

* **Inversion** takes a bound of a result back to what it is computed of, one step at a time. A
  share of a value (``1 %``) goes through where nothing cancels. Elsewhere bounds become distances,
  and the ranges of values have to be known: a result that may be 0 has no such bound, and the
  query is refused.
* **Splits** share an error between inputs: sums add the errors of their parts, and a product
  ``p q`` errs by at most ``|p| e_q + |q| e_p + e_p e_q``. Shares are equal, or as the inputs move
  (Pulse 3.12). As printed there the latter divides by values and lets slopes of two signs cancel;
  here it is by absolute slopes, so no share is above the whole.
* **Gains** are for linear results. Such a result is a weighted integral of the past of its inputs,
  and moves by at most the integral of the absolute weights: MACD by 5/3.
* **Ranges of values** of a stream are what a user says, because the rows have not come yet. Bounds
  of models follow from them, and rows outside are counted. Errors of results are computed from the
  models as they are, so they also cover such rows.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.polynomial.polynomial import polyadd, polyder, polymul, polyval

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models.fitting.splits import EQUAL, Part, Split
from eddyline.models.segments import list_matrix, values_of
from eddyline.models.solving.expressions import (
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Range,
    Slope,
    Sum,
    computed,
    names_in,
    range_of,
    walk,
)
from eddyline.options import in_range, is_one_of
from eddyline.query.query import MAX_SPAN, check_span
from eddyline.query.spans import micros_in
from eddyline.registry import checked_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.data.arrays import Floats
    from eddyline.models.solving.expressions import Ranges

    Path = tuple[tuple[int, ...], int, str]
    """The sides of pairs that an input came through, its place, and the name of its attribute."""
    Chain = tuple[tuple[int, bool], ...]
    """The windows that an input is averaged over: widths (µs), and whether a part counts."""
    Kernel = dict[Path, dict[Chain, float]]
    """How much of each input's averages is in an output."""
    Reach = Callable[[Expression], float]
    """Gives the greatest distance from 0 of a part of an expression."""
    Bounds = Mapping[str, "Bound"]
    """A bound for each attribute that has one."""
    K = TypeVar("K")

METHODS = ("auto", "constant", "swing", "connected", "linear", "polynomial")
"""How segments are found; see ``FitOptions.method``."""

MAX_DEGREE = 4
"""The highest degree that is fitted: what is solved in closed loops stays accurate up to it."""

NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that a model may be away from a row's value.

    >>> Bound.of("lon", "1 %")
    Bound(value=0.01, is_relative=True)
    """

    value: float
    """In the attribute's unit, or as a share of the row's value; 0 or more."""
    is_relative: bool = False
    """Whether it is a share of each row's value."""

    @classmethod
    def of(cls, attribute: str, bound: Any) -> Bound:
        """Read ``0.001``, ``"0.001"`` or ``"1 %"``.

        Raises:
            OptionError: it is something else, negative, or no finite number.
        """
        value, is_relative = bound, False
        if isinstance(bound, Bound):
            return bound
        if isinstance(bound, str) and (match := NUMBER.fullmatch(bound)):
            value, is_relative = float(match[1]), bool(match[2])
            value = value / 100 if is_relative else value
        if not _is_number(value) or not 0 <= value < math.inf:
            msg = (
                f"within[{attribute!r}] is a finite number of 0 or more, such as 0.001, or a share "
                f"of each value, such as '1 %'; got {bound!r:.60}"
            )
            raise OptionError(msg, attribute=attribute, got=repr(bound))
        return cls(float(value), is_relative)

    def __str__(self) -> str:
        return f"{self.value * 100:.12g} %" if self.is_relative else f"{self.value:g}"


def read_bounds(within: Any) -> dict[str, Bound]:
    """Return the bound of each attribute.

    Raises:
        OptionError: they are not given by name, or one is no bound.
    """
    if not isinstance(within, Mapping) or not within:
        msg = (
            f"within has a bound for each attribute, such as {{'lat': 0.001, 'lon': '1 %'}}, "
            f"got {within!r:.60}"
        )
        raise OptionError(msg, within=repr(within))
    return {
        checked_text("attribute in within", name): Bound.of(name, bound)
        for name, bound in within.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How segments are found.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    method: str = "auto"
    """``constant``: ranges of values. ``swing``: lines from a row, with the least state.
    ``connected``: the same, each from the end of the one before, without jumps. ``linear``: lines,
    the fewest that are possible. ``polynomial``: of ``degree``. ``auto``: for each run of
    rows without a gap the one of constants, lines and polynomials up to ``degree`` that stores the
    fewest numbers for its first rows."""
    degree: int = 2
    """The degree of ``polynomial``, and the highest that ``auto`` tries ([0, 4])."""
    max_gap_us: int | None = None
    """A longer time between two rows of an entity ends a segment, and no model is in it (µs; ≥ 1);
    None: there are no gaps."""
    prefix_rows: int = 1024
    """Instants of a run by which ``auto`` judges (≥ 16)."""
    rounding: float = 0.25
    """What share of the room between a segment's error and its bound the rounding of coefficients
    may take, so that they have few digits and are stored in few bytes ([0, 1]). 0: they stay as
    they are fitted. Segments of ``connected`` are never rounded: there would be jumps."""

    def __post_init__(self) -> None:
        is_one_of(self, "method", METHODS)
        in_range(self, "degree", 0, MAX_DEGREE)
        in_range(self, "prefix_rows", 16, 1 << 16)
        in_range(self, "rounding", 0.0, 1.0)
        if self.max_gap_us is not None:
            in_range(self, "max_gap_us", 1, 2**63 - 1)

    @property
    def n_coefs(self) -> int:
        """Coefficients that are stored of each attribute."""
        by_method = {"constant": 1, "swing": 2, "connected": 2, "linear": 2}
        return by_method.get(self.method, self.degree + 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


# -- lengths of time ------------------------------------------------------------------------------


def read_length(name: str, length: Any) -> int:
    """Return a length of time (µs) that is given as an interval, a timedelta, or seconds.

    Args:
        name: of the argument, for the error.
        length: such as ``"10 minutes"``, ``timedelta(minutes=10)`` or ``600``.

    Raises:
        OptionError: it is something else, less than a microsecond, or longer than ``MAX_SPAN``.
    """
    if isinstance(length, str):
        micros = micros_in(length)
    else:
        seconds = length.total_seconds() if hasattr(length, "total_seconds") else length
        is_length = _is_number(seconds) and 0 < seconds < inf
        micros = round(min(seconds, MAX_SPAN) * 1_000_000) if is_length else None
    check_span(f"{name} {length!r:.60}", micros, got=repr(length))
    if micros is None or micros < 1:
        msg = f"{name} is an interval such as '10 minutes', or seconds above 0; got {length!r:.60}"
        raise OptionError(msg, got=repr(length))
    return micros


# -- ranges of values that a user gives -----------------------------------------------------------


_SLOPE = re.compile(r"\s*d\s*\(\s*(.*?)\s*\)\s*", re.IGNORECASE)


def read_ranges(ranges: Any, *, by_pace: bool = False) -> dict[str, Range]:
    """Return the ranges of attributes.

    Args:
        ranges: for attributes their least and greatest values, and by ``d(x)`` those of the change
            of x per second.
        by_pace: whether it has to be known of each how fast it changes.

    Raises:
        OptionError: they are not given by name, or one is no range.
    """
    if not isinstance(ranges, Mapping):
        msg = (
            f"ranges has two ends for each attribute, such as {{'x': (0, 100)}}, got {ranges!r:.60}"
        )
        raise OptionError(msg, ranges=repr(ranges))
    values: dict[str, Range] = {}
    paces: dict[str, float] = {}
    for text, ends in ranges.items():
        low, high = _ends(checked_text("attribute in ranges", text), ends)
        if slope := _SLOPE.fullmatch(text):
            paces[slope[1]] = max(abs(low), abs(high))
        else:
            values[text] = Range(low, high)
    missing = [name for name in paces if name not in values]
    if by_pace and not missing:
        missing = [f"d({name})" for name in values if name not in paces]
    if missing:
        msg = (
            f"ranges lacks that of {missing[0]!r}: for split='gradient' it has those of values and "
            "of their change per second, such as {'x': (0, 100), 'd(x)': (-3, 3)}"
        )
        raise OptionError(msg, attribute=missing[0])
    return {name: span._replace(pace=paces.get(name, math.nan)) for name, span in values.items()}


def _ends(name: str, pair: Any) -> tuple[float, float]:
    is_pair = isinstance(pair, list | tuple) and len(pair) == 2
    ends = [end for end in pair if _is_number(end) and math.isfinite(end)] if is_pair else []
    if len(ends) != 2 or ends[0] > ends[1]:
        msg = (
            f"ranges[{name!r}] is the least and the greatest value, two finite numbers such as "
            f"(0, 100); got {pair!r:.60}"
        )
        raise OptionError(msg, attribute=name, got=repr(pair))
    return float(ends[0]), float(ends[1])


def common_range(one: Range, other: Range, name: str) -> Range:
    """Return what two ranges that are said of an attribute say together.

    Raises:
        OptionError: no value is in both.
    """
    low, high = max(one.low, other.low), min(one.high, other.high)
    if low > high:
        msg = (
            f"{name!r} is said to be {range_in_words(name, one)}, and "
            f"{range_in_words(name, other)}; say one of them"
        )
        raise OptionError(msg, attribute=name)
    return Range(low, high, float(np.fmin(one.pace, other.pace)))


def range_in_words(name: str, span: Range) -> str:
    """Return a range in words."""
    return f"{name} from {span.low:g} to {span.high:g}"


def assumed_in_words(assumed: Mapping[str, Range]) -> str:
    """Return what is assumed as the end of a sentence; nothing if nothing is."""
    phrase = ", ".join(range_in_words(name, span) for name, span in assumed.items())
    return f"; {phrase} is assumed" if phrase else ""


def n_outside(rows: pa.Table, assumed: Mapping[str, Range]) -> int:
    """Return how many rows have a value outside of its range.

    Args:
        rows: with a column for each attribute: its value, or a list that begins with it.
        assumed: the ranges.
    """
    is_outside = np.zeros(len(rows), np.bool_)
    for name, span in assumed.items():
        column = rows.column(name)
        if pt.is_list(column.type):
            lists = list_matrix(column)
            values = np.where(np.isfinite(lists).all(axis=1), lists[:, 0], np.nan)
        else:
            values = values_of(rows, [name])[name]
        is_outside |= np.isfinite(values) & ((values < span.low) | (values > span.high))
    return int(is_outside.sum())


# -- bounds of results, taken back to inputs ------------------------------------------------------


SHRUNK = 1 - 2.0**-44
"""What is left of bounds, so that rounding does not take them beyond what they were."""

NEEDS = "ranges"
"""The fact of an error that says of which attribute the range of values is missing."""


def as_distance(name: str, bound: Bound, ranges: Ranges) -> float:
    """Return a bound as a distance.

    A model at m that is off by no more than ``share |m| / (1 + share)`` is off by no more than the
    share of the row's value, which is then at least ``|m| / (1 + share)``; so is one of a row.

    Raises:
        OptionError: it is a share, and values may be 0 or are not known.
    """
    if not bound.is_relative:
        return bound.value
    if name not in ranges:
        msg = (
            f"{bound} of {name!r} cannot be met by bounds of its inputs: terms of it may cancel, "
            "and its range is not known; give a distance, such as 0.5"
        )
        raise OptionError(msg, attribute=name, bound=str(bound), **{NEEDS: name})
    least = ranges[name].nearest
    if least == 0:
        low, high = ranges[name][:2]
        msg = (
            f"{bound} of {name!r} cannot be met by bounds of its inputs: terms of it may cancel, "
            f"and from {low:g} to {high:g} it may be 0, of which no share is a distance; give a "
            "distance, such as 0.5"
        )
        raise OptionError(msg, attribute=name, bound=str(bound))
    return least * bound.value / (1 + bound.value) * SHRUNK


def inverted_extreme(name: str, bound: Bound, ranges: Ranges) -> Bound:
    """Return the bound of what an extreme is taken of.

    ``x ± share |x|`` rises with x for shares up to 1: so extremes keep shares.
    """
    keeps = not bound.is_relative or bound.value <= 1
    return bound if keeps else Bound(as_distance(name, bound, ranges))


def inverted_integral(
    name: str, bound: Bound, below: Ranges, above: Ranges, seconds: float
) -> Bound:
    """Return the bound of what is averaged, or summed over seconds.

    Shares go through where values have one sign: then nothing cancels.
    """
    if bound.is_relative and name in below and below[name].has_one_sign:
        return bound
    amount = as_distance(name, bound, above)
    return Bound(amount if seconds == 1 else amount / seconds * SHRUNK)


def inverted_total(name: str, bound: Bound, ranges: Ranges) -> Bound:
    """Return the bound of what is summed over entities, of which nobody knows how many there are.

    Shares go through where values have one sign: then nothing cancels.

    Raises:
        OptionError: it is no share, or values may have both signs or are not known.
    """
    if bound.is_relative and name in ranges and ranges[name].has_one_sign:
        return bound
    msg = (
        f"{bound} of {name!r} cannot be met by bounds of its inputs: it is a sum over entities, "
        "which is off by as much as all of them together, and how many there are is not known; "
        "ask for its average, or, of values of one sign, for a share such as 1 %"
    )
    facts = {NEEDS: name} if bound.is_relative and name not in ranges else {}
    raise OptionError(msg, attribute=name, bound=str(bound), **facts)


def inverted_expression(
    expression: Expression, name: str, bound: Bound, ranges: Ranges, *, split: Split = EQUAL
) -> dict[str, Bound]:
    """Return the bounds of the attributes that an expression reads.

    Args:
        expression: what is computed.
        name: what it is called.
        bound: how far it may be off.
        ranges: the ranges of its attributes, as far as they are known.
        split: how attributes share it.

    Raises:
        OptionError: no bounds of its attributes are enough, with what is missing.
    """
    if any(isinstance(part, Slope) for part in walk(expression)):
        msg = (
            f"{name!r} has d(), and no bound of values bounds how fast they change: leave it out "
            "of within, or of what is selected"
        )
        raise OptionError(msg, attribute=name)
    degree = _uncancelled(expression, ranges)
    names = sorted(names_in(expression))
    if bound.is_relative and degree is not None:
        if degree == 0:
            return {}
        share = bound.value if degree == 1 else np.expm1(np.log1p(bound.value) / degree) * SHRUNK
        return dict.fromkeys(names, Bound(float(share), is_relative=True))
    span = range_of(expression, ranges)
    amount = as_distance(name, bound, {} if span is None else {name: span})
    weights = weights_of(expression)
    missing = [attribute for attribute in names if attribute not in ranges]
    if missing and (weights is None or split.needs_pace):
        msg = (
            f"{name!r} multiplies attributes: how near {missing[0]!r} has to be depends on how "
            f"large it is, which is not known here; give the bound of {missing[0]!r} itself"
        )
        raise OptionError(msg, attribute=name, **{NEEDS: missing[0]})

    def reach(part: Expression) -> float:
        part_span = range_of(part, ranges)
        return inf if part_span is None else part_span.farthest

    shares = None
    if split != EQUAL and names:
        factors = dict.fromkeys(names, 1.0) if weights is None else weights
        paces = {
            attribute: ranges[attribute].pace if attribute in ranges else math.nan
            for attribute in names
        }
        shares = split.of(
            {
                attribute: Part(attribute, abs(factors[attribute]), paces[attribute])
                for attribute in names
            }
        )
    distances = spread(expression, amount, reach, shares)
    return {attribute: Bound(far) for attribute, far in distances.items() if math.isfinite(far)}


def tightest(bounds: Bounds, others: Bounds, ranges: Ranges) -> dict[str, Bound]:
    """Return the lesser of the bounds of each attribute; errors as of ``tighter``."""
    lesser = {**bounds}
    for name, bound in others.items():
        lesser[name] = tighter(name, lesser.get(name, bound), bound, ranges)
    return lesser


def tighter(name: str, one: Bound, other: Bound, ranges: Ranges) -> Bound:
    """Return the lesser of two bounds of an attribute.

    Raises:
        OptionError: one is a share and the other a distance, and values are not known.
    """
    both = [one, other]
    if one.is_relative != other.is_relative:
        both = [Bound(as_distance(name, bound, ranges)) for bound in both]
    return min(both, key=lambda bound: bound.value)


def _uncancelled(expression: Expression, spans: Ranges) -> int | None:
    """Return the degree of a sum of products of one sign, None if terms may cancel.

    If each attribute is off by a share, such an expression is off by that share for each factor.
    """
    degree: int | None = None
    match expression:
        case Number():
            degree = 0
        case Attribute():
            degree = 1
        case Product(left, right):
            one, other = _uncancelled(left, spans), _uncancelled(right, spans)
            degree = None if one is None or other is None else one + other
        case Power(part, exponent):
            one = _uncancelled(part, spans)
            degree = None if one is None else one * exponent
        case Sum(left, right):
            one, other = _uncancelled(left, spans), _uncancelled(right, spans)
            ranges = range_of(left, spans), range_of(right, spans)
            if one is not None and other is not None and _have_one_sign(*ranges):
                degree = max(one, other)
    return degree


def _have_one_sign(one: Range | None, other: Range | None) -> bool:
    if one is None or other is None:
        return False
    return min(one.low, other.low) >= 0 or max(one.high, other.high) <= 0


# -- splits of an error ---------------------------------------------------------------------------


_STEPS = 30
"""Newton's steps from above to where an error that grows like a polynomial is the whole."""


def spread(
    expression: Expression,
    amount: float,
    reach: Reach,
    shares: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return how far each attribute may be off, so that an expression of them is off by no more.

    Args:
        expression: without ``Absolute`` and ``Root``.
        amount: how far the expression may be off, 0 or more.
        reach: the greatest values of its parts, of models or of rows; only products need them.
        shares: for each attribute its part of the amount, 1 together; None is equal ones.

    Returns:
        For each attribute its bound, infinite where it changes nothing.

    Raises:
        NotSupportedError: it has a slope, which no distance of values bounds.
    """
    if isinstance(expression, Attribute):
        return {expression.name: amount}
    names = sorted(names_in(expression))

    def raised(part: Expression) -> float:
        return reach(part) + bool(names_in(part))

    # Beside a factor that is 0 an attribute matters as soon as that one is off.
    matters = [name for name in names if _growth(expression, raised, {name: 1.0}).any()]
    ways = {}
    for name in matters:
        alone = _growth(expression, reach, {name: 1.0})
        share = 1 / len(matters) if shares is None else shares[name]
        ways[name] = share / (alone[1] if len(alone) > 1 and alone[1] > 0 else 1.0)
    scale = _largest(_growth(expression, reach, ways), amount)
    return {name: float(scale * ways[name]) if name in ways else inf for name in names}


@dataclass(frozen=True, slots=True)
class _Affine:
    """A weighted sum of attributes and a constant."""

    weights: Mapping[str, float] | None
    """The factor of each attribute; None: it is no weighted sum."""
    constant: float = 0.0

    @classmethod
    def number(cls, value: float) -> _Affine:
        return cls({}, value)

    def slope(self) -> _Affine:
        return _Affine(None)

    def __add__(self, other: _Affine) -> _Affine:
        if self.weights is None or other.weights is None:
            return _Affine(None)
        summed = {**self.weights}
        for name, weight in other.weights.items():
            summed[name] = summed.get(name, 0.0) + weight
        return _Affine(summed, self.constant + other.constant)

    def __mul__(self, other: _Affine) -> _Affine:
        if self.weights is None or other.weights is None or (self.weights and other.weights):
            return _Affine(None)
        factor, affine = (other.constant, self) if self.weights else (self.constant, other)
        scaled = {name: factor * weight for name, weight in (affine.weights or {}).items()}
        return _Affine(scaled, factor * affine.constant)


def weights_of(expression: Expression) -> Mapping[str, float] | None:
    """Return the factor of each attribute in a weighted sum, None if an expression is none."""
    attributes = {name: _Affine({name: 1.0}) for name in names_in(expression)}
    return computed(expression, attributes, _Affine.number, _Affine.slope).weights


def _growth(expression: Expression, reach: Reach, ways: Mapping[str, float]) -> Floats:
    """Return the error of an expression as a polynomial of s if attributes err by ``s * way``."""
    match expression:
        case Attribute(name) if name in ways:
            return np.array([0.0, ways[name]])
        case Sum(left, right):
            both = polyadd(_growth(left, reach, ways), _growth(right, reach, ways))
            return np.asarray(both, np.float64)
        case Product(left, right):
            return _growth_of_product(left, right, reach, ways)
        case Power(part, 1):
            return _growth(part, reach, ways)
        case Power(part, exponent) if exponent:
            return _growth_of_product(part, Power(part, exponent - 1), reach, ways)
        case Number() | Attribute() | Power():
            return np.zeros(1)
    msg = "no distance of values bounds that of slopes: no output with a bound has d()"
    raise NotSupportedError(msg)


def _growth_of_product(
    left: Expression, right: Expression, reach: Reach, ways: Mapping[str, float]
) -> Floats:
    one, other = (_growth(part, reach, ways) for part in (left, right))
    total = polymul(one, other)
    for factor, growth in ((right, one), (left, other)):
        moves = growth != 0  # beside what has no error a reach may be infinite
        if moves.any():
            moved = np.zeros(len(growth))
            moved[moves] = reach(factor) * growth[moves]
            total = polyadd(total, moved)
    return np.asarray(total, np.float64)


def _largest(growth: Floats, amount: float) -> float:
    """Return the largest s, not quite, at which a growing error is no more than an amount."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        alone = (amount / growth[1:]) ** (1 / np.arange(1, len(growth)))
        scale = np.fmin.reduce(alone, initial=inf)
        for _ in range(_STEPS if len(growth) > 2 else 0):
            step = (polyval(scale, growth) - amount) / polyval(scale, polyder(growth))
            if not 0 < step < inf:
                break
            scale -= step
        # The error is convex in s and 0 at 0: a part of s has at most that part of the error.
        error = polyval(scale, growth)
        scale *= amount / error if error > amount else 1.0
    return float(scale) * SHRUNK if amount > 0 and np.isfinite(scale) else 0.0


# -- gains of what is linear ----------------------------------------------------------------------


def combined_gains(weights: Mapping[str, float], below: Mapping[str, Kernel]) -> Kernel:
    """Return the kernel of a weighted sum."""
    kernel: Kernel = {}
    for name, weight in weights.items():
        for path, chains in below[name].items():
            into = kernel.setdefault(path, {})
            for chain, part in chains.items():
                into[chain] = into.get(chain, 0.0) + weight * part
    return kernel


def gains_of_averages(kernel: Kernel, width_us: int, factor: float, *, is_covered: bool) -> Kernel:
    """Return the kernel of averages over a window, times a factor."""
    window = (width_us, is_covered)
    return {
        path: {tuple(sorted((*chain, window))): factor * part for chain, part in chains.items()}
        for path, chains in kernel.items()
    }


def gains_of_side(kernel: Kernel, side: int) -> Kernel:
    """Return the kernel of one side of pairs: its input is not that of the other."""
    return {((side, *path), place, name): chains for (path, place, name), chains in kernel.items()}


def gains(kernel: Kernel) -> dict[tuple[int, str], float]:
    """Return by how much an output moves at most, if an attribute of an input does by 1."""
    totals: dict[tuple[int, str], float] = {}
    for (_, place, name), chains in kernel.items():
        totals[place, name] = totals.get((place, name), 0.0) + _norm(chains)
    return totals


def _norm(chains: Mapping[Chain, float]) -> float:
    """Return the integral of the absolute value of a sum of averages' weights.

    Single windows are steps that add up where they overlap. Windows of windows, and those that
    count in part, are taken each alone, which is never less.
    """
    boxes, total = [], 0.0
    for chain, part in chains.items():
        if len(chain) == 1 and not chain[0][1]:
            boxes.append((chain[0][0], part))
        else:
            total += abs(part)
    edges = sorted({0, *(width for width, _ in boxes)})
    for start, stop in itertools.pairwise(edges):
        height = sum(part / width for width, part in boxes if width >= stop)
        total += abs(height) * (stop - start)
    return total

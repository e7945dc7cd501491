"""Bounds of what is computed, taken back to what it is computed of, one step at a time.

If inputs are within theirs at every instant, what is computed of them is within its own. A share of
a value (``1 %``) goes through where nothing cancels; elsewhere bounds become distances, for which
the ranges of values have to be known: an output that may be 0 has no such bound, and is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import OptionError
from eddyline.models.bounds import Bound
from eddyline.models.expressions import (
    Attribute,
    Expression,
    Number,
    Power,
    Product,
    Slope,
    Sum,
    names_in,
    walk,
)
from eddyline.models.ranges import Range, range_of
from eddyline.models.splits import shares_of, spread, weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats
    from eddyline.models.ranges import Ranges

    Bounds = Mapping[str, Bound]
    """A bound for each attribute that has one."""

SHRUNK = 1 - 2.0**-44
"""What is left of bounds, so that rounding does not take them beyond what they were."""

NEEDS = "ranges"
"""The fact of an error that says of which attribute the range of values is missing."""


def distance(name: str, bound: Bound, known: Ranges) -> float:
    """Return a bound as a distance.

    A model at m that is off by no more than ``share |m| / (1 + share)`` is off by no more than the
    share of the row's value, which is then at least ``|m| / (1 + share)``; so is one of a row.

    Raises:
        OptionError: it is a share, and values may be 0 or are not known.
    """
    if not bound.is_relative:
        return bound.value
    if name not in known:
        msg = (
            f"{bound} of {name!r} cannot be met by bounds of its inputs: terms of it may cancel, "
            "and its range is not known; give a distance, such as 0.5"
        )
        raise OptionError(msg, attribute=name, bound=str(bound), **{NEEDS: name})
    least = known[name].nearest
    if least == 0:
        low, high = known[name][:2]
        msg = (
            f"{bound} of {name!r} cannot be met by bounds of its inputs: terms of it may cancel, "
            f"and from {low:g} to {high:g} it may be 0, of which no share is a distance; give a "
            "distance, such as 0.5"
        )
        raise OptionError(msg, attribute=name, bound=str(bound))
    return least * bound.value / (1 + bound.value) * SHRUNK


def of_extreme(name: str, bound: Bound, known: Ranges) -> Bound:
    """Return the bound of what an extreme is taken of.

    ``x ± share |x|`` rises with x for shares up to 1: so extremes keep shares.
    """
    keeps = not bound.is_relative or bound.value <= 1
    return bound if keeps else Bound(distance(name, bound, known))


def of_integral(name: str, bound: Bound, below: Ranges, above: Ranges, seconds: float) -> Bound:
    """Return the bound of what is averaged, or summed over seconds.

    Shares go through where values have one sign: then nothing cancels.
    """
    if bound.is_relative and name in below and below[name].has_one_sign:
        return bound
    amount = distance(name, bound, above)
    return Bound(amount if seconds == 1 else amount / seconds * SHRUNK)


def of_total(name: str, bound: Bound, known: Ranges) -> Bound:
    """Return the bound of what is summed over entities, of which nobody knows how many there are.

    Shares go through where values have one sign: then nothing cancels.

    Raises:
        OptionError: it is no share, or values may have both signs or are not known.
    """
    if bound.is_relative and name in known and known[name].has_one_sign:
        return bound
    msg = (
        f"{bound} of {name!r} cannot be met by bounds of its inputs: it is a sum over entities, "
        "which is off by as much as all of them together, and how many there are is not known; "
        "ask for its average, or, of values of one sign, for a share such as 1 %"
    )
    facts = {NEEDS: name} if bound.is_relative and name not in known else {}
    raise OptionError(msg, attribute=name, bound=str(bound), **facts)


def of_expression(
    expression: Expression, name: str, bound: Bound, known: Ranges, *, by_pace: bool = False
) -> dict[str, Bound]:
    """Return the bounds of the attributes that an expression reads.

    Args:
        expression: what is computed.
        name: what it is called.
        bound: how far it may be off.
        known: the ranges of its attributes, as far as they are known.
        by_pace: whether shares are as attributes move, and not equal.

    Raises:
        OptionError: no bounds of its attributes are enough, with what is missing.
    """
    if any(isinstance(part, Slope) for part in walk(expression)):
        msg = (
            f"{name!r} has d(), and no bound of values bounds how fast they change: leave it out "
            "of within, or of what is selected"
        )
        raise OptionError(msg, attribute=name)
    degree = _uncancelled(expression, known)
    names = sorted(names_in(expression))
    if bound.is_relative and degree is not None:
        if degree == 0:
            return {}
        share = bound.value if degree == 1 else np.expm1(np.log1p(bound.value) / degree) * SHRUNK
        return dict.fromkeys(names, Bound(float(share), is_relative=True))
    own = range_of(expression, known)
    amount = distance(name, bound, {} if own is None else {name: own})
    weights = weights_of(expression)
    missing = [each for each in names if each not in known]
    if missing and (weights is None or by_pace):
        msg = (
            f"{name!r} multiplies attributes: how near {missing[0]!r} has to be depends on how "
            f"large it is, which is not known here; give the bound of {missing[0]!r} itself"
        )
        raise OptionError(msg, attribute=name, **{NEEDS: missing[0]})

    def reach(part: Expression) -> Floats:
        found = range_of(part, known)
        return np.full(1, np.inf if found is None else found.farthest)

    shares = None
    if by_pace and names:
        factors = dict.fromkeys(names, 1.0) if weights is None else weights
        paces = {each: abs(factors[each]) * known[each].pace for each in names}
        shares = {each: np.array([share]) for each, share in shares_of(paces).items()}
    found = spread(expression, np.array([amount]), reach, shares)
    return {each: Bound(float(far[0])) for each, far in found.items() if np.isfinite(far[0])}


def tighter(name: str, one: Bound, other: Bound, known: Ranges) -> Bound:
    """Return the lesser of two bounds of an attribute.

    Raises:
        OptionError: one is a share and the other a distance, and values are not known.
    """
    both = [one, other]
    if one.is_relative != other.is_relative:
        both = [Bound(distance(name, each, known)) for each in both]
    return min(both, key=lambda each: each.value)


def _uncancelled(expression: Expression, known: Ranges) -> int | None:
    """Return the degree of a sum of products of one sign, None if terms may cancel.

    If each attribute is off by a share, such an expression is off by that share for each factor.
    """
    found: int | None = None
    match expression:
        case Number():
            found = 0
        case Attribute():
            found = 1
        case Product(left, right):
            one, other = _uncancelled(left, known), _uncancelled(right, known)
            found = None if one is None or other is None else one + other
        case Power(part, exponent):
            one = _uncancelled(part, known)
            found = None if one is None else one * exponent
        case Sum(left, right):
            one, other = _uncancelled(left, known), _uncancelled(right, known)
            ranges = range_of(left, known), range_of(right, known)
            if one is not None and other is not None and _have_one_sign(*ranges):
                found = max(one, other)
    return found


def _have_one_sign(one: Range | None, other: Range | None) -> bool:
    if one is None or other is None:
        return False
    return min(one.low, other.low) >= 0 or max(one.high, other.high) <= 0

"""How near models have to be to rows, for the outputs of a query to be as near as is asked.

``WITHIN`` on outputs becomes a bound for each attribute of each source (Pulse 3.12). What it says
is a theorem: if every input is within its bound at every instant, every output is within its own.

An output that is linear in its inputs is a weighted integral of them, and takes the whole plan at
once: MACD ± 0.5 asks for a price within 0.3. Others go back step by step, with equal shares at
each: averages and extremes keep a bound, sums divide it by the width, products look at how large
their factors are. A share of a value (``1 %``) goes through where nothing cancels, and elsewhere
only with the ranges of values: an output that may be 0 has no such bound, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import OptionError
from eddyline.models import polynomials
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
from eddyline.models.plans import (
    Aggregated,
    Distance,
    Mapped,
    Paired,
    Plan,
    Selected,
    Source,
    aggregated,
    gains,
    kernels,
    nearest,
    range_of,
    ranges_of,
)
from eddyline.models.segments import MICROS, in_seconds
from eddyline.models.solving import begun
from eddyline.models.splits import spread, weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats
    from eddyline.models.plans import Kernel, Range, Ranges
    from eddyline.models.segments import Segments

    Values = Mapping[str, Mapping[str, Range]]
    """For each source the ranges of its attributes' values."""
    Found = dict[tuple[str, str], Bound]
    """The bound of each attribute of each source."""

_SHRUNK = 1 - 2.0**-44


@dataclass(frozen=True, slots=True)
class Precision:
    """Bounds of inputs, and for which values they are enough.

    Attributes:
        bounds: for each source the bounds of its attributes; what no output needs is left out.
        values: the ranges in which values have to be, empty if they may be any.
    """

    bounds: Mapping[str, Mapping[str, Bound]]
    values: Values = field(default_factory=dict)

    def covers(self, now: Values) -> bool:
        """Return whether bounds are enough for values in other ranges."""
        return all(
            name in now.get(source, {})
            and low <= now[source][name][0]
            and now[source][name][1] <= high
            for source, ranges in self.values.items()
            for name, (low, high) in ranges.items()
        )


def inverted(
    plan: Plan,
    within: Mapping[str, Bound],
    values: Values | None = None,
    *,
    by_steps: bool = False,
) -> Precision:
    """Return how near sources have to be, so that outputs are within their bounds.

    Args:
        plan: what computes the outputs.
        within: the bounds of outputs.
        values: for each source the ranges of attributes, of models and of rows; they are looked at
            only if no bounds are enough for all values.
        by_steps: whether linear outputs are split at each step, too; their bounds are then less.

    Raises:
        OptionError: an output is unknown, or no bounds of inputs are enough, with what is missing.

    Example:
        >>> highest = Aggregated(Source("trades", ("price",)), "max", 10_000_000)
        >>> inverted(highest, {"price": Bound.of("price", "1 %")}).bounds
        {'trades': {'price': Bound(value=0.01, is_relative=True)}}
    """
    known = names_of(plan)
    for name in within:
        if name not in known:
            msg = (
                f"within has a bound of {name!r}, which is no output; there are {', '.join(known)}"
            )
            raise OptionError(msg, attribute=name)
    try:
        found = _Inverter({}, by_steps=by_steps).outputs(plan, within)
    except OptionError:
        if not values:
            raise
        found = _Inverter(values, by_steps=by_steps).outputs(plan, within)
        return Precision(_by_source(found), values)
    return Precision(_by_source(found))


def resplit(
    plan: Plan,
    within: Mapping[str, Bound],
    now: Values,
    before: Precision | None = None,
    headroom: float = 0.25,
) -> Precision:
    """Return bounds for the values there are now: those from before, while they are good.

    New ones are for ranges that are wider, so that they last while data move. They are made when
    values leave these, and when values have come so near together that less would do.

    Args:
        plan: what computes the outputs.
        within: the bounds of outputs.
        now: the ranges of values.
        before: what was found for earlier values.
        headroom: how much wider ranges are, as a share of their ends, more than 0.

    Raises:
        OptionError: as ``inverted``.
    """
    wider = _widened(now, headroom)
    if (
        before is not None
        and before.covers(now)
        and _is_in(before.values, _widened(wider, headroom))
    ):
        return before
    return inverted(plan, within, wider)


def values_of(segments: Segments) -> Ranges:
    """Return the ranges of attributes' values, of models and of the rows that they stand for."""
    alive = segments.take(~segments.is_tombstone)
    length = in_seconds(alive.hi - alive.lo)
    found: Ranges = {}
    for name, each in begun(alive, alive.coefs).items():
        low, high = polynomials.extremes(each.coefs, length)
        low, high = low - alive.errors[name], high + alive.errors[name]
        known = ~np.isnan(low)
        if known.any():
            found[name] = (float(low[known].min()), float(high[known].max()))
    return found


def names_of(plan: Plan) -> list[str]:
    """Return the attributes that a plan gives."""
    match plan:
        case Source(_, names):
            return [*names]
        case Mapped(_, columns):
            return [*columns]
        case Paired():
            return [f"{side}.{name}" for side, part in plan.sides for name in names_of(part)]
        case Distance():
            return ["distance"]
        case _:
            return names_of(plan.part)


class _Inverter:
    """Takes bounds of outputs back to sources, for values in some ranges."""

    def __init__(self, values: Values, *, by_steps: bool) -> None:
        self._values = values
        self._by_steps = by_steps

    def outputs(self, plan: Plan, within: Mapping[str, Bound]) -> Found:
        """Return bounds of sources for those of outputs: by kernels where there are some."""
        linear = {} if self._by_steps else kernels(plan)
        found: Found = {}
        for name, bound in within.items():
            whole = self._through(linear.get(name), bound)
            each = self._back(plan, {name: bound}) if whole is None else whole
            self._keep(found, each)
        return found

    def _through(self, kernel: Kernel | None, bound: Bound) -> Found | None:
        """Return bounds by the kernel of an output, None if there is none, or it is of no use."""
        if kernel is None or bound.is_relative:
            return None
        parts = {key: gain for key, gain in gains(kernel).items() if gain > 0}
        shrunk = _SHRUNK if any(gain != 1 for gain in parts.values()) else 1.0
        return {
            key: Bound(bound.value / (len(parts) * gain) * shrunk) for key, gain in parts.items()
        }

    def _back(self, plan: Plan, within: Mapping[str, Bound]) -> Found:
        """Return bounds of sources for those of a plan's attributes, a step at a time."""
        found: Found = {}
        if not within:
            return found
        match plan:
            case Source(name):
                found = {(name, attribute): bound for attribute, bound in within.items()}
            case Selected(part):
                found = self._back(part, within)
            case Aggregated(part):
                known = ranges_of(part, self._values)
                aggregated = {
                    name: _of_aggregate(plan, name, each, known) for name, each in within.items()
                }
                found = self._back(part, aggregated)
            case Mapped(part, columns):
                known = ranges_of(part, self._values)
                for name, bound in within.items():
                    read = _of_expression(columns[name], name, bound, known)
                    self._keep(found, self._back(part, read))
            case Distance(part, axes):
                far = _absolute("distance", within["distance"], ranges_of(plan, self._values)).value
                near = Bound(far / (2 * len(axes) ** 0.5) * _SHRUNK)
                found = self._back(part, {name: near for axis in axes for name in axis})
            case Paired():
                for side, part in plan.sides:
                    start = f"{side}."
                    own = {
                        name.removeprefix(start): bound
                        for name, bound in within.items()
                        if name.startswith(start)
                    }
                    self._keep(found, self._back(part, own))
        return found

    def _keep(self, found: Found, more: Found) -> None:
        """Take the lesser bound of each attribute."""
        for (source, name), bound in more.items():
            known = {**self._values.get(source, {})}
            both = [found.get((source, name), bound), bound]
            if both[0].is_relative != bound.is_relative:
                both = [_absolute(name, each, known) for each in both]
            found[source, name] = min(both, key=lambda each: each.value)


def _of_aggregate(plan: Aggregated, name: str, bound: Bound, known: Ranges) -> Bound:
    """Return the bound of what is aggregated.

    A function ``x ± share |x|`` rises with x for shares up to 1: so extremes keep shares. Averages
    and sums do where values have one sign: then nothing cancels.
    """
    is_extreme = plan.function in {"min", "max"}
    keeps = bound.value <= 1 if is_extreme else _have_one_sign(known.get(name), known.get(name))
    if bound.is_relative and keeps:
        return bound
    amount = _absolute(name, bound, aggregated(plan, known)).value
    seconds = plan.width_us * MICROS if plan.function == "sum" else 1.0
    return Bound(amount / seconds * (_SHRUNK if seconds != 1 else 1.0))


def _of_expression(
    expression: Expression, name: str, bound: Bound, known: Ranges
) -> dict[str, Bound]:
    """Return the bounds of the attributes that an expression reads."""
    if any(isinstance(part, Slope) for part in walk(expression)):
        msg = f"{name!r} has d(): no bound of values bounds how fast they change; leave it out"
        raise OptionError(msg, attribute=name)
    degree = _uncancelled(expression, known)
    if bound.is_relative and degree is not None:
        if degree == 0:
            return {}
        share = bound.value if degree == 1 else np.expm1(np.log1p(bound.value) / degree) * _SHRUNK
        return dict.fromkeys(sorted(names_in(expression)), Bound(float(share), is_relative=True))
    amount = _absolute(name, bound, _range_as(name, range_of(expression, known))).value
    if weights_of(expression) is None:
        for each in sorted(names_in(expression)):
            if each not in known:
                msg = (
                    f"{name!r} multiplies attributes: how near {each!r} has to be depends on how "
                    "large it is; give the ranges of values"
                )
                raise OptionError(msg, attribute=name)

    def reach(part: Expression) -> Floats:
        found = range_of(part, known)
        return np.full(1, np.inf if found is None else max(abs(found[0]), abs(found[1])))

    found = spread(expression, np.array([amount]), reach)
    return {each: Bound(float(far[0])) for each, far in found.items() if np.isfinite(far[0])}


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
    return min(one[0], other[0]) >= 0 or max(one[1], other[1]) <= 0


def _absolute(name: str, bound: Bound, known: Ranges) -> Bound:
    """Return a bound as a distance.

    A model at m that is off by no more than ``share |m| / (1 + share)`` is off by no more than the
    share of the row's value, which is then at least ``|m| / (1 + share)``; so is one of a row.
    """
    if not bound.is_relative:
        return bound
    least = nearest(known[name]) if name in known else 0.0
    if least == 0:
        why = "may be 0 there, and no share of 0 is a distance" if name in known else "is not known"
        msg = (
            f"{bound} of {name!r} cannot be met by bounds of its inputs: terms of it may cancel, "
            f"and its range {why}; give a distance, such as 0.5, or ranges of values"
        )
        raise OptionError(msg, attribute=name, bound=str(bound))
    return Bound(least * bound.value / (1 + bound.value) * _SHRUNK)


def _range_as(name: str, found: Range | None) -> Ranges:
    return {} if found is None else {name: found}


def _by_source(found: Found) -> dict[str, dict[str, Bound]]:
    made: dict[str, dict[str, Bound]] = {}
    for (source, name), bound in found.items():
        made.setdefault(source, {})[name] = bound
    return made


def _widened(values: Values, by: float) -> dict[str, dict[str, Range]]:
    """Return wider ranges; none of them comes to have 0 in it."""
    more, less = 1 + by, 1 / (1 + by)
    return {
        source: {
            name: (low * (less if low > 0 else more), high * (more if high > 0 else less))
            for name, (low, high) in ranges.items()
        }
        for source, ranges in values.items()
    }


def _is_in(inner: Values, outer: Values) -> bool:
    return all(
        outer[source][name][0] <= low and high <= outer[source][name][1]
        for source, ranges in inner.items()
        for name, (low, high) in ranges.items()
    )

"""How far a predicate is from being true, and how near rows have to be while it is not.

Where a predicate has no solution, no output says how precise its inputs have to be. But it stays
without one as long as none of its comparisons moves by as much as it is violated (Pulse 3.12):
``x < 5`` at x = 7 is violated by 2. As printed there comparisons that are satisfied count too, and
hide what is near; here AND is violated by its worst part and OR by its best. And slack is a
function of time: next to a solution there is none, but farther away there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials
from eddyline.models.conditions import And, Comparison, attributes, comparisons, holds
from eddyline.models.expressions import Expression, names_in, terms_of
from eddyline.models.segments import MICROS, in_seconds
from eddyline.models.solving import begun, cuts
from eddyline.models.splits import reach_on, spread, weights_of
from eddyline.models.tolerances import check_rows_have, is_solvable, rounding_of, without_values
from eddyline.models.validation import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.bounds import Bound
    from eddyline.models.conditions import Condition
    from eddyline.models.expressions import Terms
    from eddyline.models.segments import Segments

_VIOLATION: dict[str, Callable[[Floats], Floats]] = {
    "<": lambda p: np.maximum(p, 0), "<=": lambda p: np.maximum(p, 0),
    ">": lambda p: np.maximum(-p, 0), ">=": lambda p: np.maximum(-p, 0),
    "=": np.abs, "<>": np.zeros_like,
}  # fmt: skip
_TRUE: dict[str, Callable[[Floats], Mask]] = {
    "<": lambda p: p < 0, "<=": lambda p: p <= 0, "=": lambda p: p == 0,
    "<>": lambda p: (p != 0) & ~np.isnan(p), ">=": lambda p: p >= 0, ">": lambda p: p > 0,
}  # fmt: skip
_RISING = {"<": -1, "<=": -1, ">": 1, ">=": 1}
"""Whether a greater difference makes a comparison true, or a lesser one; others both."""


def slack(segments: Segments, condition: Condition) -> Floats:
    """Return by how much a condition is violated at least on each segment, ``[n]``.

    No row for which every difference that is compared moves by less satisfies it. It is 0 where the
    condition holds somewhere, or at the end of the range.

    Args:
        segments: any, also pairs; tombstones have infinite slack, as nothing is there.
        condition: without slopes.

    Raises:
        NotSupportedError: it reads a slope.
    """
    check_rows_have(condition)
    given = begun(segments, attributes(condition))
    length = in_seconds(segments.hi - segments.lo)
    curves = _curves(condition, given, len(segments))
    at = _turns(curves, length)
    values = {each: polynomials.evaluate(coefs, at) for each, coefs in curves.items()}
    found = violation(condition, values).min(axis=1)
    return np.where(segments.is_tombstone, np.inf, found)


def violation_at(segments: Segments, condition: Condition, rows: Indices, times: Ints) -> Floats:
    """Return by how much a condition is violated at instants of segments, by their places."""
    check_rows_have(condition)
    taken = segments.take(rows)
    curves = _curves(condition, begun(taken, attributes(condition)), len(taken))
    since = in_seconds(times - taken.lo)
    values = {each: polynomials.evaluate(coefs, since) for each, coefs in curves.items()}
    return violation(condition, values)


def violation(condition: Condition, values: Mapping[Expression, Floats]) -> Floats:
    """Return by how much a condition is violated, 0 where it holds or touches; without a value ∞.

    Args:
        condition: any.
        values: of each expression that it compares.
    """
    if isinstance(condition, Comparison):
        found = values[condition.expression]
        return np.where(np.isnan(found), np.inf, _VIOLATION[condition.op](found))
    parts = (violation(each, values) for each in condition.parts)
    return reduce(np.maximum if isinstance(condition, And) else np.minimum, parts)


def slack_bounds(segments: Segments, condition: Condition) -> dict[str, Floats]:
    """Return how near each attribute has to be for a condition to stay false on a whole segment.

    Rows have to be nearer than that: at the bound itself the condition may hold. For joins: the
    bounds of pairs, of which each side takes the least of those it is in.
    """
    shares = _Shares(segments, condition)
    amount = np.where(
        is_solvable(shares.rounding), slack(segments, condition) - shares.rounding, 0.0
    )
    found = {}
    for name, part in shares.parts.items():
        far = np.full(len(segments), np.inf)
        bound = np.isfinite(part) & ~np.isposinf(amount)
        far[bound] = part[bound] * np.maximum(amount[bound], 0.0)
        # Where a model has no value, a row that has one may make anything true.
        none = _missing(segments.coefs[name]) & ~segments.is_tombstone
        found[name] = np.where(none, 0.0, far)
    return found


def watched(segments: Segments, condition: Condition, within: Mapping[str, Bound]) -> Live:
    """Return what rows are held against while a condition is watched, by what it says of models.

    Where it holds rows have to be within the outputs' bounds; where it does not, nearer to models
    than what could make it true. Comparisons that only one side of an attribute can make true leave
    the other side free: a price above 125 may rise.

    Args:
        segments: models of entities; those of one do not overlap. Tombstones are left out.
        condition: without slopes.
        within: the bounds of attributes where it holds.

    Raises:
        NotSupportedError: it reads a slope.
    """
    check_rows_have(condition)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return _watched(segments.take(~segments.is_tombstone), condition, within)


def _watched(alive: Segments, condition: Condition, within: Mapping[str, Bound]) -> Live:
    pieces = _pieces(alive, condition)
    models = alive.take(pieces.rows).cut(pieces.lo, pieces.hi)
    models = replace(models, is_point=models.lo == models.hi)
    live, order = Live.within(models, within), models.by_time
    rows, true = pieces.rows[order], pieces.holds[order]
    shares = _Shares(alive, condition)
    known = is_solvable(shares.rounding)[rows]
    true &= known
    far = pieces.coefs[order]
    far[:, 0] -= shares.rounding[rows]
    far = polynomials.shifted(far, -alive.seconds(alive.lo)[rows])
    below: dict[str, Floats] = {}
    above: dict[str, Floats] = {}
    for name, coefs in alive.coefs.items():
        part = shares.parts.get(name, np.full(len(alive), np.inf))[rows]
        # A row that has a value where models have none is news, if it is compared.
        news = (_missing(coefs)[rows] | ~known) & (name in shares.parts)
        sides = zip((below, above), (live.below, live.above), shares.sides(name), strict=True)
        for into, of, is_bound in sides:
            slacks = _times(part, far) if is_bound else _times(np.full(len(rows), np.inf), far)
            slacks[news] = 0.0
            own = polynomials.padded(of[name], slacks.shape[1])
            into[name] = np.where(true[:, None], own, slacks)
    shared = {name: np.where(true, each, 0.0) for name, each in live.shares.items()}
    return replace(live, below=below, above=above, shares=shared, is_strict=~true)


def _missing(coefs: Floats) -> Mask:
    return np.asarray(np.isnan(coefs).any(axis=1))


def _times(part: Floats, far: Floats) -> Floats:
    """Return parts of distances; any distance where the part is infinite, or the distance is."""
    found = np.zeros_like(far)
    known = np.isfinite(part) & np.isfinite(far).all(axis=1)
    found[known] = part[known, None] * far[known]
    found[~known, 0] = np.inf
    return found


@dataclass(frozen=True)
class _Pieces:
    """Ranges of segments on which a condition holds, or one polynomial says how far it is.

    Attributes:
        rows: the segment of each, ``[m]``.
        lo: microseconds, ``[m]``.
        hi: exclusive, ``[m]``; ``lo`` for a point.
        holds: whether the condition does, ``[m]``.
        coefs: by how much it is violated, from the segment's ``lo`` on, ``[m, degree + 1]``.
    """

    rows: Indices
    lo: Ints
    hi: Ints
    holds: Mask
    coefs: Floats


class _Shares:
    """For each attribute of a condition its part of a violation: what it may move, at most."""

    def __init__(self, segments: Segments, condition: Condition) -> None:
        self._condition = condition
        n = len(segments)
        given = begun(segments, attributes(condition))
        length = in_seconds(segments.hi - segments.lo)
        known = {name: np.where(_missing(each.coefs)[:, None], 0.0, each.coefs)
                 for name, each in given.items()}  # fmt: skip
        given = {name: replace(each, coefs=known[name], size=np.nan_to_num(each.size, nan=0.0))
                 for name, each in given.items()}  # fmt: skip
        reach = reach_on(given, length)
        expressions = list(dict.fromkeys(each.expression for each in comparisons(condition)))
        # A violation is no more than this; a part of it lets an expression move by that part of it.
        most = np.zeros(n) + reduce(np.maximum, [reach(each) for each in expressions])
        most[most == 0] = 1.0
        bounds = {name: np.full(n, np.inf) for name in attributes(condition)}
        for expression in expressions:
            for name, far in spread(expression, most, reach).items():
                bounds[name] = np.minimum(bounds[name], far)
        self.parts = {name: far / most for name, far in bounds.items()}
        errors = {name: np.where(np.isinf(far), 0.0, far) for name, far in bounds.items()}
        rounding = [rounding_of(each, given, errors, length) for each in expressions]
        self.rounding = np.zeros(n) + reduce(np.maximum, rounding)

    def sides(self, name: str) -> tuple[bool, bool]:
        """Return whether a lesser and a greater value of an attribute can make it true."""
        down = up = False
        for each in comparisons(self._condition):
            if name not in names_in(each.expression):
                continue
            weights, rising = weights_of(each.expression), _RISING.get(each.op, 0)
            toward = 0.0 if weights is None else np.sign(weights[name]) * rising
            down, up = down or toward <= 0, up or toward >= 0
        return down, up


def _curves(condition: Condition, given: Mapping[str, Terms], n: int) -> dict[Expression, Floats]:
    """Return the polynomials that a condition compares with 0, NaN without a value."""
    found = {}
    for expression in dict.fromkeys(each.expression for each in comparisons(condition)):
        coefs = terms_of(expression, given).cleaned
        rows = np.array(np.broadcast_to(coefs, (n, coefs.shape[1])))
        rows[without_values(expression, given, n)] = np.nan
        found[expression] = rows
    return found


def _crossings(curves: Mapping[Expression, Floats]) -> Iterator[Floats]:
    """Yield what is 0 where a violation is, or where two of them are equal."""
    rows = list(curves.values())
    yield from rows
    for at, one in enumerate(rows):
        for other in rows[:at]:
            yield polynomials.total(one, other)
            yield polynomials.total(one, -other)


def _turns(curves: Mapping[Expression, Floats], length: Floats) -> Floats:
    """Return the instants at one of which a violation is least, in seconds, ``[n, instants]``."""
    found = [np.zeros((len(length), 1)), length[:, None]]
    found += [polynomials.breaks(each, length) for each in _crossings(curves)]
    found += [polynomials.breaks(polynomials.derivative(each), length) for each in curves.values()]
    return np.concatenate(found, axis=1)


def _pieces(segments: Segments, condition: Condition) -> _Pieces:
    """Return the pieces of segments, in the order of segments and time."""
    given = begun(segments, attributes(condition))
    curves = _curves(condition, given, len(segments))
    lo, hi = segments.lo, segments.hi
    instants = [cuts(each, lo, hi)[0] for each in _crossings(curves)]
    edges = np.sort(np.concatenate([lo[:, None], *instants, hi[:, None]], axis=1), axis=1)
    rows, places = np.nonzero(edges[:, :-1] < edges[:, 1:])
    left, right = edges[rows, places], edges[rows, places + 1]
    points = np.flatnonzero(segments.is_point)
    rows = np.concatenate([rows, points])
    left, right = np.concatenate([left, lo[points]]), np.concatenate([right, lo[points]])
    middle = ((left - lo[rows]) + (right - lo[rows])) * (MICROS / 2)
    width = max(each.shape[1] for each in curves.values())
    taken = {each: polynomials.padded(coefs[rows], width) for each, coefs in curves.items()}
    values = {each: polynomials.evaluate(coefs, middle) for each, coefs in taken.items()}
    amount, coefs = _governing(condition, values, taken)
    order = np.lexsort((left, rows))
    true = holds(condition, lambda each: _TRUE[each.op](values[each.expression]))
    coefs = np.where(np.isfinite(amount)[:, None], coefs, 0.0)
    coefs[np.isinf(amount), 0] = np.inf
    return _Pieces(rows[order], left[order], right[order], true[order], coefs[order])


def _governing(
    condition: Condition, values: Mapping[Expression, Floats], curves: Mapping[Expression, Floats]
) -> tuple[Floats, Floats]:
    """Return by how much a condition is violated, and the polynomial that says so nearby."""
    if isinstance(condition, Comparison):
        value, coefs = values[condition.expression], curves[condition.expression]
        amount = violation(condition, values)
        return amount, np.where((amount > 0)[:, None], np.sign(value)[:, None] * coefs, 0.0)
    parts = [_governing(each, values, curves) for each in condition.parts]
    amount, coefs = parts[0]
    for other, its in parts[1:]:
        is_other = other > amount if isinstance(condition, And) else other < amount
        amount = np.where(is_other, other, amount)
        coefs = np.where(is_other[:, None], its, coefs)
    return amount, coefs

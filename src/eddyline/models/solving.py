"""Where conditions hold: ranges of time on which comparisons of polynomials are true.

Each polynomial is solved on its own. Then the roots of all of them cut a segment into instants and
gaps, on each of which every sign is known, and AND and OR are those of arrays (Pulse 3.2, 3.3).

A range is stored from its first instant to before its last, whatever the comparison says of these
two; a solution that is one instant is a point. Times are microseconds: a root is rounded once, and
two that fall on one microsecond are one instant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomial_kernels, polynomials
from eddyline.models.columns import Columns
from eddyline.models.conditions import Condition, attributes, comparisons, holds
from eddyline.models.expressions import ROUNDING, Expression, Terms, terms_of
from eddyline.models.segments import MICROS, in_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.conditions import Comparison
    from eddyline.models.segments import Segments

    Signs = NDArray[np.int8]

BLOCK = 1 << 13
"""Segments that are solved at once: what is computed between stays in the cache."""
HALF_MICRO = MICROS / 2
"""Seconds around an instant within which a root is at the instant."""
_UNKNOWN = 2
"""Instead of a sign: bounds do not settle it."""
_NONE = 3
"""Instead of a sign: an attribute has no value (NaN coefficients), and no comparison is true."""

_TRUE_FOR = {"<": (-1,), "<=": (-1, 0), "=": (0,), "<>": (-1, 1), ">=": (0, 1), ">": (1,)}


@dataclass(frozen=True)
class Ranges(Columns):
    """Ranges of time, each within a segment, in the order of segments and time.

    Attributes:
        rows: the segment of each by its place, ``[m]``.
        lo: where ranges begin, in microseconds, ``[m]``.
        hi: where they end, exclusive, ``[m]``; ``lo`` for a point.
        is_point: whether a range is one instant, ``[m]``.
    """

    rows: Indices
    lo: Ints
    hi: Ints
    is_point: Mask

    def of(self, segments: Segments) -> Segments:
        """Return the segments on their ranges; polynomials and origins stay as they are."""
        return replace(segments.take(self.rows).cut(self.lo, self.hi), is_point=self.is_point)


def where(segments: Segments, condition: Condition) -> Segments:
    """Return segments on the ranges on which a condition holds (Pulse 3.3).

    Tombstones stay. A point stays if the condition holds at its instant. No comparison is true of
    an attribute that has no value on a segment, whose coefficients are NaN.
    """
    return solutions(segments, condition).of(segments)


def solutions(segments: Segments, condition: Condition) -> Ranges:
    """Return the ranges on which a condition holds, and all of each tombstone."""
    asked = _Asked.of(condition)
    coefs = {name: segments.coefs[name] for name in asked.names}
    read = replace(segments, coefs=coefs, errors={})
    starts = range(0, max(len(read), 1), BLOCK)
    found = [_solutions(read.part(each, each + BLOCK), asked) for each in starts]
    if len(found) == 1:
        return found[0]
    moved = zip(found, starts, strict=True)
    return Ranges.joined([replace(each, rows=each.rows + start) for each, start in moved])


@dataclass(frozen=True)
class _Asked:
    """A condition and what it reads, found once for all blocks."""

    condition: Condition
    names: tuple[str, ...]
    expressions: tuple[Expression, ...]
    """Those that are compared with 0, each once."""

    @classmethod
    def of(cls, condition: Condition) -> _Asked:
        expressions = dict.fromkeys(each.expression for each in comparisons(condition))
        return cls(condition, tuple(sorted(attributes(condition))), tuple(expressions))

    def polynomials(self, segments: Segments) -> dict[Expression, Floats]:
        """Return the polynomials of the expressions with ``lo`` as the origin."""
        given = begun(segments, self.names)
        return {each: _rows_of(terms_of(each, given), len(segments)) for each in self.expressions}


def _solutions(read: Segments, asked: _Asked) -> Ranges:
    dead = read.is_tombstone
    point = np.flatnonzero(read.is_point & ~dead)
    solid = np.flatnonzero(~dead & ~read.is_point)
    solids = read if len(solid) == len(read) else read.take(solid)
    terms = Polynomials(asked.condition, solids.lo, solids.hi, asked.polynomials(solids))
    certain, possible = terms.settled()
    found = terms.solved(np.flatnonzero(possible & ~certain))
    kept = dead.copy()
    kept[solid[certain]] = True
    if len(point):
        kept[point] = _at_instants(read.take(point), asked)
    whole = np.flatnonzero(kept)
    both = Ranges.joined(
        [
            Ranges(whole, read.lo[whole], read.hi[whole], read.is_point[whole]),
            replace(found, rows=solid[found.rows]),
        ]
    )
    return both.take(np.argsort(both.rows, kind="stable"))  # no segment is in both


def begun(segments: Segments, names: Iterable[str]) -> dict[str, Terms]:
    """Return the polynomials of attributes with ``lo`` as the origin."""
    since = segments.seconds(segments.lo)
    return {name: Terms.since(segments.coefs[name], since) for name in names}


def _at_instants(points: Segments, asked: _Asked) -> Mask:
    signs = {each: first_signs(coefs) for each, coefs in asked.polynomials(points).items()}

    def leaf(comparison: Comparison) -> Mask:
        return is_true(signs[comparison.expression], comparison.op)

    return holds(asked.condition, leaf)


def _rows_of(terms: Terms, n: int) -> Floats:
    cleaned = terms.cleaned
    return np.ascontiguousarray(np.broadcast_to(cleaned, (n, cleaned.shape[1])))


def is_true(signs: Signs, op: str) -> Mask:
    """Return where a comparison with 0 is true of signs."""
    found: Mask = signs == _TRUE_FOR[op][0]
    for sign in _TRUE_FOR[op][1:]:
        found |= signs == sign
    return found


def first_signs(coefs: Floats) -> Signs:
    """Return the sign of each polynomial at its origin, 0 with a root within half a microsecond.

    It is ``_NONE`` for one with NaN coefficients.
    """
    change = np.zeros(len(coefs))
    for power in range(coefs.shape[1] - 1, 0, -1):
        change = (change + np.abs(coefs[:, power])) * HALF_MICRO
    first = coefs[:, 0]
    signs = np.where(np.abs(first) <= change, 0, np.sign(first))
    return np.where(np.isnan(first + change), _NONE, signs).astype(np.int8)


def cuts(coefs: Floats, lo: Ints, hi: Ints) -> tuple[Ints, Signs]:
    """Return the instants of the roots of polynomials, and their signs in the gaps between them.

    Args:
        coefs: with ``lo`` as the origin, ``[n, degree + 1]``.
        lo: microseconds, ``[n]``.
        hi: microseconds, ``[n]``.

    Returns:
        Instants in ascending order, ``hi`` in the places that are left, ``[n, degree]``, and signs,
        ``[n, degree + 1]``: before the first, between each two, and behind the last.
    """
    return polynomial_kernels.cuts(
        np.ascontiguousarray(coefs), np.ascontiguousarray(lo), np.ascontiguousarray(hi)
    )


class Polynomials:
    """The polynomials that a condition compares with 0, each on a range of time.

    Args:
        condition: comparisons of keys of ``coefs``.
        lo: where ranges begin (µs), ``[n]``.
        hi: where they end, after that (µs), ``[n]``.
        coefs: for each expression of the condition its polynomials with ``lo`` as the origin,
            without terms that are rounding (``Terms.cleaned``), ``[n, degree + 1]``.
    """

    def __init__(
        self, condition: Condition, lo: Ints, hi: Ints, coefs: Mapping[Expression, Floats]
    ) -> None:
        self._condition = condition
        self._lo, self._hi = lo, hi
        self._coefs = coefs

    def settled(self) -> tuple[Mask, Mask]:
        """Return where bounds show that the condition holds, and where it may hold."""
        length = in_seconds(self._hi - self._lo)
        known = {each: _bounded(coefs, length) for each, coefs in self._coefs.items()}

        def certain(comparison: Comparison) -> Mask:
            return is_true(known[comparison.expression], comparison.op)

        def possible(comparison: Comparison) -> Mask:
            signs = known[comparison.expression]
            found: Mask = is_true(signs, comparison.op) | (signs == _UNKNOWN)
            return found

        return holds(self._condition, certain), holds(self._condition, possible)

    def solved(self, rows: Indices) -> Ranges:
        """Return the ranges on which the condition holds in some of the given ones."""
        lo, hi = self._lo[rows], self._hi[rows]
        cut = {each: cuts(coefs[rows], lo, hi) for each, coefs in self._coefs.items()}
        left = _distinct([instants for instants, _ in cut.values()], lo, hi)
        right = np.concatenate([left[:, 1:], hi[:, None]], axis=1)
        first = {each: first_signs(coefs[rows]) for each, coefs in self._coefs.items()}
        signs = {each: _signs_on(left, *found, first[each]) for each, found in cut.items()}
        alive = left < right

        def holds_on(at: int) -> Mask:
            def leaf(comparison: Comparison) -> Mask:
                return is_true(signs[comparison.expression][at], comparison.op)

            return alive & holds(self._condition, leaf)

        found = _runs(holds_on(0), holds_on(1), left, right)
        return replace(found, rows=rows[found.rows])


def _bounded(coefs: Floats, length: Floats) -> Signs:
    """Return the sign where bounds or zeros settle it, and ``_UNKNOWN`` elsewhere."""
    low, high = polynomials.bounds(coefs, length)
    margin = ROUNDING * (high - low + np.abs(coefs[:, 0]))
    found = np.where(low > margin, 1, np.where(high < -margin, -1, _UNKNOWN))
    found = np.where(np.isnan(low), _NONE, found)
    return np.where(coefs.any(axis=1), found, 0).astype(np.int8)


def _distinct(instants: list[Ints], lo: Ints, hi: Ints) -> Ints:
    """Return ``lo`` and the instants behind it once each, ascending, and ``hi`` as the rest."""
    every = np.sort(np.concatenate([lo[:, None], *instants], axis=1), axis=1)
    again = every[:, 1:] == every[:, :-1]
    if again.any():
        every[:, 1:][again] = np.broadcast_to(hi[:, None], again.shape)[again]
        every.sort(axis=1)
    return every


def _signs_on(left: Ints, instants: Ints, own: Signs, first: Signs) -> tuple[Signs, Signs]:
    """Return the signs of a polynomial in gaps that others cut too, and at where these begin.

    Args:
        left: where the gaps begin, ``[n, gaps]``.
        instants: the polynomial's own roots, ``[n, roots]``.
        own: its signs in the gaps between these, ``[n, roots + 1]``.
        first: its sign where segments begin, ``[n]``.
    """
    passed = np.zeros(left.shape, np.intp)
    is_root = np.zeros(left.shape, np.bool_)
    for each in range(instants.shape[1]):
        root = instants[:, each : each + 1]
        passed += root <= left
        is_root |= root == left
    is_none = (first == _NONE)[:, None]
    gap: Signs = np.where(is_none, _NONE, np.take_along_axis(own, passed, axis=1)).astype(np.int8)
    point = np.where(is_root, 0, gap).astype(np.int8)
    point[:, 0] = np.where(is_root[:, 0] & (first != _NONE), 0, first)
    return gap, point


def _runs(gap: Mask, point: Mask, left: Ints, right: Ints) -> Ranges:
    """Return maximal ranges of gaps and instants, and the instants that stand alone."""
    before = np.zeros_like(gap)
    before[:, 1:] = gap[:, :-1]
    joined = gap & before & point
    starts = gap & ~joined
    ends = gap.copy()
    ends[:, :-1] &= ~joined[:, 1:]
    alone = point & ~gap & ~before
    rows, places = np.nonzero(starts | alone)
    is_point = alone[rows, places]
    lo = left[rows, places]
    hi = lo.copy()
    hi[~is_point] = right[ends]
    return Ranges(rows, lo, hi, is_point)

"""Least and greatest values of expressions on segments: which constants a segment may meet.

Bounds are by terms, as ``solving.where`` settles a comparison by them, and wider by more than
rounding takes: what is outside them is settled there, too, so it need not be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.meeting_kernels import bounded
from eddyline.alarms.tally import BOUNDS
from eddyline.models.solving.expressions import ROUNDING, Terms, names_in, overflowing, terms_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.alarms.tally import Tally
    from eddyline.data.arrays import Floats, Indices
    from eddyline.models.segments import Segments
    from eddyline.models.solving.expressions import Expression

WIDER = 2.0**-40
"""How much wider, in parts of the size of the terms; a sign is settled from 2**-48 of them on."""


@dataclass(frozen=True)
class Bounds:
    """An expression on segments that are no tombstones.

    Attributes:
        coefs: its polynomials on the origins of segments, without terms that are rounding but for
            the constant one, ``[n, degree + 1]``.
        size: how large the terms are that the constant one was summed from, ``[n]``.
        low: where the expression may be equal to a constant, the constant is not less, ``[n]``;
            infinite if it has no value.
        high: the constant is not greater, ``[n]``; then minus infinite.
    """

    coefs: Floats
    size: Floats
    low: Floats
    high: Floats

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All it has of segments."""
        return self.coefs, self.size, self.low, self.high

    def take(self, rows: Indices) -> Bounds:
        """Return the same on some segments, which come once each and in their order."""
        if len(rows) == len(self.low):
            return self
        return Bounds(*(each[rows] for each in self.arrays))


def bounds_of(segments: Segments, expressions: Sequence[Expression]) -> list[Bounds]:
    """Return expressions on segments, none of which is a tombstone."""
    names = {name for each in expressions for name in names_in(each)}
    given = {name: Terms.of(segments.coefs[name]) for name in names}
    since, until = segments.seconds(segments.lo), segments.seconds(segments.ends)
    with np.errstate(over="ignore", invalid="ignore"):
        return [_bounds(each, given, since, until) for each in expressions]


class Basis:
    """An expression on segments, computed for those that it is asked of, of each once.

    Args:
        segments: none of them is a tombstone.
        expression: of their attributes.
        tally: takes note of the work.
    """

    def __init__(self, segments: Segments, expression: Expression, tally: Tally) -> None:
        self._segments, self._expression, self._tally = segments, expression, tally
        self._is_known = np.zeros(len(segments), np.bool_)
        self._knows_all = False
        self._found: Bounds | None = None

    def everywhere(self) -> Bounds:
        """Return it on all segments."""
        return self.on(np.arange(len(self._segments)))

    def on(self, rows: Indices) -> Bounds:
        """Return it on all segments, of which only ``rows`` and those before are computed."""
        if self._found is not None and (self._knows_all or not len(rows)):
            return self._found
        asked = np.zeros(len(self._segments), np.bool_)
        asked[rows] = True
        missing = np.flatnonzero(asked & ~self._is_known)
        if len(missing) or self._found is None:
            self._compute(missing)
        assert self._found is not None
        return self._found

    def _compute(self, missing: Indices) -> None:
        segments = self._segments
        is_all = are_most(missing, segments)
        if is_all:
            missing = np.arange(len(segments))
        with self._tally.on(BOUNDS, len(missing)):
            part = segments if is_all else segments.take(missing)
            (made,) = bounds_of(part, [self._expression])
        if is_all:
            self._found = made
        else:
            if self._found is None:
                n, size = len(segments), made.coefs.shape[1]
                coefs, (own, low, high) = np.empty((n, size)), np.empty((3, n))
                self._found = Bounds(coefs, own, low, high)
            for whole, each in zip(self._found.arrays, made.arrays, strict=True):
                whole[missing] = each
        self._is_known[missing] = True
        self._knows_all = is_all


def are_most(rows: Indices, segments: Segments) -> bool:
    """Return whether all segments are computed in less time than some of them are taken out."""
    return len(rows) * 4 >= len(segments) * 3


def _bounds(
    expression: Expression, given: Mapping[str, Terms], since: Floats, until: Floats
) -> Bounds:
    terms = terms_of(expression, given)
    shape = (len(since), terms.coefs.shape[1])
    # A constant is one polynomial for all segments.
    coefs, size = (
        np.ascontiguousarray(np.broadcast_to(each, shape)) for each in (terms.coefs, terms.size)
    )
    made = Bounds(*bounded(coefs, size, since, until, ROUNDING, WIDER))
    lost = overflowing(terms, expression, given)
    if lost is not None:  # solving settles it
        made.low[lost], made.high[lost] = -np.inf, np.inf
    return made

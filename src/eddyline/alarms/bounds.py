"""Least and greatest values of expressions on segments: which constants a segment may meet.

Bounds are by terms, as ``models.solving`` settles a comparison by them, and wider by more than
rounding takes: what is outside them is settled there, too, so it need not be asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials
from eddyline.models.expressions import ROUNDING, Terms, names_in, terms_of
from eddyline.models.segments import in_seconds
from eddyline.models.solving import HALF_MICRO, begun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices
    from eddyline.models.expressions import Expression
    from eddyline.models.segments import Segments

WIDER = 2.0**-40
"""How much wider, in parts of the size of the terms; a sign is settled from 2**-49 of them on."""


@dataclass(frozen=True)
class Bounds:
    """An expression on segments that are no tombstones.

    Attributes:
        coefs: its polynomials from where segments begin, without terms that are rounding but for
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

    def minus(self, rows: Indices, constants: Floats) -> Floats:
        """Return the polynomials of some segments less a constant each, as they are solved."""
        found = self.coefs[rows]
        first = found[:, 0] - constants
        is_rounding = np.abs(first) <= ROUNDING * (self.size[rows] + np.abs(constants))
        found[:, 0] = np.where(is_rounding, 0.0, first)
        return found


def bounds_of(segments: Segments, expressions: Sequence[Expression]) -> list[Bounds]:
    """Return expressions on segments, none of which is a tombstone."""
    names = {name for each in expressions for name in names_in(each)}
    given = begun(segments, names)
    length = in_seconds(segments.hi - segments.lo)
    with np.errstate(over="ignore", invalid="ignore"):
        return [_bounds(terms_of(each, given), length, segments) for each in expressions]


def _bounds(terms: Terms, length: Floats, segments: Segments) -> Bounds:
    shape = (len(segments), terms.coefs.shape[1])
    coefs = np.array(np.broadcast_to(terms.cleaned, shape))
    coefs[:, 0] = terms.coefs[:, 0]
    size = np.array(np.broadcast_to(terms.size, shape))
    low, high = polynomials.bounds(coefs, length)
    wider = WIDER * polynomials.bounds(size, length)[1]
    # Around an instant that a point is, a value within half a microsecond is the one there.
    change = np.zeros(len(segments))
    for power in range(shape[1] - 1, 0, -1):
        change = (change + np.abs(coefs[:, power])) * HALF_MICRO
    wider += np.where(segments.is_point, 2 * change, 0.0)
    wider[np.isnan(wider)] = np.inf
    none = np.isnan(coefs).any(axis=1)
    low, high = low - wider, high + wider
    # What overflows is asked for: solving settles it.
    low[np.isnan(low)], high[np.isnan(high)] = -np.inf, np.inf
    low[none], high[none] = np.inf, -np.inf
    return Bounds(coefs, size[:, 0], low, high)

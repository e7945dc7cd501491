"""Segments: pieces of polynomials of time, many at once, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices, Ints, Mask

MICROS = 1e-6
"""Seconds in a microsecond: times are integers, polynomials take seconds since their origin."""


def in_seconds(micros: Ints) -> Floats:
    """Return lengths of time in microseconds as seconds, as every reader computes them."""
    found: Floats = np.multiply(micros, MICROS)
    return found


@dataclass(frozen=True)
class Segments:
    """One segment an entry: on ``[lo, hi)`` an attribute is a polynomial of ``time - origin``.

    Coefficients never refer to absolute time, in which they would lose their digits; ``lo`` and
    ``hi`` are apart from ``origin``, so a segment is cut without arithmetic (Pulse 2.2, 3.2.2).

    Attributes:
        keys: the entity of each segment as a dense id, 0 to the number of entities - 1, ``[n]``.
        origin: the instant at which the polynomials' variable is 0, in microseconds, ``[n]``.
        lo: where segments begin, inclusive, in microseconds, ``[n]``.
        hi: where they end, exclusive, in microseconds, ``[n]``; equal to ``lo`` for a point.
        is_point: whether a segment is the one instant ``lo``, ``[n]``.
        is_tombstone: whether it says that there is no model on ``[lo, hi)``, ``[n]``.
        coefs: for each attribute its coefficients, ascending powers of seconds,
            ``[n, degree + 1]``; attributes may have different degrees.
        errors: for each attribute the largest distance of a row from its polynomial that the fit
            allowed, in the attribute's unit, 0 or more, ``[n]``.
    """

    keys: Ints
    origin: Ints
    lo: Ints
    hi: Ints
    is_point: Mask
    is_tombstone: Mask
    coefs: Mapping[str, Floats]
    errors: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Indices | Mask) -> Self:
        """Return the segments at places or under a mask, in that order."""
        if np.asarray(rows).dtype == np.bool_:
            rows = np.flatnonzero(rows)
        taken: dict[str, Any] = {
            each.name: _taken(getattr(self, each.name), rows) for each in fields(self)
        }
        return replace(self, **taken)

    def part(self, start: int, stop: int) -> Self:
        """Return the segments from a place to before another, which share their arrays."""
        taken: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            is_array = isinstance(value, np.ndarray)
            taken[each.name] = (
                value[start:stop] if is_array else {k: v[start:stop] for k, v in value.items()}
            )
        return replace(self, **taken)

    @property
    def ends(self) -> Ints:
        """Where segments end (µs), of a point the microsecond behind its instant, ``[n]``."""
        return self.hi + self.is_point

    @property
    def by_time(self) -> Indices:
        """The places of segments in the order of entities and time, ``[n]``."""
        return np.lexsort((self.lo, self.keys))

    @property
    def ordered(self) -> Self:
        """The segments by entity and time; themselves if that is how they are."""
        again = self.keys[1:] == self.keys[:-1]
        rises = (self.keys[1:] > self.keys[:-1]) | (again & (self.lo[1:] >= self.lo[:-1]))
        return self if rises.all() else self.take(self.by_time)

    @property
    def solid(self) -> Mask:
        """Which segments have a length and a model: no points, no tombstones, ``[n]``."""
        found: Mask = ~self.is_point & ~self.is_tombstone
        return found

    def under(self, mask: Mask) -> Self:
        """Return the segments under a mask; themselves if that is all of them."""
        return self if mask.all() else self.take(mask)

    def cut(self, lo: Ints, hi: Ints) -> Self:
        """Return the segments on other ranges; their polynomials stay as they are."""
        return replace(self, lo=lo, hi=hi)

    def seconds(self, times: Ints) -> Floats:
        """Return seconds since each segment's origin: what its polynomials take.

        Args:
            times: an instant for each segment, in microseconds, ``[n]``.
        """
        return in_seconds(times - self.origin)


def _taken(value: Any, rows: Indices | Mask) -> Any:
    if isinstance(value, np.ndarray):
        return value.take(rows, axis=0)  # of short rows some times faster than brackets
    return {name: each.take(rows, axis=0) for name, each in value.items()}

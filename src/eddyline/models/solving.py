"""Where conditions hold: ranges of time on which comparisons of polynomials are true.

The work is done by ``solving_kernels``, of one segment after the other.

The answer is a set of whole microseconds. A range ``[lo, hi)`` contains ``lo`` and not ``hi``, so
``x > 3`` begins a microsecond after ``x = 3``. A solution of one instant is a point. A root between
two microseconds belongs to the earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomial_kernels, solving_kernels
from eddyline.models.columns import Columns
from eddyline.models.conditions import And, Comparison, Condition, attributes, comparisons
from eddyline.models.expressions import Terms, cleaned_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.expressions import Expression
    from eddyline.models.segments import Segments

    Signs = NDArray[np.int8]

BLOCK = 1 << 13
"""Segments that are solved at once: what is computed between stays in the cache."""


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

    program: Ints
    names: tuple[str, ...]
    expressions: tuple[Expression, ...]
    """Those that are compared with 0, each once."""

    @classmethod
    def of(cls, condition: Condition) -> _Asked:
        expressions = tuple(dict.fromkeys(each.expression for each in comparisons(condition)))
        program = program_of(condition, expressions)
        return cls(program, tuple(sorted(attributes(condition))), expressions)

    def polynomials(self, segments: Segments) -> list[Floats]:
        """Return the polynomials of the expressions on the origins of segments."""
        given = {name: Terms.of(segments.coefs[name]) for name in self.names}
        return [cleaned_of(each, given, len(segments)) for each in self.expressions]


def _solutions(read: Segments, asked: _Asked) -> Ranges:
    dead = read.is_tombstone
    if not dead.any():
        return solved(asked.program, read, asked.polynomials(read))
    alive, gone = np.flatnonzero(~dead), np.flatnonzero(dead)
    some = read.take(alive)
    found = solved(asked.program, some, asked.polynomials(some))
    both = Ranges.joined(
        [
            Ranges(gone, read.lo[gone], read.hi[gone], read.is_point[gone]),
            replace(found, rows=alive[found.rows]),
        ]
    )
    return both.take(np.argsort(both.rows, kind="stable"))  # no segment is in both


def solved(program: Ints, at: Segments, coefs: Sequence[Floats]) -> Ranges:
    """Return the ranges on which a condition holds, of segments that are no tombstones.

    Args:
        program: of the condition (``program_of``).
        at: the segments.
        coefs: their polynomials on the origins of segments, without terms that are rounding
            (``Terms.cleaned``), ``[n, degree + 1]`` each, in the order of the program.
    """
    times = at.origin, at.lo, at.hi, at.is_point
    return Ranges(*solving_kernels.solve(program, stacked(coefs), *times))


def begun(segments: Segments, names: Iterable[str]) -> dict[str, Terms]:
    """Return the polynomials of attributes with ``lo`` as the origin."""
    since = segments.seconds(segments.lo)
    return {name: Terms.since(segments.coefs[name], since) for name in names}


def program_of(condition: Condition, expressions: Sequence[Expression]) -> Ints:
    """Return a condition as ``solving_kernels`` read it, over expressions by their places."""
    places = {each: at for at, each in enumerate(expressions)}

    def tokens(part: Condition) -> list[int]:
        if isinstance(part, Comparison):
            return [8 * places[part.expression] + solving_kernels.OPS.index(part.op)]
        join = solving_kernels.AND if isinstance(part, And) else solving_kernels.OR
        first, *rest = map(tokens, part.parts)
        return first + [token for each in rest for token in (*each, join)]

    return np.array(tokens(condition), np.int64)


def stacked(coefs: Sequence[Floats]) -> Floats:
    """Return polynomials of several expressions as one array, higher powers of some being 0."""
    if len(coefs) == 1:
        return np.ascontiguousarray(coefs[0])[None]
    found = np.zeros((len(coefs), len(coefs[0]), max(each.shape[1] for each in coefs)))
    for into, each in zip(found, coefs, strict=True):
        into[:, : each.shape[1]] = each
    return found


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

"""The least or the greatest of many curves at each instant, as pieces of them.

Curves are merged two and two, all groups at once, until one is left in each: as many rounds as the
number of curves in a group can be halved (Pulse 3.6). A piece of the result is a piece of a curve,
on its own origin and with its own coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials, timeline
from eddyline.models.columns import Columns
from eddyline.models.expressions import Terms
from eddyline.models.segments import in_seconds
from eddyline.models.solving import cuts

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints, Mask


@dataclass(frozen=True)
class Functions:
    """Polynomials that pieces of curves are of, ``[n]`` each.

    Attributes:
        origin: microseconds.
        coefs: ``[n, degree + 1]``.
    """

    origin: Ints
    coefs: Floats

    def begun(self, rows: Indices, lo: Ints) -> Terms:
        """Return some of them with ``lo`` as the origin."""
        return Terms.since(self.coefs[rows], in_seconds(lo - self.origin[rows]))


@dataclass(frozen=True)
class Pieces(Columns):
    """Pieces of curves, ``[n]`` each; those of one curve do not overlap.

    Attributes:
        groups: what the extreme is taken of.
        curves: the curve of each in its group.
        rows: its function by place.
        lo: microseconds.
        hi: exclusive, more than ``lo``.
        errors: how far the function may be from the rows it stands for.
    """

    groups: Ints
    curves: Ints
    rows: Indices
    lo: Ints
    hi: Ints
    errors: Floats


def extreme(functions: Functions, pieces: Pieces, *, largest: bool) -> Pieces:
    """Return the pieces of functions that are extreme, each as long as it is.

    Where two are equal, that of the lower curve is kept.

    Args:
        functions: what pieces are of.
        pieces: any number of curves in any number of groups.
        largest: whether the greatest is kept, or the least.

    Returns:
        Pieces in the order of groups and time, one curve a group. Their errors are the greatest of
        those that were compared: an extreme moves by no more than one of its curves does.
    """
    found = _numbered(pieces)
    while found.curves.any():
        ids = _dense(found.groups, found.curves // 2)
        found = _merged(functions, found, ids, 1 if largest else -1)
    return fused(found)


def fused(pieces: Pieces) -> Pieces:
    """Return sorted pieces with neighbours of one function as one."""
    if not len(pieces.rows):
        return pieces
    new = timeline.is_first(pieces.groups) | timeline.is_first(pieces.curves)
    new[1:] |= pieces.rows[1:] != pieces.rows[:-1]
    new[1:] |= pieces.lo[1:] != pieces.hi[:-1]
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1
    errors = np.maximum.reduceat(pieces.errors, first)
    return replace(pieces.take(first), hi=pieces.hi[last], errors=errors)


def _numbered(pieces: Pieces) -> Pieces:
    """Return pieces in order, with the curves of each group numbered from 0."""
    ordered = pieces.take(np.lexsort((pieces.lo, pieces.curves, pieces.groups)))
    if not len(ordered.rows):
        return ordered
    ids = _dense(ordered.groups, ordered.curves)
    starts = timeline.is_first(ordered.groups)
    numbers = ids - ids[starts][np.cumsum(starts) - 1]
    return replace(ordered, curves=numbers)


def _dense(groups: Ints, curves: Ints) -> Ints:
    """Return dense ids of pairs that are sorted."""
    return np.cumsum(timeline.is_first(groups) | timeline.is_first(curves)) - 1


def _merged(functions: Functions, pieces: Pieces, ids: Ints, direction: int) -> Pieces:
    """Return the extreme of curves 2 i and 2 i + 1 of each group as its curve i: an id each."""
    is_odd = pieces.curves % 2 == 1
    one, other = pieces.take(~is_odd), pieces.take(is_odd)
    ids_one, ids_other = ids[~is_odd], ids[is_odd]
    coded = timeline.codes(
        (ids_one, one.lo), (ids_one, one.hi), (ids_other, other.lo), (ids_other, other.hi)
    )
    times = np.concatenate([one.lo, one.hi, other.lo, other.hi])
    owners = np.concatenate([ids_one, ids_one, ids_other, ids_other])
    code, place = np.unique(np.concatenate(coded), return_index=True)
    # Between two boundaries of an id that follow each other each curve has one piece or none.
    inner = np.flatnonzero(owners[place[1:]] == owners[place[:-1]])
    start, lo, hi = code[inner], times[place[inner]], times[place[inner + 1]]
    at_one, is_one = _there(coded[0], coded[1], start)
    at_other, is_other = _there(coded[2], coded[3], start)
    both = is_one & is_other
    alone, alone_other = is_one & ~both, is_other & ~both
    return _sorted(
        [
            _on(one, at_one[alone], lo[alone], hi[alone]),
            _on(other, at_other[alone_other], lo[alone_other], hi[alone_other]),
            _better(
                functions,
                _on(one, at_one[both], lo[both], hi[both]),
                _on(other, at_other[both], lo[both], hi[both]),
                direction,
            ),
        ]
    )


def _there(starts: Ints, ends: Ints, at: Ints) -> tuple[Indices, Mask]:
    """Return the piece that each instant may be in, and whether it is."""
    found = timeline.piece_at(starts, at)
    there = found >= 0
    there[there] = ends[found[there]] > at[there]
    return found, there


def _on(pieces: Pieces, places: Indices, lo: Ints, hi: Ints) -> Pieces:
    return replace(pieces.take(places), lo=lo, hi=hi)


def _better(functions: Functions, one: Pieces, other: Pieces, direction: int) -> Pieces:
    """Return the better of two pieces on the same ranges, cut where they cross."""

    def apart_of(coefs: Floats) -> Floats:
        some = replace(functions, coefs=coefs)
        terms, others = some.begun(one.rows, one.lo), some.begun(other.rows, one.lo)
        return Terms(terms.coefs - others.coefs, terms.size + others.size).cleaned

    apart = polynomials.in_range(apart_of, functions.coefs, grows_back=False)
    instants, signs = cuts(apart, one.lo, one.hi)
    left = np.concatenate([one.lo[:, None], instants], axis=1)
    right = np.concatenate([instants, one.hi[:, None]], axis=1)
    places, gaps = np.nonzero(left < right)
    keep = signs[places, gaps] * direction >= 0
    made = one.take(places)
    return replace(
        made,
        rows=np.where(keep, made.rows, other.rows[places]),
        lo=left[places, gaps],
        hi=right[places, gaps],
        errors=np.maximum(made.errors, other.errors[places]),
    )


def _sorted(parts: list[Pieces]) -> Pieces:
    whole = Pieces.joined(parts)
    halved = replace(whole, curves=whole.curves // 2)
    return fused(halved.take(np.lexsort((halved.lo, halved.curves, halved.groups))))

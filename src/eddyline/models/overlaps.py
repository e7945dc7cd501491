"""Pairs of segments that overlap in time: of one entity, or of different ones.

Ranges are ``[lo, hi)``; a point is the microsecond from its instant on. Sources: Pulse 3.4, 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials, timeline
from eddyline.models.overlap_kernels import near_pairs, set_ends, widen
from eddyline.models.segments import in_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Floats, Indices, Ints
    from eddyline.models.segments import Segments


@dataclass(frozen=True)
class Pairs:
    """Pairs of segments and when both are there.

    Attributes:
        left: the segment of one side by its place, ``[m]``.
        right: that of the other, ``[m]``.
        lo: where both are there, in microseconds, ``[m]``.
        hi: until when, exclusive, more than ``lo``, ``[m]``.
    """

    left: Indices
    right: Indices
    lo: Ints
    hi: Ints


def overlap_pairs(
    keys: Ints, lo: Ints, hi: Ints, other_keys: Ints, other_lo: Ints, other_hi: Ints
) -> Pairs:
    """Return the pairs of ranges of one entity that overlap.

    Args:
        keys: dense ids of entities, ``[n]``; ranges are in the order of entities and time, and
            those of one entity do not overlap.
        lo: microseconds, ``[n]``.
        hi: exclusive, more than ``lo``, ``[n]``.
        other_keys: the same for the other side, ``[m]``.
        other_lo: as above, ``[m]``.
        other_hi: as above, ``[m]``.
    """
    starts, ends, other_starts, other_ends = timeline.codes(
        (keys, lo), (keys, hi), (other_keys, other_lo), (other_keys, other_hi)
    )
    first = np.searchsorted(other_ends, starts, "right")
    last = np.searchsorted(other_starts, ends, "left")
    left, right = timeline.runs(first, np.maximum(last - first, 0))
    same = keys[left] == other_keys[right]  # one may end where the span of the next entity begins
    left, right = left[same], right[same]
    return Pairs(
        left, right, np.maximum(lo[left], other_lo[right]), np.minimum(hi[left], other_hi[right])
    )


def same_entity(left: Segments, right: Segments) -> Pairs:
    """Return the overlapping pairs of two sides' segments of one entity.

    Each side's segments of an entity do not overlap each other; they may be in any order.
    """
    one, other = left.by_time, right.by_time
    found = overlap_pairs(
        left.keys[one], left.lo[one], left.ends[one],
        right.keys[other], right.lo[other], right.ends[other],
    )  # fmt: skip
    return Pairs(one[found.left], other[found.right], found.lo, found.hi)


def different_entities(
    left: Segments, right: Segments, within: Mapping[tuple[str, str], float] | None = None
) -> Pairs:
    """Return the overlapping pairs of segments of different entities, each once.

    Of two that overlap one begins first, or both at once: it is found with the ones that begin
    while it lasts. So no more pairs are looked at than overlap.

    Args:
        left: any segments, in any order.
        right: those of the other side; ids mean the same entities on both.
        within: for an attribute of each side by how much they may differ at most; pairs that are
            surely farther apart all the time are left out.
    """
    return _swept(left, right, within or {}, is_self=False)


def among_entities(
    segments: Segments, within: Mapping[tuple[str, str], float] | None = None
) -> Pairs:
    """Return the overlapping pairs of different entities in one set, each in one order only.

    The one that begins first is on the left. Arguments as above.
    """
    return _swept(segments, segments, within or {}, is_self=True)


def _swept(
    left: Segments, right: Segments, within: Mapping[tuple[str, str], float], *, is_self: bool
) -> Pairs:
    margin = np.array([*within.values()]) / 2
    one, first_side = _by_begin(left, [a for a, _ in within])
    lo, ends, keys = first_side.lo, first_side.ends, first_side.keys
    boxes = _boxes(first_side, margin)
    other, other_lo, other_ends, other_keys, others = one, lo, ends, keys, boxes
    if not is_self:
        other, second_side = _by_begin(right, [b for _, b in within])
        other_lo, other_ends, other_keys = second_side.lo, second_side.ends, second_side.keys
        others = _boxes(second_side, margin)
    # Of one set each begins with itself and those before it that begin at the same instant.
    first = np.arange(len(lo)) + 1 if is_self else np.searchsorted(other_lo, lo, "left")
    last = np.searchsorted(other_lo, ends, "left")
    a, b = near_pairs(first, last, keys, other_keys, *boxes, *others)
    if not is_self:
        first, last = (np.searchsorted(lo, other_lo, "right"), np.searchsorted(lo, other_ends))
        d, c = near_pairs(first, last, other_keys, keys, *others, *boxes)
        a, b = np.concatenate([a, c]), np.concatenate([b, d])
    hi = np.minimum(ends[a], other_ends[b])
    return Pairs(one[a], other[b], np.maximum(lo[a], other_lo[b]), hi)


def _by_begin(segments: Segments, names: Sequence[str]) -> tuple[Indices, Segments]:
    """Return segments in the order in which they begin, with some attributes, and their places."""
    order = np.argsort(segments.lo, kind="stable")
    coefs = {name: segments.coefs[name] for name in names}
    return order, replace(segments, coefs=coefs, errors={}).take(order)


def _boxes(segments: Segments, margin: Floats) -> tuple[Floats, Floats]:
    """Return the least and greatest values of attributes, ``[n, axes]`` each, and a margin."""
    low, high = np.empty((2, len(segments), len(segments.coefs)))
    length = in_seconds(segments.ends - segments.lo)
    since = segments.seconds(segments.lo)
    for axis, given in enumerate(segments.coefs.values()):
        coefs = np.ascontiguousarray(given)
        if coefs[:, 2:].any():
            begun = polynomials.shifted(coefs, since)
            low[:, axis], high[:, axis] = polynomials.extremes(begun, length)
        else:  # of lines the ends are the extremes; no root has to be looked for
            set_ends(coefs, since, length, axis, low, high)
        widen(coefs, since, length, margin[axis], axis, low, high)
    dead = segments.is_tombstone
    low[dead], high[dead] = -np.inf, np.inf
    return low, high

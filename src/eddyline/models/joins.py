"""Joins: pairs of segments read at the same instants, where a condition on both holds.

Time is part of every join: both sides are read at one instant, and a pair is there where its
segments overlap (Pulse 3.4). Solutions are segments again, of pairs instead of entities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import overlaps, polynomials, timeline
from eddyline.models.one_sided import BY_SAMPLE
from eddyline.models.overlaps import Pairs
from eddyline.models.segments import Segments
from eddyline.models.solving import where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices, Ints
    from eddyline.models.conditions import Condition
    from eddyline.models.one_sided import Asking


@dataclass(frozen=True)
class Joined:
    """Segments of pairs of entities: ``segments.keys`` are dense ids of pairs.

    Attributes:
        segments: all attributes of both sides, by names that say the side: ``a.x``, ``b.x``.
        left: the left entity of each pair, ``[pairs]``.
        right: the right one, ``[pairs]``.
    """

    segments: Segments
    left: Ints
    right: Ints


def joined(
    left: Segments,
    right: Segments,
    condition: Condition | None = None,
    *,
    names: tuple[str, str] = ("left", "right"),
    asking: Asking = BY_SAMPLE,
) -> Joined:
    """Return two sides' segments of the same entities, where a condition holds.

    Args:
        left: segments of which those of one entity do not overlap.
        right: the same of the other side; ids mean the same entities on both.
        condition: on the attributes of both under their new names; None is all there is.
        names: what stands before an attribute's name on each side.
        asking: which sides are asked before.
    """
    left, right = asking.reduced(left, right, condition, names, of_same=True)
    return _paired(left, right, overlaps.same_entity(left, right), condition, names, asking)


def joined_with_others(
    left: Segments,
    right: Segments,
    condition: Condition | None = None,
    *,
    names: tuple[str, str] = ("left", "right"),
    within: Mapping[str, float] | None = None,
    asking: Asking = BY_SAMPLE,
) -> Joined:
    """Return pairs of different entities of two sides; arguments as above.

    Args:
        left: any segments.
        right: any segments; ids mean the same entities on both sides.
        condition: as above.
        names: as above.
        within: for an attribute of both by how much they differ at most where the condition holds:
            pairs that never come so near are not solved.
        asking: as above.
    """
    left, right = asking.reduced(left, right, condition, names)
    return _paired(left, right, near_between(left, right, within), condition, names, asking)


def joined_among(
    segments: Segments,
    condition: Condition | None = None,
    *,
    names: tuple[str, str] = ("left", "right"),
    within: Mapping[str, float] | None = None,
    sides: Ints | None = None,
    asking: Asking = BY_SAMPLE,
) -> Joined:
    """Return the pairs of different entities of one set, each in one order: the lesser id is left.

    A condition that does not treat both alike sees only that order; ``mirrored`` gives the other
    one of a condition that does. Arguments as above.

    Args:
        segments: as above.
        condition: as above.
        names: as above.
        within: as above.
        sides: 0 or 1 for each segment, if only pairs of one of each are wanted, ``[n]``.
        asking: as above.
    """
    may = [asking.may_hold(segments, name, condition, segments) for name in names]
    is_one, is_other = (np.ones(len(segments), np.bool_) if mask is None else mask for mask in may)
    if not (is_one | is_other).all():
        some = np.flatnonzero(is_one | is_other)
        segments, is_one, is_other = segments.take(some), is_one[some], is_other[some]
        sides = None if sides is None else sides[some]
    pairs = near_among(segments, within, sides)
    swap = segments.keys[pairs.left] > segments.keys[pairs.right]
    one, other = np.where(swap, pairs.right, pairs.left), np.where(swap, pairs.left, pairs.right)
    asked = is_one[one] & is_other[other]
    ordered = Pairs(one[asked], other[asked], pairs.lo[asked], pairs.hi[asked])
    return _paired(segments, segments, ordered, condition, names, asking)


def near_among(
    segments: Segments, within: Mapping[str, float] | None, sides: Ints | None = None
) -> Pairs:
    """Return the overlapping pairs of different entities that may come so near; as above."""
    if sides is None:
        return overlaps.among_entities(segments, _both(within))
    one, other = np.flatnonzero(sides == 0), np.flatnonzero(sides == 1)
    found = overlaps.different_entities(segments.take(one), segments.take(other), _both(within))
    return replace(found, left=one[found.left], right=other[found.right])


def near_between(left: Segments, right: Segments, within: Mapping[str, float] | None) -> Pairs:
    """Return the overlapping pairs of different entities that may come so near; as above."""
    return overlaps.different_entities(left, right, _both(within))


def near_entities(left: Segments, right: Segments, pairs: Pairs) -> tuple[Ints, Ints]:
    """Return the entities of pairs, each two of them once: left and right ones, ``[pairs]``."""
    return _pair_ids(left, right, pairs)[2:]


def joined_entities(
    left: Segments,
    right: Segments,
    entities: tuple[Ints, Ints],
    condition: Condition | None = None,
    *,
    names: tuple[str, str] = ("left", "right"),
    asking: Asking = BY_SAMPLE,
) -> Joined:
    """Return given pairs of entities for all the time that both have segments.

    Args:
        left: segments of which those of one entity do not overlap.
        right: the same of the other side.
        entities: the left and the right one of each pair, ``[pairs]``.
        condition: as above.
        names: as above.
        asking: as above.
    """
    left, right = asking.reduced(left, right, condition, names)
    pairs, one = _segments_of(left, entities[0])
    other_pairs, other = _segments_of(right, entities[1])
    found = overlaps.overlap_pairs(
        pairs, left.lo[one], left.ends[one], other_pairs, right.lo[other], right.ends[other]
    )
    both = replace(found, left=one[found.left], right=other[found.right])
    return _paired(left, right, both, condition, names, asking)


def _segments_of(segments: Segments, entities: Ints) -> tuple[Ints, Indices]:
    """Return for each of some entities its segments by time: whose they are, and their places."""
    order = segments.by_time
    keys = segments.keys[order]
    first = np.searchsorted(keys, entities, "left")
    of, places = timeline.runs(first, np.searchsorted(keys, entities, "right") - first)
    return of.astype(np.int64), order[places]


def mirrored(found: Joined, names: tuple[str, str] = ("left", "right")) -> Joined:
    """Return pairs with their sides exchanged."""
    one, other = (f"{name}." for name in names)

    def exchanged(given: Mapping[str, Floats]) -> dict[str, Floats]:
        return {
            (other + name[len(one) :]) if name.startswith(one) else (one + name[len(other) :]): each
            for name, each in given.items()
        }

    segments = replace(
        found.segments,
        coefs=exchanged(found.segments.coefs),
        errors=exchanged(found.segments.errors),
    )
    return Joined(segments, found.right, found.left)


def _both(within: Mapping[str, float] | None) -> dict[tuple[str, str], float]:
    return {(name, name): most for name, most in (within or {}).items()}


def _paired(
    left: Segments,
    right: Segments,
    pairs: Pairs,
    condition: Condition | None,
    names: tuple[str, str],
    asking: Asking,
) -> Joined:
    """Return the pairs as segments whose origin is where both begin to be there."""
    asking.tally.paired(len(pairs.lo))
    order, keys, one, other = _pair_ids(left, right, pairs)
    lo, hi = pairs.lo[order], pairs.hi[order]
    coefs: dict[str, Floats] = {}
    errors: dict[str, Floats] = {}
    dead = np.zeros(len(keys), np.bool_)
    is_point = np.zeros(len(keys), np.bool_)
    for name, side, rows in ((names[0], left, pairs.left), (names[1], right, pairs.right)):
        taken = side.take(rows[order])
        moved = _moved(taken, lo)
        coefs |= {f"{name}.{attribute}": each for attribute, each in moved.items()}
        errors |= {f"{name}.{attribute}": each for attribute, each in taken.errors.items()}
        dead |= taken.is_tombstone
        is_point |= taken.is_point
    hi = np.where(is_point, lo, hi)
    segments = Segments(keys, lo, lo, hi, is_point, dead, coefs, errors)
    return Joined(segments if condition is None else where(segments, condition), one, other)


def _moved(segments: Segments, origin: Ints) -> dict[str, Floats]:
    by = segments.seconds(origin)
    return {name: polynomials.shifted(each, by) for name, each in segments.coefs.items()}


def _pair_ids(left: Segments, right: Segments, pairs: Pairs) -> tuple[Indices, Ints, Ints, Ints]:
    """Return the order of pairs by entities and time, and in it dense ids of pairs of entities.

    Behind them the two entities of each id.
    """
    one, other = left.keys[pairs.left], right.keys[pairs.right]
    entities = int(other.max(initial=0)) + 1  # dense ids: their product is no large number
    (code,) = timeline.codes((one * entities + other, pairs.lo))
    order: Indices = np.argsort(code, kind="stable")
    one, other = one[order], other[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    return order, np.cumsum(new) - 1, one[new], other[new]

"""Joins of segments: pairs at instants at which a condition holds.

Time is part of every join. Both sides are read at one instant, and a pair exists where its segments
overlap (Pulse 3.4, 7.2). Solutions are segments again, of pairs instead of entities.

1. ``Asking`` leaves out segments on which a condition of one side alone surely holds nowhere. It
   cuts no segment. Roots are found on pairs in any case, so results are the same to the last digit.
2. ``same_entity``, ``different_entities`` and ``among_entities`` find pairs of segments that
   overlap. For different entities a sweep also leaves out pairs that are never near each other.
3. ``joined`` and the functions beside it solve the condition on these pairs.

Ranges are ``[lo, hi)``; a point is the microsecond from its instant on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models import timeline
from eddyline.models.segments import Columns, Segments, in_seconds
from eddyline.models.solving import polynomials
from eddyline.models.solving.expressions import And, Terms, attributes, holds, terms_of
from eddyline.models.solving.where import where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.solving.expressions import Comparison, Condition

WIDER = 2.0**-40
"""How much wider bounds are, in parts of the size of the terms; a pair is settled from 2**-48 of
them on, and its polynomials differ by less than that from those of its segments."""

SAMPLE = 256
"""Segments of a side that are asked first, about."""

LEAST_SAMPLED = 8 * SAMPLE
"""Segments up to which all are asked without a sample."""

MIN_LEFT_OUT = 0.2
"""Share of a side that has to be left out: to ask it takes a tenth of the time of pairing it, and
a sample may be off by some hundredths."""


class Tally:
    """Takes note of what a join does; this one of nothing."""

    def clock(self) -> int:
        """Return the time (ns)."""
        return 0

    def asked(self, side: str, n_asked: int, n_left: int, ns: int) -> None:
        """Take note of segments of a side that were asked, how many were left, and the time."""

    def came(self, side: str, n: int) -> None:
        """Take note of the segments of a side that came to a question, or would have."""

    def paired(self, n_pairs: int) -> None:
        """Take note of the pairs that were made."""


UNTOLD = Tally()


@dataclass(frozen=True, slots=True)
class Asking:
    """Which sides of a join are asked before it, in what order; no answer depends on it."""

    sides: tuple[str, ...] | None = None
    """By what stands before their attributes; None: each side whose sample says that it pays."""
    tally: Tally = UNTOLD

    def reduced(
        self,
        left: Segments,
        right: Segments,
        condition: Condition | None,
        names: tuple[str, str],
        *,
        of_same: bool = False,
    ) -> tuple[Segments, Segments]:
        """Return the segments of both sides that may be in a result; all if that cannot be said.

        Args:
            left: the left side.
            right: the right side; ids mean the same entities on both.
            condition: of the join.
            names: what stands before the attributes of each side in the condition.
            of_same: whether pairs are of the same entity: entities that one side has no longer are
                then left out of the other one, before it is asked itself.
        """
        segments = dict(zip(names, (left, right), strict=True))
        one, two = names
        for name in names if self.sides is None else dict.fromkeys((*self.sides, *names)):
            other = two if name == one else one
            may = self.may_hold(segments[name], name, condition, segments[other])
            if may is None or may.all():
                continue
            segments[name] = segments[name].under(may)
            if of_same and self.sides is not None:
                segments[other] = of_entities(segments[other], segments[name])
        return segments[one], segments[two]

    def may_hold(
        self, segments: Segments, name: str, condition: Condition | None, other: Segments
    ) -> Mask | None:
        """Return which segments of a side may be in a result (True where that cannot be said).

        It is None if nothing is asked of the side alone, or if a sample says that too few segments
        would be left out to pay for asking all. Where the other side says that there is no model,
        pairs say so too, whatever this side is: then it is None as well.

        Args:
            segments: of the side.
            name: what stands before its attributes in the condition.
            condition: of the join.
            other: the other side.
        """
        conditions = questions(condition, name)
        if not conditions:
            return None
        self.tally.came(name, len(segments))
        if other.is_tombstone.any() or (self.sides is not None and name not in self.sides):
            return None
        if self.sides is None and len(segments) > LEAST_SAMPLED:
            sample = segments.take(np.arange(0, len(segments), -(-len(segments) // SAMPLE)))
            if self._asked(sample, name, conditions).mean() > 1.0 - MIN_LEFT_OUT:
                return None
        return self._asked(segments, name, conditions)

    def _asked(self, segments: Segments, name: str, conditions: Sequence[Condition]) -> Mask:
        began = self.tally.clock()
        may = _may_hold(segments, name, conditions)
        n_left = int(np.count_nonzero(may))
        self.tally.asked(name, len(segments), n_left, self.tally.clock() - began)
        return may


BY_SAMPLE = Asking()


def of_entities(segments: Segments, others: Segments) -> Segments:
    """Return the segments of entities that others have, too; all if these are most of all."""
    n = 1 + int(max(segments.keys.max(initial=0), others.keys.max(initial=0)))
    is_there = np.zeros(n, np.bool_)
    is_there[others.keys] = True
    is_kept = is_there[segments.keys]
    n_left = int(np.count_nonzero(is_kept))
    return segments.under(is_kept) if n_left < (1.0 - MIN_LEFT_OUT) * len(is_kept) else segments


def questions(condition: Condition | None, name: str) -> tuple[Condition, ...]:
    """Return the parts of an AND that ask of one side alone."""
    if isinstance(condition, And):
        return tuple(question for part in condition.parts for question in questions(part, name))
    asked = set() if condition is None else attributes(condition)
    is_own = asked and all(attribute.startswith(f"{name}.") for attribute in asked)
    return (condition,) if condition is not None and is_own else ()


def _may_hold(segments: Segments, name: str, conditions: Sequence[Condition]) -> Mask:
    """Return on which segments all of a side's own conditions may hold, by bounds of the terms."""
    read = set().union(*map(attributes, conditions))
    since = segments.seconds(segments.lo)
    inputs = {
        f"{name}.{attribute}": Terms.since(coefs, since)
        for attribute, coefs in segments.coefs.items()
        if f"{name}.{attribute}" in read
    }
    length = in_seconds(segments.ends - segments.lo)

    def leaf(comparison: Comparison) -> Mask:
        terms = terms_of(comparison.expression, inputs)
        shape = (len(segments), terms.coefs.shape[1])
        coefs, size = (np.broadcast_to(array, shape) for array in (terms.coefs, terms.size))
        low, high = polynomials.bounds(coefs, length)
        wider = WIDER * polynomials.bounds(size, length)[1]
        return ~_never(comparison.op, low - wider, high + wider)

    with np.errstate(over="ignore", invalid="ignore"):
        may: Mask = np.logical_and.reduce([holds(condition, leaf) for condition in conditions])
    return may | segments.is_tombstone


def _never(op: str, low: Floats, high: Floats) -> Mask:
    """Return where a comparison with 0 is surely false between bounds; NaN says nothing."""
    if op in {"<", "<="}:
        return low > 0
    if op in {">", ">="}:
        return high < 0
    return (low > 0) | (high < 0) if op == "=" else np.zeros(len(low), np.bool_)


# -- joins ----------------------------------------------------------------------------------------


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
    return _paired(left, right, same_entity(left, right), condition, names, asking)


def joined_with_others(
    left: Segments,
    right: Segments,
    condition: Condition | None = None,
    *,
    names: tuple[str, str] = ("left", "right"),
    within: Mapping[str, float] | None = None,
    is_whole: bool = False,
    asking: Asking = BY_SAMPLE,
) -> Joined:
    """Return pairs of different entities of two sides; other arguments as for ``joined``.

    ``within`` says for an attribute of both by how much they differ at most where the condition
    holds: pairs that never come so near are not solved. If ``is_whole``, entities that come so near
    are paired for all the time that they share.
    """
    if is_whole:
        near = different_entities(left, right, within)
        entities = _pair_ids(left, right, near)[2:]
        return joined_entities(left, right, entities, condition, names=names, asking=asking)
    left, right = asking.reduced(left, right, condition, names)
    pairs = different_entities(left, right, within)
    return _paired(left, right, pairs, condition, names, asking)


def joined_among(
    segments: Segments,
    condition: Condition | None = None,
    *,
    names: tuple[str, str] = ("left", "right"),
    within: Mapping[str, float] | None = None,
    is_whole: bool = False,
    sides: Ints | None = None,
    asking: Asking = BY_SAMPLE,
) -> Joined:
    """Return the pairs of different entities of one set, each in one order: the lesser id is left.

    A condition that does not treat both alike sees only that order. Other arguments as for
    ``joined_with_others``; ``sides`` as for ``among_entities``.
    """
    if is_whole:
        near = among_entities(segments, within, sides)
        ids = np.sort(np.stack(_pair_ids(segments, segments, near)[2:]), axis=0)
        one, other = np.unique(ids, axis=1)
        return joined_entities(
            segments, segments, (one, other), condition, names=names, asking=asking
        )
    may = [asking.may_hold(segments, name, condition, segments) for name in names]
    is_one, is_other = (np.ones(len(segments), np.bool_) if mask is None else mask for mask in may)
    if not (is_one | is_other).all():
        some = np.flatnonzero(is_one | is_other)
        segments, is_one, is_other = segments.take(some), is_one[some], is_other[some]
        sides = None if sides is None else sides[some]
    pairs = among_entities(segments, within, sides)
    swap = segments.keys[pairs.left] > segments.keys[pairs.right]
    one, other = np.where(swap, pairs.right, pairs.left), np.where(swap, pairs.left, pairs.right)
    ordered = replace(pairs, left=one, right=other).take(is_one[one] & is_other[other])
    return _paired(segments, segments, ordered, condition, names, asking)


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

    ``entities`` are the left and the right one of each pair, ``[pairs]``. Other arguments as for
    ``joined``.
    """
    left, right = asking.reduced(left, right, condition, names)
    pairs, one = _segments_of(left, entities[0])
    other_pairs, other = _segments_of(right, entities[1])
    overlaps = overlap_pairs(
        pairs, left.lo[one], left.ends[one], other_pairs, right.lo[other], right.ends[other]
    )
    both = replace(overlaps, left=one[overlaps.left], right=other[overlaps.right])
    return _paired(left, right, both, condition, names, asking)


def _segments_of(segments: Segments, entities: Ints) -> tuple[Ints, Indices]:
    """Return for each of some entities its segments by time: whose they are, and their places."""
    order = segments.by_time
    keys = segments.keys[order]
    first = np.searchsorted(keys, entities, "left")
    owners, places = timeline.runs(first, np.searchsorted(keys, entities, "right") - first)
    return owners.astype(np.int64), order[places]


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
    dead, is_point = np.zeros((2, len(keys)), np.bool_)
    for name, side, rows in ((names[0], left, pairs.left), (names[1], right, pairs.right)):
        taken = side.take(rows[order])
        by = taken.seconds(lo)
        for attribute, matrix in taken.coefs.items():
            coefs[f"{name}.{attribute}"] = polynomials.shifted(matrix, by)
            errors[f"{name}.{attribute}"] = taken.errors[attribute]
        dead |= taken.is_tombstone
        is_point |= taken.is_point
    hi = np.where(is_point, lo, hi)
    segments = Segments(keys, lo, lo, hi, is_point, dead, coefs, errors)
    return Joined(segments if condition is None else where(segments, condition), one, other)


def _pair_ids(left: Segments, right: Segments, pairs: Pairs) -> tuple[Indices, Ints, Ints, Ints]:
    """Return the order of pairs by entities and time, and in it dense ids of pairs of entities.

    Behind them the two entities of each id.
    """
    one, other = left.keys[pairs.left], right.keys[pairs.right]
    entities = int(other.max(initial=0)) + 1  # dense ids: their product is no large number
    (code,) = timeline.codes((one * entities + other, pairs.lo))
    order: Indices = np.argsort(code, kind="stable")
    one, other = one[order], other[order]
    new = timeline.is_first(one) | timeline.is_first(other)
    return order, np.cumsum(new) - 1, one[new], other[new]


# -- pairs that overlap in time -------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs(Columns):
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
        other_keys: of the other side, ``[m]``.
        other_lo: microseconds, ``[m]``.
        other_hi: exclusive, ``[m]``.
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
    pairs = overlap_pairs(
        left.keys[one], left.lo[one], left.ends[one],
        right.keys[other], right.lo[other], right.ends[other],
    )  # fmt: skip
    return replace(pairs, left=one[pairs.left], right=other[pairs.right])


def different_entities(
    left: Segments, right: Segments, within: Mapping[str, float] | None = None
) -> Pairs:
    """Return the overlapping pairs of segments of different entities, each once.

    Of two that overlap one begins first, or both at once: it is found with the ones that begin
    while it lasts. So no more pairs are looked at than overlap.

    Args:
        left: any segments, in any order.
        right: those of the other side; ids mean the same entities on both.
        within: for an attribute of both sides by how much they may differ at most; pairs that are
            surely farther apart all the time are left out.
    """
    return _swept(left, right, within or {}, is_self=False)


def among_entities(
    segments: Segments, within: Mapping[str, float] | None = None, sides: Ints | None = None
) -> Pairs:
    """Return the overlapping pairs of different entities in one set, each in one order only.

    The segment that begins first is on the left, or the one of side 0: ``sides`` is 0 or 1 for each
    segment if only pairs of one of each are wanted, ``[n]``. ``within`` as for
    ``different_entities``.
    """
    if sides is None:
        return _swept(segments, segments, within or {}, is_self=True)
    one, other = np.flatnonzero(sides == 0), np.flatnonzero(sides == 1)
    pairs = different_entities(segments.take(one), segments.take(other), within)
    return replace(pairs, left=one[pairs.left], right=other[pairs.right])


def _swept(left: Segments, right: Segments, within: Mapping[str, float], *, is_self: bool) -> Pairs:
    margin = np.array([*within.values()]) / 2
    one, first_side = _by_begin(left, within)
    lo, ends, keys = first_side.lo, first_side.ends, first_side.keys
    boxes = _boxes(first_side, margin)
    other, other_lo, other_ends, other_keys, others = one, lo, ends, keys, boxes
    if not is_self:
        other, second_side = _by_begin(right, within)
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


def _by_begin(segments: Segments, names: Iterable[str]) -> tuple[Indices, Segments]:
    """Return segments in the order in which they begin, with some attributes, and their places."""
    order = np.argsort(segments.lo, kind="stable")
    coefs = {name: segments.coefs[name] for name in names}
    return order, replace(segments, coefs=coefs, errors={}).take(order)


def _boxes(segments: Segments, margin: Floats) -> tuple[Floats, Floats]:
    """Return the least and greatest values of attributes, ``[n, axes]`` each, and a margin."""
    low, high = np.empty((2, len(segments), len(segments.coefs)))
    length = in_seconds(segments.ends - segments.lo)
    since = segments.seconds(segments.lo)
    for axis, matrix in enumerate(segments.coefs.values()):
        coefs = np.ascontiguousarray(matrix)
        begun = polynomials.shifted(coefs, since)
        # Bounds by the terms are exact for lines, so no root has to be looked for.
        extremes = polynomials.extremes if coefs[:, 2:].any() else polynomials.bounds
        low[:, axis], high[:, axis] = extremes(begun, length)
        widen(coefs, since, length, margin[axis], axis, low, high)
    dead = segments.is_tombstone
    low[dead], high[dead] = -np.inf, np.inf
    return low, high


# -- compiled: pairs that are near each other -----------------------------------------------------


@compiled
def near_pairs(
    first: Ints,
    last: Ints,
    keys: Ints,
    other_keys: Ints,
    low: Floats,
    high: Floats,
    other_low: Floats,
    other_high: Floats,
) -> tuple[Ints, Ints]:
    """Return which of the others from ``first`` to before ``last`` are near each range.

    Near are two of different entities whose boxes meet in each attribute.
    """
    room = 1024
    ones, others = np.empty(room, np.int64), np.empty(room, np.int64)
    count = 0
    for one in range(first.size):
        for other in range(first[one], last[one]):
            is_apart = False
            for axis in range(low.shape[1]):
                # No branch for each of the two, which the processor would often guess wrong.
                is_apart = (low[one, axis] > other_high[other, axis]) | (
                    high[one, axis] < other_low[other, axis]
                )
                if is_apart:
                    break
            if is_apart or keys[one] == other_keys[other]:
                continue
            if count == room:
                ones = np.concatenate((ones, np.empty(room, np.int64)))
                others = np.concatenate((others, np.empty(room, np.int64)))
                room *= 2
            ones[count], others[count] = one, other
            count += 1
    return ones[:count], others[:count]


@compiled
def widen(
    coefs: Floats,
    since: Floats,
    length: Floats,
    margin: float,
    axis: int,
    low: Floats,
    high: Floats,
) -> None:
    """Widen bounds by a margin, and so far that rounding parts none that is exactly at it."""
    for row in range(coefs.shape[0]):
        reach, size = abs(since[row]) + length[row], 0.0
        for power in range(coefs.shape[1] - 1, -1, -1):
            size = size * reach + abs(coefs[row, power])
        wider = margin * (1 + 1e-12) + 1e-12 * size
        low[row, axis] -= wider
        high[row, axis] += wider

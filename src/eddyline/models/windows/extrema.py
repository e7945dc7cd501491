"""Least and greatest values, over entities or over a window.

Over entities there is one at each instant, over a window one per entity. The least or greatest of
polynomials is an envelope: at each instant a piece of one of them (Pulse 3.6). Curves are merged
two and two, all groups at once, until one is left in each: as many rounds as the number of curves
in a group can be halved. A piece of the result is a piece of a curve, on its own origin and with
its own coefficients.

Windows that close at ticks need no envelope: a kernel takes the least value of each.

Points have no length and are left out; so are tombstones, and segments without values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models import timeline
from eddyline.models.segments import MICROS, Columns, Segments, in_seconds
from eddyline.models.solving import polynomials
from eddyline.models.solving.expressions import Terms
from eddyline.models.solving.joins import overlap_pairs
from eddyline.models.windows.integrals import Samples, has_values

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints, Mask


def envelope(
    segments: Segments, attribute: str, *, largest: bool, groups: Ints | None = None
) -> Segments:
    """Return the greatest or least value of an attribute over entities at each instant.

    Args:
        segments: those of one entity do not overlap.
        attribute: what is compared.
        largest: the greatest, or the least.
        groups: for each segment a dense id of what the extreme is taken of; None is one for all.

    Returns:
        Segments of one attribute whose keys are groups. An extreme moves by no more than one of its
        curves does, so its error is the greatest of all segments that were there with it.
    """
    functions, pieces = _extreme_of(segments, attribute, groups, largest=largest)
    return _segments(functions, _fused(segments, functions, pieces), attribute)


def candidates(
    segments: Segments, attribute: str, *, largest: bool, groups: Ints | None = None
) -> Segments:
    """Return the parts of segments that are extreme among these, as their entities' segments.

    With more segments beside them they have the same envelope as all have, and the same errors:
    each part has the greatest one of all segments that were there with it. Arguments as above.
    """
    _, pieces = _extreme_of(segments, attribute, groups, largest=largest)
    parts = segments.take(pieces.rows).cut(pieces.lo, pieces.hi)
    return replace(parts, errors={**parts.errors, attribute: pieces.errors})


def _extreme_of(
    segments: Segments, attribute: str, groups: Ints | None, *, largest: bool
) -> tuple[Functions, Pieces]:
    """Return the extreme pieces of groups, cut where the greatest error of all curves changes."""
    ids = np.zeros(len(segments), np.int64) if groups is None else groups
    functions = Functions(segments.origin, segments.coefs[attribute])
    pieces = Pieces(
        ids, segments.keys, np.arange(len(segments)), segments.lo, segments.hi,
        segments.errors[attribute],
    ).take(_valued(segments, attribute))  # fmt: skip
    winners = _fused(segments, functions, extreme(functions, pieces, largest=largest))
    piece_errors = pieces.errors
    if not piece_errors.size or piece_errors.min() == piece_errors.max():
        return functions, winners
    numbered = replace(pieces, rows=np.arange(len(pieces.rows)))
    levels = extreme(Functions(pieces.lo, piece_errors[:, None]), numbered, largest=True)
    both = overlap_pairs(
        winners.groups, winners.lo, winners.hi, levels.groups, levels.lo, levels.hi
    )
    errors = piece_errors[levels.rows[both.right]]
    return functions, replace(winners.take(both.left), lo=both.lo, hi=both.hi, errors=errors)


def _fused(segments: Segments, functions: Functions, pieces: Pieces) -> Pieces:
    """Return pieces with neighbours of one function as one, also if it was cut before."""
    rows = pieces.rows
    is_new = _begins_anew(pieces)
    for array in (segments.keys, functions.origin):
        is_new[1:] |= array[rows[1:]] != array[rows[:-1]]
    is_new[1:] |= (functions.coefs[rows[1:]] != functions.coefs[rows[:-1]]).any(axis=1)
    return _runs(pieces, is_new)


def windowed_extremum(
    segments: Segments, attribute: str, width_us: int, *, largest: bool
) -> Segments:
    """Return the greatest or least value of the last ``width_us``, by the window's closing time.

    It is the extreme of the value now, the value a window ago, and the most extreme of the values
    at which the curve turns or jumps that the window sees. Between two instants at which one of
    these becomes another one they are three polynomials: so a piece depends on nothing but what
    its windows see. Of equal ones the value now is taken, then that a window ago, then the earliest
    turn; and pieces end where a gap begins, whatever comes behind it.

    Pieces of the value now also end where windows come to see its segment alone, and those of the
    value ago where they no longer do: so what is longer than a window is of one segment.

    Windows that segments do not fill take what there is, also in gaps and behind the last segment.

    Args:
        segments: those of one entity do not overlap; an envelope is one, too.
        attribute: what is compared.
        width_us: how long the window ``(t - width, t]`` is, in microseconds, more than 0.
        largest: the greatest, or the least.
    """
    solid = _ordered(segments, attribute)
    functions, cells, keys = _cells(solid, attribute, width_us, 1.0 if largest else -1.0)
    winners = extreme(functions, cells, largest=largest)
    owners = keys[winners.groups]
    ends, begins, starts = timeline.codes(
        (solid.keys, solid.hi), (solid.keys, solid.lo), (owners, winners.lo)
    )
    is_cut = np.isin(starts, np.setdiff1d(ends, begins))
    pieces = replace(winners, groups=owners)
    is_cut |= _begins_anew(pieces) | timeline.is_first(winners.rows)
    is_cut |= _is_turned(solid, winners, width_us)
    return _segments(functions, _runs(pieces, is_cut), attribute)


def extrema_at(
    segments: Segments, attribute: str, width_us: int, every_us: int, *, largest: bool
) -> Samples:
    """Return the greatest or least value of the windows that close at ticks.

    The values of ``windowed_extremum`` at these instants, without an envelope for all the others;
    a segment costs the same however long windows are. Ticks are the multiples of ``every_us`` since
    1970. Other arguments as for ``windowed_extremum``.
    """
    solid = _ordered(segments, attribute)
    sign = -1.0 if largest else 1.0
    coefs = polynomials.shifted(solid.coefs[attribute], solid.seconds(solid.lo)) * sign
    up = polynomials.SCALE if (np.abs(coefs) > polynomials.LARGE).any() else 0
    coefs = np.ldexp(coefs, -up)  # no term overflows on the way to a value
    length = in_seconds(solid.hi - solid.lo)
    turns = np.empty((len(solid), 0))
    if coefs[:, 2:].any():
        turns = polynomials.breaks(polynomials.derivative(coefs), length)
    starts = np.append(np.flatnonzero(timeline.is_first(solid.keys)), len(solid))
    owners, times, values = least_at(starts, solid.lo, solid.hi, coefs, turns, width_us, every_us)
    errors = np.zeros(len(times))
    if solid.errors[attribute].any():
        # An extreme moves by no more than what it is of: by the greatest error in the window.
        lowest, never = -solid.errors[attribute][:, None], np.empty((len(solid), 0))
        greatest = least_at(starts, solid.lo, solid.hi, lowest, never, width_us, every_us)
        errors = -greatest[2]
    keys = solid.keys[starts[owners]]
    with np.errstate(over="ignore"):
        values = np.ldexp(values * sign, up)
    return Samples(keys, times, {attribute: values}, {attribute: errors})


def _ordered(segments: Segments, attribute: str) -> Segments:
    """Return the segments that have a length and values of an attribute, by entity and time."""
    read = replace(
        segments,
        coefs={attribute: segments.coefs[attribute]},
        errors={attribute: segments.errors[attribute]},
    )
    return read.under(_valued(segments, attribute)).ordered


def _valued(segments: Segments, attribute: str) -> Mask:
    """Return which segments have a length and values of an attribute."""
    return segments.solid & has_values(segments.coefs[attribute])


def _segments(functions: Functions, pieces: Pieces, attribute: str) -> Segments:
    none = np.zeros(len(pieces.rows), np.bool_)
    return Segments(
        pieces.groups, functions.origin[pieces.rows], pieces.lo, pieces.hi, none, none.copy(),
        {attribute: functions.coefs[pieces.rows]}, {attribute: pieces.errors},
    )  # fmt: skip


def _cells(
    solid: Segments, attribute: str, width: int, sign: float
) -> tuple[Functions, Pieces, Ints]:
    """Return the three polynomials of each cell, as curves of a group each, and its entity.

    ``solid`` has segments by entity and time; ``sign`` is 1 for the greatest, -1 for the least.
    """
    rows, instants, values = _turns(solid, attribute)
    order = np.lexsort((instants, solid.keys[rows]))
    rows, instants, values = rows[order], instants[order], values[order]
    keys, n = solid.keys[rows], len(solid)
    lo, hi, owners = _between(np.concatenate([instants, instants + width]), np.append(keys, keys))
    starts, ends, turns, opens, closes, begins = timeline.codes(
        (solid.keys, solid.lo), (solid.keys, solid.hi), (keys, instants),
        (owners, lo), (owners, hi), (owners, lo - width),
    )  # fmt: skip
    now, ago = (timeline.within(starts, ends, codes) for codes in (opens, begins))
    first = np.searchsorted(turns, begins, "right")
    turn = greatest_in(values * sign, first, np.searchsorted(turns, opens, "right"))
    errors = np.zeros(len(lo))
    if solid.errors[attribute].any():
        seen = np.searchsorted(ends, begins, "right"), np.searchsorted(starts, closes, "left")
        errors = solid.errors[attribute][greatest_in(solid.errors[attribute], *seen)]
    degree = solid.coefs[attribute].shape[1]
    flat = np.zeros((len(instants), degree))
    flat[:, 0] = values
    functions = Functions(
        np.concatenate([solid.origin, solid.origin + width, instants]),
        np.concatenate([solid.coefs[attribute], solid.coefs[attribute], flat]),
    )
    parts = []
    for curve, (places, before) in enumerate(((now, 0), (ago, n), (turn, 2 * n))):
        cell = np.flatnonzero(places >= 0)
        curves = np.full(len(cell), curve)
        parts.append(Pieces(cell, curves, places[cell] + before, lo[cell], hi[cell], errors[cell]))
    return functions, Pieces.joined(parts), owners


def _between(instants: Ints, keys: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the ranges between instants of an entity that follow each other, by entity and time.

    Returns:
        Where ranges begin and end, and their entities.
    """
    (code,) = timeline.codes((keys, instants))
    one = np.unique(code, return_index=True)[1]
    instants, keys = instants[one], keys[one]
    same = np.flatnonzero(keys[1:] == keys[:-1])
    return instants[same], instants[same + 1], keys[same]


def _is_turned(solid: Segments, pieces: Pieces, width: int) -> Mask:
    """Return which pieces begin where windows begin to lie in one segment, or no longer do.

    The first functions are the values of segments now, and the next ones those a window ago.
    """
    n = len(solid)
    edges = np.concatenate([solid.lo + width, solid.hi])
    is_value = pieces.rows < 2 * n
    is_turned = np.zeros(len(pieces.rows), np.bool_)
    is_turned[is_value] = pieces.lo[is_value] == edges[pieces.rows[is_value]]
    return is_turned


def _turns(segments: Segments, attribute: str) -> tuple[Indices, Ints, Floats]:
    """Return segment, instant and value of ends and turning points."""
    coefs = polynomials.shifted(segments.coefs[attribute], segments.seconds(segments.lo))
    length = in_seconds(segments.hi - segments.lo)
    inner = polynomials.breaks(polynomials.derivative(coefs), length)
    seconds = np.concatenate([np.zeros((len(length), 1)), inner, length[:, None]], axis=1)
    values = polynomials.evaluate(coefs, seconds)
    instants = segments.lo[:, None] + np.rint(seconds / MICROS).astype(np.int64)
    instants[:, -1] = segments.hi
    # Places that hold no turning point repeat the end.
    kept = np.ones(seconds.shape, np.bool_)
    kept[:, 1:-1] = inner < length[:, None]
    rows, places = np.nonzero(kept)
    return rows, instants[rows, places], values[rows, places]


# -- the least of many curves ---------------------------------------------------------------------


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
    winners = _numbered(pieces)
    while winners.curves.any():
        ids = _dense(winners.groups, winners.curves // 2)
        winners = _merged(functions, winners, ids, 1 if largest else -1)
    return fused(winners)


def fused(pieces: Pieces) -> Pieces:
    """Return sorted pieces with neighbours of one function as one."""
    is_new = _begins_anew(pieces) | timeline.is_first(pieces.curves)
    return _runs(pieces, is_new | timeline.is_first(pieces.rows))


def _begins_anew(pieces: Pieces) -> Mask:
    """Return which of some sorted pieces are of another group, or behind a gap."""
    is_new = timeline.is_first(pieces.groups)
    is_new[1:] |= pieces.lo[1:] != pieces.hi[:-1]
    return is_new


def _runs(pieces: Pieces, is_new: Mask) -> Pieces:
    """Return runs of pieces as one each, with the greatest of their errors."""
    first, last = timeline.ends_of_runs(is_new)
    errors = np.maximum.reduceat(pieces.errors, first) if len(first) else pieces.errors
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
    at_one = timeline.within(coded[0], coded[1], start)
    at_other = timeline.within(coded[2], coded[3], start)
    is_one, is_other = at_one >= 0, at_other >= 0
    both = is_one & is_other
    alone, alone_other = is_one & ~both, is_other & ~both
    whole = Pieces.joined(
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
    halved = replace(whole, curves=whole.curves // 2)
    return fused(halved.take(np.lexsort((halved.lo, halved.curves, halved.groups))))


def _on(pieces: Pieces, places: Indices, lo: Ints, hi: Ints) -> Pieces:
    return replace(pieces.take(places), lo=lo, hi=hi)


def _better(functions: Functions, one: Pieces, other: Pieces, direction: int) -> Pieces:
    """Return the better of two pieces on the same ranges, cut where they cross."""

    def apart_of(coefs: Floats) -> Floats:
        some = replace(functions, coefs=coefs)
        terms, others = some.begun(one.rows, one.lo), some.begun(other.rows, one.lo)
        return Terms(terms.coefs - others.coefs, terms.size + others.size).cleaned

    apart = polynomials.in_range(apart_of, functions.coefs, grows_back=False)
    instants, signs = polynomials.all_cuts(np.ascontiguousarray(apart), one.lo, one.hi)
    left = np.concatenate([one.lo[:, None], instants], axis=1)
    right = np.concatenate([instants, one.hi[:, None]], axis=1)
    places, gaps = np.nonzero(left < right)
    keep = signs[places, gaps] * direction >= 0
    pieces = one.take(places)
    return replace(
        pieces,
        rows=np.where(keep, pieces.rows, other.rows[places]),
        lo=left[places, gaps],
        hi=right[places, gaps],
        errors=np.maximum(pieces.errors, other.errors[places]),
    )


# -- compiled: windows that close at ticks --------------------------------------------------------


@compiled
def greatest_in(values: Floats, first: Indices, last: Indices) -> Indices:
    """Return the place of the greatest value in each of some windows, the first one of equals.

    Args:
        values: numbers.
        first: where windows begin, not before the window before, ``[m]``.
        last: where they end, exclusive, not before the window before, ``[m]``.

    Returns:
        Places, -1 where a window is empty, ``[m]``.
    """
    places = np.full(first.size, -1)
    queue = np.empty(values.size, np.int64)
    head = tail = behind = 0
    for window in range(first.size):
        while behind < last[window]:
            while tail > head and values[queue[tail - 1]] < values[behind]:
                tail -= 1
            queue[tail] = behind
            tail += 1
            behind += 1
        while head < tail and queue[head] < first[window]:
            head += 1
        if head < tail:
            places[window] = queue[head]
    return places


@compiled
def least_at(
    starts: Ints, lo: Ints, hi: Ints, coefs: Floats, turns: Floats, width: int, every: int
) -> tuple[Ints, Ints, Floats]:
    """Return entity, instant and least value of each window ``(tick - width, tick]``.

    A segment that is whole in a window waits in a queue until none that is behind it is as low;
    what the window cuts at its begin and at its end is looked at anew for each tick. So a segment
    costs the same however long windows are.

    Args:
        starts: the first segment of each entity, and the number of segments.
        lo: where segments begin (µs), by entity and time; those of an entity do not overlap.
        hi: where they end (µs).
        coefs: with ``lo`` as the origin, (segments, degree + 1).
        turns: seconds from ``lo`` to where each turns, then its length, (segments, places).
        width: of windows (µs).
        every: the distance of ticks (µs).
    """
    room = most_ticks(starts, lo, hi, width, every)
    owners, times, values = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    whole, queue = np.empty(lo.size), np.empty(lo.size, np.int64)
    count = 0
    for entity in range(starts.size - 1):
        first = behind = starts[entity]
        end = starts[entity + 1]
        head = tail = 0
        tick = -(-lo[first] // every) * every
        while tick < hi[end - 1] + width:
            begin = tick - width
            while behind < end and hi[behind] <= tick:
                least = least_on(behind, lo[behind], hi[behind], lo, coefs, turns)
                whole[behind] = least
                while tail > head and whole[queue[tail - 1]] >= least:
                    tail -= 1
                queue[tail] = behind
                tail += 1
                behind += 1
            while head < tail and lo[queue[head]] < begin:
                head += 1
            while first < end and hi[first] <= begin:
                first += 1
            lowest = whole[queue[head]] if head < tail else np.inf
            if first < behind and lo[first] < begin:
                lowest = min(lowest, least_on(first, begin, hi[first], lo, coefs, turns))
            if behind < end and lo[behind] <= tick:
                start = max(lo[behind], begin)
                lowest = min(lowest, least_on(behind, start, tick, lo, coefs, turns))
            if lowest < np.inf:
                owners[count], times[count], values[count] = entity, tick, lowest
                count += 1
            is_empty = head == tail and first == behind and behind < end
            tick = next_tick(tick, every, lo[behind] if is_empty else tick)
    return owners[:count], times[:count], values[:count]


@compiled
def next_tick(tick: int, every: int, begin: int) -> int:
    """Return the tick behind another one; windows before an instant see nothing (µs)."""
    return max(tick + every, -(-begin // every) * every)


@compiled
def most_ticks(starts: Ints, lo: Ints, hi: Ints, width: int, every: int) -> int:
    """Return how many windows that close at ticks see a segment of an entity, at most."""
    most = 0
    for entity in range(starts.size - 1):
        first, end = starts[entity], starts[entity + 1]
        seen = 0
        for segment in range(first, end):
            seen += (hi[segment] - lo[segment] + width) // every + 1
        most += min(seen, (hi[end - 1] - lo[first] + width) // every + 1)
    return most


@compiled
def least_on(segment: int, start: int, stop: int, lo: Ints, coefs: Floats, turns: Floats) -> float:
    """Return the least value of a segment from one of its instants to another."""
    left, right = (start - lo[segment]) * MICROS, (stop - lo[segment]) * MICROS
    least = min(value_at(segment, left, coefs), value_at(segment, right, coefs))
    for place in range(turns.shape[1]):
        turn = turns[segment, place]
        if left < turn < right:
            least = min(least, value_at(segment, turn, coefs))
    return least


@compiled
def value_at(segment: int, seconds: float, coefs: Floats) -> float:
    """Return the value of a segment at seconds from its begin, by Horner's rule."""
    top = coefs.shape[1] - 1
    value: float = coefs[segment, top]
    for power in range(top - 1, -1, -1):
        value = value * seconds + coefs[segment, power]
    return value

"""Sums and averages of segments, and rows at ticks.

They go over sliding windows, over entities, or over distances. **Windows.** The result is a
polynomial of the time at which a window closes. The integral over ``(t - width, t]`` is the tail of
the piece in which the window begins, the pieces in between, and the head of the one in which it
closes. Its formula changes where either end passes from one piece into the next: at most twice as
many pieces as there are segments (Pulse 3.7).

A sum over time is an integral: an average is weighted by time, not by rows. A window counts once
segments cover all of it. With ``covered`` it counts as soon as they cover a part, and averages
divide by the covered time. Windows that close in a gap, or behind the last segment, count as others
do. Points have no length and count as nothing. Tombstones are gaps, and so are segments without
values for the attribute that has none: it has no value where a window does not count because of
them, and nothing is there where no attribute has one.

**Rows at ticks.** Ticks are the multiples of a length since 1970, so they do not depend on where
segments begin (Pulse 2.5, 3.9).

**Sums over entities.** Between two instants at which a segment of a group begins or ends, the same
segments exist, so the sum of their polynomials is one polynomial (Pulse 3.7). It is added up anew
for each such range, in the order of entities. So neither the order of rows nor the length of a
stream changes a digit. Points, tombstones and segments without values are left out.

**Distances.** The distance of two entities that move in straight lines is the square root of a
quadratic, which is no polynomial. Its integral is known, so averages over windows have a closed
form at ticks (Pulse 2.7.2, 3.10).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.errors import NotSupportedError
from eddyline.models import timeline
from eddyline.models.segments import MICROS, Columns, Segments, in_seconds
from eddyline.models.solving import polynomials
from eddyline.models.solving.expressions import near
from eddyline.models.solving.polynomials import in_range
from eddyline.models.solving.where import where

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eddyline.data.arrays import Floats, Indices, Ints, Mask

    Pieces = tuple[Ints, Ints, Ints, Indices]
    """Of the pieces of a track entity, begin and end (µs), and segment, -1 for a gap."""
    Closing = tuple[Ints, Indices, Indices]
    """Of windows the closing time (µs), the piece that it is in, and the one they begin in."""
    Part = Callable[[Indices, Ints, Ints], Floats]
    """The integral over a part of each of some segments: places, from, to (microseconds)."""


@dataclass(frozen=True)
class Track:
    """Segments and the gaps between them, so that each entity's pieces follow each other, ``[n]``.

    Attributes:
        segments: the segments that have a length, in the order of entities and time.
        keys: the entity of each piece.
        lo: microseconds; the first and the last piece of an entity are gaps as long as a window.
        hi: exclusive: where the next piece of the entity begins.
        rows: the segment of each piece by its place, -1 for a gap.
    """

    segments: Segments
    keys: Ints
    lo: Ints
    hi: Ints
    rows: Indices

    @property
    def pieces(self) -> Mask:
        """Which pieces are no gaps."""
        return self.rows >= 0

    def valued(self, name: str) -> Mask:
        """Return on which pieces an attribute has values."""
        is_valued = self.pieces
        is_valued[is_valued] = has_values(self.segments.coefs[name])[self.rows[is_valued]]
        return is_valued


@dataclass(frozen=True)
class Windows:
    """Windows of one width on a track, by the instants at which they close, ``[m]``.

    Attributes:
        track: the pieces.
        width: microseconds.
        at: the closing times.
        head: the piece that each closes in.
        tail: the piece that each begins in.
    """

    track: Track
    width: int
    at: Ints
    head: Indices
    tail: Indices

    def take(self, rows: Indices | Mask) -> Windows:
        """Return the windows at places or under a mask."""
        return replace(self, at=self.at[rows], head=self.head[rows], tail=self.tail[rows])

    @property
    def covered(self) -> Ints:
        """How much of each window segments cover, in microseconds."""
        return self.covered_by(self.track.pieces)

    def covered_by(self, pieces: Mask) -> Ints:
        """Return how much of each window some of the track's pieces cover, in microseconds."""
        track = self.track
        time = np.where(pieces, track.hi - track.lo, 0)
        before = np.cumsum(time) - time

        def until(places: Indices, instants: Ints) -> Ints:
            inside: Ints = before[places] + np.where(pieces[places], instants - track.lo[places], 0)
            return inside

        return until(self.head, self.at) - until(self.tail, self.at - self.width)

    def gains_by(self, pieces: Mask) -> Ints:
        """Return by how much the covered time changes in a microsecond: 1, 0 or -1."""
        there = pieces.astype(np.int64)
        return there[self.head] - there[self.tail]

    def integrals(self, part: Part) -> Floats:
        """Return the integral over each window, of the pieces whose parts are given."""
        track, begin = self.track, self.at - self.width
        inside = self.head == self.tail
        sums = np.zeros(len(self.at))
        sums[inside] = _integrals_over(
            track, part, self.tail[inside], begin[inside], self.at[inside]
        )
        head, tail = self.head[~inside], self.tail[~inside]
        everything = np.arange(len(track.keys))
        whole = _integrals_over(track, part, everything, track.lo, track.hi)
        high, low = sums_before(whole, timeline.is_first(track.keys))
        between = (high[head] - high[tail + 1]) + (low[head] - low[tail + 1])
        sums[~inside] = (
            _integrals_over(track, part, tail, begin[~inside], track.hi[tail])
            + between
            + _integrals_over(track, part, head, track.lo[head], self.at[~inside])
        )
        return sums

    def polynomial_integrals(self, coefs: Floats) -> Floats:
        """Return the integral over each window of the segments' polynomials, 0 over gaps."""
        return window_integrals(*self._kernel_arguments(coefs))

    def formulas(self, coefs: Floats) -> Floats:
        """Return the same as polynomials of how much later a window closes, ``[m, degree + 2]``."""
        return window_formulas(*self._kernel_arguments(coefs))

    def _kernel_arguments(self, coefs: Floats) -> tuple[Floats, Ints, Pieces, Closing, int]:
        track = self.track
        pieces = (track.keys, track.lo, track.hi, track.rows)
        arrays = np.ascontiguousarray(coefs), np.ascontiguousarray(track.segments.origin)
        return *arrays, pieces, (self.at, self.head, self.tail), self.width


def windowed_integral(
    segments: Segments, width_us: int, *, is_average: bool, covered: bool = False
) -> Segments:
    """Return the integral or the average of each attribute over the window, by its closing time.

    Args:
        segments: those of one entity do not overlap.
        width_us: how long windows are, in microseconds, more than 0.
        is_average: whether integrals are divided by the covered time.
        covered: whether windows count that segments cover in part. Then there is a polynomial of
            the average only where the covered time does not change while the window moves on;
            ``integrals_at`` gives the others at ticks.

    Returns:
        Segments of the same entities, of a degree more. Integrals are in units of the attribute
        times seconds.
    """
    track = track_of(segments, width_us)
    lo, hi, head, tail = changes_of(track.keys, track.lo, track.hi, width_us)
    windows = Windows(track, width_us, lo, head, tail)
    kept = _counted(windows, track.pieces, is_covered=covered)
    return _segments(windows.take(kept), hi[kept], is_covered=covered, is_average=is_average)


def integrals_at(
    segments: Segments, width_us: int, every_us: int, *, is_average: bool, covered: bool = False
) -> Samples:
    """Return the same over the windows that close at ticks, without polynomials for the rest.

    Ticks are the multiples of ``every_us`` since 1970. Other arguments as for
    ``windowed_integral``.
    """
    windows = windows_at(segments, width_us, every_us, covered=covered)
    return _samples(windows, is_covered=covered, is_average=is_average)


@dataclass(frozen=True)
class Seen(Columns):
    """Ranges that windows have to see a part of, by entity and time, not overlapping, ``[m]``.

    Attributes:
        keys: entities.
        lo: microseconds.
        hi: exclusive.
    """

    keys: Ints
    lo: Ints
    hi: Ints

    def closing(self, width_us: int) -> Seen:
        """Return when windows close that see a range: a microsecond more at both ends."""
        lo, hi = self.lo - 1, self.hi + width_us + 1
        new = timeline.is_first(self.keys)
        new[1:] |= lo[1:] > hi[:-1]
        first, last = timeline.ends_of_runs(new)
        return Seen(self.keys[first], lo[first], hi[last])

    def inside(self, ranges: Seen) -> Seen:
        """Return the parts of ranges that are in the range of their entity: one each."""
        place = np.searchsorted(ranges.keys, self.keys)
        lo, hi = np.maximum(self.lo, ranges.lo[place]), np.minimum(self.hi, ranges.hi[place])
        return Seen(self.keys, lo, hi).take(lo < hi)


def windows_at(
    segments: Segments, width_us: int, every_us: int, *, covered: bool, seen: Seen | None = None
) -> Windows:
    """Return the windows that close at ticks and count; with ``seen`` those that see a range."""
    track = track_of(segments, width_us)
    first, last = timeline.is_first(track.keys), timeline.is_last(track.keys)
    every = Seen(track.keys[first], track.lo[first] + width_us, track.hi[last])
    if seen is None:  # nothing closes long behind a segment, however long a gap is
        solid = track.segments
        seen = Seen(solid.keys, solid.lo, solid.hi)
    closing = seen.closing(width_us).inside(every)
    rows, times = ticks(closing.lo, closing.hi, every_us)
    starts, closes, opens = timeline.codes(
        (track.keys, track.lo), (closing.keys[rows], times), (closing.keys[rows], times - width_us)
    )
    head, tail = timeline.piece_at(starts, closes), timeline.piece_at(starts, opens)
    windows = Windows(track, width_us, times, head, tail)
    # A polynomial says what a window will hold from its instant on, a tick what it holds.
    return windows.take((windows.covered > 0) if covered else (windows.covered == width_us))


def has_values(coefs: Floats) -> Mask:
    """Return which segments have values of an attribute: where none has, coefficients are NaN."""
    return np.asarray(~np.isnan(coefs).any(axis=1))


def track_of(segments: Segments, width_us: int) -> Track:
    """Return the segments that have a length, with the gaps before, between and behind them."""
    empty = np.ones(len(segments), np.bool_)
    for coefs in segments.coefs.values():
        empty &= ~has_values(coefs)
    solid = segments.under(segments.solid & ~empty).ordered
    keys, lo, hi = solid.keys, solid.lo, solid.hi
    first = timeline.is_first(keys)
    before = np.where(first, lo - width_us, np.roll(hi, 1))
    gap = np.flatnonzero(before < lo)
    last = np.flatnonzero(timeline.is_last(keys))
    owners = np.concatenate([keys, keys[gap], keys[last]])
    starts = np.concatenate([lo, before[gap], hi[last]])
    ends = np.concatenate([hi, lo[gap], hi[last] + width_us])
    rows = np.concatenate([np.arange(len(keys)), np.full(len(gap) + len(last), -1)])
    order = np.lexsort((starts, owners))
    return Track(solid, owners[order], starts[order], ends[order], rows[order])


def _integrals_over(track: Track, part: Part, pieces: Indices, start: Ints, stop: Ints) -> Floats:
    """Return the integral over a part of each of some pieces: 0 over gaps."""
    integrals = np.zeros(len(pieces))
    rows = track.rows[pieces]
    there = rows >= 0
    integrals[there] = part(rows[there], start[there], stop[there])
    return integrals


def _counted(windows: Windows, pieces: Mask, *, is_covered: bool) -> Mask:
    """Return the windows that count until the formula changes, if some pieces are no gaps."""
    time, gains = windows.covered_by(pieces), windows.gains_by(pieces)
    is_full: Mask = (time == windows.width) & (gains == 0)
    return ((time > 0) | (gains > 0)) if is_covered else is_full


def _segments(windows: Windows, hi: Ints, *, is_covered: bool, is_average: bool) -> Segments:
    """Return the integrals over windows as segments from ``windows.at`` on."""
    track = windows.track
    length = in_seconds(hi - windows.at)
    coefs, errors = {}, {}
    nothing = np.ones(len(hi), np.bool_)
    for name, matrix in track.segments.coefs.items():
        pieces = track.valued(name)
        counts = _counted(windows, pieces, is_covered=is_covered)
        divisor = np.ones(len(hi))
        if is_average:
            counts &= windows.gains_by(pieces) == 0
            divisor[counts] = in_seconds(windows.covered_by(pieces)[counts])
        compute = partial(_divided, windows.formulas, divisor[:, None])
        coefs[name] = in_range(compute, _without_gaps(matrix))
        coefs[name][~counts] = np.nan
        nothing &= ~counts
        errors[name] = np.zeros(len(hi))
        piece_errors = np.where(has_values(matrix), track.segments.errors[name], 0.0)
        if piece_errors.any():
            # An error is constant on a segment: its integral over the window is linear in between.
            bound = windows.formulas(piece_errors[:, None])
            errors[name] = np.maximum(bound[:, 0], polynomials.evaluate(bound, length)) / divisor
            errors[name][~counts] = 0.0
    none = np.zeros(len(hi), np.bool_)
    keys = track.keys[windows.head]
    result = Segments(keys, windows.at, windows.at, hi, none, none.copy(), coefs, errors)
    return result.take(~nothing) if coefs else result


def _divided(formula: Callable[[Floats], Floats], divisor: Floats | float, coefs: Floats) -> Floats:
    return formula(coefs) / divisor


def _samples(windows: Windows, *, is_covered: bool, is_average: bool) -> Samples:
    track = windows.track
    values, errors = {}, {}
    nothing = np.ones(len(windows.at), np.bool_)
    for name, matrix in track.segments.coefs.items():
        time = windows.covered_by(track.valued(name))
        counts = (time > 0) if is_covered else (time == windows.width)
        divisor = np.where(counts, in_seconds(time), 1.0) if is_average else 1.0
        compute = partial(_divided, windows.polynomial_integrals, divisor)
        integrals = in_range(compute, _without_gaps(matrix))
        values[name] = np.where(counts, integrals, np.nan)
        # An error is a constant on a segment: that of an integral is the errors' integral.
        valued = np.where(has_values(matrix), track.segments.errors[name], 0.0)
        errors[name] = windows.polynomial_integrals(valued[:, None]) / divisor
        nothing &= ~counts
    kept = ~nothing if values else np.ones(len(windows.at), np.bool_)
    keys = track.keys[windows.head][kept]
    taken = [{name: array[kept] for name, array in every.items()} for every in (values, errors)]
    return Samples(keys, windows.at[kept], *taken)


def _without_gaps(coefs: Floats) -> Floats:
    """Return coefficients that are 0 where there is no value: nothing, as gaps are."""
    valued = has_values(coefs)
    return coefs if valued.all() else np.where(valued[:, None], coefs, 0.0)


# -- rows at ticks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """Rows: values of entities at instants.

    Attributes:
        keys: entities, ``[n]``.
        times: instants in microseconds, ``[n]``.
        values: each attribute's, ``[n]``.
        errors: how far each may be from what the rows would give, ``[n]``.
    """

    keys: Ints
    times: Ints
    values: Mapping[str, Floats]
    errors: Mapping[str, Floats]

    def take(self, rows: Indices | Mask) -> Samples:
        """Return the rows at places or under a mask."""
        values, errors = (
            {name: array[rows] for name, array in arrays.items()}
            for arrays in (self.values, self.errors)
        )
        return Samples(self.keys[rows], self.times[rows], values, errors)


@dataclass(frozen=True)
class Changes:
    """Ranges over which an entity has a model without a gap, ``[n]`` each.

    Attributes:
        starts: the values where ranges begin.
        ends: where they end, exclusive, in microseconds; the start for a point.
    """

    starts: Samples
    ends: Ints


def ticks(lo: Ints, hi: Ints, every_us: int) -> tuple[Indices, Ints]:
    """Return the multiples of ``every_us`` in ranges ``[lo, hi)``.

    Returns:
        The range of each tick by its place, and the ticks in microseconds, in order.
    """
    first = -(-lo // every_us)
    rows, numbers = timeline.runs(first, np.maximum(-(-hi // every_us) - first, 0))
    return rows, numbers.astype(np.int64) * every_us


def sampled(segments: Segments, every_us: int) -> Samples:
    """Return a row for each tick in each segment, and one for each point at its instant.

    Args:
        segments: any; tombstones have no rows.
        every_us: the distance of ticks in microseconds, more than 0.
    """
    alive = np.flatnonzero(~segments.is_tombstone)
    is_point = segments.is_point[alive]
    solid, points = alive[~is_point], alive[is_point]
    rows, times = ticks(segments.lo[solid], segments.hi[solid], every_us)
    rows = np.concatenate([solid[rows], points])
    times = np.concatenate([times, segments.lo[points]])
    order = np.lexsort((times, rows))
    return at_instants(segments, rows[order], times[order])


def at_instants(segments: Segments, rows: Indices, times: Ints) -> Samples:
    """Return the values of segments, by their places, at an instant each."""
    since = in_seconds(times - segments.origin[rows])
    values = {
        name: polynomials.evaluate(matrix[rows], since) for name, matrix in segments.coefs.items()
    }
    errors = {name: error[rows] for name, error in segments.errors.items()}
    return Samples(segments.keys[rows], times, values, errors)


def changes(segments: Segments) -> Changes:
    """Return one row for each range over which an entity has a model without a gap.

    For results of a condition: when it becomes true, until when it is, and the values at first.

    Args:
        segments: those of one entity do not overlap; tombstones are gaps.
    """
    order = segments.by_time
    order = order[~segments.is_tombstone[order]]
    keys, lo, end = segments.keys[order], segments.lo[order], segments.ends[order]
    new = timeline.is_first(keys)
    new[1:] |= end[:-1] < lo[1:]
    first, last = timeline.ends_of_runs(new)
    is_alone = (first == last) & segments.is_point[order][first]
    ends = np.where(is_alone, lo[first], end[last])
    return Changes(at_instants(segments, order[first], lo[first]), ends)


# -- sums over entities ---------------------------------------------------------------------------


_ROUNDED = 2.0**-53
"""What rounding takes of a result at most, in parts of it.

Of what is added up it takes less than ``8 (degree + 1) + 2 n`` such parts of the sizes of the n
polynomials' terms: ``2 degree`` as their origins are moved, as much as instants are rounded to
seconds, as each of them is evaluated and as their sum is; and 2 n as both sides are added up.
"""


def are_counted(segments: Segments) -> Mask:
    """Return which segments have a length and a value of any attribute."""
    is_counted = np.zeros(len(segments), np.bool_)
    for matrix in segments.coefs.values():
        is_counted |= has_values(matrix)
    return is_counted & segments.solid


def totals(segments: Segments, groups: Ints, *, is_average: bool) -> Segments:
    """Return the sum, or the average, of each attribute over entities at each instant.

    An attribute has no value where no entity has one.

    Args:
        segments: those of one entity do not overlap; entities are added up by their ids.
        groups: for each segment a dense id of the group of its entity.
        is_average: whether sums are divided by the number of entities that are there.

    Returns:
        Segments of groups, each with its origin where it begins. Errors are the sums, or averages,
        of errors, and what rounding takes.
    """
    places = np.flatnonzero(are_counted(segments))
    places = places[np.lexsort((segments.lo[places], segments.keys[places]))]
    solid, ids = segments.take(places), groups[places]
    starts, ends = timeline.codes((ids, solid.lo), (ids, solid.hi))
    bounds, place = np.unique(np.concatenate([starts, ends]), return_index=True)
    times, owners = np.concatenate([solid.lo, solid.hi])[place], np.append(ids, ids)[place]
    # A range for each two bounds: between the last of a group and the first of the next is nothing.
    lo, hi, owners = times[:-1], times[1:], owners[:-1]
    first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
    coefs, errors = {}, {}
    is_there = np.zeros(len(lo), np.bool_)
    for name in solid.coefs:
        coefs[name], errors[name] = _of_attribute(
            solid, name, first, last, (lo, hi), is_average=is_average
        )
        is_there |= has_values(coefs[name])
    none = np.zeros(len(lo), np.bool_)
    return Segments(owners, lo, lo, hi, none, none.copy(), coefs, errors).take(is_there)


def _of_attribute(
    solid: Segments,
    name: str,
    first: Indices,
    last: Indices,
    ranges: tuple[Ints, Ints],
    *,
    is_average: bool,
) -> tuple[Floats, Floats]:
    """Return the polynomials of ranges, and their errors: NaN and 0 where there is no value."""
    n, size = len(ranges[0]), solid.coefs[name].shape[1]
    valued = np.flatnonzero(has_values(solid.coefs[name]))
    parts = solid.origin[valued], solid.errors[name][valued], first[valued], last[valued]

    def added(coefs: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        sums, far, reach = np.zeros((n, size)), np.zeros(n), np.zeros(n)
        count = np.zeros(n, np.int64)
        add_up(coefs, *parts, *ranges, sums, far, reach, count)
        if is_average:
            sums /= np.maximum(count, 1)[:, None]
        return sums, far, reach, count

    coefs = solid.coefs[name][valued]
    added_up, far, reach, count = added(coefs)
    if not np.isfinite(added_up).all():
        added_up = in_range(lambda some: added(some)[0], coefs)
    with np.errstate(over="ignore", invalid="ignore"):
        far += (8 * size + 2 * count) * _ROUNDED * (reach + far)
    if is_average:
        far /= np.maximum(count, 1)
    added_up[count == 0] = np.nan
    return added_up, far


# -- distances of two entities --------------------------------------------------------------------


_FAR = 4.0
"""How many lengths of a range away from its turning point a distance is smooth on the range."""
_MEETS = 1e-150
"""Seconds: two that pass each other at a distance of less meet; its square would be no number."""
_SMALL, _LARGE = 2.0**-400, 2.0**400
"""Squares of coordinates between these neither overflow nor vanish."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
"""At a distance of ``_FAR`` ranges these 12 points give an integral to the last digit."""


def average_distances(
    pairs: Segments,
    axes: Mapping[str, str],
    width_us: int,
    every_us: int,
    *,
    covered: bool = False,
    below: float | None = None,
) -> Samples:
    """Return the average distance of pairs over the windows that close at ticks, as ``distance``.

    Args:
        pairs: segments of pairs, with the positions of both (``joins.Joined.segments``); linear.
        axes: for each attribute of one side that of the other: ``{"left.x": "right.x", …}``.
        width_us: how long windows are, in microseconds.
        every_us: the distance of ticks, in microseconds.
        covered: whether windows count that segments cover in part, divided by the covered time.
        below: what averages have to be less than. Windows in which a pair is never so near are not
            looked at. None: all are asked for.

    Raises:
        NotSupportedError: an attribute is of a degree above 1.
    """
    for name in [*axes, *axes.values()]:
        pairs = pairs.take(has_values(pairs.coefs[name]))  # without a position there is a gap
        if pairs.coefs[name][:, 2:].any():
            msg = (
                f"the average distance takes linear models, {name!r} has a degree of "
                f"{pairs.coefs[name].shape[1] - 1}; fit it by degree 1, or compare the average "
                "square of the distance, which is a polynomial"
            )
            raise NotSupportedError(msg, attribute=name)
    seen = None
    if below is not None:
        near_ranges = where(pairs.take(pairs.solid), near(dict(axes), "<", below)).ordered
        seen = Seen(near_ranges.keys, near_ranges.lo, near_ranges.ends)
    windows = windows_at(pairs, width_us, every_us, covered=covered, seen=seen)
    parts = _distance_part(windows.track.segments, axes)
    values = windows.integrals(parts) / in_seconds(windows.covered)
    if below is not None:
        is_less = values < below
        windows, values = windows.take(is_less), values[is_less]
    errors = _errors(windows.track.segments, axes)
    error = windows.polynomial_integrals(errors) / in_seconds(windows.covered)
    keys = windows.track.keys[windows.head]
    return Samples(keys, windows.at, {"distance": values}, {"distance": error})


def _errors(pairs: Segments, axes: Mapping[str, str]) -> Floats:
    """Return how far each distance may be off, as constants: not more than both positions are."""
    apart = [pairs.errors[one] + pairs.errors[other] for one, other in axes.items()]
    errors: Floats = np.sqrt(sum(error**2 for error in apart))[:, None]
    return errors


def _distance_part(pairs: Segments, axes: Mapping[str, str]) -> Part:
    apart = [
        polynomials.padded(polynomials.total(pairs.coefs[one], -pairs.coefs[other]), 2)[:, :2]
        for one, other in axes.items()
    ]
    first = np.stack([matrix[:, 0] for matrix in apart], axis=1)
    change = np.stack([matrix[:, 1] for matrix in apart], axis=1)

    def part(places: Indices, start: Ints, stop: Ints) -> Floats:
        since = in_seconds(start - pairs.origin[places])
        velocity = change[places]
        return distance_integral(
            first[places] + velocity * since[:, None], velocity, in_seconds(stop - start)
        )

    return part


def distance_integral(position: Floats, velocity: Floats, length: Floats) -> Floats:
    """Return the integral of ``|position + velocity t|`` for t from 0 to ``length``.

    Args:
        position: where one is, seen from the other, ``[n, axes]``.
        velocity: its change per second, ``[n, axes]``.
        length: seconds, ``[n]``.
    """
    largest = np.maximum(np.abs(position).max(axis=1), np.abs(velocity).max(axis=1))
    is_extreme = (largest > _LARGE) | ((largest < _SMALL) & (largest > 0))
    if is_extreme.any():  # squares would overflow, or vanish
        up = np.frexp(np.where(is_extreme, largest, 0.5))[1]
        position, velocity = np.ldexp(position, -up[:, None]), np.ldexp(velocity, -up[:, None])
        with np.errstate(over="ignore"):
            integrals: Floats = np.ldexp(_distance_integral(position, velocity, length), up)
        return integrals
    return _distance_integral(position, velocity, length)


def _distance_integral(position: Floats, velocity: Floats, length: Floats) -> Floats:
    speed = _norm(velocity)
    moving = speed > 0
    safe = np.where(moving, speed, 1.0)
    # Seconds from the nearest approach, and how near that is, in seconds of travel.
    along = _dot(position, velocity) / safe**2
    aside = position - along[:, None] * velocity
    miss = _norm(aside) / safe
    near = moving & (np.maximum(np.abs(along), miss) <= _FAR * length)
    integrals = _norm(position) * length  # of those that do not move
    far, near = np.flatnonzero(moving & ~near), np.flatnonzero(near)
    integrals[far] = _smooth(position[far], velocity[far], length[far])
    along, miss = along[near], miss[near]
    closed = _primitive(along + length[near], miss) - _primitive(along, miss)
    integrals[near] = speed[near] * closed
    return integrals


def _primitive(seconds: Floats, miss: Floats) -> Floats:
    """Return the antiderivative of ``sqrt(t * t + miss * miss)``, that of ``|t|`` if they meet."""
    meets = miss < _MEETS
    ratio = seconds / np.where(meets, 1.0, miss)
    curved = np.where(meets, 0.0, miss**2 * np.arcsinh(np.where(meets, 0.0, ratio)))
    values: Floats = (seconds * np.hypot(seconds, miss) + curved) / 2
    return values


def _smooth(position: Floats, velocity: Floats, length: Floats) -> Floats:
    """Return the integral by the values at a few instants: exact far from the nearest approach.

    There the closed form subtracts numbers that are nearly equal, and the square of the distance,
    as a quadratic, does not.
    """
    start, change = _dot(position, position), 2 * _dot(position, velocity)
    bend = _dot(velocity, velocity)
    integrals = np.zeros(len(length))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        seconds = length * ((node + 1) / 2)
        integrals += weight * np.sqrt((bend * seconds + change) * seconds + start)
    return integrals * length / 2


def _norm(vectors: Floats) -> Floats:
    return np.sqrt(_dot(vectors, vectors))


def _dot(one: Floats, other: Floats) -> Floats:
    """Return the products of vectors, ``[n, axes]``: axis by axis, rows are too short for NumPy."""
    products = np.zeros(len(one))
    for mine, others in zip(one.T, other.T, strict=True):
        products += mine * others
    return products


# -- compiled: windows ----------------------------------------------------------------------------


@compiled
def sums_before(values: Floats, is_first: Mask) -> tuple[Floats, Floats]:
    """Return the sum of the values before each one of its entity, and what rounding took from it.

    The two together have twice the digits of a float: the difference of two of them is as exact as
    if only what lies between had been summed.
    """
    high, low = np.empty(values.size), np.empty(values.size)
    total = rest = 0.0
    for place in range(values.size):
        if is_first[place]:
            total = rest = 0.0
        high[place], low[place] = total, rest
        value = values[place]
        summed = total + value
        part = summed - total
        rest += (total - (summed - part)) + (value - part)
        total = summed
    return high, low


@compiled
def changes_of(keys: Ints, lo: Ints, hi: Ints, width: int) -> tuple[Ints, Ints, Indices, Indices]:
    """Return the windows at whose closing times an end passes from one piece into the next.

    Args:
        keys: entities of pieces, which follow each other in time; the first and the last one of an
            entity are gaps as long as a window.
        lo: where pieces begin (µs).
        hi: where they end, exclusive.
        width: how long windows are (µs).

    Returns:
        Closing times, until when the formula holds, and the pieces that windows close and begin in,
        by entity and time.
    """
    room = 2 * keys.size
    times, until = np.empty(room, np.int64), np.empty(room, np.int64)
    head, tail = np.empty(room, np.int64), np.empty(room, np.int64)
    n = start = 0
    while start < keys.size:
        stop = start + 1
        while stop < keys.size and keys[stop] == keys[start]:
            stop += 1
        begins, closes, time = start, start, lo[start] + width
        while closes < stop and hi[closes] <= time:
            closes += 1
        while closes < stop:
            following = min(hi[closes], hi[begins] + width)
            times[n], until[n], head[n], tail[n] = time, following, closes, begins
            n += 1
            closes, begins = (
                closes + (hi[closes] == following),
                begins + (hi[begins] + width == following),
            )
            time = following
        start = stop
    return times[:n], until[:n], head[:n], tail[:n]


@compiled
def antiderivative_from(
    coefs: Floats, origin: Ints, row: int, instant: int, output: Floats
) -> None:
    """Set an antiderivative of a segment's polynomial that has its origin, and is 0, at an instant.

    ``row`` is the segment; of -1 there is none, and all is 0. ``instant`` is the instant (µs).
    """
    output[:] = 0.0
    if row < 0:
        return
    size = coefs.shape[1]
    by = np.float64(instant - origin[row]) * MICROS
    output[1:] = coefs[row]
    if by != 0.0:
        for low in range(1, size):
            for power in range(size - 1, low - 1, -1):
                output[power] += by * output[power + 1]
    for power in range(2, size + 1):
        output[power] /= power


@compiled
def integral(coefs: Floats, origin: Ints, row: int, start: int, stop: int, work: Floats) -> float:
    """Return the integral of a segment's polynomial over a range of time, 0 where there is none."""
    if row < 0:
        return 0.0
    antiderivative_from(coefs, origin, row, start, work)
    length, value = np.float64(stop - start) * MICROS, 0.0
    for power in range(work.size - 1, -1, -1):
        value = value * length + work[power]
    return value


@compiled
def window_integrals(
    coefs: Floats, origin: Ints, pieces: Pieces, closing: Closing, width: int
) -> Floats:
    """Return the integrals of polynomials over windows, 0 where there is no segment."""
    keys, lo, hi, rows = pieces
    times, head, tail = closing
    work = np.empty(coefs.shape[1] + 1)
    whole, is_first = np.empty(keys.size), np.empty(keys.size, np.bool_)
    for piece in range(keys.size):
        whole[piece] = integral(coefs, origin, rows[piece], lo[piece], hi[piece], work)
        is_first[piece] = piece == 0 or keys[piece] != keys[piece - 1]
    high, low = sums_before(whole, is_first)
    sums = np.empty(times.size)
    for window in range(times.size):
        first, last, begin = tail[window], head[window], times[window] - width
        if first == last:
            sums[window] = integral(coefs, origin, rows[first], begin, times[window], work)
            continue
        between = (high[last] - high[first + 1]) + (low[last] - low[first + 1])
        sums[window] = (
            integral(coefs, origin, rows[first], begin, hi[first], work)
            + between
            + integral(coefs, origin, rows[last], lo[last], times[window], work)
        )
    return sums


@compiled
def window_formulas(
    coefs: Floats, origin: Ints, pieces: Pieces, closing: Closing, width: int
) -> Floats:
    """Return the same as polynomials of how much later windows close, (windows, degree + 2)."""
    times, head, tail = closing
    size = coefs.shape[1] + 1
    whole = window_integrals(coefs, origin, pieces, closing, width)
    formulas, begins, closes = np.empty((times.size, size)), np.empty(size), np.empty(size)
    for window in range(times.size):
        antiderivative_from(coefs, origin, pieces[3][head[window]], times[window], closes)
        antiderivative_from(coefs, origin, pieces[3][tail[window]], times[window] - width, begins)
        for power in range(size):
            formulas[window, power] = closes[power] - begins[power]
        formulas[window, 0] += whole[window]
    return formulas


# -- compiled: sums over entities -----------------------------------------------------------------


@compiled
def add_up(
    coefs: Floats,
    origin: Ints,
    errors: Floats,
    first: Indices,
    last: Indices,
    lo: Ints,
    hi: Ints,
    sums: Floats,
    far: Floats,
    size: Floats,
    count: Ints,
) -> None:
    """Add segments, in their order, to the ranges that each covers.

    Args:
        coefs: of segments, (segments, degree + 1).
        origin: of segments (µs).
        errors: of segments.
        first: the first range that each segment covers.
        last: the range behind the last one.
        lo: where ranges begin (µs).
        hi: where they end.
        sums: of polynomials whose origin is where the range begins, (ranges, degree + 1).
        far: of errors, of each range.
        size: of the greatest sizes that terms have on the range.
        count: how many segments there are.
    """
    width = coefs.shape[1]
    moved = np.empty(width)
    for row in range(first.size):
        for place in range(first[row], last[row]):
            by = np.float64(lo[place] - origin[row]) * MICROS
            for power in range(width):
                moved[power] = coefs[row, power]
            if by != 0.0:
                for low in range(width - 1):
                    for power in range(width - 2, low - 1, -1):
                        moved[power] += by * moved[power + 1]
            reach, most = abs(by) + np.float64(hi[place] - lo[place]) * MICROS, 0.0
            for power in range(width - 1, -1, -1):
                sums[place, power] += moved[power]
                most = most * reach + abs(coefs[row, power])
            size[place] += most
            far[place] += errors[row]
            count[place] += 1

"""Sums and averages over sliding windows, as polynomials of the time at which a window closes.

The integral over ``(t - width, t]`` is the tail of the piece in which the window begins, the pieces
in between, and the head of the one in which it closes. Its formula changes where either end passes
from one piece into the next: at most twice as many pieces as there are segments (Pulse 3.7).

A sum over time is an integral: an average is weighted by time, not by rows. A window counts once
segments cover all of it; with ``covered`` it counts as soon as they cover a part, and averages
divide by the covered time. Points have no length and count as nothing; tombstones are gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials, timeline
from eddyline.models.columns import Columns
from eddyline.models.sampling import Samples, ticks
from eddyline.models.segments import Segments, in_seconds
from eddyline.models.window_kernels import sums_before

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.data.arrays import Floats, Indices, Ints, Mask

    Part = Callable[[Indices, Ints, Ints], Floats]
    """The integral over a part of each of some segments: places, from, to (microseconds)."""


@dataclass(frozen=True)
class Track:
    """Segments and the gaps between them, so that each entity's pieces follow each other, ``[n]``.

    Attributes:
        segments: the segments that have a length, in the order of entities and time.
        keys: the entity of each piece.
        lo: microseconds; the first piece of an entity is a gap as long as a window.
        hi: exclusive: where the next piece of the entity begins.
        rows: the segment of each piece by its place, -1 for a gap.
    """

    segments: Segments
    keys: Ints
    lo: Ints
    hi: Ints
    rows: Indices


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
        track = self.track
        time = np.where(track.rows >= 0, track.hi - track.lo, 0)
        before = np.cumsum(time) - time

        def until(places: Indices, at: Ints) -> Ints:
            inside: Ints = before[places] + np.where(
                track.rows[places] >= 0, at - track.lo[places], 0
            )
            return inside

        return until(self.head, self.at) - until(self.tail, self.at - self.width)

    @property
    def covered_s(self) -> Floats:
        """The same in seconds."""
        return in_seconds(self.covered)

    @property
    def gains(self) -> Ints:
        """By how much that changes in a microsecond: 1, 0 or -1."""
        there = (self.track.rows >= 0).astype(np.int64)
        return there[self.head] - there[self.tail]

    def integrals(self, part: Part) -> Floats:
        """Return the integral over each window, of the pieces whose parts are given."""
        track, begin = self.track, self.at - self.width
        inside = self.head == self.tail
        found = np.zeros(len(self.at))
        found[inside] = _of(track, part, self.tail[inside], begin[inside], self.at[inside])
        head, tail = self.head[~inside], self.tail[~inside]
        everything = np.arange(len(track.keys))
        whole = _of(track, part, everything, track.lo, track.hi)
        high, low = sums_before(whole, timeline.is_first(track.keys))
        between = (high[head] - high[tail + 1]) + (low[head] - low[tail + 1])
        found[~inside] = (
            _of(track, part, tail, begin[~inside], track.hi[tail])
            + between
            + _of(track, part, head, track.lo[head], self.at[~inside])
        )
        return found


def windowed_sum(segments: Segments, width_us: int, *, covered: bool = False) -> Segments:
    """Return the integral of each attribute over the window, by its closing time.

    Args:
        segments: those of one entity do not overlap.
        width_us: how long windows are, in microseconds, more than 0.
        covered: whether windows count that segments cover in part.

    Returns:
        Segments of the same entities, of a degree more, in units of the attribute times seconds.
    """
    windows, hi = _pieces(segments, width_us)
    kept = _counted(windows, is_covered=covered)
    return _segments(windows.take(kept), hi[kept], np.ones(int(kept.sum())))


def windowed_average(segments: Segments, width_us: int, *, covered: bool = False) -> Segments:
    """Return the time-weighted average of each attribute over the window, by its closing time.

    With ``covered`` there is a polynomial only where the covered time does not change while the
    window moves on; ``averages_at`` gives the others at ticks. Arguments as above.
    """
    windows, hi = _pieces(segments, width_us)
    kept = _counted(windows, is_covered=covered) & (windows.gains == 0)
    windows = windows.take(kept)
    return _segments(windows, hi[kept], windows.covered_s)


def sums_at(segments: Segments, width_us: int, every_us: int, *, covered: bool = False) -> Samples:
    """Return the integral over the windows that close at ticks, without polynomials for the rest.

    Args:
        segments: as above.
        width_us: as above.
        every_us: the distance of ticks, the multiples of it since 1970, in microseconds.
        covered: as above.
    """
    windows = windows_at(segments, width_us, every_us, covered=covered)
    return _samples(windows, np.ones(len(windows.at)))


def averages_at(
    segments: Segments, width_us: int, every_us: int, *, covered: bool = False
) -> Samples:
    """Return the average over the windows that close at ticks; arguments as above."""
    windows = windows_at(segments, width_us, every_us, covered=covered)
    return _samples(windows, windows.covered_s)


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
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(new)) - 1 if len(new) else first
        return Seen(self.keys[first], lo[first], hi[last])

    def inside(self, of: Seen) -> Seen:
        """Return the parts of ranges that are in the range of their entity: one each."""
        place = np.searchsorted(of.keys, self.keys)
        lo, hi = np.maximum(self.lo, of.lo[place]), np.minimum(self.hi, of.hi[place])
        return Seen(self.keys, lo, hi).take(lo < hi)


def windows_at(
    segments: Segments, width_us: int, every_us: int, *, covered: bool, seen: Seen | None = None
) -> Windows:
    """Return the windows that close at ticks and count; with ``seen`` those that see a range."""
    track = track_of(segments, width_us)
    first, last = _ends(track)
    closing = Seen(track.keys[first], track.lo[first] + width_us, track.hi[last])
    if seen is not None:
        closing = seen.closing(width_us).inside(closing)
    rows, times = ticks(closing.lo, closing.hi, every_us)
    windows = _windows(track, width_us, closing.keys[rows], times)
    # A polynomial says what a window will hold from its instant on, a tick what it holds.
    return windows.take((windows.covered > 0) if covered else (windows.covered == width_us))


def track_of(segments: Segments, width_us: int) -> Track:
    """Return the segments that have a length, with the gaps before and between them."""
    solid = segments.under(segments.solid).ordered
    keys, lo, hi = solid.keys, solid.lo, solid.hi
    first = timeline.is_first(keys)
    before = np.where(first, lo - width_us, np.roll(hi, 1))
    gap = np.flatnonzero(before < lo)
    owners = np.concatenate([keys, keys[gap]])
    starts = np.concatenate([lo, before[gap]])
    ends = np.concatenate([hi, lo[gap]])
    rows = np.concatenate([np.arange(len(keys)), np.full(len(gap), -1)])
    order = np.lexsort((starts, owners))
    return Track(solid, owners[order], starts[order], ends[order], rows[order])


def polynomial_part(segments: Segments, coefs: Floats) -> Part:
    """Return what integrates polynomials of segments over parts of them."""

    def part(places: Indices, start: Ints, stop: Ints) -> Floats:
        integrated = _integrated(segments, coefs, places, start)
        return polynomials.evaluate(integrated, in_seconds(stop - start))

    return part


def _integrated(segments: Segments, coefs: Floats, places: Indices, start: Ints) -> Floats:
    """Return antiderivatives that have their origin, and are 0, at an instant of each."""
    by = in_seconds(start - segments.origin[places])
    return polynomials.antiderivative(polynomials.shifted(coefs[places], by))


def _of(track: Track, part: Part, pieces: Indices, start: Ints, stop: Ints) -> Floats:
    """Return the integral over a part of each of some pieces: 0 over gaps."""
    found = np.zeros(len(pieces))
    rows = track.rows[pieces]
    there = rows >= 0
    found[there] = part(rows[there], start[there], stop[there])
    return found


def _ends(track: Track) -> tuple[Indices, Indices]:
    """Return the first and the last piece of each entity."""
    first = np.flatnonzero(timeline.is_first(track.keys))
    return first, np.append(first[1:], len(track.keys)).astype(np.intp)[: len(first)] - 1


def _windows(track: Track, width_us: int, keys: Ints, at: Ints) -> Windows:
    starts, closing, opening = timeline.codes(
        (track.keys, track.lo), (keys, at), (keys, at - width_us)
    )
    head, tail = timeline.piece_at(starts, closing), timeline.piece_at(starts, opening)
    return Windows(track, width_us, at, head, tail)


def _pieces(segments: Segments, width_us: int) -> tuple[Windows, Ints]:
    """Return the windows at whose closing times the formula changes, and until when it holds."""
    track = track_of(segments, width_us)
    first, last = _ends(track)
    times = np.concatenate([track.lo, track.hi, track.lo + width_us, track.hi + width_us])
    keys = np.tile(track.keys, 4)
    (code,) = timeline.codes((keys, times))
    places = np.unique(code, return_index=True)[1]
    keys, times = keys[places], times[places]
    entity = np.searchsorted(track.keys[first], keys)
    inside = (times >= track.lo[first][entity] + width_us) & (times <= track.hi[last][entity])
    keys, times = keys[inside], times[inside]
    follows = keys[1:] == keys[:-1]
    return _windows(track, width_us, keys[:-1][follows], times[:-1][follows]), times[1:][follows]


def _counted(windows: Windows, *, is_covered: bool) -> Mask:
    """Return the windows that count until the formula changes."""
    found: Mask = (windows.covered == windows.width) & (windows.gains == 0)
    return ((windows.covered > 0) | (windows.gains > 0)) if is_covered else found


def _segments(windows: Windows, hi: Ints, divisor: Floats) -> Segments:
    """Return the integrals over windows as segments from ``windows.at`` on."""
    given = windows.track.segments
    length = in_seconds(hi - windows.at)
    coefs, errors = {}, {}
    for name, each in given.coefs.items():
        coefs[name] = _formulas(windows, each) / divisor[:, None]
        errors[name] = np.zeros(len(hi))
        if given.errors[name].any():
            # An error is constant on a segment: its integral over the window is linear in between.
            bound = _formulas(windows, given.errors[name][:, None])
            errors[name] = np.maximum(bound[:, 0], polynomials.evaluate(bound, length)) / divisor
    none = np.zeros(len(hi), np.bool_)
    keys = windows.track.keys[windows.head]
    return Segments(keys, windows.at, windows.at, hi, none, none.copy(), coefs, errors)


def _formulas(windows: Windows, coefs: Floats) -> Floats:
    """Return the integral over the window as a polynomial of how much later it closes."""
    segments = windows.track.segments
    heads = _moving(windows, coefs, windows.head, windows.at)
    found = heads - _moving(windows, coefs, windows.tail, windows.at - windows.width)
    found[:, 0] += windows.integrals(polynomial_part(segments, coefs))
    return found


def _moving(windows: Windows, coefs: Floats, pieces: Indices, at: Ints) -> Floats:
    """Return what an end of the window has passed since it was at an instant."""
    rows = windows.track.rows[pieces]
    there = rows >= 0
    found = np.zeros((len(pieces), coefs.shape[1] + 1))
    found[there] = _integrated(windows.track.segments, coefs, rows[there], at[there])
    return found


def _samples(windows: Windows, divisor: Floats) -> Samples:
    segments = windows.track.segments
    values = {
        name: windows.integrals(polynomial_part(segments, each)) / divisor
        for name, each in segments.coefs.items()
    }
    # An error is a constant on a segment: that of an integral is the errors' integral.
    errors = {
        name: windows.integrals(polynomial_part(segments, each[:, None])) / divisor
        for name, each in segments.errors.items()
    }
    return Samples(windows.track.keys[windows.head], windows.at, values, errors)

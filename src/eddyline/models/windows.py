"""Sums and averages over sliding windows, as polynomials of the time at which a window closes.

The integral over ``(t - width, t]`` is the tail of the piece in which the window begins, the pieces
in between, and the head of the one in which it closes. Its formula changes where either end passes
from one piece into the next: at most twice as many pieces as there are segments (Pulse 3.7).

A sum over time is an integral: an average is weighted by time, not by rows. A window counts once
segments cover all of it; with ``covered`` it counts as soon as they cover a part, and averages
divide by the covered time. Windows that close in a gap count as others do, also in what is behind
the last segment. Points have no length and count as nothing; tombstones are gaps, and so are
segments without values for the attribute that has none: it has no value where a window does not
count because of them, and nothing is there where no attribute has one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials, timeline
from eddyline.models.columns import Columns
from eddyline.models.sampling import Samples, ticks
from eddyline.models.segments import Segments, in_seconds
from eddyline.models.window_kernels import (
    changes_of,
    sums_before,
    window_formulas,
    window_integrals,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.window_kernels import Closing, Pieces

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
        found = self.pieces
        found[found] = has_values(self.segments.coefs[name])[self.rows[found]]
        return found


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

        def until(places: Indices, at: Ints) -> Ints:
            inside: Ints = before[places] + np.where(pieces[places], at - track.lo[places], 0)
            return inside

        return until(self.head, self.at) - until(self.tail, self.at - self.width)

    @property
    def covered_s(self) -> Floats:
        """How much of each window segments cover, in seconds."""
        return in_seconds(self.covered)

    @property
    def gains(self) -> Ints:
        """By how much what is covered changes in a microsecond: 1, 0 or -1."""
        return self.gains_by(self.track.pieces)

    def gains_by(self, pieces: Mask) -> Ints:
        """Return the same for some of the track's pieces."""
        there = pieces.astype(np.int64)
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

    def polynomial_integrals(self, coefs: Floats) -> Floats:
        """Return the integral over each window of polynomials of the segments, 0 over gaps.

        Args:
            coefs: of each of the track's segments, ``[n, degree + 1]``.
        """
        return window_integrals(*self._given(coefs))

    def formulas(self, coefs: Floats) -> Floats:
        """Return the same as polynomials of how much later a window closes, ``[m, degree + 2]``."""
        return window_formulas(*self._given(coefs))

    def _given(self, coefs: Floats) -> tuple[Floats, Ints, Pieces, Closing, int]:
        track = self.track
        pieces = (track.keys, track.lo, track.hi, track.rows)
        given = np.ascontiguousarray(coefs), np.ascontiguousarray(track.segments.origin)
        return *given, pieces, (self.at, self.head, self.tail), self.width


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
    kept = _counted(windows, windows.track.pieces, is_covered=covered)
    return _segments(windows.take(kept), hi[kept], is_covered=covered, is_average=False)


def windowed_average(segments: Segments, width_us: int, *, covered: bool = False) -> Segments:
    """Return the time-weighted average of each attribute over the window, by its closing time.

    With ``covered`` there is a polynomial only where the covered time does not change while the
    window moves on; ``averages_at`` gives the others at ticks. Arguments as above.
    """
    windows, hi = _pieces(segments, width_us)
    kept = _counted(windows, windows.track.pieces, is_covered=covered)
    return _segments(windows.take(kept), hi[kept], is_covered=covered, is_average=True)


def sums_at(segments: Segments, width_us: int, every_us: int, *, covered: bool = False) -> Samples:
    """Return the integral over the windows that close at ticks, without polynomials for the rest.

    Args:
        segments: as above.
        width_us: as above.
        every_us: the distance of ticks, the multiples of it since 1970, in microseconds.
        covered: as above.
    """
    windows = windows_at(segments, width_us, every_us, covered=covered)
    return _samples(windows, is_covered=covered, is_average=False)


def averages_at(
    segments: Segments, width_us: int, every_us: int, *, covered: bool = False
) -> Samples:
    """Return the average over the windows that close at ticks; arguments as above."""
    windows = windows_at(segments, width_us, every_us, covered=covered)
    return _samples(windows, is_covered=covered, is_average=True)


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
    every = Seen(track.keys[first], track.lo[first] + width_us, track.hi[last])
    if seen is None:  # nothing closes long behind a segment, however long a gap is
        solid = track.segments
        seen = Seen(solid.keys, solid.lo, solid.hi)
    closing = seen.closing(width_us).inside(every)
    rows, times = ticks(closing.lo, closing.hi, every_us)
    windows = _windows(track, width_us, closing.keys[rows], times)
    # A polynomial says what a window will hold from its instant on, a tick what it holds.
    return windows.take((windows.covered > 0) if covered else (windows.covered == width_us))


def has_values(coefs: Floats) -> Mask:
    """Return which segments have values of an attribute: where none has, coefficients are NaN."""
    return np.asarray(~np.isnan(coefs).any(axis=1))


def track_of(segments: Segments, width_us: int) -> Track:
    """Return the segments that have a length, with the gaps before, between and behind them."""
    empty = np.ones(len(segments), np.bool_)
    for each in segments.coefs.values():
        empty &= ~has_values(each)
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


def _of(track: Track, part: Part, pieces: Indices, start: Ints, stop: Ints) -> Floats:
    """Return the integral over a part of each of some pieces: 0 over gaps."""
    found = np.zeros(len(pieces))
    rows = track.rows[pieces]
    there = rows >= 0
    found[there] = part(rows[there], start[there], stop[there])
    return found


def _ends(track: Track) -> tuple[Indices, Indices]:
    """Return the first and the last piece of each entity."""
    first, last = timeline.is_first(track.keys), timeline.is_last(track.keys)
    return np.flatnonzero(first), np.flatnonzero(last)


def _windows(track: Track, width_us: int, keys: Ints, at: Ints) -> Windows:
    starts, closing, opening = timeline.codes(
        (track.keys, track.lo), (keys, at), (keys, at - width_us)
    )
    head, tail = timeline.piece_at(starts, closing), timeline.piece_at(starts, opening)
    return Windows(track, width_us, at, head, tail)


def _pieces(segments: Segments, width_us: int) -> tuple[Windows, Ints]:
    """Return the windows at whose closing times the formula changes, and until when it holds."""
    track = track_of(segments, width_us)
    at, hi, head, tail = changes_of(track.keys, track.lo, track.hi, width_us)
    return Windows(track, width_us, at, head, tail), hi


def _counted(windows: Windows, pieces: Mask, *, is_covered: bool) -> Mask:
    """Return the windows that count until the formula changes, if some pieces are no gaps."""
    time, gains = windows.covered_by(pieces), windows.gains_by(pieces)
    found: Mask = (time == windows.width) & (gains == 0)
    return ((time > 0) | (gains > 0)) if is_covered else found


def _segments(windows: Windows, hi: Ints, *, is_covered: bool, is_average: bool) -> Segments:
    """Return the integrals over windows as segments from ``windows.at`` on."""
    track = windows.track
    length = in_seconds(hi - windows.at)
    coefs, errors = {}, {}
    nothing = np.ones(len(hi), np.bool_)
    for name, each in track.segments.coefs.items():
        pieces = track.valued(name)
        counts = _counted(windows, pieces, is_covered=is_covered)
        divisor = np.ones(len(hi))
        if is_average:
            counts &= windows.gains_by(pieces) == 0
            divisor[counts] = in_seconds(windows.covered_by(pieces)[counts])
        compute = partial(_divided, windows.formulas, divisor[:, None])
        coefs[name] = polynomials.in_range(compute, _without_gaps(each))
        coefs[name][~counts] = np.nan
        nothing &= ~counts
        errors[name] = np.zeros(len(hi))
        given = np.where(has_values(each), track.segments.errors[name], 0.0)
        if given.any():
            # An error is constant on a segment: its integral over the window is linear in between.
            bound = windows.formulas(given[:, None])
            errors[name] = np.maximum(bound[:, 0], polynomials.evaluate(bound, length)) / divisor
            errors[name][~counts] = 0.0
    none = np.zeros(len(hi), np.bool_)
    keys = track.keys[windows.head]
    made = Segments(keys, windows.at, windows.at, hi, none, none.copy(), coefs, errors)
    return made.take(~nothing) if coefs else made


def _divided(formula: Callable[[Floats], Floats], divisor: Floats | float, coefs: Floats) -> Floats:
    """Apply a formula to coefficients, and divide the results."""
    return formula(coefs) / divisor


def _samples(windows: Windows, *, is_covered: bool, is_average: bool) -> Samples:
    track = windows.track
    values, errors = {}, {}
    nothing = np.ones(len(windows.at), np.bool_)
    for name, each in track.segments.coefs.items():
        time = windows.covered_by(track.valued(name))
        counts = (time > 0) if is_covered else (time == windows.width)
        divisor = np.where(counts, in_seconds(time), 1.0) if is_average else 1.0
        compute = partial(_divided, windows.polynomial_integrals, divisor)
        found = polynomials.in_range(compute, _without_gaps(each))
        values[name] = np.where(counts, found, np.nan)
        # An error is a constant on a segment: that of an integral is the errors' integral.
        valued = np.where(has_values(each), track.segments.errors[name], 0.0)
        errors[name] = windows.polynomial_integrals(valued[:, None]) / divisor
        nothing &= ~counts
    kept = ~nothing if values else np.ones(len(windows.at), np.bool_)
    keys = track.keys[windows.head][kept]
    taken = [{name: each[kept] for name, each in every.items()} for every in (values, errors)]
    return Samples(keys, windows.at[kept], *taken)


def _without_gaps(coefs: Floats) -> Floats:
    """Return coefficients that are 0 where there is no value: nothing, as gaps are."""
    valued = has_values(coefs)
    return coefs if valued.all() else np.where(valued[:, None], coefs, 0.0)

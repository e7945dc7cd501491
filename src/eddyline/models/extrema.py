"""Least and greatest values: of several entities at an instant, and of one over a window.

The least or greatest of polynomials is an envelope: at each instant a piece of one of them
(Pulse 3.6). Points have no length and are left out; so are tombstones, and segments without values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials, timeline
from eddyline.models.envelopes import Functions, Pieces, extreme
from eddyline.models.extrema_kernels import least_at
from eddyline.models.sampling import Samples
from eddyline.models.segments import MICROS, Segments, in_seconds

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints, Mask


@dataclass(frozen=True)
class Envelope:
    """The extreme of several entities at each instant.

    Attributes:
        segments: one attribute; the keys are groups.
        rows: the segment that each is a piece of, by its place in what was given, ``[n]``.
    """

    segments: Segments
    rows: Indices


def envelope(
    segments: Segments, attribute: str, *, largest: bool, groups: Ints | None = None
) -> Envelope:
    """Return the greatest or least value of an attribute over entities at each instant.

    Args:
        segments: those of one entity do not overlap.
        attribute: what is compared.
        largest: the greatest, or the least.
        groups: for each segment a dense id of what the extreme is taken of; None is one for all.
    """
    given = np.zeros(len(segments), np.int64) if groups is None else groups
    solid = np.flatnonzero(_valued(segments, attribute))
    functions = Functions(segments.origin, segments.coefs[attribute])
    pieces = Pieces(
        given, segments.keys, np.arange(len(segments)), segments.lo, segments.hi,
        segments.errors[attribute],
    ).take(solid)  # fmt: skip
    found = extreme(functions, pieces, largest=largest)
    return Envelope(_segments(functions, found, attribute), found.rows)


def windowed_extremum(
    segments: Segments, attribute: str, width_us: int, *, largest: bool
) -> Segments:
    """Return the greatest or least value of the last ``width_us``, by the window's closing time.

    It is the extreme of the value now, the value a window ago, and each value at which the curve
    turns or jumps, for as long as the window sees it. The result begins and ends with its entity's
    segments; a window that they do not fill takes what there is.

    Args:
        segments: those of one entity do not overlap; an envelope is one, too.
        attribute: what is compared.
        width_us: how long the window ``(t - width, t]`` is, in microseconds, more than 0.
        largest: the greatest, or the least.
    """
    solid = _ordered(segments, attribute)
    now = _curve(solid, attribute)
    ago = (replace(now[0], origin=now[0].origin + width_us), _later(now[1], width_us))
    functions, pieces = _together([now, ago, _turning(solid, attribute, width_us)])
    found = _within(extreme(functions, pieces, largest=largest), solid)
    return _segments(functions, found, attribute)


def extrema_at(
    segments: Segments, attribute: str, width_us: int, every_us: int, *, largest: bool
) -> Samples:
    """Return the greatest or least value of the windows that close at ticks.

    The values of ``windowed_extremum`` at these instants, without an envelope for all the others;
    a segment costs the same however long windows are.

    Args:
        segments: as above.
        attribute: as above.
        width_us: as above.
        every_us: the distance of ticks, the multiples of it since 1970, in microseconds.
        largest: as above.
    """
    solid = _ordered(segments, attribute)
    sign = -1.0 if largest else 1.0
    coefs = polynomials.shifted(solid.coefs[attribute], solid.seconds(solid.lo)) * sign
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
        found = least_at(starts, solid.lo, solid.hi, lowest, never, width_us, every_us)
        errors = -found[2]
    keys = solid.keys[starts[owners]]
    return Samples(keys, times, {attribute: values * sign}, {attribute: errors})


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
    found: Mask = segments.solid & ~np.isnan(segments.coefs[attribute]).any(axis=1)
    return found


def _segments(functions: Functions, pieces: Pieces, attribute: str) -> Segments:
    none = np.zeros(len(pieces.rows), np.bool_)
    return Segments(
        pieces.groups, functions.origin[pieces.rows], pieces.lo, pieces.hi, none, none.copy(),
        {attribute: functions.coefs[pieces.rows]}, {attribute: pieces.errors},
    )  # fmt: skip


def _curve(segments: Segments, attribute: str) -> tuple[Functions, Pieces]:
    """Return the segments as one curve of each entity."""
    n = len(segments)
    functions = Functions(segments.origin, segments.coefs[attribute])
    pieces = Pieces(
        segments.keys, np.zeros(n, np.int64), np.arange(n), segments.lo, segments.hi,
        segments.errors[attribute],
    )  # fmt: skip
    return functions, pieces


def _later(pieces: Pieces, by: int) -> Pieces:
    return replace(pieces, curves=pieces.curves + 1, lo=pieces.lo + by, hi=pieces.hi + by)


def _turning(segments: Segments, attribute: str, width_us: int) -> tuple[Functions, Pieces]:
    """Return a constant for each end and turning point, as long as a window sees it."""
    rows, at, values = _turns(segments, attribute)
    order = np.lexsort((at, segments.keys[rows]))
    rows, at, values = rows[order], at[order], values[order]
    keys = segments.keys[rows]
    # Constants last equally long: if at most m overlap, every m-th may be of one curve.
    starts, before = timeline.codes((keys, at), (keys, at - width_us))
    seen = np.arange(len(at)) - timeline.piece_at(starts, before)
    curves = np.arange(len(at)) % max(int(seen.max(initial=1)), 1) + 2
    coefs = np.zeros((len(at), segments.coefs[attribute].shape[1]))
    coefs[:, 0] = values
    errors = segments.errors[attribute][rows]
    pieces = Pieces(keys, curves, np.arange(len(at)), at, at + width_us, errors)
    return Functions(at, coefs), pieces


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


def _together(curves: list[tuple[Functions, Pieces]]) -> tuple[Functions, Pieces]:
    """Return curves of several tables of functions as of one."""
    counts = [len(functions.origin) for functions, _ in curves]
    firsts = np.cumsum([0, *counts[:-1]])
    functions = Functions(
        np.concatenate([each.origin for each, _ in curves]),
        np.concatenate([each.coefs for each, _ in curves]),
    )
    pieces = [
        replace(each, rows=each.rows + first)
        for (_, each), first in zip(curves, firsts, strict=True)
    ]
    return functions, Pieces.joined(pieces)


def _within(pieces: Pieces, segments: Segments) -> Pieces:
    """Return pieces between the first and the last instant of their entity's segments."""
    if not len(segments):
        return pieces
    first = timeline.is_first(segments.keys)
    last = np.append(first[1:], True)
    place = np.searchsorted(segments.keys[first], pieces.groups)
    lo = np.maximum(pieces.lo, segments.lo[first][place])
    hi = np.minimum(pieces.hi, segments.hi[last][place])
    return replace(pieces, lo=lo, hi=hi).take(lo < hi)

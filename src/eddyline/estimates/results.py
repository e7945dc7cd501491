"""Estimates of results: pairs of joined segments, and segments of aggregates.

``overlaps`` estimates how many pairs of segments overlap in time, ``share_of_pairs`` on what share
of them a comparison holds. ``share_of_maximum`` estimates on what share of its segments an entity
has the greatest value, ``stays_constant`` how often the maximum of a window stays as the window
moves, and ``n_sums`` how many segments a sum over entities has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.estimates.filters import INSTANTS, Estimate, Parts, pairs_below, spread_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices
    from eddyline.estimates.histograms import CoefHistogram

MAX_SIDE_CELLS = 150
"""Cells of each side: their pairs are looked at."""

MAX_PAIRS = 20_000
"""Pairs of cells that are computed at once."""


def overlaps(n_one: float, n_other: float, *, is_aligned: bool) -> float:
    """Return how many pairs of segments overlap that tile the same time (E6).

    Args:
        n_one: segments of one side.
        n_other: segments of the other side.
        is_aligned: whether segments of both sides begin and end at the same instants.
    """
    if min(n_one, n_other) <= 0.0:
        return 0.0
    return min(n_one, n_other) if is_aligned else max(n_one + n_other - 1.0, 0.0)


def share_of_pairs(
    one: CoefHistogram, other: CoefHistogram, *, is_aligned: bool, max_cells: int = MAX_SIDE_CELLS
) -> Estimate:
    """Return on what share of overlapping pairs ``one < other`` holds somewhere.

    Args:
        one: the left side, with at least one segment.
        other: the right side.
        is_aligned: whether segments of both sides begin and end at the same instants.
        max_cells: of each side; the time goes by their square.
    """
    one, other = one.within(max_cells), other.within(max_cells)
    left, right = (places.ravel() for places in np.indices((len(one), len(other))))
    sums = np.zeros(4)
    for start in range(0, len(left), MAX_PAIRS):
        rows = slice(start, start + MAX_PAIRS)
        sums += _pairs(one, other, left[rows], right[rows], is_aligned=is_aligned)
    value, low, high = sums[:3] / max(float(sums[3]), 1e-300)
    return Estimate(float(value), float(low), float(min(high, 1.0)))


def _pairs(
    one: CoefHistogram, other: CoefHistogram, left: Indices, right: Indices, *, is_aligned: bool
) -> Floats:
    """Return of pairs of cells in how many results they are, at least, at most, and all of them."""
    lengths = one.length[left], other.length[right]
    shorter = np.minimum(*lengths)
    # Pairs overlap as often as the edges of one are in the other.
    overlap = shorter if is_aligned else lengths[0] + lengths[1]
    counts = one.counts[left] * other.counts[right] * np.where(overlap > 0.0, overlap, 1e-9)
    parts = _parts(one, other, left, right, shorter)
    unsure, value = counts @ (1.0 - parts.sure), counts @ parts.any
    return np.array([value, max(0.0, value - unsure), value + unsure, counts.sum()])


def _parts(
    one: CoefHistogram, other: CoefHistogram, left: Indices, right: Indices, length: Floats
) -> Parts:
    if max(one.size, other.size) <= 2:
        first, second = _boxes(one, 2), _boxes(other, 2)
        return pairs_below(
            (first[0][left], first[1][left]), (second[0][right], second[1][right]), length
        )
    size = max(one.size, other.size)
    first, second = _boxes(one, size), _boxes(other, size)
    low, high = (np.concatenate([first[end][left], second[end][right]], axis=1) for end in (0, 1))
    points = spread_over(low, high)
    apart = (points[..., :size] - points[..., size:]) * length[:, None, None] ** np.arange(size)
    is_below = apart @ (np.linspace(0, 1, INSTANTS) ** np.arange(size)[:, None]) < 0.0
    whole, none = is_below.all(axis=2).mean(axis=1), (~is_below).all(axis=2).mean(axis=1)
    return Parts(whole, none, whole + none)


def _boxes(histogram: CoefHistogram, size: int) -> tuple[Floats, Floats]:
    """Return the least and the greatest coefficients of each cell, of so many powers of seconds."""
    length = np.where(histogram.length > 0.0, histogram.length, np.inf)[:, None]
    per_second = length ** -np.arange(histogram.size, dtype=float)
    more = (0, 0), (0, size - histogram.size)
    return np.pad(histogram.low * per_second, more), np.pad(histogram.high * per_second, more)


def share_of_maximum(
    histograms: Sequence[CoefHistogram], place: int, n_entities: float | None = None
) -> float:
    """Return on what share of an entity's segments it has the greatest value of all, in the middle.

    It has to beat *each* other entity, so chances multiply (E10).

    Args:
        histograms: for each entity its segments, at least one.
        place: the entity.
        n_entities: how many entities there are, for all of which those that are given stand; None:
            there are no others.
    """
    low, high = _middle(histograms[place])
    shares = histograms[place].counts / histograms[place].total
    # Points of each cell, as chances of beating several do not multiply by cell.
    points = (np.arange(8) + 0.5) / 8
    values = low[:, None] + points * (high - low)[:, None]
    chance = np.ones_like(values)
    for other, histogram in enumerate(histograms):
        if other != place:
            chance *= _chance_below(histogram, values)
    if n_entities is not None and len(histograms) > 1:
        chance **= max(n_entities - 1.0, 1.0) / (len(histograms) - 1)
    return float(shares @ chance.mean(axis=1))


def _middle(histogram: CoefHistogram) -> tuple[Floats, Floats]:
    """Return the least and the greatest value in the middle of the segments of each cell."""
    powers = 0.5 ** np.arange(histogram.size)
    return (histogram.low * powers).sum(axis=1), (histogram.high * powers).sum(axis=1)


def _chance_below(histogram: CoefHistogram, values: Floats) -> Floats:
    """Return how likely a segment is below each value, half of it where it is the same."""
    low, high = _middle(histogram)
    width = high - low
    room = values[..., None] - low
    fixed = np.where(room == 0.0, 0.5, room > 0.0)
    share = np.where(width > 0.0, np.clip(room / np.where(width > 0.0, width, 1.0), 0, 1), fixed)
    chances: Floats = share @ (histogram.counts / histogram.total)
    return chances


def stays_constant(n: float) -> float:
    """Return how often the maximum of a window of so many segments stays as the window moves.

    What leaves was not the maximum, and what comes in is not: of ``n + 1`` values in any order
    neither the first nor the last is the greatest (E11).
    """
    return max(0.0, (n - 1) / (n + 1))


def n_sums(n_segments: float, n_entities: float, *, is_aligned: bool) -> float:
    """Return how many segments a sum over entities has whose segments tile the same time.

    Args:
        n_segments: of all entities together.
        n_entities: at least 1.
        is_aligned: whether all begin and end at the same instants.
    """
    return n_segments / n_entities if is_aligned else max(n_segments - n_entities + 1.0, 0.0)

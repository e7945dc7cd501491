"""Estimates of joins of segments: pairs that overlap in time and keep to a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.estimates.filters import Estimate
from eddyline.estimates.volumes import INSTANTS, Parts, pairs_below, spread_over

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices
    from eddyline.estimates.histograms import CoefHistogram

MAX_CELLS = 150
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


def share(
    one: CoefHistogram, other: CoefHistogram, *, is_aligned: bool, max_cells: int = MAX_CELLS
) -> Estimate:
    """Return on what share of overlapping pairs ``one < other`` holds somewhere.

    Args:
        one: the left side, with at least one segment.
        other: the right side.
        is_aligned: whether segments of both sides begin and end at the same instants.
        max_cells: of each side; the time goes by their square.
    """
    one, other = one.within(max_cells), other.within(max_cells)
    left, right = (each.ravel() for each in np.indices((len(one), len(other))))
    found = np.zeros(4)
    for start in range(0, len(left), MAX_PAIRS):
        rows = slice(start, start + MAX_PAIRS)
        found += _pairs(one, other, left[rows], right[rows], is_aligned=is_aligned)
    value, low, high = found[:3] / max(float(found[3]), 1e-300)
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


def _boxes(given: CoefHistogram, size: int) -> tuple[Floats, Floats]:
    """Return the least and the greatest coefficients of each cell, of so many powers of seconds."""
    length = np.where(given.length > 0.0, given.length, np.inf)[:, None]
    per_second = length ** -np.arange(given.size, dtype=float)
    more = (0, 0), (0, size - given.size)
    return np.pad(given.low * per_second, more), np.pad(given.high * per_second, more)

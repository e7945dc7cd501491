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


def join(
    one: CoefHistogram,
    other: CoefHistogram,
    period: float,
    *,
    is_aligned: bool,
    n_keys: float = 1.0,
) -> Estimate:
    """Return how many segments ``one < other`` gives for each that comes in on either side.

    Args:
        one: the left side, counted over a period, with at least one segment.
        other: the right side.
        period: how long that was (s).
        is_aligned: whether segments of both sides begin and end at the same instants.
        n_keys: how many entities there are, of equally many segments; only equal ones join.
    """
    one, other = one.within(MAX_CELLS), other.within(MAX_CELLS)
    left, right = (each.ravel() for each in np.indices((len(one), len(other))))
    found = np.zeros(3)
    for start in range(0, len(left), MAX_PAIRS):
        rows = slice(start, start + MAX_PAIRS)
        found += _pairs(one, other, left[rows], right[rows], period, is_aligned=is_aligned)
    total = one.total + other.total
    value, low, high = found / (n_keys * total)
    return Estimate(float(value), float(low), float(high))


def _pairs(
    one: CoefHistogram,
    other: CoefHistogram,
    left: Indices,
    right: Indices,
    period: float,
    *,
    is_aligned: bool,
) -> Floats:
    """Return how many results pairs of cells give, at least and at most."""
    lengths = one.length[left], other.length[right]
    shorter = np.minimum(*lengths)
    # Segments that tile the same time have as many overlaps as edges of either (E6).
    overlap = (
        shorter / period if is_aligned else np.minimum(1.0, (lengths[0] + lengths[1]) / period)
    )
    counts = one.counts[left] * other.counts[right] * overlap
    parts = _parts(one, other, left, right, shorter)
    unsure = counts @ (1.0 - parts.sure)
    value = counts @ parts.any
    return np.array([value, max(0.0, value - unsure), value + unsure])


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

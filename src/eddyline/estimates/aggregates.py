"""Estimates of aggregates: which entity has the extreme value, how long it stays, what sums are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.signal import fftconvolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.estimates.histograms import CoefHistogram


def share_of_maximum(given: Sequence[CoefHistogram], at: int) -> float:
    """Return on what share of an entity's segments it has the greatest value of all, in the middle.

    It has to beat *each* other entity, so chances multiply (E10).

    Args:
        given: for each entity its segments, at least one.
        at: the entity.
    """
    low, high = _middle(given[at])
    own = given[at].counts / given[at].total
    # Points of each cell, as chances of beating several do not multiply by cell.
    points = (np.arange(8) + 0.5) / 8
    values = low[:, None] + points * (high - low)[:, None]
    chance = np.ones_like(values)
    for other, each in enumerate(given):
        if other != at:
            chance *= _chance_below(each, values)
    return float(own @ chance.mean(axis=1))


def _middle(given: CoefHistogram) -> tuple[Floats, Floats]:
    """Return the least and the greatest value in the middle of the segments of each cell."""
    powers = 0.5 ** np.arange(given.size)
    return (given.low * powers).sum(axis=1), (given.high * powers).sum(axis=1)


def _chance_below(given: CoefHistogram, values: Floats) -> Floats:
    """Return how likely a segment is below each value, half of it where it is the same."""
    low, high = _middle(given)
    width = high - low
    room = values[..., None] - low
    fixed = np.where(room == 0.0, 0.5, room > 0.0)
    share = np.where(width > 0.0, np.clip(room / np.where(width > 0.0, width, 1.0), 0, 1), fixed)
    found: Floats = share @ (given.counts / given.total)
    return found


def stays_constant(n: int) -> float:
    """Return how often the maximum of a window of so many segments stays as the window moves.

    What leaves was not the maximum, and what comes in is not: of ``n + 1`` values in any order
    neither the first nor the last is the greatest (E11).
    """
    return max(0.0, (n - 1) / (n + 1))


def constant_for(n: int, stays: float, step: float) -> float:
    """Return for how long a maximum stays on average, at most ``n`` steps (s).

    Args:
        n: steps of a window.
        stays: how likely it stays from one step to the next ([0, 1]).
        step: how long a step is (s).
    """
    i = np.arange(1, n + 1)
    return float(step * ((i - 1) * stays ** (i - 1) * (1 - stays)).sum())


def convolved(distributions: Sequence[Floats]) -> Floats:
    """Return the distribution of the sum of independent numbers on a common grid (E13).

    Args:
        distributions: chances of 0, 1, 2, … steps of the grid, each adding up to 1.
    """
    total = np.ones(1)
    for each in distributions:
        total = np.clip(fftconvolve(total, each), 0.0, None)
    found: Floats = total / total.sum()
    return found


def n_sums(counts: Sequence[float], *, is_aligned: bool) -> float:
    """Return how many segments a sum over entities has whose segments tile the same time.

    Args:
        counts: segments of each entity.
        is_aligned: whether all begin and end at the same instants.
    """
    return max(counts) if is_aligned else sum(counts) - len(counts) + 1


def on_grid(given: CoefHistogram, step: float, origin: float = 0.0) -> Floats:
    """Return the distribution of mean values of segments on a grid, as ``convolved`` takes it.

    Args:
        given: at least one segment.
        step: of the grid, in the unit of values.
        origin: where it begins; values below it count as there.
    """
    powers = 1.0 / np.arange(1, given.size + 1)
    low, high = ((each * powers).sum(axis=1) for each in (given.low, given.high))
    at = (low[:, None] + ((np.arange(8) + 0.5) / 8) * (high - low)[:, None] - origin) / step
    places = np.maximum(np.rint(at), 0).astype(np.int64)
    weights = np.broadcast_to(given.counts[:, None] / (8 * given.total), places.shape)
    return np.bincount(places.ravel(), weights.ravel()).astype(float)

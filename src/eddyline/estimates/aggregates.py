"""Estimates of aggregates: which entity has the extreme value, for how long, how many sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats
    from eddyline.estimates.histograms import CoefHistogram


def share_of_maximum(
    given: Sequence[CoefHistogram], at: int, n_entities: float | None = None
) -> float:
    """Return on what share of an entity's segments it has the greatest value of all, in the middle.

    It has to beat *each* other entity, so chances multiply (E10).

    Args:
        given: for each entity its segments, at least one.
        at: the entity.
        n_entities: how many entities there are, for all of which those that are given stand; None:
            there are no others.
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
    if n_entities is not None and len(given) > 1:
        chance **= max(n_entities - 1.0, 1.0) / (len(given) - 1)
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

"""Rows out of segments: their values on a grid of instants, or where they begin and end.

Ticks are the multiples of a length since 1970, so that they do not depend on where segments begin
(Pulse 2.5, 3.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import polynomials, timeline
from eddyline.models.segments import in_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.models.segments import Segments


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
            {name: each[rows] for name, each in given.items()}
            for given in (self.values, self.errors)
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
        name: polynomials.evaluate(each[rows], since) for name, each in segments.coefs.items()
    }
    errors = {name: each[rows] for name, each in segments.errors.items()}
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
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(order)) - 1 if len(order) else first
    is_alone = (first == last) & segments.is_point[order][first]
    ends = np.where(is_alone, lo[first], end[last])
    return Changes(at_instants(segments, order[first], lo[first]), ends)

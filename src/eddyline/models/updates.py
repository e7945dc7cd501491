"""What is left of segments after later ones: the newest word on each instant counts.

Results are solved again for a range, and tombstones say that there is nothing any more. So a later
segment overrides others where it is, and these go on behind it unless a tombstone says that they do
not (Pulse 2.3 has them end there; a model that ends early would take back what it does not know).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import timeline
from eddyline.models.envelopes import Functions, Pieces, extreme
from eddyline.models.solving import Ranges

if TYPE_CHECKING:
    from eddyline.data.arrays import Ints
    from eddyline.models.segments import Segments


def newest(segments: Segments, version: Ints) -> Segments:
    """Return what segments say that were written one after the other, by entity and time.

    At each instant the row counts that covers it and has the greatest version; of one version a
    segment counts before a tombstone. Where that is a tombstone, there is nothing.

    Args:
        segments: segments and tombstones of any entities, in any order. Segments of one entity and
            version do not overlap, but for those that are the same; tombstones may.
        version: numbers that rise as segments are written, ``[n]``.
    """
    if not overlap(segments.keys, segments.lo, segments.ends):
        return living(segments).ordered
    order = np.lexsort((~segments.is_tombstone, version))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    values = np.unique(version, return_inverse=True)[1].astype(np.int64)
    arrival = 2 * values + ~segments.is_tombstone
    (curves,) = timeline.codes((segments.keys, arrival))
    dense = np.unique(curves, return_inverse=True)[1].astype(np.int64)
    # What was written twice, or taken back twice, arrives one behind the other.
    is_twice = overlap(dense, segments.lo, segments.ends)
    return living(latest(segments, rank if is_twice else arrival))


def overlap(groups: Ints, lo: Ints, ends: Ints) -> bool:
    """Return whether two ranges of one group overlap.

    Args:
        groups: dense ids, ``[n]``.
        lo: where ranges begin (µs), in any order, ``[n]``.
        ends: where they end, exclusive, ``[n]``.
    """
    if not len(groups):
        return False
    starts, stops = timeline.codes((groups, lo), (groups, ends))
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(stops[order])
    return bool((reached[:-1] > starts[order[1:]]).any())


def latest(segments: Segments, arrival: Ints) -> Segments:
    """Return at each instant what arrived last there, in the order of entities and time.

    Args:
        segments: results and tombstones; of one entity and arrival they do not overlap.
        arrival: numbers that rise as segments arrive, ``[n]``.
    """
    numbers = np.unique(arrival, return_inverse=True)[1].astype(np.int64)
    functions = Functions(segments.lo, numbers[:, None].astype(np.float64))
    rows = np.arange(len(segments))
    nothing = np.zeros(len(segments))
    pieces = Pieces(segments.keys, numbers, rows, segments.lo, segments.ends, nothing)
    found = extreme(functions, pieces, largest=True)
    made = segments.take(found.rows).cut(found.lo, found.hi)
    return made.cut(made.lo, np.where(made.is_point, made.lo, made.hi))


def living(segments: Segments) -> Segments:
    """Return segments without tombstones: what a reader sees."""
    return segments.take(~segments.is_tombstone)


def with_retractions(segments: Segments, found: Ranges) -> Segments:
    """Return solutions and a tombstone for each stretch of a segment that has none.

    What a selective operator gives for segments that replace others: results that it gave before
    and that are none any more are overridden by nothing else.

    Args:
        segments: what was solved.
        found: where the condition holds.
    """
    ends = np.where(found.is_point, found.lo + 1, found.hi)
    rows = np.arange(len(segments))
    after, before = np.concatenate([rows, found.rows]), np.concatenate([found.rows, rows])
    starts, stops = (
        np.concatenate([segments.lo, ends]),
        np.concatenate([found.lo, segments.ends]),
    )
    # Each stretch begins where the segment or a solution ended, and ends where the next one begins.
    first, last = np.lexsort((starts, after)), np.lexsort((stops, before))
    rows, lo, hi = after[first], starts[first], stops[last]
    kept = lo < hi
    nowhere = Ranges(rows[kept], lo[kept], hi[kept], np.zeros(int(kept.sum()), np.bool_))
    together = Ranges.joined([found, nowhere])
    order = np.lexsort((together.lo, together.rows))
    made = together.take(order).of(segments)
    is_none = np.arange(len(order)) >= len(found.rows)
    return replace(made, is_tombstone=made.is_tombstone | is_none[order])

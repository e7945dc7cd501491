"""What is left of segments after later ones: the views of models and of results that are replaced.

Models arrive in the order in which they begin, and a new one says that the old one is wrong from
there on (Pulse 2.3). Results are solved again for a range, and the newest word on an instant
counts: tombstones say that there is nothing any more.
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


def overridden(segments: Segments, arrival: Ints) -> Segments:
    """Return models as their successors leave them, in the order of entities and time.

    A segment ends where the next one of its entity begins, even if that one is shorter. Next is by
    start, and by arrival among equal starts: so one that comes late covers only what no later
    start has taken. Tombstones take part, and stay.

    Args:
        segments: models of any entities, in any order.
        arrival: numbers that rise as segments arrive, ``[n]``.
    """
    order = np.lexsort((arrival, segments.lo, segments.keys))
    ordered = segments.take(order)
    hi = ordered.hi.copy()
    follows = ~timeline.is_first(ordered.keys)[1:]
    hi[:-1][follows] = np.minimum(hi[:-1], ordered.lo[1:])[follows]
    # A point is over at once, but not if another segment begins with it.
    taken = np.zeros(len(hi), np.bool_)
    taken[:-1] = follows & (ordered.lo[1:] == ordered.lo[:-1])
    kept = (ordered.lo < hi) | (ordered.is_point & ~taken)
    return ordered.cut(ordered.lo, hi).take(kept)


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

"""How far the results of a graph are final: until when no later segment changes them, by entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import graph
from eddyline.models.rows import Keyed
from eddyline.models.streaming import NEVER, spans_gaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.data.arrays import Ints
    from eddyline.models.segments import Segments
    from eddyline.models.steps import Rows


def frontier_of(
    node: graph.Node, inputs: Sequence[Ints], found: Mapping[int, Keyed | Rows]
) -> Ints:
    """Return the instant before which the results of each entity are final (µs).

    A window that may close in a gap is told when the segment behind the gap is there.

    Args:
        node: the graph.
        inputs: the instant before which all segments of each entity are there, by input, ``[n]``.
        found: what came out of each part, by its id; see ``graph.every``.
    """
    fronts: dict[int, Ints] = {}
    for each in graph.parts(node):
        match each:
            case graph.Input(at):
                front = inputs[at]
            case graph.Unary(step, of):
                front = fronts[id(of)]
                given = found[id(of)]
                if spans_gaps(step) and isinstance(given, Keyed):
                    front = np.minimum(front, last_ends(given.segments, len(front)))
            case graph.SameEntity(left, right):
                front = np.minimum(fronts[id(left)], fronts[id(right)])
        fronts[id(each)] = front
    return fronts[id(node)]


def last_ends(segments: Segments, n: int) -> Ints:
    """Return where the last segment of each entity ends, ``NEVER`` if it has none, ``[n]``."""
    ends = np.full(n, NEVER)
    np.maximum.at(ends, segments.keys, segments.hi)
    return ends


def whole_until(segments: Segments, front: Ints) -> Ints:
    """Return instants moved back to the start of the segment that is not over there.

    Args:
        segments: those of one entity do not overlap.
        front: an instant of each entity (µs), ``[entities]``.
    """
    rows = segments.ends > front[segments.keys]
    found = front.copy()
    np.minimum.at(found, segments.keys[rows], segments.lo[rows])
    return found

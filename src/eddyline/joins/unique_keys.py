"""Keys of inputs: columns of which no two rows have one value while both are in their window.

They make equalities many-one, as the edges of a join graph of [Babu05 6.2]: a row has one partner
at most in an input whose key it is compared with. What follows holds for any join graph, one with
cycles included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import pyarrow as pa

    from eddyline.joins.graph import JoinGraph


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A column that was declared to be the key of a stream."""

    stream: str
    column: str
    key: int
    """The key class that it is in."""
    kind: pa.DataType | None
    """Type of its values, which codes are; None where codes are hashes of them."""
    is_local: bool = False
    """Whether event times of the stream are readings of wall clocks, in no time zone."""


def covers(graph: JoinGraph, keys: Mapping[str, Collection[int]]) -> frozenset[str]:
    """Return the inputs of which a row is in one result at most: each is a cover by itself.

    Args:
        graph: the join.
        keys: by input, the key classes of which no two of its rows have the same code.
    """
    return frozenset(name for name in graph.inputs if _reached(graph, name, keys))


def _reached(graph: JoinGraph, name: str, keys: Mapping[str, Collection[int]]) -> bool:
    """Return whether every other input is found from a row by keys alone."""
    found, known = {name}, {*graph.classes_of[name]}
    while len(found) < len(graph.inputs):
        more = [
            each
            for each in graph.inputs
            if each not in found and not known.isdisjoint(keys.get(each, ()))
        ]
        if not more:
            return False
        found.update(more)
        known.update(key for each in more for key in graph.classes_of[each])
    return True


def uncut_classes(graph: JoinGraph, keys: Iterable[tuple[str, int]]) -> frozenset[int]:
    """Return the key classes by which rows may not be cut, so that equal keys are in one bucket.

    Args:
        graph: the join.
        keys: inputs and the class of the key of each.
    """
    return frozenset(
        other for name, key in keys for other in graph.classes_of[name] if other != key
    )

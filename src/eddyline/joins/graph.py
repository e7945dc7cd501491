"""Graph of a join: inputs, key classes, and many-one keys.

A key class is a set of columns that the condition makes equal. A class holds the columns that are
equal in every result. A key is a column of which no two rows of its input have one value while both
are in their window. Keys make equalities many-one, as the edges of a join graph of [Babu05 6.2]: a
row has one partner at most in an input whose key it is compared with. What is said of keys holds
for any join graph, one with cycles included.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa


@dataclass(frozen=True)
class JoinGraph:
    """The equalities of a join after their transitive closure.

    Equalities that hang together make one *key class*: all its columns have the same value in every
    result. An input has at most one code in a class; where two of its columns are in one, they were
    compared before.
    """

    inputs: tuple[str, ...]
    """The joined inputs by name, in the order in which they were written."""
    classes: tuple[frozenset[str], ...]
    """The inputs that have a column in each key class."""

    def __post_init__(self) -> None:
        """Refuse a join that has a Cartesian product in it.

        Raises:
            NotSupportedError: some inputs are not connected with the others.
        """
        reached = {self.inputs[0]}
        while more := self.reachable(reached):
            reached |= more
        if apart := [name for name in self.inputs if name not in reached]:
            msg = (
                f"no equality connects {', '.join(apart)} with {', '.join(sorted(reached))}; "
                f"a join without one is a Cartesian product, which is not supported"
            )
            raise NotSupportedError(msg, inputs=tuple(apart))

    @cached_property
    def classes_of(self) -> dict[str, tuple[int, ...]]:
        """The classes that each input has a code in, ascending."""
        return {
            name: tuple(k for k, members in enumerate(self.classes) if name in members)
            for name in self.inputs
        }

    def links(self, bound: Iterable[str], other: str) -> tuple[int, ...]:
        """Return the classes that an input has in common with inputs that are joined already."""
        bound_keys = {k for name in bound for k in self.classes_of[name]}
        return tuple(k for k in self.classes_of[other] if k in bound_keys)

    def reachable(self, bound: Iterable[str]) -> set[str]:
        """Return the inputs that can be joined next without a Cartesian product."""
        have = set(bound)
        return {name for name in self.inputs if name not in have and self.links(have, name)}

    def is_legal(self, first: str, order: Sequence[str]) -> bool:
        """Return whether an order of the other inputs never needs a Cartesian product."""
        others = set(self.inputs) - {first}
        return set(order) == others and all(
            self.links((first, *order[:position]), name) for position, name in enumerate(order)
        )


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

    ``keys`` are by input the key classes of which no two of its rows have the same code.
    """
    return frozenset(name for name in graph.inputs if _reached(graph, name, keys))


def _reached(graph: JoinGraph, name: str, keys: Mapping[str, Collection[int]]) -> bool:
    """Return whether every other input is found from a row by keys alone."""
    reached, classes = {name}, {*graph.classes_of[name]}
    while len(reached) < len(graph.inputs):
        more = [
            other
            for other in graph.inputs
            if other not in reached and not classes.isdisjoint(keys.get(other, ()))
        ]
        if not more:
            return False
        reached.update(more)
        classes.update(key for other in more for key in graph.classes_of[other])
    return True


def uncut_classes(graph: JoinGraph, keys: Iterable[tuple[str, int]]) -> frozenset[int]:
    """Return the key classes by which rows may not be cut, so that equal keys are in one bucket.

    ``keys`` are inputs, and the class of the key of each.
    """
    return frozenset(
        other for name, key in keys for other in graph.classes_of[name] if other != key
    )

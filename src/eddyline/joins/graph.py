"""The graph of a join: inputs, and the classes of columns that are equal in every result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
        known = {k for name in bound for k in self.classes_of[name]}
        return tuple(k for k in self.classes_of[other] if k in known)

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

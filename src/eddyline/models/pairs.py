"""Pairs of different entities, as a step whose work is cut into cells.

Entities are in groups, and a cell has the pairs of two groups: each pair is in one cell, and a cell
needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.models import joins
from eddyline.models.one_sided import UNTOLD, Asking
from eddyline.models.rows import Keyed, in_key_order, plain
from eddyline.models.steps import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Ints
    from eddyline.models.conditions import Condition
    from eddyline.models.joins import Joined
    from eddyline.models.one_sided import Tally
    from eddyline.models.segments import Segments

CELL = "__cell"
"""The column of the cell that a segment is in."""


@dataclass(frozen=True, slots=True)
class DifferentEntities:
    """Pairs of different entities at the same instants, where a condition holds."""

    names: tuple[str, str]
    """What stands before the names of each side's keys and attributes."""
    condition: Condition | None
    within: Mapping[str, float]
    """For an attribute by how much the two differ at most where a result is wanted."""
    is_whole: bool
    """Whether pairs that may come so near are there for all the time that they share."""
    is_self: bool
    """Whether both sides are one set: each pair comes once, the lesser keys on the left."""
    asks: tuple[str, ...] | None = None
    """Which sides are asked before they are paired, in what order; None: as samples say."""

    def shape(self, left: Shape, right: Shape) -> Shape:
        """Return which columns come out."""
        one, two = self.names
        return Shape(
            (*(f"{one}_{each}" for each in left.keys), *(f"{two}_{each}" for each in right.keys)),
            (
                *(f"{one}_{each}" for each in left.attributes),
                *(f"{two}_{each}" for each in right.attributes),
            ),
        )

    def run(
        self,
        given: Keyed,
        sides: Ints | None,
        left: Shape,
        right: Shape,
        tally: Tally = UNTOLD,
    ) -> Keyed:
        """Return the pairs of a cell.

        Args:
            given: the segments of the cell.
            sides: of which of its groups, or of which input, each is, 0 or 1; None is for the cell
                of a group with itself.
            left: the columns of the left side.
            right: those of the right side.
            tally: takes note of the work.
        """
        if self.is_self:
            ordered = in_key_order(given)
            found = self._among(ordered.segments, sides, Asking(self.asks, tally))
            return self._keyed(found, ordered.entities)
        assert sides is not None
        one, other = (np.flatnonzero(sides == side) for side in (0, 1))
        return self.between(given.of(one, left.layout), given.of(other, right.layout), tally)

    def between(self, left: Keyed, right: Keyed, tally: Tally = UNTOLD) -> Keyed:
        """Return the pairs of two sides, whose entities have common ids."""
        one, other = in_key_order(left), in_key_order(right)
        found = self._between(one.segments, other.segments, Asking(self.asks, tally))
        return self._keyed(found, one.entities)

    def _among(self, segments: Segments, sides: Ints | None, asking: Asking) -> Joined:
        if not self.is_whole:
            return joins.joined_among(
                segments,
                self.condition,
                names=self.names,
                within=self.within,
                sides=sides,
                asking=asking,
            )
        near = joins.near_among(segments, self.within, sides)
        one, other = joins.near_entities(segments, segments, near)
        both = np.unique(np.stack([np.minimum(one, other), np.maximum(one, other)]), axis=1)
        return joins.joined_entities(
            segments, segments, (both[0], both[1]), self.condition, names=self.names, asking=asking
        )

    def _between(self, one: Segments, other: Segments, asking: Asking) -> Joined:
        if not self.is_whole:
            return joins.joined_with_others(
                one, other, self.condition, names=self.names, within=self.within, asking=asking
            )
        entities = joins.near_entities(one, other, joins.near_between(one, other, self.within))
        return joins.joined_entities(
            one, other, entities, self.condition, names=self.names, asking=asking
        )

    def _keyed(self, found: Joined, entities: pa.Table) -> Keyed:
        columns: dict[str, pa.ChunkedArray] = {}
        for name, ids in zip(self.names, (found.left, found.right), strict=True):
            taken = entities.take(pa.array(ids))
            columns |= {f"{name}_{key}": taken.column(key) for key in taken.column_names}
        return Keyed(plain(found.segments), pa.table(columns))

    def __str__(self) -> str:
        near = ", ".join(f"{name} within {most:g}" for name, most in self.within.items())
        return f"pairs of {' and '.join(self.names)}{f' with {near}' if near else ''}"

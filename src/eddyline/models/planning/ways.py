"""What may be asked of the sides of a join before it, and what each way costs.

A way is an order of sides. To ask one takes time for each of its segments and makes pairs fewer;
where pairs are of the same entity, entities that one side has no longer are not asked on the other
one. Costs are those of whole plans (``estimates.plans``): rates go down, costs add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddyline.estimates.filters import Estimate
from eddyline.estimates.plans import ONE, Node, comes_later, cost_of
from eddyline.models.graph import OtherEntities, SameEntity, parts
from eddyline.models.one_sided import questions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.estimates.plans import PlanCost
    from eddyline.models import graph

Way = tuple[str, ...]
ModelPlan = dict[str, Way]
"""The sides that joins ask before, in this order, by the text of a join; of others samples say."""

BY_SAMPLE = "by sample"
"""The plan of a join of which nothing is known, as a plain value."""


@dataclass(frozen=True, slots=True)
class SideCost:
    """One side of a join."""

    n: float
    """Segments for each that comes in on either side."""
    ns: float
    """What asking one takes (ns)."""
    left: Estimate
    """The share that is left."""
    entities: Estimate
    """The share of entities of which something is left."""


@dataclass(frozen=True, slots=True)
class JoinCost:
    """What is known of a join."""

    sides: Mapping[str, SideCost]
    """Those of which something is asked alone."""
    n_pairs: float
    """Pairs for each segment that comes in on either side, if nothing is asked before."""
    pair_ns: float
    """What a pair takes, all that a join does with it (ns)."""
    is_same: bool
    """Whether pairs are of the same entity."""

    def ways(self) -> list[Way]:
        """Return what may be asked: nothing, one side, or both, the cheaper order of these."""
        found: list[Way] = [(), *((each,) for each in self.sides)]
        if len(self.sides) == 2:
            (one, first), (two, second) = self.sides.items()
            costs = (first.n * first.ns, first.entities.value)
            later = self.is_same and comes_later(
                *costs, second.n * second.ns, second.entities.value
            )
            found.append((two, one) if later else (one, two))
        return found

    def cost(self, way: Way) -> PlanCost:
        """Return what a way costs for each segment that comes in on either side."""
        outputs, pairs, before = [], Node(0.0, Estimate.exactly(self.n_pairs)), ONE
        for name in way:
            side = self.sides[name]
            came = Node(0.0, Estimate.exactly(side.n).times(before))
            outputs.append(Node(side.ns, ONE, (came,)))
            pairs = Node(0.0, side.left, (pairs,))
            if self.is_same:
                before = side.entities
        return cost_of([*outputs, Node(self.pair_ns, ONE, (pairs,))])


def joins_of(node: graph.Node) -> dict[str, SameEntity | OtherEntities]:
    """Return the joins of a graph that ask something of a side alone, by their texts."""
    every = [each for each in parts(node) if isinstance(each, SameEntity | OtherEntities)]
    return {str(each): each for each in every if asked_sides(each)}


def asked_sides(join: SameEntity | OtherEntities) -> tuple[str, ...]:
    """Return the sides of which something is asked alone."""
    return tuple(each for each in join.names if questions(join.condition, each))


def plain(way: Way | None) -> Any:
    """Return a way as a plain value."""
    return BY_SAMPLE if way is None else list(way)


def told(way: Way | None) -> str:
    """Return a way in words."""
    if way is None:
        return BY_SAMPLE
    return f"asks {' then '.join(way)}" if way else "asks none"


def way_of(given: Any, join: SameEntity | OtherEntities) -> Way | None:
    """Return the way of a plain value.

    Raises:
        ValueError: it is none of this join.
    """
    if given == BY_SAMPLE:
        return None
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ValueError(given)
    if len({*given}) < len(given) or not {*given} <= {*asked_sides(join)}:
        raise ValueError(given)
    return tuple(given)

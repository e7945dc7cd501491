"""Estimates of results and costs of steps, from profiles of tasks.

``ModelProfile`` is what tasks saw while a graph ran: small, mergeable, keyed by texts.

A **way** of a join is an order of sides that it asks before it makes pairs. To ask a side takes
time for each of its segments and makes pairs fewer. If pairs are of the same entity, an entity that
one side has lost is not asked on the other side. Costs are those of whole plans
(``estimates.plans``): rates go down, costs add up.

``of_step`` and ``of_join`` estimate results for each segment that comes in. Filters are estimated
from the coefficients of what they compare, AND and OR from when comparisons hold. Joins are
estimated from pairs that overlap and, if a comparison is a difference of one value of each side,
from the histogram cells of both. Windows are estimated from how many segments they see at once.
``choice`` measures how far each estimate is off, and corrects what all of its kind share, such as
values of entities that go together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import structs

from eddyline.estimates import filters, plans
from eddyline.estimates.filters import Estimate, Times
from eddyline.estimates.plans import ONE, Node, comes_later, cost_of
from eddyline.models.graph import OtherEntities, SameEntity, parts
from eddyline.models.solving.expressions import (
    And,
    Comparison,
    Expression,
    Number,
    Product,
    Sum,
    comparisons,
    names_in,
    negative,
)
from eddyline.models.solving.joins import questions
from eddyline.models.steps import (
    AverageDistance,
    Envelope,
    Extremum,
    Integral,
    Sample,
    Total,
    Where,
)
from eddyline.stats.profile import both

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.estimates.histograms import CoefHistogram
    from eddyline.models import graph
    from eddyline.models.solving.expressions import Condition

    Coefs = Mapping[str, CoefHistogram]
    Leaf = Callable[[Comparison], tuple[Estimate, Times] | None]

MAX_CELLS = 200
"""Cells of a histogram that is kept."""

MAX_GROUPS = 6
"""Entities of which single ones are told apart, for extremes over entities."""


class _Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that add up, field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f) + getattr(other, f) for f in self.__struct_fields__))

    def times(self, share: float) -> Self:
        """Return the same, of which each segment counts so much."""
        return type(self)(*(share * getattr(self, f) for f in self.__struct_fields__))


class StepCounts(_Counts, frozen=True, forbid_unknown_fields=True):
    """What came out of a step, and what came in."""

    n_in: float = 0.0
    """Segments that came in, of a join those of both sides."""
    n_out: float = 0.0
    """Segments or rows that came out."""
    n_entities: float = 0.0
    """Entities of those that came in, all tasks together."""
    n_left: float = 0.0
    """Of those that came into a join, the left ones."""
    n_looked: float = 0.0
    """Of those that came in, those that were looked at for what follows."""
    n_aligned: float = 0.0
    """Of these, those that came where entities, or both sides, begin segments together."""
    seconds: float = 0.0
    """Length of those that were looked at (s)."""

    @property
    def is_aligned(self) -> bool:
        """Whether entities, or both sides of a join, begin their segments together."""
        return self.n_aligned > self.n_looked / 2

    def times(self, share: float) -> Self:
        """Return the same, of which each segment counts so much; entities stay what they are."""
        return structs.replace(super().times(share), n_entities=self.n_entities)


class SideCounts(_Counts, frozen=True, forbid_unknown_fields=True):
    """What a join asked of one side before."""

    n: float = 0.0
    """Segments that came."""
    n_asked: float = 0.0
    """Segments that were asked."""
    n_left: float = 0.0
    """Of these, those that may be in a result."""
    ns: float = 0.0
    """The time that asking took (ns)."""


class JoinCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a join did."""

    sides: dict[str, SideCounts] = {}
    """By what stands before the attributes of a side."""
    n_pairs: float = 0.0
    """Pairs that were made."""
    ns: float = 0.0
    """The time of the join beside asking (ns)."""
    n_in: float = 0.0
    """Segments that came in on either side."""

    def __add__(self, other: JoinCounts) -> JoinCounts:
        return JoinCounts(
            both(self.sides, other.sides, lambda a, b: a + b),
            self.n_pairs + other.n_pairs,
            self.ns + other.ns,
            self.n_in + other.n_in,
        )

    def times(self, share: float) -> JoinCounts:
        """Return the same, of which each segment counts so much."""
        sides = {name: side.times(share) for name, side in self.sides.items()}
        return JoinCounts(sides, share * self.n_pairs, share * self.ns, share * self.n_in)

    @property
    def took(self) -> float:
        """The time of all (ns)."""
        return self.ns + sum(side.ns for side in self.sides.values())


@dataclass(frozen=True)
class ModelProfile:
    """What tasks saw of a graph."""

    steps: Mapping[str, StepCounts] = field(default_factory=dict)
    """By the text of a step or a join."""
    joins: Mapping[str, JoinCounts] = field(default_factory=dict)
    """By the text of a join."""
    coefs: Mapping[str, CoefHistogram] = field(default_factory=dict)
    """Coefficients of sampled segments; see ``expected.slot``. Counted as of all of them."""
    groups: Mapping[str, Mapping[int, CoefHistogram]] = field(default_factory=dict)
    """Those of a few entities, by the text of a step and their numbers."""
    sample_ns: float = 0.0
    """Time that sampling took (ns)."""

    def merged(self, other: ModelProfile) -> ModelProfile:
        """Return the profile of what both saw."""
        return ModelProfile(
            both(self.steps, other.steps, lambda a, b: a + b),
            both(self.joins, other.joins, lambda a, b: a + b),
            both(self.coefs, other.coefs, _merged),
            both(self.groups, other.groups, _few),
            self.sample_ns + other.sample_ns,
        )

    def decayed(self, share: float, sampled: float) -> ModelProfile:
        """Return the same in which a segment counts less; entities long gone are let go of.

        Args:
            share: of what it did, of counts.
            sampled: likewise of histograms; 1 where none are newer.
        """
        groups = {
            step: {
                entity: kept
                for entity, histogram in every.items()
                if len(kept := histogram.decayed(sampled))
            }
            for step, every in self.groups.items()
        }
        return replace(
            self,
            steps={name: counts.times(share) for name, counts in self.steps.items()},
            joins={name: counts.times(share) for name, counts in self.joins.items()},
            coefs={name: histogram.decayed(sampled) for name, histogram in self.coefs.items()},
            groups=groups,
        )


def _merged(one: CoefHistogram, other: CoefHistogram) -> CoefHistogram:
    return one.merged(other, max_cells=MAX_CELLS)


def _few(
    one: Mapping[int, CoefHistogram], other: Mapping[int, CoefHistogram]
) -> dict[int, CoefHistogram]:
    every = both(one, other, _merged)
    return {entity: every[entity] for entity in sorted(every)[:MAX_GROUPS]}


# -- what may be asked, and what it costs ---------------------------------------------------------


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
        ways: list[Way] = [(), *((side,) for side in self.sides)]
        if len(self.sides) == 2:
            (one, first), (two, second) = self.sides.items()
            costs = (first.n * first.ns, first.entities.value)
            later = self.is_same and comes_later(
                *costs, second.n * second.ns, second.entities.value
            )
            ways.append((two, one) if later else (one, two))
        return ways

    def cost(self, way: Way) -> Estimate:
        """Return what a way costs for each segment that comes in on either side (ns)."""
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
    every = [part for part in parts(node) if isinstance(part, SameEntity | OtherEntities)]
    return {str(join): join for join in every if asked_sides(join)}


def asked_sides(join: SameEntity | OtherEntities) -> tuple[str, ...]:
    """Return the sides of which something is asked alone."""
    return tuple(name for name in join.names if questions(join.condition, name))


def plain(way: Way | None) -> Any:
    """Return a way as a plain value."""
    return BY_SAMPLE if way is None else list(way)


def told(way: Way | None) -> str:
    """Return a way in words."""
    if way is None:
        return BY_SAMPLE
    return f"asks {' then '.join(way)}" if way else "asks none"


def way_of(value: Any, join: SameEntity | OtherEntities) -> Way | None:
    """Return the way of a plain value.

    Raises:
        ValueError: it is none of this join.
    """
    if value == BY_SAMPLE:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError(value)
    if len({*value}) < len(value) or not {*value} <= {*asked_sides(join)}:
        raise ValueError(value)
    return tuple(value)


# -- what steps give ------------------------------------------------------------------------------


MOST_LEAVES = 8
"""Comparisons of a condition up to which it is estimated."""

PAIRED_CELLS = 32
"""Cells of each side of a join, of which all pairs are computed in the driver."""

WATCHED = (Where, Sample, Extremum, Integral, Envelope, Total, AverageDistance)
"""Steps of which it is estimated what they give; others give as many segments as they take."""


@dataclass(frozen=True, slots=True)
class SlotOf:
    """An expression of which it is looked at how its coefficients are spread."""

    name: str
    side: int
    """Of which input of a join it is; 0 of a step."""
    prefix: str
    """What stands before the names of the attributes of that input."""
    expression: Expression


@dataclass(frozen=True, slots=True)
class Apart:
    """A comparison of both sides of a join: ``left < right`` or ``left > right``."""

    left: SlotOf
    right: SlotOf
    is_below: bool


def is_watched(what: object) -> bool:
    """Return whether it is estimated what a step, or a join, gives."""
    return isinstance(what, (*WATCHED, SameEntity, OtherEntities))


def slots_of(what: object) -> list[SlotOf]:
    """Return the expressions of which a step, or a join, needs to know coefficients."""
    if isinstance(what, Where):
        return [] if what.keys else _of_condition(str(what), what.condition, 0, "")
    if not isinstance(what, SameEntity | OtherEntities) or what.condition is None:
        return []
    slots = []
    for side, name in enumerate(what.names):
        for question in questions(what.condition, name):
            slots += _of_condition(str(what), question, side, f"{name}.")
    for apart in _of_both(what):
        slots += [] if apart is None else [apart.left, apart.right]
    return slots[: 2 * MOST_LEAVES]


def _of_condition(text: str, condition: Condition, side: int, prefix: str) -> list[SlotOf]:
    expressions = {comparison.expression: None for comparison in comparisons(condition)}
    if len(expressions) > MOST_LEAVES:
        return []
    return [SlotOf(slot(text, expression), side, prefix, expression) for expression in expressions]


def slot(step: str, expression: Expression) -> str:
    """Return what the coefficients of an expression of a step, or a join, are called."""
    return f"{step}: {expression}"


# -- conditions ---------------------------------------------------------------------------------


def combined(condition: Condition, leaf: Leaf) -> tuple[Estimate, Times] | None:
    """Return on what share of segments a condition holds, and when.

    Args:
        condition: of comparisons that know nothing of each other.
        leaf: the same of a comparison; None if it cannot be said, which it then is of all.
    """
    if isinstance(condition, Comparison):
        return leaf(condition)
    parts = []
    for branch in condition.parts:
        part = combined(branch, leaf)
        if part is None:
            return None
        parts.append(part)
    if isinstance(condition, And):
        return filters.conjunction(parts)
    return filters.disjunction(parts)


def share_of(step: str, condition: Condition, coefs: Coefs) -> tuple[Estimate, Times] | None:
    """Return on what share of segments a condition of a step holds somewhere, and when.

    None if one of its comparisons is ``=`` or ``<>``, or nothing is known of it.
    """

    def leaf(comparison: Comparison) -> tuple[Estimate, Times] | None:
        histogram = coefs.get(slot(step, comparison.expression))
        if histogram is None or histogram.total <= 0.0 or comparison.op in {"=", "<>"}:
            return None
        return filters.comparison(histogram, comparison.op, 0.0)

    return combined(condition, leaf)


# -- joins --------------------------------------------------------------------------------------


def _of_both(what: SameEntity | OtherEntities) -> Iterator[Apart | None]:
    """Yield the parts of a condition that ask of both sides; None for one that is no difference."""
    condition = what.condition
    parts = condition.parts if isinstance(condition, And) else (condition,)
    one, two = (f"{name}." for name in what.names)
    for part in parts:
        if part is None or any(part in questions(condition, name) for name in what.names):
            continue
        sides = _sides(part.expression, one) if isinstance(part, Comparison) else None
        if sides is None or not isinstance(part, Comparison) or part.op in {"=", "<>"}:
            yield None
            continue
        left_part, right = sides[0], negative(sides[1])
        text = str(what)
        yield Apart(
            SlotOf(slot(text, part.expression) + " (left)", 0, one, left_part),
            SlotOf(slot(text, part.expression) + " (right)", 1, two, right),
            part.op in {"<", "<="},
        )


def _sides(expression: Expression, prefix: str) -> tuple[Expression, Expression] | None:
    """Return what of a sum is of the left side and what of the right one; None if it is no sum."""
    is_left = [name.startswith(prefix) for name in names_in(expression)]
    if all(is_left):
        return expression, Number(0.0)
    if not any(is_left):
        return Number(0.0), expression
    if isinstance(expression, Sum):
        one, other = _sides(expression.left, prefix), _sides(expression.right, prefix)
        if one is not None and other is not None:
            return Sum(one[0], other[0]), Sum(one[1], other[1])
    if isinstance(expression, Product) and isinstance(expression.left, Number):
        parts = _sides(expression.right, prefix)
        if parts is not None:
            return Product(expression.left, parts[0]), Product(expression.left, parts[1])
    return None


def of_join(
    what: SameEntity | OtherEntities, counts: StepCounts, profile: ModelProfile
) -> Estimate | None:
    """Return how many segments a join gives for each that comes in on either side."""
    if counts.n_in <= 0.0:
        return None
    text = str(what)
    estimate = Estimate.exactly(_pairs(what, counts) / counts.n_in)
    if what.condition is None:
        return estimate
    for name in what.names:
        for question in questions(what.condition, name):
            share = share_of(text, question, profile.coefs)
            estimate = estimate.times(UNKNOWN if share is None else share[0])
    for apart in _of_both(what):
        estimate = estimate.times(_share_of_pairs(apart, counts, profile.coefs))
    return Estimate(estimate.value, 0.0, estimate.high)


UNKNOWN = Estimate(1.0, 0.0, 1.0)
"""The share that passes a condition of which nothing is known."""


def _pairs(what: SameEntity | OtherEntities, counts: StepCounts) -> float:
    """Return how many pairs of segments overlap, of all entities that a join pairs."""
    n_keys, is_aligned = max(counts.n_entities, 1.0), counts.is_aligned
    sizes = counts.n_left / n_keys, (counts.n_in - counts.n_left) / n_keys
    per_entity = plans.overlaps(*sizes, is_aligned=is_aligned)
    if isinstance(what, SameEntity):
        return n_keys * per_entity
    n_pairs = n_keys * (n_keys - 1.0)
    return per_entity * (n_pairs / 2 if what.step.is_self else n_pairs)


def _share_of_pairs(both: Apart | None, counts: StepCounts, coefs: Coefs) -> Estimate:
    """Return on what share of overlapping pairs a comparison of both sides holds."""
    if both is None:
        return UNKNOWN
    one, other = (coefs.get(side.name) for side in (both.left, both.right))
    if one is None or other is None or min(one.total, other.total) <= 0.0:
        return UNKNOWN
    pair = (one, other) if both.is_below else (other, one)
    is_aligned = counts.is_aligned
    return plans.share_of_pairs(*pair, is_aligned=is_aligned, max_cells=PAIRED_CELLS)


# -- windows ------------------------------------------------------------------------------------


def of_step(what: object, counts: StepCounts, profile: ModelProfile) -> Estimate | None:
    """Return how many segments a step gives for each that comes in; None if nothing is known."""
    if counts.n_in <= 0.0:
        return None
    if isinstance(what, Where):
        return _of_where(what, profile.coefs)
    if isinstance(what, Total | Envelope):
        return _over_entities(what, counts, profile)
    return _of_window(what, counts) if counts.n_looked > 0.0 else None


def _of_window(what: object, counts: StepCounts) -> Estimate | None:
    length = counts.seconds / counts.n_looked
    every_us = getattr(what, "every_us", None)
    if every_us:
        return Estimate.exactly(length * 1e6 / every_us)
    if isinstance(what, Extremum):
        n = max(what.width_us / 1e6 / length, 1.0) if length > 0.0 else 1.0
        # A maximum that changes ends a piece that was flat, and is one of its own.
        return Estimate(2.0 * (1.0 - plans.stays_constant(n)), 0.0, 2.0)
    # Each edge comes again when it leaves the window.
    return Estimate(2.0, 1.0, 2.0) if isinstance(what, Integral) else None


def _of_where(what: Where, coefs: Coefs) -> Estimate | None:
    result = share_of(str(what), what.condition, coefs)
    if result is None:
        return None
    share, times = result
    return Estimate(share.value * times.pieces, share.low, share.high * max(times.pieces, 1.0))


def _over_entities(
    what: Total | Envelope, counts: StepCounts, profile: ModelProfile
) -> Estimate | None:
    n_entities = max(counts.n_entities, 1.0)
    if isinstance(what, Total):
        is_aligned = counts.is_aligned
        n_sums = plans.n_sums(counts.n_in, n_entities, is_aligned=is_aligned)
        return Estimate.exactly(n_sums / counts.n_in)
    few = [*profile.groups.get(str(what), {}).values()]
    if not few:
        return None
    sign = few if what.is_largest else [histogram.negative for histogram in few]
    shares = [plans.share_of_maximum(sign, place, n_entities) for place in range(len(few))]
    totals = [histogram.total for histogram in few]
    weighted = sum(share * total for share, total in zip(shares, totals, strict=True))
    return Estimate(weighted / max(sum(totals), 1e-9), 0.0, 1.0)

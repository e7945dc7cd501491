"""What steps will give, estimated from what was seen: segments for each that comes in.

Filters are estimated from coefficients of what they compare, AND and OR by when comparisons hold;
joins by pairs that overlap and, where a comparison of both sides is a difference of what each has,
by the cells of both; windows by how many segments they see at once. How far each is off is measured
(``loop``), so what they share with all of their kind, such as that values of entities go together,
is put right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.estimates import filters, results
from eddyline.estimates.filters import Estimate, Times
from eddyline.models.conditions import And, Comparison, comparisons
from eddyline.models.expressions import Expression, Number, Product, Sum, names_in, negative
from eddyline.models.graph import OtherEntities, SameEntity
from eddyline.models.one_sided import questions
from eddyline.models.steps import Sample, Where
from eddyline.models.window_steps import AverageDistance, Envelope, Extremum, Integral, Total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eddyline.estimates.histograms import CoefHistogram
    from eddyline.models.conditions import Condition
    from eddyline.models.planning.profile import ModelProfile, StepCounts

    Coefs = Mapping[str, CoefHistogram]
    Leaf = Callable[[Comparison], tuple[Estimate, Times] | None]

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
        return _of_condition(str(what), what.condition, 0, "")
    if not isinstance(what, SameEntity | OtherEntities) or what.condition is None:
        return []
    found = []
    for side, name in enumerate(what.names):
        for each in questions(what.condition, name):
            found += _of_condition(str(what), each, side, f"{name}.")
    for both in _of_both(what):
        found += [] if both is None else [both.left, both.right]
    return found[: 2 * MOST_LEAVES]


def _of_condition(text: str, condition: Condition, side: int, prefix: str) -> list[SlotOf]:
    found = {each.expression: None for each in comparisons(condition)}
    if len(found) > MOST_LEAVES:
        return []
    return [SlotOf(slot(text, each), side, prefix, each) for each in found]


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
    for each in condition.parts:
        part = combined(each, leaf)
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

    def leaf(each: Comparison) -> tuple[Estimate, Times] | None:
        known = coefs.get(slot(step, each.expression))
        if known is None or known.total <= 0.0 or each.op in {"=", "<>"}:
            return None
        return filters.comparison(known, each.op, 0.0)

    return combined(condition, leaf)


# -- joins --------------------------------------------------------------------------------------


def _of_both(what: SameEntity | OtherEntities) -> Iterator[Apart | None]:
    """Yield the parts of a condition that ask of both sides; None for one that is no difference."""
    condition = what.condition
    parts = condition.parts if isinstance(condition, And) else (condition,)
    one, two = (f"{name}." for name in what.names)
    for each in parts:
        if each is None or any(each in questions(condition, name) for name in what.names):
            continue
        sides = _sides(each.expression, one) if isinstance(each, Comparison) else None
        if sides is None or not isinstance(each, Comparison) or each.op in {"=", "<>"}:
            yield None
            continue
        left, right = sides[0], negative(sides[1])
        text = str(what)
        yield Apart(
            SlotOf(slot(text, each.expression) + " (left)", 0, one, left),
            SlotOf(slot(text, each.expression) + " (right)", 1, two, right),
            each.op in {"<", "<="},
        )


def _sides(expression: Expression, left: str) -> tuple[Expression, Expression] | None:
    """Return what of a sum is of the left side and what of the right one; None if it is no sum."""
    is_left = [each.startswith(left) for each in names_in(expression)]
    if all(is_left):
        return expression, Number(0.0)
    if not any(is_left):
        return Number(0.0), expression
    if isinstance(expression, Sum):
        one, other = _sides(expression.left, left), _sides(expression.right, left)
        if one is not None and other is not None:
            return Sum(one[0], other[0]), Sum(one[1], other[1])
    if isinstance(expression, Product) and isinstance(expression.left, Number):
        parts = _sides(expression.right, left)
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
    found = Estimate.exactly(_pairs(what, counts) / counts.n_in)
    if what.condition is None:
        return found
    for name in what.names:
        for each in questions(what.condition, name):
            share = share_of(text, each, profile.coefs)
            found = found.times(UNKNOWN if share is None else share[0])
    for both in _of_both(what):
        found = found.times(_share_of_pairs(both, counts, profile.coefs))
    return Estimate(found.value, 0.0, found.high)


UNKNOWN = Estimate(1.0, 0.0, 1.0)
"""The share that passes a condition of which nothing is known."""


def _pairs(what: SameEntity | OtherEntities, counts: StepCounts) -> float:
    """Return how many pairs of segments overlap, of all entities that a join pairs."""
    n_keys, is_aligned = max(counts.n_entities, 1.0), counts.is_aligned
    sizes = counts.n_left / n_keys, (counts.n_in - counts.n_left) / n_keys
    each = results.overlaps(*sizes, is_aligned=is_aligned)
    if isinstance(what, SameEntity):
        return n_keys * each
    n_pairs = n_keys * (n_keys - 1.0)
    return each * (n_pairs / 2 if what.step.is_self else n_pairs)


def _share_of_pairs(both: Apart | None, counts: StepCounts, coefs: Coefs) -> Estimate:
    """Return on what share of overlapping pairs a comparison of both sides holds."""
    if both is None:
        return UNKNOWN
    one, other = (coefs.get(each.name) for each in (both.left, both.right))
    if one is None or other is None or min(one.total, other.total) <= 0.0:
        return UNKNOWN
    pair = (one, other) if both.is_below else (other, one)
    is_aligned = counts.is_aligned
    return results.share_of_pairs(*pair, is_aligned=is_aligned, max_cells=PAIRED_CELLS)


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
        return Estimate(2.0 * (1.0 - results.stays_constant(n)), 0.0, 2.0)
    # Each edge comes again when it leaves the window.
    return Estimate(2.0, 1.0, 2.0) if isinstance(what, Integral) else None


def _of_where(what: Where, coefs: Coefs) -> Estimate | None:
    found = share_of(str(what), what.condition, coefs)
    if found is None:
        return None
    share, times = found
    return Estimate(share.value * times.pieces, share.low, share.high * max(times.pieces, 1.0))


def _over_entities(
    what: Total | Envelope, counts: StepCounts, profile: ModelProfile
) -> Estimate | None:
    n_entities = max(counts.n_entities, 1.0)
    if isinstance(what, Total):
        is_aligned = counts.is_aligned
        n_sums = results.n_sums(counts.n_in, n_entities, is_aligned=is_aligned)
        return Estimate.exactly(n_sums / counts.n_in)
    few = [*profile.groups.get(str(what), {}).values()]
    if not few:
        return None
    sign = few if what.is_largest else [each.negative for each in few]
    shares = [results.share_of_maximum(sign, at, n_entities) for at in range(len(few))]
    totals = [each.total for each in few]
    weighted = sum(share * total for share, total in zip(shares, totals, strict=True))
    return Estimate(weighted / max(sum(totals), 1e-9), 0.0, 1.0)

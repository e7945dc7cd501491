"""Ways to solve the alarms of a template, and their estimated costs.

* *Covered*: each comparison is computed once, on the segments that the loosest constants of the
  comparisons before it leave. Sorted constants say which alarms hold.
* *Union*: each alarm tests its first comparison alone. The other comparisons are computed once, on
  all segments that some alarm keeps.
* *Unshared*: each alarm alone.

The answers are the same. All ways consist of the same kinds of work (``profile.KINDS``), so a way
has a price without a trial. Constants and distributions of values give the amount of each kind. The
bounds on it hold however comparisons depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.alarms.meeting import bands
from eddyline.alarms.program import slots_in
from eddyline.estimates.filters import Estimate
from eddyline.models.solving.expressions import And, Comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eddyline.alarms.program import Template
    from eddyline.data.arrays import Floats
    from eddyline.estimates.histograms import ValueSketch
    from eddyline.models.solving.expressions import Condition
    from eddyline.stats.costs import CostSums

    Both = Callable[[Floats, Floats], Floats]
    """How often two comparisons hold, of how often each does."""

COMPONENT = "alarms"
"""The name of alarms in the journal."""

MOST_PERMUTED = 3
"""Conjuncts up to which all orders are compared; of more, those that ask another one first."""

SHARINGS = ("covered", "union", "unshared")


@dataclass(frozen=True, slots=True)
class TemplatePlan:
    """How the alarms of a template are solved."""

    sharing: str = "covered"
    """One of ``SHARINGS``."""
    order: tuple[int, ...] = ()
    """``order[position] -> conjunct``; empty: as written."""

    def order_of(self, template: Template) -> tuple[int, ...]:
        """Return the order of the conjuncts of a template; as written if it is of another one."""
        written = tuple(range(len(template.conjuncts)))
        return self.order if sorted(self.order) == list(written) else written


AlarmPlan = Mapping[str, TemplatePlan]
"""By the texts of templates; of one that is not there it is ``TemplatePlan()``."""


def sharings_of(template: Template) -> tuple[str, ...]:
    """Return the ways in which a template can be shared: a union needs something before it."""
    return SHARINGS if len(template.conjuncts) > 1 else ("covered", "unshared")


def fixed_plans(template: Template) -> tuple[TemplatePlan, ...]:
    """Return the plans that a template could have had all the time."""
    written = tuple(range(len(template.conjuncts)))
    orders = [(first, *(number for number in written if number != first)) for first in written]
    if len(written) <= MOST_PERMUTED:
        orders = [*permutations(written)]
    return tuple(TemplatePlan(way, order) for way in sharings_of(template) for order in orders)


def plain(plan: TemplatePlan, template: Template) -> dict[str, Any]:
    """Return a plan as plain values, with comparisons by their texts."""
    texts = [conjunct.text for conjunct in template.conjuncts]
    return {"sharing": plan.sharing, "order": [texts[number] for number in plan.order_of(template)]}


def from_plain(value: Any, template: Template) -> TemplatePlan | None:
    """Return the plan of plain values; None if it is none of this template."""
    texts = [conjunct.text for conjunct in template.conjuncts]
    if not isinstance(value, Mapping) or {*value} != {"sharing", "order"}:
        return None
    sharing, order = value["sharing"], value["order"]
    is_order = isinstance(order, list | tuple) and all(isinstance(text, str) for text in order)
    if sharing not in sharings_of(template) or not is_order or sorted(order) != sorted(texts):
        return None
    return TemplatePlan(sharing, tuple(map(texts.index, order)))


LEAST, LIKELY, MOST = 0, 1, 2

A_BLOCK = 1_000
"""Segments of a block, about."""

_TOGETHER: tuple[Both, Both, Both] = (
    lambda one, other: np.maximum(one + other - 1.0, 0.0),
    lambda one, other: one * other,
    np.minimum,
)
"""At least, if they know nothing of each other, at most (Fréchet's bounds)."""


@dataclass(frozen=True)
class Shares:
    """On what share of segments the alarms of a template hold, by conjunct.

    Attributes:
        any: where an alarm may hold, ``[alarms, conjuncts]``.
        rarest: where it may by the comparison or band that it is looked for by, ``[alarms]``.
        parts: as ``any``, with the comparisons of a band as one, ``[alarms, parts]``.
        whole: where these surely hold, ``[alarms, parts]``.
        cover: where any of them may, ``[conjuncts]``.
        n_slots: the expressions of each conjunct, ``[conjuncts]``.
    """

    any: Floats
    rarest: Floats
    parts: Floats
    whole: Floats
    cover: Floats
    n_slots: Floats


def shares_of(
    template: Template, bases: Sequence[str], values: Mapping[str, ValueSketch]
) -> Shares | None:
    """Return these shares; None if nothing is known of an expression of the template.

    Args:
        template: its alarms.
        bases: what the expressions of a program are called.
        values: how their values are spread.
    """
    sketches = [values.get(bases[base]) for base in template.bases]
    if any(sketch is None or sketch.total <= 0.0 for sketch in sketches):
        return None
    any_, whole, loosest = [], [], []
    for slot, sketch in enumerate(sketches):
        assert sketch is not None
        constants, op = template.constants[:, slot], template.ops[slot]
        any_.append(sketch.any(op, constants))
        whole.append(sketch.whole(op, constants))
        ends = np.array([np.fmin.reduce(constants), np.fmax.reduce(constants)])
        if op == "=":  # the cover is all between the least and the greatest constant
            between = sketch.any(">=", ends)[0] + sketch.any("<=", ends)[1] - 1.0
            loosest.append(max(float(between), 0.0))
        else:
            loosest.append(float(sketch.any(op, ends).max()))
    conjuncts = [conjunct.condition for conjunct in template.conjuncts]
    own_any = np.stack([_share_of(condition, any_) for condition in conjuncts], axis=1)
    own_whole = np.stack([_share_of(condition, whole) for condition in conjuncts], axis=1)
    parts, sure, remaining = [], [], {*range(len(conjuncts))}
    place_of = {slots_in(condition)[0]: number for number, condition in enumerate(conjuncts)}
    for up, down in bands(template, template.condition):
        band = {place_of[up], place_of[down]}
        if band <= remaining:
            remaining -= band
            parts.append(np.maximum(any_[up] + any_[down] - 1.0, 0.0))
            sure.append(np.maximum(whole[up] + whole[down] - 1.0, 0.0))
    parts += [own_any[:, number] for number in sorted(remaining)]
    sure += [own_whole[:, number] for number in sorted(remaining)]
    return Shares(
        own_any,
        np.minimum(own_any.min(axis=1), np.min(parts, axis=0)),
        np.stack(parts, axis=1),
        np.stack(sure, axis=1),
        np.array(
            [
                float(_share_of(condition, [np.array([x]) for x in loosest])[0])
                for condition in conjuncts
            ]
        ),
        np.array([float(len(slots_in(condition))) for condition in conjuncts]),
    )


def _share_of(condition: Condition, leaves: Sequence[Floats]) -> Floats:
    """Return how often a condition holds whose comparisons know nothing of each other."""
    if isinstance(condition, Comparison):
        return leaves[slots_in(condition)[0]]
    parts = np.stack([_share_of(part, leaves) for part in condition.parts])
    is_and = isinstance(condition, And)
    share: Floats = parts.prod(axis=0) if is_and else np.minimum(parts.sum(axis=0), 1.0)
    return share


@dataclass(frozen=True)
class Work:
    """How much there is of each kind of work: calls for a block, rows for each segment of it."""

    calls: Floats
    rows: Floats

    def ns(self, costs: CostSums, n_rows: float) -> float:
        """Return its cost (ns for each segment), in blocks of so many segments."""
        fixed, per_row = costs.fit()
        return float(fixed @ self.calls / max(n_rows, 1.0) + per_row @ self.rows)


def work_of(template: Template, plan: TemplatePlan, shares: Shares, case: int = LIKELY) -> Work:
    """Return the work of a plan for each segment: at least, likely, or at most."""
    both = _TOGETHER[case]
    order = plan.order_of(template)
    if plan.sharing == "unshared":
        return _unshared(shares, order, both)
    if plan.sharing == "union":
        return _union(shares, order, both)
    return _covered(template, shares, order, both)


def _pairs(shares: Shares, both: Both) -> tuple[float, float]:
    """Return the pairs of a segment and an alarm that may hold, and those that are solved."""
    may, sure = shares.parts[:, 0], shares.whole[:, 0]
    for number in range(1, shares.parts.shape[1]):
        may, sure = both(may, shares.parts[:, number]), both(sure, shares.whole[:, number])
    return float(may.sum()), float(np.maximum(may - sure, 0.0).sum())


def _covered(template: Template, shares: Shares, order: Sequence[int], both: Both) -> Work:
    n_conjuncts = len(order)
    may, solved = _pairs(shares, both)
    if template.is_threshold:
        return Work(np.array([1.0, 1, 0, 1]), np.array([1.0, 1.0, 0.0, solved]))
    remaining, bounds, tests = 1.0, 0.0, 0.0
    for number in order:
        bounds, tests = bounds + remaining * shares.n_slots[number], tests + remaining
        remaining = float(both(np.array(remaining), np.array(shares.cover[number])))
    # An alarm is looked for by its rarest conjunct, on what the covers leave.
    looked_for = float(np.minimum(shares.rarest, remaining).sum())
    rows = np.array([bounds, tests + 2 * remaining, max(looked_for, may), solved])
    return Work(np.array([shares.n_slots.sum(), n_conjuncts + 2.0, 1, 1]), rows)


def _union(shares: Shares, order: Sequence[int], both: Both) -> Work:
    first, *rest = order
    n = len(shares.any)
    bounds, tests = n * shares.n_slots[first], float(n)
    pairs = float(shares.any[:, first].sum())
    # Each alarm is asked by itself: what is left is less than a cover leaves of far constants.
    remaining = float(min(shares.cover[first], pairs))
    n_calls = float(n)
    for number in rest:
        n_calls += shares.n_slots[number] * float(_called(remaining))
        bounds, tests = bounds + remaining * shares.n_slots[number], tests + remaining
        passed = float(both(np.array(remaining), np.array(shares.cover[number])))
        pairs, remaining = pairs * (passed / remaining if remaining else 0.0), passed
    solved = _pairs(shares, both)[1]
    return Work(np.array([n_calls, n_calls, 1, 1]), np.array([bounds, tests, pairs, solved]))


def _called(remaining: Any) -> Any:
    """Return how likely there is something left of a block to call for, of shares of segments."""
    return np.minimum(remaining * A_BLOCK, 1.0)


def _unshared(shares: Shares, order: Sequence[int], both: Both) -> Work:
    remaining = np.ones(len(shares.any))
    bounds = tests = n_calls = 0.0
    for number in order:
        n_calls += float(_called(remaining).sum())
        bounds, tests = (
            bounds + float(remaining.sum()) * shares.n_slots[number],
            tests + float(remaining.sum()),
        )
        remaining = both(remaining, shares.any[:, number])
    may, solved = float(remaining.sum()), _pairs(shares, both)[1]
    alarms = float(len(remaining))
    return Work(
        np.array([n_calls, n_calls, alarms, alarms]), np.array([bounds, tests, may, solved])
    )


def cost_of(
    template: Template, plan: TemplatePlan, shares: Shares, costs: CostSums, n_rows: float
) -> Estimate:
    """Return what a plan costs for each segment (ns).

    Args:
        template: its alarms.
        plan: how they would be solved.
        shares: on what share of segments they hold.
        costs: of the kinds of work.
        n_rows: segments of a block, on average.
    """
    low, value, high = (
        work_of(template, plan, shares, case).ns(costs, n_rows) for case in (LEAST, LIKELY, MOST)
    )
    return Estimate(value, min(low, value), max(high, value))

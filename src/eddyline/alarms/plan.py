"""How alarms are solved: for each template what its alarms share, and in which order it is asked.

*Covered*: each comparison is computed once, on the segments that the loosest constants of those
before it leave, and sorted constants say which alarms are met. *Union*: each alarm is asked its
first comparison alone; what any of them leaves is put together, each segment once, and the others
are computed once on these. *Unshared*: each alarm alone. Answers are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eddyline.alarms.templates import Template

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
    orders = [(first, *(at for at in written if at != first)) for first in written]
    if len(written) <= MOST_PERMUTED:
        orders = [*permutations(written)]
    return tuple(TemplatePlan(way, each) for way in sharings_of(template) for each in orders)


def plain(plan: TemplatePlan, template: Template) -> dict[str, Any]:
    """Return a plan as plain values, with comparisons by their texts."""
    texts = [each.text for each in template.conjuncts]
    return {"sharing": plan.sharing, "order": [texts[at] for at in plan.order_of(template)]}


def from_plain(given: Any, template: Template) -> TemplatePlan | None:
    """Return the plan of plain values; None if it is none of this template."""
    texts = [each.text for each in template.conjuncts]
    if not isinstance(given, Mapping) or {*given} != {"sharing", "order"}:
        return None
    sharing, order = given["sharing"], given["order"]
    is_order = isinstance(order, list | tuple) and all(isinstance(each, str) for each in order)
    if sharing not in sharings_of(template) or not is_order or sorted(order) != sorted(texts):
        return None
    return TemplatePlan(sharing, tuple(map(texts.index, order)))

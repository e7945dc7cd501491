"""What the plans of a template took, beside what each plan would have taken if it had stayed.

A plan that was in force took what was measured; of others there is the estimate, put right by what
came true. So the best plan in hindsight is known without one being run for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.alarms.plan import TemplatePlan, from_plain, plain, sharings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.alarms.templates import Template

MOST_PERMUTED = 3
"""Conjuncts up to which all orders are compared; of more, those that ask another one first."""


def fixed_plans(template: Template) -> tuple[TemplatePlan, ...]:
    """Return the plans that a template could have had all the time."""
    written = tuple(range(len(template.conjuncts)))
    orders = [(first, *(at for at in written if at != first)) for first in written]
    if len(written) <= MOST_PERMUTED:
        orders = [*permutations(written)]
    return tuple(TemplatePlan(way, each) for way in sharings_of(template) for each in orders)


class SavedHindsight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved state of a ``Hindsight``."""

    took: float = 0.0
    plans: list[tuple[dict[str, Any], float]] = []


@dataclass(frozen=True)
class Hindsight:
    """What a template took, and what it would have taken (ns)."""

    took: float = 0.0
    plans: Mapping[TemplatePlan, float] = field(default_factory=dict)
    """What each fixed plan would have taken."""

    def after(
        self, n_rows: int, plan: TemplatePlan, took: float, estimates: Mapping[TemplatePlan, float]
    ) -> Hindsight:
        """Return it with one more batch.

        Args:
            n_rows: segments of the batch.
            plan: what was in force, its order in full.
            took: what that took for each segment (ns).
            estimates: what each fixed plan would have taken for each (ns).
        """
        costs = {each: took if each == plan else ns for each, ns in estimates.items()}
        sums = {each: self.plans.get(each, 0.0) + n_rows * ns for each, ns in costs.items()}
        return Hindsight(self.took + n_rows * took, sums)

    @property
    def best(self) -> TemplatePlan | None:
        """The fixed plan that would have taken least; None before anything is known."""
        return min(self.plans, key=self.plans.__getitem__, default=None)

    @property
    def least(self) -> float:
        """What that would have taken (ns)."""
        return min(self.plans.values(), default=0.0)

    @property
    def regret(self) -> float:
        """By what share more was taken; less than 0 if no fixed plan is as good, NaN if unknown."""
        return regret_of(self.took, self.least)

    def saved(self, template: Template) -> SavedHindsight:
        """Return the same to be saved."""
        return SavedHindsight(
            self.took, [(plain(each, template), ns) for each, ns in self.plans.items()]
        )

    @classmethod
    def of(cls, saved: SavedHindsight, template: Template) -> Hindsight:
        """Return what was saved; nothing if it is of another template."""
        found = {from_plain(each, template): ns for each, ns in saved.plans}
        plans = {each: ns for each, ns in found.items() if each is not None}
        return cls(saved.took, plans) if {*plans} == {*fixed_plans(template)} else cls()


def regret_of(took: float, least: float) -> float:
    """Return by what share more was taken than the least; NaN if nothing is known."""
    return took / least - 1.0 if least > 0.0 else float("nan")

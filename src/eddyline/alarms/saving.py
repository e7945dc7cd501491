"""What a run saves of the plan of alarms, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import msgspec

from eddyline.alarms.plan import TemplatePlan, from_plain, plain
from eddyline.alarms.profile import AlarmProfile
from eddyline.alarms.tally import KINDS
from eddyline.errors import StateError
from eddyline.estimates.accuracy import Accuracy, SavedAccuracy
from eddyline.estimates.histograms import CoefHistogram
from eddyline.estimates.values import ValueSketch
from eddyline.runtime.order_loop import OrderState
from eddyline.stats.costs import CostSums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.alarms.templates import Template
    from eddyline.runtime.order_loop import OrderLoop


class SavedTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is saved of a template."""

    plan: dict[str, Any]
    accuracy: dict[str, SavedAccuracy]
    results: SavedAccuracy
    orders: OrderState | None = None

    @classmethod
    def of(
        cls,
        plan: TemplatePlan,
        template: Template,
        accuracy: Mapping[str, Accuracy],
        results: Accuracy,
        orders: OrderLoop | None,
    ) -> Self:
        """Return it of what is known."""
        return cls(
            plain(plan, template),
            {way: each.saved for way, each in accuracy.items()},
            results.saved,
            None if orders is None else orders.snapshot(),
        )

    def plan_of(self, template: Template) -> TemplatePlan | None:
        """Return the plan; None if it is of another template."""
        return from_plain(self.plan, template)

    @property
    def accuracies(self) -> dict[str, Accuracy]:
        """How far costs were off, by how it was solved."""
        return {way: Accuracy.of(each) for way, each in self.accuracy.items()}

    @property
    def result(self) -> Accuracy:
        """How far results were off."""
        return Accuracy.of(self.results)


class Learned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved state of the loop."""

    n_rows: int
    n_blocks: int
    costs: list[list[float | None]]
    values: dict[str, dict[str, Any]]
    coefs: dict[str, dict[str, Any]]
    templates: dict[str, SavedTemplate]

    @classmethod
    def of(cls, known: AlarmProfile, templates: dict[str, SavedTemplate]) -> Self:
        """Return it of what is known."""
        return cls(
            known.n_rows,
            known.n_blocks,
            known.costs.to_state(),
            {name: each.to_state() for name, each in known.values.items()},
            {name: each.to_state() for name, each in known.coefs.items()},
            templates,
        )


@dataclass(frozen=True)
class Saved:
    """What was read of it."""

    known: AlarmProfile
    templates: dict[str, SavedTemplate]


def read(state: Any) -> Saved:
    """Return what a loop saved.

    Raises:
        StateError: it is damaged.
    """
    try:
        given = msgspec.convert(state, Learned, from_attributes=True)
        costs = CostSums.from_state(given.costs)
    except (ValueError, TypeError) as error:
        msg = f"the saved plan of alarms is damaged: {error}; start from an empty checkpoint"
        raise StateError(msg) from error
    if costs.n_filters != len(KINDS):
        msg = "the saved plan of alarms is damaged: its costs are of other kinds of work"
        raise StateError(msg)
    known = AlarmProfile(
        given.n_rows,
        given.n_blocks,
        costs,
        values={name: ValueSketch.from_state(each) for name, each in given.values.items()},
        coefs={name: CoefHistogram.from_state(each) for name, each in given.coefs.items()},
    )
    return Saved(known, dict(given.templates))

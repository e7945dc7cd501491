"""What joins ask before, as a person may pin it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eddyline.models.planning.ways import BY_SAMPLE, asked_sides, plain, way_of
from eddyline.runtime.by_hand import OfLoop
from eddyline.runtime.choice import Advice

if TYPE_CHECKING:
    from eddyline.models.planning.loop import ModelLoop


class ModelPin(OfLoop):
    """The sides that joins ask, by the texts of these; those that are left out stay as they are."""

    loop: ModelLoop
    why_unlogged = "what each way would have taken in each batch is not kept"

    def __init__(self, loop: ModelLoop) -> None:
        super().__init__(loop)

    @property
    def plan(self) -> dict[str, Any]:
        """The plan in force."""
        ways = self.loop.plan
        return {text: plain(ways.get(text)) for text in self.loop.joins}

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        sides = "; ".join(
            f"{text!r} has {', '.join(map(repr, asked_sides(each)))}"
            for text, each in self.loop.joins.items()
        )
        return (
            f"for some joins {BY_SAMPLE!r} or a list of sides that are asked before, in their "
            f"order, each once: {sides:.300}"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether each is a join of the graph, and has sides of its own."""
        if not isinstance(plan, Mapping):
            return False
        joins = self.loop.joins
        try:
            return all(text in joins and _is_way(each, joins[text]) for text, each in plan.items())
        except ValueError:
            return False

    def adopt(self, plan: Mapping[str, Any]) -> None:
        """Put another plan in force."""
        joins = self.loop.joins
        self.loop.adopt({text: way_of(each, joins[text]) for text, each in plan.items()})

    def advice(self) -> Advice | None:
        """Return the plan that the evidence calls the best."""
        best = self.loop.best()
        return (
            Advice(self.plan | {text: plain(way) for text, way in best.items()}) if best else None
        )


def _is_way(given: Any, join: Any) -> bool:
    way_of(given, join)
    return True

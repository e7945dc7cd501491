"""The plan of alarms, as a person may pin it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eddyline.alarms.plan import TemplatePlan, from_plain, plain
from eddyline.runtime.pins import Advice, Pinnable

if TYPE_CHECKING:
    from eddyline.alarms.loop import AlarmLoop
    from eddyline.alarms.plan import AlarmPlan


class AlarmPin(Pinnable):
    """How templates are solved, by their texts; those that are left out stay as they are."""

    loop: AlarmLoop
    why_unlogged = "the histograms that price all ways in each batch are not kept"

    def __init__(self, loop: AlarmLoop) -> None:
        super().__init__(loop)

    @property
    def plan(self) -> dict[str, Any]:
        """The plan in force."""
        return self._plain(self.loop.plan)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        texts = ", ".join(map(repr, self.loop.templates))
        return (
            "for some templates {'sharing': 'covered', 'union' or 'unshared', 'order': a list of "
            f"its comparisons, each once}}, where a union needs two; templates are {texts:.300}"
        )

    def is_possible(self, plan: Any) -> bool:
        """Return whether each template is one of the set, and has a plan of its own."""
        templates = self.loop.templates
        return isinstance(plan, Mapping) and all(
            text in templates and from_plain(each, templates[text]) is not None
            for text, each in plan.items()
        )

    def adopt(self, plan: Mapping[str, Any]) -> None:
        """Put another plan in force."""
        found = {text: from_plain(each, self.loop.templates[text]) for text, each in plan.items()}
        self.loop.adopt({text: each for text, each in found.items() if each is not None})

    def advice(self) -> Advice | None:
        """Return the plan that the evidence calls the best."""
        best = self.loop.best()
        return Advice(self._plain(best)) if best else None

    def _plain(self, plan: AlarmPlan) -> dict[str, Any]:
        templates = self.loop.templates
        return {
            text: plain(plan.get(text, TemplatePlan()), each) for text, each in templates.items()
        }

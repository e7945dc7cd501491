"""The plan of alarms, as a person may pin it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.alarms.conditions import held_of
from eddyline.alarms.plan import TemplatePlan, fixed_plans, from_plain, plain
from eddyline.runtime.by_hand import OfLoop
from eddyline.runtime.choice import UNKNOWN_NS, Advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.alarms.loop import AlarmLoop
    from eddyline.alarms.plan import AlarmPlan
    from eddyline.data.arrays import Floats
    from eddyline.runtime.situations import Situation


class AlarmPin(OfLoop):
    """How templates are solved, by their texts; those that are left out stay as they are."""

    loop: AlarmLoop
    why_unlogged = ""
    per = "segment"

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

    # -- the log of plans -----------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """The templates: their plans and prices are of no others."""
        texts = "\n".join(sorted(self.loop.templates))
        return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest()

    def in_words(self, plan: Mapping[str, Any]) -> str:
        """Return a plan in words: of templates that are not covered, and asked as written."""
        usual = self._plain({})
        others = [
            f"{text} {each['sharing']}, {' then '.join(each['order'])}"
            for text, each in plan.items()
            if each != usual.get(text)
        ]
        return "; ".join(others) or "all covered, as written"

    def situation(self) -> Situation | None:
        """Return on how many segments comparisons and alarms hold."""
        return self.loop.seen.situation(self.plan)

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the segments of the last batch."""
        return self.loop.n_newest

    def foreseen(self, plan: Any, evidence: Any) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return on what share of segments alarms hold."""
        return held_of(evidence)

    def cost_of(self, plan: Mapping[str, Any], evidence: Any) -> float:
        """Return what the templates of the evidence cost (ns per segment).

        Of orders that are not told apart it is that of the one that asks the same first.
        """
        if evidence is None:
            return UNKNOWN_NS
        total, templates = 0.0, self.loop.templates
        for text, prices in evidence[1].items():
            own = from_plain(plan[text], templates[text])
            known = dict(zip(fixed_plans(templates[text]), prices, strict=True))
            if own is None:
                return UNKNOWN_NS
            if own not in known:
                first, *rest = own.order
                own = replace(own, order=(first, *sorted(rest)))
            total += known[own]
        return total

    def best_single(self, held: Sequence[tuple[Any, float]]) -> dict[str, Any]:
        """Return the best plan of each template for all situations together."""
        sums: dict[str, Floats] = {}
        for evidence, n_rows in held:
            for text, prices in evidence[1].items():
                sums[text] = sums.get(text, np.zeros(len(prices))) + n_rows * np.array(prices)
        templates = self.loop.templates
        best = {text: fixed_plans(templates[text])[np.argmin(of)] for text, of in sums.items()}
        return self._plain(best)

    def take(self, plan: Mapping[str, Any], evidence: Any) -> None:  # noqa: ARG002
        """Put a plan in force; the next batch tells how values are spread."""
        self.adopt(plan)
        self.loop.is_surprised = True

    def let_go(self) -> None:
        """Have the next batch tell how values are spread."""
        self.loop.is_surprised = True

    def _plain(self, plan: AlarmPlan) -> dict[str, Any]:
        templates = self.loop.templates
        return {
            text: plain(plan.get(text, TemplatePlan()), each) for text, each in templates.items()
        }

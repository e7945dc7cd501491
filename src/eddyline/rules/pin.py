"""How rules are looked for, as a person may pin it, and as the log of plans knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.errors import StateError
from eddyline.rules.planning.access_predicates import plan_by
from eddyline.rules.planning.planner import plan_from
from eddyline.rules.planning.price import price_ns
from eddyline.runtime.by_hand import OfLoop

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from eddyline.rules.conditions import RuleConditions
    from eddyline.rules.loop import RuleLoop
    from eddyline.runtime.situations import Situation

STATED = "one statement of Spark's tells nothing of the tests of its rules"
"""Why nothing is logged while the matcher does not run."""

NOT_KEPT = "a loop of tasks keeps no conditions"


class RulePin(OfLoop):
    """The plan of rules, known again by the rates of literals, and priced by them."""

    loop: RuleLoop

    @property
    def why_unlogged(self) -> str:  # type: ignore[override]
        """Why plans are not logged, if they are not."""
        if self.loop.conditions is None:
            return NOT_KEPT
        return STATED if self.loop.plan.is_statement else self.loop.conditions.why_not

    @property
    def _conditions(self) -> RuleConditions:
        assert self.loop.conditions is not None
        return self.loop.conditions

    @property
    def identity(self) -> str:
        """The rules: plans of others are none of these."""
        return "" if self.loop.conditions is None else self.loop.conditions.identity

    @property
    def plan(self) -> Any:
        """The plan in force."""
        return msgspec.to_builtins(self.loop.plan)

    @property
    def possible(self) -> str:
        """The plans that may be pinned, in words."""
        return "a plan of these rules, as run.plan() has the one in force"

    def is_possible(self, plan: Any) -> bool:
        """Return whether it is a plan of these rules."""
        try:
            plan_from(plan, self.loop.blocks)
        except StateError:
            return False
        return True

    def in_words(self, plan: Any) -> str:
        """Return a plan in words."""
        return str(plan_from(plan, self.loop.blocks))

    def situation(self) -> Situation | None:
        """Return for which share of the sampled rows each literal holds."""
        return self._conditions.situation()

    def rows_met(self, n_rows: int) -> int:
        """Return the rows of the last batch, or those of the query where nobody counts them."""
        return self.loop.n_newest or n_rows

    def cost_of(self, plan: Any, evidence: Any) -> float:
        """Return what the matcher is expected to take (ns per row)."""
        rates = self._conditions.rates(evidence)
        return price_ns(self.loop.program, plan_from(plan, self.loop.blocks), rates)

    def best_single(self, held: Sequence[tuple[Any, float]]) -> Any:
        """Return the plan that is the cheapest by the mean rates of all situations."""
        total = sum(n_rows for _, n_rows in held)
        parts = [self._conditions.rates(evidence) * (n_rows / total) for evidence, n_rows in held]
        mean: np.ndarray = sum(parts[1:], parts[0])
        return msgspec.to_builtins(
            plan_by(self.loop.program, mean, method=self.loop.options.method)
        )

    def adopt(self, plan: Any) -> None:
        """Put a plan in force that was settled by rows of before: rates say it all."""
        self.loop.take(plan_from(plan, self.loop.blocks))

    def let_go(self) -> None:
        """Plan anew as soon as there are enough rows."""
        self.loop.is_settling = True

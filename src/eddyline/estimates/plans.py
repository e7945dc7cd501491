"""Estimates of whole plans: rates go down a plan, costs add up, and bounds say what is risked.

Costs are per input segment of an operator, rates per segment of the stream (Pulse 4.4). Everywhere
the weighted sum of cost and risk decides (E7), and ranks are compared by products, which are right
where a step gives more than it takes, too (E20).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.estimates.filters import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE = Estimate.exactly(1.0)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of a plan.

    Attributes:
        cost: for each segment that comes in.
        gives: segments that it gives for each that comes in.
        of: what it reads; nothing for the stream itself. Rates of several add up.
    """

    cost: float
    gives: Estimate = ONE
    of: Sequence[Node] = ()


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What a plan costs for each segment of the stream."""

    cost: Estimate

    @property
    def risk(self) -> float:
        """How much more it may cost than it does at best."""
        return self.cost.high - self.cost.low

    def objective(self, aversion: float) -> float:
        """Return what plans are compared by; ``aversion`` to risk is in [0, 1]."""
        return (1.0 - aversion) * self.cost.value + aversion * self.risk


def cost_of(outputs: Sequence[Node]) -> PlanCost:
    """Return the cost of all that outputs need, each operator once."""
    rates: dict[int, Estimate] = {}
    total = [0.0, 0.0, 0.0]

    def rate(node: Node) -> Estimate:
        if id(node) not in rates:
            given = [rate(each) for each in node.of] or [ONE]
            came = [sum(x) for x in zip(*(_three(each) for each in given), strict=True)]
            for at, each in enumerate(came):
                total[at] += node.cost * each
            rates[id(node)] = Estimate(*came).times(node.gives)
        return rates[id(node)]

    for each in outputs:
        rate(each)
    return PlanCost(Estimate(*total))


def _three(given: Estimate) -> tuple[float, float, float]:
    return given.value, given.low, given.high


def comes_later(cost: float, passes: float, next_cost: float, next_passes: float) -> bool:
    """Return whether a filter should stand behind the next one: the rank, cross-multiplied.

    Args:
        cost: of a filter for each segment.
        passes: what it gives for each; above 1 where it cuts segments into pieces.
        next_cost: likewise of the next one.
        next_passes: of what has passed the first.
    """
    return cost * (1.0 - next_passes) > next_cost * (1.0 - passes)

"""Estimates of the rates and costs of whole plans, with bounds.

Costs are per input segment of an operator, rates per segment of the stream (Pulse 4.4). The
weighted sum of cost and risk decides everywhere (E7). Ranks are compared by products, which are
right also if a step gives more than it takes (E20).

``Accuracy`` measures how far estimates were off as they come true, and corrects the next ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from eddyline.estimates.filters import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats

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


def cost_of(outputs: Sequence[Node]) -> Estimate:
    """Return what all that outputs need costs a segment of the stream, each operator once."""
    rates: dict[int, Floats] = {}
    """The rate that each operator gives: expected, at least, at most."""
    total = np.zeros(3)

    def rate(node: Node) -> Floats:
        if id(node) not in rates:
            came = np.sum([rate(source) for source in node.of], axis=0) if node.of else np.ones(3)
            total[:] += node.cost * came
            rates[id(node)] = came * [node.gives.value, node.gives.low, node.gives.high]
        return rates[id(node)]

    for output in outputs:
        rate(output)
    return Estimate(*total.tolist())


def comes_later(cost: float, passes: float, next_cost: float, next_passes: float) -> bool:
    """Return whether a filter should stand behind the next one: the rank, cross-multiplied.

    Args:
        cost: of a filter for each segment.
        passes: what it gives for each; above 1 where it cuts segments into pieces.
        next_cost: likewise of the next one.
        next_passes: of what has passed the first.
    """
    return cost * (1.0 - next_passes) > next_cost * (1.0 - passes)


FRESH = 0.25
"""Weight of the newest measurement against all before it."""

MOST_OFF = log(1_000.0)
"""Factor beyond which an estimate being off says nothing about the next one."""


class Accuracy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By what factor an estimator is off, and how much that varies."""

    bias: float = 0.0
    """Logarithm of what came true over what was estimated, newer ones counting more."""
    spread: float = 0.0
    """Mean distance of that logarithm from ``bias``."""
    n: int = 0
    """How many estimates came true."""

    def after(self, estimated: float, true: float) -> Accuracy:
        """Return it with one more estimate, before it was corrected, and what came true.

        Nothing is learned where either is 0 or less, or no number.
        """
        if not (estimated > 0.0 and true > 0.0 and isfinite(estimated) and isfinite(true)):
            return self
        off = max(-MOST_OFF, min(MOST_OFF, log(true / estimated)))
        weight = max(FRESH, 1.0 / (self.n + 1))
        bias = self.bias + weight * (off - self.bias)
        spread = self.spread + weight * (abs(off - self.bias) - self.spread) if self.n else 0.0
        return Accuracy(bias, spread, self.n + 1)

    def corrected(self, estimate: Estimate) -> Estimate:
        """Return an estimate put right, with bounds as wide as it varied."""
        factor, wider = exp(self.bias), exp(self.spread)
        return Estimate(
            estimate.value * factor, estimate.low * factor / wider, estimate.high * factor * wider
        )

    @property
    def factor(self) -> float:
        """What came true over what was estimated."""
        return exp(self.bias)

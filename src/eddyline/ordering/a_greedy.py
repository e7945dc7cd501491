"""A-Greedy: the greedy order on the profile window [Babu05 4.3].

*The greedy step* takes the filter that drops the most weight per cost of what is still alive. An
order satisfies the *greedy invariant* if every position holds such a filter; it then costs at most
four times the optimum [Babu05 Def 4.3.1, Thm 4.3.1].

*The policy* detects violations of the invariant in the matrix view and repairs them. The order
costs at most 4 / ``hysteresis`` times the optimum once the statistics hold still (Thm 4.3.1). Every
bit that a repair needs is already in the window, so the policy reacts at once.

Deviations: the view is checked once per batch instead of once per tuple. Several positions can be
violated at once then, so repairs repeat until none is flagged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from eddyline.options import in_range
from eddyline.ordering.protocol import (
    Proposal,
    WindowPolicy,
    expected_cost_ns,
    joint_drops,
    reasons,
    view_of,
)

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class AGreedyOptions:
    """Options of A-Greedy: the conditions of another order.

    ``AGreedyOptions(hysteresis=1, min_fill=1, min_gain=0, prior_tuples=0)`` is the thesis'
    algorithm without any guard against noise.

    Raises:
        OptionError: a value is out of its range.
    """

    hysteresis: float = 0.9
    """A filter must beat the one in force by 1 / hysteresis to be flagged ((0, 1]; 1 switches the
    guard off). The thesis' alpha and default [Babu05 (4.4), Table 4.1]."""
    min_fill: int = 50
    """Profile tuples in the window before anything is flagged (≥ 1; 1 switches the guard off).
    Below fifty a count of a deep position is mostly noise."""
    min_gain: float = 0.01
    """Share of the predicted cost that a new order must save ([0, 1); 0 switches the guard off:
    every repair is adopted). Steady-state reorders among deep positions win less than this."""
    prior_tuples: float = 1.0
    """Tuples that are taken to reach every position before any is seen there (≥ 0; 0 switches the
    prior off). One is enough to order filters behind one that drops everything by what they drop
    in general, and too little to outweigh what was seen."""
    z_score: float = 0.0
    """Standard errors by which a filter must beat the one in force, on the same tuples (≥ 0; 0
    switches the guard off). McNemar's test, weighted by cost; 2 is a usual choice."""

    def __post_init__(self) -> None:
        in_range(self, "hysteresis", 1e-3, 1.0)
        in_range(self, "min_fill", 1, 2**31)
        in_range(self, "min_gain", 0.0, 1.0)
        in_range(self, "prior_tuples", 0.0, 1e6)
        in_range(self, "z_score", 0.0, 100.0)

    def build(self, n_filters: int, rng: np.random.Generator) -> AGreedy:  # noqa: ARG002 protocol
        """Return a fresh policy."""
        return AGreedy(self)


class Violation(NamedTuple):
    """A position whose filter drops less per cost than a later one would there."""

    position: int
    by_position: int
    ratios: tuple[float, float]
    """Weight that the filter in force and the later one drop there (per ns)."""


class AGreedy(WindowPolicy):
    """Proposes the repaired order when the greedy invariant is violated in the window."""

    def __init__(self, options: AGreedyOptions) -> None:
        self.options = options

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return the order that satisfies the greedy invariant, if this one does not."""
        if window.n_tuples < self.options.min_fill or window.basis is not None:
            return None
        evidence = Evidence.from_profile(window, self.options.prior_tuples)
        flagged = following = self._violation(order, evidence)
        if flagged is None:
            return None
        repaired = order
        while following is not None:
            repaired, checked = restore_invariant(repaired, following.position, evidence)
            following = self._violation(repaired, evidence, start=checked)
        return self._worthwhile(order, repaired, flagged, window)

    def _violation(self, order: Order, evidence: Evidence, start: int = 0) -> Violation | None:
        """Return the violation at the smallest position from ``start`` on [Babu05 (4.4)]."""
        joint = joint_drops(order, evidence.bits, evidence.weights)
        price = evidence.costs_ns[list(order)]
        ratios = (view_of(joint) + evidence.prior[list(order)]) / price
        flagged = np.triu(ratios.diagonal()[:, None] < self.options.hysteresis * ratios, 1)
        if self.options.z_score > 0.0:
            scale = evidence.n_tuples / evidence.weights.sum()
            flagged &= z_scores(joint * scale, price) > self.options.z_score
        flagged[:start] = False
        if not flagged.any():
            return None
        i = int(flagged.any(axis=1).argmax())
        j = int(np.where(flagged[i], ratios[i], -1.0).argmax())
        return Violation(i, j, (ratios[i, i], ratios[i, j]))

    def _worthwhile(
        self, order: Order, repaired: Order, flagged: Violation, window: FilterProfile
    ) -> Proposal | None:
        """Return the proposal unless it is predicted to save too little."""
        before, after = expected_cost_ns(order, window), expected_cost_ns(repaired, window)
        min_gain = self.options.min_gain
        if repaired == order or (min_gain > 0.0 and before - after <= min_gain * before):
            return None
        evidence = reasons(window, order, *flagged, window.n_tuples)
        evidence |= {"cost_ns": before, "proposed_cost_ns": after}
        return Proposal(repaired, evidence)


def z_scores(joint: Floats, price: Floats) -> Floats:
    """Return by how many standard errors position j beats position i on the same tuples ((F, F)).

    A tuple alive at i counts ``drops_j / price_j - drops_i / price_i``; with equal prices the
    square of the result is McNemar's (n01 - n10)² / (n01 + n10). Joint drops are in profile tuples
    ((F, F)), prices by position ((F,)).
    """
    view = view_of(joint)
    own_score = (view.diagonal() / price)[:, None]
    squares = view / price**2 + own_score / price[:, None] - 2.0 * joint / (price * price[:, None])
    spread = np.sqrt(np.maximum(squares, 0.0))
    return np.divide(
        view / price - own_score, spread, out=np.zeros_like(spread), where=spread > 0.0
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a window, read once for all steps of one decision."""

    bits: Bits
    """Distinct outcome bits by filter index ((K, F))."""
    weights: Floats
    """Weight of each ((K,))."""
    costs_ns: Floats
    """Cost of one evaluation of each filter (ns; > 0; (F,))."""
    n_tuples: int
    """Profile tuples that the weights sum up."""
    prior: Floats
    """Prior of each filter's drops at any position, before anything is seen there, by filter
    index (weight; (F,)). It decides between filters that no tuple tells apart, as behind one that
    drops everything."""

    @classmethod
    def from_profile(cls, window: FilterProfile, prior_tuples: float = 0.0) -> Self:
        """Read the evidence of a window.

        So many prior tuples, dropped by each filter as often as rows are in general, are taken to
        reach every position (0: none).
        """
        bits, weights = window.bits()
        seen = weights.sum() + window.passed
        scale = weights.sum() / max(window.n_tuples, 1) / seen if seen > 0 else 0.0
        prior = prior_tuples * scale * (weights @ bits)
        return cls(bits, weights, window.costs.per_row_ns, window.n_tuples, prior)


def restore_invariant(order: Order, start: int, evidence: Evidence) -> tuple[Order, int]:
    """Restore the greedy invariant from position ``start`` on [Babu05 Fig 4.7].

    The best filter moves to its position and those between shift right (a rotation: ties keep
    their order; the printed figure swaps, which contradicts the thesis' own Example 4.3.3). It
    stops behind the last position that a moved filter came from: further right the set of
    preceding filters, and so every count, is unchanged.

    Returns:
        The corrected order and the first position that was not looked at.
    """
    bits, weights = evidence.bits, evidence.weights
    current = list(order)
    alive = ~bits[:, current[:start]].any(axis=1)
    position = last = start
    while position <= last:
        bits, weights = bits[alive], weights[alive]
        ratios = ((weights @ bits + evidence.prior) / evidence.costs_ns)[current[position:]]
        best = position + int(ratios.argmax())
        last = max(last, best)
        current.insert(position, current.pop(best))
        alive = ~bits[:, current[position]]
        position += 1
    return tuple(current), position

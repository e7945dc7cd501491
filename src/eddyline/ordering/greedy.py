"""The greedy step: the filter that drops the most weight per cost of what is still alive.

An order satisfies the *greedy invariant* if every position holds such a filter; it then costs at
most four times the optimum [Babu05 Def 4.3.1, Thm 4.3.1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import FilterProfile, Order


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
    def of(cls, window: FilterProfile, prior_tuples: float = 0.0) -> Self:
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

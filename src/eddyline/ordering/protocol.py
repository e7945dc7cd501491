"""Protocol of ordering policies.

A policy sees profiles and an order, and may propose another one. A policy never sees rows, never
reads a clock and never draws its own random numbers. So it is testable without Spark, and the same
evidence always gives the same proposals. ``Fixed`` is the smallest policy: it never proposes.

Words: ``order[position] -> filter index``; filter index ``f`` names ``profile.filter_ids[f]``.

**The matrix view** says what each filter would drop, given the filters before it. Row i and column
j belong to the positions i and j, not to filter indices. ``view_of`` and ``drop_fracs`` compute the
view from the distinct outcome codes of the window, so it is never stale after a change of order
[Babu05 4.3.2; deviation: the thesis updates it tuple by tuple].

On a profile with partial bits (``profile.basis`` is set) an unknown bit counts as "passes", so
entries beyond a tuple's first drop are lower bounds; the diagonal, the drop fractions and the
expected cost are exact for the order that the profile was taken under.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from eddyline.data.learned import Learns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices, Mask
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another order, and the evidence for it."""

    order: Order
    """The proposed order."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check: the position violated, the two ratios, counts."""


def reasons(
    profile: FilterProfile,
    order: Order,
    position: int,
    better: int,
    ratios: tuple[float, float],
    n_tuples: int,
) -> dict[str, Any]:
    """Return the evidence that a filter would be better at a position than the one there.

    Both are given by position; ratios are what they drop there (weight per ns).
    """
    return {
        "position": position,
        "filter": profile.filter_ids[order[position]],
        "ratio": float(ratios[0]),
        "better_filter": profile.filter_ids[order[better]],
        "better_ratio": float(ratios[1]),
        "n_tuples": n_tuples,
    }


class OrderingPolicy(Protocol):
    """Keeps the order of one conjunction good while evidence arrives.

    The loop calls, once per batch: ``observe`` with that batch's profile, then ``propose`` with
    the window. Both are called from one thread. A policy must not keep references to arrays of
    profiles that it would later change. One with an attribute ``options`` is given others there
    when a person changes a threshold.
    """

    needs_all_bits: ClassVar[bool]
    """Whether every bit of every code must be known. If not, ``extra`` says which are taken."""

    def extra(self, n_filters: int) -> Mask:
        """Say which filters are evaluated on a sampled row beyond its first drop.

        Called before each batch. Element [d, c] (positions; (F, F)): for a row first dropped at
        position d, evaluate position c > d as well.
        """

    def observe(self, fresh: FilterProfile, order: Order) -> None:
        """Take in the profile of the last batch, which ran under ``order``."""

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:
        """Return a better order than ``order`` on the evidence, or None to keep it."""

    def snapshot(self) -> dict[str, Any]:
        """Return the learned state as plain values (JSON)."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""


class PolicyOptions(Protocol):
    """The options of a policy: a frozen dataclass that validates itself and builds the policy."""

    def build(self, n_filters: int, rng: np.random.Generator) -> OrderingPolicy:
        """Return a fresh policy for a conjunction of ``n_filters`` filters."""


class WindowPolicy(Learns):
    """Base of the policies that decide on the window alone, which the loop saves."""

    needs_all_bits: ClassVar[bool] = True

    def extra(self, n_filters: int) -> Mask:
        """Ask for every filter on every sampled row."""
        return np.triu(np.ones((n_filters, n_filters), dtype=np.bool_), 1)

    def observe(self, fresh: FilterProfile, order: Order) -> None:
        """Do nothing: the window holds the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedOptions:
    """Nothing to choose."""

    def build(self, n_filters: int, rng: np.random.Generator) -> Fixed:  # noqa: ARG002 protocol
        """Return the policy."""
        return Fixed()


class Fixed(WindowPolicy):
    """Never proposes."""

    needs_all_bits: ClassVar[bool] = False

    def extra(self, n_filters: int) -> Mask:
        """Ask for nothing."""
        return np.zeros((n_filters, n_filters), dtype=np.bool_)

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:  # noqa: ARG002 protocol
        """Keep the order."""
        return None


def drop_fracs(order: Order, profile: FilterProfile) -> Floats:
    """Return the drop fraction of each position given the positions before it ([0, 1]; (F,)).

    A position that no sampled row reached has drop fraction 0.
    """
    bits, weights = profile.bits()
    _, first = by_position(order, bits)
    dropped = np.bincount(first, weights=weights, minlength=len(order))
    reached = dropped[::-1].cumsum()[::-1] + profile.passed
    return np.divide(dropped, reached, out=np.zeros(len(dropped)), where=reached > 0)


def reach(fracs: Floats) -> Floats:
    """Return the share of rows that reaches each position, given what each drops ((F,))."""
    return np.concatenate([[1.0], np.cumprod(1.0 - fracs)[:-1]])[: len(fracs)]


def expected_cost_ns(order: Order, profile: FilterProfile) -> float:
    """Return the expected cost of one input row under an order (ns) [Babu05 (4.1)].

    Without evidence nothing drops, so this is the sum of the filters' costs.
    """
    reached = np.cumprod(1.0 - drop_fracs(order, profile)[:-1])
    costs = profile.costs.per_row_ns[list(order)]
    return float(costs[0] + costs[1:] @ reached)


def rivals(
    before: Order, after: Order, profile: FilterProfile, evidence: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the filter at a position drops and costs, and the one that takes its place.

    Both meet the rows that the filters before the position pass.

    Args:
        before: the order in force.
        after: the order that was proposed.
        profile: the rows that it was proposed by.
        evidence: of the proposal, which names the position, or else it is the first that differs.

    Returns:
        Nothing where not all outcomes are known, or both filters are not of the position.
    """
    differs = (
        place for place, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1
    )
    position = evidence.get("position", next(differs, None))
    if position not in range(len(before)) or profile.basis is not None:
        return {}
    if after[position] in before[: position + 1]:
        return {}
    pair = before[position], after[position]
    if evidence.get("better_filter", profile.filter_ids[pair[1]]) != profile.filter_ids[pair[1]]:
        return {}
    facts: dict[str, Any] = {}
    for prefix, f in zip(("", "better_"), pair, strict=True):
        rest = (other for other in before if other != f and other not in before[:position])
        order = (*before[:position], f, *rest)
        facts[f"{prefix}filter"] = profile.filter_ids[f]
        facts[f"{prefix}drop_frac"] = float(drop_fracs(order, profile)[position])
        facts[f"{prefix}filter_cost_ns"] = float(profile.costs.per_row_ns[f])
    return facts


def by_position(order: Order, bits: Bits) -> tuple[Bits, Indices]:
    """Return outcome bits by position ((R, F)) and the position of each first drop ((R,))."""
    drops = bits[:, list(order)]
    return drops, drops.argmax(axis=1)


def joint_drops(order: Order, bits: Bits, weights: Floats) -> Floats:
    """Return the weight of the tuples first dropped at d that position c drops too ((F, F)).

    Bits are by filter index ((R, F)), with a weight each ((R,)).
    """
    drops, first = by_position(order, bits)
    rows = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[rows], prepend=-1))
    joint = np.zeros((len(order), len(order)))
    if len(starts):
        weighted = weights[rows, None] * drops[rows]
        joint[first[rows[starts]]] = np.add.reduceat(weighted, starts, axis=0)
    return joint


def view_of(joint: Floats) -> Floats:
    """Return the matrix view of joint drops: what is first dropped at i or later counts in i."""
    return joint[::-1].cumsum(axis=0)[::-1]

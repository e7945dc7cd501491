"""The matrix view: what each filter would drop, given the filters before it.

Positions, not filter indices: row i and column j belong to ``order[i]`` and ``order[j]``. The view
is recomputed from the distinct outcome codes of the window, so it is never stale after a change of
order [Babu05 4.3.2; deviation: the thesis updates it tuple by tuple].

On a profile with partial bits (``profile.basis`` is set) an unknown bit counts as "passes", so
entries beyond a tuple's first drop are lower bounds; the diagonal, the drop fractions and the
expected cost are exact for the order that the profile was taken under.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import FilterProfile, Order


def drop_fracs(order: Order, profile: FilterProfile) -> Floats:
    """Return the drop fraction of each position given the positions before it ([0, 1]; (F,)).

    A position that no sampled row reached has drop fraction 0.
    """
    bits, weights = profile.bits()
    _, first = by_position(order, bits)
    dropped = np.bincount(first, weights=weights, minlength=len(order))
    reached = dropped[::-1].cumsum()[::-1] + profile.passed
    return np.divide(dropped, reached, out=np.zeros(len(dropped)), where=reached > 0)


def expected_cost_ns(order: Order, profile: FilterProfile) -> float:
    """Return the expected cost of one input row under an order (ns) [Babu05 (4.1)].

    Without evidence nothing drops, so this is the sum of the filters' costs.
    """
    reach = np.cumprod(1.0 - drop_fracs(order, profile)[:-1])
    costs = profile.costs.per_row_ns[list(order)]
    return float(costs[0] + costs[1:] @ reach)


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
    differs = (at for at, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1)
    position = evidence.get("position", next(differs, None))
    if position not in range(len(before)) or profile.basis is not None:
        return {}
    if after[position] in before[: position + 1]:
        return {}
    pair = before[position], after[position]
    if evidence.get("better_filter", profile.filter_ids[pair[1]]) != profile.filter_ids[pair[1]]:
        return {}
    found: dict[str, Any] = {}
    for prefix, f in zip(("", "better_"), pair, strict=True):
        rest = (each for each in before if each != f and each not in before[:position])
        order = (*before[:position], f, *rest)
        found[f"{prefix}filter"] = profile.filter_ids[f]
        found[f"{prefix}drop_frac"] = float(drop_fracs(order, profile)[position])
        found[f"{prefix}filter_cost_ns"] = float(profile.costs.per_row_ns[f])
    return found


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

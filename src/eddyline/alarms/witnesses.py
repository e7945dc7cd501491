"""By which comparisons alarms are looked for: each alarm has one that holds wherever it does.

Of an AND one part is enough, the rarest; of an OR all parts are needed (as access predicates of
rules are chosen).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.templates import slots_in
from eddyline.models.conditions import Comparison, Condition, Or

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.data.arrays import Ints, Mask


def witnesses(condition: Condition, counts: Callable[[int], Ints]) -> dict[int, Mask]:
    """Return for each slot the alarms of a template that are looked for by it.

    Args:
        condition: of the template.
        counts: for a slot, in how many segments its comparison may hold, by alarm, ``[n]``.

    Returns:
        Slots that no alarm is looked for by are left out.
    """
    _, chosen = _cheapest(condition, counts)
    return {slot: mask for slot, mask in chosen.items() if mask.any()}


def _cheapest(condition: Condition, counts: Callable[[int], Ints]) -> tuple[Ints, dict[int, Mask]]:
    """Return how many segments are looked at for each alarm, and by which slots."""
    if isinstance(condition, Comparison):
        (slot,) = slots_in(condition)
        cost = counts(slot)
        return cost, {slot: np.ones(len(cost), np.bool_)}
    parts = [_cheapest(each, counts) for each in condition.parts]
    costs = np.stack([cost for cost, _ in parts])
    if isinstance(condition, Or):
        return costs.sum(axis=0), {at: mask for _, chosen in parts for at, mask in chosen.items()}
    best = costs.argmin(axis=0)
    return costs.min(axis=0), {
        at: mask & (best == number)
        for number, (_, chosen) in enumerate(parts)
        for at, mask in chosen.items()
    }

"""By which comparisons alarms are looked for: each alarm has one that holds wherever it does.

Of an AND one part is enough, the rarest; of an OR all parts are needed (as access predicates of
rules are chosen). Two comparisons of an AND that keep one expression between two constants are one
part, a *band*: each alone holds nearly everywhere, and both next to nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.meeting import DOWN, UP
from eddyline.alarms.templates import slots_in
from eddyline.data.unique import distinct
from eddyline.models.solving.expressions import And, Comparison, Condition, Or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Ints, Mask

    Looked = tuple[int, ...]
    """A slot, or the two of a band: that which holds above its constant, then that below."""
    Counted = Callable[[Looked], Ints]
    """In how many segments they may hold, by alarm, ``[n]``."""


def witnesses(template: Template, counts: Counted, n: int) -> dict[Looked, Mask]:
    """Return for each slot or band the alarms of a template that are looked for by it.

    Args:
        template: the alarms.
        counts: of each slot and band.
        n: of how many segments; all are passed once for each slot or band.

    Returns:
        What no alarm is looked for by is left out.
    """
    _, chosen = _cheapest(template, template.condition, counts, n)
    return {looked: mask for looked, mask in chosen.items() if mask.any()}


def bands(template: Template, condition: Condition) -> Iterator[Looked]:
    """Yield the pairs of comparisons of an AND that keep an expression between two constants."""
    if not isinstance(condition, And):
        return
    slots = [slots_in(each)[0] for each in condition.parts if isinstance(each, Comparison)]
    ups = [at for at in slots if template.ops[at] in UP]
    downs = [at for at in slots if template.ops[at] in DOWN]
    for up in ups:
        for down in downs:
            if template.bases[up] == template.bases[down]:
                yield up, down


def _cheapest(
    template: Template, condition: Condition, counts: Counted, n: int
) -> tuple[Ints, dict[Looked, Mask]]:
    """Return how many segments are looked at for each alarm, and by which slots or bands."""
    if isinstance(condition, Comparison):
        return _by((slots_in(condition)[0],), counts)
    parts = [_cheapest(template, each, counts, n) for each in condition.parts]
    if isinstance(condition, Or):
        costs = np.stack([cost for cost, _ in parts])
        return costs.sum(axis=0), {at: mask for _, chosen in parts for at, mask in chosen.items()}
    parts += [_by(each, counts) for each in bands(template, condition)]
    costs = np.stack([cost for cost, _ in parts])
    best = _few(costs, np.array([len(chosen) for _, chosen in parts]) * n)
    return costs[best, np.arange(costs.shape[1])], {
        at: mask & (best == number)
        for number, (_, chosen) in enumerate(parts)
        for at, mask in chosen.items()
    }


def _few(costs: Ints, passes: Ints) -> Ints:
    """Return for each alarm the part by which it is looked for, without parts that do not pay.

    Args:
        costs: by part and alarm.
        passes: what a part costs that any alarm is looked for by.
    """
    left = costs.astype(float)
    while True:
        best: Ints = left.argmin(axis=0)
        used = distinct(best)
        if len(used) == 1:
            return best
        # What others would cost that have a part's alarms, the least first.
        more = []
        for part in used:
            own = left[:, best == part].copy()
            least = own[part].copy()
            own[part] = np.inf
            more.append(float((own.min(axis=0) - least).sum()) - passes[part])
        worst = int(np.argmin(more))
        if more[worst] >= 0:
            return best
        left[used[worst]] = np.inf


def _by(looked: Looked, counts: Counted) -> tuple[Ints, dict[Looked, Mask]]:
    cost = counts(looked)
    return cost, {looked: np.ones(len(cost), np.bool_)}

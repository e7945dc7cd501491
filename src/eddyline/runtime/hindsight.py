"""What adapting has brought: the plans that were in force beside the best single one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.runtime.choice import Choice
    from eddyline.runtime.logged import Logged


MOST_COMPARED = 32
"""Plans whose prices in all situations are compared: those that were in force for most rows. Where
each situation has plans of its own, a price of each in each would be hundreds of thousands."""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Costs by the evidence of all situations, each for the rows for which it held."""

    cost: float = float("nan")
    """Of the plans that were in force (per row; nan: not known)."""
    best: Any = None
    """The single plan that would have cost least: of those that were in force for most rows, and
    the one that is chosen for all situations together."""
    best_cost: float = float("nan")
    """What it would have cost (per row)."""
    n_plans: int = 0
    """Plans that were in force."""
    n_unpriced: int = 0
    """Of those that are compared, what cannot be priced in every situation, and is left out."""

    @property
    def saved(self) -> float:
        """Share of the cost of the best single plan that was saved (nan: not known)."""
        return 1.0 - self.cost / self.best_cost if self.best_cost > 0.0 else float("nan")


@dataclass(frozen=True, slots=True)
class LogView:
    """What the log says of one component."""

    component: str
    n_situations: int = 0
    n_rows: float = 0.0
    """Rows of all situations."""
    n_left_out: float = 0.0
    """Rows of which no situation was known, or that was let go of."""
    n_right: int = 0
    """Recalls that were right."""
    n_mistaken: int = 0
    """Recalls that were given up."""
    hindsight: Hindsight = field(default_factory=Hindsight)
    unit: str = "ns"
    """Of costs: ``ns``, or what is counted in place of time."""
    per: str = "row"
    """What costs are of."""
    why_not: str = ""
    """Why its plans are not logged, if they are not."""


def hindsight(situations: Sequence[Logged], target: Choice) -> Hindsight:
    """Return what plans have cost in some situations, and what the best of them would have."""
    n_rows = np.array([each.held.total for each in situations])
    if not n_rows.sum() > 0.0:
        return Hindsight()
    keys = compared(situations)
    prices = np.array([[each.price(target, key) for key in keys] for each in situations])
    # Rows under a plan without a price make the sum one that is not known.
    spent = [
        n * each.price(target, key)
        for each in situations
        for key, n in each.held.n_rows.items()
        if n > 0.0
    ]
    cost = float(sum(spent) / n_rows.sum())
    singles = dict(zip(keys, n_rows @ prices / n_rows.sum(), strict=True))
    n_unpriced = int(np.isnan(list(singles.values())).sum())
    found = [(float(single), json.loads(key)) for key, single in singles.items()]
    evidence = [each.seen.evidence for each in situations]
    together = target.best_single(list(zip(evidence, n_rows.tolist(), strict=True)))
    if together is not None:
        price = sum(n * target.cost_of(together, e) for n, e in zip(n_rows, evidence, strict=True))
        found.append((float(price / n_rows.sum()), together))
    known = [pair for pair in found if np.isfinite(pair[0])]
    best_cost, best = min(known, key=lambda pair: pair[0]) if known else (float("nan"), None)
    n_plans = len({key for each in situations for key in each.held.n_rows})
    return Hindsight(cost, best, best_cost, n_plans, n_unpriced)


def compared(situations: Sequence[Logged]) -> list[str]:
    """Return the plans that were in force for most rows, in the order in which they came."""
    n_rows: dict[str, float] = {}
    for each in situations:
        for key, n in each.held.n_rows.items():
            n_rows[key] = n_rows.get(key, 0.0) + n
    most = set(sorted(n_rows, key=n_rows.__getitem__, reverse=True)[:MOST_COMPARED])
    return [key for key in n_rows if key in most]

"""Choice of a join's results: combinations, or products by key.

An aggregate behind a join takes its results one by one. Where keys have many rows, products are
fewer than combinations. ``ProductChoice`` compares the numbers of both, which tasks count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.runtime.choice import OneOfFew, Situation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.joins.plan import ProductCounts
    from eddyline.runtime.journal import JournalEntry

COMBINATIONS, PRODUCTS = WAYS = "combinations", "products"

PAYS_ABOVE, ENDS_BELOW = 1.5, 1.1
"""Combinations for each product above which products are made, and below which they are not any
more. What lies between changes nothing."""

LEAST = 10_000
"""Combinations of a batch by which the way is chosen: fewer take no time."""


@dataclass(slots=True)
class _Newest:
    n_combinations: int = 0
    n_products: int = 0


class ProductChoice(OneOfFew):
    """Decides what a join returns to the aggregate behind it.

    Args:
        is_adaptive: whether the plan may change.
    """

    component = "products"
    plans = WAYS
    why_unlogged = ""
    cost_unit = "results' worth"
    per = "combination"

    def __init__(self, *, is_adaptive: bool) -> None:
        self.is_adaptive = is_adaptive
        self.plan = COMBINATIONS
        self.newest = _Newest()

    @property
    def ratio(self) -> float:
        """Combinations for each product in the newest batch; 1 if there was none."""
        newest = self.newest
        return newest.n_combinations / newest.n_products if newest.n_products else 1.0

    @property
    def advised(self) -> str | None:  # type: ignore[override]
        """The plan that the newest batch calls the best; None if it does not tell."""
        if self.newest.n_combinations < LEAST or ENDS_BELOW <= self.ratio <= PAYS_ABOVE:
            return None
        return PRODUCTS if self.ratio > PAYS_ABOVE else COMBINATIONS

    def step(self, counts: Iterable[ProductCounts], batch_id: int = -1) -> list[JournalEntry]:
        """Take in what the buckets of a batch counted, and change the plan if that says so."""
        self.newest = _Newest()
        for bucket in counts:
            self.newest.n_combinations += bucket.n_combinations
            self.newest.n_products += bucket.n_products
        before, better = self.plan, self.advised
        if self.is_held or not self.is_adaptive or better in (None, before):
            return []
        assert better is not None
        self.plan = better
        evidence = {
            "combinations_per_product": self.ratio,
            "n_combinations": self.newest.n_combinations,
            "n_products": self.newest.n_products,
        }
        return [self.decision(batch_id, "results", before, better, evidence)]

    # -- the log of plans -----------------------------------------------------------------------

    def situation(self) -> Situation | None:
        """Return how many products the combinations of the last batch became."""
        n_combinations = float(self.newest.n_combinations)
        if not n_combinations:
            return None
        per_combination = self.newest.n_products / n_combinations
        return Situation(
            names=("products for each combination",),
            shares=np.array([min(per_combination, 1.0)]),
            counts=np.array([n_combinations]),
            evidence=[per_combination],
            n_sampled=n_combinations,
            is_settled=n_combinations >= LEAST,
        )

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the combinations of the last batch."""
        return self.newest.n_combinations

    def cost_of(self, plan: str, evidence: Any) -> float:
        """Return what a combination costs, in results that the aggregate takes."""
        (per_combination,) = map(float, evidence)
        return per_combination * PAYS_ABOVE if plan == PRODUCTS else 1.0

"""Where rows become cells, as a person may pin it, and as the log of plans knows and prices it."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.aggregates.loop import EARLY_ABOVE, FEW, FEW_BYTES, LATE_BELOW, LEAST_ROWS
from eddyline.runtime.by_hand import OfLoop
from eddyline.runtime.choice import OneOfFew
from eddyline.runtime.situations import Situation

if TYPE_CHECKING:
    from eddyline.aggregates.loop import AggregateLoop
    from eddyline.aggregates.profile import AggregateProfile

REDUCED = sqrt(LATE_BELOW * EARLY_ABOVE) - 1.0
"""What it takes to reduce a row, where to shuffle it takes 1: so much that early and late cost the
same in the middle between the ratios at which the loop takes the one and the other."""


class AggregatePin(OfLoop, OneOfFew):
    """The plan of an aggregate.

    Its prices are those at which the thresholds of its loop lie. The loop weighs several batches,
    and takes some to leave a plan; where conditions were met before, the log takes one.
    """

    loop: AggregateLoop
    why_unlogged = ""
    cost_unit = "shuffled rows' worth"

    def __init__(self, loop: AggregateLoop) -> None:
        super().__init__(loop)
        self.plans = loop.plans

    @property
    def plan(self) -> str:
        """The plan in force."""
        return self.loop.plan

    @plan.setter
    def plan(self, plan: str) -> None:
        self.loop.plan = plan

    @property
    def advised(self) -> str | None:  # type: ignore[override]
        """The plan that the evidence calls the best."""
        return self.loop.best()

    def situation(self) -> Situation | None:
        """Return how many cells the rows of the last batch became, and how large it was."""
        newest = self.loop.newest
        if not newest.n_rows:
            return None
        per_row, handled = newest.n_cells / newest.n_rows, _handled(newest)
        n_rows = float(newest.n_rows)
        return Situation(
            names=("cells for each row", "cells beside those that the driver answers at most"),
            shares=np.array([min(per_row, 1.0), handled / (handled + FEW)]),
            counts=np.full(2, n_rows),
            evidence=[per_row, handled / n_rows, FEW / n_rows],
            n_sampled=n_rows,
            is_settled=newest.n_rows >= LEAST_ROWS,
        )

    @property
    def identity(self) -> str:
        """What evidence says: that of older checkpoints told cells alone, and is let go of."""
        return "cells, handled, starting"

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the rows that were aggregated."""
        return self.loop.newest.n_rows

    def cost_of(self, plan: str, evidence: Any) -> float:
        """Return what a row costs, in rows that are shuffled.

        A cell is shuffled and reduced as a row is. The driver shuffles none; it handles cells one
        after the other, and as many as it answers at most are worth what starting tasks takes.
        """
        n_cells, n_handled, starting = map(float, evidence)
        starting = starting if "driver" in self.plans else 0.0
        if plan == "late":
            return 1.0 + REDUCED + starting
        made = REDUCED + n_cells * (1.0 + REDUCED)
        return made + (n_handled if plan == "driver" else starting)

    def take(self, plan: str, evidence: Any) -> None:  # noqa: ARG002 - the newest batch says it
        """Put a plan in force, and forget the batches of before."""
        self.adopt(plan)
        self.loop.known = self.loop.newest


def _handled(newest: AggregateProfile) -> float:
    """Return the cells that buckets handled, or as many as have the size of what they did."""
    return max(float(newest.n_handled), newest.n_bytes / FEW_BYTES * FEW)

"""Where rows become cells, as a person may pin it, and as the log of plans prices it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.aggregates.loop import FEW, LEAST_ROWS
from eddyline.runtime.loggable import UNKNOWN_NS
from eddyline.runtime.pins import OneOf
from eddyline.runtime.situations import Situation

if TYPE_CHECKING:
    from eddyline.aggregates.loop import AggregateLoop


class AggregatePin(OneOf):
    """The plan of an aggregate.

    Its loop decides by the newest batch, so there is nothing that a recall would spare it.
    """

    loop: AggregateLoop
    why_unlogged = ""
    cost_unit = "rows or cells shuffled"
    recalls = False

    def __init__(self, loop: AggregateLoop) -> None:
        super().__init__(loop, loop.plans, loop.best)

    def situation(self) -> Situation | None:
        """Return how many cells the rows of the last batch became, and how large it was."""
        newest = self.loop.newest
        if not newest.n_rows:
            return None
        per_row = newest.n_cells / newest.n_rows
        n_rows = float(newest.n_rows)
        return Situation(
            names=("cells for each row", "cells beside those that the driver answers at most"),
            shares=np.array([min(per_row, 1.0), newest.n_handled / (newest.n_handled + FEW)]),
            counts=np.full(2, n_rows),
            evidence=per_row,
            n_sampled=n_rows,
            is_settled=newest.n_rows >= LEAST_ROWS,
        )

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the rows that were aggregated."""
        return self.loop.newest.n_rows

    def cost_of(self, plan: str, evidence: Any) -> float:
        """Return what is shuffled for each row.

        Not known of the driver: what it spares is the start of tasks.
        """
        return {"early": float(evidence), "late": 1.0}.get(plan, UNKNOWN_NS)

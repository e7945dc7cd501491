"""A plan choice that only tests know: how the rows of a bucket are brought into their order.

It is what somebody else would write for an operator that is there: this class, the line that lists
it in ``choices``, and the place in the task that heeds its plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from eddyline.runtime.choice import OneOfFew, Situation
from tests.operators.newest import NewestOperator, sort_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch, Observed
    from tests.operators.newest import NewestStep

MANY_ROWS = 300
"""Rows of a batch from which on an index is taken (of nothing but this test)."""


class NewestSorting(OneOfFew):
    """Sorts the rows of a bucket as a table, or by an index where they are many."""

    component = "newest sorting"
    plans = ("table", "index")
    plan = "table"
    learned = ("plan", "n_rows")
    why_unlogged = ""
    cost_unit = "comparisons"

    def __init__(self) -> None:
        self.n_rows = 0

    def step(self, n_rows: int, batch_id: int) -> list[JournalEntry]:
        self.n_rows, before = n_rows, self.plan
        self.advised = self.plans[n_rows >= MANY_ROWS]
        if self.is_held or self.advised == before:
            return []
        self.plan = self.advised
        return [self.decision(batch_id, "sorting", before, self.plan, {"n_rows": n_rows})]

    def situation(self) -> Situation | None:
        share = np.array([min(1.0, self.n_rows / 1_000)])
        counts = np.array([float(self.n_rows)])
        return Situation(("rows of a batch",), share, counts, self.n_rows, self.n_rows, True)

    def cost_of(self, plan: str, evidence: Any) -> float:
        return {"table": evidence / MANY_ROWS, "index": 1.0}[plan]


def sort_by_index(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows in the ascending order of some columns."""
    order = [(name, "ascending") for name in names]
    return rows.take(pc.sort_indices(rows, sort_keys=order))


class SortingOperator(NewestOperator):
    """The operator, with a choice more."""

    def __init__(self, step: NewestStep, *, adaptive: bool) -> None:
        super().__init__(step, adaptive=adaptive)
        self.sorting = NewestSorting()

    @property
    def choices(self) -> tuple[Choice, ...]:
        return (*super().choices, self.sorting)

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        self.sort = sort_by_index if self.sorting.plan == "index" else sort_rows

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        n_rows = next((each.metrics["n_rows"] for each in observed if each.name == "rows"), 0)
        return [*super().learn(observed, batch), *self.sorting.step(n_rows, batch.id)]

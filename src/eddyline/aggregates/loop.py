"""Choice of where rows become cells, and where cells are answered.

*Early*: a task makes one cell of the rows of a group and slice that it reads, and cells are
shuffled. This pays if cells are fewer than rows. *Late*: rows are shuffled and then become cells,
once. *Driver*: cells are made early, and the driver fetches and answers them. With few cells,
starting tasks for the buckets takes longer than the work.

``AggregateLoop.step`` takes the profile of a batch, and changes the plan if that says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import msgspec
import numpy as np

from eddyline.aggregates.plan import COMPONENT, AggregateProfile
from eddyline.data.learned import restored
from eddyline.errors import StateError
from eddyline.runtime.choice import OneOfFew, Situation
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import Numbers

PLANS = ("early", "late", "driver")

LATE_BELOW = 1.3
"""Rows for each cell below which they are shuffled as they are."""

EARLY_ABOVE = 1.7
"""Rows for each cell above which they are made cells first. What lies between changes nothing."""

LEAST_ROWS = 1_000
"""Rows of the newest batches that a decision is taken by."""

FEW, MANY = 100_000, 1_000_000
"""Most cells of a batch for the driver: in general, and if it also reads files and writes results.
Cells of before and results count. The driver keeps the plan up to twice as many."""

CELL_BYTES = 168
"""Bytes of cells and results that count as one cell."""


class Learned(msgspec.Struct, forbid_unknown_fields=True):
    """The saved state of the loop."""

    plan: str
    n_rows: int
    n_cells: int


@dataclass(frozen=True, slots=True)
class AggregateRecord:
    """An aggregate after a batch."""

    component: str
    plan: str
    profile: AggregateProfile
    """Of the batch."""
    n_kept: int
    """Cells that are kept."""
    n_bytes: int
    """Size of their files."""

    def numbers(self, n_rows: int) -> Numbers:  # noqa: ARG002 - its own rows are those on time
        """Return its counts, and what is kept."""
        counts = {"n_rows": self.profile.n_rows, "n_results": self.profile.n_results}
        return Numbers(counts, {"n_kept": self.n_kept, "n_bytes": self.n_bytes})

    def with_earlier(self, earlier: AggregateRecord, share: float) -> AggregateRecord:  # noqa: ARG002
        """Return one record for several batches: counts add up, cells are as after the last."""
        return replace(self, profile=earlier.profile.merge(self.profile))


class AggregateLoop(OneOfFew):
    """Decides where rows become cells.

    Its prices in the log of plans are those at which its thresholds lie. It weighs several batches,
    and takes some to leave a plan; where conditions were met before, the log takes one.

    Args:
        adaptive: whether the plan may change.
        plan: the plan to begin with.
        plans: those that there are.
    """

    component: str = COMPONENT
    why_unlogged = ""
    cost_unit = "shuffled rows' worth"

    def __init__(
        self, *, adaptive: bool = True, plan: str = "early", plans: tuple[str, ...] = PLANS
    ) -> None:
        self.plan = plan
        self.plans = plans
        self.is_adaptive = adaptive
        self.few = FEW
        """Cells that the driver answers: ``FEW`` or ``MANY``."""
        self.known = AggregateProfile()
        """The newest batches, each half as much as the next."""
        self.newest = AggregateProfile()

    def step(self, fresh: AggregateProfile, batch_id: int = -1) -> list[JournalEntry]:
        """Take in what a batch showed, and change the plan if the rows per cell say so."""
        self.newest = fresh
        half = AggregateProfile(self.known.n_rows // 2, self.known.n_cells // 2)
        self.known = fresh.merge(half)
        if not self.is_adaptive or self.is_held:
            return []
        before, self.plan = self.plan, self.advised or self.plan
        if self.plan == before:
            return []
        evidence = {
            "rows_per_cell": self.known.rows_per_cell,
            "n_rows": self.known.n_rows,
            "n_handled": fresh.n_handled,
        }
        return [JournalEntry(batch_id, self.component, "place", before, self.plan, evidence)]

    def decide_first(self, n_rows: int, batch_id: int) -> list[JournalEntry]:
        """Let the driver answer the first batch if it has few rows, and so few cells.

        Spark's first jobs take seconds in a new process.

        Args:
            n_rows: of the batch, at most.
            batch_id: the micro-batch; the journal has the decision as of the one before.
        """
        is_new = not (self.known.n_rows or self.newest.n_rows)
        may_change = self.is_adaptive and not self.is_held and self.plan != "driver"
        if not (is_new and may_change and "driver" in self.plans) or n_rows > self.few:
            return []
        before, self.plan = self.plan, "driver"
        evidence = {"n_rows": n_rows}
        return [JournalEntry(batch_id - 1, self.component, "place", before, self.plan, evidence)]

    @property
    def advised(self) -> str | None:  # type: ignore[override]
        """The plan that the evidence calls the best; None if it does not tell."""
        if self._is_small():
            return "driver"
        ratio = self.known.rows_per_cell
        if self.known.n_rows < LEAST_ROWS or LATE_BELOW <= ratio <= EARLY_ABOVE:
            return "early" if self.plan == "driver" else None
        return "late" if ratio < LATE_BELOW else "early"

    def _is_small(self) -> bool:
        """Return whether the newest batch is one for the driver."""
        if "driver" not in self.plans or not self.newest.n_rows:
            return self.plan == "driver"
        room = 2 if self.plan == "driver" else 1
        return _handled(self.newest) <= room * self.few

    # -- the log of plans -----------------------------------------------------------------------

    def situation(self) -> Situation | None:
        """Return how many cells the rows of the last batch became, and how large it was."""
        newest = self.newest
        if not newest.n_rows:
            return None
        per_row, handled = newest.n_cells / newest.n_rows, _handled(newest)
        n_rows = float(newest.n_rows)
        return Situation(
            names=("cells for each row", "cells beside those that the driver answers at most"),
            shares=np.array([min(per_row, 1.0), handled / (handled + self.few)]),
            counts=np.full(2, n_rows),
            evidence=[per_row, handled / n_rows, self.few / n_rows],
            n_sampled=n_rows,
            is_settled=newest.n_rows >= LEAST_ROWS,
        )

    @property
    def identity(self) -> str:
        """What evidence says: that of older checkpoints told cells alone, and is let go of."""
        return "cells, handled, starting"

    def rows_met(self, n_rows: int) -> int:  # noqa: ARG002
        """Return the rows that were aggregated."""
        return self.newest.n_rows

    def cost_of(self, plan: str, evidence: Any) -> float:
        """Return what a row costs, in rows that are shuffled.

        A cell is shuffled and reduced as a row is. The driver shuffles none; it handles cells one
        after the other, and as many as it answers at most are worth what starting tasks takes.
        """
        n_cells, n_handled, starting = map(float, evidence)
        starting = starting if "driver" in self.plans else 0.0
        if plan == "late":
            return 1.0 + REDUCED + starting
        early_cost = REDUCED + n_cells * (1.0 + REDUCED)
        return early_cost + (n_handled if plan == "driver" else starting)

    def take(self, plan: str, evidence: Any) -> None:  # noqa: ARG002 - the newest batch says it
        """Put a plan in force, and forget the batches of before."""
        self.adopt(plan)
        self.known = self.newest

    # -- seeing and saving ----------------------------------------------------------------------

    def record(self) -> AggregateRecord:
        """Return the plan after the newest batch; the operator adds what is kept."""
        return AggregateRecord(self.component, self.plan, self.newest, 0, 0)

    def snapshot(self) -> Learned:
        """Return the learned state."""
        return Learned(self.plan, self.known.n_rows, self.known.n_cells)

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        saved = restored(state, Learned, "where rows become cells")
        if saved.plan not in self.plans:
            msg = f"the saved plan of the aggregate is damaged: no plan {saved.plan!r}"
            raise StateError(msg)
        if self.is_adaptive:
            self.plan = saved.plan
            self.known = AggregateProfile(saved.n_rows, saved.n_cells)


REDUCED = sqrt(LATE_BELOW * EARLY_ABOVE) - 1.0
"""What it takes to reduce a row, where to shuffle it takes 1: so much that early and late cost the
same in the middle between the ratios at which the loop takes the one and the other."""


def _handled(newest: AggregateProfile) -> float:
    """Return the cells that buckets handled, or as many as have the size of what they did."""
    return max(float(newest.n_handled), newest.n_bytes / CELL_BYTES)


@dataclass(frozen=True, slots=True)
class AggregateView:
    """An aggregate as it stands."""

    name: str
    windows: tuple[str, ...]
    """As a query would write them."""
    groups: tuple[str, ...]
    """The expressions that rows are grouped by."""
    calls: tuple[str, ...]
    """As a query would write them."""
    plan: str
    """``early`` or ``late``; empty where rows are answered one by one."""
    newest: AggregateProfile
    """The newest batch."""
    total: AggregateProfile
    """All batches of the run."""
    n_waiting: int
    """Cells, or rows, of which more may come, or that are not answered yet."""
    n_kept: int
    """Cells of before that windows reach back to."""
    n_bytes: int
    """Size of all files (bytes)."""
    n_files: int
    n_buckets: int
    fullest: float
    """New cells of the fullest bucket by those of the mean one; nan if there were none."""
    notes: tuple[str, ...] = ()

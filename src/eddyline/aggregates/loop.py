"""Keeps the plan of an aggregate good: where rows become cells, and where cells are answered.

Early, a task makes one cell of the rows of a group and slice that it reads, and cells are shuffled,
which pays where they are fewer than rows. Late, rows are shuffled and then made cells, once. By the
driver, cells are made early and fetched: where they are few, starting tasks for their buckets takes
longer than the work of these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from eddyline.aggregates.plan import COMPONENT
from eddyline.aggregates.profile import AggregateProfile
from eddyline.errors import StateError
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import Numbers

PLANS = ("early", "late", "driver")

LATE_BELOW = 1.3
"""Rows for each cell below which they are shuffled as they are."""

EARLY_ABOVE = 1.7
"""Rows for each cell above which they are made cells first. What lies between changes nothing."""

LEAST_ROWS = 1_000
"""Rows of the newest batches that a decision is taken by."""

FEW = 100_000
"""Cells, those of before and results included, of a batch that the driver answers. It answers up to
twice as many before it leaves them to tasks again."""

FEW_BYTES = 1 << 24
"""The same for their size (16 MiB)."""


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


class AggregateLoop:
    """Decides where rows become cells.

    Args:
        adaptive: whether the plan may change.
        plan: the plan to begin with.
        plans: those that there are.
    """

    component = COMPONENT

    def __init__(
        self, *, adaptive: bool = True, plan: str = "early", plans: tuple[str, ...] = PLANS
    ) -> None:
        self.plan = plan
        self.plans = plans
        self.is_adaptive = adaptive
        self.is_held = False
        """Whether the plan stays whatever the evidence; see ``runtime.pins``."""
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
        before, self.plan = self.plan, self.best() or self.plan
        if self.plan == before:
            return []
        evidence = {
            "rows_per_cell": self.known.rows_per_cell,
            "n_rows": self.known.n_rows,
            "n_handled": fresh.n_handled,
        }
        return [JournalEntry(batch_id, COMPONENT, "place", before, self.plan, evidence)]

    def best(self) -> str | None:
        """Return the plan that the evidence calls the best; None if it does not tell."""
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
        n_handled, n_bytes = self.newest.n_handled, self.newest.n_bytes
        return n_handled <= room * FEW and n_bytes <= room * FEW_BYTES

    def record(self) -> AggregateRecord:
        """Return the plan after the newest batch; the operator adds what is kept."""
        return AggregateRecord(COMPONENT, self.plan, self.newest, 0, 0)

    def snapshot(self) -> Learned:
        """Return the learned state."""
        return Learned(self.plan, self.known.n_rows, self.known.n_cells)

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged.
        """
        try:
            saved = msgspec.convert(state, Learned, from_attributes=True)
        except msgspec.ValidationError as error:
            msg = f"the saved plan of the aggregate is damaged: {error}"
            raise StateError(msg) from error
        if saved.plan not in self.plans:
            msg = f"the saved plan of the aggregate is damaged: no plan {saved.plan!r}"
            raise StateError(msg)
        if self.is_adaptive:
            self.plan = saved.plan
            self.known = AggregateProfile(saved.n_rows, saved.n_cells)

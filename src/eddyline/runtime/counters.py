"""Counts over the whole life of a query, restarts included."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from eddyline.runtime.records import numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the classes that batches are counted in by their wall time (s)."""


class Counters(msgspec.Struct):
    """Counts of a query, saved with what it has learned, so that each batch counts once."""

    n_rows: int = 0
    n_kept: int = 0
    seconds: float = 0.0
    """Wall time of all batches (s)."""
    by_seconds: list[int] = msgspec.field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    """Batches by the class of their wall time; the last takes longer than all ``SECONDS``."""
    ended_at: float = 0.0
    """End of the newest batch (seconds since the epoch; 0: none has run)."""
    last_batch: int = -1
    """The newest batch that is counted; -1 if none is."""
    n_failures: int = 0
    """Batches that failed."""
    plan_changes: dict[str, int] = {}
    """Other plans that were put in force, by component; those within tasks are not counted."""
    n_late: dict[str, int] = {}
    """Rows that came too late, by component."""

    @property
    def n_batches(self) -> int:
        """Batches that are done."""
        return sum(self.by_seconds)

    def count(self, record: BatchRecord) -> None:
        """Count a batch, once: also where it runs again and what was learned was dropped."""
        if record.batch_id <= self.last_batch:
            return
        self.last_batch = record.batch_id
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        self.seconds += record.seconds
        self.by_seconds[bisect_left(SECONDS, record.seconds)] += 1
        self.ended_at = record.ended_at
        for component, numbers in numbers_of(record.operators, record.n_rows).items():
            if n_late := round(numbers.sums.get("n_late", 0)):
                self.n_late[component] = self.n_late.get(component, 0) + n_late

    def count_decisions(self, entries: Iterable[JournalEntry]) -> None:
        """Count the decisions that put another plan in force."""
        for each in entries:
            if each.is_plan_change:
                n_before = self.plan_changes.get(each.component, 0)
                self.plan_changes[each.component] = n_before + 1

"""The way of a join: rows go to the windows that wait in buckets, or tables go to the rows.

A join of one stream with tables keeps nothing but the tables, which never change. Where they are
small, each task may have all of them (a broadcast join): no row is shuffled, and none goes to
Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.joins.plan import BROADCAST, BUCKETS, WAYS
from eddyline.runtime.choice import OneOfFew

if TYPE_CHECKING:
    from eddyline.runtime.journal import JournalEntry

MOST_ROWS = 100_000
"""Rows of all tables up to which tasks have them all."""

MOST_BYTES = 16 << 20
"""Size of their files up to which they do (bytes)."""


class WayChoice(OneOfFew):
    """Chooses the way of a join by the size of its tables.

    Args:
        is_adaptive: whether there is a choice.
    """

    component = "tables"
    plans = WAYS
    why_unlogged = "tables do not change, so there is nothing to be known again"

    def __init__(self, *, is_adaptive: bool) -> None:
        self.is_adaptive = is_adaptive
        self.plan = BUCKETS

    @property
    def may_broadcast(self) -> bool:
        """Whether the tables may go to the rows, if they turn out to be small."""
        return self.plan == BROADCAST or (self.is_adaptive and not self.is_held)

    def best(self, n_rows: int, n_bytes: int) -> str:
        """Return the way for tables of so many rows and bytes."""
        is_small = n_rows <= MOST_ROWS and n_bytes <= MOST_BYTES
        return BROADCAST if is_small else BUCKETS

    def step(self, n_rows: int, n_bytes: int, batch_id: int = -1) -> list[JournalEntry]:
        """Choose the way of the batches from one on.

        Args:
            n_rows: rows of all tables, as they are kept.
            n_bytes: size of their files (bytes).
            batch_id: that batch, for the journal.
        """
        before, better = self.plan, self.best(n_rows, n_bytes)
        self.advised = better
        if self.is_held or not self.is_adaptive or before == better:
            return []
        self.plan = better
        evidence = {"table_rows": n_rows, "table_bytes": n_bytes}
        return [self.decision(batch_id, "way", before, better, evidence)]

"""The batches and decisions of a run, as values: the bridge from the loops to ``watch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.operator import Record
    from eddyline.stats.profile import Order


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """A learned order, of filters or of look-ups, after one micro-batch."""

    component: str
    filter_ids: tuple[str, ...]
    order: Order
    drop_fracs: tuple[float, ...]
    """Share of the rows that reach a filter that it drops, by filter index ([0, 1])."""
    cost_ns: float
    """Expected cost of the order in force (ns per input row)."""
    as_written_ns: float
    """Expected cost of the written order on the same evidence (ns per input row)."""
    n_evaluations: int = 0
    """Evaluations made in this batch, profiling included (0 where it is not counted)."""
    n_rows: int = 0
    """Rows that the order met in this batch (0 where they are not counted)."""
    routed_by: tuple[str, ...] = ()
    """The attributes that tell classes of rows apart, where these have orders of their own."""
    meets_all: bool = False
    """Whether the order meets every row that arrives, so that those of the batch are its own."""

    @property
    def plan(self) -> list[str]:
        """The order in force, by names."""
        return [self.filter_ids[f] for f in self.order]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One micro-batch of a run: what progress and the report show."""

    batch_id: int
    n_rows: int
    n_kept: int
    seconds: float
    """Wall time of the batch (s)."""
    ended_at: float = 0.0
    """End of the batch (seconds since the epoch)."""
    operators: tuple[Record, ...] = ()
    """Each component of the query's operators."""
    lines: tuple[str, ...] = ()
    """The plans in force and their newest figures in words, for the progress."""


@dataclass(frozen=True, slots=True)
class History:
    """The batches of a run and its decisions so far; empty outside of a run."""

    batches: tuple[BatchRecord, ...] = ()
    journal: tuple[JournalEntry, ...] = ()

    def last(self, *events: str, components: Container[str] | None = None) -> JournalEntry | None:
        """Return the newest decision of one of those events, of anybody or some components."""
        for each in reversed(self.journal):
            if each.event in events and (components is None or each.component in components):
                return each
        return None

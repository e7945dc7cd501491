"""An aggregate as it stands, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddyline.aggregates.profile import AggregateProfile


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
    is_adaptive: bool
    notes: tuple[str, ...] = ()

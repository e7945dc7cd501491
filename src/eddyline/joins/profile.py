"""The profile of a join: what its tasks observed in a batch. Its loops learn from nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from eddyline.joins.caches.counts import CacheReport
from eddyline.joins.plan import JoinWork

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddyline.joins.orders.probe_profiling import DropSample
    from eddyline.joins.plan import BucketReport


@dataclass(frozen=True, slots=True)
class JoinProfile:
    """Counts and samples of one bucket or of several."""

    samples: tuple[DropSample, ...] = ()
    """Sampled rows that were looked up in all windows."""
    work: JoinWork = field(default_factory=JoinWork)
    """Counts of the probes."""
    caches: CacheReport = field(default_factory=CacheReport)
    """Counts of the caches."""
    n_buckets: int = 1
    ns: int = 0
    """Time of the tasks together (ns)."""

    @classmethod
    def of(cls, reports: Iterable[BucketReport]) -> Self:
        """Return the profile of a batch.

        Args:
            reports: of its buckets, in their order; at least one.
        """
        first, *others = (
            cls(each.samples, each.work, each.caches or CacheReport(), ns=each.ns)
            for each in reports
        )
        return first.merge(*others)

    def merge(self, *others: Self) -> Self:
        """Return the profile of all together."""
        parts = (self, *others)
        return type(self)(
            tuple(sample for part in parts for sample in part.samples),
            JoinWork.merge(part.work for part in parts),
            CacheReport.merge(part.caches for part in parts),
            sum(part.n_buckets for part in parts),
            sum(part.ns for part in parts),
        )

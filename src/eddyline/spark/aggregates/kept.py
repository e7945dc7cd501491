"""The durable state of an aggregate on Spark: the cells of its buckets after each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.aggregates.plan import AggregatePart
from eddyline.spark.aggregates.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.aggregates.plan import BucketReport
    from eddyline.spark.buckets import BucketReports
    from eddyline.spark.operator import Batch, Clock, Observed
    from eddyline.state.manifest import StatePart, StatePlace


class Kept(Shown):
    """An aggregate that keeps cells."""

    clock: Clock
    place: StatePlace | None
    _reports: BucketReports[BucketReport]

    @property
    def reduces(self) -> bool:
        """Whether rows go to the buckets as they are, and tasks make cells of them."""
        return False

    def attach(self, place: StatePlace) -> None:
        """Take note of where cells are written."""
        self.place = place

    def open(self, part: StatePart | None, again: StatePart | None, batch: Batch) -> None:  # noqa: ARG002
        """Start from the cells after the batch before."""
        with self._lock:
            self.part = AggregatePart(self.n_buckets) if part is None else part.read(AggregatePart)

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether every bucket has reported; without rows none need do."""
        return self.clock.is_idle or self._reports.of(observed).keys() == {*range(self.n_buckets)}

    def close(self, observed: Sequence[Observed], batch: Batch) -> StatePart:  # noqa: ARG002
        """Return the cells after the batch, of which all files are written."""
        found = self._reports.of(observed)
        with self._lock:
            if not self.clock.is_idle:
                buckets = {bucket: found[bucket].after for bucket in sorted(found)}
                self.part = AggregatePart(self.n_buckets, buckets)
            return self.part.packed()

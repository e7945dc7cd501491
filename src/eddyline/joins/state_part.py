"""The durable state of a join: its part of the query's manifest."""

from __future__ import annotations

from msgspec import Struct, field

from eddyline.state.bucket_state import BucketState, files_of
from eddyline.state.grid import Grid
from eddyline.state.manifest import StatePart


class JoinPart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a join after a batch."""

    grid: Grid
    """Cut of the rows into buckets."""
    buckets: dict[int, BucketState] = field(default_factory=dict)
    """The files of each bucket, by its number."""
    latest: dict[str, int] = field(default_factory=dict)
    """The latest event time of each stream so far (µs)."""
    n_late: dict[str, int] = field(default_factory=dict)
    """Late rows of each input so far."""

    def packed(self) -> StatePart:
        """Return the part as a manifest holds it."""
        return StatePart.of(self, files_of(self.buckets.values()))

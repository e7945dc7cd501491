"""The durable state of a join and of its inputs: their parts of the query's manifest."""

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
    n_late: dict[str, int] = field(default_factory=dict)
    """Late rows of each input so far."""

    def packed(self) -> StatePart:
        """Return the part as a manifest holds it."""
        return StatePart.of(self, files_of(self.buckets.values()))


class InputsPart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the inputs of a join after a batch."""

    latest: dict[str, int]
    """The latest event time of each stream so far (µs)."""

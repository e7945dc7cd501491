"""The durable state of a join and of its inputs: their parts of the query's manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from eddyline.constraints.bounds import LearnedLateness
from eddyline.joins.discards import DiscardState
from eddyline.state.bucket_state import BucketState, files_of
from eddyline.state.grid import Grid
from eddyline.state.manifest import StatePart

if TYPE_CHECKING:
    from eddyline.state.run_files import RunFile


class JoinPart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a join after a batch."""

    grid: Grid
    """Cut of the rows into buckets."""
    buckets: dict[int, BucketState] = field(default_factory=dict)
    """The files of each bucket, by its number."""
    n_late: dict[str, int] = field(default_factory=dict)
    """Late rows of each input so far."""
    discards: DiscardState | None = None
    """What is known of which rows are dropped; None if none are."""

    def files(self, name: str) -> list[RunFile]:
        """Return the runs of the window of an input, without the cold ones."""
        return [file for each in self.buckets.values() for file in each.runs.get(name, ())]

    def cold(self, name: str) -> tuple[int, int, int]:
        """Return rows, runs, and bytes (those of filters included) of a window's cold tier."""
        parts = [part for each in self.buckets.values() for part in each.cold.get(name, ())]
        runs = [run for part in parts for run in part.runs]
        filters = [file for part in parts for file in part.filters]
        n_bytes = sum(file.n_bytes for file in (*runs, *filters))
        return sum(file.n_rows for file in runs), len(runs), n_bytes

    def dropped_bytes(self, name: str) -> int:
        """Return the size of what is known of rows of an input that were dropped (bytes)."""
        files = [file for each in self.buckets.values() for file in each.dropped.get(name, ())]
        return sum(file.n_bytes for file in files)

    def n_waiting(self, name: str) -> int:
        """Return how many rows of an input are in files of rows that wait for event time."""
        files = [file for each in self.buckets.values() for file in each.waiting.get(name, ())]
        return sum(file.n_rows for file in files)

    def packed(self) -> StatePart:
        """Return the part as a manifest holds it."""
        return StatePart.of(self, files_of(self.buckets.values()))


class InputsPart(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the inputs of a join after a batch."""

    latest: dict[str, int]
    """The latest event time of each stream so far (µs)."""
    learned: dict[str, LearnedLateness] = field(default_factory=dict)
    """The lateness of streams for which it is learned."""
    passed: dict[str, int] = field(default_factory=dict)
    """The instant before which rows of each stream are late (µs); see ``EventTime.passed``."""

"""The batches of a join in which its tables are handed to the rows: one life for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.joins.plan import BROADCAST, COMPONENT
from eddyline.joins.state_part import JoinPart
from eddyline.joins.way import WayChoice
from eddyline.spark.buckets import FOUND, state_of
from eddyline.spark.joins.broadcast import HERE, Broadcast, one_bucket
from eddyline.spark.operator import Laid, Pending
from eddyline.spark.prepared import Counted
from eddyline.spark.run.observed_metrics import PendingMetrics
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.joins.plan import BucketReport
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.joins.bound import BoundJoin
    from eddyline.spark.joins.broadcast import Handed
    from eddyline.spark.joins.inputs import JoinInputs
    from eddyline.spark.operator import Batch, Observed
    from eddyline.state.place import StatePlace


class Handing:
    """Says in which batches tables are handed to the rows, and takes these through their life.

    Args:
        bound: the join.
        inputs: its inputs.
    """

    def __init__(self, bound: BoundJoin, inputs: JoinInputs) -> None:
        self.inputs = inputs
        self.broadcast = Broadcast(bound) if Broadcast.is_possible(bound) else None
        """How it is laid; None if it cannot be."""
        inputs.tells_late = self.broadcast is not None
        can_change = bound.options.adaptive and self.broadcast is not None
        self.ways = WayChoice(is_adaptive=can_change)
        self.is_on = False
        """Whether the batch is one of them."""
        self.begun: BucketReport | None = None
        """The tables, if the batch has taken them by themselves: it is the first one."""
        self.n_late = 0
        """Late rows of the batch, once it is closed."""
        self.has_tables = False
        """Whether the state before the batch has the tables."""
        self._handed: Handed | None = None
        self._low = ALWAYS
        """The instant before which rows of the batch are late (µs)."""
        self._entries: list[JournalEntry] = []

    @property
    def name(self) -> str:
        """The stream."""
        assert self.broadcast is not None
        return self.broadcast.stream.name

    def open(self, *, has_tables: bool) -> None:
        """Start a batch; ``has_tables`` says whether the tables are kept already."""
        self.is_on, self.begun, self._handed, self.has_tables = False, None, None, has_tables

    def begin(self, batch: Batch, part: JoinPart, place: StatePlace) -> JoinPart:
        """Choose the way of a batch, before its rows are looked at; returns the state before it.

        The first one brings the tables. If these may go to the rows, they are taken by themselves,
        and kept in one bucket.

        Raises:
            StateError: they cannot be kept.
        """
        way, self.is_on, self.inputs.must_look = self.broadcast, False, False
        if way is None or not self.ways.may_broadcast:
            return part
        if not self.has_tables and way.can_begin:
            with state_of(0, "windows", place.folder):
                self.begun = way.begun(batch.id, place)
            if self.begun is not None:
                part = JoinPart(one_bucket(way.bound.graph), {0: self.begun.after})
                self.has_tables = self.inputs.has_tables = True
        if self.has_tables:
            self._entries += self.ways.step(*way.sizes(part), batch.id)
            self.is_on = self.ways.plan == BROADCAST
        if self.is_on:
            all_counted = batch.is_taken_whole and way.counts_all(part)
            self.inputs.must_look = self.inputs.looks or not all_counted
        return part

    def lay(self, df: DataFrame, part: JoinPart, place: StatePlace, order: Sequence[str]) -> Laid:
        """Return the results of the rows of a batch; see ``Broadcast.lay``.

        Raises:
            StateError: the tables cannot be read.
        """
        assert self.broadcast is not None
        self._low = self.inputs.streams.low(self.name, {})
        with state_of(0, "windows", place.folder):
            found = self._handed = self.broadcast.lay(
                df, part, place, self._low, order, counts_here=not self._is_counted
            )
        pending = [Pending(COMPONENT, PendingMetrics(each)) for each in found.observations]
        # Spark may leave out what is joined with nothing, and what observes that.
        is_told = self.broadcast.counts_all(part)
        counted = Counted(found.observations[-1], FOUND) if is_told else None
        return Laid(found.results, tuple(pending), counted=counted)

    def is_whole(self, observed: Sequence[Observed]) -> bool:
        """Return whether all rows of the batch were seen."""
        return self.inputs.must_look or bool(observed)

    def late_files(self, place: StatePlace, batch_id: int) -> set[str]:
        """Put the late rows of a batch aside, if there are any; returns their files."""
        written: dict[str, int] = {}
        if self.inputs.earliest.get(self.name, FOREVER) < self._low:
            assert self.broadcast is not None
            assert self._handed is not None
            written = self.broadcast.late(self._handed, place, batch_id, self._low)
        self.n_late = sum(written.values())
        return {*written}

    @property
    def _is_counted(self) -> bool:
        """Whether the inputs count the rows that are looked up: no step is between, and they do."""
        assert self.broadcast is not None
        stream = self.broadcast.stream
        steps = self.broadcast.bound.inputs[stream.number].steps
        return not (self.inputs.must_look or steps or stream.is_raw)

    def counts(self, observed: Sequence[Observed]) -> tuple[int, int]:
        """Return the rows that were looked up in a batch, and the results."""
        here, found = (
            sum(int(each.metrics.get(of) or 0) for each in observed) for of in (HERE, FOUND)
        )
        if self._is_counted:
            here = max(0, self.inputs.n_keyed(self.name) - self.n_late)
        return here, found

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions since the last call."""
        entries, self._entries = self._entries, []
        return entries

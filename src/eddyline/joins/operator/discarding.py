"""Rows that constraints say are useless leave the state, and a summary of their keys stays.

By age they leave to the row, at instants that follow from the clock and the constraint alone: what
is there for new rows to find does not depend on how rows are cut into buckets and runs. Rows whose
key the others have passed leave when their runs are written anyway, as they do to a cold tier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.joins.operator.lost_results import LostResults
from eddyline.state.dropped_rows import DroppedRows, Slice, alive, kept
from eddyline.state.event_time import earlier
from eddyline.state.rows import ALWAYS, FOREVER
from eddyline.state.run_files import MAPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.joins.plan import BatchPlan
    from eddyline.state.bucket_state import BucketState
    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile

STEPS = 16
"""Rows leave by age whenever event time has gone on by so many parts of the time for which they are
kept: a run of which rows are both younger and older is written again no more often than that."""


class Discarding:
    """The rows of one bucket that are dropped in one batch.

    Args:
        plan: of the batch, in which rows may be dropped.
        place: where runs are.
        before: the state before the batch.
    """

    def __init__(self, plan: BatchPlan, place: StatePlace, before: BucketState) -> None:
        assert plan.kept_for is not None
        self._plan, self._kept_for = plan, plan.kept_for
        self._place, self._before = place, before
        self._slices: dict[str, list[Slice]] = {}
        self._dropped: dict[str, list[Slice]] = {}
        """What is dropped in this batch, by input."""
        self.lost = LostResults(plan.kept_for)
        """What that costs."""

    def begin(self, name: str, horizon: int) -> int | None:
        """Look at what is known of the rows of an input that were dropped before.

        Args:
            name: the input.
            horizon: its rows that left their window before this instant are not needed (µs).

        Returns:
            For how long its rows are kept (µs); None: as long as they are in their window.
        """
        if name not in self._kept_for:
            return None
        before = self._before.dropped.get(name, ())
        self._slices[name] = alive(self._place.files, self._place.runs, before, horizon)
        return self._kept_for[name]

    def aged(self, name: str, files: Sequence[RunFile], horizon: int) -> Sequence[RunFile]:
        """Return the runs of an input without its rows that are too old now."""
        until = self._until(name, horizon)
        if until is None:
            return files
        stay = []
        for file in files:
            if file.last_end < horizon:
                continue  # it left its window, which costs nothing
            if file.first_start >= until:
                stay.append(file)
                continue
            run = self._open(name, file)
            young = self.without_old(name, run, horizon)
            if len(young):
                same = len(young) == len(run)
                runs = self._place.files, self._place.runs
                stay.append(file if same else MAPPED.write(*runs, young))
        return stay

    def without_old(self, name: str, run: SortedRun, horizon: int) -> SortedRun:
        """Return a run without its rows that are too old, which are dropped."""
        until = self._until(name, horizon)
        if until is None:
            return run
        is_old = run.rows.starts < until
        if (needed := is_old & (run.rows.ends >= horizon)).any():
            self.drop(name, run.where(needed))
        return run.where(~is_old)

    def drop(self, name: str, run: SortedRun) -> None:
        """Drop rows (one or more) of an input."""
        self.lost.counts[name].n_dropped += len(run)
        self._dropped.setdefault(name, []).append(Slice.of(run))

    def ready(self) -> None:
        """Let new rows be looked up among what was dropped so far."""
        for name, slices in self._slices.items():
            self.lost.dropped[name] = DroppedRows([*slices, *self._dropped.get(name, ())])

    def end(self) -> dict[str, tuple[RunFile, ...]]:
        """Return what stays of what was dropped, by input.

        Raises:
            OSError: it cannot be written.
        """
        found = {}
        for name, slices in self._slices.items():
            fresh = self._dropped.get(name, [])
            both = [*slices, *([Slice.together(fresh)] if fresh else [])]
            horizon, length = self._plan.horizons.get(name, ALWAYS), self._plan.lengths[name]
            files, folder = self._place.files, self._place.runs
            low = FOREVER if horizon is None else horizon
            if now := kept(files, folder, both, horizon=low, length=length):
                found[name] = now
        return found

    def _until(self, name: str, horizon: int) -> int | None:
        """Return the instant before which rows of an input are too old (µs); None if none are."""
        kept_for = self._kept_for.get(name)
        if kept_for is None or horizon <= ALWAYS + 1:
            return None
        step = max(kept_for // STEPS, 1)
        return earlier(horizon, kept_for) // step * step

    def _open(self, name: str, file: RunFile) -> SortedRun:
        classes = self._plan.graph.classes_of[name]
        return MAPPED.run(self._place.files, self._place.runs, file, classes)

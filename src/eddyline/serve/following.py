"""Runs as they are followed: their newest batches and totals, counted once for all who look.

``Following`` asks the source which runs there are. ``Followed`` takes in the batches of one run
that ended since the last look. A run stays until another one has its name and place.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from eddyline.report.formatting import ratio
from eddyline.runtime.records import Backlog, event_times, numbers_of
from eddyline.serve.runs import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord
    from eddyline.serve.runs import Failure, RunSource, WatchedRun


RECENT = 120
"""Newest batches of a run that are kept to be told."""

LOOK_EVERY_S = 0.25
"""Least time between two looks for new batches (s)."""

ASK_EVERY_S = 2.0
"""Least time between two questions whether a run still runs, of one without new batches (s)."""

BACKLOG_EVERY_S = 2.0
"""Least time between two questions for the backlog of a run (s)."""

BACKLOG_SHARE = 0.005
"""Most share of the time that these questions take."""


def is_change(entry: JournalEntry) -> bool:
    """Tell whether the driver put another plan in force: the next batch runs under it."""
    return entry.is_plan_change and entry.batch_id >= 0


@dataclass(frozen=True, slots=True)
class Work:
    """What the operators of a query hold, cost and leave out after a batch."""

    n_kept: int
    """Rows, cells or segments that are kept as state."""
    n_bytes: int
    """Size of the state."""
    n_late: int
    """Rows of the batch that came too late."""
    n_skipped: int
    """Rules that do not run."""
    cost_ns: float | None
    """Expected cost of the orders in force (ns per row); None if no order is learned."""
    as_written_ns: float | None
    """Expected cost of the orders as written (ns per row)."""
    n_priced: int
    """Rows whose expected costs are known."""
    saved_s: float | None
    """Work that the orders saved in the batch (s); None where that is not known."""
    newest_us: float | None
    """The newest event time that has arrived (µs); None where no operator has a clock."""
    complete_us: float | None
    """The watermark after the batch (µs); None where it is not known."""


def work_of(record: BatchRecord) -> Work:
    """Return what the operators of a query hold, cost and leave out after a batch."""
    said = numbers_of(record.operators, record.n_rows).values()
    costs = [
        (
            each.sums.get("n_rows") or record.n_rows,
            each.levels["cost_ns"],
            each.levels["as_written_ns"],
        )
        for each in said
        if {"cost_ns", "as_written_ns"} <= each.levels.keys()
    ]
    n_rows = sum(rows for rows, _, _ in costs)
    saved = [each.sums["saved_s"] for each in said if "saved_s" in each.sums]
    newest_us, complete_us = event_times(said)
    return Work(
        n_kept=round(sum(each.levels.get("n_kept", 0) for each in said)),
        n_bytes=round(sum(each.levels.get("n_bytes", 0) for each in said)),
        n_late=round(sum(each.sums.get("n_late", 0) for each in said)),
        n_skipped=round(sum(each.levels.get("n_skipped", 0) for each in said)),
        cost_ns=ratio(sum(rows * cost for rows, cost, _ in costs), n_rows),
        as_written_ns=ratio(sum(rows * written for rows, _, written in costs), n_rows),
        n_priced=round(n_rows),
        saved_s=sum(saved) if saved else None,
        newest_us=newest_us,
        complete_us=complete_us,
    )


class Followed:
    """One run, and what has been seen of it.

    Args:
        run: the run.
        clock: returns the time (s since 1970).
    """

    def __init__(self, run: WatchedRun, clock: Callable[[], float] = time.time) -> None:
        self.run = run
        self.key = key_of(run)
        self.recent: deque[BatchRecord] = deque(maxlen=RECENT)
        self.is_running = True
        self.error: Failure | None = None
        self.n_batches = self.n_rows = self.n_kept = self.n_late = self.n_changes = 0
        self.seconds = 0.0
        """Time of all batches (s)."""
        self.saved_s: float | None = None
        """Work that learned orders saved (s); None where that is not known."""
        self._priced = self._cost = self._as_written = 0.0
        self.changed_after = -1
        """The batch after which a plan changed last; -1 if none did."""
        self._clock = clock
        self._asked_at = 0.0
        self._backlog, self._backlog_due = Backlog(), 0.0

    @property
    def cost_ns(self) -> float | None:
        """Expected cost of a row over the run (ns); None if it is not known."""
        return ratio(self._cost, self._priced)

    @property
    def as_written_ns(self) -> float | None:
        """Expected cost of the same rows by the plans as written (ns)."""
        return ratio(self._as_written, self._priced)

    @property
    def name(self) -> str:
        """Name of the query."""
        return self.run.name

    @property
    def last_batch(self) -> int:
        """The newest batch; -1 before the first."""
        return self.recent[-1].batch_id if self.recent else -1

    @property
    def state(self) -> str:
        """``running``, ``ended`` or ``failed``."""
        if self.is_running:
            return "running"
        return "ended" if self.error is None else "failed"

    def backlog(self) -> Backlog:
        """Return the input that waits: what was known at the last question, if that is not due.

        A question takes half a percent of the time, however many look.
        """
        if not self.is_running:
            return Backlog(why="the query does not run")
        if self._clock() >= self._backlog_due:
            began = time.monotonic()
            self._backlog = self.run.backlog()
            took_s = time.monotonic() - began
            self._backlog_due = self._clock() + max(BACKLOG_EVERY_S, took_s / BACKLOG_SHARE)
        return self._backlog

    def refresh(self) -> None:
        """Take in the batches that have ended since the last look, and whether the run has."""
        is_first = not self.recent
        fresh = self._take_new()
        now = self._clock()
        if fresh and not is_first:
            self.is_running, self.error = True, None  # also if it was started again
        elif self.is_running and now - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            if not self.run.is_running():
                self._take_new()
                self.is_running, self.error = False, self.run.error()

    def _take_new(self) -> bool:
        """Take in new batches, and tell whether there are any."""
        fresh = self.run.records_after(self.last_batch)
        if self.recent and any(each.n_batches > 1 for each in fresh):
            # Some of those that were merged may have been counted before.
            self._forget()
            fresh = self.run.records_after(-1)
        counted_to = self.last_batch
        for record in fresh:
            self._take(record)
        if fresh:
            self._count_changes(counted_to)
        return bool(fresh)

    def _count_changes(self, batch_id: int) -> None:
        """Count the changes of plans after a batch; those of batches that are known are before."""
        entries = reversed(self.run.decisions())
        newest = entries if batch_id < 0 else takewhile(lambda e: e.batch_id > batch_id, entries)
        changed = [each.batch_id for each in newest if is_change(each)]
        self.n_changes += len(changed)
        self.changed_after = max(changed, default=self.changed_after)

    def _forget(self) -> None:
        self.recent.clear()
        self.n_batches = self.n_rows = self.n_kept = self.n_late = self.n_changes = 0
        self.seconds, self.saved_s, self.changed_after = 0.0, None, -1
        self._priced = self._cost = self._as_written = 0.0

    def _take(self, record: BatchRecord) -> None:
        self.recent.append(record)
        self.n_batches += record.n_batches
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        self.seconds += record.seconds
        work = work_of(record)
        self.n_late += work.n_late
        if work.cost_ns is not None and work.as_written_ns is not None:
            self._priced += work.n_priced
            self._cost += work.n_priced * work.cost_ns
            self._as_written += work.n_priced * work.as_written_ns
        if work.saved_s is not None:
            self.saved_s = (self.saved_s or 0.0) + work.saved_s


class Following:
    """All runs of a source; a run that is followed is kept until another has its name and place.

    Args:
        source: knows the runs.
        clock: returns the time (s since 1970).
    """

    def __init__(self, source: RunSource, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._followed: dict[str, Followed] = {}
        self._looked_at = 0.0

    def note(self) -> None:
        """Keep the runs that there are now, without asking them anything.

        Those that are known stay where the source cannot tell, such as of folders that go.
        """
        found: Sequence[WatchedRun] = ()
        with contextlib.suppress(Exception):
            found = self._source.runs()
        for run in found:
            key = key_of(run)
            if key not in self._followed or self._followed[key].run is not run:
                self._followed[key] = Followed(run, self._clock)
        # A checkpoint without a view has the name of its folder, and then that of its query.
        others = [key for key, each in self._followed.items() if key_of(each.run) != key]
        for key in others:
            del self._followed[key]

    def known(self) -> list[Followed]:
        """Return the runs as they were at the last look, or note."""
        return list(self._followed.values())

    def look_back(self, key: str) -> Followed | None:
        """Return a run as it was at the last look, None if there is none of that key."""
        return self._followed.get(key)

    def look(self) -> Mapping[str, Followed]:
        """Return the runs by key, with their newest batches taken in."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self.note()
            for each in self._followed.values():
                # What one run cannot tell must not hide the others; it stands as it was known.
                with contextlib.suppress(Exception):
                    each.refresh()
        return dict(self._followed)  # who asked is another thread

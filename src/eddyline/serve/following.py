"""Runs as they are followed.

Their newest batches and totals are counted once for all viewers. ``Following`` asks the source
which runs there are. ``Followed`` takes in the batches of one run that ended since the last look. A
run stays until another one has its name and place.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict, deque
from itertools import takewhile
from typing import TYPE_CHECKING

from eddyline.runtime.records import Backlog, numbers_of
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
"""Least time between two questions whether a run without new batches still runs (s)."""

BACKLOG_EVERY_S = 2.0
"""Least time between two questions for the backlog of a run (s)."""

BACKLOG_SHARE = 0.005
"""Most share of the time that these questions take."""


def is_change(entry: JournalEntry) -> bool:
    """Tell whether the driver put another plan in force: the next batch runs under it."""
    return entry.is_plan_change and entry.batch_id >= 0


STATE = ("n_kept", "n_bytes", "n_skipped")
"""Levels that add up over operators."""

SUMS = ("n_late", "saved_s", "n_priced", "cost_ns", "as_written_ns")
"""Numbers of ``work_of`` that add up over batches."""


def work_of(record: BatchRecord) -> dict[str, float]:
    """Return what the operators of a query hold, cost and leave out after a batch.

    Numbers have the names of ``runtime.records.Counting``, and are summed over operators. The costs
    are those of all rows whose costs are known (ns), of which there are ``n_priced``.
    """
    total: dict[str, float] = {}
    for numbers in numbers_of(record.operators, record.n_rows).values():
        _add(total, numbers.sums)
        _add(total, {name: n for name, n in numbers.levels.items() if name in STATE})
        if {"cost_ns", "as_written_ns"} <= numbers.levels.keys():
            n_rows = numbers.sums.get("n_rows") or record.n_rows
            costs = {name: n_rows * numbers.levels[name] for name in ("cost_ns", "as_written_ns")}
            _add(total, {"n_priced": n_rows, **costs})
    return total


def _add(total: dict[str, float], numbers: Mapping[str, float]) -> None:
    for name, number in numbers.items():
        total[name] = total.get(name, 0.0) + number


class Followed:
    """One run, and what has been seen of it.

    Args:
        run: the run.
        clock: returns the time (s since 1970).
    """

    changed_after: int
    """The batch after which a plan changed last; -1 if none did."""

    def __init__(self, run: WatchedRun, clock: Callable[[], float] = time.time) -> None:
        self.run = run
        self.key = key_of(run)
        self.recent: deque[BatchRecord] = deque(maxlen=RECENT)
        self.recent_work: deque[dict[str, float]] = deque(maxlen=RECENT)
        """What ``work_of`` says of each of these records."""
        self.is_running = True
        self.error: Failure | None = None
        self._forget()
        self._clock = clock
        self._asked_at = 0.0
        self._backlog, self._backlog_due = Backlog(), 0.0

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
        if self.recent and any(batch.n_batches > 1 for batch in fresh):
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
        changed = [entry.batch_id for entry in newest if is_change(entry)]
        self.n_changes += len(changed)
        self.changed_after = max(changed, default=self.changed_after)

    def _forget(self) -> None:
        self.recent.clear()
        self.recent_work.clear()
        self.n_batches = self.n_rows = self.n_kept = self.n_changes = 0
        self.seconds = 0.0
        """Time of all batches (s)."""
        self.work: dict[str, float] = defaultdict(float)
        """What was done in all batches; see ``SUMS``."""
        self.changed_after = -1

    def _take(self, record: BatchRecord) -> None:
        work = work_of(record)
        self.recent.append(record)
        self.recent_work.append(work)
        self.n_batches += record.n_batches
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        self.seconds += record.seconds
        _add(self.work, {name: n for name, n in work.items() if name in SUMS})


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
        runs: Sequence[WatchedRun] = ()
        with contextlib.suppress(Exception):
            runs = self._source.runs()
        for run in runs:
            key = key_of(run)
            if key not in self._followed or self._followed[key].run is not run:
                self._followed[key] = Followed(run, self._clock)
        # A checkpoint without a view has the name of its folder, and then that of its query.
        others = [key for key, followed in self._followed.items() if key_of(followed.run) != key]
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
            for followed in self._followed.values():
                # What one run cannot tell must not hide the others; it stands as it was known.
                with contextlib.suppress(Exception):
                    followed.refresh()
        return dict(self._followed)  # who asked is another thread

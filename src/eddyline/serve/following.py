"""Runs as they are followed: their newest batches and totals, counted once for all who look."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddyline.runtime.records import OrderRecord
from eddyline.serve.source import key_of
from eddyline.watch.formatting import finite, per_second, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eddyline.runtime.operator import Record
    from eddyline.runtime.records import BatchRecord
    from eddyline.serve.source import RunSource, WatchedRun

RECENT = 120
"""Newest batches of a run that are kept to be told."""

LOOK_EVERY_S = 0.25
"""Least time between two looks for new batches (s)."""

ASK_EVERY_S = 2.0
"""Least time between two questions whether a run still runs, of one without new batches (s)."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the operators of a query hold and cost after a batch."""

    n_kept: int
    """Rows, cells or segments that are kept as state."""
    n_bytes: int
    """Size of the state."""
    n_late: int
    """Rows of the batch that came too late."""
    cost_ns: float | None
    """Expected cost of the orders in force (ns per row); None if no order is learned."""
    as_written_ns: float | None
    """Expected cost of the orders as written (ns per row)."""

    @property
    def saving(self) -> float | None:
        """How many times less the plans in force cost than those as written."""
        return ratio(self.as_written_ns, self.cost_ns)


def work_of(record: BatchRecord) -> Work:
    """Return what the operators of a query hold and cost after a batch."""
    orders = [each for each in record.operators if isinstance(each, OrderRecord)]
    known = [
        (each.n_rows or record.n_rows, cost, as_written)
        for each in orders
        if (cost := finite(each.cost_ns)) is not None
        and (as_written := finite(each.as_written_ns)) is not None
    ]
    n_rows = sum(rows for rows, _, _ in known)
    return Work(
        n_kept=held(record.operators, "n_kept"),
        n_bytes=held(record.operators, "n_bytes"),
        n_late=held(record.operators, "n_late"),
        cost_ns=ratio(sum(rows * cost for rows, cost, _ in known), n_rows),
        as_written_ns=ratio(sum(rows * written for rows, _, written in known), n_rows),
    )


def held(records: Iterable[Record], name: str) -> int:
    """Return the sum of a count over the records that have it, of one or of several inputs."""
    found = (getattr(each, name, 0) for each in records)
    return sum(sum(each) if isinstance(each, tuple) else each for each in found)


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
        self.error: BaseException | None = None
        self.n_batches = self.n_rows = self.n_kept = self.n_late = self.n_changes = 0
        self.changed_after = -1
        """The batch after which a plan changed last; -1 if none did."""
        self._plans: dict[str, Any] = {}
        self._clock = clock
        self._asked_at = 0.0

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

    @property
    def rates(self) -> list[float]:
        """Rows per second of the newest batches."""
        return [per_second(each.n_rows, each.seconds) or 0.0 for each in self.recent]

    def refresh(self) -> None:
        """Take in the batches that have ended since the last look, and whether the run has."""
        fresh = self.run.records_after(self.last_batch)
        for record in fresh:
            self._take(record)
        now = self._clock()
        if self.is_running and not fresh and now - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            self.is_running = self.run.is_running()
            if not self.is_running:
                for record in self.run.records_after(self.last_batch):
                    self._take(record)
                self.error = self.run.error()

    def _take(self, record: BatchRecord) -> None:
        self.recent.append(record)
        self.n_batches += 1
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        self.n_late += held(record.operators, "n_late")
        plans = {each.component: each.plan for each in record.operators}
        n_others = sum(
            name in self._plans and self._plans[name] != plan for name, plan in plans.items()
        )
        if n_others:
            self.n_changes += n_others
            self.changed_after = record.batch_id
        self._plans |= plans


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
        """Keep the runs that there are now, without asking them anything."""
        for run in self._source.runs():
            key = key_of(run)
            if key not in self._followed or self._followed[key].run is not run:
                self._followed[key] = Followed(run, self._clock)

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
                each.refresh()
        return self._followed

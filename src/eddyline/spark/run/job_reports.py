"""Reports of the jobs of transforms, which nobody waits for, and the decisions that they led to.

A batch job reports when it has run, if it ever does; a plain streaming query with each progress.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from eddyline.runtime.journal import Journal
from eddyline.runtime.records import History
from eddyline.spark.operator import Batch, Observed
from eddyline.spark.run.observed_metrics import listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Laid, Operator, Pending

WAIT_S = 1.0
"""Longest wait of ``explain`` and ``journal`` for the reports of a job that has just ended (s)."""

MAX_PENDING = 16
"""Jobs whose reports are still awaited; of more, the oldest were never run and are let go."""

MAX_STREAMS = 64
"""Plain streaming queries whose reports are awaited; of more, the oldest are let go."""


class JobReports:
    """Hands the reports of jobs to the operators that were laid over their DataFrames."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.streams: list[StreamReports] = []
        self._waiting: list[tuple[Operator, Pending]] = []
        self._lock = threading.RLock()

    def lay(
        self,
        df: DataFrame,
        operator: Operator,
        lay: Callable[[Callable[..., Any]], Laid],
    ) -> DataFrame:
        """Return the result of an operator over a DataFrame, and await what its job reports.

        ``lay`` gets a function that makes an observation of a component (and of facts that the
        operator needs to read it).
        """

        def observation(component: str, facts: Any = None) -> Any:
            if not df.isStreaming:
                return Observation()
            reports = StreamReports(df, operator, component, facts, self.note)
            self.streams = [*self.streams, reports][-MAX_STREAMS:]
            return reports.name

        laid = lay(observation)
        self.note(operator.take_entries())
        with self._lock:
            new = [(operator, each) for each in laid.pending]
            self._waiting = [*self._waiting, *new][-MAX_PENDING:]
        return laid.df

    def learn(self, timeout_s: float) -> None:
        """Let operators learn from the jobs that have run, or do within so many seconds."""
        with self._lock:  # what one thread has taken, no other learns again
            taken, self._waiting = self._waiting, []
        deadline, left = time.monotonic() + timeout_s, []
        for operator, pending in taken:
            observed = pending.observed(max(0.0, deadline - time.monotonic()))
            if observed is None:
                left.append((operator, pending))
            else:
                self.note(operator.learn([observed], Batch()))
        with self._lock:
            self._waiting = [*left, *self._waiting][-MAX_PENDING:]

    def forget(self) -> None:
        """Wait no longer for jobs that were laid so far."""
        with self._lock:
            self._waiting = []

    def note(self, entries: Iterable[JournalEntry]) -> None:
        """Take in decisions."""
        with self._lock:
            self.journal.extend(entries)

    def history(self) -> History:
        """Return the decisions so far, as what people see is made from."""
        with self._lock:
            return History(journal=tuple(self.journal))

    def rows(self) -> list[dict[str, Any]]:
        """Return every decision so far, as rows."""
        with self._lock:
            return self.journal.rows()


class StreamReports:
    """Hands the reports of a plain streaming query to an operator, for as long as it lives."""

    def __init__(
        self,
        df: DataFrame,
        operator: Operator,
        component: str,
        facts: Any,
        note: Callable[[Iterable[JournalEntry]], None],
    ) -> None:
        self.name = f"{component}_{uuid.uuid4().hex}"
        self._session = df.sparkSession
        self._operator = operator
        self._component = component
        self._facts = facts
        self._note = note
        listener(df).take(self.name, self.take)

    def take(self, metrics: dict[str, Any], batch_id: int) -> None:
        """Take in the metrics of one micro-batch."""
        observed = Observed(self._component, metrics, self._facts)
        self._note(self._operator.learn([observed], Batch(batch_id)))

    def may_run(self) -> bool:
        """Return whether the streaming query may be running: one that tells, or has not yet."""
        try:
            active = self._session.streams.active
            progress = [query.lastProgress for query in active]
        except Exception:  # noqa: BLE001 - the session was stopped, and its queries with it
            return False
        return any(each is None or self.name in (each.observedMetrics or {}) for each in progress)

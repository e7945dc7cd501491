"""Observations of jobs, collected without waiting for one that never runs.

Batch jobs report through an ``Observation``, whose ``get`` waits for ever for the first action on
the DataFrame; so the future behind it is asked first, which leaves no thread behind
(``PendingMetrics``). Streaming queries report through their progress, which a listener receives.

Nobody waits for the jobs of transforms. A batch job reports when it has run, if it ever does; a
plain streaming query reports with each progress. ``JobReports`` hands these reports to operators,
and keeps the decisions that they lead to.
"""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql.streaming.listener import StreamingQueryListener

from eddyline.runtime.journal import Journal
from eddyline.runtime.records import History
from eddyline.spark.operator import Batch, Observed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Laid, Operator, Pending


class PendingMetrics:
    """The metrics of one batch job, once it has run; its DataFrame carries the observation."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._metrics: dict[str, Any] | None = None

    def get(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the metrics, or None if the job has not run after so many seconds."""
        if self._metrics is None:
            try:
                if _is_there(self.observation, timeout_s):
                    # Spark Connect answers at once, with nothing, as long as no job has run.
                    self._metrics = self.observation.get or None
            except Exception:  # noqa: BLE001 - the session was stopped, or the job failed
                return None
        return self._metrics


def _is_there(observation: Observation, timeout_s: float) -> bool:
    """Return whether a report is there, or comes within so many seconds."""
    java: Any = getattr(observation, "_jo", None)
    if java is None or java.future().isCompleted():
        return True
    if timeout_s <= 0:
        return False
    scala: Any = observation._jvm.scala  # type: ignore[union-attr]
    unit = observation._jvm.java.util.concurrent.TimeUnit.MILLISECONDS  # type: ignore[union-attr]
    limit = scala.concurrent.duration.FiniteDuration(round(1_000 * timeout_s), unit)
    scala.concurrent.Await.ready(java.future(), limit)  # raises when the time is over
    return True


def has_told_all(spark: SparkSession, timeout_s: float) -> bool:
    """Return whether Spark has told within so many seconds what the jobs so far have observed."""
    try:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(round(1_000 * timeout_s))
    except Exception:  # noqa: BLE001 - the time is over, or the session was stopped
        return False
    return True


class ProgressListener(StreamingQueryListener):
    """Hands the observed metrics of streaming queries to whoever asked for their name."""

    def __init__(self) -> None:
        self._takers: dict[str, weakref.WeakMethod[Callable[..., None]]] = {}

    def take(self, name: str, taker: Callable[[dict[str, Any], int], None]) -> None:
        """Hand metrics of that name to the taker, for as long as its object lives."""

        def forget(dead: weakref.ref[Any]) -> None:
            if self._takers.get(name) is dead:
                del self._takers[name]

        self._takers[name] = weakref.WeakMethod(taker, forget)

    def onQueryProgress(self, event: Any) -> None:
        """Hand over what a micro-batch observed."""
        for name, row in (event.progress.observedMetrics or {}).items():
            reference = self._takers.get(name)
            taker = reference() if reference else None
            if taker is not None:
                taker(row.asDict(), event.progress.batchId)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    onQueryIdle = onQueryTerminated = onQueryStarted


_listeners: weakref.WeakKeyDictionary[SparkSession, ProgressListener] = weakref.WeakKeyDictionary()


def listener(df: DataFrame) -> ProgressListener:
    """Return the progress listener of the DataFrame's session, added at the first call."""
    session = df.sparkSession
    if session not in _listeners:
        _listeners[session] = ProgressListener()
        session.streams.addListener(_listeners[session])
    return _listeners[session]


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
            new = [(operator, pending) for pending in laid.pending]
            self._waiting = [*self._waiting, *new][-MAX_PENDING:]
        return laid.df

    def learn(self, timeout_s: float) -> None:
        """Let operators learn from the jobs that have run, or do within so many seconds."""
        with self._lock:  # what one thread has taken, no other learns again
            taken, self._waiting = self._waiting, []
        deadline, waiting = time.monotonic() + timeout_s, []
        for operator, pending in taken:
            observed = pending.observed(max(0.0, deadline - time.monotonic()))
            if observed is None:
                waiting.append((operator, pending))
            else:
                self.note(operator.learn([observed], Batch()))
        with self._lock:
            self._waiting = [*waiting, *self._waiting][-MAX_PENDING:]

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
        return any(
            query_progress is None or self.name in (query_progress.observedMetrics or {})
            for query_progress in progress
        )

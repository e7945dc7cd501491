"""Brings home what a job observed, without ever waiting for a job that nobody runs.

Batch jobs report through an ``Observation``, whose ``get`` waits for the first action on the
DataFrame; it is asked from a thread, so that an action that never comes blocks nobody. Streaming
queries report through their progress, which a listener receives.
"""

from __future__ import annotations

import base64
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, Observation, SparkSession


class PendingMetrics:
    """The metrics of one batch job, once it has run; its DataFrame carries the observation."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._metrics: dict[str, Any] | None = None
        self._thread: threading.Thread | None = None

    def get(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the metrics, or None if the job has not run after so many seconds."""
        if self._metrics is None:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._wait, daemon=True)
                self._thread.start()
            self._thread.join(timeout_s)
        return self._metrics

    def _wait(self) -> None:
        try:
            # Spark Connect answers at once, with nothing, as long as the job has not run.
            self._metrics = self.observation.get or None
        except Exception:  # noqa: BLE001 - the session was stopped, or the job failed: no metrics
            self._metrics = None


class ProgressListener(StreamingQueryListener):
    """Hands the observed metrics of streaming queries to whoever asked for their name."""

    def __init__(self) -> None:
        self._takers: dict[str, weakref.WeakMethod[Callable[..., None]]] = {}

    def take(self, name: str, taker: Callable[[dict[str, Any], int], None]) -> None:
        """Hand metrics of that name to the taker, for as long as its object lives."""
        self._takers[name] = weakref.WeakMethod(taker)

    def onQueryProgress(self, event: Any) -> None:
        """Hand over what a micro-batch observed."""
        for name, row in (event.progress.observedMetrics or {}).items():
            reference = self._takers.get(name)
            taker = reference() if reference else None
            if taker is not None:
                taker(row.asDict(), event.progress.batchId)

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""


_listeners: weakref.WeakKeyDictionary[SparkSession, ProgressListener] = weakref.WeakKeyDictionary()


def listener(df: DataFrame) -> ProgressListener:
    """Return the progress listener of the DataFrame's session, added at the first call."""
    session = df.sparkSession
    if session not in _listeners:
        _listeners[session] = ProgressListener()
        session.streams.addListener(_listeners[session])
    return _listeners[session]


def as_bytes(metrics: Mapping[str, Any], name: str) -> list[bytes]:
    """Return a metric of collected binaries; the progress gives them as text in base 64."""
    values = metrics.get(name) or []
    return [base64.b64decode(value) if isinstance(value, str) else bytes(value) for value in values]

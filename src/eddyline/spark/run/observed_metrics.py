"""Brings home what a job observed, without ever waiting for a job that nobody runs.

Batch jobs report through an ``Observation``, whose ``get`` waits for ever for the first action on
the DataFrame; so the future behind it is asked first, which leaves no thread behind. Streaming
queries report through their progress, which a listener receives.
"""

from __future__ import annotations

import base64
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


def as_bytes(metrics: Mapping[str, Any], name: str) -> list[bytes]:
    """Return a metric of collected binaries; the progress gives them as text in base 64."""
    values = metrics.get(name) or []
    return [base64.b64decode(value) if isinstance(value, str) else bytes(value) for value in values]

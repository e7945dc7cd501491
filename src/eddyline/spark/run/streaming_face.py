"""What a run has in common with PySpark's StreamingQuery, under its names and under Python's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from eddyline.runtime.records import Backlog


class StreamingFace(ABC):
    """Speaks like a StreamingQuery: ``lastProgress`` and ``last_progress`` are the same."""

    streaming_query: StreamingQuery
    """Spark's own query, which runs it."""

    @abstractmethod
    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the run ends.

        Args:
            timeout_s: longest wait (s); without one, as long as it takes.

        Returns:
            Whether the run has ended.

        Raises:
            EddylineError: the run failed in a way that eddyline has words for.
            StreamingQueryException: it failed in another way.
        """

    @abstractmethod
    def process_all_available(self) -> None:
        """Wait until everything that has arrived is processed; for tests."""

    @abstractmethod
    def backlog(self) -> Backlog:
        """Return the input that has arrived and is not processed, as of the newest batch.

        Spark and the folders of file streams are asked with each call; see ``Backlog.why``.
        """

    @abstractmethod
    def _reworded(self, error: BaseException) -> BaseException:
        """Return the error that eddyline meant, where Spark has wrapped one."""

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until the run ends, at most so many seconds; see ``await_termination``."""
        return self.await_termination(timeout)

    def processAllAvailable(self) -> None:
        """Wait until everything that has arrived is processed; for tests."""
        self.process_all_available()

    def exception(self) -> BaseException | None:
        """Return the error that the run failed with, or None."""
        error = self.streaming_query.exception()
        return None if error is None else self._reworded(error)

    @property
    def isActive(self) -> bool:
        """Whether the run is still running."""
        return bool(self.streaming_query.isActive)

    @property
    def id(self) -> str:
        """The query's id, the same over restarts from its checkpoint."""
        return str(self.streaming_query.id)

    @property
    def runId(self) -> str:
        """The id of this run, another after each start."""
        return str(self.streaming_query.runId)

    @property
    def status(self) -> dict[str, Any]:
        """What Spark says that it is doing."""
        return dict(self.streaming_query.status)

    @property
    def recentProgress(self) -> list[Any]:
        """Spark's own progress of the last micro-batches."""
        return list(self.streaming_query.recentProgress)

    @property
    def lastProgress(self) -> Any:
        """Spark's own progress of the last micro-batch, or None."""
        return self.streaming_query.lastProgress

    @property
    def is_active(self) -> bool:
        """Whether the run is still running."""
        return self.isActive

    @property
    def run_id(self) -> str:
        """The id of this run, another after each start."""
        return self.runId

    @property
    def recent_progress(self) -> list[Any]:
        """Spark's own progress of the last micro-batches."""
        return self.recentProgress

    @property
    def last_progress(self) -> Any:
        """Spark's own progress of the last micro-batch, or None."""
        return self.lastProgress

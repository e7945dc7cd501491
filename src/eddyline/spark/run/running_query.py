"""What a person sees of a query that runs, and the rows that it keeps in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eddyline.errors import SourceError
from eddyline.joins.view import JoinView
from eddyline.rules.view import RuleView
from eddyline.runtime.records import FilterView, RunView
from eddyline.spark.sinks.sinks import MemorySink
from eddyline.watch.explain import explain
from eddyline.watch.html.report import write_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord
    from eddyline.spark.sinks.sinks import Sink


class RunFace(ABC):
    """A query that runs; behaves like Spark's StreamingQuery."""

    name: str
    """The query's name."""
    source: DataFrame
    """The stream that it reads."""
    sink: Sink
    """Where its rows go."""
    streaming_query: StreamingQuery
    """Spark's own query, which runs it."""

    # -- what each kind of run knows ------------------------------------------------------------

    @property
    @abstractmethod
    def text(self) -> str:
        """The query as it was written."""

    @abstractmethod
    def view(self) -> FilterView | RuleView | JoinView:
        """Return the plan in force and why, as values."""

    @property
    @abstractmethod
    def records(self) -> list[BatchRecord]:
        """What each micro-batch of this run came to."""

    @abstractmethod
    def _entries(self) -> tuple[JournalEntry, ...]:
        """Return every decision so far."""

    @abstractmethod
    def _settings(self) -> Mapping[str, str]:
        """Return the options of the query, as texts."""

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
    def stop(self) -> None:
        """Stop the run."""

    # -- what a person sees ---------------------------------------------------------------------

    def explain(self, *, width: int = 100) -> str:
        """Return the plan in force and why, in words."""
        return explain(self.view(), width=width)

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every decision so far, as rows."""
        return [asdict(entry) for entry in self._entries()]

    def run_view(self) -> RunView:
        """Return the whole run as values."""
        view = self.view()
        return RunView(
            query=self.name,
            text=self.text,
            batches=tuple(self.records),
            journal=self._entries(),
            filter_view=view if isinstance(view, FilterView) else None,
            rule_view=view if isinstance(view, RuleView) else None,
            join_view=view if isinstance(view, JoinView) else None,
            settings=dict(self._settings()),
        )

    def report(self, path: str | Path) -> Path:
        """Write the run as one self-contained HTML page.

        Raises:
            EddylineError: the extra ``report`` is not installed.
        """
        return write_report(self.run_view(), path)

    def watch(self, *, quiet: bool = False) -> None:
        """Show the progress until the run ends; Ctrl-C stops it.

        Args:
            quiet: show nothing, only wait.

        Raises:
            EddylineError: the run failed in a way that eddyline has words for.
        """
        from eddyline.spark.run.follow import watch  # noqa: PLC0415 - it waits for runs

        watch([self], quiet=quiet)

    # -- the rows, where they stay in memory ----------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return all rows so far (sink ``memory``).

        Raises:
            SourceError: another sink has the rows, or no batch has run yet.
        """
        return self._memory().table()

    def to_df(self) -> DataFrame:
        """Return all rows so far as a DataFrame (sink ``memory``), also as a view by its name."""
        found = self._memory().to_df(self.source.sparkSession)
        found.createOrReplaceTempView(self.name)
        return found

    def _memory(self) -> MemorySink:
        if not isinstance(self.sink, MemorySink):
            msg = f"run {self.name!r} does not keep its rows in memory; start it with 'memory'"
            raise SourceError(msg, run=self.name)
        return self.sink

    # -- like a StreamingQuery ------------------------------------------------------------------

    @property
    def isActive(self) -> bool:
        """Whether the run is still running."""
        return bool(self.streaming_query.isActive)

    @property
    def id(self) -> str:
        """The query's id, the same over restarts from its checkpoint."""
        return str(self.streaming_query.id)

    @property
    def recentProgress(self) -> list[Any]:
        """Spark's own progress of the last micro-batches."""
        return list(self.streaming_query.recentProgress)

    @property
    def lastProgress(self) -> Any:
        """Spark's own progress of the last micro-batch, or None."""
        return self.streaming_query.lastProgress

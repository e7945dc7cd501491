"""A running query: each micro-batch runs under the orders in force, and teaches the next ones."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.errors import (
    EddylineError,
    OptionError,
    PredicateError,
    QueryError,
    SourceError,
    StateError,
)
from eddyline.runtime.journal import Journal, JournalEntry
from eddyline.runtime.snapshot import SnapshotFile
from eddyline.runtime.views import BatchRecord, FilterView, RunView
from eddyline.spark.harvest import PendingMetrics
from eddyline.spark.pipeline import FilterPipeline
from eddyline.spark.sinks import MemorySink, sink_of, temporary_folder
from eddyline.watch.explain import explain
from eddyline.watch.report import write_report

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from eddyline.runtime.views import BlockRecord
    from eddyline.spark.engine import Query
    from eddyline.spark.sinks import BatchWriter

REPORT_WAIT_S = 10.0
"""How long a batch that has been written is waited for to report what it observed (s)."""

_PREDICATE_ERROR = re.compile(r"eddyline\.errors\.PredicateError: (.*)")
_RAISED = re.compile(r"(predicate '.*? raised .*?; handle that value[^\n]*)", re.DOTALL)


class Run:
    """A query that runs; made by ``Query.start``. Behaves like Spark's StreamingQuery."""

    def __init__(
        self,
        query: Query,
        sink: str | BatchWriter,
        *,
        path: str | None,
        checkpoint: str | None,
        trigger: str | None,
    ) -> None:
        chosen = _trigger(trigger)
        self.query = query
        self.name = query.name
        self.sink = sink_of(sink, path)
        self._is_temporary = checkpoint is None
        folder = Path(checkpoint).absolute() if checkpoint else None
        if folder is not None and folder.exists() and not folder.is_dir():
            msg = f"the checkpoint {folder} is a file; give a folder"
            raise StateError(msg, path=str(folder))
        self.sink.begin(continues=folder is not None and (folder / "spark" / "metadata").exists())
        self.checkpoint = folder or Path(temporary_folder())
        self.pipeline = FilterPipeline(query.bound(), query.options, query.name)
        self._lock = threading.Lock()
        self._records: list[BatchRecord] = []
        self._journal = Journal(self.checkpoint / "eddyline" / "journal.jsonl")
        fingerprint = hashlib.blake2b(query.text.encode(), digest_size=16).hexdigest()
        self._snapshot = SnapshotFile(self.checkpoint / "eddyline" / "state.json", fingerprint)
        self._last_batch = -1
        self._error: BaseException | None = None
        try:
            self._restore()
            self.streaming_query: StreamingQuery = self._started(chosen)
        except BaseException:
            self._clean_up()
            raise

    def _started(self, trigger: dict[str, Any]) -> StreamingQuery:
        active = [each.name for each in self.query.source.sparkSession.streams.active]
        if self.name in active:
            msg = (
                f"query {self.name!r} is running already; stop that run first, or make the query "
                f"again under another name: engine.query(…, name='…')"
            )
            raise QueryError(msg, query=self.name)
        writer = self.query.source.writeStream.foreachBatch(self._on_batch).queryName(self.name)
        writer = writer.option("checkpointLocation", str(self.checkpoint / "spark"))
        try:
            writer = writer.trigger(**trigger)
        except PySparkException as error:
            msg = f"{trigger} is no trigger: {error}; use an interval such as '5 seconds'"
            raise OptionError(msg, trigger=trigger) from error
        return writer.start()

    # -- one micro-batch ----------------------------------------------------------------------

    def _on_batch(self, df: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        try:
            n_rows, n_kept = self._process(df, batch_id)
            record = BatchRecord(
                batch_id, n_rows, n_kept, time.monotonic() - started, time.time(), self._blocks()
            )
            with self._lock:
                self._records.append(record)
            if batch_id > self._last_batch:
                self._last_batch = batch_id
                self._snapshot.save(self.pipeline.snapshot(), batch_id)
        except BaseException as error:
            self._error = error
            raise

    def _process(self, df: DataFrame, batch_id: int) -> tuple[int, int]:
        """Run one batch and learn from it; returns the rows in and out."""
        arrived, kept = Observation(), Observation()
        if self._last_batch < 0:
            self.pipeline.read_sample(df)
        self.pipeline.label_texts(df)
        source = df.observe(arrived, F.count(F.lit(1)).alias("n"))
        before = self._records[-1].n_rows if self._records else 0
        result, reports = self.pipeline.apply(
            source, batch_id=batch_id, profiles_native=True, expected_rows=before
        )
        result = self.query.project(result).observe(kept, F.count(F.lit(1)).alias("n"))
        self.sink.write(result, batch_id)
        # One wait for all: a sink that ran no job has nothing to report.
        deadline = time.monotonic() + REPORT_WAIT_S
        # A batch that runs again after a failure was counted before, and counts once.
        if batch_id > self._last_batch:
            self.pipeline.learn(reports, timeout_s=REPORT_WAIT_S)
        with self._lock:
            self._journal.extend(self.pipeline.take_entries())
        counts = (
            PendingMetrics(each).get(max(0.0, deadline - time.monotonic())) or {}
            for each in (arrived, kept)
        )
        n_rows, n_kept = (int(each.get("n") or 0) for each in counts)
        return n_rows, n_kept

    def _blocks(self) -> tuple[BlockRecord, ...]:
        return self.pipeline.records()

    def _restore(self) -> None:
        """Continue from what an earlier run of the same query has learned."""
        saved = self._snapshot.load()
        if saved is None:
            return
        if isinstance(saved, str):
            self._journal.extend([JournalEntry(-1, "run", "drop_state", evidence={"why": saved})])
            return
        state, last_batch = saved
        try:
            self.pipeline.restore(state)
        except StateError as error:
            # What was learned only saves work; without it the run starts with the order as written.
            self.pipeline = FilterPipeline(self.query.bound(), self.query.options, self.name)
            why = {"why": error.message}
            self._journal.extend([JournalEntry(-1, "run", "drop_state", evidence=why)])
            return
        self._last_batch = last_batch
        orders = {each: loop.names(loop.order) for each, loop in self.pipeline.loops.items()}
        self._journal.extend([JournalEntry(self._last_batch, "run", "restore", after=orders)])

    # -- what a person sees -------------------------------------------------------------------

    def explain(self, *, width: int = 100) -> str:
        """Return the orders in force and why, in words."""
        return explain(self.view(), width=width)

    def view(self) -> FilterView:
        """Return the orders in force and why, as values."""
        return self.pipeline.view(self._journal.last("order", "routes"))

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every decision so far, as rows."""
        with self._lock:
            return self._journal.rows()

    @property
    def records(self) -> list[BatchRecord]:
        """What each micro-batch of this run came to."""
        with self._lock:
            return list(self._records)

    def run_view(self) -> RunView:
        """Return the whole run as values."""
        options = self.query.options
        settings = {name: str(getattr(options, name)) for name in options.__dataclass_fields__}
        with self._lock:
            return RunView(
                query=self.name,
                text=self.query.text,
                batches=tuple(self._records),
                journal=tuple(self._journal),
                filter_view=self.view(),
                settings=settings,
            )

    def report(self, path: str | Path) -> Path:
        """Write the run as one self-contained HTML page.

        Raises:
            EddylineError: the extra ``report`` is not installed.
        """
        return write_report(self.run_view(), path)

    # -- the rows, where they stay in memory --------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return all rows so far (sink ``memory``).

        Raises:
            SourceError: another sink has the rows, or no batch has run yet.
        """
        return self._memory().table()

    def to_df(self) -> DataFrame:
        """Return all rows so far as a DataFrame (sink ``memory``), also as a view by its name."""
        found = self._memory().to_df(self.query.engine.spark)
        found.createOrReplaceTempView(self.name)
        return found

    def _memory(self) -> MemorySink:
        if not isinstance(self.sink, MemorySink):
            msg = f"run {self.name!r} does not keep its rows in memory; start it with 'memory'"
            raise SourceError(msg, run=self.name)
        return self.sink

    # -- like a StreamingQuery ----------------------------------------------------------------

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
        try:
            if timeout_s is None:
                self.streaming_query.awaitTermination()
                ended = True
            else:
                # Spark's hint says int, its code takes fractions of a second.
                waited = self.streaming_query.awaitTermination(timeout_s)  # type: ignore[arg-type]
                ended = bool(waited)
        except StreamingQueryException as error:
            self._clean_up()
            raise self._reworded(error) from error
        if ended:
            self._clean_up()
        return ended

    def watch(self, *, quiet: bool = False) -> None:
        """Show the progress until the run ends; Ctrl-C stops it.

        Args:
            quiet: show nothing, only wait.

        Raises:
            EddylineError: the run failed in a way that eddyline has words for.
        """
        from eddyline.spark.watched import watch  # noqa: PLC0415 - it waits for runs

        watch([self], quiet=quiet)

    def process_all_available(self) -> None:
        """Wait until everything that has arrived is processed; for tests."""
        try:
            self.streaming_query.processAllAvailable()
        except StreamingQueryException as error:
            self._clean_up()
            raise self._reworded(error) from error

    def stop(self) -> None:
        """Stop the run."""
        self.streaming_query.stop()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._is_temporary:
            with contextlib.suppress(OSError):
                shutil.rmtree(self.checkpoint)

    def _reworded(self, error: StreamingQueryException) -> BaseException:
        """Return the error that eddyline meant, where Spark has wrapped one."""
        if isinstance(self._error, EddylineError):
            return self._error
        text = str(error)
        for pattern in (_PREDICATE_ERROR, _RAISED):
            if match := pattern.search(text):
                return PredicateError(match[1], query=self.name)
        return error


def _trigger(text: str | None) -> dict[str, Any]:
    """Return the arguments of Spark's trigger.

    Raises:
        OptionError: it is not one.
    """
    if text is None:
        return {"processingTime": "0 seconds"}
    if text in {"available_now", "once"}:
        return {"availableNow": True}
    if re.fullmatch(r"\d+ ?(millisecond|second|minute|hour|day)s?", text):
        return {"processingTime": text}
    msg = f"unknown trigger {text!r}; use 'available_now', or an interval such as '5 seconds'"
    raise OptionError(msg, trigger=text)

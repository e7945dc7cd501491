"""Running query: micro-batches under the plan in force.

Each batch teaches the next ones. ``Run._on_batch`` is the life of a batch: open the state, lay the
operators, write the results, collect what the job observed, commit, learn. Until the commit a batch
can run again with the same results. What people see is made when they ask. ``reworded`` finds the
error that eddyline meant where Spark has wrapped one.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
import warnings
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException

from eddyline.errors import (
    ChangedFunctionWarning,
    EddylineError,
    OptionError,
    PredicateError,
    QueryError,
    SourceError,
    StateError,
    own_frames,
)
from eddyline.registry import unknown
from eddyline.report.metrics import metrics_of
from eddyline.report.progress import progress_lines
from eddyline.report.sections import arranged, notes
from eddyline.report.stored import RunLog
from eddyline.runtime.by_hand import BY_PERSON
from eddyline.runtime.checkpoint import LEARNED, PINS, STATE, SnapshotFile, write_query
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import Backlog, BatchRecord, History
from eddyline.sources.rejected import FOLDER as REJECTED
from eddyline.sources.rejected import PROPERTY, RejectedValues, rejected_notes
from eddyline.spark.analysis import reason_of
from eddyline.spark.event_time import warn_of_unbounded_state, warn_without_lateness
from eddyline.spark.operator import Batch
from eddyline.spark.prepared import RowCount
from eddyline.spark.python_workers import load_ahead
from eddyline.spark.run.chain import Chain, Steering
from eddyline.spark.run.checkpoint_files import CheckpointFiles
from eddyline.spark.run.job import SinkOutlet, count_of
from eddyline.spark.run.observations import has_told_all
from eddyline.spark.run.running_query import RunFace
from eddyline.spark.session import BatchInterrupted, cancel_jobs_once_stopped, local_property
from eddyline.spark.sinks.files import file_system, uri_of
from eddyline.spark.starting import spark_trigger
from eddyline.spark.stream_files import FileStream, backlog_of, rejecting_streams
from eddyline.state.manifest import ManifestFolder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from eddyline.report.metrics import Metric
    from eddyline.report.sections import Node, Section
    from eddyline.runtime.checkpoint import Changed
    from eddyline.spark.prepared import Counted
    from eddyline.spark.run.job import Feed, Job, Outlet
    from eddyline.spark.stream_files import BatchFiles

_STATE_ERROR = re.compile(r"eddyline\.errors\.StateError: (.*)")
_SOURCE_ERROR = re.compile(r"eddyline\.errors\.SourceError: (.*)")
_PREDICATE_ERROR = re.compile(r"eddyline\.errors\.PredicateError: (.*)")
_RAISED = re.compile(
    r"(predicate '.*? raised .*?; (?:handle that value|this function is written)[^\n]*)", re.DOTALL
)

_DISK = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system")
_SINK = re.compile(
    r"\[TASK_WRITE_FAILED\] Task failed while writing rows to (?:file:)?(\S+?)/_eddyline/"
)


def reworded(
    error: BaseException, query: str, cause: BaseException | None = None, failed_in: str = ""
) -> BaseException:
    """Return the error of eddyline that another one tells of; that one itself if it tells of none.

    An error of Spark then begins with one sentence: which query failed, where and why.

    Args:
        error: as it was raised; by Spark, its text holds the traces of workers.
        query: name of the query that failed.
        cause: the error of the batch, if Spark wrapped it.
        failed_in: where it failed, such as `` in batch 3``.
    """
    if isinstance(error, EddylineError):
        return error.with_traceback(None)
    text = str(error)
    if match := _STATE_ERROR.search(text):
        return StateError(match[1], query=query)
    if match := _SOURCE_ERROR.search(text):
        return SourceError(f"query {query!r}{failed_in}: {match[1]}", query=query)
    for pattern in (_PREDICATE_ERROR, _RAISED):
        if match := pattern.search(text):
            return PredicateError(match[1], query=query)
    if match := _DISK.search(text):
        return _disk_error(match[0], text, query)
    if isinstance(error, CapturedException) and error._desc is not None:
        lead = f"query {query!r} failed{failed_in}: "
        if not error._desc.startswith(lead):
            error._desc = f"{lead}{reason_of(error if cause is None else cause)}\n\n{error._desc}"
    return error


def _disk_error(reason: str, text: str, query: str) -> SourceError:
    """Return the error of a full disk, with the folder of the sink if that is full."""
    sink = _SINK.search(text)
    where = f"its sink's folder {sink[1]}" if sink else "a disk, such as that of spark.local.dir"
    once = ", and no row is lost or written twice" if sink else ""
    msg = (
        f"query {query!r} cannot write to {where}: {reason}; free space and start the query again "
        f"with its checkpoint: the batch runs again{once}"
    )
    return SourceError(msg, query=query, folder=sink[1] if sink else None)


REPORT_WAIT_S = 10.0
"""Longest wait for the observations of a batch that has been written (s)."""

TOLD_WAIT_S = 0.1
"""The same once Spark has told what all jobs observed (s): no job of the sink has run the batch."""

END_LOOK_S = 0.05
"""Time between two checks whether a failed query has ended (s)."""

READ_HERE = "read"
"""The folder in the checkpoint of rows that the driver has read itself."""

BY_TASKS = "tasks write the results to the sink themselves"
"""Note on a run; see ``task_results``."""


class Run(RunFace):
    """A query that runs; made by ``start``. Behaves like Spark's StreamingQuery."""

    def __init__(
        self,
        job: Job,
        outlet: Outlet,
        checkpoint: str | Path | None,
        trigger: str | None,
        changed: Changed | None = None,
    ) -> None:
        chosen = spark_trigger(trigger)
        self.job = job
        self.name = job.name
        self.source = job.source
        self.columns = job.columns
        self.settings = job.settings
        self.outlet = outlet
        if isinstance(outlet, SinkOutlet):
            self.sink = outlet.sink
        self.notes: tuple[str, ...] = getattr(outlet, "notes", ())
        """Notes on the run."""
        self._files = CheckpointFiles(checkpoint, job.name)
        self._file_stream: FileStream | None = None
        self._rejected = RejectedValues(self._files.own / REJECTED)
        try:
            self._begin(chosen, changed)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        """Let go of what the run has beside Spark's query."""
        for feed in self.job.feeds:
            feed.close()
        if self._files.is_temporary:
            self._rejected.keep_in_memory()
        if self._file_stream is not None:
            self._file_stream.here.let_go()
        self._files.clean_up()

    @property
    def is_kept(self) -> bool:
        """Whether its checkpoint outlives it."""
        return not self._files.is_temporary

    def _begin(self, trigger: dict[str, Any], changed: Changed | None) -> None:
        """Go on from the checkpoint, and start Spark's query."""
        job, outlet = self.job, self.outlet
        if job.state is not None:
            self._files.lock_state(job.state)
        outlet.begin(continues=self._files.has_started)
        self.checkpoint = self._files.folder
        self.state = job.state or str(self._files.own / STATE)
        """Folder of durable state, whether there is some or not."""
        own_folder = self._files.own
        self._resumed = self._files.resumed(job.identity, changed)
        if self._resumed.resets:
            self._reset()
        self.chain = self._chain()
        self._log = RunLog(self._files.own, is_kept=self.is_kept)
        self.steering = Steering(
            self._files.own / PINS,
            chain=lambda: self.chain,
            note=self._noted,
            last_batch=lambda: self._last_batch,
        )
        accepts = self._resumed.file.before
        self._snapshot = SnapshotFile(own_folder / LEARNED, job.identity.mark, accepts)
        self._counting, self._ending = threading.Lock(), threading.Lock()
        self._stopped_by: dict[str, Any] | None = None
        """Who stopped the run or why, until the journal has it."""
        self._last_batch = -1
        self._n_rows_before = 0
        self._arrivals = RowCount()
        self._error: BaseException | None = None
        self._restore()
        self._note_changes()
        write_query(own_folder, self._resumed.file)
        self.steering.apply()
        warn_without_lateness(self.chain.operators, self.source)
        warn_of_unbounded_state(self.name, self.chain.operators)
        self._is_stopping = threading.Event()
        for feed in job.feeds:
            feed.open()
        self.streaming_query: StreamingQuery = self._started(trigger)
        _started_runs[next(_numbers)] = self
        _release_at_end(self.streaming_query, self._files, self._is_stopping, job.feeds)

    def _chain(self) -> Chain:
        """Return the operators, with nothing learned yet.

        Raises:
            StateError: the durable state is of another query, or cannot be read.
        """
        chain = Chain(
            self.job.operators(self.checkpoint),
            self._state_folder,
            self.job.identity.mark,
            accepts=self._resumed.file.before,
            empty_until=self._resumed.file.empty_until,
            recalls=self.job.recalls,
            watched=self.job.watched,
        )
        if chain.has_state and not self._files.has_started:
            msg = (
                f"{self.state} holds the state of another run of this query; give that run's "
                f"checkpoint to go on from it, or another folder"
            )
            raise StateError(msg, folder=self.state)
        if not self._files.has_started:
            chain.forget_attempts()
        return chain

    def _reset(self) -> None:
        """Remove the state of the earlier query; Spark keeps the offsets."""
        if self.job.identity.is_stateful or Path(self.state).is_dir():
            ManifestFolder(*file_system(self.state)).clear()
        write_query(self._files.own, self._resumed.file)

    def _note_changes(self) -> None:
        """Note what has changed since the checkpoint began, and warn of changed functions."""
        resumed, what = self._resumed, {}
        if resumed.changes:
            what["changes"] = resumed.changes
        if resumed.functions:
            what["functions"] = ", ".join(resumed.functions)
        if resumed.functions and not resumed.resets:
            named = " and ".join(map(repr, resumed.functions))
            warnings.warn(
                f"query {self.name!r}: the code of {named} has changed; the earlier code answered "
                f"the rows up to batch {self._files.last_done}. To answer them again, give another "
                f"checkpoint and path",
                ChangedFunctionWarning,
                stacklevel=own_frames(),
            )
        if what:
            event = "reset" if resumed.resets else "change"
            self._noted([JournalEntry(self._last_batch, "run", event, evidence=what)])

    def _state_folder(self) -> ManifestFolder:
        """Return the folder of durable state; called if some operator has any."""
        if self.job.state is None:
            self._files.check_is_reached(self.name, self._master)
        return ManifestFolder(*file_system(self.state))

    @property
    def _master(self) -> str:
        return str(self.source.sparkSession.sparkContext.master)

    def _started(self, trigger: dict[str, Any]) -> StreamingQuery:
        active = [query.name for query in self.source.sparkSession.streams.active]
        if self.name in active:
            raise already_running(self.name, self.job.rename)
        for run in active_runs():
            if self.state == run.state:
                its = "state" if self.job.state else "checkpoint"
                folder = self.job.state or str(self.checkpoint)
                msg = (
                    f"run {run.name!r} writes to the {its} {folder}; stop it first, or give "
                    f"another folder"
                )
                raise QueryError(msg, run=run.name, **{its: folder})
        if rejecting_streams(self.source):
            self._files.check_is_reached(self.name, self._master, "rejected values")
        self._files.forget_unwritten()
        rows = self.chain.ahead(self.source)
        self._file_stream = FileStream.from_stream(self.source, self._files.spark)
        # Tasks on other machines would not find what the driver puts into the checkpoint.
        if self._file_stream is not None and self._master.startswith("local"):
            own_folder = self._files.own
            here = replace(
                self._file_stream.here,
                folder=own_folder / READ_HERE,
                rejected=own_folder / REJECTED,
            )
            self._file_stream.here = here
        modules = {
            operator.task_module: None for operator in self.chain.operators if operator.task_module
        }
        load_ahead(self.source.sparkSession, modules)
        writer = rows.writeStream.foreachBatch(self._on_batch).queryName(self.name)
        writer = writer.option("checkpointLocation", uri_of(self._files.spark))
        try:
            writer = writer.trigger(**trigger)
        except PySparkException as error:
            msg = f"{trigger} is no trigger: {error}; use an interval such as '5 seconds'"
            raise OptionError(msg, trigger=trigger) from error
        self._log.write(self.run_view)
        with local_property(self.source.sparkSession, PROPERTY, str(self._rejected.folder)):
            return writer.start()

    # -- one micro-batch ----------------------------------------------------------------------

    def _on_batch(self, df: DataFrame, batch_id: int) -> None:
        started = time.monotonic()
        batch = Batch(
            batch_id,
            self._n_rows_before,
            is_first=self._last_batch < 0,
            is_taken_whole=self.outlet.takes_all,
            files=self._batch_files(batch_id),
            rows=df,
            calls_user=self.outlet.calls_user,
            takes_arrow=self.outlet.takes_arrow,
            takes_tasks=self.outlet.takes_tasks(df.sparkSession),
        )
        try:
            n_rows, n_kept = self._process(df, batch)
            seconds = time.monotonic() - started
            records = (*self.chain.records(), *self._rejected.records(batch_id))
            record = BatchRecord(
                batch_id,
                n_rows,
                n_kept,
                seconds,
                time.time(),
                records,
                (*progress_lines(records, n_rows, seconds), *self.steering.lines()),
                kept_by=self.outlet.kept_by,
            )
            self._log.add(record)
            self._n_rows_before = n_rows
            if batch_id > self._last_batch:
                self._last_batch = batch_id
                self._snapshot.counters.count(record)
                self._noted(self.chain.watch.observe(record))
                self._snapshot.save(self.chain.snapshot(), batch_id)
            self._log.show(self.run_view)
        except BaseException as error:  # noqa: BLE001 - raised again, reworded
            self._check_goes_on()  # whatever a job says that was stopped
            if isinstance(error, Exception):
                self._snapshot.count_failure()
            # In as few words as there are: Spark prints them all.
            self._error = raised = self._reworded(error)
            self._log.write(self.run_view, "failed", f"{type(raised).__name__}: {raised}")
            raise raised from None

    def _batch_files(self, batch_id: int) -> BatchFiles | None:
        """Return the files of a batch; the driver may read few rows into files."""
        if self._file_stream is None:
            return None
        self._file_stream.here.let_go(but=batch_id)
        reads_here = any(operator.may_read_files for operator in self.chain.operators)
        return self._file_stream.files(batch_id, reads_here=reads_here)

    def _process(self, df: DataFrame, batch: Batch) -> tuple[int, int]:
        """Run one batch, commit its state, and learn from it; returns the rows in and out."""
        chain = self.chain
        self.steering.apply()
        chain.open(batch)
        source, arrived = self._counted(df, batch)
        results, awaited = chain.lay(df, batch, source)
        self._check_goes_on()
        if chain.is_ahead and batch.is_taken_whole:
            results = replace(results, counted=arrived)
        kept = self.outlet.write(results, df.sparkSession, batch.id)
        self._check_goes_on()
        # A sink that ran no job of the batch, or one of something else, has nothing to report.
        wait_s = TOLD_WAIT_S if has_told_all(df.sparkSession, REPORT_WAIT_S) else REPORT_WAIT_S
        deadline = time.monotonic() + wait_s  # one wait for all
        seen = chain.collect(awaited, wait_s)
        self._check_goes_on()
        seen = chain.whole(df, batch, seen)
        chain.commit(seen, batch)
        entries = chain.take_entries()
        n_kept = kept(max(0.0, deadline - time.monotonic()))
        n_rows = n_kept
        if arrived is not None:
            n_rows = count_of(arrived, max(0.0, deadline - time.monotonic()))
        # A batch that runs again after a failure was counted before, and counts once.
        if batch.id > self._last_batch:
            with self.steering.deciding:
                entries += chain.learn(seen, replace(batch, n_rows=n_rows))
        self._noted(entries)
        return n_rows, n_kept

    def _counted(self, df: DataFrame, batch: Batch) -> tuple[DataFrame, Counted | int | None]:
        """Return the rows of a batch, and where their number comes to be.

        Rows that are results already are counted once, where the sink takes them.
        """
        if batch.files is not None and (n_rows := batch.files.n_rows) is not None:
            return df, n_rows
        return (df, None) if self.chain.is_ahead else self._arrivals.over(df)

    def _check_goes_on(self) -> None:
        """Raise BatchInterrupted if the query was stopped: no job is begun and no report awaited.

        Spark interrupts a batch once; whoever waits at that moment may take it for the end of the
        wait.
        """
        if hasattr(self, "streaming_query") and not self.streaming_query.isActive:
            raise BatchInterrupted from None

    def _noted(self, entries: list[JournalEntry]) -> None:
        """Append decisions to the journal."""
        with self._counting:
            self._log.note(entries)
            self._snapshot.counters.count_decisions(entries)

    def _restore(self) -> None:
        """Continue from what an earlier run of the same query has learned."""
        saved = self._snapshot.load()
        if saved is None:
            return
        if isinstance(saved, str):
            self._noted([JournalEntry(-1, "run", "drop_state", evidence={"why": saved})])
            return
        state, last_batch = saved
        try:
            self.chain.restore(state)
        except StateError as error:
            # What was learned only saves work; without it the run starts with the plan as written.
            self.chain = self._chain()
            why = {"why": error.message}
            self._noted([JournalEntry(-1, "run", "drop_state", evidence=why)])
            return
        self._last_batch = last_batch
        plan = self.chain.plan()
        self._noted([JournalEntry(self._last_batch, "run", "restore", after=plan)])

    # -- what a person sees -------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The query as it was written, as of the last micro-batch."""
        changing = (operator.text for operator in self.chain.operators)
        return "\n".join(filter(None, changing)) or self.job.text

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of the query as lines of a tree."""
        return self.job.steps

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The steps as a graph."""
        return self.job.nodes

    def late_rows(self, name: str) -> pa.Table:
        """Return the rows of one input that came too late, such as to be joined.

        Args:
            name: the input, as the query calls it. The name of its stream will do if late rows of
                that stream are kept in one place, such as in a subquery.

        Returns:
            The columns that the query reads, and the event time ``_time``; in the order of batches.

        Raises:
            QueryError: the query keeps no late rows, or has no such input.
            StateError: they cannot be read, such as when a temporary checkpoint went with its run.
        """
        keepers = {
            input_name: operator
            for operator in self.chain.operators
            for input_name in operator.keeps_late
        }
        if not keepers:
            msg = f"query {self.name!r} keeps no late rows: none of its operators has windows"
            raise QueryError(msg, query=self.name)
        inputs = (
            [name]
            if name in keepers
            else [input_name for input_name in keepers if _is_of(input_name, name)]
        )
        if len(inputs) > 1:
            listed = ", ".join(map(repr, inputs))
            msg = f"query {self.name!r} reads {name!r} as several inputs; name one: {listed}"
            raise QueryError(msg, name=name, inputs=inputs)
        if not inputs:
            raise QueryError(unknown("input", name, list(keepers)), name=name)
        return keepers[inputs[0]].late_rows(inputs[0])

    def rejected(self, name: str) -> pa.Table:
        """Return the newest values that a stream could not read; see ``RunFace.rejected``."""
        names = rejecting_streams(self.source)
        if name not in names:
            raise QueryError(unknown("stream that rejects values", name, names), name=name)
        return self._rejected.table(name, self._last_batch)

    def describe(self) -> list[Section]:
        """Return the explanation of the run."""
        sections = self.chain.describe(History(tuple(self.records), self.decisions))
        by_tasks = (BY_TASKS,) if self.outlet.by_tasks else ()
        rejects = rejected_notes(self._snapshot.counters.n_rejected)
        return arranged(
            [*sections, *self.steering.sections(), *notes((*self.notes, *by_tasks, *rejects))]
        )

    @property
    def records(self) -> list[BatchRecord]:
        """Records of the micro-batches of this run; of many, older ones stand for several."""
        return self._log.records

    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics of the run; see ``RunFace.metrics``."""
        return metrics_of(
            self.name,
            self._snapshot.counters,
            is_running=self.isActive,
            n_pinned=self.steering.n_pinned,
            records=self.chain.records(),
            backlog=self.backlog(),
        )

    def backlog(self) -> Backlog:
        """Return the input that waits; see ``RunFace.backlog``."""
        if not self.isActive:
            return Backlog(why="the query does not run")
        # Rows that are results already are no rows of files.
        n_rows = None if self.chain.is_ahead else self._snapshot.counters.n_rows
        return backlog_of(self.lastProgress, self.source, self._files.spark, n_rows)

    @property
    def decisions(self) -> tuple[JournalEntry, ...]:
        """Every decision so far, as values; see ``journal``."""
        return self._log.entries

    # -- like a StreamingQuery ----------------------------------------------------------------

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the run ends; see ``RunFace.await_termination``."""
        try:
            if timeout_s is None:
                self.streaming_query.awaitTermination()
                ended = True
            else:
                # Spark's hint says int, its code takes fractions of a second.
                waited = self.streaming_query.awaitTermination(timeout_s)  # type: ignore[arg-type]
                ended = bool(waited)
        except StreamingQueryException as error:
            # Spark tells of an error some moments before the query counts as ended.
            deadline = time.monotonic() + REPORT_WAIT_S
            while self.streaming_query.isActive and time.monotonic() < deadline:
                time.sleep(0.01)
            self._close()
            raise self._reworded(error) from None
        if ended:
            self._end()
        return ended

    def process_all_available(self) -> None:
        """Wait until everything that has arrived is processed; for tests."""
        for feed in self.job.feeds:
            feed.look()
        try:
            self.streaming_query.processAllAvailable()
        except StreamingQueryException as error:
            self._close()
            raise self._reworded(error) from None

    def stop(self, *, why: str | None = None) -> None:
        """Stop the run; see ``RunFace.stop``."""
        with self._counting:
            if self.isActive and not self._is_stopping.is_set():
                self._stopped_by = {**BY_PERSON} if why is None else {"why": why}
            self._is_stopping.set()
        try:
            cancel_jobs_once_stopped(self.streaming_query, self.source.sparkSession)
            self.streaming_query.stop()
        except BaseException:
            self._is_stopping.clear()  # the run goes on, or has ended by itself
            with contextlib.suppress(Exception):
                if not self.isActive:
                    self._close()
            raise
        with self._ending:  # several threads may stop it: the first one here writes the journal
            evidence, self._stopped_by = self._stopped_by, None
            if evidence is not None:
                self._noted([JournalEntry(self._last_batch, "run", "stop", evidence=evidence)])
            self._end()

    def _end(self) -> None:
        """Keep how the run stood at its end."""
        self._log.write(self.run_view, "ended")
        self._close()

    def _reworded(self, error: BaseException) -> BaseException:
        """Return the error that eddyline meant, where Spark has wrapped one."""
        if isinstance(self._error, EddylineError):
            return reworded(self._error, self.name)
        failed_in = "" if self._error is None else f" in batch {self._last_batch + 1}"
        return reworded(error, self.name, self._error, failed_in)


_numbers = itertools.count()
_started_runs: weakref.WeakValueDictionary[int, Run] = weakref.WeakValueDictionary()


def _release_at_end(
    query: StreamingQuery,
    files: CheckpointFiles,
    is_stopping: threading.Event,
    feeds: Sequence[Feed],
) -> None:
    """Release the checkpoint once a query has ended, even if nobody waits for the query.

    A run that is being stopped releases it after the last entry of the journal.
    """

    def has_ended() -> bool:
        with contextlib.suppress(Exception):  # of a session that was stopped
            return not query.isActive
        return True

    def release() -> None:
        with contextlib.suppress(Exception):  # the run failed
            query.awaitTermination()
        while not has_ended():  # Spark reports an error a moment before
            time.sleep(END_LOOK_S)
        for feed in feeds:
            feed.close()
        if not is_stopping.is_set():
            files.release()

    files.held_by(has_ended)
    threading.Thread(target=release, name=f"end of {query.name}", daemon=True).start()


_NUMBER = re.compile(r" \(\d+\)$")


def _is_of(keeper: str, stream: str) -> bool:
    """Return whether an input that keeps late rows is of one stream alone.

    Parts of UNION ALL have a number behind their name, and inputs of subqueries the subquery before
    it: ``n (1), n (2)`` and ``inner.n`` are of ``n``.
    """
    names = [_NUMBER.sub("", part) for part in keeper.split(", ")]
    return all(name == stream or name.endswith(f".{stream}") for name in names)


def started_runs() -> list[Run]:
    """Return the runs of this process that somebody knows of or that run, in their order."""
    return list(_started_runs.values())


def active_runs() -> list[Run]:
    """Return the runs of this process that have not ended."""
    return [run for run in started_runs() if run.isActive]


def already_running(name: str, rename: str) -> QueryError:
    """Return the error that a query of that name runs."""
    msg = (
        f"query {name!r} is running already; stop that run first, or make the query again under "
        f"another name: {rename}"
    )
    return QueryError(msg, query=name)

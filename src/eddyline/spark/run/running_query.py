"""Public face of a running query: explain, watch, stop.

Functions for several runs are here, too. ``RunFace`` is what a run by itself (``run.Run``) and one
of several that run together (``shared``) have in common: explanations, decisions, a person's pins,
the rows that stay in memory, and all names of PySpark's ``StreamingQuery``.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from dataclasses import asdict
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Console

from eddyline.errors import SourceError
from eddyline.report.formatting import count
from eddyline.report.html import fragment, write_report
from eddyline.report.sections import Node, RunView, Section, Text
from eddyline.report.terminal import ProgressLine, explain
from eddyline.runtime.records import History, n_batches
from eddyline.spark.session import noting_interrupts
from eddyline.spark.sinks.files import FileSink
from eddyline.spark.sinks.sinks import MemorySink
from eddyline.spark.starting import FILES
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from eddyline.report.metrics import Metric
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import Backlog, BatchRecord
    from eddyline.spark.run.chain import Steering
    from eddyline.spark.sinks.sinks import Sink


LOOK_EVERY_S = 0.2
"""Time between two looks for new batches (s)."""


class RunGroup(Protocol):
    """Queries that run together."""

    @property
    def runs(self) -> Sequence[RunFace]:
        """The run of each."""

    @property
    def isActive(self) -> bool:
        """Whether they are still running."""

    def stop(self, names: Collection[str], *, why: str | None = None) -> None:
        """Take queries out once the micro-batch that is written is done."""


class RunFace(ABC):
    """A query that runs; behaves like Spark's StreamingQuery.

    It has the names of PySpark's StreamingQuery and Python's: ``lastProgress`` and
    ``last_progress`` are the same.
    """

    streaming_query: StreamingQuery
    """Spark's own query, which runs it."""
    steering: Steering
    """The hand of a person on its plans."""
    name: str
    """The query's name."""
    source: DataFrame
    """The stream that it reads."""
    columns: Mapping[str, str]
    """Name and Spark type of each output column."""
    settings: Mapping[str, str]
    """The options of the query, as texts."""
    sink: Sink
    """The sink of its rows."""
    group: RunGroup | None = None
    """The queries that it runs together with, if it does."""

    # -- what each kind of run knows ------------------------------------------------------------

    @property
    @abstractmethod
    def text(self) -> str:
        """The query as it was written."""

    @property
    @abstractmethod
    def steps(self) -> tuple[str, ...]:
        """The steps of the query as lines of a tree; none where it is not made of steps."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The steps as a graph; none where it is not made of steps."""
        return ()

    @abstractmethod
    def describe(self) -> list[Section]:
        """Return the explanation of the run: the plan in force, its reasons, and its work."""

    @property
    @abstractmethod
    def records(self) -> list[BatchRecord]:
        """Records of the micro-batches of this run, oldest first.

        Their number is limited: of many, older ones are merged, and stand for several batches
        each (``n_batches``); rows and times add up.
        """

    def records_after(self, batch_id: int) -> list[BatchRecord]:
        """Return the records of the micro-batches after one, the oldest first."""
        newest = takewhile(lambda record: record.batch_id > batch_id, reversed(self.records))
        return list(newest)[::-1]

    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics of the run; counters are of the query's whole life, with restarts.

        Queries that run together have one set of metrics, of all of them.
        """

    @property
    @abstractmethod
    def decisions(self) -> tuple[JournalEntry, ...]:
        """Every decision so far, as values; see ``journal``."""

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
    def rejected(self, name: str) -> pa.Table:
        """Return the newest values that a stream could not read, such as broken JSON.

        Args:
            name: the stream, as the engine calls it.

        Returns:
            Batch, topic, partition and offset of each value, the reason, its first bytes as text,
            and ``n_records``: of records that were gone before they were read, how many. A stream
            keeps its newest 10,000 values; ``eddyline_rejected_values_total`` counts all.

        Raises:
            QueryError: no source of the run rejects values, or none has the name.
        """

    @abstractmethod
    def _reworded(self, error: BaseException) -> BaseException:
        """Return the error that eddyline meant, where Spark has wrapped one."""

    @abstractmethod
    def stop(self, *, why: str | None = None) -> None:
        """Stop the run; a batch that is under way runs again when the query is started anew.

        Args:
            why: the reason, for the journal; if omitted, a person has decided it.
        """

    # -- what a person sees ---------------------------------------------------------------------

    def explain(self, *, width: int = 100) -> str:
        """Return the plan in force and why, in words."""
        return explain(self.name, self.describe(), steps=self.steps, width=width)

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks."""
        return fragment(self.name, self.describe(), steps=self.steps)

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every decision so far, as rows.

        Its size is limited: of very many, the oldest findings of tasks go first and changes of
        plans last; an entry ``left_out`` counts what went.
        """
        return [asdict(entry) for entry in self.decisions]

    def run_view(self) -> RunView:
        """Return the whole run as values."""
        return RunView(
            query=self.name,
            text=self.text,
            steps=self.steps,
            history=History(tuple(self.records), self.decisions),
            sections=tuple(self.describe()),
            settings=self.steering.settings(self.settings),
            nodes=self.nodes,
        )

    def report(self, path: str | Path) -> Path:
        """Write the run as one self-contained HTML page.

        Raises:
            EddylineError: the extra ``report`` is not installed.
        """
        return write_report(self.run_view(), path)

    def watch(self, *, quiet: bool = False) -> None:
        """Show the progress until the run ends; Ctrl-C stops watching, and the run goes on.

        Args:
            quiet: show nothing, only wait.

        Raises:
            EddylineError: the run failed in a way that eddyline has words for.
        """
        watch([self], quiet=quiet, stops=False)

    # -- what a person decides --------------------------------------------------------------------

    def plan(self) -> dict[str, Any]:
        """Return the plans in force that could be others, by component, as ``pin`` takes them.

        Raises:
            PlanError: the query has no such plan.
        """
        return self.steering.plan()

    def pin(self, plan: Any = None, *, component: str | None = None) -> None:
        """Keep plans in force whatever the evidence says, from the next micro-batch on.

        A pin outlives a restart from the checkpoint; it changes the work, never the answer.

        Args:
            plan: plans by component, as ``plan`` returns them, or
                the plan of the only component. The plans in force if omitted.
            component: a component, such as ``native`` or ``pipeline s``, or an operator, such as
                ``filter`` or ``join``, that it is about; all that the query has if omitted.

        Raises:
            PlanError: there is no such component, or the plan is not possible; nothing is pinned.
            StateError: the pin cannot be written.
        """
        self.steering.pin(plan, component)

    def adapt(self, component: str | None = None) -> None:
        """Let plans that are pinned follow the evidence again; they begin with those in force.

        Args:
            component: a component or an operator; all that the query has if omitted.

        Raises:
            PlanError: there is no such component, or the query was started with
                ``adaptive=False``.
            StateError: it cannot be written.
        """
        self.steering.adapt(component)

    def adjust(self, *, component: str | None = None, **values: float) -> None:
        """Give numeric options other values, from the next micro-batch on.

        These are limits of profiling (``sample_prob``, ``max_overhead``), the threshold of an
        ordering policy (``hysteresis``), the memory of caches (``cache_bytes``) and the largest
        bound of a constraint (``largest_k_s``), which change the work and never the answer. The run
        has the values until it ends; a start has those of the program.

        Args:
            component: the operator, such as ``filter`` or ``join``; all that have the option if
                omitted.
            **values: the values by option.

        Raises:
            OptionError: the query has no such option that can be changed, or the value is out of
                its range; nothing is changed.
        """
        self.steering.adjust(component, values)

    # -- the rows, where they stay in memory ----------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return all rows so far (sink ``memory``).

        Raises:
            SourceError: another sink has the rows, or no batch has run yet.
        """
        return self._memory().table()

    def to_df(self) -> DataFrame:
        """Return all rows so far as a DataFrame (sink ``memory``), also as a view by its name."""
        rows = self._memory().to_df(self.source.sparkSession)
        rows.createOrReplaceTempView(quoted(self.name))
        return rows

    def stream(self) -> DataFrame:
        """Return the rows that have been written to files as a streaming DataFrame.

        Each micro-batch is there when it is written, so anything of Spark can follow the query. A
        batch that runs again after a crash has its files anew under the same names: who had read
        them before keeps what they held.

        Raises:
            SourceError: another sink has the rows.
        """
        if not isinstance(self.sink, FileSink):
            msg = f"run {self.name!r} writes no files; start it with one of: {', '.join(FILES)}"
            raise SourceError(msg, run=self.name)
        ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in self.columns.items())
        reader = self.source.sparkSession.readStream.format(self.sink.kind)
        options = {"pathGlobFilter": "batch-*"} | self.sink.options
        return reader.schema(ddl).options(**options).load(self.sink.path)

    def _memory(self) -> MemorySink:
        if not isinstance(self.sink, MemorySink):
            msg = f"run {self.name!r} does not keep its rows in memory; start it with 'memory'"
            raise SourceError(msg, run=self.name)
        return self.sink

    # -- like a StreamingQuery --------------------------------------------------------------------

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
        """Status of the query as Spark tells it."""
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

    def __repr__(self) -> str:
        """Say how the run goes on one line."""
        records = self.records
        n_rows, n_kept = sum(r.n_rows for r in records), sum(r.n_kept for r in records)
        n = n_batches(records)
        batches = "1 batch" if n == 1 else f"{count(n)} batches"
        if not hasattr(self, "streaming_query"):
            return f"<run {self.name!r}: not started>"
        how = "running" if self.isActive else "ended"
        work = f"{count(n_rows)} rows in {batches}, {count(n_kept)} out"
        return f"<run {self.name!r}: {how}, {work}>"

    def __enter__(self) -> Self:
        """Return the run, which is stopped when the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the run, if it runs."""
        if self.isActive:
            self.stop(why="the block that it was started in has ended")


def explanations(runs: Iterable[RunFace], *, width: int = 100) -> Iterator[str]:
    """Yield the explanation of each run; what those share that run together is said once."""
    explained: dict[RunGroup, str] = {}
    for run in runs:
        if run.group is None or run.group not in explained:
            yield run.explain(width=width)
        else:
            text = f"Explained with {explained[run.group]!r}, which it runs together with."
            yield explain(run.name, [Section("", (Text(text),))], steps=run.steps, width=width)
        if run.group is not None:
            explained.setdefault(run.group, run.name)


def stop_runs(runs: Iterable[RunFace], *, why: str | None = None) -> None:
    """Stop runs, and wait until all have ended.

    All stop at once. Those that run together stop at the same micro-batch, so none misses rows.
    Ctrl-C ends only the wait.

    Args:
        runs: the runs.
        why: the reason, for the journal; if omitted, a person has decided it.

    Raises:
        Exception: a run could not be stopped; the others have stopped.
    """
    together: dict[RunGroup, list[str]] = {}
    stops: list[Callable[[], None]] = []
    for run in runs:
        if run.group is not None:
            together.setdefault(run.group, []).append(run.name)
        elif _goes_on(run):
            stops.append(partial(run.stop, why=why))
    for group, names in together.items():
        if _goes_on(group):
            stops.append(partial(group.stop, names, why=why))
    errors: list[BaseException] = []
    threads = [threading.Thread(target=_tried, args=(stop, errors), daemon=True) for stop in stops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _goes_on(run: RunFace | RunGroup) -> bool:
    with contextlib.suppress(Exception):  # a session that was stopped answers nothing
        return run.isActive
    return False


def _tried(call: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        errors.append(error)


def watch(runs: Sequence[RunFace], *, quiet: bool = False, stops: bool = True) -> None:
    """Show the progress of runs until all have ended, or Ctrl-C.

    Args:
        runs: the runs.
        quiet: show nothing, only wait.
        stops: whether Ctrl-C stops the runs; otherwise they go on, and a line says so. If one
            fails, the others are stopped.

    Raises:
        EddylineError: a run failed in a way that eddyline has words for.
    """
    console = Console(stderr=True)
    lines = {run.name: ProgressLine(run.name, console=console, quiet=quiet) for run in runs}
    active = list(runs)
    with contextlib.ExitStack() as stack:
        for line in lines.values():
            stack.enter_context(line)
        is_interrupted = stack.enter_context(noting_interrupts())
        try:
            while active and not is_interrupted():
                active = [run for run in active if not _has_ended(run, lines[run.name])]
        except BaseException:
            stop_runs(runs, why="another query that was watched with it failed")
            raise
        for run in active:
            lines[run.name].end("stopped" if stops else "goes on")
        if stops:
            stop_runs(active)
    if active and not quiet:
        names = ", ".join(run.name for run in active)
        message = f"{names}: " + (
            "stopped by Ctrl-C"
            if stops
            else "not watched any longer, but goes on; run.watch() shows it, run.stop() stops it"
        )
        console.print(message, markup=False, highlight=False)


def _has_ended(run: RunFace, line: ProgressLine) -> bool:
    """Wait a little, show the batches that have ended meanwhile, and say whether the run has."""
    ended = run.await_termination(LOOK_EVERY_S)
    for record in run.records:
        if record.batch_id > line.last_batch:
            line.update(record)
    return ended

"""Stream about the system: numbers and decisions of runs, as rows.

Its runs are those of this process, or those of checkpoints. ``Feed`` looks at these runs twice a
second, in a thread of its own, and writes what is new as one Parquet file, which Spark's file
stream reads. So a run that is watched writes nothing for it. ``report.system`` has the rows.

Each query over the stream has a feed of its own, in its checkpoint. Invariant: every batch and
decision of a run is in one file. A file says in its footer how far each run is told after it
(``Told``), so rows and place are written in one step. ``told.json`` repeats it, because Spark
removes a file once the batch that read it is committed.

Queries that read the stream are left out of it, because each of their batches would make rows for
the next.
"""

from __future__ import annotations

import atexit
import contextlib
import re
import shutil
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from eddyline.data.files import replace_file, writable
from eddyline.errors import QueryError
from eddyline.registry import folder_name
from eddyline.report.metrics import BACKLOG, FAILURES, PINNED
from eddyline.report.system import NAME, Row, entries_of, rows_of, state_rows
from eddyline.runtime.checkpoint import OWN, SPARK, read_struct
from eddyline.runtime.journal import RUN, n_taken
from eddyline.serve.runs import StoredRuns, StoredWatch
from eddyline.spark.run.live import LiveRun
from eddyline.spark.run.run import started_runs
from eddyline.spark.sinks.sinks import temporary_folder
from eddyline.spark.stream_files import paths_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.runtime.records import BatchRecord
    from eddyline.spark.run.run import Run

FROM_SYSTEM = re.compile(rf"(?:\bfrom|\bjoin|,)\s+{NAME}\b", re.IGNORECASE)
"""A query that may read it."""

TIME, LATENESS = "at", "10 seconds"
"""Its event time, and how late rows may be: decisions are noted by the second."""

DDL = (
    "at TIMESTAMP, query STRING, batch BIGINT, component STRING, entity STRING, name STRING, "
    "value DOUBLE"
)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("query", pa.string()),
        ("batch", pa.int64()),
        ("component", pa.string()),
        ("entity", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
    ]
)

LOOK_EVERY_S = 0.5
"""Time between two looks at the runs (s)."""

MOST_FILES = 2_000
"""Files of a feed that no query of the engine reads: of more, the oldest go."""

LEVELS_SHARE = 0.005
"""Most share of the time in which a run is asked for what only Spark knows, such as its backlog."""

_LEVELS = {BACKLOG: "backlog_rows", FAILURES: "n_failures", PINNED: "n_pinned"}
"""The metrics that no record of a batch has, and their names here."""

_ROWS, _TOLD = "rows", "told.json"


class Told(msgspec.Struct):
    """Position in a run up to which the stream has told it."""

    batch: int = -1
    """The newest batch."""
    n_entries: int = 0
    """Decisions."""
    status: str = ""


class _Place(msgspec.Struct):
    """Position of a feed."""

    number: int = 0
    """Of its newest file."""
    told: dict[str, Told] = {}
    """By the id of Spark's query, which a run keeps over restarts."""


def check_not_own(query: str, checkpoints: Sequence[Path], checkpoint: Path | None) -> None:
    """Refuse a query over its own checkpoint.

    Raises:
        QueryError: it would feed itself.
    """
    if checkpoint is not None and checkpoint.resolve() in checkpoints:
        msg = (
            f"query {query!r} reads the stream about the system of {checkpoint}, which is its own "
            f"checkpoint: each of its batches would feed the next; give it another checkpoint"
        )
        raise QueryError(msg, query=query, checkpoint=str(checkpoint))


def check_text(text: str, name: str) -> None:
    """Refuse a query that asks for its own rows.

    Raises:
        QueryError: it would feed itself.
    """
    pattern = re.escape(name.replace("'", "''"))
    if re.search(rf"\bquery\s*={{1,2}}\s*'{pattern}'", text, re.IGNORECASE):
        msg = (
            f"query {name!r} asks {NAME} for its own rows and would feed itself; queries that read "
            f"{NAME} are left out of it: ask for another query, or look at its run (run.metrics(), "
            f"engine.serve())"
        )
        raise QueryError(msg, query=name)


class _Live(LiveRun):
    """A run of this process: a query, or several that run together."""

    run: Run


class _LiveRuns:
    """The runs of this process; one that has ended stays until it is told."""

    def __init__(self) -> None:
        self._known: dict[Run, _Live] = {}
        self._done: weakref.WeakSet[Run] = weakref.WeakSet()
        """Runs that have ended and are told, and those that read the stream."""

    def runs(self) -> Iterable[_Live]:
        for run in started_runs():
            if run not in self._known and run not in self._done:
                if any(path in _FOLDERS for path in paths_of(run.source)):
                    self._done.add(run)
                else:
                    self._known[run] = _Live(run)
        return list(self._known.values())

    def end(self, live: _Live) -> None:
        """Let go of a run that has ended and is told."""
        if self._known.pop(live.run, None) is not None:
            self._done.add(live.run)


_FOLDERS: set[str] = set()
"""The folders of rows of all feeds of this process."""

_SOURCES: weakref.WeakKeyDictionary[DataFrame, tuple[Path, ...]] = weakref.WeakKeyDictionary()


def source_of(df: object) -> tuple[Path, ...] | None:
    """Return the checkpoints of a DataFrame that ``Engine.system`` or ``system_of`` has made."""
    return _SOURCES.get(df) if hasattr(df, "isStreaming") else None  # type: ignore[call-overload]


def frame(
    spark: SparkSession, checkpoints: tuple[Path, ...], folder: Path, **options: str
) -> DataFrame:
    """Return the stream of a folder of rows."""
    rows = folder / _ROWS
    rows.mkdir(parents=True, exist_ok=True)
    _FOLDERS.add(str(rows))
    df = spark.readStream.schema(DDL).options(**options).parquet(str(rows))
    _SOURCES[df] = checkpoints
    return df


def own_feed(
    spark: SparkSession, checkpoints: tuple[Path, ...], checkpoint: Path | None, name: str
) -> tuple[DataFrame, Feed]:
    """Return the stream for one query, in its checkpoint, and what writes its rows.

    Args:
        spark: the session.
        checkpoints: those of the runs; none: the runs of this process.
        checkpoint: of the query; None: the rows go with its run.
        name: of the stream in the query.
    """
    parent = Path(temporary_folder()) if checkpoint is None else checkpoint / OWN / NAME
    folder = parent / folder_name(name)
    df = frame(spark, checkpoints, folder, cleanSource="delete")
    return df, Feed(checkpoints, folder, parent if checkpoint is None else None, is_read_once=True)


class Feed:
    """Writes what is new of some runs into a folder, until it is closed.

    Args:
        checkpoints: those of the runs; none: the runs of this process.
        folder: of the rows, and of how far they are.
        temporary: a folder that goes with the feed.
        is_read_once: whether Spark removes files that were read; else the oldest go.
    """

    def __init__(
        self,
        checkpoints: tuple[Path, ...],
        folder: Path,
        temporary: Path | None = None,
        *,
        is_read_once: bool = False,
    ) -> None:
        self.checkpoints = checkpoints
        self.folder = folder
        self._rows = folder / _ROWS
        self._temporary = temporary
        self._is_read_once = is_read_once
        self._place = _Place()
        self._watched: _LiveRuns | StoredRuns | None = None
        self._heard: weakref.WeakSet[_Live | StoredWatch] = weakref.WeakSet()
        """Runs whose earlier starts are told."""
        self._due: weakref.WeakKeyDictionary[_Live, float] = weakref.WeakKeyDictionary()
        """When a run may be asked again for what only Spark knows (s, monotonic)."""
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def open(self) -> None:
        """Go on where the feed was, and look for the first time; then look from time to time.

        Raises:
            StateError: the folder cannot be read.
            OSError: the rows cannot be written; a later look tells them.
        """
        if self._watched is not None:
            return
        self._place = self._restored()
        self._watched = StoredRuns(self.checkpoints) if self.checkpoints else _LiveRuns()
        threading.Thread(target=self._follow, name=f"eddyline {NAME}", daemon=True).start()
        self.look()

    def _restored(self) -> _Place:
        advice = "move the folder away: the stream then tells everything again"
        place = read_struct(self.folder / _TOLD, _Place, advice) or _Place()
        while (newer := self._file(place.number + 1)).exists():
            place = msgspec.json.decode(
                pq.read_metadata(newer).metadata[_TOLD.encode()], type=_Place
            )
        return place

    def _file(self, number: int) -> Path:
        return self._rows / f"{number:012d}.parquet"

    def _follow(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            with contextlib.suppress(Exception):  # such as a full disk: the next look tells it
                self.look()

    def close(self) -> None:
        """Stop looking."""
        self._closed.set()
        with self._lock:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def look(self) -> None:
        """Write what is new of the runs.

        Raises:
            OSError: the rows cannot be written; nothing is lost.
        """
        with self._lock:
            if self._watched is None or self._closed.is_set():
                return
            by_run = dict(self._place.told)
            rows: list[Row] = []
            heard: list[_Live | StoredWatch] = []
            for run in self._watched.runs():
                if isinstance(run, StoredWatch) and (run.folder / OWN / NAME).is_dir():
                    continue  # it reads the stream
                with contextlib.suppress(Exception):  # what one cannot tell hides no other
                    key = _key_of(run)
                    state = msgspec.structs.replace(by_run.get(key, Told()))
                    news = list(self._news(run, state))
                    if not news and state.status != "running" and isinstance(run, _Live):
                        self._watched.end(run)  # type: ignore[union-attr]
                    by_run[key] = state
                    rows += news
                    heard.append(run)
            if rows:
                self._write(rows, _Place(self._place.number + 1, by_run))
            self._heard.update(heard)

    def _news(self, run: _Live | StoredWatch, state: Told) -> Iterator[Row]:
        """Yield what is new of a run, and note that it is told."""
        is_running = run.is_running()  # asked first: what ran until then is told
        status = "running" if is_running else "ended" if run.error() is None else "failed"
        batches = self._batches(run, state.batch)
        entries = run.decisions()
        n_entries = n_taken(entries)
        for batch in batches:
            yield from rows_of(run.name, batch)
        if n_entries > state.n_entries:
            yield from entries_of(run.name, entries[state.n_entries - n_entries :])
        state.batch = batches[-1].batch_id if batches else state.batch
        state.n_entries = max(state.n_entries, n_entries)
        if state.status != status:
            state.status = status
            yield from state_rows(run.name, state.batch, status, time.time())
        if batches and isinstance(run, _Live):
            yield from self._levels(run, state.batch)

    def _batches(self, run: _Live | StoredWatch, after: int) -> Sequence[BatchRecord]:
        """Return the batches after one; of a run that is new here also those of earlier starts."""
        if isinstance(run, StoredWatch) or run in self._heard:
            return run.records_after(after)
        earlier = StoredWatch(run.run.checkpoint) if run.run.is_kept else run
        return earlier.records_after(after)

    def _levels(self, run: _Live, batch_id: int) -> Iterator[Row]:
        """Yield what no record of a batch has, at most a small share of the time."""
        began = time.monotonic()
        if began < self._due.get(run, 0.0):
            return
        with contextlib.suppress(Exception):  # a session that was stopped answers nothing
            now_us = round(1e6 * time.time())
            for metric in run.metrics():
                if (name := _LEVELS.get(metric.kind)) is not None:
                    yield Row(now_us, run.name, batch_id, RUN, RUN, name, metric.value)
        ended = time.monotonic()
        self._due[run] = ended + (ended - began) / LEVELS_SHARE

    def _write(self, rows: Sequence[Row], place: _Place) -> None:
        columns = []
        for column, kind in zip(zip(*sorted(rows), strict=True), SCHEMA.types, strict=True):
            values = map(writable, column) if pa.types.is_string(kind) else column
            columns.append(pa.array(list(values), kind))
        content = msgspec.json.encode(place)
        table = pa.Table.from_arrays(columns, schema=SCHEMA.with_metadata({_TOLD: content}))
        draft = self.folder / "draft"
        pq.write_table(table, draft)
        draft.replace(self._file(place.number))
        self._place = place
        replace_file(self.folder / _TOLD, content)
        if not self._is_read_once:
            self._file(place.number - MOST_FILES).unlink(missing_ok=True)


def _key_of(run: _Live | StoredWatch) -> str:
    """Return the id of Spark's query of a run."""
    if isinstance(run, _Live):
        return run.run.id
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(msgspec.json.decode((run.folder / SPARK / "metadata").read_bytes())["id"])
    return run.place


class SystemStreams:
    """The streams about the system of an engine, as DataFrames of Spark's."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[Path, ...], tuple[DataFrame, Feed]] = {}

    def stream(
        self, spark: SparkSession, checkpoints: tuple[Path, ...], *, is_read: bool = True
    ) -> DataFrame:
        """Return the stream of some runs, in a folder that goes with the process.

        Args:
            spark: the session.
            checkpoints: those of the runs; none: the runs of this process.
            is_read: whether rows are written from now on; queries of the engine have rows of their
                own.

        Raises:
            StateError: a folder has no checkpoint.
        """
        if checkpoints not in self._feeds:
            folder = Path(temporary_folder())
            feed = Feed(checkpoints, folder, folder)
            self._feeds[checkpoints] = frame(spark, checkpoints, folder), feed
            atexit.register(feed.close)
        df, feed = self._feeds[checkpoints]
        if is_read:
            feed.open()
        return df

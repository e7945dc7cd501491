"""Runs of other processes and of the past, from checkpoints.

Nothing is changed. A checkpoint is read again when its files have changed. After a slow reading the
next one waits longer, so that reading takes a small part of the time.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from eddyline.errors import StateError
from eddyline.report.sections import RunView, nodes_of_plain, sections_of
from eddyline.report.stored import StoredRun, read_run
from eddyline.runtime.checkpoint import JOURNAL, PROGRESS, VIEW, find_runs, own_folder
from eddyline.runtime.records import Backlog
from eddyline.serve.runs import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord

SHARE = 0.05
"""Most share of a processor that reading one checkpoint takes."""

LEAST_AGE_S = 0.5
"""A checkpoint is never read again earlier (s)."""

LOOK_EVERY_S = 5.0
"""Least time between two looks for new checkpoints (s)."""


class StoredWatch:
    """The run of one checkpoint.

    Args:
        folder: the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder)
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._due_at = 0.0
        self._failure: Failure | None = None
        self._stored = StoredRun(folder.name, "", 0.0)
        self._read()

    @property
    def name(self) -> str:
        """Name of the query."""
        return self._stored.query

    def is_running(self) -> bool:
        """Tell whether it ran when its files were written; who was killed could not say so."""
        return self._now().status == "running" and self._failure is None

    def error(self) -> Failure | None:
        """Return what the run failed with, or why its checkpoint cannot be read."""
        stored = self._now()
        if self._failure is not None or stored.status != "failed":
            return self._failure
        kind, _, text = stored.error.partition(": ")
        return Failure(kind, text)

    def records_after(self, batch_id: int) -> Sequence[BatchRecord]:
        """Return the records of the batches after one, the oldest first."""
        return [batch for batch in self._now().batches if batch.batch_id > batch_id]

    def decisions(self) -> Sequence[JournalEntry]:
        """Return every decision so far, as far as they are kept."""
        return self._now().journal

    def phases(self) -> Mapping[int, Mapping[str, float]]:
        """Return nothing: Spark's own progress is not kept."""
        return {}

    def backlog(self) -> Backlog:
        """Return that nothing is known: checkpoints have no word of what has arrived since."""
        return Backlog(why="only the process that runs a query knows it")

    def run_view(self) -> RunView:
        """Return the whole run as values."""
        stored = self._now()
        try:
            sections, nodes = sections_of(stored.sections), nodes_of_plain(stored.nodes)
        except StateError as error:
            self._failure, sections, nodes = Failure.from_error(error), [], ()
        return RunView(
            stored.query,
            stored.text,
            stored.steps,
            stored.history,
            tuple(sections),
            stored.settings,
            nodes,
        )

    def _now(self) -> StoredRun:
        """Return what the files say, read again if they have changed."""
        if time.monotonic() >= self._due_at and self._stamp_now() != self._stamp:
            self._read()
        return self._stored

    def _read(self) -> None:
        before = time.thread_time()
        self._stamp = self._stamp_now()
        try:
            self._stored, self._failure = read_run(self.folder), None
        except StateError as error:
            self._failure = Failure.from_error(error)
        took_s = time.thread_time() - before
        self._due_at = time.monotonic() + max(LEAST_AGE_S, took_s / SHARE)

    def _stamp_now(self) -> tuple[tuple[int, int], ...]:
        stamps = []
        with contextlib.suppress(StateError):
            run_folder = own_folder(self.folder)
            for name in (JOURNAL, PROGRESS, VIEW):
                with contextlib.suppress(OSError):
                    stat = (run_folder / name).stat()
                    stamps.append((stat.st_mtime_ns, stat.st_size))
        return tuple(stamps)


class StoredRuns:
    """The runs of checkpoints, and of those that come to be in folders.

    Args:
        folders: checkpoints, or folders of them.

    Raises:
        StateError: a folder has none.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._watches: dict[Path, StoredWatch] = {}
        for folder in self._folders:
            self._take(find_runs(folder))
        self._looked_at = time.monotonic()

    def runs(self) -> Sequence[StoredWatch]:
        """Return the runs that have been found so far."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            for folder in self._folders:
                with contextlib.suppress(StateError):  # it went; what was read stays
                    self._take(find_runs(folder))
        return list(self._watches.values())

    def _take(self, checkpoints: Sequence[Path]) -> None:
        for checkpoint in checkpoints:
            if checkpoint not in self._watches:
                self._watches[checkpoint] = StoredWatch(checkpoint)

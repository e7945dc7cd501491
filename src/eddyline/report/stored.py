"""Journal, progress and view of a run, stored in its checkpoint.

``RunLog`` keeps the journal and the progress of a run, and replaces the file of its view from time
to time. A view is never worth a run: it takes a small share of the time of batches, and a full disk
is no fault. ``read_run`` reads all three, also of queries of other processes and of the past. It
needs no Spark and changes nothing; the run may be writing meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eddyline.data.files import encoded, replace_file
from eddyline.report.sections import RunView, Section, Text, sections_json
from eddyline.runtime.checkpoint import (
    JOURNAL,
    PROGRESS,
    VIEW,
    own_folder,
    read_format,
    read_struct,
)
from eddyline.runtime.journal import Journal, JournalEntry, read_entries
from eddyline.runtime.records import BatchRecord, History, Progress, read_progress
from eddyline.stats.costs import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


Status = Literal["running", "ended", "failed"]
"""How a run stood when its view was written; one that was killed goes on to be ``running``."""


class StoredView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Contents of the file of a view; fields of later versions are passed over."""

    query: str
    """Name of the query; that of the folder where no view was written yet."""
    text: str
    """The query as the user wrote it; of several that run together, all of them."""
    written_at: float
    """When the view was written (seconds since the epoch); 0 if never."""
    status: Status = "running"
    error: str = ""
    """Why it failed; "" if it did not."""
    steps: tuple[str, ...] = ()
    """Its steps, line by line."""
    settings: dict[str, str] = {}
    sections: tuple[dict[str, Any], ...] = ()
    """The explanation as plain values; see ``sections.sections_json``."""
    nodes: tuple[dict[str, Any], ...] = ()
    """The steps as a graph, as plain values; see ``sections.Node``."""


class StoredRun(StoredView, frozen=True):
    """A run as its checkpoint has it: the newest view, and its history."""

    batches: tuple[BatchRecord, ...] = ()
    """Its batches over all restarts, older ones merged; operators as ``StoredRecord``."""
    journal: tuple[JournalEntry, ...] = ()
    """Its decisions over all restarts, as far as the budget of the journal went."""

    @property
    def history(self) -> History:
        """Its batches and decisions."""
        return History(self.batches, self.journal)


def save_view(
    path: Path, view: RunView, *, at: float, status: Status = "running", error: str = ""
) -> None:
    """Replace the file of a view, whole or not at all.

    Args:
        path: of the file, in a folder that is there.
        view: the run; its history has files of its own.
        at: now (seconds since the epoch).
        status: how the run stands.
        error: why it failed.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    stored = StoredView(
        view.query,
        view.text,
        at,
        status,
        error,
        view.steps,
        dict(view.settings),
        tuple(sections_json(view.sections)),
        tuple(map(asdict, view.nodes)),
    )
    replace_file(path, encoded(stored))


def read_run(folder: str | Path) -> StoredRun:
    """Return the run of a checkpoint as it stands.

    Raises:
        StateError: the folder is no checkpoint, is one of a later version, or cannot be read.
    """
    run_folder = own_folder(folder)
    read_format(run_folder)
    journal, progress = run_folder / JOURNAL, run_folder / PROGRESS
    entries = tuple(read_entries(journal)) if journal.exists() else ()
    batches = tuple(read_progress(progress)) if progress.exists() else ()
    view = read_struct(
        run_folder / VIEW, StoredView, "remove it: the run writes it anew", "the view "
    )
    if view is None:
        view = StoredView(Path(folder).name, "", 0.0)
    return StoredRun(**msgspec.structs.asdict(view), batches=batches, journal=entries)


VIEW_EVERY_S = 10.0
"""Least time between two views that are written while a run goes on (s)."""

VIEW_SHARE = 0.005
"""Most of the time of batches that views take."""


class RunLog:
    """The journal, the progress and the view of a run; of a run without a checkpoint in memory.

    Args:
        folder: the folder that eddyline keeps in the checkpoint.
        is_kept: whether anybody may read the files; without it there is a journal alone.
        clock: monotonic clock (s).

    Raises:
        StateError: a file cannot be read or written.
    """

    def __init__(
        self, folder: Path, *, is_kept: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._journal = Journal(folder / JOURNAL)
        self._progress = Progress(folder / PROGRESS if is_kept else None)
        self._view = folder / VIEW if is_kept else None
        self._clock = clock
        self._budget = Budget(VIEW_SHARE, saves=False)
        self._due_s = clock() + VIEW_EVERY_S
        self._has_ended = False
        self._lock = threading.Lock()

    @property
    def records(self) -> list[BatchRecord]:
        """Records of the micro-batches of this run; older ones stand for several."""
        with self._lock:
            return list(self._progress.records)

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Every decision, as far as the budget of the journal goes."""
        with self._lock:
            return tuple(self._journal)

    def note(self, entries: Iterable[JournalEntry]) -> None:
        """Take in decisions.

        Raises:
            StateError: they cannot be written.
        """
        with self._lock:
            self._journal.extend(entries)

    def add(self, record: BatchRecord) -> None:
        """Take in a batch that ended.

        Raises:
            StateError: it cannot be written.
        """
        with self._lock:
            self._progress.add(record)
        self._budget.earn(1e9 * record.seconds)

    def show(self, make_view: Callable[[], RunView]) -> None:
        """Write how the run stands, where that is due and took little of the time so far."""
        if self._view is not None and self._clock() >= self._due_s and self._budget.may:
            with self._budget.spending():
                self.write(make_view)

    def write(
        self, make_view: Callable[[], RunView], status: Status = "running", error: str = ""
    ) -> None:
        """Write how the run stands; once it has ended, nothing more.

        A view is never worth a run, so a full disk is no fault here.

        Args:
            make_view: returns the run as values.
            status: how it stands.
            error: why it failed.
        """
        if self._view is None or self._has_ended:
            return  # another run may have gone on from the checkpoint
        self._has_ended = status != "running"
        with contextlib.suppress(OSError):
            save_view(self._view, _safe_view(make_view), at=time.time(), status=status, error=error)
        self._due_s = self._clock() + VIEW_EVERY_S


def _safe_view(make_view: Callable[[], RunView]) -> RunView:
    """Return a run as values; where its words fail, with that as its explanation."""
    try:
        return make_view()
    except Exception as error:  # noqa: BLE001 - a run does not end for want of words
        why = f"the explanation failed: {type(error).__name__}: {error}"
        return RunView("", "", sections=(Section("", (Text(why),)),))

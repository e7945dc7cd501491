"""What a run keeps for people while it goes on: its decisions, its batches, and how it stands."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from eddyline.report.sections import RunView, Section, Text
from eddyline.report.stored import save_view
from eddyline.runtime.budget import Budget
from eddyline.runtime.checkpoint import JOURNAL, PROGRESS, VIEW
from eddyline.runtime.journal import Journal
from eddyline.runtime.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from eddyline.report.stored import Status
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord

VIEW_EVERY_S = 10.0
"""Least time between two views that are written while a run goes on (s)."""

VIEW_SHARE = 0.005
"""Most of the time of batches that views take."""


class RunLog:
    """The journal, the progress and the view of a run; of a run without a checkpoint in memory.

    Args:
        own: the folder that eddyline keeps in the checkpoint.
        is_kept: whether anybody may read the files; without it there is a journal alone.
        clock: monotonic clock (s).

    Raises:
        StateError: a file cannot be read or written.
    """

    def __init__(
        self, own: Path, *, is_kept: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._journal = Journal(own / JOURNAL)
        self._progress = Progress(own / PROGRESS if is_kept else None)
        self._view = own / VIEW if is_kept else None
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

    def show(self, made: Callable[[], RunView]) -> None:
        """Write how the run stands, where that is due and took little of the time so far."""
        if self._view is not None and self._clock() >= self._due_s and self._budget.may:
            with self._budget.spending():
                self.write(made)

    def write(
        self, made: Callable[[], RunView], status: Status = "running", error: str = ""
    ) -> None:
        """Write how the run stands; once it has ended, nothing more.

        A view is never worth a run, so a full disk is no fault here.

        Args:
            made: returns the run as values.
            status: how it stands.
            error: why it failed.
        """
        if self._view is None or self._has_ended:
            return  # another run may have gone on from the checkpoint
        self._has_ended = status != "running"
        with contextlib.suppress(OSError):
            save_view(self._view, _told(made), at=time.time(), status=status, error=error)
        self._due_s = self._clock() + VIEW_EVERY_S


def _told(made: Callable[[], RunView]) -> RunView:
    """Return a run as values; where its words fail, with that as its explanation."""
    try:
        return made()
    except Exception as error:  # noqa: BLE001 - a run does not end for want of words
        why = f"the explanation failed: {type(error).__name__}: {error}"
        return RunView("", "", sections=(Section("", (Text(why),)),))

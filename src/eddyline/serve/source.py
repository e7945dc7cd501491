"""What the page is told of runs: of this process, or of what others left in files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.report.sections import RunView
    from eddyline.runtime.backlog import Backlog
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord
    from eddyline.serve.failures import Failure


class WatchedRun(Protocol):
    """A run that people look at. Methods are called from the server's thread, one at a time."""

    @property
    def name(self) -> str:
        """Name of the query."""
        ...

    @property
    def place(self) -> str:
        """What tells it from a run of the same name, such as a folder; empty if there is none."""
        ...

    def is_running(self) -> bool:
        """Tell whether it runs; asked again until it does not."""
        ...

    def error(self) -> Failure | None:
        """Return what a run failed with that has ended."""
        ...

    def records_after(self, batch_id: int) -> Sequence[BatchRecord]:
        """Return the records of the batches after one, the oldest first."""
        ...

    def decisions(self) -> Sequence[JournalEntry]:
        """Return every decision so far, as far as they are kept."""
        ...

    def phases(self) -> Mapping[int, Mapping[str, float]]:
        """Return in what time each part of the newest batches was done (s), by batch and part."""
        ...

    def backlog(self) -> Backlog:
        """Return the input that has arrived and is not processed; asked only of runs that run."""
        ...

    def run_view(self) -> RunView:
        """Return the whole run as values; a costly question, as is that for the backlog."""
        ...


class RunSource(Protocol):
    """Knows the runs that there are."""

    def runs(self) -> Sequence[WatchedRun]:
        """Return the runs, the same object for the same run; one for each name and place."""
        ...


def key_of(run: WatchedRun) -> str:
    """Return what names a run in addresses; the same after a restart of the server."""
    named = f"{run.name}\0{run.place}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(named, digest_size=6).hexdigest()

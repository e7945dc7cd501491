"""Runs as they stand in checkpoints: for whoever shows queries of other processes and of the past.

Nothing here needs Spark, and nothing is changed: a run may be writing while it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from eddyline.data.durable_files import replace_file
from eddyline.data.plain_json import encoded
from eddyline.errors import StateError
from eddyline.report.sections import sections_json
from eddyline.runtime.checkpoint import JOURNAL, PROGRESS, VIEW, own_folder, read_format
from eddyline.runtime.journal import read_entries
from eddyline.runtime.progress import read_progress
from eddyline.runtime.records import History

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.report.sections import RunView
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord

Status = Literal["running", "ended", "failed"]
"""How a run stood when its view was written; one that was killed goes on to be ``running``."""


class _Stored(msgspec.Struct, omit_defaults=True):
    """The file of a view; fields of later versions are passed over."""

    query: str
    text: str
    written_at: float
    status: Status = "running"
    error: str = ""
    steps: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    sections: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as its checkpoint has it."""

    folder: Path
    """The checkpoint."""
    query: str
    """Name of the query; that of the folder where no view was written yet."""
    text: str = ""
    """The query as the user wrote it; of several that run together, all of them."""
    steps: tuple[str, ...] = ()
    """Its steps, line by line."""
    settings: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[dict[str, Any], ...] = ()
    """The explanation as plain values; see ``sections.sections_json``."""
    status: Status = "running"
    error: str = ""
    """Why it failed; "" if it did not."""
    written_at: float = 0.0
    """When all of the above was written (seconds since the epoch); 0 if never."""
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
    stored = _Stored(
        view.query,
        view.text,
        at,
        status,
        error,
        view.steps,
        dict(view.settings),
        sections_json(view.sections),
    )
    replace_file(path, encoded(stored))


def read_run(folder: str | Path) -> StoredRun:
    """Return the run of a checkpoint as it stands.

    Raises:
        StateError: the folder is no checkpoint, is one of a later version, or cannot be read.
    """
    own = own_folder(folder)
    read_format(own)
    journal, progress = own / JOURNAL, own / PROGRESS
    entries = tuple(read_entries(journal)) if journal.exists() else ()
    batches = tuple(read_progress(progress)) if progress.exists() else ()
    stored = _read_view(own / VIEW)
    if stored is None:
        return StoredRun(Path(folder), Path(folder).name, batches=batches, journal=entries)
    return StoredRun(
        Path(folder),
        stored.query,
        stored.text,
        stored.steps,
        stored.settings,
        tuple(stored.sections),
        stored.status,
        stored.error,
        stored.written_at,
        batches,
        entries,
    )


def _read_view(path: Path) -> _Stored | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Stored)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        msg = f"cannot read the view {path}: {error}; remove it: the run writes it anew"
        raise StateError(msg, path=str(path)) from error

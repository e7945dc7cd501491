"""Folder of a checkpoint, with files of Spark and eddyline."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from eddyline.data.files import is_local
from eddyline.errors import OptionError, StateError
from eddyline.runtime.checkpoint import (
    LOCK,
    OWN,
    SPARK,
    FolderLock,
    QueryFile,
    Resumed,
    newest_batch,
    resumed,
    write_format,
)
from eddyline.spark.sinks.files import file_system
from eddyline.spark.sinks.sinks import folder_of, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.query.identity import Identity
    from eddyline.runtime.checkpoint import Changed


class CheckpointFiles:
    """The files of a checkpoint.

    The run that has them holds a lock on the folder until ``release``.

    Args:
        folder: the folder as it was given; without one, a temporary one that goes with its run.
        query: name of the query that runs.

    Raises:
        QueryError: another run of this process has the folder.
        StateError: it is a file, is of a later version of eddyline, is in use by another process,
            or cannot be written.
    """

    def __init__(self, folder: str | Path | None, query: str) -> None:
        self._query = query
        self._locks: list[FolderLock] = []
        self.is_temporary = folder is None
        path = None if folder is None else folder_of("checkpoint", folder)
        if path is not None and path.exists() and not path.is_dir():
            msg = f"the checkpoint {path} is a file; give a folder"
            raise StateError(msg, path=str(path))
        self.folder = path or Path(temporary_folder())
        self.spark = self.folder / SPARK
        """Spark's own checkpoint."""
        self.own = self.folder / OWN
        """What eddyline keeps; see ``runtime.checkpoint``."""
        try:
            if not self.is_temporary:
                self._lock(self.own, "checkpoint", str(self.folder))
            write_format(self.own)
        except BaseException:
            self.clean_up()
            raise

    def lock_state(self, state: str) -> None:
        """Lock a separate folder of durable state if it is on a local disk.

        Raises:
            QueryError: another run of this process has the folder.
            StateError: another process has it, or it cannot be written.
        """
        files, folder = file_system(state)
        if is_local(files):
            self._lock(Path(folder), "state", state)

    def _lock(self, inner: Path, what: str, folder: str) -> None:
        try:
            inner.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = (
                f"cannot write to the {what} {folder}: {error}; free space, or give write "
                f"permission"
            )
            raise StateError(msg, path=folder) from error
        self._locks.append(FolderLock(inner / LOCK, self._query, what, folder))

    def held_by(self, has_ended: Callable[[], bool]) -> None:
        """Set how a later run of this process learns that this run has ended."""
        for lock in self._locks:
            lock.has_ended = has_ended

    def release(self) -> None:
        """Release the locks."""
        for lock in self._locks:
            lock.release()

    @property
    def has_started(self) -> bool:
        """Whether a run has left offsets."""
        return has_started(self.folder)

    @property
    def last_done(self) -> int:
        """The last micro-batch that is done; -1 if none is."""
        return newest_batch(self.spark / "commits")

    def resumed(self, query: Identity, changed: Changed | None) -> Resumed:
        """Return how a query goes on from the checkpoint; see ``runtime.checkpoint.resumed``."""
        if not self.has_started:
            return Resumed(QueryFile(query), None)
        return resumed(self.own, query, changed, last_batch=self.last_done)

    def forget_unwritten(self) -> None:
        """Remove what a process left that was killed while it wrote a first batch.

        Spark starts with a batch 0 only where the folders of its log are empty.

        Raises:
            StateError: it cannot be removed.
        """
        for folder in (self.spark / "offsets", self.spark / "commits"):
            leftovers = list(folder.glob("*"))
            if all(file.name.startswith(".") and ".tmp" in file.suffixes for file in leftovers):
                for file in leftovers:
                    _remove(file)

    def check_is_reached(self, name: str, master: str, kept: str = "windows or groups") -> None:
        """Check that the workers of a cluster reach what a run keeps in the folder.

        Args:
            name: of the run.
            master: of the session, as Spark calls it.
            kept: what the run keeps there.

        Raises:
            OptionError: the folder is a temporary one of the driver's machine.
        """
        if self.is_temporary and not master.startswith("local"):
            self.clean_up()
            msg = (
                f"run {name!r} keeps {kept}, which all workers of {master} must reach, and has "
                f"only a temporary folder; give them a shared one: checkpoint=… or state=…"
            )
            raise OptionError(msg, run=name, master=master)

    def clean_up(self) -> None:
        """Release the locks; remove a temporary folder."""
        self.release()
        if self.is_temporary:
            with contextlib.suppress(OSError):
                shutil.rmtree(self.folder)


def has_started(checkpoint: Path) -> bool:
    """Return whether a run has left offsets in a checkpoint."""
    return (checkpoint / SPARK / "metadata").exists()


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        msg = f"{path} was left half written and cannot be removed: {error}; remove it"
        raise StateError(msg, path=str(path)) from error

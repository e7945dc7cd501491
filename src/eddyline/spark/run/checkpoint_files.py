"""The folder of a checkpoint: what Spark keeps there, and what eddyline keeps beside it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from eddyline.errors import OptionError, StateError
from eddyline.runtime.checkpoint import OWN, SPARK, write_format
from eddyline.spark.sinks.sinks import folder_of, temporary_folder


class CheckpointFiles:
    """The files of a checkpoint.

    Args:
        folder: the folder as it was given; without one, a temporary one that goes with its run.

    Raises:
        StateError: it is a file, is of a later version of eddyline, or cannot be written.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.is_temporary = folder is None
        given = None if folder is None else folder_of("checkpoint", folder)
        if given is not None and given.exists() and not given.is_dir():
            msg = f"the checkpoint {given} is a file; give a folder"
            raise StateError(msg, path=str(given))
        self.folder = given or Path(temporary_folder())
        self.spark = self.folder / SPARK
        """Spark's own checkpoint."""
        self.own = self.folder / OWN
        """What eddyline keeps; see ``runtime.checkpoint``."""
        write_format(self.own)

    @property
    def has_started(self) -> bool:
        """Whether a run has left offsets."""
        return has_started(self.folder)

    def forget_unwritten(self) -> None:
        """Remove what a process left that was killed while it wrote a first batch.

        Spark starts with a batch 0 only where the folders of its log are empty.

        Raises:
            StateError: it cannot be removed.
        """
        for folder in (self.spark / "offsets", self.spark / "commits"):
            left = list(folder.glob("*"))
            if all(each.name.startswith(".") and ".tmp" in each.suffixes for each in left):
                for each in left:
                    _remove(each)

    def check_is_reached(self, name: str, master: str) -> None:
        """Check that the workers of a cluster reach what operators keep in the folder.

        Args:
            name: of the run.
            master: of the session, as Spark calls it.

        Raises:
            OptionError: the folder is a temporary one of the driver's machine.
        """
        if self.is_temporary and not master.startswith("local"):
            self.clean_up()
            msg = (
                f"run {name!r} keeps windows or groups, which all workers of {master} have to "
                f"reach, and was given no folder; give checkpoint= or state= one that they share"
            )
            raise OptionError(msg, run=name, master=master)

    def clean_up(self) -> None:
        """Remove a temporary folder."""
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

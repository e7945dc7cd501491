"""Crashes of a run without a process that dies: the next life finds what a killed one leaves.

A point is a place between two steps of a micro-batch that change what is on the disk. At a crash
there the folders of the run are copied as they are, and the run ends with an error; whatever that
makes the process tidy up is thrown away, and the copy takes the place of the folders. A new run
over them knows nothing but what is there, as a new process would.

What nobody has flushed is on the disk in part: some files of it are cut off in the copy. So this is
a loss of power, but for the files of Spark's log and of the sinks, which Spark does not flush.
"""

from __future__ import annotations

import functools
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Any

from pyarrow.fs import LocalFileSystem

from eddyline.data import files
from eddyline.runtime.journal import Journal
from eddyline.runtime.snapshot import SnapshotFile
from eddyline.spark.run.chain import Chain
from eddyline.spark.run.job import SinkOutlet
from eddyline.spark.shared.router import SinkRouter
from eddyline.spark.sinks.files import FileSink
from eddyline.state.manifest import ManifestFolder

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pytest

FOLDERS = ("ckpt", "out")
"""Of the folder of a run: its checkpoint, and what its sinks write."""

AGAIN = " again"
"""End of the name of a point that a batch passes a second time."""

LEAVE_FILES = {
    "a file is there",
    "a sink has its files",
    "every sink has its rows",
    "what was learned is drafted",
    "what was learned is there",
}
"""The points behind which files of the attempt are there."""

FILE_IS_GONE = "a file of an earlier attempt is gone"
"""A point that is passed if an attempt before has left a file."""

OF_SINKS = {
    "a batch begins",
    "the sink is asked",
    "files are staged",
    FILE_IS_GONE,
    *LEAVE_FILES,
}
"""The points that every batch of a sink of files can pass."""

OF_STATE = {
    "states are told",
    "a manifest is drafted",
    "a manifest is there",
    "an old manifest is gone",
    "an old file of state is gone",
}
"""Those of a query with durable state besides."""

WAIT_S = 240.0


class Crash(Exception):
    """The end of a process."""


class Crashes:
    """Ends one life of a run after the other, each at a point at which none has ended yet.

    Args:
        patch: puts the points into the code.
        folder: of the run; see ``FOLDERS``.
        rng: draws what is cut off.
        part: ends lives at every so many-th point alone, counted from which: ``(n, first)``.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        folder: Path,
        rng: random.Random,
        part: tuple[int, int] = (1, 0),
    ) -> None:
        self.folder = folder
        self._part = part
        self.points: list[str] = []
        """Those at which a life has ended."""
        self._frozen = folder / "frozen"
        self._rng = rng
        self._n_spared = 0
        self._passed: set[str] = set()
        """The points of the batch that runs."""
        self._has_crashed = False
        self._flushed: set[tuple[int, int]] = set()
        """Files that a loss of power leaves as they are."""
        _Marks(patch, self)

    # -- lives ------------------------------------------------------------------------------------

    def live(self, start: Callable[[], Iterable[Any]]) -> bool:
        """Lead a life up to a crash, or up to the end if no new point is passed.

        Every second life ends in its first batch, which in general is one that runs again; the
        others finish it before.

        Args:
            start: starts the runs, which are of one streaming query.

        Returns:
            Whether it ended with a crash.
        """
        self._n_spared = len(self.points) % 2
        self._has_crashed = False
        self._flushed = {_version(each.stat()) for each in self._files(self.folder)}
        try:
            for run in start():
                assert run.await_termination(WAIT_S)
        except Exception:
            if not self._has_crashed:
                raise
        assert self._has_crashed == self._frozen.exists(), "the run went on after its crash"
        if self._has_crashed:
            for name in FOLDERS:
                shutil.rmtree(self.folder / name)
                (self._frozen / name).rename(self.folder / name)
            self._frozen.rmdir()
        return self._has_crashed

    def check_nothing_is_left(self) -> None:
        """Check that what crashes left has gone, once a life has come to its end."""
        state = [*self.folder.glob("ckpt/**/eddyline/state/manifest-*.json")]
        for folder in {each.parent for each in state}:
            manifests = ManifestFolder(LocalFileSystem(), str(folder))
            last = max(int(each.stem.partition("-")[2]) for each in folder.glob("manifest-*"))
            kept = [manifests.read(batch_id) for batch_id in (last - 1, last)]
            assert len(list(folder.glob("manifest-*"))) == len(kept)
            names = {name for each in kept for name in each.names}
            assert {each.name.split(".")[0] for each in (folder / "runs").iterdir()} == names
        assert not [*self.folder.glob("out/**/_eddyline/*")], "a staging folder"

    # -- points -----------------------------------------------------------------------------------

    def begin(self, *_: Any) -> None:
        """Begin a batch."""
        self._n_spared -= 1
        self._passed = set()
        self.reach("a batch begins")

    def reach(self, point: str) -> None:
        """Pass a point, or crash at it."""
        if self._has_crashed:
            raise Crash  # a dead process does nothing more
        if point in self._passed:
            point += AGAIN
        self._passed.add(point)
        if self._n_spared < 0 and point not in self.points and self.ends_at(point):
            self.points.append(point)
            self._has_crashed = True
            self._freeze()
            raise Crash(point)

    def ends_at(self, point: str) -> bool:
        """Return whether a life may end at a point."""
        every, first = self._part
        return zlib.crc32(point.encode()) % every == first % every

    def flush(self, handle: int) -> None:
        """Take note that a file is flushed, in place of the system."""
        self._flushed.add(_version(os.fstat(handle)))

    def _freeze(self) -> None:
        for name in FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)
            shutil.copytree(self.folder / name, self._frozen / name)
        for copy in self._files(self._frozen):
            original = self.folder / copy.relative_to(self._frozen)
            if _version(original.stat()) not in self._flushed and self._rng.random() < 0.5:
                os.truncate(copy, self._rng.randrange(copy.stat().st_size + 1))

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        """Return the files of eddyline's own: state, what was learned, and what is staged.

        The journal is appended to without a flush, and half a last line is expected of it.
        """
        found = (*folder.glob("ckpt/**/eddyline/**/*"), *folder.glob("out/**/_eddyline/**/*"))
        return sorted(each for each in found if each.is_file() and each.suffix != ".jsonl")


def _version(found: os.stat_result) -> tuple[int, int]:
    """Return what tells a file and its content from others, whatever it is renamed to."""
    return found.st_ino, found.st_mtime_ns


class _Told:
    """A file system that tells when it has moved or removed a file."""

    def __init__(self, files: Any, told: Callable[[str, str], None]) -> None:
        self._files, self._told = files, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def move(self, path: str, to: str) -> None:
        self._files.move(path, to)
        self._told("move", path)

    def delete_file(self, path: str) -> None:
        self._files.delete_file(path)
        self._told("delete", path)


class _Marks:
    """Lets the code of a batch tell when it passes a point."""

    def __init__(self, patch: pytest.MonkeyPatch, crashes: Crashes) -> None:
        self._patch, self._crashes = patch, crashes
        self._around(Chain, "open", crashes.begin)
        for outlet in (SinkOutlet, SinkRouter):
            self._around(outlet, "write", "the sink is asked")
        self._within(FileSink, "take", self._of_sink)
        self._around(FileSink, "take", "files are staged", "a sink has its files")
        self._around(Chain, "commit", "every sink has its rows")
        self._around(ManifestFolder, "commit", "states are told")
        self._within(ManifestFolder, "_clean", self._of_state)
        self._around(ManifestFolder, "_clean", "a manifest is there")
        self._around(Journal, "extend", None, "decisions are noted")
        self._around(SnapshotFile, "save", None, "what was learned is there")
        self._around(files, "_sync_all", self._drafted)
        patch.setattr(os, "fsync", crashes.flush)

    def _around(
        self,
        owner: Any,
        name: str,
        before: str | Callable[..., None] | None,
        after: str | None = None,
    ) -> None:
        """Mark a point before and after a function."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def marked(*args: Any, **options: Any) -> Any:
            if callable(before):
                before(*args)
            elif before is not None:
                self._crashes.reach(before)
            found = function(*args, **options)
            if after is not None:
                self._crashes.reach(after)
            return found

        self._patch.setattr(owner, name, marked)

    def _within(self, owner: Any, name: str, told: Callable[[str, str], None]) -> None:
        """Mark a point after each file that a method moves or removes."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def marked(its: Any, *args: Any) -> Any:
            files, its.files = its.files, _Told(its.files, told)
            try:
                return method(its, *args)
            finally:
                its.files = files

        self._patch.setattr(owner, name, marked)

    def _of_sink(self, what: str, _: str) -> None:
        was_moved = what == "move"
        point = "a file is there" if was_moved else FILE_IS_GONE
        self._crashes.reach(point)

    def _of_state(self, _: str, path: str) -> None:
        of_state = path.rpartition("/")[0].endswith("/runs")
        self._crashes.reach(f"an old {'file of state' if of_state else 'manifest'} is gone")

    def _drafted(self, paths: Sequence[str]) -> None:
        for path in paths:
            name = path.rpartition("/")[2]
            if name.endswith(files.DRAFT) and name.startswith("manifest-"):
                self._crashes.reach("a manifest is drafted")
            elif name.endswith(files.DRAFT) and name.startswith("state.json"):
                self._crashes.reach("what was learned is drafted")

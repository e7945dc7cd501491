"""Runs that a process keeps mapped from one batch to the next.

Mapping a file costs a system call for each, and the first look at each of its pages a page fault:
with large windows more than all look-ups. A run never changes, so what was mapped once can be used
as long as its files are the same. This is only a cache: without it runs are opened each time.

A process compares the checksum of a run when it maps it first, unless it wrote the run itself.
"""

from __future__ import annotations

import os
import threading
import uuid
from typing import TYPE_CHECKING

from eddyline.data.files import is_local
from eddyline.state.run_files import open_run, paths_of, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyarrow import fs

    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile

MOST_RUNS = 4_096
"""Runs that a process keeps mapped, two files each: far below the 65,530 mappings that Linux allows
a process."""

NEW_SHARE = 1 / 8
"""New runs, as a share of those that are mapped, after which those that are gone are looked for."""

Stamp = tuple[tuple[int, int, int, int], ...]
"""Device, inode, size and time of the last change (ns) of each file of a run."""


class MappedRuns:
    """Runs by folder, name and key classes, the one that was used last at the end."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str, tuple[int, ...]], tuple[Stamp, SortedRun]] = {}
        self._own: dict[str, Stamp] = {}
        """Runs that this process wrote and has not mapped yet."""
        self._n_new = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def write(self, files: fs.FileSystem, folder: str, run: SortedRun) -> RunFile:
        """Write a run under a new name; see ``run_files.write_run``."""
        written = write_run(files, folder, uuid.uuid4().hex, run)
        with self._lock:
            if len(self._own) >= MOST_RUNS:
                self._own.clear()
            self._own[written.name] = _stamp(folder, written.name) if is_local(files) else ()
        return written

    def run(
        self, files: fs.FileSystem, folder: str, file: RunFile, keys: Sequence[int]
    ) -> SortedRun:
        """Return a run, mapped before or now; see ``run_files.open_run``.

        Raises:
            OSError: it is not there, or is damaged.
        """
        # Elsewhere a file that is mapped cannot be removed; and what is not mapped takes memory.
        if os.name != "posix" or not is_local(files):
            return open_run(files, folder, file, keys)
        which, stamp = (folder, file.name, tuple(keys)), _stamp(folder, file.name)
        with self._lock:
            kept = self._runs.pop(which, None)
            if kept is not None and kept[0] == stamp:
                self._runs[which] = kept
                return kept[1]
            verify = self._own.pop(file.name, None) != stamp
        run = open_run(files, folder, file, keys, verify=verify)
        with self._lock:
            self._n_new += 1
            if self._n_new > len(self._runs) * NEW_SHARE or len(self._runs) >= MOST_RUNS:
                self._drop(folder)
                self._n_new = 0
            self._runs[which] = stamp, run
        return run

    def _drop(self, folder: str) -> None:
        """Let go of runs that are not there any more, whose room on disk is free only then."""
        gone = [
            which
            for which in self._runs
            if which[0] == folder and not os.path.exists(paths_of(folder, which[1])[0])
        ]
        oldest = list(self._runs)[: max(0, len(self._runs) - MOST_RUNS + 1)]
        for which in {*gone, *oldest}:
            del self._runs[which]


MAPPED = MappedRuns()
"""Those of this process."""


def _stamp(folder: str, name: str) -> Stamp:
    stats = [os.stat(path) for path in paths_of(folder, name)]
    return tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in stats)

"""A clock that stands still while a thread could run and has no core."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import FileIO

_COUNTS = Path("/proc/thread-self/schedstat")
"""Linux's counts of a thread: time on a core, time in the queue for one (ns), turns."""

_N_BYTES = 80
"""More than they take."""


def work_ns() -> int:
    """Return the time in which the calling thread has computed or waited for something (ns).

    Monotonic; only differences between readings of one thread mean something. A call that computes
    costs its processor time, and one that waits, for a service or a lock, the time that passes.
    Time in the queue for a core counts as neither: it tells of other work on the machine. Where the
    system does not count it (only Linux does), all time that passes counts.
    """
    try:
        counts: FileIO | None = _of_thread.counts
    except AttributeError:
        counts = _of_thread.counts = _opened()
        _of_thread.newest = 0
    delayed = 0
    if counts is not None:
        delayed = int(os.pread(counts.fileno(), _N_BYTES, 0).split()[1])
    # Where the thread lost its core between the two readings, the next reading makes up for it.
    newest: int = max(_of_thread.newest, time.perf_counter_ns() - delayed)
    _of_thread.newest = newest
    return newest


def _opened() -> FileIO | None:
    """Return the counts of the calling thread, if the system has them."""
    try:
        file = _COUNTS.open("rb", buffering=0)
    except OSError:
        return None
    has_them = len(os.pread(file.fileno(), _N_BYTES, 0).split()) == 3
    return file if has_them else None


_of_thread = threading.local()


def _forget() -> None:
    """Open the counts anew: a forked process has those of the thread that it was forked from."""
    global _of_thread  # noqa: PLW0603 - there is no way to clear a thread's own values
    _of_thread = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

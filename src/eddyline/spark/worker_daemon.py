"""Spark's daemon of Python workers, with imports done before it forks.

A worker that is forked by ``pyspark.daemon`` imports for itself: about a second of CPU for each,
and Spark ends workers that were idle for a minute. Here the daemon imports too, once, when no
worker was asked for in a while; so no job waits for it, and each worker forked later has all of it
and shares the memory. What the tasks of a query need that is about to run is imported at once.
All else is ``pyspark.daemon``, which this process becomes where it has a thread: a fork takes over
none, and perhaps a lock that one holds.

``eddyline.session`` sets it up; in other sessions ``spark.python.daemon.module`` names it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddyline.data import jit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDLE_S = 20.0
"""Time without a worker that was asked for, before the daemon imports (s): the first jobs have no
use for it, and Spark ends no worker before a minute."""

LOADS = "EDDYLINE_LOADS"
"""Environment variable with the modules that a daemon imports before it forks, with commas."""

FIRST = ("pyspark.worker", "pyarrow.compute")
"""What every task over Arrow arrays imports: 0.1 s, so it is there from the start."""

LATER = (
    "pandas",  # pyarrow imports it to make an array of a list
    "eddyline.lane.results",
    "eddyline.spark.filters.udf",
    "eddyline.spark.rules.udf",
    "eddyline.spark.joins.task",
    "eddyline.spark.aggregates.task",
    "eddyline.spark.models.task",
)
"""What tasks of ours import: their modules, which import others."""

SAFE_THREADS = {"jemalloc_bg_thd"}
"""Threads whose owner prepares for forks: jemalloc, which pyarrow brings along, takes its locks
before and makes its state anew after them. numba starts threads with the first parallel kernel, so
no kernel may be parallel."""


def run() -> None:
    """Be Spark's daemon until Spark ends it."""
    with _printed_as_errors():
        is_safe = _is_safe()
    if not is_safe:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark import daemon as spark_daemon  # noqa: PLC0415 - pyspark's own is there without ours

    spark_daemon.worker = _ending_quietly(spark_daemon.worker)

    daemon = os.getpid()

    def in_parent() -> None:
        if os.getpid() == daemon:
            _wait()

    def in_child() -> None:
        if os.getppid() == daemon:  # workers may fork, too
            _begin_worker()

    if first := os.environ.get(LOADS):
        with _printed_as_errors():
            _import(*first.split(","))
    signal.signal(signal.SIGALRM, lambda *_: _load())
    os.register_at_fork(after_in_parent=in_parent, after_in_child=in_child)
    _wait()
    try:
        spark_daemon.manager()
    finally:  # Python forgets handlers as it ends, and the timer's signal would end it then
        signal.setitimer(signal.ITIMER_REAL, 0)


def _ending_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """Return Spark's worker, which prints no traceback where Spark has hung up.

    A query that ends hangs up on the worker that plans its data source in Python.
    """

    def run_worker(*args: Any) -> int:
        try:
            return worker(*args)
        except BrokenPipeError:
            return 1

    return run_worker


def _is_safe() -> bool:
    """Import what every worker needs; return whether that works and this process may fork then."""
    try:
        for name in FIRST:
            import_module(name)
        return not other_threads()
    except Exception:  # noqa: BLE001 - pyspark's own daemon needs none of it
        return False


def other_threads() -> list[str]:
    """Return the names of threads of this process that a fork would leave in an unknown state."""
    names = []
    for thread in Path("/proc/self/task").iterdir():
        if int(thread.name) != os.getpid():
            with suppress(FileNotFoundError):  # it has just ended
                names.append((thread / "comm").read_text().strip())
    return [name for name in names if name not in SAFE_THREADS]


@contextmanager
def _printed_as_errors() -> Iterator[None]:
    """Print to where errors go meanwhile, from whatever language: Spark reads the port here."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _wait() -> None:
    """Wait anew for the time to load, which is when no worker was asked for in a while."""
    signal.setitimer(signal.ITIMER_REAL, IDLE_S)


def _load() -> None:
    """Import what tasks need, once."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    _import(*LATER)


def _import(*names: str) -> None:
    """Import modules of tasks; what cannot be imported, the worker that needs it will tell."""
    with suppress(Exception):
        for name in names:
            import_module(name)
        jit.load()
    gc.collect()
    gc.freeze()  # collections in workers would copy the pages of all that they look at


def _begin_worker() -> None:
    """Let a worker be as if it had not been forked by a process that has imported anything."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # or all of them would draw the same numbers


if __name__ == "__main__":
    run()

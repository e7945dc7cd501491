"""Ctrl-C where nothing may be left half done, and batches that are interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 0.02
"""Time between two looks at whether a query counts as stopped (s)."""


@contextlib.contextmanager
def noted() -> Iterator[Callable[[], bool]]:
    """Take note of Ctrl-C instead of raising in the middle of a call to Spark; the second raises.

    Yields:
        A function that says whether Ctrl-C was pressed; also true afterwards. On another thread
        than the main one, which alone is interrupted, never.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    event = threading.Event()

    def note(_signal: int, _frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield event.is_set
    finally:
        # Spark sets a handler of its own when it starts, which stays.
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def put_off() -> Iterator[Callable[[], None]]:
    """Put Ctrl-C off to where no call to Spark is under way, or to the end of the block.

    Yields:
        A function that raises KeyboardInterrupt if Ctrl-C was pressed.
    """
    with noted() as is_interrupted:

        def check() -> None:
            if is_interrupted():
                raise KeyboardInterrupt

        yield check
        check()


def cancel_jobs_once_stopped(query: StreamingQuery, spark: SparkSession) -> None:
    """Have the jobs of a query cancelled when it counts as stopped, also those still to begin.

    Spark cancels those that have begun, and waits for a job that a batch was about to begin.
    """

    def cancel() -> None:
        with contextlib.suppress(Exception):  # the session may have been stopped
            while query.isActive:
                time.sleep(LOOK_EVERY_S)
            context: Any = spark.sparkContext
            context._jsc.sc().cancelJobGroupAndFutureJobs(str(query.runId))

    threading.Thread(target=cancel, daemon=True).start()


class BatchInterrupted(Exception):
    """A batch was under way when its query was stopped; it runs again from the checkpoint.

    Spark knows a stopped query by a regular expression over the whole text of what a batch raises,
    which takes some frames of the JVM's stack per character: the trace of a job overflows it.
    """

    def __str__(self) -> str:
        called = "py4j.protocol.Py4JJavaError: An error occurred while calling a job of the batch"
        return f"{called}: java.lang.InterruptedException"

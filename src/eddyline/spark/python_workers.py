"""Spark's Python workers, started and loaded before the first rows come.

Beside what rules need they load nothing. A job of its own does it, a task per core, so that it can
run while the driver reads and compiles rules; the workers that it leaves behind wait for the next
job for a minute.
"""

from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined] # not in the stubs

from eddyline.rules.warm_up import load_kernels
from eddyline.spark.session import session

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``loading``.

DESCRIPTION = "eddyline: starting Python workers"
"""Name of the job in Spark's own pages."""

_DESCRIPTION = "spark.job.description"

_started: set[str] = set()
"""Applications whose workers were started ahead."""


def start_workers(spark: SparkSession) -> None:
    """Have Spark start its Python workers, and kernels loaded there: the next job finds them so."""

    def loading(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        task = TaskContext.get()
        load_kernels(0 if task is None else task.partitionId())
        yield from batches

    context = spark.sparkContext
    n_workers = context.defaultParallelism
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, DESCRIPTION)
    try:
        rows = spark.range(0, n_workers, 1, n_workers).select(arrow_udf(loading, "bigint")("id"))
        rows.write.format("noop").mode("overwrite").save()
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type] # None resets it


def start_workers_ahead() -> Thread | None:
    """Have workers started on another thread, where Spark runs on this machine; once per session.

    Only a head start: without an active session, on a cluster, or if it fails, nothing is done, and
    the first job starts what it needs.

    Returns:
        The thread, if one was started.
    """
    with suppress(Exception):  # Spark Connect has no context, and says so in its own ways
        spark = SparkSession.getActiveSession()
        if spark is None or not str(spark.sparkContext.master).startswith("local"):
            return None
        application = str(spark.sparkContext.applicationId)
        if application in _started:
            return None
        _started.add(application)
        thread = Thread(target=_quietly_started, args=(spark,), daemon=True)
        thread.start()
        return thread
    return None


def _quietly_started(spark: SparkSession) -> None:
    with suppress(Exception):  # a session that is stopped meanwhile, say
        start_workers(spark)
        load_kernels()  # plans are made here, with some of them


class SessionStart:
    """A local session that is started, with its workers, on another thread."""

    def __init__(self) -> None:
        self._made: list[SparkSession] = []
        self._failed: list[BaseException] = []
        # A daemon: where rules cannot be read, nobody waits for Spark.
        self._thread = Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self._made.append(session())
            start_workers(self._made[0])
        except BaseException as error:  # noqa: BLE001 - raised again below
            self._failed.append(error)

    def result(self) -> SparkSession:
        """Return the session once it and its workers have started.

        Raises:
            SourceError: there is no Java that Spark can run on.
        """
        self._thread.join()
        if self._failed:
            raise self._failed[0]
        return self._made[0]

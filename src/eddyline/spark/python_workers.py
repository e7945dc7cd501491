"""Spark's Python workers, started and loaded before the first rows come.

A job of its own does it while the driver reads and compiles rules, or plans the first batch of a
query. For rules it has a task per core, and the workers that it leaves behind wait for the next job
for a minute. For tasks of buckets it has one, as the daemon that forks workers imports for all.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from threading import Thread

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined] # not in the stubs

from eddyline.rules.warm_up import load_kernels
from eddyline.spark import worker_daemon
from eddyline.spark.session import DAEMON, in_background, session

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``loading``.

DESCRIPTION = "eddyline: starting Python workers"
"""Name of the job in Spark's own pages."""

_DESCRIPTION = "spark.job.description"

_started: set[tuple[str, str]] = set()
"""Applications whose workers were started ahead, and for what."""


def start_workers(spark: SparkSession) -> None:
    """Have Spark start its Python workers, and kernels loaded there: the next job finds them so."""

    def loading(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        task = TaskContext.get()
        load_kernels(0 if task is None else task.partitionId())
        yield from batches

    _run(spark, loading, spark.sparkContext.defaultParallelism)


def _run(spark: SparkSession, loading: Callable[..., Iterator[pa.Array]], n_workers: int) -> None:
    """Have a task in each of so many workers."""
    context = spark.sparkContext
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
        return _ahead(spark, "rules", _quietly_started)
    return None


def load_ahead(spark: SparkSession, modules: Collection[str]) -> Thread | None:
    """Have the daemon of workers import what tasks of buckets need, on another thread.

    Once per session, where Spark runs on this machine and its daemon is ours. Workers that are
    asked for meanwhile wait for it, and would have to import otherwise, each for itself.

    Args:
        spark: the session.
        modules: those of the tasks; nothing is done if there are none.

    Returns:
        The thread, if one was started.
    """
    with suppress(Exception):  # see above
        context = spark.sparkContext
        is_ours = context.getConf().get(DAEMON) == worker_daemon.__name__
        if modules and is_ours and str(context.master).startswith("local"):
            # Of all workers from now on: Spark has a daemon for each environment.
            context.environment.setdefault(worker_daemon.LOADS, ",".join(modules))
            return _ahead(spark, "buckets", _quietly_loaded)
    return None


def _ahead(spark: SparkSession, what: str, work: Callable[[SparkSession], None]) -> Thread | None:
    """Do something on another thread, once per session."""
    key = (str(spark.sparkContext.applicationId), what)
    if key in _started:
        return None
    _started.add(key)
    thread = Thread(target=work, args=(spark,), daemon=True)
    thread.start()
    return thread


def _quietly_loaded(spark: SparkSession) -> None:
    def nothing(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from batches

    with suppress(Exception):  # a session that is stopped meanwhile, say
        _run(spark, nothing, 1)


def _quietly_started(spark: SparkSession) -> None:
    with suppress(Exception):  # a session that is stopped meanwhile, say
        start_workers(spark)
        load_kernels()  # plans are made here, with some of them


def _started_session() -> SparkSession:
    spark = session()
    start_workers(spark)
    return spark


class SessionStart:
    """A local session that is started, with its workers, on another thread."""

    def __init__(self) -> None:
        # Where rules cannot be read, nobody waits for Spark.
        self._made = in_background(_started_session)

    def result(self) -> SparkSession:
        """Return the session once it and its workers have started.

        Raises:
            SourceError: there is no Java that Spark can run on.
        """
        return self._made.result()

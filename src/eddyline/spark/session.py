"""Local SparkSession for eddyline, session checks, and Ctrl-C.

``session`` starts Spark, or takes the active session. ``check_is_classic`` and ``is_on`` ask any
session. Ctrl-C in the middle of a call to Spark would leave the JVM half done, so code that starts
or stops something puts it off (``noting_interrupts``, ``deferring_interrupts``). A batch that is
interrupted raises ``BatchInterrupted`` and runs again from the checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from eddyline.errors import OptionError, SourceError
from eddyline.spark import java, local_files
from eddyline.spark.home import unpacked_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

_LOGGING = Path(__file__).with_name("log4j2.properties")
"""Spark's own start-up messages would stand between a person and what was asked for."""

DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOGGING}",
    # Spark's own choice starts a process (readlink) some 50 times in each batch of a stream whose
    # checkpoint is in a local folder.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of the embedded session; ``session(**conf)`` overrides each."""

DAEMON = "spark.python.daemon.module"
"""Spark's setting for the process that forks its Python workers."""


def session(
    conf: Mapping[str, str] | None = None,
    *,
    master: str = "local[*]",
    app: str = "eddyline",
    **more: str,
) -> SparkSession:
    """Return a local SparkSession with workers, Arrow and shuffle partitions set for eddyline.

    The workers run the interpreter that this process runs (Spark would take ``python3`` from the
    PATH, which inside a virtual environment is another one). An active session is returned as it
    is, with the settings of ``conf`` applied where Spark allows that.

    Args:
        conf: Spark settings, which take precedence over eddyline's.
        master: where to run.
        app: the application's name.
        **more: more Spark settings: ``session(**{"spark.sql.shuffle.partitions": "8"})``.

    Raises:
        SourceError: there is no Java that Spark can run on; the message says what to install.

    Example:
        >>> spark = el.session({"spark.sql.shuffle.partitions": "8"})  # doctest: +SKIP
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - Spark loads slowly
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", DEFAULTS["spark.driver.host"])
    is_new = SparkSession.getActiveSession() is None
    is_first = SparkContext._gateway is None  # no JVM runs yet
    if is_new and (wrong := java.problem()) is not None:
        raise SourceError(wrong)
    settings = {**DEFAULTS, **(conf or {}), **more}
    # Executors of a local cluster start in folders of their own.
    is_local = re.fullmatch(r"local(\[.*\])?", settings.get("spark.master", master)) is not None
    if is_new and is_local and _is_found_by(os.environ["PYSPARK_PYTHON"]):
        settings.setdefault(DAEMON, "eddyline.spark.worker_daemon")
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # Interrupted half way, Spark would leave a JVM that nobody can stop.
    with noting_interrupts() as is_interrupted:
        if is_new and not _is_remote(settings):
            all_settings = {"spark.master": master, "spark.app.name": app, **settings}
            with unpacked_home() if is_first and is_local else contextlib.nullcontext():
                SparkContext.getOrCreate(SparkConf().setAll([*all_settings.items()]))
        # The context sets a handler of its own, which calls Spark in the middle of another call.
        with noting_interrupts() as is_interrupted_later:
            spark = builder.getOrCreate()
            if is_first and is_local and not _is_remote(settings):
                local_files.install(spark)
    if is_interrupted() or is_interrupted_later():
        if is_new:
            spark.stop()
        raise KeyboardInterrupt
    return spark


def _is_found_by(workers: str) -> bool:
    """Return whether Python workers can import this eddyline, and may be forked when they have.

    Here it may stand on a path that was put into ``sys.path`` by hand; a daemon that cannot be
    imported would be an error of the first task. Of the systems only Linux says which threads run.

    Args:
        workers: their interpreter.
    """
    if not sys.platform.startswith("linux"):
        return False
    asked = "import importlib.util as u; print(u.find_spec('eddyline').origin)"
    try:
        run = subprocess.run([workers, "-c", asked], capture_output=True, text=True, check=False)
    except OSError:  # no such interpreter, which Spark will say
        return False
    return Path(run.stdout.strip()) == Path(__file__).parents[1] / "__init__.py"


def _is_remote(settings: Mapping[str, str]) -> bool:
    """Return whether Spark may be asked for a session of Spark Connect, which has no context."""
    asked = {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"}
    return not asked.isdisjoint(os.environ) or not settings.keys().isdisjoint(
        {"spark.remote", "spark.api.mode"}
    )


def stop_active() -> None:
    """Stop Spark, if it runs, before its JVM notices by itself that its process has ended."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()


def check_is_classic(spark: SparkSession, what: str) -> None:
    """Check that a session is none of Spark Connect.

    Raises:
        OptionError: it is; the message says what runs there.
    """
    if "connect" in type(spark).__module__.split("."):
        msg = (
            f"{what} needs a classic SparkSession, got one of Spark Connect, which does not reach "
            f"the driver; there, el.all_of(…) and RuleSets run as df.transform(…)"
        )
        raise OptionError(msg, got="Spark Connect")


def is_ansi(spark: SparkSession) -> bool:
    """Return whether Spark raises where ANSI SQL does."""
    return is_on(spark, "spark.sql.ansi.enabled", "true")


def is_on(spark: SparkSession, setting: str, default: str = "false") -> bool:
    """Return whether a setting is true; Spark takes it in any case."""
    return str(spark.conf.get(setting, default)).lower() == "true"


LOOK_EVERY_S = 0.02
"""Time between two looks at whether a query counts as stopped (s)."""


@contextlib.contextmanager
def noting_interrupts() -> Iterator[Callable[[], bool]]:
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
def deferring_interrupts() -> Iterator[Callable[[], None]]:
    """Put Ctrl-C off to where no call to Spark is under way, or to the end of the block.

    Yields:
        A function that raises KeyboardInterrupt if Ctrl-C was pressed.
    """
    with noting_interrupts() as is_interrupted:

        def check() -> None:
            if is_interrupted():
                raise KeyboardInterrupt

        yield check
        check()


@contextlib.contextmanager
def local_property(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Let queries and jobs that start in the block carry a local property, which tasks can read."""
    context = spark.sparkContext
    context.setLocalProperty(name, value)
    try:
        yield
    finally:
        context.setLocalProperty(name, None)  # type: ignore[arg-type]


def in_background(work: Callable[[], T]) -> Future[T]:
    """Do work on a thread for which no process waits at its end, and return what it will be."""
    done: Future[T] = Future()

    def working() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by who asks for the result
            done.set_exception(error)

    threading.Thread(target=working, daemon=True).start()
    return done


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

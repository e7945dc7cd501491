"""Fixtures for all tests: one Spark session per run, stopped at the end."""

from __future__ import annotations

import os
import sys
from collections import Counter
from zlib import crc32

import pytest
from py4j import java_gateway

from eddyline.errors import SourceError
from eddyline.spark.session import DEFAULTS, session
from tests import examples
from tests.cases import drawn, newest_commit
from tests.spark.parquet_files import ask_rows
from tests.spark.processes import JAVA, QUICK

examples.register()


LONGEST = (
    "test_kill_and_restart",
    "test_clusters",
    "test_pages.py::test_snippets_run_one_after_the_other[docs/sigma.md]",
    "test_flat_resources",
    "test_pages",
    "test_crashes",
)
"""The tests that take longest, by parts of their names."""


def pytest_addoption(parser):
    """Take how many cases of large tests are left out."""
    parser.addoption("--one-in", type=int, default=1, help="run one in so many large cases")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out the cases of large tests that this commit does not draw, see ``cases.drawn``."""
    one_in = config.getoption("--one-in")
    kept = drawn(items, one_in, newest_commit() if one_in > 1 else "")
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    _in_order(items)


def _in_order(items):
    """Begin with the longest, which alone would keep a worker busy at the end; skip what soaks."""

    def place(item):
        at = (number for number, name in enumerate(LONGEST) if name in item.nodeid)
        return next(at, len(LONGEST))

    items.sort(key=place)
    if examples.are_few():
        left_out = pytest.mark.skip(reason="takes minutes: make test-all EXAMPLES=all runs it")
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(left_out)


LIMIT_S = 5.0
"""How long a test may take without a reason in its marker: ``large("starts three JVMs")``."""

_durations: dict[str, float] = {}
"""Time of each test that gives no such reason (s), fixtures left out."""

LONG_S = 600.0
"""A run of more seconds than these prints which files they went into."""

_seconds: Counter[str] = Counter()
"""Time by file, fixtures included (s)."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Hand the reason of a large test to the process that prints durations."""
    outcome = yield
    marker = item.get_closest_marker("large")
    if marker and marker.args:
        outcome.get_result().large_reason = marker.args[0]


def pytest_runtest_logreport(report):
    """Note the time of a file, and of a test that has not said why it is slow."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration
    if report.when == "call" and not hasattr(report, "large_reason"):
        _durations[report.nodeid] = report.duration


def pytest_terminal_summary(terminalreporter):
    """Print the tests that took long and do not say why, and where the time of a long run went."""
    if sum(_seconds.values()) > LONG_S and "PYTEST_XDIST_WORKER" not in os.environ:
        terminalreporter.section(f"of {sum(_seconds.values()):,.0f} s")
        for name, time in _seconds.most_common(40):
            terminalreporter.write_line(f"{time:6.0f} s  {name}")
    slow = {name: time for name, time in _durations.items() if time > LIMIT_S}
    if slow and "PYTEST_XDIST_WORKER" not in os.environ:
        terminalreporter.section(f"longer than {LIMIT_S:g} s, and the marker does not say why")
        for name, time in sorted(slow.items(), key=lambda test: -test[1]):
            terminalreporter.write_line(f"{time:6.1f} s  {name}")


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_flushed():
    """A disk takes milliseconds to flush a file, and no test turns the power off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _java_is_quick():
    """Processes that tests start live for seconds, and so do their JVMs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(JAVA, QUICK)
        yield


@pytest.fixture(scope="session", autouse=True)
def _java_names_are_kept():
    """PySpark asks for the same classes of Java again and again: each time, Java searches its jars.

    Measured on 44 tests of streams: a thirtieth of their time.
    """
    with pytest.MonkeyPatch.context() as patch:
        for kind in (java_gateway.JVMView, java_gateway.JavaPackage):
            patch.setattr(kind, "__getattr__", _keeping(kind.__getattr__))
        yield


def _keeping(found):
    """Return a lookup that keeps the classes and packages that another one finds."""

    def kept(self, name):
        value = found(self, name)
        if isinstance(value, java_gateway.JavaClass | java_gateway.JavaPackage):
            vars(self)[name] = value
        return value

    return kept


@pytest.fixture(autouse=True)
def asked(request, monkeypatch):
    """Who is asked what a micro-batch of Parquet files has: ``"files"``, or ``"rows"``.

    Rows are asked where they are of other sources, and so in half of the tests: which half is known
    by their names. A test may say it: ``parametrize("asked", ["files"], indirect=True)``.
    """
    by_name = "files" if crc32(request.node.nodeid.encode()) % 2 else "rows"
    if (who := getattr(request, "param", by_name)) == "rows":
        ask_rows(monkeypatch)
    return who


@pytest.fixture(autouse=True)
def reads_here(request, monkeypatch):
    """Whether the driver itself reads and answers files that have few rows.

    Tasks do so in half of the tests: which half is known by their names. A test may say it:
    ``parametrize("reads_here", [False], indirect=True)``.
    """
    by_name = crc32(request.node.nodeid.encode()) % 4 < 2
    reads = getattr(request, "param", by_name)
    if not reads and "eddyline.spark" in sys.modules:
        monkeypatch.setattr("eddyline.spark.bucketed.MOST_READ", 0)
    return reads


@pytest.fixture
def rows_are_asked(monkeypatch):
    """That files of streams say nothing."""
    ask_rows(monkeypatch)


@pytest.fixture(scope="session")
def soon_started(tmp_path_factory, _java_is_quick):
    """From now on, JVMs start in less than half the time; for tests that start several."""
    from tests.spark.java_archive import archived  # noqa: PLC0415 - and all that it needs

    own = tmp_path_factory.getbasetemp()
    # With xdist, all its workers use one archive.
    with (
        archived(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as options,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(JAVA, options)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One local session for the whole run; skipped, saying so, without a suitable Java."""
    folder = tmp_path_factory.mktemp("spark")
    try:
        made = session(
            {
                # One plan of 1,600 conditions needs 900 MB, and Spark keeps what it knows of the
                # last thousand plans unless it is told not to.
                "spark.driver.memory": "3g",
                "spark.sql.ui.retainedExecutions": "50",
                "spark.driver.extraJavaOptions": f"{DEFAULTS['spark.driver.extraJavaOptions']} "
                # Jobs are too short for the optimizing compiler, and two cores have no others.
                # Without it Java keeps 48 MB of machine code: after a minute of tests it throws out
                # what it needs again soon.
                "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m "
                "-XX:+UseSerialGC -Xmn512m",
                # A stream without new files lists them every 10 ms, and takes a third of a core.
                "spark.sql.streaming.pollingDelay": "100ms",
                # PySpark asks Java eight questions more for each expression, so that an error can
                # say the line of Python that made it.
                "spark.python.sql.dataFrameDebugging.enabled": "false",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "local"),
            },
            master="local[2]",
        )
    except SourceError as error:
        pytest.skip(error.message)
    yield made
    made.stop()


@pytest.fixture
def change(spark):
    """Change settings of the session for one test, by the names below or their own."""
    before = {}

    def changed(**given):
        for name, value in given.items():
            key = SETTINGS.get(name, name)
            before.setdefault(key, spark.conf.get(key, None))
            spark.conf.set(key, str(value))

    yield changed
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


SETTINGS = {
    "ansi": "spark.sql.ansi.enabled",
    "batch": "spark.sql.execution.arrow.maxRecordsPerBatch",
    "case": "spark.sql.caseSensitive",
    "codec": "spark.sql.parquet.compression.codec",
    "instants": "spark.sql.parquet.outputTimestampType",
    "timestamps": "spark.sql.timestampType",
    "zone": "spark.sql.session.timeZone",
}

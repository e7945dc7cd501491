"""Fixtures for all tests: one Spark session per run, stopped at the end."""

from __future__ import annotations

import os

import pytest

from eddyline.errors import SourceError
from eddyline.spark.session import DEFAULTS, session
from tests import examples

examples.register()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Begin with the kills: at the end they would keep one worker busy for minutes, alone."""
    items.sort(key=lambda item: "test_kill_and_restart" not in item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_flushed():
    """A disk takes milliseconds to flush a file, and no test turns the power off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One local session for the whole run; skipped, saying so, without a suitable Java."""
    folder = tmp_path_factory.mktemp("spark")
    try:
        made = session(
            {
                "spark.driver.memory": "2g",
                "spark.driver.extraJavaOptions": f"{DEFAULTS['spark.driver.extraJavaOptions']} "
                # Jobs are too short for the optimizing compiler, and two cores have no others.
                # Without it Java keeps 48 MB of machine code: after a minute of tests it throws out
                # what it needs again soon.
                "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m "
                "-XX:+UseSerialGC -Xmn512m",
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
    """Change settings of the session for one test: ``change(ansi="false")``."""
    before = {}

    def changed(**given):
        for name, value in given.items():
            key = SETTINGS[name]
            before.setdefault(key, spark.conf.get(key))
            spark.conf.set(key, str(value))

    yield changed
    for key, value in before.items():
        spark.conf.set(key, value)


SETTINGS = {
    "ansi": "spark.sql.ansi.enabled",
    "batch": "spark.sql.execution.arrow.maxRecordsPerBatch",
    "timestamps": "spark.sql.timestampType",
    "zone": "spark.sql.session.timeZone",
}

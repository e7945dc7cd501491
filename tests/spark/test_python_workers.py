"""Workers are started ahead once per session, and nothing depends on it."""

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``is_loaded``.

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf

from eddyline.errors import SourceError
from eddyline.spark import python_workers
from eddyline.spark.python_workers import SessionStart, start_workers, start_workers_ahead

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch):
    monkeypatch.setattr(python_workers, "_started", set())


def test_a_job_of_its_own_starts_them(spark):
    spark.sparkContext.setJobGroup("here", "ours")
    start_workers(spark)
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "ours"
    tracker = spark.sparkContext.statusTracker()
    (job,) = tracker.getJobIdsForGroup("here")
    assert tracker.getJobInfo(job).status == "SUCCEEDED"
    spark.sparkContext._jsc.sc().clearJobGroup()


def test_the_next_job_finds_kernels_loaded(spark, monkeypatch):
    # Another environment has workers of its own: Spark takes the one that waits longest.
    monkeypatch.setitem(spark.sparkContext.environment, "EDDYLINE_TEST", "workers of its own")

    def is_loaded(ids: pa.Array) -> pa.Array:
        import sys  # noqa: PLC0415 - on the worker

        return pa.array(["eddyline.rules.warm_up" in sys.modules] * len(ids))

    start_workers(spark)
    rows = spark.range(0, 2, 1, 2).select(arrow_udf(is_loaded, "boolean")("id"))
    assert [row[0] for row in rows.collect()] == [True, True]


def test_once_per_session(spark):
    thread = start_workers_ahead()
    assert thread is not None
    thread.join()
    assert start_workers_ahead() is None


def test_neither_without_a_session_nor_on_a_cluster_nor_over_connect(monkeypatch):
    class Connect:
        @property
        def sparkContext(self):
            raise NotImplementedError

    def session_of(master):
        return SimpleNamespace(sparkContext=SimpleNamespace(master=master, applicationId="app"))

    for made in (None, session_of("yarn"), session_of(None), Connect()):
        monkeypatch.setattr(SparkSession, "getActiveSession", lambda made=made: made)
        assert start_workers_ahead() is None
    assert not python_workers._started


def test_a_failure_is_nobodys_business(spark, monkeypatch):
    def fail(_):
        msg = "stopped meanwhile"
        raise RuntimeError(msg)

    monkeypatch.setattr(python_workers, "start_workers", fail)
    thread = start_workers_ahead()
    assert thread is not None
    thread.join()  # pytest makes errors of a thread a failure


def test_a_session_that_starts_on_a_thread(spark):
    assert SessionStart().result().sparkContext.applicationId == spark.sparkContext.applicationId


def test_why_a_session_cannot_start_is_said_where_it_is_needed(monkeypatch):
    def fail():
        msg = "no Java"
        raise SourceError(msg)

    monkeypatch.setattr(python_workers, "session", fail)
    started = SessionStart()
    for _ in range(2):
        with pytest.raises(SourceError, match="no Java"):
            started.result()

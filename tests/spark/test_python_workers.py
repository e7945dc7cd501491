"""Workers are started ahead once per session, and nothing depends on it."""

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``is_loaded``.

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf

import eddyline as el
from eddyline.errors import SourceError
from eddyline.spark import python_workers, worker_daemon
from eddyline.spark.python_workers import (
    SessionStart,
    load_ahead,
    start_workers,
    start_workers_ahead,
)
from eddyline.spark.run import run
from tests.spark.joins.join_streams import stream_of
from tests.spark.run.lives import SCHEMA, write

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


@pytest.mark.large("starts workers of its own")
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


@pytest.mark.large("starts a daemon of its own")
def test_workers_are_forked_with_what_a_query_needs(spark, monkeypatch):
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "EDDYLINE_TEST", "a daemon of its own")
    monkeypatch.delitem(environment, worker_daemon.LOADS, raising=False)

    def is_loaded(ids: pa.Array) -> pa.Array:
        import sys  # noqa: PLC0415 - on the worker

        return pa.array(["eddyline.spark.joins.task" in sys.modules] * len(ids))

    assert load_ahead(spark, ()) is None
    thread = load_ahead(spark, ["eddyline.spark.joins.task"])
    assert thread is not None
    thread.join()
    assert load_ahead(spark, ["eddyline.spark.models.task"]) is None  # once per session
    assert environment[worker_daemon.LOADS] == "eddyline.spark.joins.task"
    rows = spark.range(0, 2, 1, 2).select(arrow_udf(is_loaded, "boolean")("id"))
    assert [row[0] for row in rows.collect()] == [True, True]


@pytest.mark.parametrize(
    ("master", "daemon"), [("yarn", worker_daemon.__name__), ("local[2]", "pyspark.daemon")]
)
def test_no_daemon_of_others_is_asked(master, daemon):
    conf = SimpleNamespace(get=lambda _: daemon)
    context = SimpleNamespace(master=master, getConf=lambda: conf, environment={})
    assert load_ahead(SimpleNamespace(sparkContext=context), ["eddyline.spark.joins.task"]) is None
    assert load_ahead(SimpleNamespace(), ["eddyline.spark.joins.task"]) is None
    assert context.environment == {}


@pytest.mark.large
def test_a_query_of_buckets_says_what_its_tasks_import(spark, tmp_path, monkeypatch):
    write(tmp_path, 1)
    said = []
    monkeypatch.setattr(run, "load_ahead", lambda _spark, modules: said.append([*modules]))
    with el.Engine(spark) as engine:
        for name in "st":
            rows = stream_of(spark, tmp_path, name, schema=SCHEMA)
            engine.stream(name, rows, time="ts", lateness="30 seconds")
        for text in (
            "SELECT id FROM s WHERE k = 1",
            "SELECT k, count(*) AS n FROM s GROUP BY k",
            "SELECT s.id AS a, t.id AS b FROM s [RANGE 9 SECONDS], t [RANGE 9 SECONDS] "
            "WHERE s.k = t.k",
        ):
            ended = engine.query(text).start(trigger="available_now")
            assert ended.await_termination(120)
    assert said == [[], ["eddyline.spark.aggregates.task"], ["eddyline.spark.joins.task"]]


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

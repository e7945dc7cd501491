"""Steps that Spark is handed once: they say what Spark's own say, in fewer calls."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import GatewayConnection
from pyspark.sql import functions as F

import eddyline as el
from eddyline.spark.prepared import Added, Known, Reduced, Renamed, RowCount, Selected
from eddyline.spark.run.run import Run
from tests.spark.joins.join_streams import stream_of
from tests.spark.run.lives import SCHEMA, write

pytestmark = pytest.mark.spark


@pytest.fixture
def calls(monkeypatch):
    """The calls into Spark by thread, but for those that only let go of objects."""
    found: Counter[int] = Counter()

    def counting(send):
        def counted(self, command, *args, **more):
            found[threading.get_ident()] += not command.startswith("m\n")
            return send(self, command, *args, **more)

        return counted

    for each in (ClientServerConnection, GatewayConnection):
        monkeypatch.setattr(each, "send_command", counting(each.send_command))
    return found


def rows(df):
    return sorted(map(tuple, df.collect()))


@pytest.mark.parametrize(
    ("made", "plain"),
    [
        (
            lambda: Selected("*", "v + 1 AS more", F.col("k").alias("twice")),
            lambda df: df.selectExpr("*", "v + 1 AS more", "k AS twice"),
        ),
        (
            lambda: Added({"v": F.col("v") * 2, "w w": F.lit("x")}),
            lambda df: df.withColumns({"v": F.col("v") * 2, "w w": F.lit("x")}),
        ),
        (
            lambda: Reduced([F.col("k")], [F.sum("v").alias("s"), F.max("v").alias("m")]),
            lambda df: df.groupBy("k").agg(F.sum("v").alias("s"), F.max("v").alias("m")),
        ),
        (
            lambda: Reduced([], [F.count(F.lit(1)).alias("n")]),
            lambda df: df.agg(F.count(F.lit(1)).alias("n")),
        ),
    ],
)
def test_a_step_is_spark_s_own_and_two_calls(spark, calls, made, plain):
    step = made().over
    frames = [spark.range(n).selectExpr("id % 3 AS k", "id AS v") for n in (0, 5, 8)]
    for df in frames:
        assert rows(step(df)) == rows(plain(df))
        assert step(df).dtypes == plain(df).dtypes
    own = threading.get_ident()  # a query of another test may still be stopping
    before = calls[own]
    step(frames[1])
    assert calls[own] - before <= 2


def test_names_may_be_others_from_one_frame_to_the_next(spark):
    renamed = Renamed()
    df = spark.range(3).selectExpr("id AS a", "id + 1 AS b")
    names = {"a": "b", "b": "a", "c": "d"}
    for _ in range(2):
        assert renamed.over(df, names).columns == ["b", "a"]
        assert renamed.over(df.selectExpr("*", "1 AS c"), names).columns == ["b", "a", "d"]
    assert rows(renamed.over(df, names)) == rows(df)


def test_steps_are_known_by_their_texts(spark):
    known, df = Known(), spark.range(3)
    for _ in range(2):
        assert known.selected(df, "id + 1 AS a").columns == ["a"]
        assert known.selected(df, "*", "id + 1 AS a").columns == ["id", "a"]


def test_each_frame_has_a_count_of_its_own(spark):
    count = RowCount()
    for n in (4, 0, 7):
        df, seen = count.over(spark.range(n))
        df.collect()
        assert seen.observation.get == {seen.metric: n}


MOST = {
    "SELECT id, k + 1 AS more FROM s": 45,
    "SELECT k, count(*) AS n, window.end AS e FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY k": 120,
    "SELECT k, count(*) AS n, max(id) AS top FROM s GROUP BY k": 120,
    "SELECT s.id AS a, t.id AS b FROM s [RANGE 9 SECONDS], t [RANGE 9 SECONDS] "
    "WHERE s.k = t.k AND s.id > t.id AND s.id % 3 = 0": 180,
}
"""Calls of a batch, with some to spare."""


@pytest.mark.parametrize(
    "asked",
    ["files", pytest.param("rows", marks=pytest.mark.large("runs a stream of four batches"))],
    indirect=True,
)
@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=pytest.mark.large if at > 1 else []) for at, text in enumerate(MOST)],
)
def test_a_batch_takes_few_calls(spark, tmp_path, calls, monkeypatch, text, asked):
    write(tmp_path, 4)
    engine = el.Engine(spark)
    for name in "st":
        stream = stream_of(spark, tmp_path, name, schema=SCHEMA)
        engine.stream(name, stream, time="ts", lateness="30 seconds")
    of_batches = []
    on_batch = Run._on_batch

    def counted(self, df, batch_id):
        thread = threading.get_ident()
        before = calls[thread]
        on_batch(self, df, batch_id)
        of_batches.append(calls[thread] - before)

    monkeypatch.setattr(Run, "_on_batch", counted)
    run = engine.query(text, name="q").start(trigger="available_now")
    assert run.await_termination(120)
    assert of_batches[-1] <= MOST[text], of_batches

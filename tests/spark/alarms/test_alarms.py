"""Alarms over segments: batch, stream, restart and change give what each alarm alone gives."""

from __future__ import annotations

from functools import reduce

import pytest
from pyspark.sql import DataFrame

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, QueryError
from tests.spark.models.test_streams import (
    N_FILES,
    copied,
    declared,
    ended,
    fitted,
    folder,
    shown,
    stream_of,
)

__all__ = ["folder"]

TEXTS = {
    "up": "x > 2",
    "higher": "x > 4 AND ship <> 3",
    "one": "ship = 2 AND (x < -3 OR d(x) > 0.2)",
    "some": "ship IN (1, 4) AND x <= 1.5",
    "always": "ship < 2",
}


def alone(segments, texts):
    """Return the rows of alarms one by one, as one job of Spark."""
    parts = (
        segments.where(text).changes().selectExpr(f"'{name}' AS alarm", "*")
        for name, text in texts.items()
    )
    return shown(reduce(DataFrame.unionAll, parts).collect())


@pytest.mark.parametrize("make", [fitted, pytest.param(declared, marks=pytest.mark.large)])
def test_a_batch_gives_what_each_alarm_gives(spark, folder, make):
    segments = make(spark.read.parquet(str(folder)))
    found = segments.alarms(el.AlarmSet(TEXTS))
    assert found.columns[:4] == ["alarm", "ship", "since", "until"]
    assert found.columns[4:] == segments.changes().columns[3:]
    rows = shown(found.collect())
    assert rows == alone(segments, TEXTS)
    assert {row[0] for row in rows} == {*TEXTS}


@pytest.mark.large
def test_a_stream_gives_what_a_batch_gives(spark, folder, tmp_path):
    wanted = alone(fitted(spark.read.parquet(str(folder))), TEXTS)
    alarms = el.AlarmSet(TEXTS)
    for _ in range(2):  # started again there is nothing new
        query = fitted(stream_of(spark, folder, 3), name="tracks").alarms(alarms)
        run = ended(query, tmp_path)
    assert "alarms" in run.explain()
    assert shown(spark.read.parquet(str(tmp_path / "out")).collect()) == wanted


@pytest.mark.large
def test_alarms_change_while_a_query_restarts(spark, folder, tmp_path):
    alarms = el.AlarmSet({"up": "x > -28", "gone": "x < 100", "other": "x < 100"})
    changes = [
        lambda: None,
        lambda: alarms.replace("other", "x < 200"),  # while models go on
        lambda: alarms.add("new", "x > -28"),
        lambda: alarms.remove("gone"),
    ]
    for number, change in enumerate(changes):
        change()
        copied(folder, tmp_path / "seen", [number])
        query = fitted(stream_of(spark, tmp_path / "seen", 1), name="tracks").alarms(alarms)
        ended(query, tmp_path)
    assert len(changes) == N_FILES
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    by_name = {
        name: {(row.ship, row.since, row.until) for row in rows if row.alarm == name}
        for name in ("up", "new", "gone", "other")
    }
    wanted = fitted(spark.read.parquet(str(folder))).where("x > -28").changes().collect()
    assert by_name["up"] >= {(row.ship, row.since, row.until) for row in wanted if row.ship != 99}
    assert by_name["new"]
    assert {each[2] for each in by_name["new"]} <= {each[2] for each in by_name["up"]}
    # What held of an alarm that went is told, and so is what held until it was replaced.
    last = max(row.until for row in rows)
    assert by_name["gone"]
    assert max(each[2] for each in by_name["gone"]) < last
    every = fitted(spark.read.parquet(str(folder))).changes().collect()
    assert len(by_name["other"]) > len({(row.ship, row.since) for row in every if row.ship != 99})


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ({"a": "x > "}, QueryError, "alarm 'a'"),
        ({"a": "z > 3"}, QueryError, "alarm 'a': .*z"),
        ({"a": "x / x > 3"}, NotSupportedError, "alarm 'a': .*divides"),
        ({"a": "ship % 2 = 1 AND x > 1"}, NotSupportedError, "as a key of its own"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(spark, folder, texts, error, message):
    segments = fitted(spark.read.parquet(str(folder)))
    with pytest.raises(error, match=message):
        segments.alarms(el.AlarmSet(texts))


def test_a_key_called_alarm_is_refused(spark, folder):
    rows = spark.read.parquet(str(folder)).withColumnRenamed("ship", "alarm")
    segments = el.models.fit(rows, key="alarm", time="ts", within={"x": 1.0})
    with pytest.raises(OptionError, match="rename the key"):
        segments.alarms(el.AlarmSet())
    with pytest.raises(QueryError, match=r"el\.AlarmSet"):
        segments.alarms({"a": "x > 1"})

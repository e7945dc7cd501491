"""Keys of joins that are no plain values, against Spark's own join."""

from __future__ import annotations

from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import NotSupportedError
from eddyline.spark.joins import layout

pytestmark = pytest.mark.spark

COLUMNS = (
    "timestamp_seconds(1.7e9 + id) AS ts",
    "CAST(id AS INT) AS i",
    "IF(id % 4 = 1, NULL, CAST(id % 3 AS DOUBLE) - 1) AS v",
    "IF(id % 5 = 0, NULL, concat('k', id % 3)) AS k",
    "IF(id % 6 = 5, NULL, named_struct('x', IF(id % 4 = 2, NULL, id % 2), 'y', 'y')) AS st",
    "IF(id % 4 = 3, NULL, array(IF(id % 2 = 0, 'a', NULL))) AS a",
    "IF(id % 3 = 0, NULL, make_ym_interval(CAST(id % 2 AS INT), 3)) AS ym",
    "IF(id % 7 = 0, NULL, make_dt_interval(CAST(id % 2 AS INT))) AS d",
    "map('a', 1) AS m",
    "concat('k', id % 3) COLLATE UTF8_LCASE AS c",
    "parse_json('1') AS var",
    "named_struct('x', 0.5D) AS f",
)


@pytest.fixture(scope="module")
def frame(spark):
    made = spark.range(12).selectExpr(*COLUMNS).localCheckpoint()
    made.createOrReplaceTempView("rows_of_keys")
    yield made
    spark.catalog.dropTempView("rows_of_keys")


def joined(frame, on, how="inner", select="l.i AS a, r.i AS b"):
    windows, time = dict.fromkeys("lr", "RANGE 1 HOUR"), dict.fromkeys("lr", "ts")
    inputs = {"l": frame, "r": frame}
    return el.window_join(inputs, on=on, time=time, windows=windows, select=select, how=how)


def plain(spark, on):
    """Return Spark's own join."""
    return spark.sql(f"SELECT l.i AS a, r.i AS b FROM rows_of_keys l JOIN rows_of_keys r ON {on}")


def pairs(frames):
    """Return the pairs of each frame, in order, found by one job of Spark."""
    numbered = [frame.select(F.lit(at), "a", "b") for at, frame in enumerate(frames)]
    found = {at: [] for at in range(len(frames))}
    for at, *pair in reduce(DataFrame.unionAll, numbered).collect():
        found[at].append(pair)
    return [sorted(each) for each in found.values()]


def test_results_are_those_of_spark(frame, spark):
    conditions = [
        "l.st = r.st",
        "l.a = r.a AND l.i <= r.i",
        "l.d = r.d",
        "l.v <=> r.v",
        "equal_null(r.k, l.k)",
        "(l.v, l.k) = (r.v, r.k)",
        "(l.v, l.k) = (r.v, 'k1')",
        "l.i = r.i AND l.v <=> r.v",
    ]
    wanted = pairs([plain(spark, on) for on in conditions])
    assert pairs([joined(frame, on).to_df() for on in conditions]) == wanted
    assert all(wanted)


def test_keys_of_one_hash_are_compared(frame, spark, monkeypatch):
    code = layout._code

    def colliding(text, kind):
        found = code(text, kind)
        return found if kind in layout.EXACT else F.when(found.isNotNull(), 7).cast("bigint")

    monkeypatch.setattr(layout, "_code", colliding)
    who_compares = {
        "l.k = r.k": "tasks",
        "l.i % 2 = r.i % 2 AND l.k = r.k": "tasks",
        "l.k = r.k AND l.k = concat('k', r.i % 3)": "Spark",
        "l.k = r.k AND l.v = r.v": "Spark",
        "upper(l.k) = upper(r.k)": "Spark",
    }
    found = {on: joined(frame, on).to_df() for on in who_compares}
    wanted = pairs([plain(spark, on) for on in who_compares])
    assert pairs([*found.values()]) == wanted
    assert all(wanted)
    for on, df in found.items():
        plan = df._jdf.queryExecution().optimizedPlan().toString()
        is_filtered = "Filter" in plan.partition("MapInArrow")[0]
        assert is_filtered == (who_compares[on] == "Spark"), on


def test_null_has_a_partner_where_null_equals_null(frame):
    found = joined(frame, "l.v <=> r.v AND l.i <> r.i", "anti", "l.i AS a").to_df()
    assert found.collect() == []


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("l.m = r.m", "m has the type map<string,int>"),
        ("l.c = r.c", "c has a collation, so different texts may be equal"),
        ("CAST(l.k AS STRING COLLATE UTF8_LCASE) = r.k", "has a collation"),
        ("l.f = r.f", "f has the type struct<x:double>"),
        ("l.var = r.var", "has the type variant, which is not supported"),
        ("l.ym = r.ym", "ym has the type interval year to month, which Arrow does not have"),
        ("l.i = r.i AND l.ym < r.ym", "needs the column 'ym' in Python tasks"),
        ("l.v <=> r.k", "l has a float and r a string; CAST one of them"),
        ("l.i < r.i", "no equality connects r with l"),
    ],
)
def test_what_cannot_be_a_key_is_named(frame, on, message):
    with pytest.raises(NotSupportedError, match=message):
        joined(frame, on)

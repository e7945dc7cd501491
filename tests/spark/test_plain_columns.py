"""Output columns that the driver picks out of a table are those that Spark would have selected."""

from __future__ import annotations

import datetime as dt

import pytest

from eddyline.spark.projection import picked_columns

pytestmark = pytest.mark.spark

SCHEMA = """
    s struct<x: int, Y: timestamp>, n bigint, Text string, `odd name` double, `with.dot` string
"""
ROWS = [
    ((1, dt.datetime(2026, 1, 1)), 2, "a", 3.5, "dot"),
    (None, None, None, float("nan"), None),
    ((None, None), 5, "", None, "x"),
]


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.mark.parametrize(
    "texts",
    [
        ["*"],
        ["n AS m", "s.x", "(s.y) AS at", "TEXT", "`odd name`", "`with.dot` AS w", "s"],
        ["n", "n AS again", "*"],
        ["s.X AS -- a comment\n x"],
    ],
)
def test_columns_and_fields_are_picked(rows, texts):
    like = rows.selectExpr(*texts)
    found = picked_columns(texts, rows.schema, like, ansi=True)(rows.toArrow())
    wanted = like.toArrow()
    assert found.schema == wanted.schema
    assert repr(found.to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.parametrize("text", ["n % 2 AS n", "upper(text) AS n", "s.x.y AS n"])
def test_a_column_that_arrow_cannot_make_is_left_to_spark(rows, text):
    like = rows.selectExpr("n") if text == "s.x.y AS n" else rows.selectExpr(text)
    assert picked_columns([text], rows.schema, like, ansi=True) is None


def test_a_name_that_two_columns_have_is_left_to_spark(spark):
    rows = spark.sql("SELECT 1 AS a, 2 AS A")
    assert picked_columns(["a"], rows.schema, spark.sql("SELECT 1 AS a"), ansi=True) is None
    every = picked_columns(["*"], rows.schema, rows, ansi=True)
    assert every is None

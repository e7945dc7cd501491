"""Models of tables in SQL: each query reads the rows that its tables had when it was made."""

from __future__ import annotations

import pytest

import eddyline as el


@pytest.fixture
def engine(spark):
    engine = el.Engine(spark)
    engine.table("s", rows(spark, 1, "a b"))
    return engine


def rows(spark, x, flag):
    return spark.sql(f"SELECT 7 AS k, timestamp_seconds(0) AS ts, {x} AS x, '{flag}' AS flag")


def sampled(where=""):
    return (
        f"SELECT k, x FROM s MODEL x = x HORIZON 2 SECONDS BY k AT ts {where} SAMPLE EVERY 5 SECOND"
    )


def values(query):
    return [each.x for each in query.to_df().collect()]


@pytest.mark.large
def test_equal_texts_read_what_the_table_was_when_each_was_made(engine, spark):
    old = engine.query(sampled())
    engine.stream("r", old)
    engine.table("s", rows(spark, 2, "a b"), replace=True)
    new = engine.query(sampled(), name="q2")
    engine.table("s", rows(spark, 3, "a b"), replace=True)
    newest = engine.query(sampled(), name="q3")
    engine.stream("r2", new)
    engine.stream("r3", newest)
    assert [values(each) for each in (old, new, newest)] == [[1], [2], [3]]
    reads = [engine.query(f"SELECT x FROM {each} WHERE x > 0") for each in ("r", "r2", "r3")]
    assert [values(each) for each in reads] == [[1], [2], [3]]


def test_blanks_in_quotes_tell_texts_apart(engine, spark):
    one = engine.query(sampled("WHERE flag = 'a b'"))
    engine.stream("r", one)
    other = engine.query(sampled("WHERE flag = 'a  b'"))
    engine.stream("r2", other)
    assert (values(one), values(other)) == ([1], [])
    assert values(engine.query("SELECT x FROM r2 WHERE x > 0")) == []

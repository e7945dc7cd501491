"""Windows that count rows on Spark: WHERE and groups of their own; all groups at each instant."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import QueryError
from eddyline.spark.aggregates.operator import AggregateOperator

pytestmark = pytest.mark.spark

ROWS = [("a", 1, 0, 4), ("a", 2, 1, 0), ("b", 1, 2, 5), ("a", 1, 3, 2), ("b", 2, 4, 0)]


@pytest.fixture(scope="module")
def frame(spark):
    made = spark.createDataFrame(ROWS, "k string, g int, s long, v int")
    return made.selectExpr("*", "timestamp_seconds(1.7e9 + s) AS ts").drop("s").cache()


def answers(frame, window, by, where=None, **asked):
    asked = asked or {"n": "count(*)"}
    query = el.window_aggregate(
        frame, by=by, time="ts", windows=window, aggregates=asked, where=where
    )
    found = query.to_df().orderBy("window.end", *by).collect()
    names = [name for name in found[0].asDict() if name != "window"] if found else []
    return [
        (round(row.window.end.timestamp() - 1.7e9), *(row[name] for name in names)) for row in found
    ]


@pytest.mark.large
def test_groups_are_others_than_partitions(frame):
    of_all = [(0, "a", 1), (1, "a", 2), (2, "a", 1), (2, "b", 1)]
    assert answers(frame, "ROWS 2", ["k"]) == of_all
    finer = [(0, "a", 1, 1), (1, "a", 2, 1), (2, "b", 1, 1), (3, "a", 1, 1), (4, "b", 2, 1)]
    assert answers(frame, "PARTITION BY k ROWS 1", ["k", "g"]) == finer
    coarser = [(0, 1, 1), (1, 2, 1), (2, 1, 2), (4, 2, 2)]
    assert answers(frame, "PARTITION BY k ROWS 2", ["g"]) == coarser


@pytest.mark.large
def test_where_is_asked_of_rows_in_the_window(frame):
    # Of those of "a" the one of 0 counts until the second one behind it has come.
    kept = [(0, "a", 1), (2, "b", 1)]
    assert answers(frame, "PARTITION BY k ROWS 2", ["k"], "v > 2") == kept
    assert answers(frame, "ROWS 2", [], "v > 2") == [(0, 1)]


@pytest.mark.large
def test_what_where_drops_makes_nothing_raise(frame, spark):
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    asked = {"total": "sum(100 div v)"}
    found = answers(frame, "PARTITION BY k ROWS 5", ["k", "10 div v"], "v <> 0", **asked)
    assert found == [(0, "a", 2, 25), (2, "b", 2, 20), (3, "a", 5, 50)]


@pytest.mark.large
def test_calls_that_have_a_partial_in_common(frame):
    asked = {"a": "var_pop(v)", "b": "stddev_pop(v)", "n": "count(v)", "c": "sum(v) + sum(v)"}
    found = answers(frame, "PARTITION BY k ROWS 2", ["k"], **asked)
    assert found[0] == (0, "a", 0.0, 0.0, 1, 8)
    assert found[1] == (1, "a", 4.0, 2.0, 2, 8)


def test_a_condition_that_spark_refuses(frame):
    with pytest.raises(QueryError, match="WHERE v \\+ 1"):
        answers(frame, "ROWS 2", ["k"], "v + 1")


@pytest.mark.large
def test_windows_of_the_newest_row(frame):
    """Those of one instant come together: the greatest, by its columns, is the last."""
    asked = {"g": "last(g)", "v": "last(v)", "at": "last(ts)"}
    nines = frame.where("k = 'a'").selectExpr("k", "g", "IF(g = 1, 9, v) AS v", "ts")
    tied = nines.unionAll(frame.where("g = 1").selectExpr("k", "g", "8 AS v", "ts"))
    found = answers(tied, "PARTITION BY k ROWS 1", ["k"], **asked)
    last = [(at, k, g, v) for at, k, g, v, _ in found]
    assert last == [(0, "a", 1, 9), (1, "a", 2, 0), (2, "b", 1, 8), (3, "a", 1, 9)]
    kept = answers(tied, "PARTITION BY k ROWS 1", ["k"], "v = 8", **asked)
    assert [(at, k, v) for at, k, _, v, _ in kept] == [(2, "b", 8)]


@pytest.mark.large
def test_a_row_that_equals_the_one_before_is_none_that_came(frame):
    """By the definition of ISTREAM; where rows tell their time, none equals another."""
    plain = frame.selectExpr("k", "ts", "IF(k = 'a' AND v > 0, 1, v) AS v")
    found = answers(plain, "PARTITION BY k ROWS 1", ["k"], v="last(v)")
    assert found == [(0, "a", 1), (1, "a", 0), (2, "b", 5), (3, "a", 1), (4, "b", 0)]
    same = plain.where("v = 1")
    assert answers(same, "PARTITION BY k ROWS 1", ["k"], v="last(v)") == [(0, "a", 1)]
    asked = {"v": "last(v)", "at": "last(ts)"}
    timed = answers(same, "PARTITION BY k ROWS 1", ["k"], **asked)
    assert [row[:3] for row in timed] == [(0, "a", 1), (3, "a", 1)]


@pytest.mark.large
def test_what_crosses_to_tasks_and_back(frame, monkeypatch):
    """Of ties, groups and partials that are columns of the rows: these columns, once."""
    plans, original = [], AggregateOperator.plan_of
    told = lambda *args: plans.append(original(*args)) or plans[-1]  # noqa: E731
    monkeypatch.setattr(AggregateOperator, "plan_of", told)
    for asked in (
        {"g": "last(g)", "v": "last(v)", "at": "last(ts)"},
        {"g": "last(g)", "v": "sum(v)"},
        {"g": "last(g) + 1", "at": "last(ts)"},
    ):
        assert answers(frame, "PARTITION BY k ROWS 1", ["k"], **asked)
    first, *_ = plans
    assert {each.source for each in first.lifts.values()} == {f"__t{k}" for k in range(4)}
    assert [each.is_alone for each in plans] == [True, False, False]
    assert [each.compares for each in plans] == [True, True, False]

"""Bounds at single instants: what the calls, SQL, alarms and pairs of results say of them."""

from __future__ import annotations

import operator

import pytest

import eddyline as el

START = 1_700_000_000
CURVES = {
    "touch": (4.0, -2.0, 1.0),
    "start": (3.0, 1.0, 0.0),
    "down": (3.0, -1.0, 0.0),
    "cross": (0.0, 1.0, 0.0),
}
OPS = {
    "<": operator.lt, "<=": operator.le, "=": operator.eq,
    "<>": operator.ne, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark):
    made = [(name, *curve) for name, curve in CURVES.items()]
    return spark.createDataFrame(made, "k string, x double, v double, a double").selectExpr(
        "*", f"timestamp_seconds({START}) AS ts"
    )


@pytest.fixture(scope="module")
def curves(rows):
    equation = {"x": "x + v * t + a * pow(t, 2)"}
    return el.models.declare(rows, key="k", time="ts", model=equation, horizon="6 seconds")


def wanted(op):
    return {
        (name, t)
        for name, (x, v, a) in CURVES.items()
        for t in range(6)
        if OPS[op](x + v * t + a * t * t, 3)
    }


def seen(df):
    return {
        (row.k, row.at)
        for row in df.selectExpr("k", "CAST(unix_timestamp(time) AS INT) AS at").collect()
    }


@pytest.mark.large
def test_samples_of_the_call_and_of_sql_have_the_same_instants(spark, rows, curves):
    engine = el.Engine(spark)
    engine.table("rows", rows)
    for op in OPS:
        expected = {(k, START + t) for k, t in wanted(op)}
        assert seen(curves.where(f"x {op} 3").sample("1 second")) == expected
        text = (
            "SELECT k, x FROM rows MODEL x = x + v * t + a * t^2 HORIZON 6 SECONDS BY k AT ts "
            f"WHERE x {op} 3 SAMPLE EVERY 1 SECOND"
        )
        assert seen(engine.query(text).to_df()) == expected


def test_alarms_and_pairs_of_results_part_the_instants(curves):
    alarms = el.AlarmSet({f"a{at}": f"x {op} 3" for at, op in enumerate(OPS)})
    found = curves.alarms(alarms).selectExpr(
        "alarm", "k", "unix_micros(since) AS since", "unix_micros(until) AS until"
    )
    ranges = [
        (row.alarm, row.k, row.since, max(row.until, row.since + 1)) for row in found.collect()
    ]
    for at, op in enumerate(OPS):
        own = {
            (k, t)
            for k in CURVES
            for t in range(6)
            for alarm, name, since, until in ranges
            if (alarm, name) == (f"a{at}", k) and since <= (START + t) * 1_000_000 < until
        }
        assert own == wanted(op)
    above, at = curves.where("x > 3"), curves.where("x = 3")
    assert above.join(at, names=("a", "b")).changes().isEmpty()
    assert above.where("x <= 3").changes().isEmpty()


def test_a_result_that_no_double_holds_is_refused_with_its_entity(spark):
    large = spark.createDataFrame([("c", 1e200)], "k string, x double").selectExpr(
        "*", f"timestamp_seconds({START}) AS ts"
    )
    curves = el.models.declare(large, key="k", time="ts", model={"x": "x"}, horizon="6 seconds")
    assert curves.where("x * x > 1e300").changes().count() == 1
    with pytest.raises(
        Exception, match=r"select x \* x AS z: 'z' of k='c' from 2023-11-14T22:13:20"
    ):
        curves.select(z="x * x").sample("1 second").collect()

"""Frames that end at the row itself, where rows have one instant: the whole order is told."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql.functions import expr

import eddyline as el
from eddyline.errors import NotSupportedError
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.string()),
        ("v", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("more", pa.map_(pa.string(), pa.int64())),
    ]
)
SECOND = 1_000_000
NAN = float("nan")
ROWS = [
    (1 * SECOND, "a", 1.0, ["x"], [("m", 1)]),
    (5 * SECOND, "a", None, ["x"], [("m", 3)]),
    (5 * SECOND, "a", NAN, ["y"], [("m", 2)]),
    (5 * SECOND, "a", 2.0, ["x", "y"], []),
    (5 * SECOND, "a", 2.0, ["x"], []),
    (5 * SECOND, None, 4.0, None, None),
    (8 * SECOND, "a", 3.0, [], []),
    (99 * SECOND, "z", 0.0, [], []),
]
UNBOUNDED = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
CALLS = {
    "n": f"COUNT(*) OVER (PARTITION BY k ORDER BY ts {UNBOUNDED})",
    "n_all": f"COUNT(*) OVER (ORDER BY ts {UNBOUNDED})",
    "total": f"SUM(v) OVER (PARTITION BY k ORDER BY ts {UNBOUNDED})",
    "newest": f"LAST(v) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts {UNBOUNDED})",
    "of_two": "COUNT(v) OVER (PARTITION BY k ORDER BY ts ROWS 1 PRECEDING)",
    "to_instant": "COUNT(*) OVER (PARTITION BY k ORDER BY ts)",
}
# Rows of one instant stand by k, v, tags and more, where NULL is the last: 2, 2, NaN, NULL.
WANTED = {
    ("a", 1.0, 1): (1, 1, 1.0, 1.0, 1, 1),
    ("a", 2.0, 1): (2, 2, 3.0, 2.0, 2, 5),
    ("a", 2.0, 2): (3, 3, 5.0, 2.0, 2, 5),
    ("a", "nan", 1): (4, 4, "nan", "nan", 2, 5),
    ("a", None, 1): (5, 5, "nan", "nan", 1, 5),
    (None, 4.0, None): (1, 6, 4.0, 4.0, 1, 1),
    ("a", 3.0, 0): (6, 7, "nan", 3.0, 1, 6),
}


def plain(value):
    return "nan" if isinstance(value, float) and value != value else value  # noqa: PLR0124


@pytest.mark.large
@pytest.mark.parametrize(("cut", "step"), [([0, 7, 8], 1), ([0, 2, 5, 8], -1)])
def test_rows_of_one_instant_are_counted_one_by_one(spark, tmp_path, cut, step):
    arrived = [*ROWS[:7][::step], ROWS[7]]
    for number, (start, end) in enumerate(pairwise(cut)):
        columns = zip(*arrived[start:end], strict=True)
        arrays = [pa.array(each, of.type) for each, of in zip(columns, SCHEMA, strict=True)]
        write_batch(tmp_path, "s", number, pa.table(arrays, schema=SCHEMA))
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "s"), time="ts", lateness="1 minute")
    calls = ", ".join(f"{text} AS {name}" for name, text in CALLS.items())
    run = engine.query(f"SELECT k, v, tags, more, {calls} FROM s").start(trigger="available_now")
    assert run.await_termination(240)
    found = {}
    for row in run.to_arrow().to_pylist():
        tags = row["tags"]
        key = (row["k"], plain(row["v"]), None if tags is None else len(tags))
        found[key] = tuple(plain(row[name]) for name in CALLS)
    assert found == WANTED


@pytest.mark.large
def test_calls_of_months_are_those_of_spark(spark):
    columns = [
        "timestamp_seconds(1.7e9 + id) AS ts",
        "id % 2 AS k",
        "IF(id % 3 = 0, NULL, make_ym_interval(CAST(id % 2 AS INT), CAST(id AS INT))) AS ym",
        "id AS i",
    ]
    frame = spark.range(9).selectExpr(*columns)
    calls = {
        "n": "count(DISTINCT ym)",
        "least": "min(ym)",
        "total": "sum(ym)",
        "mean": "avg(ym)",
        "of_last": "max_by(ym, i)",
    }
    window = "RANGE 1 HOUR SLIDE 1 HOUR"
    query = el.window_aggregate(frame, windows=window, aggregates=calls, time="ts", by=["k"])
    shown = [f"CAST({each} AS STRING)" for each in ("k", *calls)]
    wanted = frame.groupBy("k").agg(*(expr(text).alias(name) for name, text in calls.items()))
    found, spark_says = (
        sorted(map(tuple, each.selectExpr(*shown).collect())) for each in (query.to_df(), wanted)
    )
    assert found == spark_says


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("first(m)", r"FIRST\(m\): values of map<string,int> cannot be compared"),
        ("max(c)", r"MAX\(c\): texts with a collation"),
        ("count(DISTINCT c)", r"COUNT\(DISTINCT c\): texts with a collation"),
    ],
)
def test_calls_of_values_that_tasks_cannot_compare_are_named(spark, text, message):
    columns = "current_timestamp() AS ts", "map('a', 1) AS m", "'x' COLLATE UTF8_LCASE AS c"
    frame = spark.range(1).selectExpr(*columns)
    given = {"windows": "RANGE 1 HOUR SLIDE 1 HOUR", "time": "ts", "aggregates": {"x": text}}
    with pytest.raises(NotSupportedError, match=message):
        el.window_aggregate(frame, **given)

from __future__ import annotations

import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, QueryError
from tests.examples import examples
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import bag, results
from tests.spark.joins.join_streams import join_of

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.large
@given(case=join_cases(max_inputs=4), n_buckets=st.integers(1, 3))
@examples(24, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # jobs are slow
def test_joins_are_those_of_the_definition(spark, case, n_buckets):
    frames = {name: spark.createDataFrame(rows) for name, rows in case.tables.items()}
    join = join_of(case.query.text, frames, case.times, buckets=n_buckets)
    wanted = results(case.query, case.tables, case.times).drop_columns("_at")
    assert bag(join.to_df().toArrow()) == bag(wanted)


def rows_of(spark, kind, values):
    times = [T0 + dt.timedelta(seconds=second) for second, _ in values]
    keys = pa.array([key for _, key in values], kind)
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": keys})
    return spark.createDataFrame(table)


@pytest.mark.large
@pytest.mark.parametrize(
    ("kind", "keys", "wanted"),
    [
        (pa.float64(), [0.0, -0.0, float("nan"), 1.5, None], 6),
        (pa.decimal128(38, 2), [1, 1, 10**35, 10**35 + 1, None], 6),
        (pa.string(), ["a", "A", "", "ä", None], 4),
        (pa.binary(), [b"a", b"", b"\0", b"a", None], 6),
        (pa.bool_(), [True, False, True, None], 5),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1, 1, 1)], 5),
        (pa.timestamp("us"), [dt.datetime(2026, 3, 8, 2, 30), dt.datetime(2026, 3, 8, 3, 30)], 2),
    ],
)
def test_keys_are_equal_where_spark_says_so(spark, kind, keys, wanted):
    df = rows_of(spark, kind, [(0, key) for key in keys])
    text = "SELECT s.k AS a, t.k AS b FROM s [NOW], t [NOW] WHERE s.k = t.k"
    found = join_of(text, {"s": df, "t": df}, {"s": "ts", "t": "ts"}).to_df()
    plain = df.alias("s").join(df.alias("t")).where("s.k = t.k").selectExpr("s.k AS a", "t.k AS b")
    assert found.schema == plain.schema
    answer = found.toArrow()
    # As text, in which NaN is equal to itself, and 0.0 is not -0.0.
    texts = [Counter(map(repr, rows.to_pylist())) for rows in (answer, plain.toArrow())]
    assert texts[0] == texts[1]
    assert answer.num_rows == wanted


@pytest.mark.large
@pytest.mark.parametrize(
    ("s_kind", "t_kind", "says"),
    [
        ("decimal(10,2)", "int", None),
        ("decimal(38,18)", "bigint", None),
        ("decimal(20,4)", "decimal(10,9)", None),
        ("decimal(38,20)", "bigint", "SQL would round them: s: .*bigint"),
        ("decimal(38,0)", "decimal(38,2)", "no common type of 38 digits"),
    ],
)
def test_decimals_of_other_scales_join_as_in_spark_or_not_at_all(spark, s_kind, t_kind, says):
    keys = ["1", "1.00", "-2.5", "7", "123456789", None]
    df = rows_of(spark, pa.string(), [(0, key) for key in keys])
    frames = {
        "s": df.selectExpr("ts", f"try_cast(k AS {s_kind}) AS k"),
        "t": df.selectExpr("ts", f"try_cast(try_cast(k AS DOUBLE) AS {t_kind}) AS k"),
    }
    text = "SELECT s.k AS a, t.k AS b FROM s [NOW], t [NOW] WHERE s.k = t.k"
    times = {"s": "ts", "t": "ts"}
    if says is not None:
        with pytest.raises(QueryError, match=says):
            join_of(text, frames, times).to_df()
        return
    found = join_of(text, frames, times).to_df().collect()
    s, t = frames["s"].alias("s"), frames["t"].alias("t")
    plain = s.join(t).where("s.k = t.k").selectExpr("s.k AS a", "t.k AS b").collect()
    assert sorted(map(str, found)) == sorted(map(str, plain))
    assert len(found) >= 5


@pytest.mark.large
@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.bool_(), pa.date32()])
def test_an_input_may_give_nothing_but_its_key(spark, kind):
    df = rows_of(spark, kind, [(0, None), (1, pa.scalar(1, pa.int32()).cast(kind).as_py())])
    frames, times = {"s": df, "t": df}, {"s": "ts", "t": "ts"}
    text = "SELECT s.ts AS at FROM s [NOW], t [NOW] WHERE s.k = t.k"
    found = join_of(text, frames, times).to_df().toArrow()
    assert found["at"].to_pylist() == [T0 + dt.timedelta(seconds=1)]
    text = "SELECT 1 AS one FROM s [NOW], t [NOW] WHERE s.k = t.k"
    assert join_of(text, frames, times).to_df().toArrow().to_pylist() == [{"one": 1}]


def test_names_with_dots_are_told_apart(spark):
    times, key = pa.array([T0], pa.timestamp("us", "UTC")), pa.array([1])
    plain = spark.createDataFrame(pa.table({"ts": times, "k": key, "b.c": ["of a"]}))
    dotted = spark.createDataFrame(pa.table({"ts": times, "k": key, "c": ["of a.b"]}))
    text = "SELECT a.`b.c` AS x, `a.b`.c AS y FROM a [NOW], `a.b` [NOW] WHERE a.k = `a.b`.k"
    found = join_of(text, {"a": plain, "a.b": dotted}, {"a": "ts", "a.b": "ts"}).to_df()
    assert found.toArrow().to_pylist() == [{"x": "of a", "y": "of a.b"}]


def test_windows_hold_both_ends(spark):
    s = rows_of(spark, pa.int32(), [(0, 1), (10, 1), (11, 1)])
    t = rows_of(spark, pa.int64(), [(10, 1), (21, 1)])
    text = "SELECT s.ts AS a, t.ts AS b FROM s [RANGE 10 SECONDS], t [NOW] WHERE s.k = t.k"
    found = join_of(text, {"s": s, "t": t}, {"s": "ts", "t": "ts"}).to_df().toArrow().to_pylist()
    seconds = Counter(tuple((row[name] - T0).seconds for name in "ab") for row in found)
    assert seconds == Counter({(0, 10): 1, (10, 10): 1, (11, 21): 1})


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "SELECT s.k FROM s [PARTITION BY m ROWS 5], t WHERE s.k = t.j",
            NotSupportedError,
            "PARTITION BY m of 's': array<int> is no type to group by",
        ),
        ("SELECT s.k FROM s, t WHERE s.k < t.j", NotSupportedError, "Cartesian product"),
    ],
)
def test_what_does_not_run_says_so(spark, text, error, message):
    s, t = rows_of(spark, pa.int32(), []), rows_of(spark, pa.int32(), [])
    frames = {
        "s": s.selectExpr("*", "array(k) AS m"),
        "t": t.withColumnsRenamed({"k": "j", "ts": "at"}),
    }
    with pytest.raises(error, match=message):
        join_of(text, frames, {"s": "ts", "t": "at"}).to_df()


def test_an_event_time_is_a_column_and_a_time(spark):
    df = rows_of(spark, pa.int32(), [])
    text = "SELECT s.k FROM s, t WHERE s.k = t.k"
    with pytest.raises(QueryError, match="time column 'tz'"):
        join_of(text, {"s": df, "t": df}, {"s": "tz", "t": "ts"})
    with pytest.raises(QueryError, match="'k' of 't' is of type int"):
        join_of(text, {"s": df, "t": df}, {"s": "ts", "t": "k"}).to_df()


@pytest.mark.large
@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 5])
def test_rows_of_one_instant_are_ordered_by_all_that_is_in_them(spark, n_rows):
    in_order = [
        (1, None, "array('b')"),
        (2, "0.5", "NULL"),
        (3, "0.5", "array('a')"),
        (4, "7.5", "array()"),
        (5, "double('NaN')", "array('a')"),
    ]
    values = ", ".join(
        f"(timestamp_seconds(0), 1, {x or 'NULL'}, {m}, NULL, {number})"
        for number, x, m in sorted(in_order, key=lambda row: row[0] * 7 % 5)
    )
    s = spark.sql(f"SELECT * FROM VALUES {values} AS s (ts, k, x, m, nothing, number)")
    t = spark.sql("SELECT timestamp_seconds(1) AS ts, 1 AS k")
    text = f"SELECT s.number FROM s [ROWS {n_rows}], t [NOW] WHERE s.k = t.k"
    found = join_of(text, {"s": s, "t": t}, {"s": "ts", "t": "ts"}).to_df().toArrow()
    assert sorted(found["number"].to_pylist()) == list(range(6 - n_rows, 6))


def test_rows_that_are_kept_out_are_counted_all_the_same(spark):
    s = rows_of(spark, pa.int32(), [(0, 1), (1, None), (2, 2), (3, 1)])
    t = rows_of(spark, pa.int32(), [(1, 1), (2, 1), (4, 1)])
    text = "SELECT s.ts AS a, t.ts AS b FROM s [ROWS 2], t [NOW] WHERE s.k = t.k AND s.k < 2"
    found = join_of(text, {"s": s, "t": t}, {"s": "ts", "t": "ts"}).to_df().toArrow().to_pylist()
    seconds = Counter(tuple((row[name] - T0).seconds for name in "ab") for row in found)
    assert seconds == Counter({(0, 1): 1, (3, 4): 1})


def test_a_result_is_there_at_each_instant_of_any_stream(spark):
    s = rows_of(spark, pa.int32(), [(0, 1), (5, None)])
    t = rows_of(spark, pa.int32(), [(2, 1), (4, 7), (4, 8), (9, 7)])
    text = "RSTREAM(SELECT s.ts AS a FROM s [RANGE 5 SECONDS], t [RANGE 9 SECONDS] WHERE s.k = t.k)"
    found = join_of(text, {"s": s, "t": t}, {"s": "ts", "t": "ts"}).to_df()
    assert found.count() == len([2, 4, 5])
    ended = join_of("D" + text[1:], {"s": s, "t": t}, {"s": "ts", "t": "ts"}).to_df()
    assert ended.count() == 1

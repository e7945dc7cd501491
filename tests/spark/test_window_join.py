from __future__ import annotations

import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, QueryError
from eddyline.options import JoinOptions
from eddyline.query.windows import RowsWindow
from eddyline.spark.window_join import WindowJoin
from eddyline.testing.join_strategies import join_cases
from eddyline.testing.reference_joins import bag, results

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def is_supported(case):
    windows = [each.window for each in case.query.inputs]
    return case.query.emits == "istream" and not any(isinstance(w, RowsWindow) for w in windows)


@given(case=join_cases(max_inputs=4).filter(is_supported), n_buckets=st.integers(1, 3))
@settings(max_examples=12, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # jobs are slow
def test_joins_are_those_of_the_definition(spark, case, n_buckets):
    frames = {name: spark.createDataFrame(rows) for name, rows in case.tables.items()}
    join = WindowJoin(case.query.text, frames, case.times, options=JoinOptions(buckets=n_buckets))
    wanted = results(case.query, case.tables, case.times).drop_columns("_at")
    assert bag(join.to_df().toArrow()) == bag(wanted)


def rows_of(spark, kind, values):
    times = [T0 + dt.timedelta(seconds=second) for second, _ in values]
    keys = pa.array([key for _, key in values], kind)
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": keys})
    return spark.createDataFrame(table)


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
    found = WindowJoin(text, {"s": df, "t": df}, {"s": "ts", "t": "ts"}).to_df()
    plain = df.alias("s").join(df.alias("t")).where("s.k = t.k").count()
    assert found.count() == plain == wanted


def test_windows_hold_both_ends(spark):
    s = rows_of(spark, pa.int32(), [(0, 1), (10, 1), (11, 1)])
    t = rows_of(spark, pa.int64(), [(10, 1), (21, 1)])
    text = "SELECT s.ts AS a, t.ts AS b FROM s [RANGE 10 SECONDS], t [NOW] WHERE s.k = t.k"
    found = WindowJoin(text, {"s": s, "t": t}, {"s": "ts", "t": "ts"}).to_df().toArrow().to_pylist()
    seconds = Counter(tuple((row[name] - T0).seconds for name in "ab") for row in found)
    assert seconds == Counter({(0, 10): 1, (10, 10): 1, (11, 21): 1})


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT * FROM s [ROWS 5], t WHERE s.k = t.j", NotSupportedError, "use [RANGE …]"),
        (
            "SELECT DSTREAM(*) FROM s, t WHERE s.k = t.j",
            NotSupportedError,
            "results come as ISTREAM",
        ),
        ("SELECT s.k FROM s, t WHERE s.k < t.j", NotSupportedError, "Cartesian product"),
    ],
)
def test_what_does_not_run_says_so(spark, text, error, message):
    s, t = rows_of(spark, pa.int32(), []), rows_of(spark, pa.int32(), [])
    frames = {"s": s, "t": t.withColumnsRenamed({"k": "j", "ts": "at"})}
    with pytest.raises(error, match=message.replace("[", r"\[").replace("…]", r"…\]")):
        WindowJoin(text, frames, {"s": "ts", "t": "at"}).to_df()


def test_an_event_time_is_a_column_and_a_time(spark):
    df = rows_of(spark, pa.int32(), [])
    text = "SELECT s.k FROM s, t WHERE s.k = t.k"
    with pytest.raises(QueryError, match="time column 'tz'"):
        WindowJoin(text, {"s": df, "t": df}, {"s": "tz", "t": "ts"})
    with pytest.raises(QueryError, match="'k' of 't' is of type int"):
        WindowJoin(text, {"s": df, "t": df}, {"s": "ts", "t": "k"}).to_df()

"""Event times without a time zone, in sessions whose zone puts its clocks forward and back."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import OptionError, QueryError
from eddyline.spark.relation import instant_of, local_micros
from tests.spark.joins.join_streams import run_to_end, stream_of, write_batch

pytestmark = pytest.mark.spark

ZONES = ("America/Los_Angeles", "Europe/Helsinki", "Australia/Lord_Howe")

SPRING = tuple(
    (datetime(2024, 3, 10, hour, minute), "x", v)
    for hour, minute, v in ((1, 50, 1), (2, 50, 2), (3, 10, 4), (5, 0, 8))
)
"""02:50 is no time of day in Los Angeles: Spark's cast makes it 03:50."""

AUTUMN = tuple(
    (datetime(2024, 11, 3, hour, minute), "x", v)
    for hour, minute, v in ((0, 50, 1), (1, 10, 2), (1, 50, 4), (2, 10, 8))
)
"""In Los Angeles 01:10 and 01:50 come twice."""

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])


def table_of(rows):
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def frame_of(spark, rows):
    return spark.createDataFrame(table_of(rows), "ts timestamp_ntz, k string, v bigint")


@pytest.fixture(params=("America/Los_Angeles", "Europe/Helsinki"))
def zone(request, change):
    change(zone=request.param)
    return request.param


@pytest.mark.parametrize("zone", ZONES)
def test_the_micros_of_a_wall_clock_are_those_of_its_reading_in_utc(spark, change, zone):
    change(zone=zone)
    readings = [
        datetime(1, 1, 1, 0, 0, 0, 1),
        datetime(1883, 11, 18, 12, 0),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        *(datetime(2024, 3, 10) + timedelta(minutes=10 * n) for n in range(36)),
        *(datetime(2024, 11, 3) + timedelta(minutes=10 * n, microseconds=n) for n in range(36)),
        datetime(9999, 12, 31, 23, 59, 59, 999_999),
    ]
    table = pa.table({"ts": pa.array([*readings, None], pa.timestamp("us"))})
    df = spark.createDataFrame(table, "ts timestamp_ntz")
    found = df.select("ts", F.expr(local_micros("ts")).alias("micros"))
    found = found.withColumn("again", F.expr(instant_of("micros", is_local=True)))
    assert dict(found.dtypes)["again"] == "timestamp_ntz"
    told = found.toArrow()
    wanted = [(each - datetime(1970, 1, 1)) // timedelta(microseconds=1) for each in readings]
    assert told["micros"].to_pylist() == [*wanted, None]
    assert told["again"].to_pylist() == [*readings, None]


CUT = (
    ("RANGE 1 HOUR SLIDE 1 HOUR", SPRING, [("02:00", 1), ("03:00", 2), ("04:00", 4)]),
    ("RANGE 1 HOUR SLIDE 1 HOUR", AUTUMN, [("01:00", 1), ("02:00", 6), ("03:00", 8)]),
    ("RANGE 1 DAY SLIDE 1 DAY", AUTUMN, [("00:00", 15)]),
    ("SESSION 30 MINUTES", SPRING, [("02:20", 1), ("03:40", 6)]),
    ("SESSION 30 MINUTES", AUTUMN, [("01:40", 3), ("02:40", 12)]),
)


@pytest.mark.parametrize(
    ("zone", "windows", "rows", "expected"),
    [*((ZONES[0], *case) for case in CUT), (ZONES[1], *CUT[0]), (ZONES[1], *CUT[-1])],
    indirect=["zone"],
)
def test_windows_of_a_batch_are_cut_by_the_wall_clock(spark, zone, windows, rows, expected):
    df = frame_of(spark, rows)
    found = el.window_aggregate(
        df, by=["k"], time="ts", windows=windows, aggregates={"v": "sum(v)"}
    ).to_df()
    assert dict(found.dtypes)["window"] == "struct<start:timestamp_ntz,end:timestamp_ntz>"
    told = sorted(map(tuple, found.select("window.end", "v").collect()))
    ends = [(f"{end:%H:%M}", v) for end, v in told]
    assert ends[: len(expected)] == expected, zone


def test_rows_of_a_batch_join_by_the_wall_clock_and_keys_keep_their_reading(spark, zone):
    df = frame_of(spark, SPRING)
    within = el.window_join(
        {"s": df, "t": df},
        on="s.k = t.k AND s.ts >= t.ts AND t.ts >= TIMESTAMP_NTZ '2024-03-10 02:00:00'",
        time={"s": "ts", "t": "ts"},
        windows={"s": "RANGE 30 MINUTES", "t": "RANGE 30 MINUTES"},
        select="s.v, t.v AS w, s.ts",
    ).to_df()
    assert sorted((row.v, row.w) for row in within.collect()) == [(2, 2), (4, 2), (4, 4), (8, 8)]
    assert dict(within.dtypes)["ts"] == "timestamp_ntz"
    equal = el.window_join(
        {"s": df, "t": df}, on="s.ts = t.ts", time={"s": "ts", "t": "ts"}, select="s.ts, t.v"
    ).to_df()
    assert sorted((row.ts, row.v) for row in equal.collect()) == [(ts, v) for ts, _, v in SPRING]


def test_models_are_over_the_wall_clock(spark, zone):
    df = frame_of(spark, SPRING)
    segments = el.models.fit(df, key="k", time="ts", within={"v": 0.01}, max_gap="3 hours")
    found = segments.sample("1 hour").toArrow()
    assert found["time"].type == pa.timestamp("us")
    told = dict(zip(found["time"].to_pylist(), found["v"].to_pylist(), strict=True))
    # From 01:50 to 02:50 the value goes from 1 to 2, and from 03:10 to 05:00 from 4 to 8.
    assert told[datetime(2024, 3, 10, 2)] == pytest.approx(1 + 10 / 60, abs=0.02)
    assert told[datetime(2024, 3, 10, 4)] == pytest.approx(4 + 4 * 50 / 110, abs=0.02)


@pytest.mark.large("runs two streams of four batches")
@pytest.mark.parametrize(
    ("lateness", "names"),
    [
        (None, ("hours", "over")),
        ("20 minutes", ("over", "pairs")),
        ("learned", ("hours", "pairs")),
    ],
)
@pytest.mark.filterwarnings("ignore::eddyline.errors.LatenessWarning")
def test_streams_by_the_wall_clock_lose_no_row(spark, change, tmp_path, lateness, names):
    change(zone="America/Los_Angeles")
    for number, row in enumerate(SPRING):
        write_batch(tmp_path, "s", number, table_of([row]))
    engine = el.Engine(spark)
    stream = stream_of(spark, tmp_path, "s")
    for name in ("s", "t"):
        engine.stream(name, stream, time="ts", lateness=lateness)
    texts = {
        "hours": "SELECT window.end AS e, SUM(v) AS v FROM s GROUP BY window(ts, '1 hour')",
        "over": "SELECT ts, v, SUM(v) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '30' MINUTES "
        "PRECEDING AND CURRENT ROW) AS w FROM s",
        "pairs": "SELECT s.v, t.v AS w FROM s [RANGE 30 MINUTES], t [RANGE 30 MINUTES] "
        "WHERE s.k = t.k",
    }
    found = {}
    for name in names:
        run = run_to_end(engine.query(texts[name], name=name), tmp_path / name)
        assert run.late_rows("s").num_rows == 0
        assert run.late_rows("s").schema.field("_time").type == pa.timestamp("us")
        rows = spark.read.parquet(str(tmp_path / name / "out"))
        found[name] = sorted(map(tuple, rows.collect()))
    day = datetime(2024, 3, 10)
    sums = [(ts, v, w) for (ts, _, v), w in zip(SPRING, (1, 2, 6, 8), strict=True)]
    wanted = {
        "hours": [(day + timedelta(hours=n), v) for n, v in ((2, 1), (3, 2), (4, 4))],
        "over": sums[: max(3, len(found.get("over", ())))],
        "pairs": [(1, 1), (2, 2), (2, 4), (4, 2), (4, 4), (8, 8)],
    }
    assert found == {name: wanted[name] for name in names}


def test_a_wall_clock_and_instants_are_not_one_time(spark, tmp_path):
    write_batch(tmp_path, "s", 0, table_of(SPRING))
    engine = el.Engine(spark)
    walls = stream_of(spark, tmp_path, "s")
    engine.stream("s", walls, time="ts")
    engine.stream("t", walls.withColumn("ts", F.col("ts").cast("timestamp")), time="ts")
    cast = r"'s' \(timestamp_ntz\), 't' \(timestamp\); cast the column of one stream"
    for text in (
        "SELECT s.v FROM s [RANGE 1 HOUR], t [RANGE 1 HOUR] WHERE s.k = t.k",
        "SELECT ts, v FROM s UNION ALL SELECT ts, v FROM t",
    ):
        with pytest.raises(QueryError, match=cast):
            engine.query(text).explain()


def test_the_lateness_of_a_wall_clock_is_checked_as_that_of_instants(spark, tmp_path):
    write_batch(tmp_path, "s", 0, table_of(SPRING))
    stream = stream_of(spark, tmp_path, "s")
    engine = el.Engine(spark)
    engine.stream("s", stream, time="ts", lateness="1 minute")
    with pytest.raises(OptionError, match="an interval such as '1 minute', got 'soon'"):
        engine.stream("t", stream, time="ts", lateness="soon")
    with pytest.raises(QueryError, match=r"'v' of .* is of type bigint; give a timestamp"):
        engine.stream("t", stream, time="v", lateness="1 minute")

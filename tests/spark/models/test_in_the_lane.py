"""Models of rows that tasks read from files are those of rows that Spark hands over."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import OptionError, QueryError
from eddyline.lane.choice import FILES
from eddyline.spark import bucketed
from eddyline.spark.models import files as lane_of_models
from tests.spark.joins.join_streams import commit_fails_once, n_jobs, run_to_end, told
from tests.spark.parquet_files import schema_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SECOND = 1_000_000
FIRST_S = 1_700_000_000
N_FILES = 4

FILES_ARE_ASKED = pytest.mark.parametrize("asked", ["files"], indirect=True)
BOTH_READ = pytest.mark.parametrize("reads_here", [False, True], indirect=True)
SAID = {False: "lane: tasks read the files", True: "lane: the driver reads the files"}


def rows_of(number, n_rows=400):
    """Return rows of a file: all kinds of keys, numbers that are none, and rows of one instant."""
    rng = np.random.default_rng(number)
    seconds = FIRST_S + 300 * number + rng.integers(-40 * (number > 0), 300, n_rows)
    gone = rng.random((7, n_rows)) < 0.04
    x = np.cumsum(rng.integers(-2, 3, n_rows)) / 2
    x[::37], x[1::41] = np.nan, np.inf
    wide = rng.choice([2**53 + 1, 2**53 + 3, 2**61 + 7, -5, 12], n_rows)
    return pa.table(
        {
            "unread": pa.array([[1, 2]] * n_rows),
            "ship": pa.array(rng.integers(0, 9, n_rows), mask=gone[0]),
            "port": pa.array(rng.choice(["ä", "Oslo", ""], n_rows), mask=gone[1]),
            "day": pa.array(rng.integers(0, 3, n_rows).astype(np.int32), pa.date32(), mask=gone[2]),
            "ts": pa.array(seconds * SECOND, mask=gone[3]).cast(pa.timestamp("us", "UTC")),
            "x": pa.array(x, mask=gone[4]),
            "whole": pa.array(wide, mask=gone[5]),
            "small": pa.array(rng.normal(size=n_rows).astype(np.float32), mask=gone[6]),
            "price": pa.array([None, 1] * (n_rows // 2), pa.decimal128(9, 2)),
            "level": pa.array(rng.integers(0, 3, n_rows).astype(float)),
        }
    )


def write(folder, number, rows=None):
    """Write a file that Spark reads behind those before it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:05d}.parquet"
    pq.write_table(rows or rows_of(number), path, row_group_size=150)
    os.utime(path, (FIRST_S + number,) * 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for number in range(N_FILES):
        write(folder, number)
    return folder


WITHIN = {"x": 1.0, "whole": 3.0, "small": "5 %"}


def fitted(df, key=("ship",), within=WITHIN, **more):
    return el.models.fit(df, key=key, time="ts", within=within, max_gap="20 seconds", **more)


def bag(df):
    """Return rows that can be compared, with NaN and NULL."""
    return sorted(map(repr, df.collect()))


def is_read_by_tasks(df):
    return "FileScan" not in df._jdf.queryExecution().toString()


# -- batch rows -----------------------------------------------------------------------------------

ASKED = {
    "segments": lambda s: s.to_df(),
    "ranges": lambda s: s.where("x > 0 AND whole < 100").changes(),
    "values": lambda s: s.avg("x", window="10 seconds").sample("5 seconds"),
    "pairs": lambda s: s.join(
        s.max("x", window="9 seconds"), "a.x < b.x", names=("a", "b")
    ).changes(),
}


@pytest.mark.large
@pytest.mark.parametrize("asked_for", ASKED)
@pytest.mark.parametrize(
    "key", [(), ("ship",), ("port",), ("ship", "port", "day"), ("day", "ship")], ids=" ".join
)
def test_segments_are_those_of_rows_that_spark_sorts(spark, folder, key, asked_for):
    df = spark.read.parquet(str(folder))
    wanted = ASKED[asked_for](fitted(df, key, lane="off"))
    found = ASKED[asked_for](fitted(df, key))
    assert is_read_by_tasks(found)
    assert not is_read_by_tasks(wanted)
    assert bag(found) == bag(wanted)
    assert bag(wanted)


@pytest.mark.parametrize("n_rows_of_a_bucket", [1, 700, 10**6])
def test_any_number_of_buckets_gives_the_same(spark, folder, monkeypatch, n_rows_of_a_bucket):
    monkeypatch.setattr(lane_of_models, "BUCKET_ROWS", n_rows_of_a_bucket)
    df = spark.read.parquet(str(folder))
    assert bag(fitted(df).to_df()) == bag(fitted(df, lane="off").to_df())


def test_rows_in_no_order_are_put_in_order(spark, tmp_path):
    rows = rows_of(0)
    shuffled = rows.take(pa.array(np.random.default_rng(1).permutation(len(rows))))
    for name, table in (("a", rows), ("b", shuffled)):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "0.parquet", row_group_size=64)
    wanted, found = (
        fitted(spark.read.parquet(str(tmp_path / name)), ("port", "ship")).to_df() for name in "ab"
    )
    assert is_read_by_tasks(found)
    assert bag(found) == bag(wanted)


@pytest.mark.parametrize(
    ("condition", "is_read"), [("ship > 3 AND port <> 'Oslo'", True), ("ship + 1 > 3", False)]
)
def test_conditions_on_entities_are_evaluated_over_the_files(spark, folder, condition, is_read):
    df = spark.read.parquet(str(folder))
    wanted, found = (
        fitted(df, ("ship", "port"), lane=lane).where(condition).where("x > 0").changes()
        for lane in ("off", "auto")
    )
    assert is_read_by_tasks(found) == is_read
    assert bag(found) == bag(wanted)
    assert bag(wanted)


REFUSED = {
    "computed": lambda df: fitted(df.selectExpr("ship", "ts", "x + 1 AS x"), within={"x": 1.0}),
    "a decimal": lambda df: fitted(df, within={"price": 1.0}),
    "a key with a fraction": lambda df: fitted(df, ("level",)),
    "filtered": lambda df: fitted(df.where("ship > 3")),
    "declared": lambda df: el.models.declare(
        df, key="ship", time="ts", model={"x": "x + small * t"}, horizon="9 seconds"
    ),
    "positions": lambda df: el.models.fit(
        df, key="ship", time="ts", track=("x", "small"), within={"track": 100.0}
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_spark_reads_what_it_has_to_compute(spark, folder, name):
    found = REFUSED[name](spark.read.parquet(str(folder))).to_df()
    assert not is_read_by_tasks(found)
    assert found.count() > 1


@pytest.mark.parametrize("bound", ["MOST_SORTED", "MOST_SORTED_BYTES"])
def test_of_very_many_rows_spark_sorts(spark, folder, monkeypatch, bound):
    monkeypatch.setattr(lane_of_models, bound, 100)
    assert not is_read_by_tasks(fitted(spark.read.parquet(str(folder))).to_df())


def test_spark_broadcasts_no_segments_whose_size_it_does_not_know(spark, folder):
    df = spark.read.parquet(str(folder))
    segments = fitted(df).to_df()
    plan = segments.join(spark.range(9), F.col("ship") == F.col("id"), "left")
    assert is_read_by_tasks(segments)
    assert "BroadcastExchange" in str(plan._jdf.queryExecution().executedPlan())  # of the numbers
    plan = spark.range(10**12).join(segments, F.col("ship") == F.col("id"))
    assert "BroadcastExchange" not in str(plan._jdf.queryExecution().executedPlan())


@pytest.mark.parametrize("name", ["__bucket", "__entity"])
def test_columns_with_names_of_temporary_ones_are_left_to_spark(spark, folder, name):
    df = spark.read.parquet(str(folder)).select("ts", "ship", F.col("x").alias(name))
    found = fitted(df, within={name: 1.0}).to_df()
    assert not is_read_by_tasks(found)
    assert found.count() > 10
    stream = spark.readStream.schema(schema_of(folder)).parquet(str(folder))
    stream = stream.select("ts", "ship", F.col("x").alias(name))
    with pytest.raises(QueryError, match=f"'{name}' is the name of a temporary column; rename"):
        fitted(stream, within={name: 1.0}, name="named").changes().start("memory")


def test_the_time_may_be_a_key(spark, folder):
    df = spark.read.parquet(str(folder))
    wanted, found = (fitted(df, ("ts", "ship"), lane=lane).to_df() for lane in ("off", "auto"))
    assert is_read_by_tasks(found)
    assert bag(found) == bag(wanted)
    assert len(bag(wanted)) > 10


def test_a_table_of_the_catalog_is_read_by_spark_unless_asked(spark, folder):
    spark.read.parquet(str(folder)).write.mode("overwrite").saveAsTable("laned_rows")
    try:
        table = spark.table("laned_rows")
        found = {lane: fitted(table, lane=lane).to_df() for lane in ("off", "auto", "on")}
        read = {lane: is_read_by_tasks(df) for lane, df in found.items()}
        assert read == {"off": False, "auto": False, "on": True}
        assert bag(found["on"]) == bag(found["off"])
    finally:
        spark.sql("DROP TABLE laned_rows")


def test_no_rows_give_no_segments(spark, tmp_path):
    pq.write_table(rows_of(0).slice(0, 0), tmp_path / "0.parquet")
    df = spark.read.parquet(str(tmp_path))
    assert fitted(df).to_df().collect() == []
    write(tmp_path, 1)
    assert fitted(spark.read.parquet(str(tmp_path))).where("ship > 99").to_df().collect() == []


def test_a_lane_that_is_none_is_an_error(spark, folder):
    with pytest.raises(OptionError, match="option 'lane' must be one of auto, on, off, got 'fast'"):
        fitted(spark.read.parquet(str(folder)), lane="fast")


# -- streams --------------------------------------------------------------------------------------


def streamed(spark, folder, **more):
    schema = schema_of(folder)
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return fitted(rows, ("ship", "port"), name="tracks", lateness="37 seconds", **more)


STREAMED = {
    "segments": lambda s: s.query(),
    "ranges": lambda s: s.where("x > 0 AND whole < 100").changes(),
    "values over ports": lambda s: s.avg("x", window="10 seconds").max("x", by="port").changes(),
    "alarms": lambda s: s.alarms(el.AlarmSet({"up": "x > 0", "here": "port = 'ä' AND x < 9"})),
}


def out(spark, folder):
    return bag(spark.read.parquet(str(folder / "out")))


@FILES_ARE_ASKED
@BOTH_READ
@pytest.mark.parametrize("name", STREAMED)
def test_a_restart_may_read_rows_and_the_next_one_files(spark, asked, reads_here, tmp_path, name):
    for number, lane in enumerate(["on", "off", "on", "auto"]):
        write(tmp_path / "rows", number)
        query = STREAMED[name](streamed(spark, tmp_path / "rows", lane=lane))
        run = run_to_end(query, tmp_path)
        said = "lane: no, because the option lane is 'off'" if lane == "off" else SAID[reads_here]
        assert said in told(run)
        assert lane == "off" or run.plan()["lane"] == FILES
    base = STREAMED[name](streamed(spark, tmp_path / "rows", lane="off"))
    wanted = run_to_end(base, tmp_path / "base")
    assert out(spark, tmp_path) == out(spark, tmp_path / "base")
    assert len(out(spark, tmp_path)) > 10
    late = [each.late_rows("rows").num_rows for each in (run, wanted)]
    assert late[0] == late[1] > 0


@FILES_ARE_ASKED
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_instants_are_the_same_in_another_time_zone(spark, asked, tmp_path, monkeypatch, kind):
    """Of batches that the driver answers, and of one that is left to tasks."""
    for number, n_rows in enumerate((400, 300, 400, 300)):
        rows = rows_of(number, n_rows)
        times = rows["ts"].cast(pa.timestamp("us", None if kind == "TIMESTAMP_NTZ" else "UTC"))
        write(tmp_path / "rows", number, rows.set_column(4, "ts", times))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    found = {}
    try:
        for lane in ("off", "on", "both"):
            if lane == "both":
                monkeypatch.setattr(bucketed, "MOST_READ", 350)
            segments = streamed(spark, tmp_path / "rows", lane="off" if lane == "off" else "on")
            query = STREAMED["ranges"](segments)
            run = query.start("memory", trigger="available_now")
            assert run.await_termination(240)
            found[lane] = run.to_arrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found["on"].schema == found["off"].schema == found["both"].schema
    wanted = sorted(map(repr, found["off"].to_pylist()))
    assert wanted
    for lane in ("on", "both"):
        assert sorted(map(repr, found[lane].to_pylist())) == wanted


@FILES_ARE_ASKED
@pytest.mark.parametrize("reads_here", [True], indirect=True)
@pytest.mark.parametrize("bound", ["MOST_READ", "MOST_READ_BYTES", "MOST_HELD_BYTES"])
def test_what_is_too_much_for_the_driver_is_left_to_tasks(
    spark, asked, reads_here, tmp_path, monkeypatch, bound
):
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    monkeypatch.setattr(bucketed, bound, 30)
    run = run_to_end(STREAMED["ranges"](streamed(spark, tmp_path / "rows", lane="on")), tmp_path)
    assert SAID[False] in told(run)
    run_to_end(
        STREAMED["ranges"](streamed(spark, tmp_path / "rows", lane="off")), tmp_path / "base"
    )
    assert out(spark, tmp_path) == out(spark, tmp_path / "base")


@FILES_ARE_ASKED
@BOTH_READ
def test_a_stream_may_have_its_time_as_a_key(spark, asked, reads_here, tmp_path):
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    schema = schema_of(tmp_path / "rows")
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    for lane in ("on", "off"):
        rows = reader.parquet(str(tmp_path / "rows"))
        segments = fitted(rows, ("ts", "ship"), name="tracks", lateness="1 minute", lane=lane)
        run = run_to_end(segments.where("x > 0").changes(), tmp_path / lane)
        assert lane == "off" or SAID[reads_here] in told(run)
    assert out(spark, tmp_path / "on") == out(spark, tmp_path / "off")
    assert out(spark, tmp_path / "on")


@FILES_ARE_ASKED
@BOTH_READ
def test_early_results_are_the_same(spark, asked, reads_here, tmp_path):
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    for lane in ("on", "off"):
        query = streamed(spark, tmp_path / "rows", lane=lane, results="early")
        run_to_end(query.where("x > 0").changes(), tmp_path / lane)
    assert out(spark, tmp_path / "on") == out(spark, tmp_path / "off")
    assert out(spark, tmp_path / "on")


def asked_in_sql(spark, folder, where="", **options):
    engine = el.Engine(spark)
    schema = schema_of(folder)
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    engine.stream("s", rows, time="ts", lateness="1 minute")
    text = (
        "SELECT ship, time, x FROM s MODEL x WITHIN 1 BY ship MAX GAP 20 SECONDS AT ts "
        f"WHERE x > 0{where} SAMPLE EVERY 5 SECONDS"
    )
    return engine.query(text, name="asked", **options)


@FILES_ARE_ASKED
@BOTH_READ
def test_a_model_in_sql_is_read_from_files(spark, asked, reads_here, tmp_path):
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    for lane in ("off", "on"):
        before = n_jobs(spark)
        query = asked_in_sql(spark, tmp_path / "rows", " AND ship <> 3", lane=lane)
        run = run_to_end(query, tmp_path / lane)
        n_own = n_jobs(spark) - before
    assert SAID[reads_here] in told(run)
    assert (n_own == 0) == reads_here
    assert out(spark, tmp_path / "on") == out(spark, tmp_path / "off")
    assert len(out(spark, tmp_path / "on")) > 10


@FILES_ARE_ASKED
@pytest.mark.parametrize("reads_here", [True], indirect=True)
def test_results_are_foreseen_by_those_of_a_row_where_conditions_leave_rows_out(
    spark, asked, reads_here, tmp_path, monkeypatch
):
    """Some results a batch, and files of 400 rows: both are below the bound."""
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    monkeypatch.setattr(bucketed, "MOST_READ", 2_000)
    run = run_to_end(asked_in_sql(spark, tmp_path / "rows", " AND ship <> 3", lane="on"), tmp_path)
    assert SAID[True] in told(run)


@FILES_ARE_ASKED
@BOTH_READ
def test_a_batch_that_fails_behind_its_file_is_there_once(
    spark, asked, reads_here, tmp_path, monkeypatch
):
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    commit_fails_once(monkeypatch, 1)
    with pytest.raises(Exception, match="the disk is gone"):
        run_to_end(asked_in_sql(spark, tmp_path / "rows", lane="on"), tmp_path / "on")
    run_to_end(asked_in_sql(spark, tmp_path / "rows", lane="on"), tmp_path / "on")
    run_to_end(asked_in_sql(spark, tmp_path / "rows", lane="off"), tmp_path / "off")
    assert out(spark, tmp_path / "on") == out(spark, tmp_path / "off")


@FILES_ARE_ASKED
def test_why_there_is_no_lane_is_said(spark, asked, tmp_path):
    write(tmp_path / "rows", 0)
    schema = schema_of(tmp_path / "rows")
    rows = spark.readStream.schema(schema).parquet(str(tmp_path / "rows"))
    model = {"x": "x + small * t"}
    query = el.models.declare(
        rows, key="ship", time="ts", model=model, horizon="9 seconds", lateness="37 seconds"
    )
    run = run_to_end(query.where("x > 0").changes(), tmp_path)
    assert "lane: no, because Spark computes the coefficients of equations" in told(run)
    query = streamed(spark, tmp_path / "rows").where("port = 'Oslo' AND x > 0").changes()
    run = run_to_end(query, tmp_path / "by keys")
    assert "lane: no, because Filter stands between the files and it" in told(run)

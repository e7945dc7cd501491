"""Models of rows that tasks read from files are those of rows that Spark hands over."""

from __future__ import annotations

import os
from functools import cache
from itertools import cycle

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
from tests.spark.models.tracks import FIRST_S, SECOND, stream_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

N_FILES = 3

FILES_ARE_ASKED = pytest.mark.parametrize("asked", ["files"], indirect=True)
DRIVER_READS = pytest.mark.parametrize("reads_here", [True], indirect=True)
DRIVER, TASKS = "lane: the driver reads the files", "lane: tasks read the files"


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


EVERY_KEY = [(), ("ship",), ("port",), ("ship", "port", "day"), ("day", "ship")]


@pytest.mark.large
@pytest.mark.parametrize(
    ("key", "asked_for"),
    [
        *((key, "segments") for key in EVERY_KEY),
        ((), "values"),
        (("port",), "pairs"),
        (("ship", "port", "day"), "ranges"),
    ],
    ids=str,
)
def test_segments_are_those_of_rows_that_spark_sorts(spark, folder, key, asked_for):
    df = spark.read.parquet(str(folder))
    wanted = ASKED[asked_for](fitted(df, key, lane="off"))
    found = ASKED[asked_for](fitted(df, key))
    assert is_read_by_tasks(found)
    assert not is_read_by_tasks(wanted)
    assert bag(found) == bag(wanted)
    assert bag(wanted)


def test_any_number_of_buckets_gives_the_same(spark, folder, monkeypatch):
    df = spark.read.parquet(str(folder))
    wanted = bag(fitted(df, lane="off").to_df())
    for n_rows_of_a_bucket in (40, 700, 10**6):  # more buckets than entities, fewer, and one
        monkeypatch.setattr(lane_of_models, "BUCKET_ROWS", n_rows_of_a_bucket)
        assert bag(fitted(df).to_df()) == wanted


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
    stream = stream_of(spark, folder, 1).select("ts", "ship", F.col("x").alias(name))
    with pytest.raises(QueryError, match=f"'{name}' is the name of a temporary column; rename"):
        fitted(stream, within={name: 1.0}, name="named").changes().start("memory")


@pytest.mark.large
def test_the_time_may_be_a_key(spark, folder):
    df = spark.read.parquet(str(folder))
    wanted, found = (fitted(df, ("ts", "ship"), lane=lane).to_df() for lane in ("off", "auto"))
    assert is_read_by_tasks(found)
    assert bag(found) == bag(wanted)
    assert len(bag(wanted)) > 10


@pytest.mark.large
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


def streamed(spark, folder, key=("ship", "port"), **more):
    return fitted(stream_of(spark, folder, 1), key, name="rows", lateness="37 seconds", **more)


def ranges(*rows, **more):
    return streamed(*rows, **more).where("x > 0 AND whole < 100").changes()


def in_sql(spark, folder, **options):
    engine = el.Engine(spark)
    engine.stream("rows", stream_of(spark, folder, 1), time="ts", lateness="37 seconds")
    text = (
        "SELECT ship, time, x FROM rows MODEL x WITHIN 1 BY ship MAX GAP 20 SECONDS AT ts "
        "WHERE x > 0 AND ship <> 3 SAMPLE EVERY 5 SECONDS"
    )
    return engine.query(text, name="asked", **options)


ALARMS = {"up": "x > 0", "here": "port = 'ä' AND x < 9"}
STREAMED = {
    "segments": lambda *rows, **more: streamed(*rows, **more).query(),
    "ranges": ranges,
    "early ranges": lambda *rows, **more: ranges(*rows, results="early", **more),
    "ranges of keys with the time": lambda *rows, **more: ranges(*rows, ("ts", "ship"), **more),
    "values over ports": lambda *rows, **more: (
        streamed(*rows, **more).avg("x", window="10 seconds").max("x", by="port").changes()
    ),
    "alarms": lambda *rows, **more: streamed(*rows, **more).alarms(el.AlarmSet(ALARMS)),
    "in SQL": in_sql,
}
TOO_MUCH = dict(
    zip(STREAMED, cycle([("MOST_READ", 0), ("MOST_READ_BYTES", 30), ("MOST_HELD_BYTES", 30)]))
)
"""What is too much for the driver, so that tasks read the files."""


def out(spark, folder):
    return bag(spark.read.parquet(str(folder / "out")))


@pytest.fixture(scope="module")
def read_by_spark(spark, tmp_path_factory):
    """Return a function: results of a query whose rows Spark reads, and how many rows are late."""

    @cache
    def results(name):
        place = tmp_path_factory.mktemp("base")
        for number in range(N_FILES):
            write(place / "rows", number)
        run = run_to_end(STREAMED[name](spark, place / "rows", lane="off"), place)
        return out(spark, place), run.late_rows("rows").num_rows

    return results


@FILES_ARE_ASKED
@DRIVER_READS
@pytest.mark.parametrize(
    "name",
    [
        name if name in {"ranges", "in SQL"} else pytest.param(name, marks=pytest.mark.large)
        for name in STREAMED
    ],
)
def test_driver_spark_and_tasks_may_take_turns(
    spark, asked, reads_here, tmp_path, monkeypatch, read_by_spark, name
):
    """Each start has one file more, and the results are those of a run in which Spark reads all."""
    wanted, n_late = read_by_spark(name)
    folder, n_jobs_of = tmp_path / "rows", {}
    starts = [
        ("on", DRIVER),
        ("off", "lane: no, because the option lane is 'off'"),
        ("auto", TASKS),
    ]
    for number, (lane, said) in enumerate(starts):
        if said == TASKS:
            monkeypatch.setattr(bucketed, *TOO_MUCH[name])
        write(folder, number)
        before = n_jobs(spark)
        run = run_to_end(STREAMED[name](spark, folder, lane=lane), tmp_path)
        n_jobs_of[said] = n_jobs(spark) - before
        assert said in told(run)
        assert lane == "off" or run.plan()["lane"] == FILES
    assert n_jobs_of[DRIVER] == 0 < n_jobs_of[TASKS]
    assert out(spark, tmp_path) == wanted
    assert len(wanted) > 10
    assert run.late_rows("rows").num_rows == n_late > 0


@FILES_ARE_ASKED
@DRIVER_READS
@pytest.mark.parametrize(
    "kind", ["TIMESTAMP", pytest.param("TIMESTAMP_NTZ", marks=pytest.mark.large)]
)
def test_instants_are_the_same_in_another_time_zone(
    spark, asked, reads_here, tmp_path, monkeypatch, change, kind
):
    """Of a batch that the driver answers, and of one that is left to tasks."""
    for number, n_rows in enumerate((300, 400)):
        rows = rows_of(number, n_rows)
        times = rows["ts"].cast(pa.timestamp("us", None if kind == "TIMESTAMP_NTZ" else "UTC"))
        write(tmp_path / "rows", number, rows.set_column(4, "ts", times))
    change(zone="Asia/Kathmandu")
    monkeypatch.setattr(bucketed, "MOST_READ", 350)
    found = {}
    for lane in ("off", "on"):
        run = ranges(spark, tmp_path / "rows", lane=lane).start("memory", trigger="available_now")
        assert run.await_termination(240)
        found[lane] = run.to_arrow()
    assert found["on"].schema == found["off"].schema
    wanted, given = (sorted(map(repr, found[lane].to_pylist())) for lane in ("off", "on"))
    assert given == wanted
    assert wanted


@pytest.mark.large
@FILES_ARE_ASKED
@DRIVER_READS
def test_results_are_foreseen_by_those_of_a_row_where_conditions_leave_rows_out(
    spark, asked, reads_here, tmp_path, monkeypatch
):
    """Some results a batch, and files of 400 rows: both are below the bound."""
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    monkeypatch.setattr(bucketed, "MOST_READ", 2_000)
    run = run_to_end(in_sql(spark, tmp_path / "rows", lane="on"), tmp_path)
    assert DRIVER in told(run)


@FILES_ARE_ASKED
@pytest.mark.parametrize(
    "reads_here", [pytest.param(False, marks=pytest.mark.large), True], indirect=True
)
def test_a_batch_that_fails_behind_its_file_is_there_once(
    spark, asked, reads_here, tmp_path, monkeypatch, read_by_spark
):
    for number in range(N_FILES):
        write(tmp_path / "rows", number)
    commit_fails_once(monkeypatch, 1)
    with pytest.raises(Exception, match="the disk is gone"):
        run_to_end(in_sql(spark, tmp_path / "rows", lane="on"), tmp_path)
    run_to_end(in_sql(spark, tmp_path / "rows", lane="on"), tmp_path)
    assert out(spark, tmp_path) == read_by_spark("in SQL")[0]


@pytest.mark.large
@FILES_ARE_ASKED
def test_why_there_is_no_lane_is_said(spark, asked, tmp_path):
    write(tmp_path / "rows", 0)
    rows = stream_of(spark, tmp_path / "rows", 1)
    model = {"x": "x + small * t"}
    query = el.models.declare(
        rows, key="ship", time="ts", model=model, horizon="9 seconds", lateness="37 seconds"
    )
    run = run_to_end(query.where("x > 0").changes(), tmp_path)
    assert "lane: no, because Spark computes the coefficients of equations" in told(run)
    query = streamed(spark, tmp_path / "rows").where("port = 'Oslo' AND x > 0").changes()
    run = run_to_end(query, tmp_path / "by keys")
    assert "lane: no, because Filter stands between the files and it" in told(run)

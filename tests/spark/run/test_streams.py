"""``el.all_of`` on streaming DataFrames and inside ``foreachBatch``."""

from __future__ import annotations

import time

import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import SourceError
from tests.spark.parquet_files import schema_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """Eight files of 5,000 rows each."""
    path = str(tmp_path_factory.mktemp("stream") / "in")
    frame = spark.range(40_000).withColumn("u", F.rand(5)).withColumn("v", F.rand(6))
    frame.repartition(8).write.parquet(path)
    return path


@pytest.fixture
def stream(spark, folder):
    schema = schema_of(folder)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(folder)


def conjunction(**options):
    often = el.predicate(lambda u: pc.less(u, 0.95), reads=["u"], name="often")
    seldom = el.predicate(lambda v: pc.less(v, 0.05), reads=["v"], name="seldom")
    return el.all_of("u > 0.001", "v > 0.0001", often, seldom, **options)


def expected(spark, folder):
    kept = spark.read.parquet(folder).where("u > 0.001 AND v > 0.0001 AND u < 0.95 AND v < 0.05")
    return sorted(row["id"] for row in kept.select("id").collect())


@pytest.mark.large
def test_any_sink_of_spark(spark, folder, stream, tmp_path):
    keep = conjunction()
    query = (
        stream.transform(keep)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "ckpt"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    got = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row["id"] for row in got.select("id").collect()) == expected(spark, folder)
    deadline = time.monotonic() + 20  # the listener hears of progress a moment later
    while keep.facts().blocks[1].totals.n_rows < 39_000 and time.monotonic() < deadline:
        time.sleep(0.1)
    native, arrow = keep.facts().blocks
    assert arrow.order == (1, 0)
    assert native.order == (0, 1)
    assert "el.Engine" in native.note


@pytest.mark.large
def test_inside_for_each_batch(spark, folder, stream, tmp_path):
    keep = conjunction()
    kept: list[int] = []

    def take(df, batch_id):
        kept.extend(row["id"] for row in df.transform(keep).select("id").collect())

    query = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "ckpt"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(kept) == expected(spark, folder)
    for _ in range(10):  # on busy cores learning keeps to its share of the time, and takes longer
        if keep.facts().blocks[1].order == (1, 0):
            break
        spark.read.parquet(folder).transform(keep).count()
    assert keep.facts().blocks[1].order == (1, 0)


@pytest.mark.large
@pytest.mark.parametrize("sink", ["parquet", "csv"])
def test_anything_of_spark_can_follow_a_run_that_writes_files(
    spark, folder, stream, tmp_path, sink
):
    engine = el.Engine(spark)
    engine.stream("rows", stream)
    query = engine.query("SELECT id, u AS `a b` FROM rows WHERE v < 0.05", name=f"to_{sink}")
    run = query.start(
        sink, path=tmp_path / "out", checkpoint=tmp_path / "ckpt", trigger="available_now"
    )
    follower = run.stream()
    assert follower.isStreaming
    assert [(each.name, each.dataType.simpleString()) for each in follower.schema] == [
        ("id", "bigint"),
        ("a b", "double"),
    ]
    assert run.await_termination(120)
    other = follower.writeStream.format("memory").queryName(f"of_{sink}")
    ended = other.trigger(availableNow=True).start()
    ended.awaitTermination()
    got = sorted(row["id"] for row in spark.table(f"of_{sink}").collect())
    want = spark.read.parquet(folder).where("v < 0.05").select("id").collect()
    assert got == sorted(row["id"] for row in want)
    assert len(got) == sum(record.n_kept for record in run.records)
    in_memory = query.start(trigger="available_now")
    with pytest.raises(SourceError, match="writes no files; start it with one of: parquet"):
        in_memory.stream()
    in_memory.stop()

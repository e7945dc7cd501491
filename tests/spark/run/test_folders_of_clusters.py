"""Folders on a cluster: those of the machine, whatever Spark's default file system is."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark, tmp_path, change):
    """An engine over a stream of five rows; a path without a scheme leads to no file system."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"v": pa.array(range(5), pa.int64())}), tmp_path / "in" / "0.parquet")
    engine = el.Engine(spark)
    stream = spark.readStream.schema("v BIGINT").parquet(f"file://{tmp_path}/in")
    engine.stream("s", stream)
    change(**{"fs.defaultFS": "nowhere://cluster"})
    return engine


def test_checkpoint_and_files_are_where_the_path_says(spark, engine, tmp_path):
    query = engine.query("SELECT v FROM s WHERE v > 1", name="kept")
    out = tmp_path / "a folder, 100 % odd"
    run = query.start("parquet", path=out, checkpoint=tmp_path / "ckpt", trigger="available_now")
    run.await_termination()
    assert sorted(pq.read_table(out)["v"].to_pylist()) == [2, 3, 4]
    assert (tmp_path / "ckpt" / "spark" / "commits" / "0").exists()
    assert run.stream().isStreaming


@pytest.mark.large
def test_queries_together_write_there_too(engine, tmp_path):
    for least in (1, 3):
        engine.query(f"SELECT v FROM s WHERE v > {least}", name=f"above_{least}")
    runs = engine.start_all(
        "parquet", path=tmp_path / "all", checkpoint=tmp_path / "ckpt", trigger="available_now"
    )
    for run in runs:
        run.await_termination()
    assert sorted(pq.read_table(tmp_path / "all" / "above_3")["v"].to_pylist()) == [4]


def test_a_checkpoint_elsewhere_is_refused(engine):
    query = engine.query("SELECT v FROM s", name="all")
    with pytest.raises(OptionError, match=r"got the URI 'hdfs://cluster/ckpt'; only state="):
        query.start("memory", checkpoint="hdfs://cluster/ckpt")


@pytest.mark.large
def test_state_in_a_temporary_folder_of_the_driver_is_refused_on_a_cluster(
    spark, timed, monkeypatch
):
    query = timed.query("SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]", name="n")
    filters = timed.query("SELECT v FROM s WHERE v > 1", name="kept")
    monkeypatch.setattr(spark.sparkContext, "master", "spark://cluster:7077")
    with pytest.raises(OptionError, match=r"all workers of spark://cluster:7077 .* checkpoint="):
        query.start("memory", trigger="available_now")
    run = filters.start("memory", trigger="available_now")  # keeps nothing that workers read
    run.await_termination()
    assert run.to_arrow().num_rows == 3


@pytest.fixture
def timed(spark, tmp_path):
    """An engine over a stream of five rows with an event time."""
    spark.range(5).selectExpr("id AS v", "timestamp_seconds(id) AS ts").write.parquet(
        str(tmp_path / "timed")
    )
    engine = el.Engine(spark)
    stream = spark.readStream.schema("v BIGINT, ts TIMESTAMP").parquet(str(tmp_path / "timed"))
    engine.stream("s", stream, time="ts", lateness="1 second")
    return engine

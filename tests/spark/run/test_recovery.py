"""What a kill can leave of a first batch, and a worker that is killed: all rows are there once."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import functions as F

import eddyline as el
from tests.spark.processes import Process

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCRIPT = """
import os, sys, pathlib
import pyarrow.compute as pc
import eddyline as el

source, out, ckpt, marker = sys.argv[1:5]
spark = el.session({"spark.driver.memory": "1g", "spark.local.dir": ckpt + "-tmp",
                    "spark.sql.warehouse.dir": ckpt + "-wh"}, master="local[2,3]")

def dies_once(v):
    if marker != "-":
        try:
            pathlib.Path(marker).unlink()
        except FileNotFoundError:
            pass
        else:
            os.kill(os.getpid(), 9)
    return pc.less(v, 0.5)

engine = el.Engine(spark)
stream = spark.readStream.schema(spark.read.parquet(source).schema)
engine.stream("s", stream.option("maxFilesPerTrigger", 1).parquet(source))
engine.function("half", dies_once, reads=["v"])
engine.function("often", lambda u: pc.less(u, 0.95))
query = engine.query("SELECT id FROM s WHERE often(u) AND half(v) AND u > 0.1", name="q")
run = query.start("parquet", path=out, checkpoint=ckpt, trigger="available_now")
print("started", flush=True)
run.await_termination()
print("n_rows", run.chain.operators[0].learning["arrow"].loop.totals.n_rows, flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("recovery") / "in")
    frame = spark.range(24_000).withColumn("u", F.rand(5)).withColumn("v", F.rand(6))
    frame.repartition(6).write.parquet(path)
    return path


def start(folder, tmp_path, marker="-"):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return Process(script, folder, tmp_path / "out", tmp_path / "ckpt", marker)


def finish_here(spark, folder, tmp_path):
    """Run a query of the same rows in this process."""
    engine = el.Engine(spark)
    stream = spark.readStream.schema(spark.read.parquet(folder).schema)
    engine.stream("s", stream.option("maxFilesPerTrigger", 1).parquet(folder))
    query = engine.query("SELECT id FROM s WHERE u < 0.95 AND v < 0.5 AND u > 0.1", name="q")
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    run = query.start("parquet", trigger="available_now", **where)
    assert run.await_termination(120)


def check(spark, folder, tmp_path):
    expected = spark.read.parquet(folder).where("u < 0.95 AND v < 0.5 AND u > 0.1")
    got = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(r["id"] for r in got.collect()) == sorted(
        r["id"] for r in expected.select("id").collect()
    )


@pytest.mark.large
def test_killed_while_the_first_batch_was_written(spark, folder, tmp_path):
    """Spark starts with a batch 0 only where nothing is in the folder of its log."""
    finish_here(spark, folder, tmp_path)
    checkpoint = tmp_path / "ckpt"
    shutil.rmtree(checkpoint / "eddyline")
    shutil.rmtree(tmp_path / "out")
    for left in ("offsets", "commits"):
        for path in (checkpoint / "spark" / left).iterdir():
            path.unlink()
        for name in (".0.7d2a3c.tmp", "..0.7d2a3c.tmp.crc"):
            (checkpoint / "spark" / left / name).write_text("")
    finish_here(spark, folder, tmp_path)
    check(spark, folder, tmp_path)
    assert not list((checkpoint / "spark").rglob("*7d2a3c*"))


@pytest.mark.large("starts a JVM")
def test_a_worker_killed_in_the_middle_counts_once(spark, folder, tmp_path):
    marker = tmp_path / "kill-me"
    marker.write_text("")
    output = start(folder, tmp_path, marker).finish()
    assert not marker.exists()
    check(spark, folder, tmp_path)
    counted = int(output.split("n_rows")[1].split()[0])
    reached_arrow = spark.read.parquet(folder).where("u > 0.1").count()
    assert counted == reached_arrow

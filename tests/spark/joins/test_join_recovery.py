"""A join that fails on the way and is started again gives what an uninterrupted one gives.

Crashes at any point are in ``tests/spark/run/test_crashes.py``.
"""

from __future__ import annotations

import errno
import os
import random

import duckdb
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import StateError
from eddyline.spark.sinks.files import FileSink
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import stream_of, write_batch
from tests.spark.processes import Process

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

N_ROWS = 400

TEXT = (
    "SELECT s.id AS a, t.id AS b, u.id AS c FROM s [RANGE 20 SECONDS], t [RANGE 10 SECONDS], "
    "u [RANGE 30 SECONDS] WHERE s.k = t.k AND t.k = u.k AND s.id % 3 <> u.id % 3"
)

SCRIPT = """
import os, pathlib, sys
import pandas as pd
import eddyline as el
from eddyline.spark.sinks.files import FileSink
from pyspark.sql import functions as F
from tests.spark.joins.join_streams import stream_of

folder, text = pathlib.Path(sys.argv[1]), sys.argv[2]
spark = el.session({"spark.driver.memory": "1g", "spark.local.dir": str(folder / "tmp"),
                    "spark.sql.warehouse.dir": str(folder / "wh")}, master="local[2,3]")
engine = el.Engine(spark)
for name in "stu":
    stream = stream_of(spark, folder, name, schema="id BIGINT, ts TIMESTAMP, k BIGINT")
    engine.stream(name, stream, time="ts", lateness="2 seconds")

def dies_once(ids: pd.Series) -> pd.Series:
    try:
        (folder / "kill-me").unlink()
    except FileNotFoundError:
        return ids
    os.kill(os.getpid(), 9)

def write(df, batch_id):
    dying = F.pandas_udf(dies_once, "bigint")
    sink.write(df.withColumn("a", dying("a")) if dies else df, batch_id)

dies = (folder / "kill-me").exists()
sink = FileSink(str(folder / "out"))
run = engine.query(text, name="q", buckets=2).start(
    write, checkpoint=str(folder / "ckpt"), trigger="available_now")
print("started", flush=True)
run.await_termination()
spark.stop()
print("done", flush=True)
"""


def rows_of(name, number):
    """The rows of a stream in one batch: seconds 4n to 4n + 5, so that batches overlap."""
    drawn = random.Random(f"{name}{number}")
    seconds = [4 * number + drawn.randrange(6) for _ in range(N_ROWS)]
    return pa.table(
        {
            "id": pa.array(range(number * N_ROWS, (number + 1) * N_ROWS), pa.int64()),
            "ts": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            "k": pa.array([drawn.randrange(900) for _ in seconds], pa.int64()),
        }
    )


def expected(n_batches):
    """Every result, by the conditions that the windows come to."""
    s, t, u = (pa.concat_tables(rows_of(name, at) for at in range(n_batches)) for name in "stu")
    assert s.num_rows == t.num_rows == u.num_rows
    return duckdb.sql(
        "WITH w AS (SELECT s.id AS a, t.id AS b, u.id AS c, greatest(s.ts, t.ts, u.ts) AS first, "
        "least(s.ts + INTERVAL 20 SECONDS, t.ts + INTERVAL 10 SECONDS, u.ts + INTERVAL 30 SECONDS) "
        "AS last FROM s JOIN t USING (k) JOIN u USING (k)) "
        "SELECT a, b, c FROM w WHERE first <= last AND a % 3 <> c % 3 ORDER BY ALL"
    ).fetchall()


def got(folder):
    return duckdb.sql(f"SELECT a, b, c FROM '{folder}/out/*.parquet' ORDER BY ALL").fetchall()


def command_for(folder):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return script, folder, TEXT


@pytest.mark.large("starts a JVM")
def test_a_worker_killed_in_the_middle_counts_once(spark, tmp_path):
    for number in range(2):
        for name in "stu":
            write_batch(tmp_path, name, number, rows_of(name, number))
    (tmp_path / "kill-me").write_text("")
    assert Process(*command_for(tmp_path)).finish().split()[-1] == "done"
    assert not (tmp_path / "kill-me").exists()
    assert got(tmp_path) == expected(2)


@pytest.fixture
def engine(spark, tmp_path):
    for number in range(2):
        for name in "stu":
            write_batch(tmp_path, name, number, rows_of(name, number))
    made = el.Engine(spark)
    for name in "stu":
        made.stream(name, stream_of(spark, tmp_path, name), time="ts", lateness="2 seconds")
    return made


def started(engine, folder, **options):
    query = engine.query(TEXT, buckets=2, **options)
    out, checkpoint = str(folder / "out"), str(folder / "ckpt")
    return query.start("parquet", path=out, checkpoint=checkpoint, trigger="available_now")


@pytest.mark.large
def test_a_full_disk_is_said_and_nothing_is_lost(engine, tmp_path):
    """The disk is full when the second manifest is written, and has room when started again."""
    run = started(engine, tmp_path)
    commit = run.chain._folder.commit
    disk = FullDisk(run.chain._folder.files)

    def fails(batch_id, identity, parts):
        if batch_id == 1:
            run.chain._folder.files = disk
        commit(batch_id, identity, parts)

    run.chain._folder.commit = fails
    with pytest.raises(StateError, match=r"batch 1 cannot be written .*No space left on device"):
        run.await_termination(120)
    again = started(engine, tmp_path, name="again")
    assert again.await_termination(120)
    assert got(tmp_path) == expected(2)


@pytest.mark.large
def test_windows_that_a_task_cannot_reach_are_said_and_nothing_is_lost(engine, tmp_path):
    runs = tmp_path / "ckpt" / "eddyline" / "state" / "runs"
    away = runs.with_name("runs-away")
    sink = FileSink(str(tmp_path / "out"))

    def loses_the_folder(df, batch_id):
        if batch_id == 1:
            runs.rename(away)
            runs.write_text("")
        sink.write(df, batch_id)

    query = engine.query(TEXT, buckets=2)
    checkpoint = str(tmp_path / "ckpt")
    run = query.start(loses_the_folder, checkpoint=checkpoint, trigger="available_now")
    with pytest.raises(StateError, match=r"bucket \d cannot read or write its windows in .*again"):
        run.await_termination(120)
    runs.unlink()
    away.rename(runs)
    again = started(engine, tmp_path, name="again")
    assert again.await_termination(120)
    assert got(tmp_path) == expected(2)


@pytest.mark.large
def test_a_batch_that_spark_runs_again_starts_from_the_same_windows(engine, tmp_path):
    run = started(engine, tmp_path)
    assert run.await_termination(120)
    n_results = facts_of(run).n_results
    for name in ("1", ".1.crc"):
        (tmp_path / "ckpt" / "spark" / "commits" / name).unlink()
    again = started(engine, tmp_path, name="again")
    assert again.await_termination(120)
    assert [record.batch_id for record in again.records] == [1]
    assert got(tmp_path) == expected(2)
    assert facts_of(again).n_results == n_results, "it is counted once"
    for name in "stu":
        write_batch(tmp_path, name, 2, rows_of(name, 2))
    last = started(engine, tmp_path, name="last")
    assert last.await_termination(120)
    assert got(tmp_path) == expected(3)


class FullDisk:
    """A file system without room."""

    def __init__(self, files):
        self._files = files

    def __getattr__(self, name):
        return getattr(self._files, name)

    def open_output_stream(self, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

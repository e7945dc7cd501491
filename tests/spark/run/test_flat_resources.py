"""Months of micro-batches: what a run holds stays flat from the hundredth to the last."""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
from pathlib import Path

import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.runtime.records import n_batches

pytestmark = [
    pytest.mark.spark,
    pytest.mark.large("takes 250 batches"),
    pytest.mark.soak,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="processes are seen in /proc"),
]

FIRST, LAST = 100, 250
"""Micro-batches after which is measured."""

MAX_RECORDS = 40
"""Kept in memory: so few that older ones are merged before the first measurement."""

MOST_GROWN_BYTES = 400 << 10
"""Python's own caches fill up for a while; 150 records would be 200 kB, and 150 batches of rows,
or of what Spark tells of a batch, some megabytes."""

TEXTS = {
    "conditions": "SELECT value FROM s WHERE is_odd(value) AND value % 3 = 0 AND value % 5 < 4",
    "aggregate": "SELECT value % 7 AS k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY value % 7",
}


@el.predicate("value")
def is_odd(value):
    return pc.equal(pc.bit_wise_and(value, 1), 1)


def java_of(process):
    """Return the process of Java that a process has started."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            fields = (each / "stat").read_text().rpartition(") ")
        except OSError:
            continue
        if "(java" in fields[0] and int(fields[2].split()[1]) == process:
            return each
    msg = f"process {process} has started no Java"
    raise AssertionError(msg)


def held(run, java):
    """Return what the run and its processes hold, but for the bytes of objects."""
    return {
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "open files of Java": len(list((java / "fd").iterdir())),
        "threads of Java": len(list((java / "task").iterdir())),
        "files of the checkpoint": sum(each.is_file() for each in run.checkpoint.rglob("*")),
    }


def traced_bytes():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def wait_for(run, batch_id):
    while not run.records or run.records[-1].batch_id < batch_id:
        assert run.isActive, run.streaming_query.exception()
        time.sleep(0.02)


@pytest.fixture
def _traced():
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_traced")
@pytest.mark.parametrize("kind", TEXTS)
def test_hundreds_of_batches(spark, tmp_path, kind):
    java = java_of(os.getpid())
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50)
    source = source.option("numPartitions", 1).option("advanceMillisPerBatch", 1_000)
    engine = el.Engine(spark)
    engine.stream("s", source.load(), time="timestamp", lateness="0 seconds")
    engine.function("is_odd", is_odd)
    query = engine.query(TEXTS[kind], name="months")
    run = query.start(nowhere, checkpoint=tmp_path / "ckpt", trigger="0 seconds")
    run._log._progress.max_records = MAX_RECORDS
    with run:
        wait_for(run, FIRST)
        before, bytes_before = held(run, java), traced_bytes()
        wait_for(run, LAST)
        after, bytes_after = held(run, java), traced_bytes()
    assert {name: after[name] for name in after if after[name] > 1.1 * before[name] + 4} == {}
    assert bytes_after - bytes_before < MOST_GROWN_BYTES
    assert n_batches(run.records) > LAST
    assert len(run.records) <= MAX_RECORDS
    assert sum(record.n_rows for record in run.records) == 50 * n_batches(run.records)


def nowhere(df, batch_id):
    df.write.format("noop").mode("append").save()

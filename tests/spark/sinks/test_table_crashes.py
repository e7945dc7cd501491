"""A run that writes a table and ends at any point of a batch: each row is there once.

Processes that are killed are at the end.
"""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

import eddyline as el
from eddyline.sources.table_files import DeltaFiles, IcebergFiles
from eddyline.spark.sinks.tables import DeltaSink, IcebergSink
from tests.spark.joins.join_streams import stream_of, write_batch
from tests.spark.processes import Process
from tests.spark.run.crashes import Crashes
from tests.spark.sinks import killed_tables
from tests.spark.sinks.test_tables import Place

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

POINTS = {
    "a batch begins",
    "the sink is asked",
    "files of a table are there",
    "a transaction is to come",
    "a transaction is done",
    "every sink has its rows",
}
"""Those that every batch of a table can pass."""

MERGE_POINTS = POINTS - {"files of a table are there"}


def table_crashes(patch, folder, seed):
    """Return crashes that also end lives around the transactions of tables."""
    crashes = Crashes(patch, folder, random.Random(seed))

    def around(owner, name, before, after):
        method = getattr(owner, name)

        def marked(*args):
            if before:
                crashes.reach(before)
            result = method(*args)
            if name == "write":
                result = [*result]
            if after:
                crashes.reach(after)
            return result

        patch.setattr(owner, name, marked)

    for files in (DeltaFiles, IcebergFiles):
        around(files, "write", None, "files of a table are there")
    for sink in (DeltaSink, IcebergSink):
        for name in ("append", "merge"):
            around(sink, name, "a transaction is to come", "a transaction is done")
    return crashes


@pytest.mark.large("starts a query once for each point at which it crashes")
@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_each_row_is_there_once_after_a_crash_at_any_point(
    spark, tmp_path, monkeypatch, kind, mode
):
    """The driver writes the files of so few rows, so that each point is passed in it."""
    n_batches = 10
    for batch in range(n_batches):
        ids = range(4 * batch, 4 * batch + 4)
        write_batch(tmp_path, "in", batch, pa.table({"id": ids, "k": [i % 6 for i in ids]}))
    (tmp_path / "out").mkdir()
    (tmp_path / "ckpt").mkdir()
    place = Place(kind, tmp_path / "out")
    how = {} if mode == "append" else {"mode": "merge", "on": ["k"], "newest_by": "id"}
    crashes = table_crashes(monkeypatch, tmp_path, 7)

    def start():
        engine = el.Engine(spark)
        engine.stream("s", stream_of(spark, tmp_path, "in"))
        query = engine.query("SELECT id, k FROM s WHERE id <> 5", name="q")
        checkpoint = tmp_path / "ckpt"
        return [
            query.start(kind, checkpoint=checkpoint, availableNow=True, **place.arguments(**how))
        ]

    while crashes.live(start):
        pass
    rows = [(i, i % 6) for i in range(4 * n_batches) if i != 5]
    if mode == "merge":
        rows = [*{k: (i, k) for i, k in rows}.values()]
    assert set(crashes.points) >= (POINTS if mode == "append" else MERGE_POINTS)
    assert place.rows() == sorted(rows, key=str), crashes.points


@pytest.mark.large("starts a JVM for each kill")
@pytest.mark.usefixtures("soon_started")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_killed_at_random_instants(tmp_path, kind):
    """Tasks write the files of a part of the batches."""
    n_batches = killed_tables.N_BATCHES
    killed_tables.write_input(tmp_path)
    module = "-m", killed_tables.__name__, tmp_path, kind
    drawn = random.Random(5)
    for _ in range(2):
        process = Process(*module)
        process.await_start()
        time.sleep(drawn.uniform(0.5, 3.0))
        process.kill()
    assert "done q" in Process(*module).finish()
    ids = Place(kind, tmp_path / "out").table()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == n_batches * killed_tables.BATCH_ROWS

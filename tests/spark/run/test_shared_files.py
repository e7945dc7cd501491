"""Queries that run together and write files: one job writes those of all that are alike."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.spark.sinks.files import FileSink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

N_FILES, N_ROWS = 3, 300

QUERIES = {
    "third": "SELECT *, id + 1 AS next FROM s WHERE id % 3 = 0",
    "low": "SELECT *, id + 1 AS next FROM s WHERE id < 100",  # later batches have none of them
    "all": "SELECT *, id + 1 AS next FROM s WHERE id >= 0",
    "none": "SELECT *, id + 1 AS next FROM s WHERE id < 0",
    "other": "SELECT id FROM s WHERE id % 2 = 0",
}
WANTED = {
    "third": lambda id: id % 3 == 0,
    "low": lambda id: id < 100,
    "all": lambda id: True,
    "none": lambda id: False,
    "other": lambda id: id % 2 == 0,
}


@pytest.fixture
def engine(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(N_FILES):
        ids = list(range(number * N_ROWS, (number + 1) * N_ROWS))
        pq.write_table(pa.table({"id": ids, "s": [f"x{id}" for id in ids]}), folder / f"{number}")
        time.sleep(0.01)  # files are read in the order of their times
    schema = spark.read.parquet(str(folder)).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    made = el.Engine(spark)
    made.stream("s", source.parquet(str(folder)))
    for name, text in QUERIES.items():
        made.query(text, name=name)
    return made


def started(engine, tmp_path):
    return engine.start_all(
        "parquet",
        path=str(tmp_path / "out"),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger="available_now",
    )


def check(tmp_path):
    for name, is_wanted in WANTED.items():
        table = pq.read_table(tmp_path / "out" / name)
        ids = [id for id in range(N_FILES * N_ROWS) if is_wanted(id)]
        assert sorted(table["id"].to_pylist()) == ids, name
        if name != "other":
            assert table.column_names == ["id", "s", "next"]
            assert table["s"].to_pylist() == [f"x{id}" for id in table["id"].to_pylist()]
        left = list((tmp_path / "out" / name / "_eddyline").glob("*"))
        assert not left, f"{name} has staging folders: {left}"


@pytest.mark.large
def test_each_query_has_its_rows_and_no_more_files_than_it_needs(engine, tmp_path, monkeypatch):
    jobs = []
    save = FileSink.writer
    monkeypatch.setattr(FileSink, "writer", lambda *args: jobs.append(args) or save(*args))
    assert all(run.await_termination(120) for run in started(engine, tmp_path))
    check(tmp_path)
    assert len(list((tmp_path / "out" / "none").glob("*.parquet"))) == 1  # tells the columns
    # A batch: one job of those alike, one of the other; and the first file of the one without rows.
    assert len(jobs) == 2 * N_FILES + 1


@pytest.mark.large
@pytest.mark.parametrize(("batch", "name"), [(1, "all"), (0, "other")])
def test_a_batch_that_failed_between_two_sinks_is_there_once(
    engine, tmp_path, monkeypatch, batch, name
):
    take = FileSink.take

    def stumbling(self, folder, batch_id, *names):
        if batch_id == batch and self.root.endswith(name):
            raise OSError("no space left on device")
        take(self, folder, batch_id, *names)

    monkeypatch.setattr(FileSink, "take", stumbling)
    runs = started(engine, tmp_path)
    with pytest.raises(Exception, match="no space left"):
        runs[0].await_termination(120)
    if batch == 0:
        assert list((tmp_path / "out" / "none").glob("*.parquet")), "it was written before"
    monkeypatch.setattr(FileSink, "take", take)
    again = started(engine, tmp_path)
    assert all(run.await_termination(120) for run in again)
    check(tmp_path)

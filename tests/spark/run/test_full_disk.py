"""A disk that is full where a sink writes."""

import shutil
import subprocess
import tempfile

import pytest

import eddyline as el
from eddyline.errors import SourceError
from eddyline.spark.run.run import reworded

pytestmark = pytest.mark.spark


@pytest.fixture
def small_disk():
    """A file system of 400 KiB that is mounted for the test."""
    folder = tempfile.mkdtemp()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.large
@pytest.mark.parametrize("sink", ["parquet", "csv"])
def test_a_full_disk_is_named_and_a_restart_with_room_writes_every_row_once(
    spark, tmp_path, small_disk, sink
):
    rows = spark.range(60_000).selectExpr("id", "sha2(CAST(id AS STRING), 256) AS text")
    rows.write.parquet(str(tmp_path / "in"))
    engine = el.Engine(spark)
    engine.stream("s", spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in")))
    query = engine.query("SELECT id, text FROM s WHERE id % 2 = 0")

    def run(path):
        where = {"path": path, "checkpoint": tmp_path / "checkpoint"}
        return query.start(sink, **where, trigger="available_now")

    with pytest.raises(SourceError, match="No space left on device; free space") as caught:
        run(small_disk).await_termination(120)
    assert small_disk in caught.value.message
    assert "\n" not in caught.value.message
    assert run(tmp_path / "out").await_termination(120)
    written = getattr(spark.read, sink)(str(tmp_path / "out"))
    assert sorted(int(row[0]) for row in written.collect()) == list(range(0, 60_000, 2))


def test_another_full_disk_is_told_apart_from_that_of_the_sink():
    spill = OSError("Job aborted: java.io.IOException: No space left on device\n\tat java.base/…")
    error = reworded(spill, "q")
    assert isinstance(error, SourceError)
    said = "query 'q' cannot write to a disk, such as that of spark.local.dir: No space left"
    assert error.message.startswith(said)
    assert "twice" not in error.message, "a sink that is a function may get a batch twice"
    assert reworded(other := OSError("Connection refused"), "q") is other

"""Spark sets permissions of local files as ``chmod`` does, and starts no process for it."""

import os
import shutil
import stat
import subprocess
import sys
import textwrap

import pytest

from eddyline.spark.local_files import NAME

MODES = (0o644, 0o600, 0o755, 0o700, 0o777, 0o000, 0o1777, 0o640)


@pytest.fixture
def files(spark):
    """The file system of the JVM for local files."""
    jvm, settings = spark._jvm, spark._jsc.hadoopConfiguration()
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), settings)


def path_of(spark, path):
    return spark._jvm.org.apache.hadoop.fs.Path(str(path))


def permission_of(spark, mode):
    return spark._jvm.org.apache.hadoop.fs.permission.FsPermission(format(mode, "03o"))


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_system_of_the_session_is_the_one_that_starts_no_process(spark, files):
    assert files.getClass().getName() == NAME
    settings = spark._jsc.hadoopConfiguration()
    checked = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(settings)
    assert checked.getClass().getName() == NAME, "what asks for checksums gets it, too"


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_a_permission_is_what_chmod_sets(spark, files, tmp_path, mode, is_folder):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        path.mkdir() if is_folder else path.touch()
        path.chmod(0o2770 if is_folder else 0o664)  # set-group-ID: new files are of its group
    subprocess.run(["chmod", format(mode, "04o"), theirs], check=True)
    for _ in range(2):  # the second time it has it already
        files.setPermission(path_of(spark, ours), permission_of(spark, mode))
        assert oct(mode_of(ours)) == oct(mode_of(theirs))


def test_a_permission_is_set_at_the_other_end_of_a_link(spark, files, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    files.setPermission(path_of(spark, tmp_path / "link"), permission_of(spark, 0o600))
    assert mode_of(tmp_path / "file") == 0o600
    assert (tmp_path / "link").is_symlink()


def test_a_file_that_is_not_there_has_no_permission(spark, files, tmp_path):
    missing = path_of(spark, tmp_path / "missing")
    with pytest.raises(Exception, match=r"NoSuchFileException.*missing"):
        files.setPermission(missing, permission_of(spark, 0o600))


def test_files_that_spark_writes_have_the_permissions_of_its_setting(spark, tmp_path):
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "out"))
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    assert oct(mode_of(part)) == oct(0o644)
    assert oct(mode_of(tmp_path / "out")) == oct(0o755)
    assert list((tmp_path / "out").glob(".part-*.crc")), "checksums are written as before"


STREAM = """
    import sys
    import eddyline as el

    folder, *settings = sys.argv[1:]
    spark = el.session(dict(each.split("=", 1) for each in settings), master="local[2]")
    for _ in range(2):
        spark.range(5).coalesce(1).write.mode("append").parquet(folder + "/in")
    open(folder + "/started", "w").close()  # what comes before belongs to no batch
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    rows = stream.parquet(folder + "/in")
    query = (
        rows.writeStream.option("checkpointLocation", folder + "/checkpoint").format("parquet")
        .option("path", folder + "/out").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    print(len(query.recentProgress), spark.read.parquet(folder + "/out").count())
    spark.stop()
"""


@pytest.mark.large(reason="each case starts a Spark of its own")
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_batch_of_a_stream_starts_no_process(tmp_path, is_ours):
    """Programs that Hadoop starts are found first in a folder where they write down their call."""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in ("chmod", "readlink", "ls", "stat", "bash"):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\n[ -e {tmp_path}/started ] && echo "{name} $*" >> {calls}\n'
            f'exec {shutil.which(name)} "$@"\n'
        )
        program.chmod(0o755)
    theirs = "org.apache.hadoop.fs.RawLocalFileSystem"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(STREAM), tmp_path]
        + ([] if is_ours else [f"spark.hadoop.fs.file.impl={theirs}"]),
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["2", "10"]
    started = calls.read_text().splitlines() if calls.exists() else []
    if is_ours:
        assert started == []
    else:
        assert any(call.startswith("chmod") for call in started), "the programs are not the first"

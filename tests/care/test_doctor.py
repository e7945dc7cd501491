from __future__ import annotations

import json
import os
import re
import sys
from collections import namedtuple

import pytest
from typer.testing import CliRunner

from eddyline.care import doctor
from eddyline.care.doctor import check_checkpoint, check_machine, is_fine
from eddyline.cli import app
from eddyline.errors import StateError
from tests.care.conftest import committed

Usage = namedtuple("Usage", "total used free")


def said_of(findings, what, level):
    (found,) = [each.said for each in findings if each.what == what and each.level == level]
    return found


def levels(findings):
    return {each.what: each.level for each in findings}


@pytest.fixture
def sound(monkeypatch):
    """A machine without a fault, whatever this one is."""
    monkeypatch.setattr(doctor.java, "problem", lambda: None)
    monkeypatch.setattr(doctor.java, "in_use", lambda: ("/opt/java", 17))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(0, 0, 100 << 30))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_a_sound_machine(sound):
    found = check_machine()
    assert is_fine(found), [each for each in found if each.level == "error"]
    known = levels(found)
    assert said_of(found, "Java", "ok") == "17 (/opt/java)"
    assert known["Python"] == known["Java"] == known["pyspark"] == known["Arrow"] == "ok"


@pytest.mark.parametrize(("free", "level"), [(1 << 30, "warning"), (1 << 20, "error")])
def test_little_room(sound, monkeypatch, free, level):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(0, 0, free))
    assert "make room" in said_of(check_machine(), "temporary files", level)


def test_a_place_that_cannot_be_written(sound, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'gone'}")
    found = [each.level for each in check_machine() if each.what == "temporary files"]
    assert found == ["ok", "error"]


def test_extras_that_are_there_and_how_to_get_others(sound, monkeypatch):
    assert re.fullmatch(
        r"[a-z, ]*metrics, report, serve[a-z, ]*", said_of(check_machine(), "extras", "ok")
    )
    installed = doctor._installed
    gone = {"prometheus-client", "grpcio"}  # the second is asked for by an extra of pyspark
    monkeypatch.setattr(doctor, "_installed", lambda n: None if n in gone else installed(n))
    said = said_of(check_machine(), "extras", "ok")
    assert said.endswith("; for more: pip install 'eddyline[connect,metrics]'")
    assert "serve" in said.partition(";")[0]


def test_no_java(sound, monkeypatch):
    monkeypatch.setattr(doctor.java, "problem", lambda: "Spark needs Java 17")
    assert said_of(check_machine(), "Java", "error") == "Spark needs Java 17"


def test_packages_that_are_not_supported(sound, monkeypatch):
    needed = ["pandas<2,>=1", "no-such-package>=1", "pytest<1; extra == 'dev'", "numpy>=1"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: needed)
    found = check_machine()
    assert "pip install 'pandas>=1,<2'" in said_of(found, "pandas", "error")
    assert "not installed" in said_of(found, "no-such-package", "error")
    assert "it is optional" in said_of(found, "pytest", "warning")
    assert levels(found)["numpy"] == "ok"


def test_an_old_python(sound, monkeypatch):
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.9.2")
    assert "this is 3.9.2" in said_of(check_machine(), "Python", "error")


def test_variables_that_change_what_runs(sound, monkeypatch, tmp_path):
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    monkeypatch.setenv("EDDYLINE_ADAPTIVE", "0")
    monkeypatch.setenv("ARROW_PRE_0_15_IPC_FORMAT", "1")
    found = check_machine()
    assert str(other) in said_of(found, "workers", "warning")
    assert "unset it" in said_of(found, "adaptation", "warning")
    assert "ARROW_PRE_0_15" in said_of(found, "Arrow", "error")
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "gone"))
    assert "which is not there" in said_of(check_machine(), "workers", "error")


def test_a_package_that_cannot_be_imported(sound, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert "force-reinstall numba" in said_of(check_machine(), "Arrow", "error")


# -- checkpoints --------------------------------------------------------------------------------


def test_a_checkpoint_that_is_right(checkpoint):
    found = check_checkpoint(checkpoint)
    assert is_fine(found)
    assert said_of(found, "checkpoint: history", "ok") == "query 'q', 2 micro-batches, 2 decisions"
    assert "after batch 1" in said_of(found, "checkpoint: learned state", "ok")
    assert "batch 1 is done" in said_of(found, "checkpoint: batches", "ok")
    assert said_of(found, "checkpoint: state", "ok").startswith("1 file after batch 1")
    assert "PredicateError" in said_of(found, "checkpoint: last run", "warning")


def test_looking_changes_nothing(checkpoint):
    def content():
        return {each: each.read_bytes() for each in checkpoint.rglob("*") if each.is_file()}

    before = content()
    check_checkpoint(checkpoint)
    assert content() == before


def test_several_queries_below_a_folder(checkpoint):
    found = check_checkpoint(checkpoint.parent)
    assert levels(found)["ckpt: state"] == "ok"


def test_a_batch_that_has_begun_runs_again(checkpoint):
    (checkpoint / "spark" / "offsets" / "2").write_text("v1")
    assert "runs it again" in said_of(check_checkpoint(checkpoint), "checkpoint: batches", "ok")


@pytest.mark.parametrize("how", ["damaged", "cut off", "missing"])
def test_files_of_state_that_are_not_what_was_written(checkpoint, how):
    (path,) = checkpoint.rglob("r1.rows.arrow")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    if how == "missing":
        for each in checkpoint.rglob("r1.*"):
            each.unlink()
    else:
        path.write_bytes(content if how == "damaged" else content[:100])
    said = said_of(check_checkpoint(checkpoint), "checkpoint: state", "error")
    assert "r1." in said
    assert "restore the checkpoint from a backup" in said


def test_a_manifest_that_cannot_be_read(checkpoint):
    (path,) = checkpoint.rglob("manifest-*.json")
    path.write_text("{")
    assert "restore it" in said_of(check_checkpoint(checkpoint), "checkpoint", "error")


@pytest.mark.parametrize("name", ["view", "journal", "progress", "format", "manifest-00000001"])
@pytest.mark.parametrize("content", ['{"a":' * 100_000 + "\n", "null\n", "\0\n"])
def test_files_of_any_shape_are_told_of(checkpoint, name, content):
    (path,) = checkpoint.rglob(f"{name}.json*")
    path.write_text(content)
    assert not is_fine(check_checkpoint(checkpoint))


def test_pinned_plans_that_cannot_be_read_stop_the_next_start(checkpoint):
    assert said_of(check_checkpoint(checkpoint), "checkpoint: pinned plans", "ok") == "none"
    path = checkpoint / "eddyline" / "pins.json"
    path.write_text('{"native": {"plan": ["b", "a"], "batch_id": 3}}')
    assert said_of(check_checkpoint(checkpoint), "checkpoint: pinned plans", "ok") == "1"
    path.write_text("{")
    said = said_of(check_checkpoint(checkpoint), "checkpoint", "error")
    assert "move the file away to adapt again" in said


def test_state_that_is_behind_the_batches(checkpoint):
    (checkpoint / "spark" / "commits" / "2").write_text("v1")
    said = said_of(check_checkpoint(checkpoint), "checkpoint: state", "error")
    assert "batch 2 is done, and the newest state" in said


def test_a_run_that_goes_on_meanwhile_is_no_fault(checkpoint, monkeypatch):
    committed(checkpoint, 2)
    from eddyline.state import run_files  # noqa: PLC0415 - patched

    opened = run_files.open_tables

    def while_it_runs(files, paths, checksum):
        monkeypatch.setattr(run_files, "open_tables", opened)
        for batch_id in (3, 4):
            committed(checkpoint, batch_id)
        return opened(files, paths, checksum)

    monkeypatch.setattr(run_files, "open_tables", while_it_runs)
    said = said_of(check_checkpoint(checkpoint), "checkpoint: state", "ok")
    assert "after batch 4" in said


@pytest.mark.parametrize("content", ['{"format": 2, "batch_id": 7}', "{"])
def test_learned_state_that_is_dropped(checkpoint, content):
    (checkpoint / "eddyline" / "state.json").write_text(content)
    said = said_of(check_checkpoint(checkpoint), "checkpoint: learned state", "warning")
    assert "no answer changes" in said


def test_a_checkpoint_of_a_later_version(checkpoint):
    later = {"format": 99, "eddyline": "9.0.0"}
    (checkpoint / "eddyline" / "format.json").write_text(json.dumps(later))
    found = check_checkpoint(checkpoint)
    assert any("install eddyline 9.0.0" in each.said for each in found if each.level == "error")


def test_a_folder_without_one(tmp_path):
    with pytest.raises(StateError, match="holds no checkpoint"):
        check_checkpoint(tmp_path)


# -- the command --------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)], env={"COLUMNS": "160"})


def test_the_command_says_each_thing_on_a_line(sound, checkpoint):
    done = call(checkpoint)
    assert done.exit_code == 0, done.output
    assert "ok       Java: 17 (/opt/java)" in done.output
    assert "warning  checkpoint: last run: the last run failed" in done.output


def test_an_error_is_the_exit_code(sound, checkpoint):
    os.remove(next(checkpoint.rglob("r1.rows.arrow")))
    done = call(checkpoint, "--json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert [each["what"] for each in found if each["level"] == "error"] == ["checkpoint: state"]

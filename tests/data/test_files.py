"""Files that are replaced whole, and files of lines."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest
from pyarrow import fs

from eddyline.data.files import (
    append,
    go_on_with,
    replace_file,
    replace_in,
    sync_files,
    whole_lines,
)


@pytest.fixture
def steps(monkeypatch):
    """What is flushed and renamed, in order."""
    seen = []
    fsync, rename = os.fsync, Path.replace

    def noted(handle):
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        seen.append("folder" if is_folder else "file")
        fsync(handle)

    def renamed(path, target):
        seen.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", renamed)
    return seen


def test_the_draft_is_on_the_disk_before_its_name_and_the_name_before_it_counts(tmp_path, steps):
    replace_file(tmp_path / "state", b"one")
    assert steps == ["file", "rename", "folder"]
    replace_in(fs.LocalFileSystem(), str(tmp_path / "state"), b"two")
    assert steps == ["file", "rename", "folder"] * 2
    assert (tmp_path / "state").read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["state"], "no draft is left"


def test_what_a_file_needs_is_on_the_disk_before_its_name(tmp_path, steps):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").write_text("a")
    needs = [str(tmp_path / "runs"), str(tmp_path / "runs" / "a")]
    replace_in(fs.LocalFileSystem(), str(tmp_path / "state"), b"one", needs)
    assert sorted(steps[:3]) == ["file", "file", "folder"]
    assert steps[3:] == ["rename", "folder"]


def test_other_file_systems_do_what_they_can(tmp_path, steps):
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    replace_in(files, "state", b"one")
    sync_files(files, ".", ["state"])
    assert (steps, (tmp_path / "state").read_bytes()) == ([], b"one")


def test_files_are_flushed_with_the_folder_that_names_them(tmp_path, steps):
    for name in "abc":
        (tmp_path / name).write_text(name)
    sync_files(fs.LocalFileSystem(), str(tmp_path), ["a", "c"])
    assert sorted(steps) == ["file", "file", "folder"]
    sync_files(fs.LocalFileSystem(), str(tmp_path), [])
    assert len(steps) == 3


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    replace_file(tmp_path / "state", b"one")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "state", b"two")
    assert (tmp_path / "state").read_bytes() == b"one"
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_lines_are_appended_and_read(tmp_path):
    path = tmp_path / "folder" / "lines"
    assert go_on_with(path) == 0
    assert append(path, [b"a", b"bc"]) == 5
    assert append(path, []) == 0
    assert whole_lines(path) == [b"a", b"bc"]
    assert go_on_with(path) == 5


@pytest.mark.parametrize(("content", "whole"), [(b"a\nb", b"a\n"), (b"ab", b""), (b"", b"")])
def test_half_a_line_is_left_out_and_cut_off(tmp_path, content, whole):
    path = tmp_path / "lines"
    path.write_bytes(content)
    assert whole_lines(path) == whole.splitlines()
    assert path.read_bytes() == content
    assert go_on_with(path) == len(whole)
    assert path.read_bytes() == whole


def test_half_a_line_that_had_no_room_is_taken_back(tmp_path):
    path = tmp_path / "lines"
    append(path, [b"first"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            append(path, [b"x" * 50])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    append(path, [b"next"])
    assert whole_lines(path) == [b"first", b"next"]

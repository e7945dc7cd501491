from __future__ import annotations

import resource

import pytest

from eddyline.data.files import append, go_on_with, whole_lines


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

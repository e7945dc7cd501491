from __future__ import annotations

import json

import pytest

from eddyline.errors import StateError
from eddyline.runtime.checkpoint import FORMAT, Format, read_format, write_format


@pytest.fixture
def own(tmp_path):
    return tmp_path / "ckpt" / "eddyline"


def written(own, content):
    own.mkdir(parents=True, exist_ok=True)
    (own / "format.json").write_text(content)


def test_a_checkpoint_says_its_format_and_who_wrote_it(own):
    assert read_format(own) is None, "of before there was a number"
    write_format(own)
    found = read_format(own)
    assert found.format == FORMAT
    assert found.eddyline


def test_what_is_right_is_not_written_again(own, monkeypatch):
    write_format(own)
    monkeypatch.setattr("eddyline.runtime.checkpoint.replace_file", None)
    write_format(own)


def test_one_of_an_earlier_version_becomes_one_of_this(own):
    written(own, json.dumps({"format": 0, "eddyline": "0.0.9"}))
    assert read_format(own) == Format(0, "0.0.9")
    write_format(own)
    assert read_format(own).format == FORMAT


@pytest.mark.parametrize("asked", [read_format, write_format])
def test_one_of_a_later_version_is_refused_and_says_what_to_install(own, asked):
    later = json.dumps({"format": FORMAT + 1, "eddyline": "9.1.0", "fields": "of then"})
    written(own, later)
    with pytest.raises(StateError, match=rf"is of format {FORMAT + 1}, .*install eddyline 9\.1\.0"):
        asked(own)
    assert (own / "format.json").read_text() == later, "whoever wrote it goes on with it"


def test_one_that_cannot_be_read_is_named(own):
    written(own, "{")
    with pytest.raises(StateError, match=r"cannot read .*format\.json"):
        write_format(own)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "ckpt").write_text("")
    with pytest.raises(StateError, match=r"cannot (read|write)"):
        write_format(tmp_path / "ckpt" / "eddyline")

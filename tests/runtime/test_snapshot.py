from __future__ import annotations

import json
from pathlib import Path

import pytest

from eddyline.errors import StateError
from eddyline.runtime.checkpoint import LEARNED_FORMAT, SnapshotFile
from eddyline.runtime.records import BatchRecord

STATE = {"arrow": {"order": [1, 0], "window": [], "inf": None}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "eddyline" / "state.json"


def saved(path, state=STATE, batch_id=7):
    SnapshotFile(path, "abc").save(state, batch_id)
    return path


def test_state_comes_back_with_its_batch(path):
    assert SnapshotFile(saved(path), "abc").load() == (STATE, 7)
    saved(path, {"arrow": {}}, 8)
    assert SnapshotFile(path, "abc").load() == ({"arrow": {}}, 8)
    assert [each.name for each in path.parent.iterdir()] == ["state.json"]


def test_there_is_none_yet(path):
    assert SnapshotFile(path, "abc").load() is None


def test_state_of_another_query_is_not_used(path):
    assert "another query" in SnapshotFile(saved(path), "xyz #1").load()
    assert SnapshotFile(path, "xyz #1", {"abc"}).load() == (STATE, 7), "its state is of use"


def test_state_over_other_columns(path):
    SnapshotFile(path, "abc #1").save(STATE, 7)
    assert "columns" in SnapshotFile(path, "abc #2").load()
    assert SnapshotFile(path, "abc #1").load() == (STATE, 7)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read"),
        (b'{"format": 2, "finge', "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"7", "cannot be read"),
        (b"{}", "cannot be read"),
        (json.dumps({"format": LEARNED_FORMAT + 1}).encode(), f"format {LEARNED_FORMAT + 1}"),
        (json.dumps({"format": LEARNED_FORMAT}).encode(), "cannot be read"),
        (json.dumps({"format": LEARNED_FORMAT, "identity": "abc"}).encode(), "cannot be read"),
        (
            json.dumps({"format": LEARNED_FORMAT, "identity": "abc", "state": 1, "batch_id": 2}),
            "cannot be read",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(path, content, why):
    saved(path)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert why in SnapshotFile(path, "abc").load()


def test_a_folder_in_its_place_says_why(path):
    path.mkdir(parents=True)
    assert "cannot be read" in SnapshotFile(path, "abc").load()


@pytest.mark.parametrize("step", ["replace", "open"])
def test_a_failed_save_leaves_the_old_state(path, monkeypatch, step):
    saved(path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, step, full)
    with pytest.raises(StateError, match="No space left on device; free space"):
        SnapshotFile(path, "abc").save({"arrow": {}}, 8)
    monkeypatch.undo()
    assert SnapshotFile(path, "abc").load() == (STATE, 7)


def test_a_killed_save_leaves_the_old_state(path):
    saved(path)
    path.with_name("state.json.4711.part").write_text('{"format": 2, "fin')
    assert SnapshotFile(path, "abc").load() == (STATE, 7)
    saved(path, {"arrow": {}}, 8)
    assert SnapshotFile(path, "abc").load() == ({"arrow": {}}, 8)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot save the learned state") as caught:
        SnapshotFile(tmp_path / "file" / "state.json", "abc").save(STATE, 1)
    assert caught.value.facts["path"].endswith("state.json")
    assert isinstance(caught.value.__cause__, OSError)


def test_a_batch_that_runs_again_counts_once_also_where_what_was_learned_is_dropped(tmp_path):
    before = SnapshotFile(tmp_path / "state.json", "query #1")
    before.counters.count(BatchRecord(3, 10, 2, 0.5))
    before.save({}, 3)
    file = SnapshotFile(tmp_path / "state.json", "query #2")
    assert isinstance(file.load(), str)
    file.counters.count(BatchRecord(3, 10, 2, 0.5))
    file.counters.count(BatchRecord(4, 7, 1, 0.5))
    assert (file.counters.n_batches, file.counters.n_rows, file.counters.n_kept) == (2, 17, 3)

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import numpy as np
import pytest

from eddyline.errors import StateError
from eddyline.runtime.journal import Journal, JournalEntry


def entry(batch_id=1, event="order", **given):
    return JournalEntry(batch_id, "arrow", event, ["a", "b"], ["b", "a"], given)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "eddyline" / "journal.jsonl"


def test_entries_come_back_from_the_file(path):
    entries = [entry(1, ratio=0.25, filter="a"), entry(2, event="restore", n_tuples=3)]
    journal = Journal(path)
    journal.extend(entries[:1])
    journal.extend(entries[1:])
    assert list(Journal(path)) == entries
    assert [json.loads(line)["batch_id"] for line in path.read_text().splitlines()] == [1, 2]


def test_the_file_is_there_before_anything_is_decided(path):
    Journal(path).extend([])
    assert path.read_text() == ""


@pytest.mark.parametrize("missing", [1, 2, 20, 60])
def test_half_a_last_line_is_cut_off(path, missing):
    Journal(path).extend([entry(1), entry(2)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-missing])
    journal = Journal(path)
    assert [each.batch_id for each in journal] == [1]
    journal.extend([entry(3)])
    assert [each.batch_id for each in Journal(path)] == [1, 3]


def test_half_of_the_only_line(path):
    path.parent.mkdir()
    path.write_text('{"batch_id": 1, "comp')
    assert len(Journal(path)) == 0
    assert path.read_text() == ""


@pytest.mark.parametrize("line", ['{"batch_id": 1,', '{"batch": 1}', "[1]", "7"])
def test_a_line_that_is_no_entry_is_named(path, line):
    Journal(path).extend([entry(1)])
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(StateError, match=r"line 2 of the journal .*journal.jsonl is no entry"):
        Journal(path)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot write the journal"):
        Journal(tmp_path / "file" / "journal.jsonl").extend([entry()])
    (tmp_path / "folder").mkdir()
    with pytest.raises(StateError, match="cannot read the journal"):
        Journal(tmp_path / "folder")


def test_values_that_are_not_json_become_text(path):
    odd = entry(ratio=np.float64(0.5), n=np.int64(3), gone={1}, at=path, no=float("nan"))
    Journal(path).extend([odd])
    (back,) = Journal(path)
    assert back.evidence["ratio"] == 0.5
    assert back.evidence["n"] == "3"
    assert back.evidence["gone"] == "{1}"
    assert back.evidence["at"] == str(path)
    assert np.isnan(back.evidence["no"])


def test_a_journal_without_a_file():
    journal = Journal()
    journal.extend([entry(1), entry(2), entry(3, event="restore")])
    assert len(journal) == 3
    assert journal[0].batch_id == 1
    assert journal.rows()[2]["event"] == "restore"


def test_entries_say_when_they_were_noted_and_keep_it(path):
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    Journal(path).extend([entry(1)])
    (noted,) = Journal(path)
    assert before <= dt.datetime.fromisoformat(noted.at) <= dt.datetime.now(dt.UTC)
    other = Journal()
    other.extend([replace(noted, at="2026-01-01T00:00:00Z")])
    assert other[0].at == "2026-01-01T00:00:00Z"
    assert other[0] == noted, "the same decision"
    path.write_text('{"batch_id": 1, "component": "arrow", "event": "order"}\n')
    assert [each.at for each in Journal(path)] == [""], "of a journal of before"

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import numpy as np
import pytest

from eddyline.errors import StateError
from eddyline.runtime.journal import (
    KINDS,
    Journal,
    JournalEntry,
    n_left_out,
    read_entries,
    thinned,
)


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


@pytest.mark.parametrize(
    "line",
    [
        *('{"batch_id": 1,', '{"batch": 1}', "[1]", "7", "[" * 100_000),
        '{"batch_id": null, "component": "a", "event": "b"}',
        '{"batch_id": 1, "component": [], "event": "b"}',
        '{"batch_id": 1, "component": "a", "event": "b", "evidence": null}',
    ],
)
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


def test_what_is_missed_or_restored_is_no_other_plan():
    assert entry(event="kept").is_plan_change
    assert not any(entry(event=each).is_plan_change for each in ("missed", "restore"))


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


def test_a_journal_over_its_budget_keeps_changes_longest(path):
    journal = Journal(path, max_bytes=60_000)
    for batch_id in range(100):
        finding = JournalEntry(batch_id, "arrow", "stale", evidence={"filter": "a"})
        of_tasks = [entry(batch_id, partition=at) for at in range(3)]
        journal.extend([*of_tasks, finding, entry(batch_id)])
        assert path.stat().st_size <= 60_000
    total, *kept = journal
    n = total.evidence
    assert (total.component, total.event) == ("run", "left_out")
    assert n["of_tasks"] + n["findings"] + n["changes"] == n["n_entries"] == n_left_out(journal)
    assert n["n_entries"] + len(kept) == 5 * 100
    assert n["changes"] == n["findings"] == 0 < n["of_tasks"], "those of tasks went first"
    assert [each.batch_id for each in kept] == sorted(each.batch_id for each in kept)
    assert list(Journal(path)) == list(journal)


@pytest.mark.parametrize(
    ("kind", "left"), [("of_tasks", {"of_tasks"}), ("findings", {"of_tasks", "findings"})]
)
def test_what_is_left_out_first(kind, left):
    entries = [entry(1, partition=0), JournalEntry(1, "arrow", "stale"), entry(1), entry(2)]
    sizes = {each.kind: len(each.to_json()) + 1 for each in entries}
    room = sum(len(each.to_json()) + 1 for each in entries) - sum(sizes[each] for each in left)
    total, *kept = thinned(entries, room)
    assert {name for name in KINDS if total.evidence[name]} == left
    assert [each.kind for each in kept] == [k for k in (*KINDS, "changes") if k not in left]


def test_what_a_person_decided_and_what_is_of_the_run_is_kept_longest():
    plan = ["a", "b"]
    assert JournalEntry(1, "native", "adapt", plan, plan, {"by": "person"}).kind == "changes"
    assert JournalEntry(1, "run", "restore", after=None).kind == "changes"
    assert JournalEntry(1, "native", "sample", plan, plan).kind == "findings"


def test_entries_that_count_others_are_counted_as_what_they_count():
    of_task = JournalEntry(3, "arrow", "left_out", evidence={"partition": 0, "n_entries": 7})
    first = thinned([of_task, entry(4), entry(5)], 150)
    assert first[0].evidence["n_entries"] == 8, "seven that a task counted, and one change"
    again = thinned([*first, entry(6)], 150)
    assert again[0].evidence == {"n_entries": 9, "of_tasks": 7, "findings": 0, "changes": 2}
    assert [each.batch_id for each in again[1:]] == [6]


def test_a_reader_leaves_the_file_as_it_is(path):
    Journal(path).extend([entry(1), entry(2)])
    path.write_bytes(written := path.read_bytes()[:-5])
    assert [each.batch_id for each in read_entries(path)] == [1]
    assert path.read_bytes() == written, "the process that writes it is at it"

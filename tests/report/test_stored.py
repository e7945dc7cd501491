from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eddyline.errors import StateError
from eddyline.report.sections import RunView, Section, Text, sections_json
from eddyline.report.stored import VIEW_EVERY_S, VIEW_SHARE, RunLog, read_run
from eddyline.runtime.checkpoint import find_runs
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import BatchRecord

SECTIONS = (Section("", (Text("it goes well"),)),)


def view():
    return RunView("q", "SELECT 1", ("read s",), sections=SECTIONS, settings={"seed": "1"})


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(tmp_path, clock):
    return RunLog(tmp_path / "eddyline", is_kept=True, clock=clock)


def batch(batch_id, seconds=1.0):
    return BatchRecord(batch_id, 10, 3, seconds, 1_000.0 + batch_id)


def test_a_run_is_read_as_it_was_kept(tmp_path, log):
    entry = JournalEntry(0, "native", "order", ["a", "b"], ["b", "a"])
    log.note([entry])
    log.add(batch(0))
    log.write(view)
    run = read_run(tmp_path)
    assert (run.query, run.text, run.steps, run.settings) == (
        *("q", "SELECT 1", ("read s",)),
        {"seed": "1"},
    )
    assert list(run.sections) == sections_json(SECTIONS)
    assert (run.status, run.error) == ("running", "")
    assert run.batches == (batch(0),)
    assert run.journal == (entry,)
    assert run.history.last("order") == entry
    assert log.records == [batch(0)]
    assert log.entries == run.journal


@pytest.mark.parametrize(("status", "error"), [("ended", ""), ("failed", "ValueError: no")])
def test_how_it_ended_is_said_once(tmp_path, log, status, error):
    log.write(view, status, error)
    assert (read_run(tmp_path).status, read_run(tmp_path).error) == (status, error)
    another = RunLog(tmp_path / "eddyline", is_kept=True)
    another.write(view)
    log.write(view, "ended")
    assert read_run(tmp_path).status == "running", "that of the run that went on"


def test_before_the_first_view_the_folder_gives_the_name(tmp_path, log):
    run = read_run(tmp_path)
    assert (run.query, run.text, run.written_at, run.batches) == (tmp_path.name, "", 0.0, ())


def test_views_are_written_now_and_then(tmp_path, log, clock):
    written = []

    def made():
        written.append(clock.now)
        return view()

    for batch_id in range(100):
        clock.now = float(batch_id)
        log.add(batch(batch_id, seconds=1e6))
        log.show(made)
    assert written == [VIEW_EVERY_S * n for n in range(1, 10)]


def test_views_take_a_small_share_of_the_time_of_batches(log, clock):
    def slow():
        log._budget.spend(1e9)
        written.append(clock.now)
        return view()

    written = []
    for batch_id in range(3_000):
        clock.now = 10.0 * batch_id
        log.add(batch(batch_id))
        log.show(slow)
    assert 0 < len(written) <= 1 + 3_000 * VIEW_SHARE, "a second each, of batches of a second"


def test_words_that_fail_end_no_run(tmp_path, log):
    def broken():
        raise ValueError("no words")

    log.write(broken)
    assert "ValueError: no words" in json.dumps(read_run(tmp_path).sections)


def test_a_file_whose_name_is_in_another_encoding_ends_no_run(tmp_path, log):
    told = "caf\udce9.yml cannot be read"
    log.add(replace(batch(0), lines=(told,)))
    log.write(lambda: replace(view(), sections=(Section("", (Text(told),)),)))
    stored = read_run(tmp_path)
    assert stored.batches[0].lines == ("caf?.yml cannot be read",)
    assert "caf?.yml cannot be read" in json.dumps(stored.sections)


def test_a_place_that_is_full_ends_no_run(tmp_path, log, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eddyline.report.stored.replace_file", full)
    log.write(view)
    assert read_run(tmp_path).written_at == 0.0


def test_without_a_checkpoint_nothing_is_written_for_others(tmp_path):
    log = RunLog(tmp_path / "eddyline", is_kept=False)
    log.add(batch(0))
    log.write(view)
    assert [each.name for each in (tmp_path / "eddyline").iterdir()] == ["journal.jsonl"]
    assert log.records == [batch(0)]


def test_a_folder_that_is_no_checkpoint(tmp_path):
    with pytest.raises(StateError, match="is no checkpoint of eddyline"):
        read_run(tmp_path)
    with pytest.raises(StateError, match="holds no checkpoint of eddyline"):
        find_runs(tmp_path / "nowhere")


def test_a_view_that_is_damaged_is_named(tmp_path, log):
    (tmp_path / "eddyline" / "view.json").write_text("{")
    with pytest.raises(StateError, match=r"cannot read the view .*view.json"):
        read_run(tmp_path)


def test_the_runs_below_a_common_folder(tmp_path):
    folders = [tmp_path / name for name in ("alone", "_shared/s-1", "_shared/s-2")]
    for folder in folders:
        RunLog(folder / "eddyline", is_kept=True)
    (tmp_path / "alone" / "eddyline" / "state" / "eddyline").mkdir(parents=True)
    assert find_runs(tmp_path) == sorted(folders)
    assert find_runs(tmp_path / "alone") == [tmp_path / "alone"]

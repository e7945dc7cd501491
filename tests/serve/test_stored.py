"""Runs of other processes and of the past, from their files."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from eddyline.errors import StateError
from eddyline.report.sections import sections_json, sections_of
from eddyline.report.stored import save_view
from eddyline.runtime.checkpoint import JOURNAL, OWN, PROGRESS, VIEW
from eddyline.runtime.journal import Journal
from eddyline.runtime.records import Progress
from eddyline.serve import runs as stored
from eddyline.serve.graph import graph_of
from eddyline.serve.runs import StoredRuns, key_of
from tests.report.fakes import NODES, a_join_run, a_run
from tests.serve.fakes import TOKEN
from tests.serve.test_server import get


def kept(folder, view, status="running", error=""):
    """Write a run as its process would."""
    own = folder / OWN
    own.mkdir(parents=True)
    Journal(own / JOURNAL).extend(view.history.journal)
    progress = Progress(own / PROGRESS)
    for each in view.history.batches:
        progress.add(each)
    save_view(own / VIEW, view, at=1.0, status=status, error=error)
    return progress


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "LEAST_AGE_S", 0.0)
    monkeypatch.setattr(stored, "SHARE", 1e9)
    monkeypatch.setattr(stored, "LOOK_EVERY_S", 0.0)
    kept(tmp_path / "a", replace(a_run(20), query="first"))
    kept(tmp_path / "b", replace(a_run(5), query="second"), "failed", "SourceError: no disk")
    return StoredRuns([tmp_path])


def test_the_page_of_a_checkpoint_is_that_of_its_run(page, runs):
    first, second = runs.runs()
    client = page(*runs.runs())
    assert "1 failed" in client.get("/").text
    text = client.get(f"/run/{key_of(first)}").text
    for part in ("first", "Order in force", "Plan now", "What changed", "sample_prob", first.place):
        assert part in text
    assert "no disk" in client.get(f"/run/{key_of(second)}").text


def test_the_graph_of_a_checkpoint_is_that_of_its_run(tmp_path):
    view = replace(a_join_run(), nodes=NODES)
    kept(tmp_path / "c", view)
    (run,) = StoredRuns([tmp_path / "c"]).runs()
    read = run.run_view()
    assert read.nodes == NODES
    made = graph_of(read, read.sections, {})
    assert made.boxes == graph_of(view, view.sections, {}).boxes
    assert made.boxes


def test_a_place_is_told_as_it_is_and_not_as_it_was_asked_for(tmp_path, runs):
    (found, *_) = StoredRuns([tmp_path / "b" / ".." / "a"]).runs()
    assert found.place == next(each.place for each in runs.runs() if each.name == "first")


def test_what_its_process_writes_is_read(tmp_path, runs):
    (first, _) = runs.runs()
    assert len(first.records_after(-1)) == 20
    batch = replace(a_run(20).history.batches[-1], batch_id=20)
    Progress(tmp_path / "a" / OWN / PROGRESS).add(batch)
    assert [each.batch_id for each in first.records_after(19)] == [20]
    assert first.is_running()


def test_a_checkpoint_that_comes_to_be_is_found(tmp_path, runs):
    kept(tmp_path / "c", replace(a_run(5), query="third"))
    assert [each.name for each in runs.runs()] == ["first", "second", "third"]


def test_a_checkpoint_that_cannot_be_read_says_so(tmp_path, runs, page):
    (first, _) = runs.runs()
    with (tmp_path / "a" / OWN / PROGRESS).open("ab") as file:
        file.write(b"no json\n")
    client = page(first)
    text = client.get("/").text
    assert "line 21 of the progress" in text
    assert "1 failed" in text


def test_a_folder_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(StateError, match="no checkpoint"):
        StoredRuns([tmp_path])


def test_nothing_is_changed(tmp_path, runs, page):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    client = page(*runs.runs())
    for each in runs.runs():
        client.get(f"/run/{key_of(each)}")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_sections_come_back_as_they_were():
    sections = list(a_run(5).sections)
    assert sections_json(sections_of(sections_json(sections))) == sections_json(sections)
    with pytest.raises(StateError, match="an explanation cannot be read"):
        sections_of([{"title": "a", "parts": [{"kind": "picture"}]}])


@pytest.mark.large
def test_the_command_serves_until_it_is_interrupted(tmp_path, runs):
    command = [sys.executable, "-m", "eddyline", "serve", str(tmp_path), "--token", TOKEN]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        assert "the page is at http://127.0.0.1:" in line
        port = int(line.partition("127.0.0.1:")[2].partition("/")[0])
        text = get(type("Server", (), {"port": port})).read().decode()
        assert "first" in text
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0

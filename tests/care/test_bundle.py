from __future__ import annotations

import json
import zipfile
from functools import cache

import pytest
from typer.testing import CliRunner

from eddyline.care.bundle import (
    Redaction,
    error_class,
    evidence,
    settings,
    without_literals,
    write_bundle,
)
from eddyline.care.doctor import check_machine
from eddyline.cli import app
from eddyline.errors import StateError
from eddyline.runtime.checkpoint import LEARNED_FORMAT
from tests.care.conftest import SECRET


@pytest.fixture(scope="module", autouse=True)
def _machine_is_asked_once():
    """What is installed, and which Java, takes longer to find out than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eddyline.care.bundle.check_machine", cache(check_machine))
        yield


@pytest.fixture
def content(checkpoint, tmp_path):
    """Return the files of the bundle of the checkpoint, by name."""
    written = write_bundle(checkpoint, tmp_path / "out" / "bundle.zip")
    with zipfile.ZipFile(written) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_what_is_in_it(content):
    assert set(content) == {
        *("README.txt", "about.json", "run.json", "journal.jsonl"),
        *("progress.jsonl", "state.json", "files.json"),
    }
    about, run = json.loads(content["about.json"]), json.loads(content["run.json"])
    assert about["packages"]["numpy"]
    assert {each["what"] for each in about["machine"]} >= {"Python", "Java"}
    assert "checkpoint: state" in {each["what"] for each in about["checkpoint"]}
    assert run["text"] == "SELECT v FROM s [RANGE ? SECONDS] WHERE name = ? AND pin <> ?"
    assert run["steps"] == ["filter s: name = ?"]
    assert (run["status"], run["error"]) == ("failed", "PredicateError [USER]")
    assert run["settings"]["policy"] == "a_greedy"
    assert run["sections"] == ["groups"]
    state = json.loads(content["state.json"])
    assert state["learned"] == {"format": LEARNED_FORMAT, "batch_id": 1}
    assert state["manifests"] == {"batch_id": 1, "n_files": {"join": 1}}
    files = {each["name"]: each["bytes"] for each in json.loads(content["files.json"])}
    assert files["spark/offsets/1"] == 2
    assert files["eddyline/state/runs/r1.rows.arrow"] > 100


def test_decisions_and_batches_are_in_it(content):
    order, grid = map(json.loads, content["journal.jsonl"].splitlines())
    assert order["before"] == ["name = ? #1", "pin <> ? #1", "is_odd(v)"]
    assert order["after"] == order["before"][::-1]
    assert order["evidence"] == {
        "n_tuples": 812,
        "cost_ns": 4.5,
        "filter": "left out",
        "value": "left out",
        "why": "another tree",
        "keys": "left out",
    }
    assert (grid["before"], grid["after"]) == ([2, 1], "left out: dict")
    first, _ = map(json.loads, content["progress.jsonl"].splitlines())
    assert (first["n_rows"], first["n_kept"], first["seconds"]) == (10, 3, 0.5)
    of_order, of_join = first["operators"]
    assert of_order["plan"] == ["is_odd(v)", "pin <> ? #1", "name = ? #1"]
    assert of_join["sums"]["n_late"] == 1


def test_no_value_of_a_row_is_in_it(content):
    for name, text in content.items():
        assert SECRET not in text, name
        assert "4711" not in text, name


def test_a_checkpoint_that_is_damaged_is_packed_as_far_as_it_can_be_read(checkpoint, tmp_path):
    (checkpoint / "eddyline" / "journal.jsonl").write_text("[]\n")
    next(checkpoint.rglob("manifest-*.json")).write_text("{")
    with zipfile.ZipFile(write_bundle(checkpoint, tmp_path / "b.zip")) as archive:
        assert "is no entry" in json.loads(archive.read("run.json"))["unreadable"]
        assert json.loads(archive.read("state.json"))["manifests"] == {"unreadable": "StateError"}
        assert json.loads(archive.read("files.json"))


def test_files_that_lead_nowhere_are_left_out(checkpoint, tmp_path):
    odd = checkpoint / "spark" / "offsets" / "²"
    odd.symlink_to(odd)
    with zipfile.ZipFile(write_bundle(checkpoint, tmp_path / "b.zip")) as archive:
        names = {each["name"] for each in json.loads(archive.read("files.json"))}
    assert "spark/offsets/1" in names
    assert "spark/offsets/²" not in names


def test_several_queries_are_folders(checkpoint, tmp_path):
    with zipfile.ZipFile(write_bundle(checkpoint.parent, tmp_path / "b.zip")) as archive:
        assert "ckpt/run.json" in archive.namelist()


def test_places_that_cannot_be_used(checkpoint, tmp_path):
    with pytest.raises(StateError, match="give another file by --out"):
        write_bundle(checkpoint, tmp_path)
    with pytest.raises(StateError, match="holds no checkpoint"):
        write_bundle(tmp_path / "gone", tmp_path / "b.zip")


def test_the_command_says_what_is_in_it(checkpoint, tmp_path):
    out = tmp_path / "b.zip"
    done = CliRunner().invoke(app, ["bundle", str(checkpoint), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert zipfile.is_zipfile(out)
    assert "Left out: rows" in done.output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a = 'x' AND b > 5", "a = ? AND b > ?"),
        ("a = r'\\' AND b = 'x'", "a = ? AND b = ?"),
        ("`my col` = \"x\" /* x */ OR c LIKE '%x\\'y'", "`my col` = ? OR c LIKE ?"),
        ("at > TIMESTAMP '2020-01-01' AND h = X'1F'", "at > TIMESTAMP ? AND h = ?"),
        ("n IN (1, 2.5e3, 0x1F)", "n IN (?, ?, ?)"),
        ("n > 5L AND 4711BD < m -- 5L", "n > ? AND ? < m"),
        ("column1 = 'it''s", "left out"),
        ("", ""),
    ],
)
def test_literals_go(text, shown):
    assert without_literals(text) == shown


def test_plans_that_are_not_known_to_be_harmless_go():
    redaction = Redaction()
    assert redaction.plan(None) is None
    assert redaction.plan("early") == "early"
    assert redaction.plan([4, 1]) == [4, 1]
    assert redaction.plan([["a"]]) == "left out: list"
    assert redaction.plan("4 by 'x'") == "? by ? #1"
    assert redaction.plan("5 by 'y'") == "? by ? #2"
    assert redaction.plan("4 by 'x'") == "? by ? #1"
    assert evidence({"n_rows": 3, "n_names": ["x"], "limit": 4, "why": "4 rows"}) == {
        "n_rows": 3,
        "n_names": "left out",
        "limit": "left out",
        "why": "left out",
    }
    assert settings({"seed": "1", "route_by": "('a',)"}) == {"seed": "1", "route_by": "(?,)"}
    assert error_class("") == error_class("SesameOpen") == ""
    assert error_class("PredicateError: raised on '[SESAME]'") == "PredicateError"

"""The proof that a plan choice is one class and one line: see ``newest_sorting.py``.

Everything that people and checkpoints have of choices finds it without an edit in ``src/``.
"""

from __future__ import annotations

import json

import pytest

from eddyline.errors import PlanError
from eddyline.spark.operators import OPERATORS
from eddyline.spark.run.live import LiveRun
from tests.operators.newest import NewestStep
from tests.operators.newest_queries import N_BATCHES, expected
from tests.operators.newest_sorting import NewestSorting, SortingOperator
from tests.operators.test_a_new_operator import finish, found

pytestmark = [pytest.mark.spark, pytest.mark.large("runs a stream of five batches, some twice")]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(OPERATORS, NewestStep, SortingOperator.from_step)


def test_it_is_found_wherever_plans_are_and_after_a_restart(query, tmp_path):
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "ckpt")}
    run = finish(query().start("parquet", trigger="available_now", **where))
    (change,) = [entry for entry in run.journal if entry["event"] == "sorting"]
    assert change["component"] == NewestSorting.component
    assert (change["before"], change["after"]) == ("table", "index")
    assert run.plan()["newest sorting"] == "index"

    said = " ".join(run.explain(width=200).split())
    assert "newest sorting index; adapts" in said
    assert "newest sorting the plans in force cost" in said, "the log of plans"
    page = run.report(tmp_path / "page.html").read_text("utf-8")
    assert "newest sorting" in page
    assert LiveRun(run).plans()["newest sorting"] == "index"

    saved = json.loads((tmp_path / "ckpt" / "eddyline" / "state.json").read_text())
    assert saved["state"]["newest"]["newest sorting"]["plan"] == "index"
    again = finish(query().start("parquet", trigger="available_now", **where))
    assert again.plan()["newest sorting"] == "index"


def test_a_person_pins_it_and_no_answer_changes(query):
    run = query().start("memory")
    with pytest.raises(PlanError, match="possible is one of 'table', 'index'"):
        run.pin("sometimes", component="newest sorting")
    run.pin({"newest sorting": "table"})
    run.process_all_available()
    assert run.plan()["newest sorting"] == "table"
    said = " ".join(run.explain(width=200).split())
    assert "newest sorting table; held by a person" in said
    assert "newest sorting table: pinned by a person" in said
    run.adapt("newest sorting")
    run.stop()
    assert found(run) == sorted(expected("newest", N_BATCHES), key=repr)

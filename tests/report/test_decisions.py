"""The words for a decision are its operator's; nothing is guessed from the shape of a plan."""

from __future__ import annotations

import pytest

from eddyline.report.decisions import decision_texts
from eddyline.report.filters import ROUTING
from eddyline.report.formatting import Wording
from eddyline.report.joins import WORDINGS
from eddyline.report.sections import Section, arranged
from eddyline.runtime.journal import JournalEntry
from tests.report.fakes import a_join_view, a_view, run_of, sections_of
from tests.report.pages import page_of

GAINS = {"f3": {"attribute": "port", "gain_ratio": 0.12345, "g_statistic": 8.0}}
SPLIT = {"shape": [4], "splits": ["bin 7: s in 2, t in 2"]}
ROUTES = {"by": ["port", "proto"], "orders": [["a", "b"], ["b", "a"]]}
ALL = {**WORDINGS, ("arrow#2 of s", "routes"): ROUTING, ("native", "routes"): ROUTING}


@pytest.mark.parametrize(
    ("component", "event", "plan", "text"),
    [
        ("join", "grid", [4, 2], "4 × 2"),
        ("join", "grid", SPLIT, "4 with bin 7: s in 2, t in 2"),
        ("arrow#2 of s", "routes", ROUTES, "classes by port, proto in 2 orders"),
        ("native", "routes", None, "-"),
        ("sketch", "size", [60, 5], "[60, 5]"),
        ("sketch", "grid", [60, 5], "[60, 5]"),
        ("sketch", "routes", ROUTES, "{by: [port, proto], orders: [[a, b], [b, a]]}"),
        ("sketch", "shape", SPLIT, "{shape: [4], splits: [bin 7: s in 2, t in 2]}"),
    ],
)
def test_a_plan_reads_as_its_operator_says(component, event, plan, text):
    before, after, _ = decision_texts(JournalEntry(4, component, event, None, plan), ALL)
    assert (before, after) == ("-", text)


def test_evidence_reads_as_its_operator_says():
    told, plain = (
        decision_texts(JournalEntry(4, component, "routes", evidence={"filters": GAINS}), ALL)[2]
        for component in ("native", "sketch")
    )
    assert told == "filters: f3 by port (0.123)"
    assert "gain ratio: 0.123" in plain


def test_the_page_writes_plans_in_the_words_of_each_operator(tmp_path):
    journal = (
        JournalEntry(4, "join", "grid", [4, 2], [2, 4]),
        JournalEntry(5, "sketch", "size", [60, 5], [70, 5]),
        JournalEntry(6, "tree", "depth", [3], [4]),
    )
    own = Section("", wordings={("tree", "depth"): Wording(lambda plan: f"{plan[0]} levels")})
    view = a_join_view()
    sections = tuple(arranged([*sections_of(view), own]))
    page = page_of(run_of(view, journal=journal, sections=sections), tmp_path)
    assert "4 × 2" in page
    assert "[60, 5]" in page
    assert "60 × 5" not in page
    assert "3 levels" in page


def test_every_block_brings_its_words_for_routes_and_crossings():
    found = {key for each in sections_of(a_view()) for key in each.wordings}
    events = "routes", "crossings"
    assert found == {(each.component, event) for each in a_view().blocks for event in events}

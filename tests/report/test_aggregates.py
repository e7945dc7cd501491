"""Aggregates in words: what a decision says of its plans."""

from __future__ import annotations

from eddyline.aggregates.profile import AggregateProfile
from eddyline.aggregates.view import AggregateView
from eddyline.report.aggregates import sections
from eddyline.report.decisions import decision_texts
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import History


def view():
    profile = AggregateProfile(10, 5, 0, 7, 0)
    plain = ("busy", ("NOW",), ("k",), ("COUNT(*)", "AVG(v)"), "early", profile, profile)
    return AggregateView(*plain, 0, 0, 0, 0, 1, 1.0, is_adaptive=True)


def test_a_decision_says_what_its_plans_mean():
    words = {
        key: word for each in sections(view(), History()) for key, word in each.wordings.items()
    }
    moved = JournalEntry(3, "aggregate", "place", "early", "late")
    before, after, _ = decision_texts(moved, words)
    assert before.startswith("early: rows become cells before they are shuffled")
    assert after.startswith("late: rows are shuffled, and become cells once")

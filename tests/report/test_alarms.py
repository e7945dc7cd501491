"""Alarms in words: what they share, and estimates beside what came true."""

from __future__ import annotations

from dataclasses import replace

from eddyline.alarms.loop import AlarmRecord, TemplateView
from eddyline.estimates.filters import Estimate
from eddyline.report import alarms
from eddyline.report.terminal import explain
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import History

TEMPLATE = "x > ? AND y < ?"
VIEWS = (
    TemplateView(
        TEMPLATE, 20, "union", ("y < ?", "x > ?"), Estimate(110.0, 90.0, 150.0), 120.0,
        Estimate(0.25, 0.2, 0.3), 0.24,
    ),
    TemplateView("z = ?", 1, "covered", ("z = ?",), None, 0.0, None, float("nan")),
)  # fmt: skip


def test_progress_says_what_is_shared():
    record = AlarmRecord("alarms", {}, 21, 120.0, {"union": 1, "covered": 1})
    assert alarms.lines(record) == ("21 alarms in 2 templates: 1 union, 1 covered",)
    assert alarms.lines(replace(record, ways={})) == ()
    assert alarms.sections((), History()) == []


def test_sections_have_estimates_beside_what_came_true():
    evidence = {"template": TEMPLATE, "estimated_ns": {"covered": 300.0, "union": 110.0}}
    entry = JournalEntry(3, "alarms", "sharing", "covered", "union", evidence)
    made = alarms.sections(VIEWS, History((), (entry,)))
    text = explain("q", made)
    for part in (
        TEMPLATE,
        "y < ? then x > ?",
        "110 ns",
        "120 ns",
        "25.0 %",
        "24.0 %",
        "union",
    ):
        assert part in text
    assert "300" in text

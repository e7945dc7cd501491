"""Aggregates in words: values over time of a few groups as a table and as figures."""

from __future__ import annotations

from eddyline.aggregates.loop import AggregateProfile, AggregateView
from eddyline.aggregates.samples import GroupSeries, Point
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import History
from eddyline.watch.aggregates import sections
from eddyline.watch.html.figures import drawn
from eddyline.watch.sections import Figure, Table, decision_texts
from eddyline.watch.terminal.explain import explain

MINUTE = 60_000_000
SERIES = (
    GroupSeries("a", tuple(Point(at * MINUTE, (float(at), -1.5)) for at in range(5))),
    GroupSeries("", (Point(2 * MINUTE, (7.0, None)), Point(9 * MINUTE, (0.0, 2.5)))),
)


def view_of(*series, values=("COUNT(*)", "AVG(v)")):
    profile = AggregateProfile(10, 5, 0, 7, 0)
    known = {"values": values, "series": series}
    plain = ("busy", ("NOW",), ("k",), values, "early", profile, profile)
    return AggregateView(*plain, 0, 0, 0, 0, 1, 1.0, is_adaptive=True, **known)


def values_of(*series, **given):
    found = sections(view_of(*series, **given), History())
    return next((each for each in found if each.title == "Values of a few groups"), None)


def test_a_decision_says_what_its_plans_mean():
    words = {
        key: word for each in sections(view_of(), History()) for key, word in each.wordings.items()
    }
    moved = JournalEntry(3, "aggregate", "place", "early", "late")
    before, after, _ = decision_texts(moved, words)
    assert before.startswith("early: rows become cells before they are shuffled")
    assert after.startswith("late: rows are shuffled, and become cells once")


def test_the_newest_values_are_a_table():
    (table, *_) = values_of(*SERIES).parts
    assert isinstance(table, Table)
    assert [column.title for column in table.columns] == ["group", "at (UTC)", "COUNT(*)", "AVG(v)"]
    of_a = [("a", at * MINUTE, float(at), -1.5) for at in (2, 3, 4)]
    rest = [("all rows", 2 * MINUTE, 7.0, None), ("all rows", 9 * MINUTE, 0.0, 2.5)]
    assert list(table.rows) == of_a + rest
    text = explain("busy", [values_of(*SERIES)])
    assert "1970-01-01 00:09:00" in text
    assert values_of() is None
    assert values_of(GroupSeries("a", ())) is None


def test_all_values_are_figures_over_event_time():
    _, counts, means = values_of(*SERIES).parts
    assert isinstance(counts, Figure)
    assert (counts.title, means.title) == ("COUNT(*)", "AVG(v)")
    assert counts.batch_ids == tuple(at * MINUTE for at in (0, 1, 2, 3, 4, 9))
    assert counts.lines[1].values == (None, None, 7.0, None, None, 0.0)
    found = drawn(means, [0, 1])
    assert found["layout"]["xaxis"]["type"] == "date"
    low, high = found["layout"]["yaxis"]["range"]
    assert low < -1.5  # values may be less than 0
    assert high > 2.5
    assert {low <= label["y"] <= high for label in found["labels"]} == {True}
    assert found["data"][0]["x"] == [60_000.0 * at for at in (0, 1, 2, 3, 4, 9)]
    assert found["data"][0]["y"][0] == -1.5
    assert len(values_of(GroupSeries("a", (Point(0, (1.0, 1.0)),))).parts) == 1

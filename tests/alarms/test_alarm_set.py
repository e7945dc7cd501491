"""A set of alarms has the face of a set of rules: named, and changed all or none."""

from __future__ import annotations

import pytest

from eddyline.alarms.alarm_set import AlarmSet
from eddyline.errors import OptionError, QueryError
from eddyline.query.rules.rule import Rule
from eddyline.runtime.journal import JournalEntry

ALARMS = {"fast": "d(x) > 3", "far": "x > 1000", "near": "x < 1"}


def test_what_it_has_can_be_read():
    alarms = AlarmSet(ALARMS)
    assert alarms.names == ("fast", "far", "near")
    assert alarms.info["far"] == {"text": "x > 1000", "title": None, "level": None, "tags": ()}
    assert alarms.text.splitlines()[1] == "far: x > 1000"
    assert len(alarms) == 3


def test_sets_are_added_and_replaced_by_sets():
    alarms, more = AlarmSet(ALARMS), AlarmSet({"low": "y < 2", "high": "y > 3"})
    alarms.add(more)
    more.remove("low")
    assert alarms.names == ("fast", "far", "near", "low", "high")
    alarms.replace(AlarmSet({"high": "y > 4", "fast": "d(x) > 4"}))
    alarms.replace({"far": "x > 2000"})
    alarms.replace("near", "x < 2")
    assert [each["text"] for each in alarms.info.values()] == [
        "d(x) > 4", "x > 2000", "x < 2", "y < 2", "y > 4",
    ]  # fmt: skip


def test_a_selection_is_a_set_of_its_own():
    alarms = AlarmSet(ALARMS, name="watched")
    some = alarms.select("near", "fast", name="some")
    assert some.names == ("fast", "near")
    assert (some.name, alarms.select("far").name) == ("some", "watched")
    some.remove("fast")
    assert alarms.names == tuple(ALARMS)


def test_alarms_are_chosen_by_level_and_tag_as_rules_are():
    alarms = AlarmSet(ALARMS)
    alarms.add("deep", Rule("y < -3", level="high", tags=["port"], title="Too deep"))
    alarms.add({"slow": Rule("d(x) < 1", level="low", tags=["port", "sea"])})
    assert alarms.info["deep"] == {
        "text": "y < -3", "title": "Too deep", "level": "high", "tags": ("port",),
    }  # fmt: skip
    assert alarms.select(tag="port").names == ("deep", "slow")
    assert alarms.select(tag="port", min_level="medium").names == ("deep",)
    assert alarms.select("slow", "far", level=["low", "high"]).info == {"slow": alarms.info["slow"]}
    with pytest.raises(OptionError, match="level"):
        alarms.select(level="hihg")
    before = alarms.now()
    alarms.remove()
    assert alarms.now() == before
    alarms.replace("slow", Rule("d(x) < 1", level="medium"))
    assert alarms.now()[1] == before[1]
    alarms.remove(min_level="medium")
    assert alarms.names == tuple(ALARMS)


def test_a_set_tells_what_the_query_that_asks_it_last_did():
    class Reader:
        def check(self, alarms):
            """Take any."""

        def explain(self, entries, width):
            return f"{len(entries)} of {width}"

    alarms, reader = AlarmSet(ALARMS), Reader()
    with pytest.raises(QueryError, match="no query of a stream asks"):
        alarms.explain()
    alarms.asked_by(reader)
    alarms.note([JournalEntry(3, "alarms", "sharing", "covered", "union", {})])
    assert alarms.explain(width=80) == "1 of 80"
    assert [each["event"] for each in alarms.journal] == ["sharing"]
    other = Reader()
    other.explain = lambda *_: "the other one"
    alarms.asked_by(other)
    assert alarms.explain() == "the other one"
    alarms.asked_by(reader)  # by each batch
    assert alarms.explain(width=80) == "1 of 80"
    del reader
    assert alarms.explain() == "the other one"  # which goes on
    del other
    with pytest.raises(QueryError, match="keep it"):
        alarms.report("page.html")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda alarms: alarms.replace({"far": "x > 2", "fahr": "x > 3"}), "far"),
        (lambda alarms: alarms.replace({"far": "x > 2", "near": "x >"}), "near"),
        (lambda alarms: alarms.add(AlarmSet({"new": "y > 1", "far": "y > 1"})), "replace"),
        (lambda alarms: alarms.add({"new": "y > 1"}, "y > 2"), "one name"),
        (lambda alarms: alarms.add(AlarmSet(), "y > 2"), "one name"),
        (lambda alarms: alarms.replace("far"), "is a text"),
        (lambda alarms: alarms.add("new", Rule(3)), "is a text"),
        (lambda alarms: alarms.select(tag="port"), "port"),
        (lambda alarms: alarms.remove("far", "fahr"), "far"),
        (lambda alarms: alarms.add(3), "texts by their names"),
        (lambda alarms: alarms.select(), "names of alarms"),
        (lambda alarms: alarms.select("fahr"), "far"),
    ],
)
def test_all_or_nothing(how, message):
    alarms = AlarmSet(ALARMS)
    before = alarms.now()
    with pytest.raises(QueryError, match=message):
        how(alarms)
    assert alarms.now() == before

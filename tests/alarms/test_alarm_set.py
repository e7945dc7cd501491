"""A set of alarms has the face of a set of rules: named, and changed all or none."""

from __future__ import annotations

import pytest

from eddyline.alarms.alarm_set import AlarmSet
from eddyline.errors import QueryError

ALARMS = {"fast": "d(x) > 3", "far": "x > 1000", "near": "x < 1"}


def test_what_it_has_can_be_read():
    alarms = AlarmSet(ALARMS)
    assert alarms.names == ("fast", "far", "near")
    assert alarms.info["far"] == {"text": "x > 1000"}
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


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda alarms: alarms.replace({"far": "x > 2", "fahr": "x > 3"}), "far"),
        (lambda alarms: alarms.replace({"far": "x > 2", "near": "x >"}), "near"),
        (lambda alarms: alarms.add(AlarmSet({"new": "y > 1", "far": "y > 1"})), "replace"),
        (lambda alarms: alarms.add({"new": "y > 1"}, "y > 2"), "one name"),
        (lambda alarms: alarms.add(AlarmSet(), "y > 2"), "one name"),
        (lambda alarms: alarms.replace("far"), "texts by their names"),
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

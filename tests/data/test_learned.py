"""Learned state by the names of attributes: it continues as it was, and damage is refused."""

import json

import numpy as np
import pytest

from eddyline.data.arrays import pack
from eddyline.data.learned import Learns
from eddyline.errors import StateError


class Inner(Learns):
    learned = ("rows",)

    def __init__(self):
        self.rows = np.zeros(0)

    growing = ("rows",)

    def check_learned(self):
        if (self.rows < 0.0).any():
            self._damaged("there are fewer rows than none")


class Outer(Learns):
    component = "outer"
    learned = ("_order", "share", "is_warm", "name", "counts", "inner")

    def __init__(self):
        self._order = (0, 1)
        self.share, self.is_warm, self.name = 0.5, False, ""
        self.counts = np.zeros((2, 2), np.int64)
        self.inner = Inner()


def taught():
    outer = Outer()
    outer._order, outer.share, outer.is_warm, outer.name = (1, 0), 0.25, True, "x"
    outer.counts[1] = 7
    outer.inner.rows = np.array([1.0, np.inf])
    return outer


def saved():
    return json.loads(json.dumps(taught().snapshot(), allow_nan=False))


def test_state_continues_as_it_was():
    again = Outer()
    again.restore(saved())
    assert again._order == (1, 0)
    assert (again.share, again.is_warm, again.name) == (0.25, True, "x")
    np.testing.assert_array_equal(again.counts, [[0, 0], [7, 7]])
    np.testing.assert_array_equal(again.inner.rows, [1.0, np.inf])
    assert again.snapshot() == taught().snapshot()
    again.restore({**saved(), "share": 1})
    assert again.share == 1.0


def test_a_component_without_state_saves_nothing():
    assert Learns().snapshot() == {}
    Learns().restore({})
    with pytest.raises(StateError, match="'Learns' is damaged: it has not exactly nothing"):
        Learns().restore({"more": 1})


@pytest.mark.parametrize(
    "damage",
    [
        {"more": 1},
        {"order": [0]},
        {"order": [0, True]},
        {"order": None},
        {"share": "1"},
        {"share": float("nan")},
        {"share": None},
        {"is_warm": 1},
        {"name": 3},
        {"counts": [[0, 0], [0, 0]]},
        {"counts": pack(np.zeros((2, 2)))},
        {"counts": pack(np.zeros((3, 2), np.int64))},
        {"inner": None},
        {"inner": {"rows": pack(np.zeros((2, 2)))}},
        {"inner": {"rows": pack(np.array([-1.0]))}},
    ],
    ids=str,
)
def test_damage_is_refused(damage):
    with pytest.raises(StateError):
        Outer().restore({**saved(), **damage})


@pytest.mark.parametrize("state", [None, [], "x", {}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(StateError, match=r"'outer' is damaged.*start from an empty checkpoint"):
        Outer().restore(state)

"""The collector of cycles is paused only as long as it should be."""

from __future__ import annotations

import gc
import weakref

import pytest

from eddyline.data.collector import PIECE, collector_paused, seldom_collected


@pytest.fixture(params=[True, False], autouse=True)
def was_on(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_it_is_paused_and_then_as_its_owner_had_it(was_on):
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == was_on


def test_an_error_does_not_leave_it_paused(was_on):
    @collector_paused()
    def fail():
        assert not gc.isenabled()
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):  # noqa: PT011 - our own, without a message
            fail()
        assert gc.isenabled() == was_on


@pytest.mark.parametrize("n_items", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_items_come_through_in_order(n_items, was_on):
    found = []
    for item in seldom_collected(range(n_items)):
        assert not gc.isenabled()
        found.append(item)
    assert found == list(range(n_items))
    assert gc.isenabled() == was_on


def test_who_stops_in_between_does_not_leave_it_paused(was_on):
    for item in seldom_collected(range(3)):
        if item == 1:
            break
    assert gc.isenabled() == was_on

    def fail():
        for _ in seldom_collected(range(3)):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled() == was_on


def test_cycles_between_pieces_go():
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    gc.enable()
    first = weakref.ref(Knot())
    seen = [first() is None for _ in seldom_collected(range(30 * PIECE)) if [Knot()]]
    assert not seen[0]
    assert seen[-1]

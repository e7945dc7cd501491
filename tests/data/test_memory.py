"""The collector of cycles is paused only as long as it should be."""

from __future__ import annotations

import gc
import weakref

import pytest

from eddyline.data.memory import PIECE, collector_paused, made_of


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
def test_all_is_made_in_order(n_items, was_on):
    made = made_of(lambda item: (item, gc.isenabled()), range(n_items))
    assert made == [(item, False) for item in range(n_items)]
    assert gc.isenabled() == was_on


def test_an_error_that_is_kept_does_not_leave_it_paused(was_on):
    def fail(item):
        if item == PIECE:
            raise KeyError
        return item

    with pytest.raises(KeyError) as kept:
        made_of(fail, range(3 * PIECE))
    assert gc.isenabled() == was_on
    assert kept.tb is not None


def test_cycles_between_pieces_go():
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    gc.enable()
    first = weakref.ref(Knot())
    seen = made_of(lambda _: first() is None if Knot() else None, range(30 * PIECE))
    assert not seen[0]
    assert seen[-1]

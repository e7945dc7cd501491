"""The loop of what is dropped: k from results, raised at once, lowered after periods of its own."""

from __future__ import annotations

import msgspec
import pytest

from eddyline.errors import StateError
from eddyline.joins.leaving import GREATEST, LEAST, MARGIN, PERIODS, Discards, DiscardState
from eddyline.joins.plan import LostCounts
from eddyline.joins.view import JoinPart
from eddyline.state.grid import Grid
from eddyline.state.rows import FOREVER


class Batches:
    def __init__(self, length=FOREVER):
        self.loop, self.at, self.entries = Discards({"s": length}, {}), 0, []

    def batch(self, widest, *, n=500, took=100, **lost):
        self.at += took
        counts = {"s": LostCounts(n_found=n, widest=widest, **lost)}
        self.entries += self.loop.step(counts, [], self.at, len(self.entries))
        return self.loop.kept_for["s"]


def test_nothing_is_dropped_before_enough_was_seen():
    batches = Batches()
    assert batches.batch(300) is None, "500 results"
    assert batches.batch(300) is None, "100 µs of event time, and k is 300"
    found = [batches.batch(300) for _ in range(8)]
    assert found[0] is None
    assert found[-1] == int(300 * MARGIN) + 1
    assert [each.event for each in batches.entries] == ["kept"]


def test_a_k_that_rises_is_followed_at_once_and_the_rise_is_taken_to_go_on():
    batches = Batches()
    for _ in range(12):
        before = batches.batch(300)
    assert batches.batch(int(before / LEAST) - 1) == before, "within the margin"
    jumped = batches.batch(300, n_seen=3, widest_seen=600, n_most=5, n_about=5.0)
    assert jumped > 600 * MARGIN
    assert batches.entries[-1].event == "missed"
    assert batches.entries[-1].evidence["n_missed_at_most"] == 5
    known = batches.loop.known["s"]
    assert (known.n_most, known.n_about, known.n_seen, known.bound) == (5, 5.0, 3, 600)


def test_a_k_that_falls_is_followed_after_periods_that_take_as_long_as_it():
    batches = Batches()
    for _ in range(20):
        batches.batch(300)
    found = [batches.batch(100) for _ in range(200)]
    assert found[3 * (PERIODS - 2)] >= 300, "a period takes three batches at least"
    assert 100 * LEAST <= found[-1] <= 100 * GREATEST + 1


def test_a_window_that_k_fills_drops_nothing_by_age():
    batches = Batches(length=310)
    for _ in range(20):
        assert batches.batch(300) is None
    batches = Batches(length=400)
    for _ in range(20):
        now = batches.batch(300)
    assert now is not None
    assert batches.batch(390) is None


def test_what_is_learned_is_part_of_the_state_and_damage_is_told():
    batches = Batches()
    for widest in (300, 280, 310, 100, 300, 300, 300, 300):
        batches.batch(widest, n_dropped=7, n_most=1, n_about=0.5)
    part = JoinPart(Grid((1,)), {}, {}, batches.loop.state()).packed()
    again = Discards({"s": FOREVER}, {})
    again.restore(part.read(JoinPart).discards)
    assert again.state() == batches.loop.state()
    assert again.kept_for == batches.loop.kept_for
    text = msgspec.json.encode(batches.loop.state()).replace(b'"n_dropped"', b'"n_gone"')
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=DiscardState)
    damaged = bytes(part.content).replace(b'"periods"', b'"epochs"')
    with pytest.raises(StateError, match="cannot be read"):
        type(part)(part.files, msgspec.Raw(damaged)).read(JoinPart)
    older = JoinPart(Grid((1,))).packed()
    assert older.read(JoinPart).discards is None

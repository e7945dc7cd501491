"""The order of keys: how far behind the greatest one they come, and what they have passed."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from eddyline.errors import StateError
from eddyline.joins.arrival_order import ValueOrders, disorder_of, watched
from eddyline.joins.graph import JoinGraph

PAIR = JoinGraph(("s", "t"), (frozenset("st"),))


def fed(orders, places, keys_of, *, n_batches=30, n_rows=1_000):
    """Feed batches of keys, measured in two buckets."""
    for number in range(n_batches):
        parts = [{}, {}]
        for place in places:
            keys = keys_of(number, n_rows)
            for part, mine in zip(parts, (keys[::2], keys[1::2]), strict=True):
                part[place] = disorder_of(mine, orders.tops[place])
        orders.step(parts)


def ordered(k):
    rng = np.random.default_rng(k)
    return lambda number, n: number * n + np.arange(n) - rng.integers(0, k + 1, n)


def test_only_keys_that_all_other_streams_have_can_be_passed():
    star = JoinGraph(("a", "b", "c"), (frozenset("abc"),))
    chain = JoinGraph(("a", "b", "c"), (frozenset("ab"), frozenset("bc")))
    assert watched(star, "a", "abc", ()) == {("a", 0): (("b", 0), ("c", 0))}
    assert watched(star, "a", "ab", ()) == {("a", 0): (("b", 0),)}, "a table has no new rows"
    assert watched(star, "a", "abc", (0,)) == {}, "codes that are hashes are in no order"
    assert watched(star, "a", "a", ()) == {}
    assert watched(chain, "abc", "abc", ()) == {}
    assert watched(chain, "abc", "ab", ()) == {("a", 0): (("b", 0),), ("b", 0): (("a", 0),)}


@pytest.mark.parametrize("k", [10, 1_000, 5_000])
def test_a_key_is_passed_soon_after_hardly_any_like_it_comes(k):
    orders = ValueOrders(watched(PAIR, "st", "st", ()))
    places = [("s", 0), ("t", 0)]
    assert orders.below() == {}
    fed(orders, places, ordered(k))
    top = 30_000
    low = orders.below()["s"][0]
    assert orders.below()["t"].keys() == {0}
    assert top - 2.2 * k - 1_000 <= low <= top - 0.9 * k
    late = ordered(k)(30, 100_000)[:1_000]
    assert (late < low).mean() < 0.003


def test_keys_in_no_order_pass_none():
    rng = np.random.default_rng(3)
    orders = ValueOrders(watched(PAIR, "st", "st", ()))
    fed(orders, [("s", 0), ("t", 0)], lambda _, n: rng.integers(0, 1_000_000, n))
    assert orders.below()["s"][0] < 1_000
    wide = np.array([-(2**63), 2**63 - 1])
    orders.step([{("t", 0): disorder_of(wide, orders.tops["t", 0])}])
    assert orders.below().get("s", {0: 0})[0] < 1_000
    assert "s" not in orders.below()


def test_what_was_learned_outlives_a_restart_and_damage_is_said():
    orders = ValueOrders(watched(PAIR, "st", "st", ()))
    fed(orders, [("s", 0), ("t", 0)], ordered(100))
    again = ValueOrders(watched(PAIR, "s", "st", ()))
    again.restore(json.loads(msgspec.json.encode(orders.snapshot())))
    assert again.below() == {"s": orders.below()["s"]}
    with pytest.raises(StateError, match="order of a join's keys cannot be read"):
        again.restore([3])


def test_of_batches_that_are_not_measured_the_greatest_key_counts_alone():
    orders = ValueOrders(watched(PAIR, "st", "st", ()))
    fed(orders, [("s", 0), ("t", 0)], ordered(100))
    before, top = orders.below()["s"][0], orders.tops["t", 0]
    for low in (40_000, 41_000):
        keys = np.arange(low, low + 1_000)
        orders.step([{("t", 0): disorder_of(keys, orders.tops["t", 0], measures=False)}])
    assert orders.tops["t", 0] == 41_999
    assert orders.below()["s"][0] == before + 41_999 - top


def test_far_smaller_distances_than_those_that_are_known_are_a_promise_and_others_are_none():
    rng = np.random.default_rng(3)
    orders, places = ValueOrders(watched(PAIR, "st", "st", ())), [("s", 0), ("t", 0)]
    assert not orders.promises
    fed(orders, places, lambda _, n: rng.integers(0, 1_000_000, n))
    assert not orders.promises
    fed(orders, places[:1], lambda _, n: rng.integers(900_000, 1_000_000, n), n_batches=1)
    assert orders.promises
    unmeasured = disorder_of(rng.integers(0, 1_000_000, 1_000), 1_000_000, measures=False)
    orders.step([{places[0]: unmeasured}])
    assert orders.promises, "nothing else is known"
    fed(orders, places[:1], lambda _, n: rng.integers(0, 1_000_000, n), n_batches=1)
    assert not orders.promises

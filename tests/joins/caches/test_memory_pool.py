from __future__ import annotations

import random

from eddyline.joins.caches.choice import PAGE_BYTES, limits, shared_out
from eddyline.joins.caches.prefix_invariant import Store
from tests.joins.plans import each_seed

A, B, C = (Store(frozenset(windows), (0,), frozenset(windows)) for windows in ("12", "34", "56"))


def test_v6_pages():
    assert shared_out(3, {A: 0.1, B: 0.3}, {A: 3, B: 1}) == {A: 2, B: 1}


def test_of_stores_that_earn_the_same_the_first_is_served_first():
    assert shared_out(3, {A: 0.1, B: 0.1}, {A: 2, B: 2}) == {A: 2, B: 1}


def test_without_memory_nobody_gets_any():
    assert shared_out(0, {A: 1.0}, {A: 1}) == {A: 0}


def test_stores_have_twice_their_size_and_a_share_of_what_is_left():
    sizes, nets = {A: 2.0 * PAGE_BYTES, B: PAGE_BYTES, C: 0.0}, {A: 1.0, B: 2.0, C: 3.0}
    found = limits(20, sizes, nets)
    assert found == {A: (4 + 4) * PAGE_BYTES, B: (2 + 4) * PAGE_BYTES, C: (1 + 4) * PAGE_BYTES}
    assert limits(3, sizes, nets) == {A: 0, B: 2 * PAGE_BYTES, C: PAGE_BYTES}


def on_request(n_pages, priorities, wanted, rng):
    """The pages when stores ask for one at a time, in any order, until nothing changes.

    A store gets a free page, or one of the store that earns least if that is less [Babu05 5.6].
    """
    held = dict.fromkeys(priorities, 0)
    for _ in range(20):  # a store that lost a page asks again
        for store in rng.sample(list(priorities), len(priorities)):
            if held[store] == wanted[store]:
                continue
            if sum(held.values()) < n_pages:
                held[store] += 1
                continue
            holders = [other for other in held if held[other]]
            poorest = min(holders, key=priorities.__getitem__, default=store)
            if priorities[poorest] < priorities[store]:
                held[poorest] -= 1
                held[store] += 1
    return held


@each_seed(200)
def test_pages_end_up_where_they_earn_most_in_whatever_order_they_are_asked_for(seed):
    rng = random.Random(seed)
    stores = [Store(frozenset(f"{at}x"), (0,), frozenset(f"{at}x")) for at in range(5)]
    priorities = dict(zip(stores, rng.sample(range(100), 5), strict=True))
    wanted = {store: rng.randint(0, 4) for store in stores}
    n_pages = rng.randint(0, 15)
    asked = on_request(n_pages, priorities, wanted, rng)
    assert asked == shared_out(n_pages, priorities, wanted)

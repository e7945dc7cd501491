from __future__ import annotations

import random

import pytest

from eddyline.joins.caches.memory_pool import PagePool, StoreSize, shared_out
from eddyline.joins.caches.prefix_invariant import Store

A, B, C = (Store(frozenset(windows), (0,), frozenset(windows)) for windows in ("12", "34", "56"))


def v6():
    """Pages of 40 bytes."""
    sizes = {A: StoreSize(10, 10), B: StoreSize(2, 10)}
    priorities = {store: sizes[store].priority(net) for store, net in ((A, 10), (B, 6))}
    return priorities, {store: size.n_pages(40) for store, size in sizes.items()}


def test_v6_priorities():
    assert v6() == ({A: 0.1, B: 0.3}, {A: 3, B: 1})


def test_v6_pages():
    pool = shared_out(3, *v6())
    assert pool.held == {A: 2, B: 1}
    assert pool.requested(B).held == {A: 1, B: 2}
    assert pool.requested(A) == pool


@pytest.mark.parametrize("asked", [(A, A, A, B), (B, A, A, A), (A, B, A, A)])
def test_v6_whoever_asks_first(asked):
    pool = PagePool(3, v6()[0])
    for store in asked:
        pool = pool.requested(store)
    assert pool.held == {A: 2, B: 1}


def test_the_poorest_gives():
    pool = PagePool(2, {A: 0.1, B: 0.2, C: 0.3}, {A: 1, B: 1})
    assert pool.requested(C).held == {A: 0, B: 1, C: 1}
    assert pool.requested(C).requested(C).held == {A: 0, B: 0, C: 2}
    assert pool.requested(C).requested(C).requested(C).held == {A: 0, B: 0, C: 2}


def test_without_memory_nobody_gets_any():
    pool = PagePool(0, {A: 1.0})
    assert pool.requested(A) == pool


def test_stores_that_are_gone_give_back_their_pages():
    pool = PagePool(3, {A: 0.1, B: 0.3}, {A: 2, B: 1}).chosen({B: 0.1, C: 0.2})
    assert pool.held == {B: 1}
    assert pool.n_free == 2


def test_the_size_of_a_store():
    size = StoreSize.of(A, entries=100, rows_per_entry=1.5, key_bytes=8, reference_bytes=4)
    assert size.entry_bytes == 8 + 1.5 * 2 * 4
    assert size.n_bytes == 2000
    assert size.n_pages(512) == 4
    assert StoreSize(0, 10).n_pages() == 1
    assert StoreSize(0, 10).priority(5) == 5


@pytest.mark.parametrize("seed", range(200))
def test_pages_end_up_where_they_earn_most_in_whatever_order_they_are_asked_for(seed):
    rng = random.Random(seed)
    stores = [Store(frozenset(f"{at}x"), (0,), frozenset(f"{at}x")) for at in range(5)]
    priorities = dict(zip(stores, rng.sample(range(100), 5), strict=True))
    wanted = {store: rng.randint(0, 4) for store in stores}
    pool = PagePool(rng.randint(0, 15), priorities)
    # A store that lost a page asks again, so all ask until nothing changes.
    for _ in range(20):
        for store in rng.sample(stores, 5):
            if pool.held.get(store, 0) < wanted[store]:
                pool = pool.requested(store)
            assert 0 <= pool.n_free <= pool.n_pages
    expected = shared_out(pool.n_pages, priorities, wanted)
    assert {store: pool.held.get(store, 0) for store in stores} == expected.held

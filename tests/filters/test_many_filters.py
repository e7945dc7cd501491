"""256 filters: what grows with their number stays in proportion."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.filters.world import World

N = 256


@pytest.mark.large
@pytest.mark.parametrize("policy", ["a_greedy", "sweep", "independent", "local_swaps"])
def test_256_filters(policy):
    # Each filter drops little, so that nearly all are called on every batch.
    world = World([100.0] * N, list(np.linspace(1.0, 0.98, N)))
    loop = world.loop(policy=policy)
    started = time.perf_counter()
    world.run(loop, 30)
    # Some 10 ms a batch here; a step that costs F² calls would take a hundred times as long.
    assert time.perf_counter() - started < 10
    assert sorted(loop.order) == list(range(N))
    assert loop.totals.rows_in.min() > 0


def test_a_greedy_orders_them():
    world = World([100.0] * N, list(np.linspace(1.0, 0.98, N)))
    loop = world.loop()
    before = world.now_ns
    world.run(loop, 5)
    as_written = (world.now_ns - before) / 5
    world.run(loop, 40)
    before = world.now_ns
    world.run(loop, 10)
    assert (world.now_ns - before) / 10 < 0.9 * as_written

from __future__ import annotations

from dataclasses import replace

import pytest

from eddyline.joins.caches.cost_model import (
    CacheUse,
    Changes,
    ProbeCounts,
    ProbeEstimate,
    Stretch,
    StretchCounts,
    StretchEstimate,
    benefit,
    candidate_benefit,
    proc,
    store_changes,
    upkeep_cost,
)
from eddyline.joins.caches.prefix_invariant import candidates, prefix_invariant
from tests.joins.plans import Q3, find, orders

V1_USE = CacheUse(miss_frac=0.1, probe_cost=0.5, update_cost=0.5)
V1_PIPELINES = {
    "t": Stretch((10.0, 10.0, 10.0), (2.0, 2.0)),
    "r": Stretch((4.0, 2.0, 2.0), (1.0, 1.0)),
    "s": Stretch((3.0, 2.0, 6.0), (1.0, 1.0)),
}
V1_ORDERS = orders(r="st", s="rt", t="sr")


def test_v1_benefit_and_cost():
    (cache,) = prefix_invariant(Q3, V1_ORDERS)
    stretch = V1_PIPELINES["t"]
    assert stretch.work == 40
    assert proc(stretch, V1_USE) == pytest.approx(9.5)
    assert candidate_benefit(cache, V1_PIPELINES, V1_USE) == pytest.approx(30.5)
    cost = upkeep_cost(store_changes(cache.store, V1_PIPELINES), V1_USE.update_cost)
    assert cost == pytest.approx(2)
    assert stretch.rows_per_entry == 1.0


def test_v1_break_even():
    even = replace(V1_USE, miss_frac=(40 - 5 - 2) / 45)
    assert benefit(V1_PIPELINES["t"], even) == pytest.approx(2)


def test_a_part_of_a_pipeline():
    whole = Stretch((10.0, 20.0, 5.0, 1.0), (1.0, 2.0, 3.0))
    assert whole.part(1, 3) == Stretch((20.0, 5.0, 1.0), (2.0, 3.0))
    assert whole.works == (10, 40, 15)
    assert whole.part(1, 3).rows_per_entry == 1 / 20
    assert Stretch((0.0, 0.0), (1.0,)).rows_per_entry == 0


def test_a_cache_that_supports_itself_pays_for_asking_and_for_changes_of_all_results():
    cache = find(candidates(Q3, V1_ORDERS, budget=6), "r", *"st")
    use = replace(V1_USE, support_cost=0.25)
    stretch = V1_PIPELINES["r"]
    assert candidate_benefit(cache, V1_PIPELINES, use) == benefit(stretch, use) - 4 * 0.25
    # Z is all inputs, so changes are seen behind the last join: 2 + 6 + 10.
    assert store_changes(cache.store, V1_PIPELINES) == Changes(18, 18)


def test_the_form_of_a_batch_is_the_same_formula():
    n_keys, n_new, probe, update, look_up = 8.0, 2.0, 0.5, 0.25, 0.125
    rows, costs = (n_keys, 12.0, 6.0), (1.0, 2.0)
    work = 8 * 1 + 12 * 2
    expected = (1 - n_new / n_keys) * work - n_keys * probe - n_new / n_keys * 6 * update
    use = CacheUse(n_new / n_keys, probe, update)
    assert benefit(Stretch(rows, costs), use) == pytest.approx(expected)
    assert upkeep_cost(Changes(seen=40, kept=4), update, look_up) == 4 * update + 40 * look_up


def test_a_batch_without_a_key_that_came_before_gains_nothing():
    use = CacheUse(miss_frac=1.0, probe_cost=0.0, update_cost=0.0)
    assert benefit(Stretch((8.0, 12.0, 6.0), (1.0, 2.0)), use) == 0


def test_v5_rows_are_means_and_costs_are_ratios_of_sums():
    estimate = StretchEstimate()
    for rows, work in ((3, 6), (0, 0), (5, 14), (0, 0)):
        estimate = estimate.observed(StretchCounts((1, rows, 0), (1, work)), window=4)
    found = estimate.stretch(rate=100)
    assert found.rows == (100, 200, 0)
    assert found.costs == (1, 2.5)


def test_v5_a_cost_stays_what_it_was_where_nothing_comes():
    estimate = StretchEstimate().observed(StretchCounts((1, 2, 0), (1, 8)), window=2)
    assert estimate.costs == (1, 4)
    for _ in range(3):
        estimate = estimate.observed(StretchCounts((1, 0, 0), (1, 0)), window=2)
    assert len(estimate.observations) == 2
    assert estimate.costs == (1, 4)
    assert estimate.observed(StretchCounts((1, 1, 0), (1, 3)), window=2).costs == (1, 3)


def test_observations_may_be_samples_of_any_size():
    estimate = StretchEstimate()
    for rows in ((4, 8), (6, 2)):
        estimate = estimate.observed(StretchCounts(rows, (1,)))
    assert estimate.stretch(rate=100).rows == (100, 100)


def test_nothing_came_at_all():
    empty = StretchCounts((0, 0, 0), (0, 0))
    assert StretchEstimate().observed(empty).stretch(100) == Stretch((0, 0, 0), (0, 0))
    with pytest.raises(ValueError, match="nothing was observed"):
        StretchEstimate().stretch(100)


def test_estimates_forget():
    estimate = StretchEstimate()
    for n in range(20):
        estimate = estimate.observed(StretchCounts((1, n), (n,)))
    assert len(estimate.observations) == 10
    assert estimate.stretch(1).rows[1] == pytest.approx(14.5)


def test_counts_of_buckets_add_up_whatever_the_order():
    one, two, three = (StretchCounts((n, 2 * n), (3 * n,)) for n in (1, 2, 5))
    assert (one + two) + three == one + (two + three) == three + two + one
    assert one + two == StretchCounts((3, 6), (9,))
    assert ProbeCounts(1, 0) + ProbeCounts(4, 2) == ProbeCounts(5, 2)


def test_v4_misses_are_the_mean_of_the_newest_observations():
    estimate = ProbeEstimate()
    assert (estimate.keys, estimate.miss_frac) == (0, 1)
    for misses in (8, 4, 2, 6):
        estimate = estimate.observed(ProbeCounts(8, misses), window=3)
    assert estimate.keys == 8
    assert estimate.miss_frac == 0.5

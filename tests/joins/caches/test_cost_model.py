from __future__ import annotations

import pytest

from eddyline.joins.caches.choice import (
    JoinEstimate,
    Stretch,
    benefit,
    proc,
    upkeep_cost,
)

V1_USE = {"miss_frac": 0.1, "probe_cost": 0.5, "update_cost": 0.5}
V1 = Stretch((10.0, 10.0, 10.0), (2.0, 2.0))
"""The pipeline of t in the thesis' example; r and s tell 2 changes of their join each."""


def test_v1_benefit_and_cost():
    assert V1.work == 40
    assert proc(V1, **V1_USE) == pytest.approx(9.5)
    assert benefit(V1, **V1_USE) == pytest.approx(30.5)
    assert upkeep_cost(seen=4, kept=4, update_cost=0.5) == pytest.approx(2)
    assert V1.rows_per_entry == 1.0


def test_v1_break_even():
    even = V1_USE | {"miss_frac": (40 - 5 - 2) / 45}
    assert benefit(V1, **even) == pytest.approx(2)


def test_a_part_of_a_pipeline():
    whole = Stretch((10.0, 20.0, 5.0, 1.0), (1.0, 2.0, 3.0))
    assert whole.part(1, 3) == Stretch((20.0, 5.0, 1.0), (2.0, 3.0))
    assert whole.works == (10, 40, 15)
    assert whole.part(1, 3).rows_per_entry == 1 / 20
    assert Stretch((0.0, 0.0), (1.0,)).rows_per_entry == 0


def test_the_form_of_a_batch_is_the_same_formula():
    n_keys, n_new, probe, update, look_up = 8.0, 2.0, 0.5, 0.25, 0.125
    rows, costs = (n_keys, 12.0, 6.0), (1.0, 2.0)
    work = 8 * 1 + 12 * 2
    expected = (1 - n_new / n_keys) * work - n_keys * probe - n_new / n_keys * 6 * update
    found = benefit(Stretch(rows, costs), n_new / n_keys, probe, update)
    assert found == pytest.approx(expected)
    assert upkeep_cost(40, 4, update, look_up) == 4 * update + 40 * look_up


def test_a_batch_without_a_key_that_came_before_gains_nothing():
    assert benefit(Stretch((8.0, 12.0, 6.0), (1.0, 2.0)), 1.0, 0.0, 0.0) == 0


def test_v5_rows_are_means_and_costs_are_ratios_of_sums():
    estimate = JoinEstimate()
    for n_in, n_out, work in ((3, 6, 6), (0, 0, 0), (5, 2, 14), (0, 0, 0)):
        estimate = estimate.observed(n_in, n_out, work, window=4)
    assert estimate.fan_out == 1
    assert estimate.cost == 2.5


def test_v5_a_cost_stays_what_it_was_where_nothing_comes():
    estimate = JoinEstimate().observed(2, 0, 8, window=2)
    assert estimate.cost == 4
    for _ in range(3):
        estimate = estimate.observed(0, 0, 0, window=2)
    assert len(estimate.observations) == 2
    assert (estimate.cost, estimate.fan_out) == (4, 0)
    assert estimate.observed(1, 0, 3, window=2).cost == 3


def test_nothing_came_at_all():
    assert JoinEstimate().observed(0, 0, 0) == JoinEstimate(((0, 0, 0),))
    assert (JoinEstimate().cost, JoinEstimate().fan_out) == (0, 0)


def test_estimates_forget():
    estimate = JoinEstimate()
    for n in range(20):
        estimate = estimate.observed(1, n, n, window=10)
    assert len(estimate.observations) == 10
    assert estimate.fan_out == pytest.approx(14.5)
    assert estimate.cost == pytest.approx(14.5)

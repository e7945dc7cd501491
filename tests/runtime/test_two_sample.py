"""Evidence that the data contradicts is let go; what merely wobbles is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eddyline.filters.loop import FilterLoop
from eddyline.options import FilterOptions
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.runtime.monitors import TwoSampleOptions
from eddyline.runtime.order_loop import costs_ns
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, merge

NAMES = ("a", "b", "c")


def sample_of(fracs, n_rows, rng, **given):
    drops = rng.random((n_rows, len(fracs))) < np.array(fracs)
    return FilterProfile.of_sample(NAMES, drops, **given)


def contradiction(order, known, fresh):
    """Return position, drop fraction before and now of what a batch contradicts."""
    found = TwoSampleOptions().build(3, 0).observe(fresh, order, known, np.full(3, np.nan))
    if found is None:
        return -1, 0.0, 0.0
    assert found.n_fresh == 0
    evidence = found.evidence
    return evidence["position"], evidence["drop_frac_before"], evidence["drop_frac_now"]


def counted(fracs, n_rows, order=(0, 1, 2)):
    """A profile without a sample: counts of the main pass, exactly as expected."""
    rows_in, rows_out = np.zeros(3), np.zeros(3)
    alive = float(n_rows)
    for f in order:
        rows_in[f] = alive
        alive = rows_out[f] = round(alive * (1.0 - fracs[f]))
    costs = CostSums.of_calls(rows_in, 100.0 * rows_in)
    base = FilterProfile.empty(NAMES)
    return replace(
        base, rows_in=rows_in, rows_out=rows_out, n_rows=n_rows, costs=costs, ran_under=order
    )


@pytest.mark.parametrize("seed", range(20))
def test_steady_data_contradicts_nothing(seed):
    rng = np.random.default_rng(seed)
    known = sample_of((0.5, 0.3, 0.2), 1_000, rng)
    assert contradiction((0, 1, 2), known, sample_of((0.5, 0.3, 0.2), 200, rng))[0] == -1
    assert contradiction((0, 1, 2), known, counted((0.5, 0.3, 0.2), 10_000))[0] == -1


def test_the_first_position_that_changed_is_named():
    rng = np.random.default_rng(1)
    known = sample_of((0.5, 0.3, 0.2), 2_000, rng)
    position, before, now = contradiction(
        (2, 0, 1), known, counted((0.9, 0.9, 0.2), 10_000, (2, 0, 1))
    )
    assert position == 1
    assert before == pytest.approx(0.5, abs=0.05)
    assert now == pytest.approx(0.9, abs=0.01)


def test_rows_that_met_several_orders_are_judged_by_the_sample_alone():
    """What a filter drops in another order is no contradiction of what it drops in this one."""
    rng = np.random.default_rng(1)
    known = sample_of((0.5, 0.3, 0.2), 2_000, rng)
    mixed = merge([counted((0.9, 0.9, 0.2), 5_000), counted((0.9, 0.9, 0.2), 5_000, (1, 0, 2))])
    assert mixed.ran_under is None
    assert contradiction((0, 1, 2), known, mixed)[0] == -1
    same = merge([counted((0.9, 0.9, 0.2), 5_000), counted((0.9, 0.9, 0.2), 5_000)])
    assert contradiction((0, 1, 2), known, same)[0] == 0


def test_a_handful_of_rows_contradicts_nothing():
    rng = np.random.default_rng(1)
    known = sample_of((0.5, 0.3, 0.2), 2_000, rng)
    assert contradiction((0, 1, 2), known, counted((1.0, 0.0, 0.0), 4))[0] == -1
    empty = FilterProfile.empty(NAMES)
    assert contradiction((0, 1, 2), known, empty)[0] == -1
    assert contradiction((0, 1, 2), empty, known)[0] == -1


def full_loop(rng, **options):
    loop = FilterLoop("arrow", NAMES, FilterOptions(**options))
    costs = CostSums.of_rows(100, np.array([100.0, 100.0, 100.0]))
    loop.step(sample_of((0.9, 0.3, 0.2), 1_000, rng, costs=costs))
    assert loop.window.profile().n_tuples > 500
    for _ in range(20):  # the budget for another warm-up comes from work that was done
        assert not [
            e for e in loop.step(counted((0.9, 0.3, 0.2), 10_000, loop.order)) if e.event == "stale"
        ]
    return loop


def test_the_window_empties_and_warm_up_starts_again():
    loop = full_loop(np.random.default_rng(2))
    assert loop.sample_prob() < 0.05
    assert loop.piece_rows(10_000) == 10_000
    entries = loop.step(counted((0.1, 0.3, 0.2), 10_000))
    assert [entry.event for entry in entries] == ["stale"]
    assert entries[0].evidence["filter"] == "a"
    assert loop.window.profile().n_tuples == 0
    assert loop.window.profile().costs.is_known.all()  # costs are not what changed
    assert loop.sample_prob() == 0.1
    assert loop.piece_rows(10_000) == 1_000


def test_unsteady_data_empties_it_only_so_often():
    rng = np.random.default_rng(3)
    loop = full_loop(rng, max_overhead=0.001)
    n_emptied = 0
    for batch in range(200):
        fracs = (0.1, 0.3, 0.2) if batch % 2 else (0.9, 0.3, 0.2)
        loop.step(counted(fracs, 1_000, loop.order))
        n_emptied += loop.window.profile().n_tuples == 0
        loop.step(sample_of(fracs, 150, rng))
    # A warm-up of 100 tuples evaluates at most 200 filters more at 100 ns each.
    work_ns = (20 * 10_000 + 200 * 1_000) * 300.0
    assert 1 <= n_emptied <= 0.001 * work_ns / (100 * 100.0 * 0.3)


def test_switched_off_nothing_is_let_go():
    loop = FilterLoop("arrow", NAMES, FilterOptions(adaptive=False))
    assert loop.step(counted((0.1, 0.3, 0.2), 10_000)) == []


def test_the_budget_follows_what_rows_cost_now():
    """Behind a filter that drops everything profiling is dear; when it stops, there is money."""
    rng = np.random.default_rng(4)
    loop = FilterLoop("arrow", NAMES, FilterOptions(), warmup_prob=0.01)
    loop._warmups_ns = float("inf")  # not the staleness, the budget alone
    costs = CostSums.of_rows(1_000, np.array([10.0, 10_000.0, 10_000.0]))
    loop.step(sample_of((0.999, 0.3, 0.2), 2_000, rng, costs=costs))
    assert loop.order[0] == 0
    before = loop.sample_prob()
    assert before < 0.001
    busy = CostSums.of_calls(np.array([1000.0, 900.0, 630.0]), np.array([1e4, 9e6, 6.3e6]))
    for _ in range(4):
        loop.step(replace(counted((0.1, 0.3, 0.2), 1_000), costs=busy))
    assert loop.sample_prob() > 5 * before
    assert loop.sample_prob() <= 0.01


def test_filters_that_nothing_reached_stand_by_what_they_drop_in_general():
    """The first filter drops all: the rest is ordered by marginal drop per cost, not as written."""
    rng = np.random.default_rng(5)
    drops = rng.random((500, 3)) < np.array([0.1, 0.3, 1.0])
    profile = FilterProfile.of_sample(
        ("model", "cheap", "all"),
        drops,
        costs=CostSums.of_rows(1, np.array([9_000.0, 90.0, 100.0])),
    )
    policy = AGreedyOptions().build(3, rng)
    assert policy.propose((0, 1, 2), profile).order == (2, 1, 0)
    pure = AGreedyOptions(prior_tuples=0).build(3, rng)
    assert pure.propose((0, 1, 2), profile).order == (2, 0, 1)


def test_profiling_costs_what_it_adds():
    drops = np.array([[True, False], [False, True], [False, False], [True, True]])
    profile = FilterProfile.of_sample(
        ("a", "b"), drops, costs=CostSums.of_rows(1, np.array([10.0, 40.0]))
    )
    extra = np.array([[False, True], [False, False]])
    work, added = costs_ns((0, 1), profile, extra)
    assert work == pytest.approx(10.0 + 0.5 * 40.0)
    assert added == pytest.approx(0.5 * 40.0)

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import outcomes as codes
from eddyline.ordering.matrix_view import expected_cost_ns
from eddyline.routing.learning import (
    Cells,
    Outcomes,
    class_bins,
    greedy_orders,
    independent_costs,
    learn,
    shrunk,
)
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from eddyline.testing.reference_orders import static_greedy
from tests.oracles import profile_strategies as strategies


def outcomes_of(drops, weights=None):
    given_ = np.ones(len(drops)) if weights is None else np.asarray(weights, dtype=np.float64)
    return Outcomes.of(drops, codes.pack(drops), given_)


def slow_cost(bits, order, costs):
    spent = 0.0
    for f in order:
        spent += costs[f]
        if bits[f]:
            break
    return spent


some_drops = strategies.drops().filter(len)


@given(some_drops, st.data())
def test_costs_are_what_each_row_spends(drops, data):
    n = drops.shape[1]
    orders = np.array(data.draw(st.lists(strategies.orders(n), min_size=1, max_size=3)))
    costs = data.draw(strategies.costs(n))
    outcomes = outcomes_of(drops)
    found = outcomes.costs(orders, costs)[outcomes.of_row]
    slow = [[slow_cost(bits, order, costs) for order in orders] for bits in drops]
    np.testing.assert_allclose(found, slow)


@given(strategies.drops(n_filters=st.integers(1, 4)).filter(len), st.data())
def test_least_costs_are_those_of_the_best_order_of_each_row(drops, data):
    n = drops.shape[1]
    costs = data.draw(strategies.costs(n))
    outcomes = outcomes_of(drops)
    every = list(itertools.permutations(range(n)))
    slow = [min(slow_cost(bits, order, costs) for order in every) for bits in drops]
    np.testing.assert_allclose(outcomes.least_costs(costs)[outcomes.of_row], slow)


@pytest.mark.parametrize("n_filters", [3, 8, 9, 64, 65])
def test_outcomes_of_any_width_give_back_each_row(n_filters):
    rng = np.random.default_rng(0)
    drops = rng.random((200, n_filters)) < 0.1
    outcomes = outcomes_of(drops)
    np.testing.assert_array_equal(outcomes.drops[outcomes.of_row], drops)
    assert len(np.unique(outcomes.drops, axis=0)) == len(outcomes.drops)


def test_no_row_weighs_more_than_twice_the_median():
    outcomes = outcomes_of(np.zeros((5, 2), dtype=bool), [1.0, 1.0, 1.0, 0.5, 100.0])
    np.testing.assert_allclose(outcomes.weights * 5.5 / 5, [1.0, 1.0, 1.0, 0.5, 2.0])
    assert outcomes.weights.mean() == pytest.approx(1.0)


@given(some_drops, st.integers(0, 1000))
def test_cells_are_the_rows_of_a_class_and_an_outcome(drops, seed):
    class_of_row = np.random.default_rng(seed).integers(0, 4, len(drops)) * 7
    outcomes = outcomes_of(drops)
    cells = Cells.of(class_of_row, outcomes)
    assert cells.classes.tolist() == sorted(set(class_of_row.tolist()))
    np.testing.assert_array_equal(cells.classes[cells.owner][cells.of_row], class_of_row)
    np.testing.assert_array_equal(cells.code[cells.of_row], outcomes.of_row)
    np.testing.assert_array_equal(cells.owner[cells.starts], np.arange(len(cells.classes)))
    assert cells.sums(np.ones(len(drops))).sum() == len(drops)


@given(strategies.drops(n_filters=st.integers(2, 5), max_rows=60).filter(len), st.data())
def test_without_a_prior_each_class_gets_the_greedy_order(drops, data):
    n = drops.shape[1]
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    costs = rng.random(n) + 0.5  # no ties
    class_of_row = rng.integers(0, 3, len(drops))
    outcomes = outcomes_of(drops)
    cells = Cells.of(class_of_row, outcomes)
    n_classes = len(cells.classes)
    weights = cells.sums(np.ones(len(drops)))
    orders = greedy_orders(
        cells, outcomes.drops[cells.code], weights, np.zeros((n_classes, n)), costs
    )
    for number, order in zip(cells.classes, orders, strict=True):
        assert sorted(order) == list(range(n))
        profile = FilterProfile.of_sample(
            tuple(f"f{f}" for f in range(n)),
            drops[class_of_row == number],
            costs=CostSums.of_rows(1, costs),
        )
        greedy = expected_cost_ns(static_greedy(profile), profile)
        assert expected_cost_ns(tuple(order.tolist()), profile) == pytest.approx(greedy)


def test_a_class_without_rows_gets_the_order_of_its_prior():
    outcomes = outcomes_of(np.array([[True, False], [False, True]]))
    cells = Cells.of(np.array([0, 1]), outcomes)
    prior = np.array([[0.1, 0.9], [0.9, 0.1]])
    drops = outcomes.drops[cells.code]
    assert greedy_orders(cells, drops, np.zeros(2), prior, np.ones(2)).tolist() == [[1, 0], [0, 1]]


def test_independent_costs():
    fracs = np.array([[0.5, 0.1, 0.9], [1.0, 1.0, 0.0]])
    orders = np.array([[0, 1, 2], [2, 1, 0]])
    costs = np.array([1.0, 10.0, 100.0])
    expected = [[1 + 0.5 * 10 + 0.05 * 100, 100 + 0.9 * 10 + 0.09 * 1],
                [1 + 10 + 100, 100 + 0 + 0]]  # fmt: skip
    np.testing.assert_allclose(independent_costs(fracs, orders, costs), expected)
    np.testing.assert_allclose(independent_costs(fracs[:, :1], orders[:, :1] * 0, costs[:1]), 1.0)


counts = st.lists(st.tuples(st.integers(0, 60), st.floats(0, 1)), min_size=1, max_size=8)


@given(counts)
def test_shrunk_lies_between_its_own_fraction_and_the_overall_one(pairs):
    seen = np.array([float(n) for n, _ in pairs])
    passed = np.round(seen * np.array([share for _, share in pairs]))
    found = shrunk(seen, passed)
    overall = passed.sum() / max(seen.sum(), 1.0)
    own = np.divide(passed, seen, out=np.full(len(seen), overall), where=seen > 0)
    assert (found >= np.minimum(own, overall) - 1e-9).all()
    assert (found <= np.maximum(own, overall) + 1e-9).all()


def test_shrunk_is_all_the_way_where_bins_differ_by_chance_and_little_where_they_differ():
    rng = np.random.default_rng(1)
    seen = np.full(24, 80.0)
    alike = rng.binomial(80, 0.5, 24).astype(float)
    apart = rng.binomial(80, np.where(np.arange(24) % 2, 0.1, 0.9)).astype(float)
    assert np.ptp(shrunk(seen, alike)) < 0.3 * np.ptp(alike / seen)
    np.testing.assert_allclose(shrunk(seen, apart), apart / seen, atol=0.02)


def test_learning_keeps_the_default_where_no_other_order_is_better():
    rng = np.random.default_rng(2)
    drops = rng.random((3000, 3)) < np.array([0.9, 0.5, 0.1])
    outcomes = outcomes_of(drops)
    cells = Cells.of(rng.integers(0, 5, 3000), outcomes)
    fracs = np.tile(1.0 - drops.mean(axis=0), (5, 1))
    learned = learn(
        cells, outcomes, cells.sums(np.ones(3000)), fracs, (0, 1, 2), np.ones(3),
        prior_rows=50.0, max_groups=16, group_ns=0.0,
    )  # fmt: skip
    assert {tuple(order) for order in learned.orders.tolist()} == {(0, 1, 2)}


def test_bins_of_classes_are_mixed_radix():
    assert [each.tolist() for each in class_bins(np.arange(6), [2, 3])] == [
        [0, 0, 0, 1, 1, 1],
        [0, 1, 2, 0, 1, 2],
    ]
    assert class_bins(np.arange(1), []) == []

"""What attributes tell: worked examples T1 and T2, T9; and the orders of classes."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eddyline.data import outcomes as codes
from eddyline.ordering.protocol import expected_cost_ns
from eddyline.routing.learning import (
    Cells,
    Classifier,
    Outcomes,
    count,
    difference,
    entropy,
    gains,
    greedy_orders,
    independent_costs,
    learn,
    shrunk,
)
from eddyline.routing.table import Partition, choose_partition
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from eddyline.testing.reference_orders import static_greedy
from tests.oracles import profile_strategies as strategies

# -- information -------------------------------------------------------------------------------

TABLE_1 = {
    # filter: (pass fraction at a, b, c), H(R), mean H(R_i), gain, gain ratio by (5)
    "O1": ((0.32, 0.31, 0.27), 0.881291, 0.879673, 0.001618, 0.001021),
    "O2": ((0.10, 0.20, 0.90), 0.970951, 0.553306, 0.417644, 0.263504),
    "O3": ((0.55, 0.65, 0.60), 0.970951, 0.965931, 0.005020, 0.003167),
}


@pytest.mark.parametrize("name", TABLE_1)
def test_t1_entropy_and_gain_ratio_of_table_1(name):
    fracs, overall, within, gain, ratio = TABLE_1[name]
    found = gains([np.full(3, 100.0)], [100.0 * np.array([fracs])])
    assert entropy(np.array([np.mean(fracs)]))[0] == pytest.approx(overall, abs=1e-5)
    assert entropy(np.array(fracs)).mean() == pytest.approx(within, abs=1e-5)
    assert found.info[0, 0] == pytest.approx(gain, abs=1e-5)
    assert found.ratio[0, 0] == pytest.approx(ratio, abs=1e-5)
    assert found.split_info[0] == pytest.approx(1.584963, abs=1e-6)


@pytest.mark.parametrize(
    ("seen", "passed", "ratio", "g", "is_significant"),
    [
        ((50, 50, 50), (5, 10, 45), 0.263504, 86.8, True),
        ((100, 100, 100), (32, 31, 27), 0.001021, 0.67, False),
        ((100, 100, 100), (10, 20, 90), 0.263504, 173.7, True),
        ((100, 100, 100), (55, 65, 60), 0.003167, 2.09, False),
    ],
)
def test_t2_gain_ratio_from_counters(seen, passed, ratio, g, is_significant):
    found = gains([np.array(seen, float)], [np.array([passed], float)])
    assert found.ratio[0, 0] == pytest.approx(ratio, abs=1e-5)
    assert found.g_statistic[0, 0] == pytest.approx(g, abs=0.05)
    assert found.is_significant(0.05)[0, 0] == is_significant  # chi-square 5.99 of 2 degrees


@pytest.mark.parametrize(("level", "is_significant"), [(0.05, False), (0.0501, True)])
def test_the_bound_is_that_of_the_chi_square(level, is_significant):
    # 5.9915 is the 95 % bound of 2 degrees; gains are scaled to lie just below it
    found = gains([np.full(3, 50.0)], [np.array([[5.0, 10.0, 45.0]])])
    scale = 5.9914 / found.g_statistic[0, 0]
    smaller = gains([np.full(3, 50.0 * scale)], [scale * np.array([[5.0, 10.0, 45.0]])])
    assert smaller.is_significant(level)[0, 0] == is_significant


@pytest.mark.parametrize("passed", [(0.0, 0.0, 0.0), (50.0, 50.0, 50.0)])
def test_t2_a_filter_that_passes_all_or_nothing_has_no_classifier(passed):
    found = gains([np.full(3, 50.0)], [np.array([passed])])
    assert found.ratio[0, 0] == 0.0
    assert not found.is_significant(0.01).any()


def test_t9_a_constant_attribute_is_no_classifier():
    found = gains([np.array([150.0, 0.0, 0.0])], [np.array([[60.0, 0.0, 0.0]])])
    assert found.split_info[0] == 0.0
    assert found.ratio[0, 0] == 0.0
    assert not found.is_significant(0.01).any()


def test_t9_no_attributes_and_no_rows():
    assert gains([], []).ratio.shape == (0, 0)
    found = gains([np.zeros(3)], [np.zeros((2, 3))])
    assert found.ratio.tolist() == [[0.0], [0.0]]
    assert found.beyond_chance.tolist() == [[0.0], [0.0]]
    assert not found.is_significant(0.01).any()


@given(st.integers(0, 30), st.integers(1, 4), st.integers(0, 3), st.integers(0, 10**6))
def test_counters_and_gains_equal_a_slow_count(n_rows, n_filters, n_attributes, seed):
    rng = np.random.default_rng(seed)
    drops = rng.random((n_rows, n_filters)) < rng.random(n_filters)
    sizes = [int(rng.integers(1, 6)) for _ in range(n_attributes)]
    bins = [rng.integers(0, size, n_rows) for size in sizes]
    seen, passed = count(bins, sizes, np.arange(n_rows), drops)
    found = gains(seen, passed)
    for k, size in enumerate(sizes):
        tally = Counter(bins[k].tolist())
        assert seen[k].tolist() == [tally[b] for b in range(size)]
        for f in range(n_filters):
            outcomes = [[bool(not d) for d in drops[bins[k] == b, f]] for b in range(size)]
            assert passed[k][f].tolist() == [sum(each) for each in outcomes]
            expected = slow_entropy([bool(not d) for d in drops[:, f]]) - sum(
                len(each) / n_rows * slow_entropy(each) for each in outcomes if each
            )
            assert found.info[f, k] == pytest.approx(expected, abs=1e-9)


def slow_entropy(outcomes: list[bool]) -> float:
    shares = [n / len(outcomes) for n in Counter(outcomes).values()]
    return -sum(p * math.log2(p) for p in shares)


@pytest.mark.parametrize(
    ("n_rows", "bits", "ratio"), [(150, 0.1106, 0.024), (1000, 0.0166, 0.0036)]
)
def test_chance_alone_gives_the_gain_that_is_taken_off(n_rows, bits, ratio):
    rng = np.random.default_rng(5)
    infos, ratios, left = [], [], []
    for _ in range(400):
        drops = rng.random((n_rows, 1)) < 0.5
        found = gains(*count([rng.integers(0, 24, n_rows)], [24], np.arange(n_rows), drops))
        infos.append(found.info[0, 0])
        ratios.append(found.ratio[0, 0])
        left.append((found.info - found.beyond_chance)[0, 0])
    # the formula holds for many rows per bin; at six it is 15 % short
    assert np.mean(infos) == pytest.approx(bits, rel=0.2)
    assert np.mean(ratios) == pytest.approx(ratio, rel=0.2)
    assert np.max(left) == pytest.approx(bits, rel=0.02)


def test_the_gate_lets_one_in_a_hundred_through():
    rng = np.random.default_rng(6)
    sizes = [24] * 8
    drops = rng.random((2000, 400)) < 0.5  # 400 filters that depend on nothing
    bins = [rng.integers(0, 24, 2000) for _ in sizes]
    found = gains(*count(bins, sizes, np.arange(2000), drops))
    false = found.is_significant(0.01).any(axis=1).mean()
    assert false < 0.01 + 4 * np.sqrt(0.01 / 400)


# -- ranges that merge -------------------------------------------------------------------------

N_PARTS = 4


def classifier_of(values, drops, partition=None):
    part = partition or choose_partition("a", "number", values)
    bins = part.bins(values)
    size, n = part.n_bins, drops.shape[1]
    parts = bins * N_PARTS + np.arange(len(values)) % N_PARTS
    seen, passed = count([parts], [size * N_PARTS], np.arange(len(values)), drops)
    by_part = seen[0].reshape(size, N_PARTS), passed[0].reshape(n, size, N_PARTS)
    return Classifier(part, bins, *by_part)


@pytest.mark.parametrize("seed", range(5))
def test_ranges_that_say_the_same_become_one(seed):
    rng = np.random.default_rng(seed)
    values = rng.random(6000)
    drops = rng.random((6000, 2)) < np.where(values < 0.5, 0.2, 0.8)[:, None]
    merged = classifier_of(values, drops).merged(np.array([True, True]))
    assert 1 <= len(merged.partition.points) <= 3
    assert min(abs(edge - 0.5) for edge in merged.partition.points) < 0.05


def test_merging_keeps_counters_and_bins_together():
    rng = np.random.default_rng(7)
    values = np.where(rng.random(4000) < 0.1, np.nan, rng.random(4000))
    drops = rng.random((4000, 3)) < np.where(values < 0.3, 0.1, 0.6)[:, None]
    merged = classifier_of(values, drops).merged(np.array([True, False, True]))
    again = classifier_of(values, drops, merged.partition)
    np.testing.assert_array_equal(merged.bins, again.bins)
    np.testing.assert_array_equal(merged.seen, again.seen)
    np.testing.assert_array_equal(merged.passed, again.passed)
    assert merged.n_bins == merged.partition.n_bins


def test_only_the_filters_that_it_tells_about_keep_ranges_apart():
    rng = np.random.default_rng(8)
    values = rng.random(6000)
    drops = rng.random((6000, 2)) < np.stack([np.full(6000, 0.5), values], axis=1)
    classifier = classifier_of(values, drops)
    assert len(classifier.merged(np.array([False, True])).partition.points) > 4
    assert len(classifier.merged(np.array([True, False])).partition.points) <= 2


def test_values_are_left_as_they_are():
    values = np.tile([1.0, 2.0, 3.0], 500)
    classifier = classifier_of(values, np.random.default_rng(9).random((1500, 1)) < 0.5)
    assert classifier.partition.kind == "values"
    assert classifier.merged(np.array([True])) is classifier


def test_a_partition_without_edges():
    values = np.random.default_rng(10).random(100)
    classifier = classifier_of(values, values[:, None] < 0.5, Partition("a", "ranges"))
    assert classifier.merged(np.array([True])).n_bins == 2


def test_difference_of_neighbours_is_the_g_test_of_two_by_two_tables():
    seen, passed = np.array([50.0, 50.0, 50.0]), np.array([[5.0, 10.0, 45.0], [20.0, 25.0, 1.0]])
    expected = [
        sum(
            stats.chi2_contingency(
                np.array([good[i : i + 2], (seen - good)[i : i + 2]]),
                correction=False,
                lambda_="log-likelihood",
            ).statistic
            for good in passed
        )
        for i in range(2)
    ]
    np.testing.assert_allclose(difference(seen, passed), expected)
    assert difference(np.array([0.0, 50.0]), np.array([[0.0, 9.0]])).tolist() == [0.0]


# -- orders of classes -------------------------------------------------------------------------


def outcomes_of(drops, weights=None):
    given_ = np.ones(len(drops)) if weights is None else np.asarray(weights, dtype=np.float64)
    return Outcomes.from_drops(drops, codes.pack(drops), given_)


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
    cells = Cells.from_outcomes(class_of_row, outcomes)
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
    cells = Cells.from_outcomes(class_of_row, outcomes)
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
    cells = Cells.from_outcomes(np.array([0, 1]), outcomes)
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
    cells = Cells.from_outcomes(rng.integers(0, 5, 3000), outcomes)
    fracs = np.tile(1.0 - drops.mean(axis=0), (5, 1))
    learned = learn(
        cells, outcomes, cells.sums(np.ones(3000)), fracs, (0, 1, 2), np.ones(3),
        prior_rows=50.0, max_groups=16, group_ns=0.0,
    )  # fmt: skip
    assert {tuple(order) for order in learned.orders.tolist()} == {(0, 1, 2)}

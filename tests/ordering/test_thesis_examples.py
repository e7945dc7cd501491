"""The worked examples of chapters 3 and 4 of the thesis, with their numbers in the test names."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.independent import IndependentOptions
from eddyline.ordering.local_swaps import LocalSwapsOptions
from eddyline.ordering.protocol import drop_fracs, expected_cost_ns
from eddyline.stats.profile import FilterProfile, ProfileWindow
from eddyline.testing.reference_orders import optimal, static_greedy
from eddyline.testing.simulation import run_batch
from tests.oracles.conjunctions import TupleAGreedy, count_evaluations, matrix_view
from tests.ordering.profiles import profile_of, rng

F1, F2, F3, F4 = range(4)
NAMES = ("F1", "F2", "F3", "F4")

# Example 4.2.1: which filters drop a value; 3 and 6 as completed for Example 4.3.3.
DROPS = {
    value: tuple(bit == "1" for bit in bits)
    for value, bits in {
        1: "0000", 2: "0010", 3: "0011", 4: "0111", 5: "1101", 6: "1101", 7: "1000",
    }.items()
}  # fmt: skip
INPUT_421 = (1, 2, 1, 4, 7, 2, 5, 4)
ARRIVALS_431 = (2, 4, 7, 2, 5, 4)
ORDER_432 = (F3, F1, F2, F4)


def window_of(values) -> FilterProfile:
    return profile_of([DROPS[value] for value in values])


@pytest.mark.parametrize(
    ("order", "probes"),
    [
        ((F1, F2, F3, F4), 20),
        ((F3, F2, F4, F1), 18),
        ((F3, F1, F2, F4), 16),
        ((F3, F1, F4, F2), 16),
    ],
)
def test_example_4_2_1_probe_counts(order, probes):
    drops = np.array([DROPS[value] for value in INPUT_421])
    policy = AGreedyOptions().build(4, rng())
    batch = run_batch(drops, order, policy, np.ones(4), np.arange(0), prob=1.0)
    assert count_evaluations(drops, order) == probes
    assert batch.n_evaluations == probes
    assert batch.n_kept == 2
    assert expected_cost_ns(order, profile_of(drops)) * len(drops) == pytest.approx(probes)


def test_example_4_2_1_best_is_16_and_worst_22_probes():
    drops = [DROPS[value] for value in INPUT_421]
    probes = [count_evaluations(drops, order) for order in itertools.permutations(range(4))]
    assert (min(probes), max(probes)) == (16, 22)


def test_example_4_2_1_value_2_needs_three_probes():
    assert count_evaluations([DROPS[2]], (F1, F2, F3, F4)) == 3


def test_example_4_3_1_profile_window():
    reference = TupleAGreedy([1] * 4, order=ORDER_432, window_rows=6, min_fill=7)
    for value in (1, 1, *ARRIVALS_431):  # 1 passes every filter
        reference.process(DROPS[value])
    expected = [DROPS[value] for value in ARRIVALS_431]
    assert list(reference.window) == expected

    window = ProfileWindow(NAMES, 6)
    for value in (1, 1, *ARRIVALS_431):
        window.push(FilterProfile.of_sample(NAMES, np.array([DROPS[value]])))
    np.testing.assert_array_equal(window.profile().codes, window_of(ARRIVALS_431).codes)


def test_example_4_3_2_matrix_view():
    view = matrix_view(ORDER_432, window_of(ARRIVALS_431))
    expected = [[4, 2, 3, 3], [0, 2, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(view, expected)
    assert view.trace() == len(ARRIVALS_431)


def test_example_4_3_2_holds_the_invariant():
    pure = AGreedyOptions(hysteresis=1, min_fill=1, min_gain=0, prior_tuples=0).build(4, rng())
    assert pure.propose(ORDER_432, window_of(ARRIVALS_431)) is None


class TestExample433:
    window = (7, 2, 5, 4, 3, 6)  # 3 and 6 arrive, the two oldest leave

    def test_violation_view(self):
        view = matrix_view(ORDER_432, window_of(self.window))
        np.testing.assert_array_equal(
            view, [[3, 3, 3, 4], [0, 3, 2, 2], [0, 0, 0, 0], [0, 0, 0, 0]]
        )

    @pytest.mark.parametrize("hysteresis", [0.9, 1.0])
    def test_repair_is_f4_f3_f1_f2(self, hysteresis):
        pure = AGreedyOptions(hysteresis=hysteresis, min_fill=1, min_gain=0, prior_tuples=0).build(
            4, rng()
        )
        proposal = pure.propose(ORDER_432, window_of(self.window))
        assert proposal is not None
        assert proposal.order == (F4, F3, F1, F2)
        assert proposal.evidence["position"] == 0
        assert (proposal.evidence["filter"], proposal.evidence["better_filter"]) == ("F3", "F4")
        assert (proposal.evidence["ratio"], proposal.evidence["better_ratio"]) == (3, 4)

    @pytest.mark.parametrize("order", [(F4, F3, F1, F2), (F4, F1, F3, F2)])
    def test_view_after_rotation_and_after_the_printed_swap(self, order):
        view = matrix_view(order, window_of(self.window))
        np.testing.assert_array_equal(
            view, [[4, 3, 3, 3], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
        )

    def test_tuple_by_tuple(self):
        reference = TupleAGreedy([1] * 4, order=ORDER_432, window_rows=6, min_fill=6)
        for value in ARRIVALS_431:
            reference.process(DROPS[value])
        assert reference.order == list(ORDER_432)
        for value in (3, 6):
            reference.process(DROPS[value])
        assert reference.order == [F4, F3, F1, F2]


def redundant(n: int) -> np.ndarray:
    """Example 4.5.1: F1..Fn-1 all pass 1..49, Fn passes 50..100; a row for each value."""
    value = np.arange(1, 101)[:, None]
    low = np.arange(n) < n - 1
    return np.where(low, value > 49, value < 50)


@pytest.mark.parametrize("n", [4, 8, 20])
def test_example_4_5_1_independent_pays_and_a_greedy_does_not(n):
    profile = profile_of(redundant(n))
    written = (n - 1, *range(n - 1))
    ranked = IndependentOptions(hysteresis=1, min_fill=1).build(n, rng()).propose(written, profile)
    assert ranked is not None
    assert ranked.order[-1] == n - 1
    assert expected_cost_ns(ranked.order, profile) == pytest.approx(0.49 * n + 0.51)
    repaired = AGreedyOptions().build(n, rng()).propose(ranked.order, profile)
    assert repaired is not None
    assert repaired.order[1] == n - 1
    assert expected_cost_ns(repaired.order, profile) == pytest.approx(1.49)


def test_example_4_5_1_cost_terms():
    reach = np.cumprod([1.0, *(1 - drop_fracs((0, 3, 1, 2), profile_of(redundant(4))))])
    np.testing.assert_allclose(reach[:4], [1, 0.49, 0, 0], atol=1e-12)
    reach = np.cumprod([1.0, *(1 - drop_fracs((0, 1, 2, 3), profile_of(redundant(4))))])
    np.testing.assert_allclose(reach[:4], [1, 0.49, 0.49, 0.49])


def slices(n: int) -> np.ndarray:
    """Example 4.6.1: F_i drops the i-th slice of 100 values, Fn all but the slice of Fn-1."""
    slice_of = np.arange(100)[:, None] * n // 100
    drops = slice_of == np.arange(n)
    drops[:, n - 1] = slice_of[:, 0] != n - 2
    return drops


def test_example_4_6_1_local_swaps_stay_stuck():
    n = 10
    written = tuple(range(n))
    profile = profile_of(slices(n))
    policy = LocalSwapsOptions(window_rows=100, min_fill=100, hysteresis=1).build(n, rng())
    policy.observe(profile, written)
    assert policy.propose(written, profile) is None
    assert expected_cost_ns(written, profile) == pytest.approx((n + 1) / 2)


def test_example_4_6_1_a_greedy_finds_the_new_filter():
    n = 10
    profile = profile_of(slices(n))
    proposal = AGreedyOptions(min_fill=1).build(n, rng()).propose(tuple(range(n)), profile)
    assert proposal is not None
    assert proposal.order[:2] == (n - 1, n - 2)
    assert expected_cost_ns(proposal.order, profile) == pytest.approx(1 + 1 / n)


# Q1 of Example 2.1.1: A > 10 and B < 20 and C > 40 as the data changes. Each row: the drop
# fraction of A > 10, of B < 20, of C > 40 where B < 20, and of C > 40 elsewhere.
PHASES = {
    "a": ((0.11, 0.80, 0.41, 0.41), (F2, F3, F1), 1.318),
    "b": ((0.11, 0.80, 0.00, 0.5125), (F2, F1, F3), 1.378),
    "c": ((0.11, 0.05, 0.04, 0.04), (F1, F2, F3), 2.7355),
}


@pytest.mark.parametrize("phase", PHASES)
def test_example_2_1_1_order_follows_the_data(phase):
    (a, b, c_where_b, c_else), order, cost = PHASES[phase]
    bits = np.array(list(itertools.product([False, True], repeat=3)))
    c = np.where(bits[:, 1], c_else, c_where_b)
    drop = np.stack([np.full(8, a), np.full(8, b), c], axis=1)
    weight = np.where(bits, drop, 1 - drop).prod(axis=1)  # of 000 first: the row that passes
    profile = replace(profile_of(bits), weights=weight[1:], passed=float(weight[0]))
    assert static_greedy(profile) == order
    assert optimal(profile) == order
    assert expected_cost_ns(order, profile) == pytest.approx(cost)

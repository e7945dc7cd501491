from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import outcomes as outcome
from eddyline.ordering.protocol import drop_fracs, expected_cost_ns
from eddyline.ordering.sweep import SweepOptions
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from eddyline.testing.simulation import run_batch
from tests.oracles import profile_strategies as strategies
from tests.oracles.conjunctions import (
    TupleAGreedy,
    count_evaluations,
    matrix_view,
    view_by_definition,
)


def outcomes_of(profile: FilterProfile) -> np.ndarray:
    return outcome.unpack(profile.codes, profile.n_filters)


@given(strategies.ordered_profiles())
def test_view_equals_its_definition(given_):
    order, profile = given_
    weight = profile.weights[0] if profile.n_tuples else 1.0
    expected = np.array(view_by_definition(outcomes_of(profile), order)) * weight
    np.testing.assert_array_equal(matrix_view(order, profile), expected)


@given(strategies.ordered_profiles())
def test_view_identities(given_):
    order, profile = given_
    view = matrix_view(order, profile)
    assert view.trace() == profile.weights.sum()
    above = np.triu(view[:-1] - view[1:], 1)
    assert (above >= 0).all()
    assert (np.tril(view, -1) == 0).all()


@given(strategies.ordered_profiles())
def test_drop_fracs_are_conditional_on_the_prefix(given_):
    order, profile = given_
    view = matrix_view(order, profile)
    fracs = drop_fracs(order, profile)
    for i in range(len(order)):
        alive = view.diagonal()[i:].sum() + profile.passed
        assert fracs[i] == pytest.approx(view[i, i] / alive if alive else 0.0)


@given(strategies.drops(), st.data())
def test_expected_cost_equals_counted_evaluations(drops, data):
    n = drops.shape[1]
    order = data.draw(strategies.orders(n))
    profile = FilterProfile.of_sample(
        tuple(map(str, range(n))), drops, costs=CostSums.of_rows(1, np.ones(n))
    )
    if len(drops):
        counted = count_evaluations(drops, order) / len(drops)
        assert expected_cost_ns(order, profile) == pytest.approx(counted)


@given(strategies.drops(n_filters=st.just(4)), st.integers(1, 12), st.integers(0, 2**20))
def test_incremental_view_equals_the_recomputed_one(drops, window_rows, seed):
    reference = TupleAGreedy([1, 2, 1, 3], window_rows=window_rows)
    for row in drops[np.random.default_rng(seed).permutation(len(drops))]:
        reference.process(row)
        assert reference.view == view_by_definition(reference.window, reference.order)
        assert sum(reference.view[i][i] for i in range(4)) == len(reference.window)


def test_without_evidence_everything_is_zero_and_nothing_drops():
    empty = FilterProfile.empty(("a", "b", "c"))
    profile = replace(empty, costs=CostSums.of_rows(1, np.array([5.0, 7.0, 9.0])))
    order = (2, 0, 1)
    np.testing.assert_array_equal(matrix_view(order, profile), np.zeros((3, 3)))
    np.testing.assert_array_equal(drop_fracs(order, profile), np.zeros(3))
    assert expected_cost_ns(order, profile) == 21.0


def test_costs_are_taken_by_position():
    drops = np.array([[True, False], [False, False]])
    profile = FilterProfile.of_sample(
        ("a", "b"), drops, costs=CostSums.of_rows(1, np.array([10.0, 4.0]))
    )
    assert expected_cost_ns((0, 1), profile) == 10 + 0.5 * 4
    assert expected_cost_ns((1, 0), profile) == 4 + 10


def test_partial_bits_give_the_exact_diagonal():
    rng = np.random.default_rng(3)
    drops = rng.random((500, 5)) < 0.3
    order = (4, 2, 0, 1, 3)
    policy = SweepOptions().build(5, rng)
    partial = run_batch(drops, order, policy, np.ones(5), np.arange(500), prob=1.0)
    whole = FilterProfile.of_sample(partial.filter_ids, drops, costs=partial.costs)
    assert partial.basis == order
    np.testing.assert_array_equal(
        matrix_view(order, partial).diagonal(), matrix_view(order, whole).diagonal()
    )
    np.testing.assert_allclose(drop_fracs(order, partial), drop_fracs(order, whole))
    assert expected_cost_ns(order, partial) == pytest.approx(expected_cost_ns(order, whole))
    assert (matrix_view(order, partial) <= matrix_view(order, whole)).all()

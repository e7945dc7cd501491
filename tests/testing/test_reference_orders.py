from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.independent import IndependentOptions
from eddyline.ordering.protocol import expected_cost_ns
from eddyline.stats.profile import FilterProfile
from eddyline.testing.generators import CorrelatedStream
from eddyline.testing.reference_orders import MAX_FILTERS, optimal, static_greedy
from tests.oracles import profile_strategies as strategies


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(strategies.profiles(n_filters=st.integers(1, 5)))
def test_optimal_is_the_cheapest_of_all_orders(profile):
    orders = itertools.permutations(range(profile.n_filters))
    cheapest = min(expected_cost_ns(order, profile) for order in orders)
    assert expected_cost_ns(optimal(profile), profile) == pytest.approx(cheapest)


@given(strategies.profiles())
def test_greedy_is_within_four_times_the_optimum(profile):
    best = expected_cost_ns(optimal(profile), profile)
    greedy = expected_cost_ns(static_greedy(profile), profile)
    assert best * (1 - 1e-9) <= greedy <= 4 * best


@pytest.mark.parametrize("seed", range(10))
def test_independent_filters_have_one_best_order(seed):
    generator = np.random.default_rng(seed)
    stream = CorrelatedStream(pass_fracs=tuple(generator.uniform(0.1, 0.9, 6)), group_size=1)
    profile = stream.exact(generator.uniform(1, 10, 6))
    expected = optimal(profile)
    assert static_greedy(profile) == expected
    written = tuple(int(f) for f in generator.permutation(6))
    pure = AGreedyOptions(hysteresis=1, min_fill=1, min_gain=0, prior_tuples=0).build(6, rng())
    ranked = IndependentOptions(hysteresis=1, min_fill=1).build(6, rng())
    assert pure.propose(written, profile).order == expected
    assert ranked.propose(written, profile).order == expected


def test_ties_keep_the_smaller_index_in_front():
    empty = FilterProfile.empty(("a", "b", "c"))
    assert static_greedy(empty) == (0, 1, 2)
    assert optimal(empty) == (0, 1, 2)


def test_optimal_at_its_limit():
    generator = np.random.default_rng(0)
    drops = generator.random((300, MAX_FILTERS)) < 0.2
    names = tuple(map(str, range(MAX_FILTERS)))
    profile = FilterProfile.of_sample(names, drops)
    best = expected_cost_ns(optimal(profile), profile)
    assert best <= expected_cost_ns(static_greedy(profile), profile)


def test_optimal_refuses_more():
    with pytest.raises(OptionError, match=f"at most {MAX_FILTERS}.*use static_greedy"):
        optimal(FilterProfile.empty(tuple(map(str, range(MAX_FILTERS + 1)))))

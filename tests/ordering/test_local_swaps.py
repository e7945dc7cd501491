from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.ordering.local_swaps import LocalSwapsOptions
from eddyline.testing.simulation import run_batch
from tests.oracles import profile_strategies as strategies
from tests.oracles.conjunctions import matrix_view
from tests.ordering.profiles import profile_of, rng


@given(
    strategies.drops(n_filters=st.integers(2, 5)),
    st.integers(1, 20),
    st.sampled_from([0.9, 1.0]),
    st.data(),
)
def test_decides_as_the_view_of_its_window_says(drops, window_rows, hysteresis, data):
    n = drops.shape[1]
    order = data.draw(strategies.orders(n))
    costs = data.draw(strategies.costs(n))
    cut = data.draw(st.integers(0, len(drops)))
    options = LocalSwapsOptions(window_rows=window_rows, min_fill=1, hysteresis=hysteresis)
    policy = options.build(n, rng())
    for part in (drops[:cut], drops[cut:]):
        sampled = np.arange(len(part))
        batch = run_batch(part, order, policy, costs, sampled, prob=1.0)
        assert batch.n_extra <= batch.n_tuples
        policy.observe(batch, order)
    proposal = policy.propose(order, profile_of(drops, costs))

    newest = drops[drops.any(axis=1)][-window_rows:]
    ratios = matrix_view(order, profile_of(newest)) / costs[list(order)]
    wrong = [i for i in range(n - 1) if ratios[i, i] < hysteresis * ratios[i, i + 1]]
    if not wrong:
        assert proposal is None
        return
    i = wrong[0]
    assert proposal.order == (*order[:i], order[i + 1], order[i], *order[i + 2 :])
    assert proposal.evidence["position"] == i


def test_a_swap_starts_the_window_afresh():
    drops = np.array([[False, True, False]] * 6 + [[False, False, True]] * 12)
    policy = LocalSwapsOptions(window_rows=100, min_fill=18).build(3, rng())
    policy.observe(profile_of(drops), (0, 1, 2))
    order = policy.propose((0, 1, 2), profile_of(drops)).order
    assert order == (1, 0, 2)
    policy.observe(profile_of(drops[:17]), order)
    assert policy.propose(order, profile_of(drops)) is None
    policy.observe(profile_of(drops[:1]), order)
    assert policy.propose(order, profile_of(drops)).order == (1, 2, 0)


def test_another_order_than_proposed_starts_the_window_afresh():
    drops = np.array([[False, True]] * 10)
    policy = LocalSwapsOptions(window_rows=100, min_fill=10).build(2, rng())
    policy.observe(profile_of(drops[:9]), (0, 1))
    policy.observe(profile_of(drops[:9]), (1, 0))
    policy.observe(profile_of(drops[:9]), (0, 1))
    assert policy.propose((0, 1), profile_of(drops)) is None


def test_options_are_validated():
    with pytest.raises(OptionError, match="min_fill"):
        LocalSwapsOptions(window_rows=100, min_fill=101)
    with pytest.raises(OptionError, match="window_rows"):
        LocalSwapsOptions(window_rows=0)

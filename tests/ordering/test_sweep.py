from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.ordering.sweep import SweepOptions
from eddyline.testing.generators import CorrelatedStream
from eddyline.testing.simulation import run_batch, simulate
from tests.oracles import profile_strategies as strategies
from tests.oracles.conjunctions import matrix_view
from tests.ordering.profiles import profile_of, rng


@given(strategies.drops(n_filters=st.integers(2, 6)).filter(lambda drops: drops.any()), st.data())
def test_reaches_the_greedy_invariant_from_any_start(drops, data):
    n = drops.shape[1]
    costs = data.draw(strategies.costs(n))
    order = data.draw(strategies.orders(n))
    n_tuples = int(drops.any(axis=1).sum())
    options = SweepOptions(stage_rows=n_tuples, hysteresis=1)
    steps = simulate(options, itertools.repeat(drops), costs, order=order, prob=1.0)
    quiet, n_moves = 0, 0
    while quiet < n:  # a whole rotation without a move
        step = next(steps)
        quiet = quiet + 1 if step.proposal is None else 0
        n_moves += step.proposal is not None
        assert n_moves <= 8
    view = matrix_view(step.order, profile_of(drops, costs))
    ratios = view / costs[list(step.order)]
    assert (np.triu(ratios) <= ratios.diagonal()[:, None]).all()


@given(strategies.drops(n_filters=st.integers(2, 5)), st.data())
def test_one_extra_evaluation_at_most(drops, data):
    n = drops.shape[1]
    order = data.draw(strategies.orders(n))
    policy = SweepOptions().build(n, rng())
    batch = run_batch(drops, order, policy, np.ones(n), np.arange(len(drops)), prob=1.0)
    assert batch.n_extra <= batch.n_tuples


def test_stages_rotate_over_all_positions_but_the_first():
    policy = SweepOptions(stage_rows=1).build(4, rng())
    drops = np.array([[True, True, True, True]])
    positions = []
    for _ in range(5):
        positions.append(int(policy.extra(4).any(axis=0).argmax()))
        policy.observe(profile_of(drops), (0, 1, 2, 3))
        assert policy.propose((0, 1, 2, 3), profile_of(drops)) is None
    assert positions == [1, 2, 3, 1, 2]


def test_a_stage_is_judged_when_it_ends():
    drops = np.array([[False, True]] * 100)
    late, early = SweepOptions().build(2, rng()), SweepOptions(judge_early=True).build(2, rng())
    for policy in (late, early):
        policy.observe(profile_of(drops[:49]), (0, 1))
        assert policy.propose((0, 1), profile_of(drops)) is None
        policy.observe(profile_of(drops[:1]), (0, 1))
    assert late.propose((0, 1), profile_of(drops)) is None
    assert early.propose((0, 1), profile_of(drops)).order == (1, 0)
    for _ in range(5):
        late.observe(profile_of(drops[:90]), (0, 1))
    assert late.propose((0, 1), profile_of(drops)).order == (1, 0)


def test_a_filter_moves_to_the_first_position_it_beats():
    drops = np.array(
        [[True, False, False]] * 5 + [[False, True, False]] + [[False, False, True]] * 3
    )
    policy = SweepOptions(stage_rows=9).build(3, rng())
    for _ in range(2):  # the stage of position 1, then that of position 2
        policy.observe(profile_of(drops), (0, 1, 2))
        proposal = policy.propose((0, 1, 2), profile_of(drops))
    assert proposal.order == (0, 2, 1)
    assert proposal.evidence["position"] == 1
    assert (proposal.evidence["ratio"], proposal.evidence["better_ratio"]) == (1, 3)


def test_evidence_of_another_order_is_dropped():
    drops = np.array([[False, True]] * 10)
    policy = SweepOptions(stage_rows=10).build(2, rng())
    policy.observe(profile_of(drops[:9]), (0, 1))
    policy.observe(replace(profile_of(drops), basis=(0, 1)), (1, 0))  # not taken under (1, 0)
    assert policy.propose((1, 0), profile_of(drops)) is None
    assert policy.propose((0, 1), profile_of(drops)) is None
    policy.observe(profile_of(drops[:9]), (0, 1))
    assert policy.propose((0, 1), profile_of(drops)) is None, "the first nine are forgotten"


def test_settles_near_the_optimum():
    stream = CorrelatedStream(pass_fracs=(0.9, 0.8, 0.7, 0.5, 0.3, 0.2), group_size=2)
    exact = stream.exact()
    batches = itertools.repeat(~stream.passes(20_000), 30)
    last = list(simulate(SweepOptions(), batches, np.ones(6), prob=0.05))[-1]
    view = matrix_view(last.order, exact)
    assert (np.triu(0.9 * view) <= view.diagonal()[:, None] + 0.02).all()


@pytest.mark.parametrize("name", ["stage_rows", "hysteresis", "min_fill"])
def test_options_are_validated(name):
    with pytest.raises(OptionError, match=name):
        SweepOptions(**{name: 0})

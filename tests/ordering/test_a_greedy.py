from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eddyline.errors import OptionError
from eddyline.ordering.a_greedy import AGreedyOptions, z_scores
from eddyline.ordering.protocol import expected_cost_ns, joint_drops
from eddyline.stats.costs import CostSums
from eddyline.testing.generators import CorrelatedStream
from eddyline.testing.reference_orders import static_greedy
from eddyline.testing.simulation import simulate
from tests.oracles import profile_strategies as strategies
from tests.oracles.conjunctions import TupleAGreedy, matrix_view
from tests.ordering.profiles import profile_of, rng

PURE = AGreedyOptions(hysteresis=1, min_fill=1, min_gain=0, prior_tuples=0)


def settle(order, profile, options=PURE):
    proposal = options.build(profile.n_filters, rng()).propose(order, profile)
    return proposal.order if proposal else order


def is_greedy(order, profile, hysteresis=1.0) -> bool:
    """(4.2), cell by cell."""
    view = matrix_view(order, profile)
    price = profile.costs.per_row_ns[list(order)]
    n = len(order)
    return all(
        view[i, i] / price[i] >= hysteresis * view[i, j] / price[j]
        for i in range(n)
        for j in range(i, n)
    )


@given(strategies.ordered_profiles())
def test_repaired_order_holds_the_invariant(given_):
    order, profile = given_
    assert is_greedy(settle(order, profile), profile)


@given(strategies.ordered_profiles())
def test_an_order_that_holds_the_invariant_is_kept(given_):
    order, profile = given_
    assume(is_greedy(order, profile))
    assert settle(order, profile) == order


@given(strategies.ordered_profiles(), st.sampled_from([0.5, 0.9]))
def test_only_flagged_violations_change_the_order(given_, hysteresis):
    order, profile = given_
    options = replace(PURE, hysteresis=hysteresis)
    assert (settle(order, profile, options) == order) == is_greedy(order, profile, hysteresis)


@given(strategies.ordered_profiles(), st.sampled_from([0.25, 2.0, 1024.0]))
def test_scaling_all_costs_changes_nothing(given_, factor):
    order, profile = given_
    scaled = replace(profile, costs=CostSums.of_rows(1, profile.costs.per_row_ns * factor))
    assert settle(order, scaled) == settle(order, profile)


def test_a_change_of_one_cost_alone_reorders():
    drops = CorrelatedStream.even(3, group_size=1).passes(2000)
    assert settle((0, 1, 2), profile_of(~drops, [1, 1, 1]), AGreedyOptions()) == (0, 1, 2)
    assert settle((0, 1, 2), profile_of(~drops, [9, 1, 1]), AGreedyOptions())[-1] == 0


@given(strategies.ordered_profiles(n_filters=st.integers(2, 6)))
def test_proposal_is_explained(given_):
    order, profile = given_
    proposal = PURE.build(profile.n_filters, rng()).propose(order, profile)
    assume(proposal is not None)
    evidence = proposal.evidence
    assert evidence["better_ratio"] > evidence["ratio"]
    assert evidence["filter"] == profile.filter_ids[order[evidence["position"]]]
    assert evidence["cost_ns"] == expected_cost_ns(order, profile)
    assert evidence["proposed_cost_ns"] == expected_cost_ns(proposal.order, profile)


@given(strategies.drops(n_filters=st.just(4)), st.sampled_from([0.9, 1.0]))
def test_agrees_with_the_algorithm_tuple_by_tuple(drops, hysteresis):
    costs = [1.0, 2.0, 3.0, 1.0]
    reference = TupleAGreedy(costs, hysteresis=hysteresis, window_rows=10)
    options = replace(PURE, hysteresis=hysteresis)
    batches = (row[None, :] for row in drops)
    steps = simulate(options, batches, np.array(costs), prob=1.0, window_rows=10)
    for step, row in zip(steps, drops, strict=True):
        assert list(step.order) == reference.order
        reference.process(row)


def test_whole_stream_profiled_gives_exact_counts():
    drops = ~CorrelatedStream.even(5, group_size=5, seed=2).passes(3000)
    steps = list(simulate(PURE, np.split(drops, 10), np.ones(5), prob=1.0, window_rows=10**6))
    final = steps[-1].proposal.order if steps[-1].proposal else steps[-1].order
    assert is_greedy(final, profile_of(drops, np.ones(5)))


class TestGuards:
    drops = np.repeat([[False, True], [True, False], [True, True]], [60, 40, 100], axis=0)
    costs = (1.0, 1.0)  # 140 drops against 160

    def decides(self, drops=None, **given) -> bool:
        options = replace(PURE, **given)
        profile = profile_of(self.drops if drops is None else drops, self.costs, prob=0.01)
        return options.build(2, rng()).propose((0, 1), profile) is not None

    def test_pure(self):
        assert self.decides()

    @pytest.mark.parametrize(("hysteresis", "expected"), [(0.9, True), (0.85, False)])
    def test_hysteresis(self, hysteresis, expected):
        assert self.decides(hysteresis=hysteresis) is expected

    @pytest.mark.parametrize(("min_fill", "expected"), [(200, True), (201, False)])
    def test_min_fill(self, min_fill, expected):
        assert self.decides(min_fill=min_fill) is expected

    @pytest.mark.parametrize(("min_gain", "expected"), [(0.07, True), (0.08, False)])
    def test_min_gain_is_a_share_of_the_predicted_cost(self, min_gain, expected):
        # 1 + 60/200 evaluations against 1 + 40/200: saves 0.1 of 1.3
        assert self.decides(min_gain=min_gain) is expected

    @pytest.mark.parametrize(("z_score", "expected"), [(1.9, True), (2.1, False)])
    def test_z_score_is_mcnemar_on_the_same_tuples(self, z_score, expected):
        # (60 - 40) / sqrt(60 + 40) = 2
        assert self.decides(z_score=z_score) is expected

    def test_partial_bits_decide_nothing(self):
        profile = replace(profile_of(self.drops, self.costs), basis=(0, 1))
        assert PURE.build(2, rng()).propose((0, 1), profile) is None


def test_z_scores_by_cost():
    drops = np.repeat([[False, True], [True, False]], [30, 30], axis=0)
    joint = joint_drops((0, 1), drops, np.ones(60))
    # each tuple counts +1/2 or -1: mean -0.25 per tuple, squares 30/4 + 30
    score = z_scores(joint, np.array([1.0, 2.0]))[0, 1]
    assert score == pytest.approx((15 - 30) / np.sqrt(37.5))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hysteresis", 0),
        ("hysteresis", 1.1),
        ("min_fill", 0),
        ("min_gain", -0.1),
        ("z_score", float("nan")),
        ("min_fill", "many"),
    ],
)
def test_options_are_validated(name, value):
    with pytest.raises(OptionError, match=name):
        AGreedyOptions(**{name: value})


def test_detection_lag_of_a_step_change():
    # d = (.8, .4) becomes (.4, .8): flagged at 0.579 of the window; 0.88 of the rows drop
    predicted = 0.579 * 1000 / 0.88
    lags = []
    for seed in range(20):
        uniform = np.random.default_rng(seed).random((4000, 2))
        reference = TupleAGreedy([1, 1])
        for row in uniform[:2000] < [0.8, 0.4]:
            reference.process(row)
        changed = (row for row in uniform[2000:] < [0.4, 0.8])
        lag = 0
        while reference.order == [0, 1]:
            reference.process(next(changed))
            lag += 1
        lags.append(lag)
    standard_error = np.std(lags) / np.sqrt(len(lags))
    assert abs(np.mean(lags) - predicted) < 4 * standard_error


@pytest.mark.parametrize(("n_filters", "limit_s"), [(64, 0.005), (256, 0.05)])
def test_check_without_a_violation_is_fast(n_filters, limit_s):
    generator = np.random.default_rng(n_filters)
    drops = generator.random((1000, n_filters)) < generator.uniform(0.02, 0.6, n_filters)
    profile = profile_of(drops, generator.uniform(10, 1000, n_filters))
    order = static_greedy(profile)
    policy = AGreedyOptions().build(n_filters, rng())
    times = []
    for _ in range(5):
        start = time.process_time()
        assert policy.propose(order, profile) is None
        times.append(time.process_time() - start)
    assert min(times) < limit_s

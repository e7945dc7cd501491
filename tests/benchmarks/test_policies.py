"""The policies of other engines, which eddyline's are measured against."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from benchmarks.filters.policies import BENCHMARK_POLICIES, HillClimbOptions, RankOptions

from eddyline.errors import OptionError
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from eddyline.testing.conformance import check_policy
from eddyline.testing.generators import CorrelatedStream
from eddyline.testing.simulation import simulate


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def profile_of(drops, costs) -> FilterProfile:
    names = tuple(f"f{f}" for f in range(drops.shape[1]))
    ns = np.array(costs, dtype=float)
    return FilterProfile.of_sample(names, drops, costs=CostSums.of_rows(1, ns))


MARGINALS = np.repeat(
    [[True, False, False], [False, True, False], [False, False, True]], [50, 54, 90], axis=0
)


@pytest.mark.parametrize(
    "options",
    [
        *(kind() for kind in BENCHMARK_POLICIES.values()),
        HillClimbOptions(measure="evaluations", trial_rows=20_000, settle_rows=20_000),
        RankOptions(counters=True),
    ],
    ids=str,
)
def test_they_conform(options):
    check_policy(options)


def test_rank_sorts_by_sampled_marginals_per_cost():
    proposal = RankOptions().build(3, rng()).propose((0, 1, 2), profile_of(MARGINALS, (1, 1, 10)))
    assert proposal.order == (1, 0, 2)
    np.testing.assert_allclose(proposal.evidence["drop_fracs"], np.array([50, 54, 90]) / 194)


def test_rank_by_counters_sees_only_what_reached_a_filter():
    # f1 drops what f0 drops, so behind f0 it seems useless, although its marginal is higher.
    profile = replace(
        FilterProfile.empty(("f0", "f1", "f2")),
        rows_in=np.array([100.0, 50.0, 49.0]),
        rows_out=np.array([50.0, 49.0, 30.0]),
    )
    proposal = RankOptions(counters=True).build(3, rng()).propose((0, 1, 2), profile)
    assert proposal.order == (0, 2, 1)


def test_rank_by_counters_puts_what_was_never_reached_last():
    profile = replace(
        FilterProfile.empty(("f0", "f1")),
        rows_in=np.array([0.0, 100.0]),
        rows_out=np.array([0.0, 0.0]),
    )
    policy = RankOptions(counters=True).build(2, rng())
    assert policy.propose((0, 1), profile).order == (1, 0)


@cache
def climb(costs, measure):
    options = HillClimbOptions(trial_rows=500, settle_rows=500, measure=measure)
    stream = CorrelatedStream(pass_fracs=(0.9, 0.7, 0.4, 0.1), group_size=1, seed=0)
    drops = ~stream.passes(500)
    return list(simulate(options, [drops] * 400, np.array(costs, dtype=float), seed=0))


@pytest.mark.parametrize("measure", ["time", "evaluations"])
def test_hill_climb_descends_to_the_best_order(measure):
    steps = climb((1, 1, 1, 1), measure)
    settled = [
        step.order for step in steps if not (step.proposal and "trial" in step.proposal.evidence)
    ]
    best = (3, 2, 1, 0)
    assert settled[-1] == best
    assert steps[-1].work_ns <= min(step.work_ns for step in steps) * 1.3


def test_hill_climb_takes_a_failed_trial_back():
    steps = climb((1, 1, 1, 1), "time")
    failed = [
        i for i, s in enumerate(steps) if s.proposal and "failed_trial" in s.proposal.evidence
    ]
    assert failed
    for i in failed:
        assert steps[i].proposal.order == steps[i - 1].order
        assert steps[i].proposal.evidence["cost"] >= steps[i].proposal.evidence["cost_to_beat"]


def test_hill_climb_tries_failed_swaps_less_and_less():
    steps = climb((1, 1, 1, 1), "time")
    tried = [bool(s.proposal and "trial" in s.proposal.evidence) for s in steps]
    assert sum(tried[200:]) < sum(tried[:200])


def test_hill_climb_by_time_sees_costs_and_by_evaluations_does_not():
    costs = (1, 1, 1, 1000)
    by_time, counted = climb(costs, "time"), climb(costs, "evaluations")
    assert np.mean([s.order.index(3) for s in by_time[-100:]]) > 2
    assert np.mean([s.order.index(3) for s in counted[-100:]]) < 1


def test_hill_climb_drops_a_trial_when_the_order_is_changed_from_outside():
    policy = HillClimbOptions(trial_rows=10, settle_rows=10).build(3, rng())
    fresh = replace(profile_of(MARGINALS, (1, 1, 1)), n_rows=10)
    policy.observe(fresh, (0, 1, 2))
    while policy.propose((0, 1, 2), fresh) is None:
        policy.observe(fresh, (0, 1, 2))
    policy.observe(fresh, (2, 1, 0))
    assert policy.snapshot()["trial"] is None


def test_hill_climb_options_are_validated():
    with pytest.raises(OptionError, match="did you mean 'time'"):
        HillClimbOptions(measure="times")
    with pytest.raises(OptionError, match="trial_rows"):
        HillClimbOptions(trial_rows=0)

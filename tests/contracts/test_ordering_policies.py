"""Every registered policy passes the conformance checks that other packages use."""

from __future__ import annotations

import pytest

from eddyline.ordering import BENCHMARK_POLICIES, ORDERING_POLICIES, REFERENCE_POLICIES
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.hill_climb import HillClimbOptions
from eddyline.ordering.rank import RankOptions
from eddyline.ordering.sweep import SweepOptions
from eddyline.testing.conformance import check_policy

DEFAULTS = {**ORDERING_POLICIES, **REFERENCE_POLICIES, **BENCHMARK_POLICIES}
VARIANTS = [
    AGreedyOptions(hysteresis=1, min_fill=1, min_gain=0, prior_tuples=0),
    AGreedyOptions(z_score=2),
    HillClimbOptions(measure="evaluations", trial_rows=20_000, settle_rows=20_000),
    RankOptions(counters=True),
    SweepOptions(judge_early=True),
]


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_policy_conforms(name):
    check_policy(DEFAULTS[name]())


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_variant_conforms(options):
    check_policy(options)

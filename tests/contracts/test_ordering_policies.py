"""Every registered policy passes the conformance checks that other packages use."""

from __future__ import annotations

import pytest

from eddyline.ordering import ORDERING_POLICIES
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.sweep import SweepOptions
from eddyline.testing.conformance import check_policy

VARIANTS = [
    AGreedyOptions(hysteresis=1, min_fill=1, min_gain=0, prior_tuples=0),
    AGreedyOptions(z_score=2),
    SweepOptions(judge_early=True),
]


@pytest.mark.parametrize("name", ORDERING_POLICIES)
def test_default_policy_conforms(name):
    check_policy(ORDERING_POLICIES[name]())


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_variant_conforms(options):
    check_policy(options)

"""The table of policies, and the baselines."""

from __future__ import annotations

import numpy as np
import pytest

from eddyline.errors import OptionError
from eddyline.ordering import ORDERING_POLICIES, policy
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.independent import IndependentOptions
from eddyline.ordering.protocol import FixedOptions
from tests.ordering.profiles import profile_of, rng


@pytest.mark.parametrize("name", ORDERING_POLICIES)
def test_a_name_gives_default_options(name):
    assert policy(name) == ORDERING_POLICIES[name]()


def test_options_are_returned_as_they_are():
    options = AGreedyOptions(min_gain=0)
    assert policy(options) is options


def test_an_unknown_name_is_refused_with_a_hint():
    with pytest.raises(OptionError, match="did you mean 'a_greedy'") as caught:
        policy("a-greedy")
    assert set(ORDERING_POLICIES) <= set(caught.value.facts["known"])


@pytest.mark.parametrize("wrong", [AGreedyOptions, None, 3, object()])
def test_another_object_is_refused(wrong):
    with pytest.raises(OptionError, match="name or an options object"):
        policy(wrong)


MARGINALS = np.repeat(
    [[True, False, False], [False, True, False], [False, False, True]], [50, 54, 90], axis=0
)


@pytest.mark.parametrize(
    ("costs", "hysteresis", "expected"),
    [
        ((1, 1, 1), 1.0, (2, 1, 0)),
        ((1, 1, 1), 0.9, (2, 1, 0)),
        ((1, 1, 10), 1.0, (1, 0, 2)),
        ((1, 1, 10), 0.9, None),  # 50 against 54 is within the hysteresis
    ],
)
def test_independent_sorts_by_marginal_drop_fraction_per_cost(costs, hysteresis, expected):
    policy = IndependentOptions(hysteresis=hysteresis).build(3, rng())
    proposal = policy.propose((0, 1, 2), profile_of(MARGINALS, costs))
    assert (proposal and proposal.order) == expected


def test_independent_keeps_ties_in_their_order():
    drops = np.array([[True, True, False], [False, False, True]] * 50)
    policy = IndependentOptions(hysteresis=1).build(3, rng())
    assert policy.propose((1, 2, 0), profile_of(drops, (1, 1, 2))).order == (1, 0, 2)


def test_independent_waits_for_evidence():
    policy = IndependentOptions(min_fill=195).build(3, rng())
    assert policy.propose((0, 1, 2), profile_of(MARGINALS, (1, 1, 1))) is None


def test_fixed_asks_for_nothing_and_proposes_nothing():
    policy = FixedOptions().build(3, rng())
    assert not policy.extra(3).any()
    assert not policy.needs_all_bits
    assert policy.propose((0, 1, 2), profile_of(MARGINALS, (1, 1, 1))) is None

from __future__ import annotations

import pytest

from eddyline.errors import OptionError
from eddyline.ordering import ORDERING_POLICIES, policy
from eddyline.ordering.a_greedy import AGreedyOptions


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

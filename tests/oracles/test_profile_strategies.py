from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import is_drawn
from tests.oracles import profile_strategies as strategies


@given(strategies.ordered_profiles())
def test_profiles_hold_together(given_):
    order, profile = given_
    assert sorted(order) == list(range(profile.n_filters))
    bits, weights = profile.bits()
    assert bits.any(axis=1).all()
    assert weights.sum() == profile.weights.sum()
    assert (profile.costs.per_row_ns > 0).all()


@given(strategies.costs(4))
def test_costs_are_the_drawn_ones(costs):
    assert set(costs) <= set(strategies.COSTS_NS)


@pytest.mark.large
def test_edges_are_reachable():
    tables = strategies.tables()
    assert is_drawn(strategies.drops(), lambda drops: len(drops) == 0)
    assert is_drawn(
        strategies.profiles(n_filters=st.just(3)), lambda p: p.n_tuples > 2 and p.n_filters == 3
    )
    assert is_drawn(tables, lambda t: any(x and math.isnan(x) for x in t["x"].to_pylist()))
    assert is_drawn(tables, lambda t: t["s"].null_count > 0 and "" in t["s"].to_pylist())
    assert is_drawn(strategies.costs(3), lambda c: len(np.unique(c)) < 3)

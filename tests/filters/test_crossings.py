"""Crossings: the cheapest cut of an order, against every cut."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.filters.crossings import BYTE_NS, CROSSING_NS, VALUE_NS, plan_crossings
from eddyline.stats.profile import FilterProfile

COLUMNS = "abcd"


def profile_of(drops):
    """Return the profile of rows by what drops them ((rows, filters))."""
    drops = np.array(drops, dtype=np.bool_)
    return FilterProfile.of_sample(tuple(f"f{f}" for f in range(drops.shape[1])), drops)


def cost_of(cut, order, rows_at, columns, n_bytes):
    """Return what crossings that begin at some positions cost a row, said once more."""
    total = 0.0
    for start, end in zip(cut, [*cut[1:], len(order)], strict=True):
        read = set().union(*(columns[f] for f in order[start:end]))
        values = sum(VALUE_NS + BYTE_NS * n_bytes[each] for each in read)
        total += rows_at[start] * values + (CROSSING_NS if start else 0.0)
    return total


def test_what_few_rows_need_crosses_for_those_alone():
    """Nine rows of ten go at once: 0.1 * 1008 + 100 a row, where together it were 16 + 1008."""
    profile = profile_of([[True, False]] * 9 + [[False, False]])
    plan = plan_crossings((0, 1), profile, [("a",), ("b",)], {"a": 8.0, "b": 1000.0})
    assert plan.crossings == ((0,), (1,))
    assert plan.shares == pytest.approx((1.0, 0.1))
    assert plan.together_ns == pytest.approx(16 + 1008)
    assert plan.cost_ns == pytest.approx(16 + 0.1 * 1008 + 100)
    assert plan.pays(1_000_000)
    assert not plan.pays(10_000), "8 ms of a job are not worth a longer plan"


@pytest.mark.parametrize(
    ("n_dropped", "columns", "n_bytes"),
    [
        (9, [("a",), ("b",)], {"a": 8.0, "b": 8.0}),  # narrow
        (0, [("a",), ("b",)], {"a": 8.0, "b": 1000.0}),  # all rows are left
        (9, [("a", "b"), ("b",)], {"a": 8.0, "b": 1000.0}),  # the first reads it, too
    ],
)
def test_one_crossing_where_another_does_not_pay(n_dropped, columns, n_bytes):
    drops = [[True, False]] * n_dropped + [[False, False]] * (10 - n_dropped)
    plan = plan_crossings((0, 1), profile_of(drops), columns, n_bytes)
    assert plan.crossings == ((0, 1),)
    assert plan.saved_ns == 0.0
    assert not plan.pays(10**9)


@given(data=st.data())
def test_no_cut_is_cheaper(data):
    n = data.draw(st.integers(1, 5))
    drops = data.draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1))
    order = tuple(data.draw(st.permutations(range(n))))
    columns = data.draw(
        st.lists(st.sets(st.sampled_from(COLUMNS), min_size=1), min_size=n, max_size=n)
    )
    n_bytes = {each: data.draw(st.sampled_from([1.0, 50.0, 2000.0])) for each in COLUMNS}
    plan = plan_crossings(order, profile_of(drops), [tuple(each) for each in columns], n_bytes)
    assert sum(plan.crossings, ()) == order
    gone = np.array(drops, dtype=np.bool_)[:, list(order)]
    rows_at = [1.0] + [1.0 - gone[:, :at].any(axis=1).mean() for at in range(1, n)]
    cuts = [[0, *rest] for k in range(n) for rest in combinations(range(1, n), k)]
    costs = [cost_of(cut, order, rows_at, columns, n_bytes) for cut in cuts]
    assert plan.cost_ns == pytest.approx(min(costs))
    assert plan.together_ns == pytest.approx(cost_of([0], order, rows_at, columns, n_bytes))

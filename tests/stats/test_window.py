from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, merge
from eddyline.stats.window import ProfileWindow
from tests.oracles import profile_strategies as strategies

NAMES = ("a", "b", "c")


def profile_of(drops, **given) -> FilterProfile:
    return FilterProfile.of_sample(NAMES, drops, **given)


def newest_codes(drops, max_tuples):
    return profile_of(drops[drops.any(axis=1)][-max_tuples:]).codes


@given(
    st.lists(strategies.drops(n_filters=st.just(3), max_rows=8), min_size=1, max_size=12),
    st.integers(1, 15),
    st.data(),
)
def test_window_holds_the_newest_tuples(batches, max_tuples, data):
    window = ProfileWindow(NAMES, max_tuples)
    for batch in batches:
        window.push(profile_of(batch))
        if data.draw(st.booleans()):
            window.profile()
    held = window.profile()
    np.testing.assert_array_equal(held.codes, newest_codes(np.concatenate(batches), max_tuples))


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 49, 50, 51, 100])
def test_window_does_not_depend_on_the_batches(batch_rows):
    drops = np.random.default_rng(0).random((300, 3)) < 0.4
    window = ProfileWindow(NAMES, 80)
    for start in range(0, 300, batch_rows):
        window.push(profile_of(drops[start : start + batch_rows]))
        window.profile()
    np.testing.assert_array_equal(window.profile().codes, newest_codes(drops, 80))


def test_costs_leave_with_their_batch():
    window = ProfileWindow(NAMES, 4)
    drops = np.eye(3, dtype=np.bool_)
    for ns in (1.0, 10.0, 100.0):
        window.push(profile_of(drops, costs=CostSums.of_rows(1, np.full(3, ns))))
    # the last batch is whole and the one before contributes its newest tuple
    np.testing.assert_allclose(window.profile().costs.per_row_ns, 55)


def test_passed_rows_leave_in_proportion():
    window = ProfileWindow(NAMES, 3)
    drops = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]], dtype=np.bool_)
    window.push(profile_of(drops))
    window.push(profile_of(drops))
    assert window.profile().passed == pytest.approx(2 + 1)


def test_empty_window():
    window = ProfileWindow(NAMES, 5)
    assert window.profile().n_tuples == 0
    assert window.profile().filter_ids == NAMES


def test_restored_window_holds_the_same_profile():
    drops = np.random.default_rng(0).random((50, 3)) < 0.5
    window, restored = ProfileWindow(NAMES, 20), ProfileWindow(NAMES, 20)
    for part in np.split(drops, 10):
        window.push(profile_of(part))
    restored.restore(json.loads(json.dumps(window.to_state(), allow_nan=False)))
    assert pickle.dumps(restored.profile()) == pickle.dumps(window.profile())
    for _ in range(5):
        for one in (window, restored):
            one.push(profile_of(drops[:3]))
        assert pickle.dumps(restored.profile()) == pickle.dumps(window.profile())


def test_a_profile_taken_out_does_not_change_later():
    window = ProfileWindow(NAMES, 5)
    window.push(profile_of(np.ones((3, 3), dtype=np.bool_)))
    taken = window.profile()
    before = pickle.dumps(taken)
    window.push(merge([taken, taken]))
    window.profile()
    assert pickle.dumps(taken) == before


def cost_of(ns):
    return CostSums.of_calls(np.full(3, 1000.0), np.full(3, 1000.0 * ns))


@pytest.mark.parametrize("per_batch", [0, 1, 5, 40])
def test_old_costs_leave_however_few_tuples_a_batch_brings(per_batch):
    window = ProfileWindow(NAMES, 100)
    drops = np.ones((per_batch, 3), dtype=np.bool_)
    one = np.ones((1, 3), dtype=np.bool_)
    for batch in range(2000):
        window.push(profile_of(drops, costs=cost_of(1)))
        if batch % 10 == 0:
            window.push(profile_of(one))
        window.profile()
    needed = 1200 if per_batch == 0 else 220 // per_batch + 2
    for batch in range(needed):
        window.push(profile_of(drops, costs=cost_of(100)))
        if batch % 10 == 0:
            window.push(profile_of(one))
        window.profile()
    np.testing.assert_allclose(window.profile().costs.per_row_ns, 100)


@pytest.mark.parametrize("max_tuples", [1, 2, 15, 16, 31, 100, 1000])
def test_the_window_keeps_few_parts(max_tuples):
    rng = np.random.default_rng(0)
    window = ProfileWindow(NAMES, max_tuples)
    for _ in range(3000):
        window.push(profile_of(rng.random((rng.integers(0, 4), 3)) < 0.3))
    assert len(window._parts) <= 70


def test_partial_codes_of_many_orders():
    # Tuples that can no longer be read must not take room for ever.
    window = ProfileWindow(NAMES, 200)
    orders = [(0, 1, 2), (1, 0, 2), (2, 1, 0)]
    one = np.array([[True, False, False]])
    for batch in range(2000):
        order = orders[batch // 7 % 3]
        window.push(profile_of(one, basis=order))
        held = window.profile()
        assert held.basis == order
        assert batch % 7 + 1 <= held.n_tuples <= 200
    for _ in range(400):
        window.push(profile_of(one, basis=orders[0]))
        window.profile()
    assert window.profile().n_tuples == 200


@given(
    st.lists(strategies.drops(n_filters=st.just(3), max_rows=8), min_size=1, max_size=12),
    st.integers(1, 40),
)
def test_looking_does_not_change_the_window(batches, max_tuples):
    looked_at, left_alone = ProfileWindow(NAMES, max_tuples), ProfileWindow(NAMES, max_tuples)
    for batch in batches:
        fresh = profile_of(batch, costs=cost_of(len(batch) + 1))
        looked_at.push(fresh)
        looked_at.profile()
        left_alone.push(fresh)
    assert pickle.dumps(looked_at.profile()) == pickle.dumps(left_alone.profile())


@given(
    st.lists(strategies.drops(n_filters=st.just(3), max_rows=8), max_size=40), st.integers(1, 60)
)
def test_a_restored_window_goes_on_as_the_saved_one(batches, max_tuples):
    one, other = ProfileWindow(NAMES, max_tuples), ProfileWindow(NAMES, max_tuples)
    for number, batch in enumerate(batches):
        one.push(profile_of(batch, costs=cost_of(number + 1)))
    other.restore(json.loads(json.dumps(one.to_state(), allow_nan=False)))
    for batch in batches:
        one.push(profile_of(batch))
        other.push(profile_of(batch))
        assert pickle.dumps(one.profile()) == pickle.dumps(other.profile())

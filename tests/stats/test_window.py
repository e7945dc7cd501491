from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, merge
from eddyline.stats.window import ProfileWindow
from eddyline.testing import strategies

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


def test_clear_forgets_everything():
    window = ProfileWindow(NAMES, 5)
    window.push(profile_of(np.ones((3, 3), dtype=np.bool_)))
    window.clear()
    assert window.profile().n_tuples == 0


def test_restored_window_holds_the_same_profile():
    drops = np.random.default_rng(0).random((50, 3)) < 0.5
    window, restored = ProfileWindow(NAMES, 20), ProfileWindow(NAMES, 20)
    for part in np.split(drops, 10):
        window.push(profile_of(part))
    restored.restore(json.loads(json.dumps(window.to_state(), allow_nan=False)))
    assert restored.profile().to_bytes() == window.profile().to_bytes()
    for _ in range(5):
        for one in (window, restored):
            one.push(profile_of(drops[:3]))
        assert restored.profile().to_bytes() == window.profile().to_bytes()


def test_a_profile_taken_out_does_not_change_later():
    window = ProfileWindow(NAMES, 5)
    window.push(profile_of(np.ones((3, 3), dtype=np.bool_)))
    taken = window.profile()
    before = taken.to_bytes()
    window.push(merge([taken, taken]))
    window.profile()
    assert taken.to_bytes() == before

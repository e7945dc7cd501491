"""Profiles merge, keep attributes of sampled rows, and slide."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import outcomes as outcome
from eddyline.errors import PlanError
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import AttributeSample, FilterProfile, ProfileWindow, joined, merge
from tests.oracles import profile_strategies as strategies

NAMES = ("a", "b", "c")
PROFILES = strategies.profiles(n_filters=st.just(3), max_rows=10)
ARRAYS = ("codes", "weights", "rows_in", "rows_out", "n_raised")
COUNTS = ("passed", "n_rows", "n_kept", "n_evaluations", "n_extra", "basis", "filter_ids")


def counted(profile: FilterProfile, seed: int) -> FilterProfile:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 100, (3, 3)).astype(float)
    n_rows, n_kept, n_evaluations, n_extra = (int(n) for n in rng.integers(0, 100, 4))
    return replace(
        profile,
        rows_in=rows[0],
        rows_out=rows[1],
        n_raised=rows[2],
        n_rows=n_rows,
        n_kept=n_kept,
        n_evaluations=n_evaluations,
        n_extra=n_extra,
    )


def assert_same(left: FilterProfile, right: FilterProfile) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    for name in COUNTS:
        assert getattr(left, name) == getattr(right, name), name
    np.testing.assert_array_equal(left.costs.sums, right.costs.sums)


def as_bag(profile: FilterProfile) -> dict[bytes, float]:
    distinct, weights = outcome.histogram(profile.codes, profile.weights)
    return {code.tobytes(): weight for code, weight in zip(distinct, weights, strict=True)}


def test_of_sample_keeps_dropped_rows_and_counts_the_others():
    drops = np.array([[0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]], dtype=np.bool_)
    profile = FilterProfile.of_sample(NAMES, drops, prob=0.5)
    assert (profile.n_filters, profile.n_tuples, profile.passed) == (3, 2, 6)
    np.testing.assert_array_equal(profile.weights, [2, 2])
    np.testing.assert_array_equal(outcome.unpack(profile.codes, 3), drops[[0, 2]])


@given(PROFILES, PROFILES, PROFILES)
def test_merging_is_associative(a, b, c):
    a, b, c = counted(a, 1), counted(b, 2), counted(c, 3)
    assert_same(merge([merge([a, b]), c]), merge([a, merge([b, c])]))
    assert_same(merge([merge([a, b]), c]), merge([a, b, c]))


@given(PROFILES, PROFILES)
def test_merging_is_commutative_as_a_bag(a, b):
    a, b = counted(a, 1), counted(b, 2)
    left, right = merge([a, b]), merge([b, a])
    assert as_bag(left) == as_bag(right)
    bare = {"codes": left.codes[:0], "weights": left.weights[:0]}
    assert_same(replace(left, **bare), replace(right, **bare))


@given(PROFILES)
def test_the_profile_of_nothing_changes_nothing(profile):
    profile = counted(profile, 1)
    assert_same(merge([FilterProfile.empty(profile.filter_ids), profile]), profile)
    assert_same(merge([profile]), profile)


def test_merging_other_filters_is_refused():
    with pytest.raises(PlanError, match="cannot merge"):
        merge([FilterProfile.empty(("a",)), FilterProfile.empty(("b",))])
    with pytest.raises(PlanError, match="empty"):
        merge([])


class TestPartialCodes:
    """Bits that were taken under an order are of use with that order only."""

    drops = np.array([[True, False, False], [False, False, False]])

    def profile(self, basis, n_rows=10) -> FilterProfile:
        sample = FilterProfile.of_sample(NAMES, self.drops, basis=basis)
        return replace(sample, n_rows=n_rows)

    def test_the_same_order_merges(self):
        merged = merge([self.profile((0, 1, 2)), self.profile((0, 1, 2))])
        assert (merged.basis, merged.n_tuples, merged.passed) == ((0, 1, 2), 2, 2)

    def test_the_sample_of_the_newest_order_is_kept(self):
        merged = merge([self.profile((0, 1, 2)), self.profile((2, 1, 0))])
        assert (merged.basis, merged.n_tuples, merged.passed) == ((2, 1, 0), 1, 1)
        assert merged.n_rows == 20

    @pytest.mark.parametrize("n_full", [0, 1])
    def test_full_codes_can_be_read_with_any_order(self, n_full):
        whole = FilterProfile.of_sample(NAMES, self.drops[:n_full])
        merged = merge([whole, self.profile((2, 1, 0))])
        assert (merged.basis, merged.n_tuples) == ((2, 1, 0), n_full + 1)


def test_last_keeps_the_newest_and_passed_rows_in_proportion():
    drops = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=np.bool_)
    profile = FilterProfile.of_sample(NAMES, drops)
    newest = profile.last(1)
    np.testing.assert_array_equal(outcome.unpack(newest.codes, 3), drops[2:3])
    assert newest.passed == pytest.approx(2 / 3)
    assert profile.last(3) is profile
    assert profile.last(0).n_tuples == 0


@given(PROFILES)
def test_bits_are_the_weighted_outcomes(profile):
    bits, weights = profile.bits()
    full = outcome.unpack(profile.codes, 3)
    np.testing.assert_array_equal(weights @ bits, profile.weights @ full)
    assert len(np.unique(bits, axis=0)) == len(bits)


@given(PROFILES)
def test_a_profile_survives_its_journey(profile):
    profile = counted(profile, 1)
    assert_same(pickle.loads(pickle.dumps(profile)), profile)


def test_costs_of_a_sample_are_unknown_unless_given():
    drops = np.array([[True, False, False]])
    assert not FilterProfile.of_sample(NAMES, drops).costs.is_known.any()
    costs = CostSums.of_rows(1, np.array([1.0, 2.0, 3.0]))
    assert FilterProfile.of_sample(NAMES, drops, costs=costs).costs is costs


def made(n_rows, start=0, names=("a", "b"), n_filters=3):
    rows = np.arange(start, start + n_rows)
    bits = (rows[:, None] >> np.arange(n_filters)) & 1 == 1
    values = rows[:, None] * 10.0 + np.arange(len(names))
    return AttributeSample(names, values, outcome.pack(bits), rows + 1.0)


def same(left, right):
    assert left.attributes == right.attributes
    for name in ("values", "codes", "weights"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_empty_has_the_shape_of_what_comes():
    empty = AttributeSample.empty(["a", "b"], 9)
    assert (empty.n_rows, empty.attributes) == (0, ("a", "b"))
    assert empty.values.shape == (0, 2)
    assert empty.codes.shape == (0, 2)
    assert empty.bits(9).shape == (0, 9)
    same(joined([AttributeSample.empty(("a", "b"), 3), made(4)]), made(4))


def test_bits_are_those_that_were_packed():
    np.testing.assert_array_equal(made(6).bits(3)[5], [True, False, True])


@pytest.mark.parametrize("sizes", [[1], [2, 3], [0, 4, 0], [1, 1, 1, 7]])
def test_joined_keeps_the_order_of_arrival(sizes):
    starts = np.cumsum([0, *sizes])
    parts = [made(n, start) for n, start in zip(sizes, starts, strict=False)]
    same(joined(parts), made(sum(sizes)))


def test_joining_is_associative():
    a, b, c = made(2), made(3, 2), made(1, 5)
    same(joined([joined([a, b]), c]), joined([a, joined([b, c])]))


@pytest.mark.parametrize("n_rows", [0, 1, 4, 5, 6])
def test_last_keeps_the_newest(n_rows):
    first = max(0, 5 - n_rows)
    same(made(5).last(n_rows), made(5 - first, first))


def test_of_chooses_and_fills_in():
    chosen = made(3).of(("b", "new", "a"))
    assert chosen.attributes == ("b", "new", "a")
    np.testing.assert_array_equal(chosen.values[:, 0], made(3).values[:, 1])
    np.testing.assert_array_equal(chosen.values[:, 2], made(3).values[:, 0])
    assert np.isnan(chosen.values[:, 1]).all()
    np.testing.assert_array_equal(chosen.weights, made(3).weights)
    assert made(3).of(()).values.shape == (3, 0)


def test_nothing_and_different_attributes_cannot_be_joined():
    with pytest.raises(PlanError, match="no samples"):
        joined([])
    with pytest.raises(PlanError, match="cannot join"):
        joined([made(2), made(2, names=("a", "c"))])


def test_inputs_stay_as_they_are():
    whole = made(6)
    before = whole.values.copy()
    other = whole.of(("a", "z"))
    other.values[:] = -1.0
    np.testing.assert_array_equal(whole.values, before)


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


@pytest.mark.parametrize("per_batch", [pytest.param(0, marks=pytest.mark.large), 1, 5, 40])
def test_old_costs_leave_however_few_tuples_a_batch_brings(per_batch):
    window = ProfileWindow(NAMES, 100)
    drops = np.ones((per_batch, 3), dtype=np.bool_)
    one = np.ones((1, 3), dtype=np.bool_)
    needed = 1200 if per_batch == 0 else 220 // per_batch + 2
    for n_batches, cost in ((needed + 800 // (1 + per_batch), 1), (needed, 100)):
        for batch in range(n_batches):
            window.push(profile_of(drops, costs=cost_of(cost)))
            if batch % 10 == 0:
                window.push(profile_of(one))
            window.profile()
    np.testing.assert_allclose(window.profile().costs.per_row_ns, 100)


def test_the_window_keeps_few_parts():
    rng = np.random.default_rng(0)
    profiles = [profile_of(rng.random((rng.integers(0, 4), 3)) < 0.3) for _ in range(3000)]
    for max_tuples in (1, 2, 15, 16, 31, 100, 1000):
        window = ProfileWindow(NAMES, max_tuples)
        for each in profiles:
            window.push(each)
        assert len(window._parts) <= 70, max_tuples


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
    assert pickle.dumps(one.profile()) == pickle.dumps(other.profile())
    for batch in batches:
        one.push(profile_of(batch))
        other.push(profile_of(batch))
        assert pickle.dumps(one.profile()) == pickle.dumps(other.profile())

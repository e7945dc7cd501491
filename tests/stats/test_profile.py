from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import outcomes as outcome
from eddyline.errors import PlanError
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, merge
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

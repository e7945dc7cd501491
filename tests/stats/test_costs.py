from __future__ import annotations

import functools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.stats.costs import MIN_PER_ROW_NS, MIN_SLOPE_FRAC, CostSums

FIXED_NS, PER_ROW_NS = 50_000.0, 100.0
CALLS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), max_size=20)


def line(n_rows):
    return np.where(n_rows > 0, FIXED_NS + PER_ROW_NS * n_rows, 0.0)


def of_calls(n_rows, time_ns=None) -> CostSums:
    """Sums of calls; a column for each filter."""
    rows = np.array(n_rows, dtype=float)
    times = line(rows) if time_ns is None else np.array(time_ns, dtype=float)
    calls = [CostSums.of_calls(r, t) for r, t in zip(rows, times, strict=True)]
    return functools.reduce(operator.add, calls, CostSums.empty(rows.shape[1]))


def sums_of(calls) -> CostSums:
    rows, times = zip(*calls, strict=True) if calls else ((), ())
    return of_calls(np.array(rows).reshape(-1, 1), np.array(times).reshape(-1, 1))


def test_an_exact_line_is_found():
    fixed, slope = of_calls([[10], [100], [5000]]).fit()
    np.testing.assert_allclose([fixed[0], slope[0]], [FIXED_NS, PER_ROW_NS])


def test_a_late_filter_with_small_calls_is_not_locked_in_place():
    # the same filter first, on whole batches, and late, on a few rows of each
    early = np.linspace(9000, 11_000, 50)
    late = np.linspace(5, 50, 50)
    sums = of_calls(np.stack([early, late], axis=1))
    raw = sums.total_ns / sums.sums[1]
    assert raw[1] > 15 * raw[0]
    np.testing.assert_allclose(sums.per_row_ns, PER_ROW_NS, rtol=1e-6)


def test_small_sample_calls_do_not_raise_the_cost_per_row():
    calls = [[10_000], [10_200], [9_800]] * 10 + [[100]] * 30
    np.testing.assert_allclose(of_calls(calls).per_row_ns, PER_ROW_NS, rtol=1e-6)


def test_calls_of_one_size_count_as_per_row_only():
    fixed, slope = of_calls([[1000]] * 20).fit()
    assert fixed[0] == 0
    assert slope[0] == pytest.approx(line(1000.0) / 1000)


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_a_tenth_moves_the_cost_per_row_little(seed):
    rng = np.random.default_rng(seed)
    n_rows = rng.integers(10, 10_000, (200, 1)).astype(float)
    times = line(n_rows) * rng.normal(1, 0.1, (200, 1))
    assert of_calls(n_rows, times).per_row_ns[0] == pytest.approx(PER_ROW_NS, rel=0.1)


def test_time_that_falls_with_rows_is_mostly_a_fixed_part():
    fixed, slope = of_calls([[10], [1000]], [[2000], [1000]]).fit()
    assert slope[0] == pytest.approx(MIN_SLOPE_FRAC * 3000 / 1010)
    assert fixed[0] * 2 + slope[0] * 1010 == pytest.approx(3000)


def test_a_filter_that_was_never_called_costs_the_median():
    sums = of_calls([[100, 100, 100, 0]], [[1000, 2000, 9000, 0]])
    np.testing.assert_allclose(sums.per_row_ns, [10, 20, 90, 20])
    np.testing.assert_array_equal(sums.is_known, [True, True, True, False])


def test_nothing_known():
    np.testing.assert_array_equal(CostSums.empty(2).per_row_ns, [1, 1])
    assert CostSums.empty(2).n_filters == 2


def test_row_by_row_engines_have_no_fixed_part():
    sums = CostSums.of_rows(50, np.array([3.0, 7.0]))
    fixed, slope = sums.fit()
    np.testing.assert_array_equal(fixed, [0, 0])
    np.testing.assert_allclose(slope, [3, 7])
    np.testing.assert_allclose(sums.total_ns, [150, 350])


@given(CALLS, CALLS, CALLS)
def test_sums_add_up_in_any_grouping(a, b, c):
    one, two, three = map(sums_of, (a, b, c))
    left, right = (one + two) + three, three + (two + one)
    np.testing.assert_allclose(left.sums, right.sums)
    np.testing.assert_allclose(left.sums, sums_of([*a, *b, *c]).sums)


@given(CALLS)
def test_costs_are_always_usable(calls):
    fixed, slope = sums_of(calls).fit()
    assert np.isfinite(fixed).all()
    assert np.isfinite(slope).all()
    assert (fixed >= 0).all()
    assert (slope >= MIN_PER_ROW_NS).all()

"""Estimates against counting, on clouds of coefficients that nobody chose."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eddyline.errors import StateError
from eddyline.estimates import filters
from eddyline.estimates.histograms import MAX_CELLS, CoefHistogram, ValueSketch
from eddyline.estimates.plans import share_of_pairs
from eddyline.models.solving import polynomials

N = 4_000
SHAPES = ("even", "normal", "clusters", "spikes", "tails", "one")


def cloud(rng, shape, size=2, n=N):
    """Return coefficients of a shape of cloud, ``[n, size]``."""
    scale = 10.0 ** rng.uniform(-3, 3, size)
    centre = rng.normal(0, 3, size) * scale
    unit = {
        "even": lambda: rng.uniform(-1, 1, (n, size)),
        "normal": lambda: rng.normal(size=(n, size)),
        "clusters": lambda: (
            rng.normal(size=(6, size))[rng.integers(0, 6, n)] + rng.normal(0, 0.02, (n, size))
        ),
        "spikes": lambda: (
            rng.integers(0, 4, (n, size)) * np.where(rng.random((n, size)) < 0.7, 1, 0)
        ),
        "tails": lambda: rng.standard_t(1.2, (n, size)),
        "one": lambda: np.zeros((n, size)),
    }[shape]()
    return unit * scale + centre


def lengths(rng, n=N):
    return np.exp2(rng.uniform(0, 3, n))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_comparisons(shape, size):
    rng = np.random.default_rng([SHAPES.index(shape), size])
    off = []
    for _ in range(3):
        coefs, length = cloud(rng, shape, size), lengths(rng)
        made = CoefHistogram.from_coefs(coefs, length)
        assert len(made) <= MAX_CELLS
        assert made.total == N
        low, high = polynomials.extremes(coefs, length)
        values = ValueSketch.from_ranges(low, high)
        ends = np.concatenate([low, high])
        for constant in rng.uniform(*np.quantile(ends, [0.05, 0.95]), 4):
            for op, true in (
                ("<", low < constant),
                ("<=", low <= constant),
                (">", high > constant),
            ):
                found, times = filters.comparison(made, op, constant)
                off.append(abs(found.value - true.mean()))
                assert found.low - 0.02 <= true.mean() <= found.high + 0.02
                assert abs(times.any - found.value) < 1e-9
                by_values = values.any(op, np.array([constant]))[0]
                assert abs(by_values - true.mean()) < 0.01
            assert abs(values.whole("<", np.array([constant]))[0] - (high < constant).mean()) < 0.01
    assert np.mean(off) < (0.004 if size < 3 else 0.012)


@pytest.mark.parametrize("shape", SHAPES)
def test_histograms_of_parts_say_what_one_of_all_does(shape):
    rng = np.random.default_rng(SHAPES.index(shape))
    coefs, length = cloud(rng, shape), lengths(rng)
    parts = [CoefHistogram.from_coefs(coefs[k::8], length[k::8]) for k in range(8)]
    whole, either = (reduce(CoefHistogram.merged, each) for each in (parts, parts[::-1]))
    assert len(whole) <= MAX_CELLS
    assert whole.total == either.total == N
    assert whole.seconds.sum() == pytest.approx(length.sum())
    low, _ = polynomials.extremes(coefs, length)
    for constant in np.quantile(low, [0.2, 0.5, 0.8]):
        true = (low < constant).mean()
        for each in (whole, either):
            assert abs(filters.comparison(each, "<", constant)[0].value - true) < 0.01
    halved = whole.decayed(0.5)
    assert halved.total == N / 2
    assert halved.length == pytest.approx(whole.length)
    assert len(whole.decayed(0.0)) == 0
    again = CoefHistogram.from_state(whole.to_state())
    assert again.to_state() == whole.to_state()


@example([(0.0, 0.0, 0.0), (1.7976931348623157e308, 0.0, 0.0), (-2e307, 0.0, 0.0)], 16)
@example([(1.7976931348623157e308, 0.0, 0.0), (-1.7976931348623157e308, 0.0, 0.0)], 16)
@given(
    st.lists(st.tuples(st.floats(allow_nan=True), st.floats(), st.floats(0, 1e12)), max_size=200),
    st.integers(16, 64),
)
def test_any_numbers_are_counted(rows, max_cells):
    given = np.array(rows, float).reshape(-1, 3)
    made = CoefHistogram.from_coefs(given[:, :2], given[:, 2], max_cells)
    with np.errstate(over="ignore", invalid="ignore"):
        risen = given[:, 1] * given[:, 2]
    known = np.isfinite(given).all(axis=1) & np.isfinite(risen)
    assert made.total == known.sum()
    # A cell for each side of 0 of both coefficients and each length cannot be had less.
    assert len(made) <= max(max_cells, 4 * len(np.unique(made.spans)))
    if known.any():
        assert made.low[:, 0].min() == given[known, 0].min()
        assert made.high[:, 0].max() == given[known, 0].max()
        found, _ = filters.comparison(made, "<", 0.0)
        assert 0.0 <= found.value <= 1.0


@pytest.mark.parametrize(
    "change",
    [{"counts": [-1.0]}, {"low": [[1.0]]}, {"size": 3}, {"places": [["x", 1]]}, {"seconds": []}],
)
def test_a_damaged_histogram_is_refused(change):
    state = CoefHistogram.from_coefs(np.ones((1, 2)), np.ones(1)).to_state()
    with pytest.raises(StateError, match="damaged"):
        CoefHistogram.from_state(state | change)


@pytest.mark.parametrize("seed", range(4))
def test_conjunctions_hold_at_once(seed):
    rng = np.random.default_rng(seed)
    one, other, length = cloud(rng, "normal"), cloud(rng, "even"), np.full(N, 8.0)
    at = np.linspace(0, 8, 257)
    values = [each @ (at ** np.arange(2)[:, None]) for each in (one, other)]
    above, under = np.quantile(values[0], 0.7), np.quantile(values[1], 0.3)
    both = (values[0] > above) & (values[1] < under)
    either = (values[0] > above) | (values[1] < under)
    parts = [
        filters.comparison(CoefHistogram.from_coefs(coefs, length), op, constant)
        for coefs, op, constant in ((one, ">", above), (other, "<", under))
    ]
    for combine, holds in ((filters.conjunction, both), (filters.disjunction, either)):
        found, times = combine(parts)
        assert found.value == pytest.approx(holds.any(axis=1).mean(), abs=0.02)
        assert times.whole == pytest.approx(holds.all(axis=1).mean(), abs=0.02)
        assert found.low - 0.01 <= holds.any(axis=1).mean() <= found.high + 0.01
    # What knows all of each other is not as often, or more often, than independence says.
    same = [parts[0], filters.comparison(CoefHistogram.from_coefs(one, length), ">", above)]
    found, _ = filters.conjunction(same)
    assert found.low <= (values[0] > above).any(axis=1).mean() <= found.high + 0.01


@pytest.mark.parametrize("size", [2, 3])
def test_joins(size):
    rng = np.random.default_rng(size)
    scale = np.array([10.0, 1, 0.1])[:size]
    one = rng.normal(size=(N, size)) * scale
    length = np.full(N, 10.0)
    for shift in (-5.0, 0.0, 10.0):
        other = rng.normal(size=(N, size)) * scale
        other[:, 0] += shift
        low, _ = polynomials.extremes(one - other, length)
        true = (low < 0).mean()
        found = share_of_pairs(
            CoefHistogram.from_coefs(one, length),
            CoefHistogram.from_coefs(other, length),
            is_aligned=True,
        )
        assert found.value == pytest.approx(true, abs=0.02 if size == 2 else 0.04)
        assert found.low - 0.04 <= true <= found.high + 0.04

"""Banks against slow references, and against single detectors, on random streams."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from math import factorial, log, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from eddyline.change import DETECTORS, beta_cusum, detector_bank, options_of
from eddyline.change.protocol import Detector, advance
from eddyline.errors import QueryError
from tests.examples import examples
from tests.oracles.detectors import REFERENCES, ReferenceOptions

SHORT = [
    options_of("beta_cusum", n_feedback=10, threshold=2.0),
    options_of("beta_cusum", n_feedback=5, threshold=4.0, memory=12, change_point_back=2),
    options_of("beta_cusum", n_feedback=8, threshold=1.0, memory=4),
    # A shift that no mean of such items has exactly: rounding would decide.
    options_of("beta_cusum", n_feedback=6, min_shift=0.0937, clip=0.001, confidence=0.8),
    options_of("adwin", n_feedback=5, significance=0.3, buckets_per_row=2),
    options_of("adwin", n_feedback=1, significance=0.5, check_every=3, min_part=2),
    options_of("adwin", significance=0.3, change_point="split"),
    options_of("martingale", threshold=2.0),
    options_of("martingale", threshold=1.5, max_items=11, seed=5, change_point_back=0),
    options_of("martingale", threshold=3.0, floor=True, tie_share=0.5),
    options_of("meta", baselines=(6, 4), thresholds=(1.1, 0.9)),
    options_of("meta", baselines=(5,), current_share=1.0, thresholds=(0.7,)),
    options_of("change_finder", n_feedback=5, threshold=2.0, smoothing=3),
    options_of("change_finder", n_feedback=3, threshold=0.5, smoothing=1, forgetting=0.2),
    options_of("cusum", n_feedback=4, threshold=3.0),
    options_of("page_hinkley", n_feedback=4, threshold=0.5),
    options_of("page_hinkley", n_feedback=0, threshold=0.3, direction="down", fading=0.9),
]
"""Options under which short streams find changes."""


def name_of(options):
    return next(name for name, kind in DETECTORS.items() if kind is type(options))


@st.composite
def streams(draw, n):
    """Items of n detectors: levels that shift, few distinct values, holes, now and then a reset."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(st.integers(0, 90))
    levels = rng.random((4, n))[np.sort(rng.integers(0, 4, n_rows))]
    items = rng.binomial(draw(st.sampled_from([2, 20, 1000])), levels) / 1.0
    items = items / max(items.max(initial=1.0), 1.0)
    items[rng.random((n_rows, n)) < draw(st.sampled_from([0.0, 0.1, 0.7]))] = np.nan
    return items


@pytest.mark.parametrize("options", SHORT, ids=str)
@examples(20)
@given(data=st.data())
def test_bank_is_its_reference(options, data):
    items = data.draw(streams(3))
    bank, slow = options.build(3), ReferenceOptions(name_of(options), options).build(3)
    for row in items:
        assert (bank.update(row) == slow.update(row)).all()
        assert (bank.change_points == slow.change_points).all()
        assert (bank.has_feedback == slow.has_feedback).all()


def test_short_options_cover_every_detector_and_find_changes():
    rng = np.random.default_rng(0)
    levels = np.repeat([0.2, 0.9, 0.1], 40)
    items = rng.binomial(20, levels[:, None], (120, 8)) / 20
    for options in SHORT:
        bank = options.build(8)
        n_found = sum(bank.update(row).sum() for row in items)
        assert n_found > 0, f"{options} finds nothing: the comparison shows little"
    assert {name_of(options) for options in SHORT} == set(DETECTORS) == set(REFERENCES)


@pytest.mark.parametrize("options", SHORT, ids=str)
@examples(20)
@given(data=st.data())
def test_bank_is_independent_singles(options, data):
    """Bit by bit: the same snapshots, whoever else is in the bank, through resets and restores."""
    n = data.draw(st.sampled_from([1, 2, 7, 17]))
    items = data.draw(streams(n))
    reset_at = data.draw(st.integers(0, 90))
    restored_at = data.draw(st.integers(0, 90))
    which = np.arange(n) % 3 == 0
    bank, singles = options.build(n), [Detector(options) for _ in range(n)]
    for at, row in enumerate(items):
        if at == reset_at:
            bank.reset(which)
            for i in np.flatnonzero(which):
                singles[i].initialize()
        if at == restored_at:
            saved = json.loads(json.dumps(bank.snapshot()))
            bank = options.build(n)
            bank.restore(saved)
        found = bank.update(row)
        for i, single in enumerate(singles):
            single.update(row[i])
            assert found[i] == single.drift_detected
            assert bank.change_points[i] == single.change_point
    for i, single in enumerate(singles):
        assert rows_of(bank, i) == rows_of(single._machine, 0)


def rows_of(bank, i):
    """Return the state of one detector, arrays that grow cut to what is not zero."""
    return {name: np.trim_zeros(getattr(bank, name)[i].ravel()).tolist() for name in bank._names()}


@pytest.mark.parametrize("name", DETECTORS)
def test_long_streams_agree_with_the_reference(name):
    """Long enough for arrays to grow and windows to wrap round."""
    rng = np.random.default_rng(11)
    levels = np.concatenate([np.full(250, 0.3), np.full(150, 0.6), np.linspace(0.6, 0.2, 100)])
    items = rng.binomial(50, levels[:, None], (500, 2)) / 50
    options = options_of(name)
    if name == "meta":
        options = options_of(name, baselines=(30, 60), thresholds=(0.75, 0.5))
    if name == "martingale":
        options = options_of(name, max_items=90)
    bank, slow = options.build(2), ReferenceOptions(name, options).build(2)
    n_found = 0
    for row in items:
        found = bank.update(row)
        n_found += found.sum()
        assert (found == slow.update(row)).all()
        assert (bank.change_points == slow.change_points).all()
    assert n_found > 0


def test_work_grows_with_the_items_and_not_with_the_bank():
    """A snapshot of a large bank is as small as the number of detectors with items."""
    for name in DETECTORS:
        if name == "meta":
            continue
        bank = detector_bank(name, 20_000)
        row = np.full(20_000, np.nan)
        row[[3, 19_999]] = 0.5
        for _ in range(60):
            bank.update(row)
        assert len(json.dumps(bank.snapshot())) < 6000


@pytest.mark.parametrize("options", SHORT, ids=str)
@examples(20)
@given(data=st.data())
def test_many_rows_in_one_call_give_the_alarms_of_one_by_one_detectors(options, data):
    """Bit by bit, however the rows are cut, with resets after changes."""
    n = data.draw(st.sampled_from([0, 1, 2, 7]))
    items = data.draw(streams(n))
    bounds = [0, *sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=3))), len(items)]
    bank, singles = options.build(n), [Detector(options) for _ in range(n)]
    for low, high in pairwise(bounds):
        part = items[low:high]
        while len(part):
            n_taken, changed = advance(bank, part)
            for row in part[:n_taken]:
                assert not any(single.drift_detected for single in singles), "a change was skipped"
                for single, x in zip(singles, row, strict=True):
                    single.update(x)
            assert changed.tolist() == [single.drift_detected for single in singles]
            assert bank.change_points.tolist() == [single.change_point for single in singles]
            part = part[n_taken:]
            if changed.any():
                bank.reset(~changed)
                for single, has_changed in zip(singles, changed, strict=True):
                    single._has_changed = False
                    if not has_changed:
                        single.initialize()
    for i, single in enumerate(singles):
        assert rows_of(bank, i) == rows_of(single._machine, 0)


def test_an_item_out_of_range_is_refused_where_it_stands():
    items = np.full((40, 2), 0.5)
    items[20, 1] = 1.5
    bank = detector_bank("beta_cusum", 2)
    with pytest.raises(QueryError, match=r"the item of detector 1 must be in \[0, 1\], got 1.5"):
        advance(bank, items)
    assert bank.n_seen.tolist() == [20, 20]
    with pytest.raises(QueryError, match="one value for each of 2 detectors"):
        advance(bank, items[:, :1])


def test_special_functions_of_the_kernels_are_scipys():
    x = 10.0 ** np.linspace(-6, 12, 73)
    for kernel, expected in (
        ("digamma", special.digamma(x)),
        ("trigamma", special.polygamma(1, x)),
    ):
        got = np.vectorize(getattr(beta_cusum, kernel))(x)
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)
    a, b = np.meshgrid(x[x < 1e3], x[x < 1e3])
    np.testing.assert_allclose(
        np.vectorize(beta_cusum.log_beta)(a, b), special.betaln(a, b), rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("m", [1, 2, 11, 12, 13, 40])
@pytest.mark.parametrize("n", [1, 12, 10**5, 10**9, 10**15])
def test_log_beta_of_whole_numbers_is_exact(m, n):
    """Where scipy's loses digits, because the parameters are far apart."""
    inverse = Fraction(prod(range(n, n + m)), factorial(m - 1))
    exact = log(inverse.denominator) - log(inverse.numerator)
    assert beta_cusum.log_beta(float(m), float(n)) == pytest.approx(exact, rel=1e-14, abs=1e-14)
    assert beta_cusum.log_beta(float(n), float(m)) == pytest.approx(exact, rel=1e-14, abs=1e-14)

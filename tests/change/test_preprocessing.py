"""Preprocessors against pandas, in front of detectors, and as options by name."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddyline as el
from eddyline.change import PREPROCESSORS, Preprocessed, options_of
from eddyline.change.preprocessing import ExponentialOptions, HampelOptions, preprocessors_of
from eddyline.change.protocol import advance
from eddyline.errors import OptionError, StateError
from eddyline.runtime.monitors import DetectorMonitorOptions
from eddyline.stats.profile import FilterProfile
from eddyline.testing.detector_conformance import check_detector
from tests.examples import examples


def reference(options, series):
    """Return one series without nan, preprocessed by pandas."""
    if isinstance(options, ExponentialOptions):
        return series.ewm(alpha=options.weight, adjust=False).mean()
    rolling = series.rolling(options.window, min_periods=1)
    median = rolling.median()
    spread = 1.4826 * rolling.apply(
        lambda held: np.median(np.abs(held - np.median(held))), raw=True
    )
    return series.where((series - median).abs() <= options.z_score * spread, median)


@pytest.mark.parametrize(
    "options",
    [HampelOptions(), HampelOptions(window=4, z_score=0.0), ExponentialOptions(weight=0.25)],
    ids=str,
)
@examples(20)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 50), n_values=st.sampled_from([3, 10**6]))
def test_preprocessors_are_pandas_windows_however_rows_are_cut(options, seed, cut, n_values):
    """Ties (few distinct values), missing items, spikes, constant and empty series."""
    rng = np.random.default_rng(seed)
    items = rng.integers(0, n_values, (50, 4)) / n_values
    items[rng.random(items.shape) < 0.1] *= 100.0
    items[rng.random(items.shape) < 0.2] = np.nan
    items[:, 2], items[:, 3] = 0.5, np.nan
    expected = items.copy()
    for series in expected.T:
        has_item = ~np.isnan(series)
        series[has_item] = reference(options, pd.Series(series[has_item]))
    first, second = options.build(4), options.build(4)
    got = items.copy()
    first.apply(got[:cut])
    second.restore(json.loads(json.dumps(first.snapshot())))
    second.apply(got[cut:])
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", PREPROCESSORS)
@pytest.mark.parametrize("detector", ["beta_cusum", "adwin", "page_hinkley"])
def test_a_preprocessed_detector_keeps_the_contract(name, detector):
    check_detector(options_of(detector, preprocess=name))


def test_spikes_are_no_change_and_a_shift_is_one():
    """One block in 25 is measured wrong: a spike alarms cusum, none does behind a Hampel filter."""
    rng = np.random.default_rng(3)
    items = rng.binomial(50, 0.3, 400) / 50
    items[100::25] = 1.0
    items[350:] = rng.binomial(50, 0.6, 50) / 50

    def alarms(**options):
        rest, start, found = items[:, None], 0, []
        bank = el.detector_bank("cusum", 1, **options)
        while len(rest):
            n_taken, changed = advance(bank, rest)
            rest, start = rest[n_taken:], start + n_taken
            found += [start - 1] if changed.any() else []
        return found

    assert alarms()[0] in range(100, 350, 25)
    [at] = alarms(preprocess="hampel")
    assert 350 <= at < 365


def test_a_monitor_takes_preprocessors_by_name_and_saves_their_state():
    options = DetectorMonitorOptions(detector="adwin", preprocess=["hampel", "exponential"])
    profile = FilterProfile.of_sample(("a", "b"), np.random.default_rng(0).random((400, 2)) < 0.4)
    monitor, restored = options.build(2, 0), options.build(2, 0)
    for _ in range(3):
        monitor.observe(profile, (0, 1), profile, np.ones(2))
    saved = json.dumps(monitor.snapshot())
    assert json.loads(saved)["fracs"]["by"][0]["touched"].startswith("<i8;3;")
    restored.restore(json.loads(saved))
    assert json.dumps(restored.snapshot()) == saved
    with pytest.raises(StateError, match="behind 1 preprocessors"):
        DetectorMonitorOptions(detector="adwin", preprocess="hampel").build(2, 0).restore(
            json.loads(saved)
        )


def test_options_say_what_is_wrong():
    with pytest.raises(OptionError, match=r"unknown preprocessor 'hampl'.*did you mean 'hampel'"):
        el.detector("adwin", preprocess="hampl")
    with pytest.raises(OptionError, match=r"a preprocessor is a name, .* got 3"):
        DetectorMonitorOptions(preprocess=[3])
    with pytest.raises(OptionError, match="window"):
        HampelOptions(window=2)
    with pytest.raises(OptionError, match="weight"):
        ExponentialOptions(weight=0.0)
    assert preprocessors_of(None) == ()
    again = options_of(options_of("adwin", preprocess="hampel"), check_every=8)
    assert again == Preprocessed(options_of("adwin", check_every=8), (HampelOptions(),))

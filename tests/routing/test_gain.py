"""Worked examples T1, T2 and the degenerate cases T9 of the specification."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.routing.gain import count, entropy, gains

TABLE_1 = {
    # filter: (pass fraction at a, b, c), H(R), mean H(R_i), gain, gain ratio by (5)
    "O1": ((0.32, 0.31, 0.27), 0.881291, 0.879673, 0.001618, 0.001021),
    "O2": ((0.10, 0.20, 0.90), 0.970951, 0.553306, 0.417644, 0.263504),
    "O3": ((0.55, 0.65, 0.60), 0.970951, 0.965931, 0.005020, 0.003167),
}


@pytest.mark.parametrize("name", TABLE_1)
def test_t1_entropy_and_gain_ratio_of_table_1(name):
    fracs, overall, within, gain, ratio = TABLE_1[name]
    found = gains([np.full(3, 100.0)], [100.0 * np.array([fracs])])
    assert entropy(np.array([np.mean(fracs)]))[0] == pytest.approx(overall, abs=1e-5)
    assert entropy(np.array(fracs)).mean() == pytest.approx(within, abs=1e-5)
    assert found.info[0, 0] == pytest.approx(gain, abs=1e-5)
    assert found.ratio[0, 0] == pytest.approx(ratio, abs=1e-5)
    assert found.split_info[0] == pytest.approx(1.584963, abs=1e-6)


@pytest.mark.parametrize(
    ("seen", "passed", "ratio", "g", "is_significant"),
    [
        ((50, 50, 50), (5, 10, 45), 0.263504, 86.8, True),
        ((100, 100, 100), (32, 31, 27), 0.001021, 0.67, False),
        ((100, 100, 100), (10, 20, 90), 0.263504, 173.7, True),
        ((100, 100, 100), (55, 65, 60), 0.003167, 2.09, False),
    ],
)
def test_t2_gain_ratio_from_counters(seen, passed, ratio, g, is_significant):
    found = gains([np.array(seen, float)], [np.array([passed], float)])
    assert found.ratio[0, 0] == pytest.approx(ratio, abs=1e-5)
    assert found.g_statistic[0, 0] == pytest.approx(g, abs=0.05)
    assert found.is_significant(0.05)[0, 0] == is_significant  # chi-square 5.99 of 2 degrees


@pytest.mark.parametrize(("level", "is_significant"), [(0.05, False), (0.0501, True)])
def test_the_bound_is_that_of_the_chi_square(level, is_significant):
    # 5.9915 is the 95 % bound of 2 degrees; gains are scaled to lie just below it
    found = gains([np.full(3, 50.0)], [np.array([[5.0, 10.0, 45.0]])])
    scale = 5.9914 / found.g_statistic[0, 0]
    smaller = gains([np.full(3, 50.0 * scale)], [scale * np.array([[5.0, 10.0, 45.0]])])
    assert smaller.is_significant(level)[0, 0] == is_significant


@pytest.mark.parametrize("passed", [(0.0, 0.0, 0.0), (50.0, 50.0, 50.0)])
def test_t2_a_filter_that_passes_all_or_nothing_has_no_classifier(passed):
    found = gains([np.full(3, 50.0)], [np.array([passed])])
    assert found.ratio[0, 0] == 0.0
    assert not found.is_significant(0.01).any()


def test_t9_a_constant_attribute_is_no_classifier():
    found = gains([np.array([150.0, 0.0, 0.0])], [np.array([[60.0, 0.0, 0.0]])])
    assert found.split_info[0] == 0.0
    assert found.ratio[0, 0] == 0.0
    assert not found.is_significant(0.01).any()


def test_t9_no_attributes_and_no_rows():
    assert gains([], []).ratio.shape == (0, 0)
    found = gains([np.zeros(3)], [np.zeros((2, 3))])
    assert found.ratio.tolist() == [[0.0], [0.0]]
    assert found.beyond_chance.tolist() == [[0.0], [0.0]]
    assert not found.is_significant(0.01).any()


@given(st.integers(0, 30), st.integers(1, 4), st.integers(0, 3), st.integers(0, 10**6))
def test_counters_and_gains_equal_a_slow_count(n_rows, n_filters, n_attributes, seed):
    rng = np.random.default_rng(seed)
    drops = rng.random((n_rows, n_filters)) < rng.random(n_filters)
    sizes = [int(rng.integers(1, 6)) for _ in range(n_attributes)]
    bins = [rng.integers(0, size, n_rows) for size in sizes]
    seen, passed = count(bins, sizes, np.arange(n_rows), drops)
    found = gains(seen, passed)
    for k, size in enumerate(sizes):
        tally = Counter(bins[k].tolist())
        assert seen[k].tolist() == [tally[b] for b in range(size)]
        for f in range(n_filters):
            outcomes = [[bool(not d) for d in drops[bins[k] == b, f]] for b in range(size)]
            assert passed[k][f].tolist() == [sum(each) for each in outcomes]
            expected = slow_entropy([bool(not d) for d in drops[:, f]]) - sum(
                len(each) / n_rows * slow_entropy(each) for each in outcomes if each
            )
            assert found.info[f, k] == pytest.approx(expected, abs=1e-9)


def slow_entropy(outcomes: list[bool]) -> float:
    shares = [n / len(outcomes) for n in Counter(outcomes).values()]
    return -sum(p * math.log2(p) for p in shares)


@pytest.mark.parametrize(
    ("n_rows", "bits", "ratio"), [(150, 0.1106, 0.024), (1000, 0.0166, 0.0036)]
)
def test_chance_alone_gives_the_gain_that_is_taken_off(n_rows, bits, ratio):
    rng = np.random.default_rng(5)
    infos, ratios, left = [], [], []
    for _ in range(400):
        drops = rng.random((n_rows, 1)) < 0.5
        found = gains(*count([rng.integers(0, 24, n_rows)], [24], np.arange(n_rows), drops))
        infos.append(found.info[0, 0])
        ratios.append(found.ratio[0, 0])
        left.append((found.info - found.beyond_chance)[0, 0])
    # the formula holds for many rows per bin; at six it is 15 % short
    assert np.mean(infos) == pytest.approx(bits, rel=0.2)
    assert np.mean(ratios) == pytest.approx(ratio, rel=0.2)
    assert np.max(left) == pytest.approx(bits, rel=0.02)


def test_the_gate_lets_one_in_a_hundred_through():
    rng = np.random.default_rng(6)
    sizes = [24] * 8
    drops = rng.random((2000, 400)) < 0.5  # 400 filters that depend on nothing
    bins = [rng.integers(0, 24, 2000) for _ in sizes]
    found = gains(*count(bins, sizes, np.arange(2000), drops))
    false = found.is_significant(0.01).any(axis=1).mean()
    assert false < 0.01 + 4 * np.sqrt(0.01 / 400)

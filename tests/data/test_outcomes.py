"""Sampled rows, and outcome codes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import outcomes as codes
from eddyline.data.outcomes import sampled_rows, seed_of
from tests.oracles import profile_strategies as strategies

N_ROWS = 100_000


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 49, 50, 51, 100, 1000])
def test_the_sample_does_not_depend_on_the_batches(batch_rows):
    whole = sampled_rows(3, 0, 1000, 0.1)
    parts = [
        start + sampled_rows(3, start, min(batch_rows, 1000 - start), 0.1)
        for start in range(0, 1000, batch_rows)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("prob", [0.005, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_the_sample_has_the_asked_size(prob, seed):
    n = len(sampled_rows(seed_of("query", seed), 0, N_ROWS, prob))
    assert abs(n - N_ROWS * prob) < 4 * np.sqrt(N_ROWS * prob * (1 - prob))


def test_a_smaller_probability_samples_a_subset():
    few, many = (set(sampled_rows(5, 0, N_ROWS, prob)) for prob in (0.005, 0.01))
    assert few < many


def test_samples_are_spread_evenly():
    rows = sampled_rows(11, 0, N_ROWS, 0.1)
    tenths = np.bincount(rows // (N_ROWS // 10), minlength=10)
    assert (np.abs(tenths - 1000) < 4 * np.sqrt(900)).all()


def test_samples_of_other_seeds_are_independent():
    one, two = (set(sampled_rows(seed_of(s), 0, N_ROWS, 0.1)) for s in "ab")
    assert abs(len(one & two) - 1000) < 4 * np.sqrt(990)


@pytest.mark.parametrize(("prob", "expected"), [(0.0, 0), (1.0, 10)])
def test_none_and_all(prob, expected):
    assert len(sampled_rows(0, 0, 10, prob)) == expected
    assert len(sampled_rows(0, 0, 0, prob)) == 0


def test_a_seed_is_the_same_in_every_process():
    code = "from eddyline.data.outcomes import seed_of; print(seed_of('q', 1))"
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(other.stdout) == seed_of("q", 1)
    assert seed_of("q", 1) != seed_of("q", 2)
    assert 0 <= seed_of("q", 1) < 2**63


WIDE = strategies.drops(n_filters=st.integers(1, 130))


@given(WIDE)
def test_unpack_undoes_pack(bits):
    n = bits.shape[1]
    packed = codes.pack(bits)
    assert packed.shape == (len(bits), codes.n_bytes(n))
    np.testing.assert_array_equal(codes.unpack(packed, n), bits)


@given(strategies.drops(n_filters=st.sampled_from([1, 3, 9, 70])), st.data())
def test_histogram_counts_every_code_once(bits, data):
    n = bits.shape[1]
    values = st.lists(st.integers(1, 5), min_size=len(bits), max_size=len(bits))
    weights = np.array(data.draw(values), dtype=float)
    expected: Counter[tuple[bool, ...]] = Counter()
    for row, weight in zip(bits, weights, strict=True):
        expected[tuple(row.tolist())] += weight
    distinct, sums = codes.histogram(codes.pack(bits), weights)
    found = [tuple(row.tolist()) for row in codes.unpack(distinct, n)]
    assert len(found) == len(set(found))
    assert dict(zip(found, sums, strict=True)) == expected


def test_bit_is_the_filter_index():
    bits = np.zeros((1, 10), dtype=np.bool_)
    bits[0, [0, 9]] = True
    np.testing.assert_array_equal(codes.pack(bits), [[1, 2]])


@pytest.mark.parametrize(("n_filters", "expected"), [(1, 1), (8, 1), (9, 2), (256, 32)])
def test_width_of_a_code(n_filters, expected):
    assert codes.n_bytes(n_filters) == expected


@pytest.mark.parametrize("n_filters", [1, 8, 9, 63, 64, 65, 256])
def test_codes_of_any_width(n_filters):
    rng = np.random.default_rng(n_filters)
    distinct = np.unique(rng.random((20, n_filters)) < 0.5, axis=0)
    bits = distinct[rng.integers(0, len(distinct), 500)]
    np.testing.assert_array_equal(codes.unpack(codes.pack(bits), n_filters), bits)
    found, sums = codes.histogram(codes.pack(bits), np.ones(500))
    rows = codes.unpack(found, n_filters)
    order = np.lexsort(rows.T[::-1])
    expected, counts = np.unique(bits, axis=0, return_counts=True)
    np.testing.assert_array_equal(rows[order], expected)
    np.testing.assert_array_equal(sums[order], counts)


def test_histogram_of_nothing():
    found, sums = codes.histogram(codes.pack(np.zeros((0, 9), dtype=np.bool_)), np.zeros(0))
    assert found.shape == (0, 2)
    assert sums.shape == (0,)


def test_histogram_reads_a_view_without_changing_it():
    whole = codes.pack(np.eye(20, dtype=np.bool_))
    before = whole.copy()
    found, sums = codes.histogram(whole[::2, 1:], np.ones(10))
    assert len(found) == 7
    assert sums.sum() == 10
    np.testing.assert_array_equal(whole, before)

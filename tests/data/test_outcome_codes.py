from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import outcomes as codes
from tests.oracles import profile_strategies as strategies

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

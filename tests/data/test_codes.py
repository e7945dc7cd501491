from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data import codes
from eddyline.testing import strategies

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

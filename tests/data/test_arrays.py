"""Distinct values of arrays, and arrays as texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eddyline.data.arrays import distinct, pack, unpack
from eddyline.errors import StateError


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("values", [[], [5], [3, 1, 3, 2, 1], [0] * 9])
def test_distinct_numbers_ascend_and_keep_their_type(kind, values):
    given = np.array(values, kind)
    given.flags.writeable = False
    found = distinct(given)
    assert found.dtype == kind
    assert found.tolist() == sorted(set(values))


def test_all_bits_count():
    most = np.iinfo(np.uint64).max
    given = np.array([most, 0, most - 1, most], np.uint64)
    assert distinct(given).tolist() == [0, most - 1, most]


KINDS = st.sampled_from(["?", "u1", "i8", "<f4", "<f8", ">i4"])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@given(hnp.arrays(KINDS, SHAPES))
def test_unpack_returns_what_was_packed_to_the_bit(array):
    again = unpack(pack(array))
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()
    assert again.flags.writeable


def test_views_are_packed_by_their_values():
    table = np.arange(12.0).reshape(3, 4)
    assert (unpack(pack(table[:, ::2].T)) == table[:, ::2].T).all()


def test_zeros_take_little_room():
    assert len(pack(np.zeros(100_000))) < 2000


TEXT = pack(np.arange(10))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        None,
        3,
        TEXT[:-8],
        TEXT[:-8] + "AAAAAAAA",
        TEXT.replace(";10;", ";11;"),
        TEXT.replace(";10;", ";9;"),
        TEXT.replace(";10;", ";999999999999;"),
        TEXT.replace("<i8", "<i4"),
        TEXT.replace("<i8", "<i3"),
        TEXT.replace("<i8", "|O8"),
        TEXT + "!",
        "<f8;3;AAAA",
    ],
)
def test_damage_is_an_error(text):
    with pytest.raises(StateError, match=r"packed array"):
        unpack(text)

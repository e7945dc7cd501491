"""Tables of cuts: the region of any key is what a search of the cuts says, however they lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.rules.compile.regions import (
    HIGHEST,
    LOWEST,
    MAX_CROWD,
    MAX_SPAN,
    MAX_TABLE,
    cut_tables,
)
from eddyline.rules.match.bitmap_kernels import regions_of

KEYS = st.one_of(
    st.integers(LOWEST, HIGHEST),
    st.integers(-40, 40),
    st.integers(-(10**6), 10**6),
    st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST]),
)
CUTS = st.lists(KEYS.filter(lambda key: key > LOWEST), max_size=30, unique=True).map(sorted)


def regions(tables, construct, keys, nulls=None, rows=None):
    rows = np.arange(len(keys)) if rows is None else rows
    nulls = np.zeros(len(keys), np.bool_) if nulls is None else nulls
    found = np.full(len(rows), -1, np.int32)
    regions_of(keys, nulls, 0, rows, len(rows), tables, construct, found)
    return found.tolist()


def searched(cuts, keys):
    return (np.searchsorted(np.array(cuts, np.int64), keys, side="right") + 1).tolist()


def around(cuts):
    """Keys at, below and above each cut, and the outermost ones."""
    near = {cut + step for cut in cuts for step in (-1, 0, 1)}
    return np.array(
        sorted({LOWEST, HIGHEST, 0, *(k for k in near if LOWEST <= k <= HIGHEST)}), np.int64
    )


@given(st.lists(CUTS, min_size=1, max_size=4), st.lists(KEYS, max_size=20))
def test_the_region_of_any_key_is_that_of_a_search(every, further):
    tables = cut_tables([np.array(cuts, np.int64) for cuts in every])
    for construct, cuts in enumerate(every):
        keys = np.concatenate([around(cuts), np.array(further, np.int64)])
        assert regions(tables, construct, keys) == searched(cuts, keys)


def crowded(n):
    """Cuts of which so many lie in one bucket."""
    return [0, *(10**11 + at for at in range(n)), 1 << 40]


@pytest.mark.parametrize(
    ("cuts", "has_table", "is_exact"),
    [
        ([], True, True),
        ([5], True, True),
        ([LOWEST + 1], True, True),
        ([HIGHEST], True, True),
        ([0, MAX_TABLE - 2], True, True),
        ([0, MAX_TABLE], True, False),
        ([0, 10 * MAX_TABLE], True, False),
        ([0, MAX_SPAN - 2], True, False),
        ([0, MAX_SPAN - 1], False, True),
        ([LOWEST + 1, HIGHEST], False, True),
        (crowded(MAX_CROWD), True, False),
        (crowded(MAX_CROWD + 1), False, True),
        (range(0, 100_000, 2), True, False),
        (range(70_000), False, True),
    ],
)
def test_tables_where_they_pay(cuts, has_table, is_exact):
    cuts = np.array(cuts, np.int64)
    tables = cut_tables([cuts])
    assert (tables.table_at[0] >= 0) == has_table
    assert (tables.shift[0] == 0) == is_exact
    assert len(tables.table) <= MAX_TABLE + 1
    keys = around(cuts.tolist())
    assert regions(tables, 0, keys) == searched(cuts, keys)


def test_rows_and_nulls():
    tables = cut_tables([np.array([3, 5]), np.array([10**9, 2**40, 2**61])])
    keys, nulls = np.array([2, 3, 9, 2**62]), np.array([False, False, True, False])
    assert regions(tables, 0, keys, nulls, np.array([3, 2, 0])) == [3, 0, 1]
    assert regions(tables, 1, keys, nulls) == [1, 1, 0, 4]
    assert regions(tables, 0, keys[:0]) == []

"""Block estimates against the worked example and against counting row by row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.stats.profile import BlockEstimates, changed_prefixes

ROWS = ["0000", "0010", "0000", "0111", "1000", "0010", "1101", "0111"]
T7 = np.array([[bit == "1" for bit in row] for row in ROWS])
"""Drops of F1..F4 on the eight rows of the specification's example T7."""


def added(blocks, drops, order):
    """Return the runs of rows one by one: their lengths and their estimates."""
    parts = blocks.add(drops, order)
    return [run for lengths, estimates in parts for run in zip(lengths, estimates, strict=True)]


def test_the_worked_example():
    blocks = BlockEstimates(4, 8)
    [(n_rows, first)] = added(blocks, T7, (2, 0, 1, 3))
    assert n_rows == 8
    assert first[0].tolist() == [2 / 8, 3 / 8, 4 / 8, 3 / 8]
    # Given F3, four rows are left: half a block, which the same rows again fill.
    assert np.isnan(first[1:]).all()
    [(_, second)] = added(blocks, T7, (2, 0, 1, 3))
    assert second[1][[0, 1, 3]].tolist() == [2 / 4, 1 / 4, 1 / 4]
    assert np.isnan(second[1][2])
    for _ in range(2):
        [(_, fourth)] = added(blocks, T7, (2, 0, 1, 3))
    assert fourth[2][[1, 3]].tolist() == [0 / 2, 0 / 2]
    assert fourth[3][3] == 0 / 2


@given(
    order=st.permutations(range(4)),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    block_rows=st.integers(2, 30),
    seed=st.integers(0, 100),
)
def test_estimates_are_those_of_counting_row_by_row(order, cuts, block_rows, seed):
    rng = np.random.default_rng(seed)
    drops = rng.random((200, 4)) < rng.random(4)
    blocks = BlockEstimates(4, block_rows)
    got = [[] for _ in range(4)]
    bounds = sorted({0, *[c * 3 for c in cuts], 200})
    ends = []
    for start, stop in pairwise(bounds):
        position = start
        for n_rows, estimates in added(blocks, drops[start:stop], tuple(order)):
            position += n_rows
            for prefix in np.flatnonzero(~np.isnan(estimates).all(axis=1)):
                got[prefix].append(estimates[prefix])
                ends.append((prefix, position))
        assert position == stop
    done = dict.fromkeys(range(4), 0)
    for prefix, end in ends:
        rows = drops[done[prefix] : end]
        alive = ~rows[:, order[:prefix]].any(axis=1)
        assert alive.sum() >= block_rows
        expected = np.full(4, np.nan)
        behind = list(order[prefix:])
        expected[behind] = rows[alive][:, behind].mean(axis=0)
        np.testing.assert_allclose(got[prefix].pop(0), expected)
        done[prefix] = end


def test_a_snapshot_continues():
    rng = np.random.default_rng(1)
    drops = rng.random((70, 3)) < 0.4
    first = BlockEstimates(3, 32)
    list(first.add(drops[:40], (0, 1, 2)))
    second = BlockEstimates(3, 32)
    second.restore(first.snapshot())
    for (_, a), (_, b) in zip(
        added(first, drops[40:], (0, 1, 2)), added(second, drops[40:], (0, 1, 2)), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_prefixes_change_where_their_sets_do(before, after):
    expected = [set(before[:i]) != set(after[:i]) for i in range(6)]
    assert changed_prefixes(tuple(before), tuple(after)).tolist() == expected


def test_no_filters_and_one():
    assert changed_prefixes((0,), (0,)).tolist() == [False]


@pytest.mark.parametrize("n_rows", [0, 1])
def test_hardly_any_rows(n_rows):
    blocks = BlockEstimates(2, 5)
    assert all(np.isnan(e).all() for _, e in added(blocks, np.zeros((n_rows, 2), bool), (0, 1)))

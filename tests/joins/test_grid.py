"""A grid of hashes: every result in one bucket, and no bucket fuller than it has to be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.joins.graph import JoinGraph
from eddyline.joins.grid import N_BINS, Grid, bins_of, chosen_grid, fullest

CHAIN = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))
ONE_KEY = JoinGraph(("r", "s", "t"), (frozenset("rst"),))

DIVISORS = [size for size in range(1, 9) if N_BINS % size == 0]


@pytest.mark.spark
def test_bins_are_those_of_spark(spark):
    codes = [0, 1, -1, 2**63 - 1, -(2**63), 42, 10**15, -7]
    df = spark.createDataFrame([(code,) for code in codes], "code BIGINT")
    said = df.selectExpr(f"pmod(xxhash64(code), {N_BINS}) AS bin").toArrow()["bin"].to_pylist()
    assert bins_of(np.array(codes)).tolist() == said


@given(
    shape=st.tuples(st.sampled_from(DIVISORS), st.sampled_from(DIVISORS)),
    codes=st.tuples(*2 * [st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9)]),
)
def test_rows_of_a_result_meet_in_one_bucket(shape, codes):
    grid = Grid(shape)
    a, b = (np.array(each) for each in codes)
    r = [grid.holds(bucket, {0: a}) for bucket in range(grid.n_buckets)]
    t = [grid.holds(bucket, {1: b}) for bucket in range(grid.n_buckets)]
    for (i, code), (j, other) in product(enumerate(a), enumerate(b)):
        s = {0: np.array([code]), 1: np.array([other])}
        met = [
            bucket
            for bucket in range(grid.n_buckets)
            if r[bucket][i] and grid.holds(bucket, s)[0] and t[bucket][j]
        ]
        assert len(met) == 1


@given(shape=st.tuples(*3 * [st.sampled_from(DIVISORS)]), classes=st.sets(st.integers(0, 2)))
def test_each_row_is_once_in_the_buckets_that_count(shape, classes):
    grid = Grid(shape)
    rng = np.random.default_rng(3)
    codes = {key: rng.integers(-(2**60), 2**60, 50) for key in sorted(classes)}
    if not codes:
        assert list(grid.once(())) == [0]
        return
    held = sum(grid.holds(bucket, codes).astype(int) for bucket in grid.once(classes))
    assert (held == 1).all()


def bins(graph, **codes):
    """``bins(graph, r0=…)``: the codes of input r in key class 0."""
    return {
        (name[0], int(name[1])): np.bincount(bins_of(np.array(of)), minlength=N_BINS)
        for name, of in codes.items()
    }


def test_one_key_is_cut_into_as_many_buckets_as_there_may_be():
    assert chosen_grid(ONE_KEY, 4).shape == (4,)
    assert chosen_grid(ONE_KEY, 7).shape == (6,), "a divisor of the bins"
    assert chosen_grid(ONE_KEY, 1).shape == (1,)


def test_a_chain_is_cut_where_the_most_rows_are():
    rng = np.random.default_rng(5)
    few, many = rng.integers(0, 10**6, 1_000), rng.integers(0, 10**6, 100_000)
    busy_r = bins(CHAIN, r0=many, s0=few, s1=few, t1=few)
    assert chosen_grid(CHAIN, 4, busy_r).shape == (4, 1)
    busy_t = bins(CHAIN, r0=few, s0=few, s1=few, t1=many)
    assert chosen_grid(CHAIN, 4, busy_t).shape == (1, 4)
    busy_s = bins(CHAIN, r0=few, s0=many, s1=many, t1=few)
    grid = chosen_grid(CHAIN, 4, busy_s)
    assert fullest(CHAIN, grid, busy_s) <= 1.1 * (100_000 + 2_000) / 4


def test_a_key_with_half_of_the_rows_is_cut_by_the_other_one():
    rng = np.random.default_rng(7)
    skewed = np.where(rng.random(40_000) < 0.5, 13, rng.integers(0, 10**6, 40_000))
    even = rng.integers(0, 10**6, 40_000)
    found = bins(CHAIN, r0=even[:100], s0=skewed, s1=even, t1=even[:100])
    grid = chosen_grid(CHAIN, 4, found)
    assert grid.shape == (1, 4)
    assert fullest(CHAIN, grid, found) < 0.6 * fullest(CHAIN, Grid((4, 1)), found)


def test_no_bucket_more_than_helps():
    same = np.full(1_000, 13)
    assert chosen_grid(ONE_KEY, 8, bins(ONE_KEY, r0=same, s0=same, t0=same)).shape == (1,)

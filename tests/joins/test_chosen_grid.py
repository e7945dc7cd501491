"""The choice of a grid: no bucket fuller than it has to be, and no copies without use."""

from __future__ import annotations

import numpy as np
import pytest

from eddyline.joins.graph import JoinGraph
from eddyline.joins.grid import busiest, chosen_grid, fullest, gain
from eddyline.state.grid import N_BINS, Grid, bins_of

CHAIN = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))
ONE_KEY = JoinGraph(("r", "s", "t"), (frozenset("rst"),))


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


def skewed(share, n_rows, names="rst"):
    """Counts of inputs joined by one key, of which that share of the rows of each has one."""
    rng, found = np.random.default_rng(11), {}
    for name, n in zip(names, n_rows, strict=True):
        found[f"{name}0"] = np.where(rng.random(n) < share, -1, rng.integers(0, 10**6, n))
    return bins(ONE_KEY, **found)


def sides_of(grid):
    return [dict(split.sides) for split in grid.splits]


def test_a_key_with_half_of_the_rows_is_split():
    found, hot = skewed(0.5, [40_000] * 3), int(bins_of(np.array([-1]))[0])
    whole = chosen_grid(ONE_KEY, 8, found)
    grid = chosen_grid(ONE_KEY, 8, found, timed="rst")
    assert (whole.shape, whole.splits) == ((8,), ())
    assert [(split.key, split.bin) for split in grid.splits] == [(0, hot)]
    assert sides_of(grid) == [{"r": 2, "s": 2, "t": 2}]
    assert fullest(ONE_KEY, grid, found) < 0.6 * fullest(ONE_KEY, whole, found)


def test_a_bucket_gets_what_was_counted():
    """Half the rows have one key; it is split, and the rows lie where the counts say."""
    rng, n = np.random.default_rng(17), 30_000
    codes = {name: np.where(rng.random(n) < 0.5, -1, rng.integers(0, n, n)) for name in "rst"}
    counted = bins(ONE_KEY, **{f"{name}0": of for name, of in codes.items()})
    grid = chosen_grid(ONE_KEY, 8, counted, timed="rst")
    starts = np.arange(n) * 1_000_000
    loads = [
        sum(grid.holds(bucket, name, {0: of}, starts).sum() for name, of in codes.items())
        for bucket in range(grid.n_buckets)
    ]
    assert grid.splits
    assert max(loads) == pytest.approx(fullest(ONE_KEY, grid, counted), rel=0.05)
    assert busiest(ONE_KEY, grid, counted, 1) == pytest.approx(sum(loads), rel=0.01)


def test_the_input_with_most_rows_is_cut_alone_where_the_others_have_few():
    grid = chosen_grid(ONE_KEY, 8, skewed(0.9, [100, 100_000, 100]), timed="rst")
    assert sides_of(grid) == [{"s": 8}]


def test_a_table_is_not_cut_by_event_time():
    found = skewed(0.9, [100_000, 1_000, 100])
    assert chosen_grid(ONE_KEY, 8, found, timed="st") == chosen_grid(ONE_KEY, 8, found)
    grid = chosen_grid(ONE_KEY, 8, skewed(0.9, [1_000, 100_000, 50]), timed="st")
    assert "r" not in sides_of(grid)[0]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1])
def test_nothing_is_split_where_no_key_has_many_rows(share):
    assert not chosen_grid(ONE_KEY, 8, skewed(share, [40_000] * 3), timed="rst").splits


def test_copies_are_work_where_few_tasks_run_at_a_time():
    found = skewed(0.5, [40_000] * 3)
    assert not chosen_grid(ONE_KEY, 8, found, timed="rst", n_tasks=2).splits
    many = chosen_grid(ONE_KEY, 240, found, timed="rst")
    few = chosen_grid(ONE_KEY, 240, found, timed="rst", n_tasks=8)
    assert max(split.n_parts for split in few.splits) < max(split.n_parts for split in many.splits)
    assert busiest(ONE_KEY, few, found, 8) < busiest(ONE_KEY, many, found, 8)


def test_a_split_is_left_where_it_is_of_no_use_to_few_tasks():
    found = skewed(0.5, [40_000] * 3)
    split, whole = chosen_grid(ONE_KEY, 8, found, timed="rst"), chosen_grid(ONE_KEY, 8, found)
    assert gain(ONE_KEY, whole, split, found, 8) == pytest.approx(
        fullest(ONE_KEY, whole, found) / fullest(ONE_KEY, split, found), rel=0.01
    )
    assert gain(ONE_KEY, split, whole, found, 2) > 1.5
    # Nothing is known: the copies of one bin of 240 are no reason to move.
    assert gain(ONE_KEY, split, whole, None, 2) == pytest.approx(1.0, abs=0.1)


def test_all_rows_with_one_key_are_cut():
    same = np.full(10_000, 13)
    found = bins(ONE_KEY, r0=same, s0=same, t0=same)
    grid = chosen_grid(ONE_KEY, 8, found, timed="rst")
    assert (grid.n_buckets, sides_of(grid)) == (8, [{"r": 2, "s": 2, "t": 2}])

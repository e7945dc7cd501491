"""A grid of hashes: every result in one bucket, and no bucket fuller than it has to be."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.joins.graph import JoinGraph
from eddyline.state.grid import N_BINS, Grid, Split, bins_of, busiest, chosen_grid, fullest, gain
from tests.joins.plans import split_grids

CHAIN = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))
ONE_KEY = JoinGraph(("r", "s", "t"), (frozenset("rst"),))

PAIRS = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st"), frozenset("rt")))


@pytest.mark.spark
def test_bins_are_those_of_spark(spark):
    codes = [0, 1, -1, 2**63 - 1, -(2**63), 42, 10**15, -7]
    df = spark.createDataFrame([(code,) for code in codes], "code BIGINT")
    said = df.selectExpr(f"pmod(xxhash64(code), {N_BINS}) AS bin").toArrow()["bin"].to_pylist()
    assert bins_of(np.array(codes)).tolist() == said


CODES = st.lists(st.sampled_from([0, 1, 7, -5, 2**63 - 1]), min_size=1, max_size=5)
STARTS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=5)


@st.composite
def cases(draw):
    """A graph, a grid for it that splits some bins of the codes, and rows of each input."""
    graph = draw(st.sampled_from([ONE_KEY, CHAIN, PAIRS]))
    rows = {}
    for name in graph.inputs:
        starts = np.array(draw(STARTS))
        codes = {key: np.array((draw(CODES) * 5)[:5]) for key in graph.classes_of[name]}
        rows[name] = codes, starts
    return graph, draw(split_grids(graph)), rows


@given(case=cases())
def test_rows_of_a_result_meet_in_one_bucket(case):
    graph, grid, rows = case
    held = [
        {name: grid.holds(bucket, name, *of) for name, of in rows.items()}
        for bucket in range(grid.n_buckets)
    ]
    for at in product(range(5), repeat=len(rows)):
        chosen = dict(zip(rows, at, strict=True))
        keys = [
            {int(rows[name][0][key][chosen[name]]) for name in members}
            for key, members in enumerate(graph.classes)
        ]
        if all(len(each) == 1 for each in keys):
            assert sum(all(each[name][row] for name, row in chosen.items()) for each in held) == 1


@given(case=cases())
def test_each_row_is_once_where_it_is_counted(case):
    graph, grid, rows = case
    for name, of in rows.items():
        held = [grid.holds(bucket, name, *of) for bucket in range(grid.n_buckets)]
        first = [grid.is_first(bucket, name, *of) for bucket in range(grid.n_buckets)]
        assert (sum((a & b).astype(int) for a, b in zip(held, first, strict=True)) == 1).all()
        once = list(grid.once(graph.classes_of[name]))
        assert len(set(once)) == len(once)
        assert np.any([held[bucket] for bucket in once], axis=0).all()
        if not grid.splits:
            assert sum(held[bucket].astype(int) for bucket in once).tolist() == [1] * 5


@given(case=cases())
def test_a_grid_goes_through_json(case):
    _, grid, _ = case
    assert Grid.of(json.loads(json.dumps(asdict(grid)))) == grid


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


def test_parts_of_splits_do_not_begin_in_one_place():
    first = [Split(0, at, (("r", 2),)).part(place=5, size=8) for at in range(8)]
    assert sorted(first) == list(range(8))

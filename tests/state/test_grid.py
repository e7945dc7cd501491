"""A grid of hashes: every result in one bucket, and no bucket fuller than it has to be."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.joins.graph import JoinGraph
from eddyline.state.grid import N_BINS, Grid, Split, bins_of
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
    assert msgspec.json.decode(msgspec.json.encode(grid), type=Grid) == grid


def test_parts_of_splits_do_not_begin_in_one_place():
    first = [Split(0, at, (("r", 2),)).part(place=5, size=8) for at in range(8)]
    assert sorted(first) == list(range(8))

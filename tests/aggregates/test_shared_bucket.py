"""Buckets of several queries, some of which group more coarsely: windows by the definition."""

from __future__ import annotations

import tempfile
from collections import Counter
from hashlib import blake2b
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates.bucket import state_of
from eddyline.aggregates.cells import coarser, group_bounds
from eddyline.aggregates.plan import AggregatePart, AggregatePlan, Partials, Share
from eddyline.aggregates.windows import SlideBatch
from eddyline.query.query import SlideWindow
from eddyline.state.rows import ALWAYS, Rows
from tests.aggregates.slow import place_in
from tests.examples import examples

GROUPS = ("g0", "g1", "g2")
PARTIALS = Partials({"n": "count", "most": "max", "kinds": "distinct"})
VALUE = st.sampled_from([None, 1, 2])


def code_of(values, seed):
    """Return a hash of the values of a group."""
    digest = blake2b(f"{seed}{values}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def cells_of(rows, levels, n_buckets, bucket):
    """Return rows as cells of a bucket, each by itself; None if none is in it."""
    keys = [(*(tuple(row[g] for g in names) for names in levels),) for row in rows]
    at = [n for n, each in enumerate(keys) if code_of(each[-1], 0) % n_buckets == bucket]
    if not at:
        return None
    codes = {
        2 * level + seed: np.array([code_of(keys[n][level], seed) for n in at], np.int64)
        for level in range(len(levels))
        for seed in (0, 1)
    }
    starts = np.array([rows[n]["at"] for n in at], np.int64)
    values = pa.array([rows[n]["v"] for n in at], pa.int64())
    payload = pa.table(
        {
            **{g: pa.array([rows[n][g] for n in at], pa.int64()) for g in GROUPS},
            "n": pa.array(np.ones(len(at), np.int64)),
            "most": values,
            "kinds": pa.array([[each] for each in values.to_pylist()], pa.list_(pa.int64())),
        }
    )
    return Rows(codes, starts, starts, payload)


def definition(rows, share):
    """Return the windows of a query, row by row."""
    found = {}
    slide = share.window.slide
    for row in rows:
        group = tuple(row[g] for g in share.groups)
        first = row["at"] - row["at"] % slide + slide
        for end in range(first, row["at"] + share.window.length + 1, slide):
            found.setdefault((end, *group), []).append(row["v"])
    return Counter((*key, len(of), max(of), len(set(of))) for key, of in found.items())


@st.composite
def cases(draw):
    """Return queries over levels of groups, and batches of rows with the time after each."""
    sizes = sorted(draw(st.sets(st.integers(1, 3), min_size=1)), reverse=True)
    names = draw(st.permutations(GROUPS))
    levels = [tuple(g for g in GROUPS if g in names[:size]) for size in sizes]
    numbers = [*range(len(levels)), *draw(st.lists(st.integers(0, len(levels) - 1), max_size=3))]
    windows = st.builds(SlideWindow, st.integers(1, 9), st.integers(1, 4))
    shares = tuple(
        Share(draw(windows), ("n", "most", "kinds"), levels[at], level=at) for at in numbers
    )
    steps = draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    batches, before = [], 0
    for after in accumulate(steps):
        row = st.fixed_dictionaries(
            {"at": st.integers(before, after + 5), "v": st.integers(0, 3)}
            | dict.fromkeys(GROUPS, VALUE)
        )
        batches.append((draw(st.lists(row, max_size=12)), after, draw(st.integers(1, 3))))
        before = after
    return levels, shares, [*batches, ([], before + 30, draw(st.integers(1, 3)))]


@pytest.mark.large
@given(cases())
@examples(300)
def test_windows_of_all_levels_whatever_the_batches_and_buckets(case):
    levels, shares, batches = case
    found = [Counter() for _ in shares]
    with tempfile.TemporaryDirectory() as folder:
        place = place_in(folder)
        part, before = AggregatePart(1), ALWAYS
        for rows, after, n_buckets in batches:
            plan = AggregatePlan(before, after, GROUPS, PARTIALS, shares[0].window, shares=shares)
            after_it = {}
            for bucket in range(n_buckets):
                state = state_of(part, bucket, n_buckets, place)
                task = SlideBatch(plan, place, state, bucket)
                for table in task.run(cells_of(rows, levels, n_buckets, bucket)):
                    for row in table.to_pylist():
                        own = shares[row["__place"]]
                        values = [row[name] for name in ("__instant", *own.groups, *own.columns)]
                        found[row["__place"]][tuple(values)] += 1
                after_it[bucket] = task.report.after
            part, before = AggregatePart(n_buckets, after_it), after
    every = [row for rows, *_ in batches for row in rows]
    for share, own in zip(shares, found, strict=True):
        assert own == definition(every, share), share


def test_coarser_cells_keep_what_tells_their_bucket():
    rows = [{"g0": 1, "g1": n, "g2": n % 2, "at": 0, "v": n} for n in range(4)]
    levels = (("g0", "g1", "g2"), ("g0", "g2"), ("g0",))
    cells = cells_of(rows, levels, 1, 0)
    merged = coarser(cells, 1, ["g0", "g2", "most"], PARTIALS.made)
    assert len(merged) == 2
    assert sorted(merged.codes) == [0, 1, 2, 3]
    assert merged.codes[2].tolist() == [code_of((1,), 0)] * 2
    assert sorted(merged.payload["most"].to_pylist()) == [2, 3]
    assert len(group_bounds(merged)) == 3

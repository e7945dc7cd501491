from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.state.row_windows import run_of
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun
from eddyline.state.run_index import CROWDED, GROUP, LONG, Index, Pairs, Probes, hashes_of, stacked

INSTANTS = st.one_of(
    st.integers(0, 12), st.sampled_from([ALWAYS, ALWAYS + 1, -1, FOREVER - 1, FOREVER])
)
CODES = st.one_of(st.integers(0, 3), st.sampled_from([ALWAYS, -1, FOREVER]))


@st.composite
def entries(draw, most=40):
    """Codes in two key classes, starts and ends of rows, in any order."""
    spans = draw(st.lists(st.tuples(CODES, CODES, INSTANTS, INSTANTS), max_size=most))
    columns = np.array(spans, np.int64).reshape(-1, 4).T
    return [np.ascontiguousarray(each) for each in columns]


def run_from(first, second, starts, ends):
    return run_of(Rows({0: first, 1: second}, starts, ends, pa.table({"at": starts})))


def looked_up(index, probes, checks, *, base=0, room=1):
    pairs, n = index.pairs(probes, checks, base, Pairs.room(room), 0)
    return pairs.first(n)


def pairs_of(found):
    return list(zip(*(each.tolist() for each in found), strict=True))


def expected(probes, run, key, other):
    """All pairs that live at one instant, by trying all."""
    first, second, starts, ends = probes
    rows = run.rows
    return sorted(
        (at, row, max(start, begin), min(end, last))
        for at, (code, check, start, end) in enumerate(
            zip(first.tolist(), second.tolist(), starts.tolist(), ends.tolist(), strict=True)
        )
        for row, (begin, last) in enumerate(
            zip(rows.starts.tolist(), rows.ends.tolist(), strict=True)
        )
        if (code, check) == (rows.codes[key][row], rows.codes[other][row])
        and max(start, begin) <= min(end, last)
    )


@given(held=entries(), asked=entries(), key=st.sampled_from([0, 1]), room=st.integers(1, 9))
def test_pairs_are_those_of_trying_all(held, asked, key, room):
    run = run_from(*held)
    codes, checks = (asked[0], asked[1]) if key == 0 else (asked[1], asked[0])
    probes = Probes(hashes_of(codes), asked[2], asked[3], checks[np.newaxis])
    index = run.index(key)
    found = looked_up(index, probes, stacked([run.rows.codes[1 - key]], len(run)), room=room)
    wanted = expected((codes, checks, asked[2], asked[3]), run, key, 1 - key)
    assert sorted(pairs_of(found)) == wanted
    assert (np.diff(found.probes) >= 0).all()


@pytest.mark.parametrize("n_rows", [0, 1, 2, LONG, LONG + 1, CROWDED, 5_000])
@pytest.mark.parametrize("n_keys", [1, 3, 4_000])
def test_entries_are_in_the_order_of_hash_start_and_coming(n_rows, n_keys):
    rng = np.random.default_rng([n_rows, n_keys])
    codes, starts = rng.integers(0, n_keys, n_rows), rng.integers(0, 50, n_rows)
    index = Index.from_ranges(codes, starts, starts + 5)
    order = np.lexsort((starts, hashes_of(codes)))
    assert (index.rows == order).all()
    assert (index.hashes == hashes_of(codes)[order]).all()
    assert (index.tags == index.hashes >> np.uint64(32)).all()
    assert (index.entries[:, 1:] == np.stack([starts, starts + 5], 1)[order]).all()
    slots = index.directory.size - 1
    firsts = np.arange(slots, dtype=np.uint64) * np.uint64((1 << 64) // slots)
    assert (index.directory[:-1] == np.searchsorted(index.hashes, firsts)).all()
    assert index.directory[-1] == n_rows


@pytest.mark.parametrize("n_probes", [0, 1, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP + 7])
@pytest.mark.parametrize("n_rows", [1, 2, 100, 3_000])
@pytest.mark.parametrize("n_keys", [1, 50, 100_000])
def test_groups_of_any_size_find_the_same(n_probes, n_rows, n_keys):
    rng = np.random.default_rng([n_probes, n_rows, n_keys])
    codes, starts = rng.integers(0, n_keys, n_rows), np.sort(rng.integers(0, 10_000, n_rows))
    run = SortedRun.from_rows(Rows({0: codes}, starts, starts + 9, pa.table({"at": starts})))
    asked = rng.integers(0, n_keys, n_probes)
    since = rng.integers(0, 10_000, n_probes)
    probes = Probes(hashes_of(asked), since, since + 4, stacked([], n_probes))
    found = looked_up(run.index(0), probes, stacked([], n_rows), base=1_000_000)
    meets = (asked[:, None] == run.rows.codes[0][None, :]) & (
        np.maximum(since[:, None], run.rows.starts[None, :])
        <= np.minimum(since[:, None] + 4, run.rows.ends[None, :])
    )
    at, row = np.nonzero(meets)
    wanted = zip(
        at.tolist(),
        (row + 1_000_000).tolist(),
        np.maximum(since[at], run.rows.starts[row]).tolist(),
        np.minimum(since[at] + 4, run.rows.ends[row]).tolist(),
        strict=True,
    )
    assert sorted(pairs_of(found)) == sorted(wanted)


def test_pairs_go_behind_those_that_are_there():
    codes, starts = np.arange(5), np.zeros(5, np.int64)
    index = Index.from_ranges(codes, starts, starts)
    probes = Probes(hashes_of(codes), starts, starts, stacked([], 5))
    pairs, n = index.pairs(probes, stacked([], 5), 0, Pairs.room(2), 0)
    pairs, n = index.pairs(probes, stacked([], 5), 100, pairs, n)
    found = pairs.first(n)
    assert found.probes.tolist() == [*range(5), *range(5)]
    assert sorted(found.rows[:5].tolist()) == list(range(5))
    assert (found.rows[5:] == found.rows[:5] + 100).all()


def test_one_key_of_many_rows_is_sorted_by_start():
    n = 100_000
    starts = np.random.default_rng(5).permutation(n)
    index = Index.from_ranges(np.zeros(n, np.int64), starts, starts)
    assert (index.entries[:, 1] == np.arange(n)).all()

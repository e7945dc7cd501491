"""Cold runs, the filters of their keys, and what a process keeps of these."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.state.cold_runs import AskedKeys, ColdTier, KeyFilter, cooled
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import ReadFiles, RunFile
from eddyline.state.run_index import hashes_of


@pytest.fixture
def kept():
    return ReadFiles(250)


def test_filters_that_are_used_stay_and_others_go_by_their_size(kept):
    a, b, c = {}, {}, {}
    kept.keep(("a", 1), 100, a)
    kept.keep(("b", 2), 100, b)
    assert kept.get(("a", 1)) is a
    kept.keep(("c", 3), 100, c)
    assert kept.get(("b", 2)) is None, "it was used longest ago"
    assert kept.get(("a", 1)) is a
    assert kept.get(("c", 3)) is c
    kept.keep(("d", 4), 900, {})
    assert kept.get(("a", 1)) is kept.get(("c", 3)) is None
    assert kept.get(("d", 4)) == {}, "the newest one stays, whatever its size is"


def test_rows_keep_to_their_numbers_when_runs_below_a_filter_have_left_the_window(tmp_path):
    """Filters that are merged when runs below them have left count rows that are not there."""
    files, folder, runs, cold, has_gaps = fs.LocalFileSystem(), str(tmp_path), {}, (), False
    for number in range(24):
        codes, starts = np.array([2 * number, 2 * number + 1]), np.full(2, 8 * number)
        run = SortedRun.from_rows(Rows({0: codes}, starts, starts + 1_000, pa.table({"at": codes})))
        file = RunFile(str(number), 2, 8 * number, 8 * number + 1_000, 1, 1)
        runs[file.name] = run
        now = 8 * number + 900
        cold = cooled(
            files, folder, cold, [file], lambda of: runs[of.name], horizon=now, length=1_000
        )
        has_gaps |= any(
            part.filter.n_rows < sum(p.filter.n_rows for p in part.parts) for part in cold
        )
        tier = ColdTier(files, folder, cold, (0,), lambda of: runs[of.name])
        wanted = np.concatenate([runs[of.name].rows.codes[0] for p in cold for of in p.runs])
        numbers = np.array([_number(tier, code) for code in wanted.tolist()])
        assert sorted(numbers.tolist()) == [*range(len(tier))]
        having, own = tier.having(numbers)
        found = np.concatenate([each.rows.codes[0] for each in having])[own]
        assert found.tolist() == wanted.tolist()
    assert has_gaps, "filters have been merged whose runs had left in part"


def _number(tier, code):
    """The number of the row of a code, as a look-up finds it."""
    asked = tier.asked(0, hashes_of(np.array([code])), np.array([code]))
    (number,) = [
        first + at
        for run, first, _ in asked
        for at in np.flatnonzero(run.rows.codes[0] == code).tolist()
    ]
    return number


ENDS = np.iinfo(np.int64)

keys = st.one_of(
    st.integers(ENDS.min, ENDS.max),
    st.integers(-20, 20),
    st.sampled_from([ENDS.min, ENDS.min + 1, -1, 0, ENDS.max - 1, ENDS.max]),
)
runs = st.lists(
    st.lists(keys, min_size=1, max_size=40).map(lambda each: np.array(each, np.int64)),
    min_size=1,
    max_size=4,
)


def passing(of, codes):
    return of.passing(AskedKeys.from_hashes(hashes_of(codes), codes))


@given(runs=runs, others=st.lists(keys, max_size=20))
def test_every_key_of_every_run_passes_in_its_place(runs, others):
    own = KeyFilter.from_codes(runs)
    held = np.concatenate(runs)
    asked = np.concatenate([np.array(others, np.int64), held])
    found = passing(own, asked)
    assert (np.diff(found) > 0).all()
    assert set(np.flatnonzero(np.isin(asked, held)).tolist()) <= set(found.tolist())
    outside = (asked < held.min()) | (asked > held.max())
    assert not outside[found].any()


def test_nothing_passes_when_nothing_is_asked_for():
    none = np.empty(0, np.int64)
    assert passing(KeyFilter.from_codes([np.array([7])]), none).size == 0


def test_one_key_keeps_all_others_away():
    own = KeyFilter.from_codes([np.array([5, 5, 5])])
    assert passing(own, np.arange(-5_000, 5_000)).tolist() == [5_005]


def test_few_of_10_000_other_keys_pass_between_those_of_one_run_and_of_several():
    for seed in range(8):
        rng = np.random.default_rng(seed)
        every = rng.permutation(30_000)
        held, others = np.split(every, [20_000])
        for parts in ([held], np.array_split(held, 7)):
            found = passing(KeyFilter.from_codes(parts), others)
            assert found.size < 100, "one in 200 is usual, 72 the most that was seen"

"""Filters of keys: one that is there always passes, and hardly one that is not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eddyline.state.key_filters import AskedKeys, KeyFilter
from eddyline.state.run_index import hashes_of

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
    return of.passing(AskedKeys.of(hashes_of(codes), codes))


@given(runs=runs, others=st.lists(keys, max_size=20))
def test_every_key_of_every_run_passes_in_its_place(runs, others):
    own = KeyFilter.of(runs)
    held = np.concatenate(runs)
    asked = np.concatenate([np.array(others, np.int64), held])
    found = passing(own, asked)
    assert (np.diff(found) > 0).all()
    assert set(np.flatnonzero(np.isin(asked, held)).tolist()) <= set(found.tolist())
    outside = (asked < held.min()) | (asked > held.max())
    assert not outside[found].any()


def test_nothing_passes_when_nothing_is_asked_for():
    none = np.empty(0, np.int64)
    assert passing(KeyFilter.of([np.array([7])]), none).size == 0


def test_one_key_keeps_all_others_away():
    own = KeyFilter.of([np.array([5, 5, 5])])
    assert passing(own, np.arange(-5_000, 5_000)).tolist() == [5_005]


def test_few_of_10_000_other_keys_pass_between_those_of_one_run_and_of_several():
    for seed in range(8):
        rng = np.random.default_rng(seed)
        every = rng.permutation(30_000)
        held, others = np.split(every, [20_000])
        for parts in ([held], np.array_split(held, 7)):
            found = passing(KeyFilter.of(parts), others)
            assert found.size < 100, "one in 200 is usual, 72 the most that was seen"

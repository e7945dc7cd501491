from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.revisions import latest, living, newest, with_retractions
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import solutions, where
from tests.models.pieces import SECOND, drawn, pieces, ranges


def arrived(*segments):
    """Return segments one after the other, and their arrival."""
    names = segments[0].coefs
    whole = type(segments[0])(
        *(
            np.concatenate([getattr(each, name) for each in segments])
            for name in ("keys", "origin", "lo", "hi", "is_point", "is_tombstone")
        ),
        {name: np.concatenate([each.coefs[name] for each in segments]) for name in names},
        {name: np.concatenate([each.errors[name] for each in segments]) for name in names},
    )
    return whole, np.repeat(np.arange(len(segments)), [len(each) for each in segments])


def view(*rows, version=None):
    segments = pieces(*((0, lo, hi, None if c is None else {"x": [c]}) for lo, hi, c in rows))
    found = newest(segments, np.arange(len(rows)) if version is None else np.array(version))
    return [(*each, c) for each, c in zip(ranges(found), found.coefs["x"][:, 0], strict=True)]


def test_t11_a_later_segment_overrides_what_it_covers():
    assert view((0, 10, 1), (6, 12, 2)) == [(0, 6, 1), (6, 12, 2)]
    # Pulse leaves a gap from 8 to 10, which here a tombstone makes: a version may say so.
    assert view((0, 10, 1), (6, 8, 2), (8, 10, None)) == [(0, 6, 1), (6, 8, 2)]
    assert view((0, 10, 1), (6, 8, 2)) == [(0, 6, 1), (6, 8, 2), (8, 10, 1)]


def test_the_order_is_that_of_versions_and_not_of_rows_or_times():
    assert view((0, 4, 2), (0, 10, 1), version=[1, 0]) == [(0, 4, 2), (4, 10, 1)]
    assert view((6, 8, 2), (2, 20, 3), version=[0, 5]) == [(2, 20, 3)]


def test_of_one_version_a_segment_counts_before_a_tombstone():
    assert view((0, 9, None), (2, 5, 1), (0, 9, 3), version=[1, 1, 0]) == [(2, 5, 1)]


def test_what_is_written_twice_is_there_once():
    rows = (0, 9, 1), (3, 5, None), (3, 5, None), (0, 9, 1), (4, 5, None)
    assert view(*rows, version=[0, 1, 1, 0, 1]) == [(0, 3, 1), (5, 9, 1)]


def test_a_point_takes_the_instant_out_of_what_it_overrides():
    assert view((3, 3, 1), (3, 5, 2)) == [(3, 5, 2)]
    assert view((0, 5, 1), (3, 3, 2)) == [(0, 3, 1), (3, 3, 2), (3.000001, 5, 1)]


def test_entities_do_not_override_each_other():
    segments = pieces((1, 0, 9, {"x": [1]}), (0, 4, 6, {"x": [1]}), (1, 5, 9, {"x": [2]}))
    assert ranges(newest(segments, np.arange(3))) == [(4, 6), (0, 5), (5, 9)]
    assert ranges(newest(segments.take(np.arange(2)), np.zeros(2, np.int64))) == [(4, 6), (0, 9)]


def oracle(segments, version):
    """Return, between any two boundaries of an entity, what was written last there: one by one."""
    found = []
    for key in np.unique(segments.keys):
        own = np.flatnonzero(segments.keys == key)
        edges = sorted({*segments.lo[own].tolist(), *segments.ends[own].tolist()})
        for lo, hi in itertools.pairwise(edges):
            there = own[(segments.lo[own] <= lo) & (segments.ends[own] >= hi)]
            order = [(version[each], not segments.is_tombstone[each], each) for each in there]
            if order and max(order)[1]:
                found.append((int(key), lo, hi, segments.coefs["x"][max(order)[2]].tolist()))
    return found


@st.composite
def written(draw):
    """Draw segments and tombstones of a few versions, in any order, and their versions."""
    rows, versions = [], []
    for version in draw(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True)):
        for key in range(draw(st.integers(1, 2))):
            at = 0
            for _ in range(draw(st.integers(1, 3))):
                lo = at + draw(st.integers(0, 4))
                at = lo + draw(st.integers(0, 5))
                rows.append((key, lo, at, {"x": [len(rows)]}))
                versions.append(version)
                at += rows[-1][1] == at  # behind a point
            for lo, length in draw(
                st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), max_size=2)
            ):
                rows.append((key, lo, lo + length, None))
                versions.append(version)
    again = draw(st.lists(st.integers(0, len(rows) - 1), max_size=3))
    order = draw(st.permutations([*range(len(rows)), *again]))
    return pieces(*(rows[each] for each in order)), np.array(versions)[order]


@given(written())
def test_the_newest_of_each_instant(given_):
    segments, version = given_
    found = newest(segments, version)
    edges = np.unique(np.concatenate([segments.lo, segments.ends]))
    columns = found.keys, found.lo, found.ends, found.coefs["x"]
    rows = zip(*(each.tolist() for each in columns), strict=True)
    assert refined(rows, edges) == refined(oracle(segments, version), edges)
    assert not found.is_tombstone.any()


def refined(rows, edges):
    """Return ranges cut at the boundaries of all entities."""
    return [
        (key, lo, hi, coefs)
        for key, low, high, coefs in rows
        for lo, hi in itertools.pairwise(edges[(low <= edges) & (edges <= high)].tolist())
    ]


def test_t28_tombstone():
    condition = read_condition("x > 0", ["x"])
    old = pieces((0, 0, 10, {"x": [-45, 14, -1]}))  # -(t - 5)(t - 9)
    new = pieces((0, 6, 10, {"x": [-1, 0, 0]}))
    first = with_retractions(old, solutions(old, condition))
    again = with_retractions(new, solutions(new, condition))
    assert ranges(living(first)) == [(5.000001, 9)]
    assert ranges(again) == [(6, 10)]
    assert again.is_tombstone.all()
    assert ranges(living(latest(*arrived(first, again)))) == [(5.000001, 6)]


def test_results_of_a_range_that_is_solved_again_are_gone_wherever_they_began():
    condition = read_condition("x <= 0", ["x"])
    old = pieces((0, 0, 10, {"x": [0, 8, -1, 0, 0]}), (1, 0, 2, {"x": [1]}))  # t (8 - t)
    touching = pieces((0, 6, 20, {"x": [81, -18, 1, 0, 0]}))  # (t - 9)^2
    before = with_retractions(old, solutions(old, condition))
    after = with_retractions(touching, solutions(touching, condition))
    assert ranges(living(before)) == [(0, 0), (8, 10)]
    assert ranges(living(latest(*arrived(before, after)))) == [(0, 0), (9, 9)]


@given(segments=drawn(), text=st.sampled_from(["x > 0", "x * x <= 1", "x = 0"]))
def test_solutions_and_retractions_cover_each_segment_once(segments, text):
    condition = read_condition(text, ["x"])
    found = with_retractions(segments, solutions(segments, condition))
    assert ranges(living(found)) == ranges(where(segments, condition))
    lengths = found.hi - found.lo + found.is_point
    for key in np.unique(segments.keys):
        whole = (segments.hi - segments.lo)[segments.keys == key].sum()
        assert lengths[found.keys == key].sum() == whole


@given(st.data())
def test_the_latest_of_each_instant(data):
    parts = [data.draw(drawn(degree=1, gaps=True)) for _ in range(3)]
    size = max(each.coefs["x"].shape[1] for each in parts)
    for each in parts:
        each.coefs["x"] = np.pad(each.coefs["x"], ((0, 0), (0, size - each.coefs["x"].shape[1])))
    whole, arrival = arrived(*parts)
    found = latest(whole, arrival)
    for key in np.unique(whole.keys):
        for at in range(13, 20 * SECOND, SECOND // 7):
            there = (whole.keys == key) & (whole.lo <= at) & (at < whole.hi)
            seen = (found.keys == key) & (found.lo <= at) & (at < found.hi)
            assert seen.sum() == min(there.sum(), 1)
            if there.any():
                newest = np.flatnonzero(there)[-1]
                assert found.coefs["x"][seen].tolist() == whole.coefs["x"][[newest]].tolist()

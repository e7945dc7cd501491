from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models import timeline
from eddyline.models.solving.joins import among_entities, different_entities, same_entity
from tests.models.pieces import EPOCH, SECOND, drawn, pieces


def end(segments, row):
    return segments.hi[row] + segments.is_point[row]


def overlapping(left, right, same):
    """Return every pair that overlaps, by looking at all of them."""
    return {
        (a, b, max(left.lo[a], right.lo[b]), min(end(left, a), end(right, b)))
        for a, b in product(range(len(left)), range(len(right)))
        if bool(left.keys[a] == right.keys[b]) is same
        and max(left.lo[a], right.lo[b]) < min(end(left, a), end(right, b))
    }


def as_set(pairs):
    rows = [*zip(pairs.left, pairs.right, pairs.lo, pairs.hi, strict=True)]
    assert len(set(rows)) == len(rows)
    return set(rows)


def some_points(segments, draw):
    """Make some segments the points at which they begin."""
    which = np.array(draw(st.lists(st.booleans(), min_size=len(segments), max_size=len(segments))))
    return replace(segments, hi=np.where(which, segments.lo, segments.hi), is_point=which)


@given(st.data())
def test_all_pairs_and_no_other(data):
    left, right = (some_points(data.draw(drawn()), data.draw) for _ in range(2))
    assert as_set(same_entity(left, right)) == overlapping(left, right, same=True)
    assert as_set(different_entities(left, right)) == overlapping(left, right, same=False)
    among = as_set(among_entities(left))
    both = among | {(b, a, lo, hi) for a, b, lo, hi in among}
    assert both == overlapping(left, left, same=False)
    assert len(both) == 2 * len(among)


@given(st.data())
def test_pairs_that_come_near_are_kept(data):
    left, right = data.draw(drawn(("x", "y"))), data.draw(drawn(("x", "y")))
    reach = data.draw(st.sampled_from([0.0, 0.5, 3.0]))
    near = {each[:2] for each in as_set(different_entities(left, right, {("x", "y"): reach}))}
    for a, b, lo, hi in overlapping(left, right, same=False):
        times = np.linspace(lo, hi, 50)
        one, other = (
            np.polyval(side.coefs[name][row][::-1], (times - side.origin[row]) / SECOND)
            for side, name, row in ((left, "x", a), (right, "y", b))
        )
        if (np.abs(one - other) <= reach).any():
            assert (a, b) in near


def test_pairs_that_stay_apart_are_left_out():
    segments = pieces(
        (0, 0, 9, {"x": [0, 1]}), (1, 0, 9, {"x": [12, 0]}), (2, 0, 9, {"x": [13, 1]})
    )
    assert {each[:2] for each in as_set(among_entities(segments, {("x", "x"): 3.0}))} == {
        (0, 1),
        (1, 2),
    }


def test_a_tombstone_is_near_everything():
    segments = pieces((0, 0, 9, {"x": [0, 1]}), (1, 2, 5, None))
    assert len(among_entities(segments, {("x", "x"): 0.1}).lo) == 1


@pytest.mark.parametrize("span", [10, 2**61])
def test_codes_sort_as_entities_and_times_do_however_long_time_is(span):
    rng = np.random.default_rng(span % 97)
    keys = rng.integers(0, 9, 200)
    times = rng.integers(EPOCH - span // 2, EPOCH + span // 2, 200)
    first, second = timeline.codes((keys[:80], times[:80]), (keys[80:], times[80:]))
    found = np.concatenate([first, second])
    order = np.lexsort((times, keys))
    np.testing.assert_array_equal(np.argsort(found, kind="stable"), order)
    assert len(np.unique(found)) == len({*zip(keys, times, strict=True)})


def test_nothing_overlaps_nothing():
    none = pieces((0, 0, 9, {"x": [0, 1]})).take(np.arange(0))
    one = pieces((0, 0, 9, {"x": [0, 1]}))
    for left, right in [(none, none), (none, one), (one, none)]:
        assert not as_set(same_entity(left, right))
        assert not as_set(different_entities(left, right))
    assert not as_set(among_entities(one))

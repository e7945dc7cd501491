"""What a join asks of one side alone is asked before, and no result is another one for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models import timeline
from eddyline.models.solving.expressions import near
from eddyline.models.solving.joins import (
    BY_SAMPLE,
    LEAST_SAMPLED,
    MIN_LEFT_OUT,
    Asking,
    among_entities,
    different_entities,
    joined,
    joined_among,
    joined_entities,
    joined_with_others,
    same_entity,
)
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import where
from tests.models.pieces import EPOCH, SECOND, drawn, pieces, ranges, values_at

SIDES = ["left.x", "left.y", "right.x", "right.y"]


def by_pair(found, start=0):
    """Return the ranges of each pair of entities."""
    made = {}
    for key, each in zip(found.segments.keys, ranges(found.segments, start), strict=True):
        made.setdefault((int(found.left[key]), int(found.right[key])), []).append(each)
    return made


def test_t1_join_of_two_sides():
    left = pieces((0, 0, 10, {"x": [10, 2]}), start=EPOCH, errors=0.5)
    right = pieces((0, 0, 10, {"y": [0, 1, 0.5]}), start=EPOCH, errors=0.25)
    found = joined(left, right, read_condition("a.x < b.y", ["a.x", "b.y"]), names=("a", "b"))
    np.testing.assert_allclose(ranges(found.segments, EPOCH), [(1 + 21**0.5, 10)], atol=0.6e-6)
    assert found.segments.errors == {"a.x": [0.5], "b.y": [0.25]}


def test_t2_sides_with_origins_of_their_own():
    left = pieces((0, 0, 8, {"x": [10, 2]}), start=EPOCH)
    right = pieces((0, 3, 10, {"y": [0, 1, 0.5]}, 3), start=EPOCH)
    names = ["left.x", "right.y"]
    assert len(joined(left, right, read_condition("left.x < right.y", names)).segments) == 0
    found = joined(left, right).segments
    assert ranges(found, EPOCH) == [(3, 8)]
    assert (found.origin - EPOCH).tolist() == [3 * SECOND]
    np.testing.assert_allclose(found.coefs["left.x"], [[16, 2]], atol=1e-9)
    np.testing.assert_allclose(found.coefs["right.y"], [[0, 1, 0.5]], atol=1e-9)


def test_entities_that_follow_each_other():
    segments = pieces(
        (0, 0, 10, {"x": [0, 1], "y": [0, 0]}),
        (1, 0, 10, {"x": [9, -1], "y": [0, 0]}),
        (2, 5, 10, {"x": [-5, 1], "y": [4, 0]}),
        start=EPOCH,
    )
    condition = near({"left.x": "right.x", "left.y": "right.y"}, "<", 5)
    found = joined_among(segments, condition, within={"x": 5, "y": 5})
    assert by_pair(found, EPOCH) == {(0, 1): [(2.000001, 7)], (1, 2): [(5.500001, 8.5)]}
    exact = near({"left.x": "right.x", "left.y": "right.y"}, "<=", 41**0.5)
    assert by_pair(joined_among(segments, exact), EPOCH)[0, 2] == [(5, 10)]


def test_pairs_of_two_sides_have_both_orders():
    segments = pieces((0, 0, 10, {"x": [0, 1]}), (1, 0, 10, {"x": [4, 0]}))
    condition = read_condition("left.x < right.x", ["left.x", "right.x"])
    assert by_pair(joined_with_others(segments, segments, condition)) == {
        (0, 1): [(0, 4)],
        (1, 0): [(4.000001, 10)],
    }


def test_points_and_tombstones_of_a_side():
    left = pieces((0, 0, 4, {"x": [0, 1]}), (0, 4, 9, None))
    right = pieces((0, 2, 2, {"y": [1]}), (0, 3, 6, {"y": [7, 0]}))
    found = joined(left, right, read_condition("x > y", ["left.x", "right.y"])).segments
    assert ranges(found) == [(2, 2), (4, 6)]
    assert found.is_point.tolist() == [True, False]
    assert found.is_tombstone.tolist() == [False, True]


@pytest.mark.parametrize("same", [True, False])
@given(left=drawn(("x", "y"), start=EPOCH, degree=2), right=drawn(("x", "y"), start=EPOCH))
def test_joins_are_what_dense_samples_say(same, left, right):
    join = joined if same else joined_with_others
    text = "left.x + right.y > 0 AND abs(left.y) > right.x"
    found = join(left, right, read_condition(text, SIDES))
    times = EPOCH + np.arange(0, 20 * SECOND, SECOND // 7) + 13
    for a in np.unique(left.keys):
        for b in np.unique(right.keys):
            if bool(a == b) is not same:
                continue
            (lx, ly), (rx, ry) = (
                [sampled(side.take(side.keys == key), times, name) for name in ("x", "y")]
                for side, key in ((left, a), (right, b))
            )
            with np.errstate(invalid="ignore"):
                expected = (lx + ry > 0) & (np.abs(ly) > rx)
            pair = np.flatnonzero((found.left == a) & (found.right == b))
            own = found.segments.take(np.isin(found.segments.keys, pair))
            inside = sampled(own, times, "left.x")
            edges = np.concatenate([own.lo, own.hi, [0]])
            clear = np.abs(times[:, None] - edges).min(axis=1) > 40
            np.testing.assert_array_equal(~np.isnan(inside[clear]), expected[clear])


def sampled(segments, times, name):
    """Return an attribute of one entity at each time, NaN where there is no segment."""
    found = values_at(segments, times, name)
    return np.where(np.isnan(found).all(axis=1), np.nan, np.nansum(found, axis=1))


# -- overlaps -------------------------------------------------------------------------------------


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
    left, right = data.draw(drawn()), data.draw(drawn())
    reach = data.draw(st.sampled_from([0.0, 0.5, 3.0]))
    near = {each[:2] for each in as_set(different_entities(left, right, {"x": reach}))}
    for a, b, lo, hi in overlapping(left, right, same=False):
        times = np.linspace(lo, hi, 50)
        one, other = (
            np.polyval(side.coefs["x"][row][::-1], (times - side.origin[row]) / SECOND)
            for side, row in ((left, a), (right, b))
        )
        if (np.abs(one - other) <= reach).any():
            assert (a, b) in near


def test_pairs_that_stay_apart_are_left_out():
    segments = pieces(
        (0, 0, 9, {"x": [0, 1]}), (1, 0, 9, {"x": [12, 0]}), (2, 0, 9, {"x": [13, 1]})
    )
    assert {each[:2] for each in as_set(among_entities(segments, {"x": 3.0}))} == {
        (0, 1),
        (1, 2),
    }


def test_a_tombstone_is_near_everything():
    segments = pieces((0, 0, 9, {"x": [0, 1]}), (1, 2, 5, None))
    assert len(among_entities(segments, {"x": 0.1}).lo) == 1


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


# -- one sided ------------------------------------------------------------------------------------


NAMES = ["left.x", "left.y", "right.x", "right.y"]
PARTS = st.sampled_from(
    [
        "left.x > 1", "left.x <= 0", "left.x = 2", "left.x <> 2", "abs(left.x) < 1",
        "d(left.y) > 0", "left.x > left.y OR left.x < -1", "pow(left.x - 1, 2) < left.y",
        "right.x < 1", "right.x = right.y", "right.x > 0 OR left.x > 0", "left.x < right.y",
        "1 < 2", "2 < 1", "left.x > 1e300 * left.y",
    ]
)  # fmt: skip
WAYS = {
    "same": joined,
    "others": joined_with_others,
    "near": lambda one, other, condition, **more: joined_with_others(
        one, other, condition, within={"x": 3.0}, **more
    ),
    "among": lambda one, _, condition, **more: joined_among(one, condition, **more),
    "cell": lambda one, _, condition, **more: joined_among(
        one, condition, sides=one.keys % 2, **more
    ),
    "entities": lambda one, other, condition, **more: joined_entities(
        one, other, (np.array([0, 1, 0]), np.array([1, 1, 2])), condition, **more
    ),
}
PLANS = [None, (), ("left",), ("right",), ("left", "right"), ("right", "left")]
"""Which sides are asked before, in which order; None: as samples say."""


@st.composite
def sides(draw):
    """Draw segments of which some are points, or say that there is no model."""
    found = draw(drawn(names=("x", "y"), most=4, degree=2, start=EPOCH))
    n = len(found)
    some = st.lists(st.sampled_from([False, False, False, True]), min_size=n, max_size=n)
    none = st.just([False] * n)
    is_point = np.array(draw(none | some), np.bool_)
    is_tombstone = np.array(draw(none | some), np.bool_) & ~is_point
    hi = np.where(is_point, found.lo, found.hi)
    return replace(found, hi=hi, is_point=is_point, is_tombstone=is_tombstone)


def told(made, segments):
    """Return results in an order of their own, to the last digit."""
    pairs = made.left[segments.keys].tolist(), made.right[segments.keys].tolist()
    coefs = [segments.coefs[name].tolist() for name in NAMES]
    rest = segments.lo, segments.hi, segments.origin, segments.is_point, segments.is_tombstone
    return sorted(map(repr, zip(*pairs, *(each.tolist() for each in rest), *coefs, strict=True)))


@given(
    sides(),
    sides(),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(sorted(WAYS)),
    st.sampled_from(PLANS),
)
def test_results_are_those_of_pairing_first(one, other, parts, way, plan):
    condition = read_condition(" AND ".join(f"({each})" for each in parts), NAMES)
    found = WAYS[way](one, other, condition, asking=Asking(plan))
    every = WAYS[way](one, other, None)
    assert told(found, found.segments) == told(every, where(every.segments, condition))


def test_segments_are_left_out_by_what_is_asked_of_them_alone():
    one = pieces(
        (0, 0, 10, {"x": [0, 1], "y": [0]}),
        (1, 0, 10, {"x": [0, 2], "y": [0]}),
        (2, 0, 10, {"x": [12, 0], "y": [0]}),
    )
    other = pieces((0, 0, 10, {"x": [5], "y": [1]}))

    def left(text, beside=other):
        found = BY_SAMPLE.may_hold(one, "left", read_condition(text, NAMES), beside)
        return None if found is None else found.tolist()

    assert left("left.x > 11 AND left.x > right.x") == [False, True, True]
    assert left("left.x > 11 AND left.x < 13 AND left.x <> 12") == [False, True, True]
    assert left("left.x > 30") == [False] * 3
    assert left("left.x >= 10 AND right.x > 7") == [True] * 3  # at its end, which is not its own
    assert left("left.x > right.x OR left.x > 11") is None
    assert left("right.x > 11") is None
    gone = replace(other, is_tombstone=np.array([True]))
    assert left("left.x > 11", gone) is None


def test_a_point_has_what_is_there_within_its_microsecond():
    one = pieces((0, 0, 10, {"x": [0, 1], "y": [0]}))
    other = pieces((0, 0, 0, {"x": [5], "y": [1]}))
    condition = read_condition("left.x >= 0.0000009", NAMES)
    assert len(joined(one, other, condition).segments) == 1
    assert len(joined(one, other, read_condition("left.x >= 0.0000011", NAMES)).segments) == 0


def test_many_segments_are_asked_if_a_sample_says_that_it_pays():
    n = 4 * LEAST_SAMPLED
    one = pieces(*((0, at, at + 1, {"x": [at]}) for at in range(n)))
    for share in (0.5, 0.99):
        condition = read_condition(f"left.x >= {int(n * (1 - share))}", NAMES)
        found = BY_SAMPLE.may_hold(one, "left", condition, one)
        assert (found is None) == (share > 1 - MIN_LEFT_OUT)
        assert len(joined(one, one, condition).segments) == pytest.approx(share * n, abs=1)


def test_where_there_is_no_model_stays():
    one = pieces((0, 0, 4, {"x": [0], "y": [0]}), (0, 4, 6, {"x": [0], "y": [0]}))
    one = replace(one, is_tombstone=np.array([False, True]))
    other = pieces((0, 0, 10, {"x": [5], "y": [1]}))
    condition = read_condition("left.x > 1", NAMES)
    for left, right, names in ((one, other, ("left", "right")), (other, one, ("right", "left"))):
        found = joined(left, right, condition, names=names).segments
        assert found.is_tombstone.tolist() == [True]

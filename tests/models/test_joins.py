from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from eddyline.models.solving.expressions import near
from eddyline.models.solving.joins import joined, joined_among, joined_with_others, mirrored
from eddyline.models.solving.text import read_condition
from tests.models.pieces import EPOCH, SECOND, drawn, pieces, ranges

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


def test_pairs_of_two_sides_have_both_orders_and_mirrored_exchanges_them():
    segments = pieces((0, 0, 10, {"x": [0, 1]}), (1, 0, 10, {"x": [4, 0]}))
    condition = read_condition("left.x < right.x", ["left.x", "right.x"])
    assert by_pair(joined_with_others(segments, segments, condition)) == {
        (0, 1): [(0, 4)],
        (1, 0): [(4.000001, 10)],
    }
    found = mirrored(joined_among(segments, condition))
    assert by_pair(found) == {(1, 0): [(0, 4)]}
    assert found.segments.coefs["right.x"].tolist() == [[0, 1]]


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
                sampled(side, key, times) for side, key in ((left, a), (right, b))
            )
            with np.errstate(invalid="ignore"):
                expected = (lx + ry > 0) & (np.abs(ly) > rx)
            pair = np.flatnonzero((found.left == a) & (found.right == b))
            own = found.segments.take(np.isin(found.segments.keys, pair))
            inside = sampled(own, None, times)[0]
            edges = np.concatenate([own.lo, own.hi, [0]])
            clear = np.abs(times[:, None] - edges).min(axis=1) > 40
            np.testing.assert_array_equal(~np.isnan(inside[clear]), expected[clear])


def sampled(segments, key, times):
    """Return the first two attributes at each time, NaN where there is no segment."""
    found = np.full((2, len(times)), np.nan)
    for row in range(len(segments)):
        if key is None or segments.keys[row] == key:
            there = (segments.lo[row] <= times) & (times < segments.hi[row])
            tau = (times[there] - segments.origin[row]) / SECOND
            for at, coefs in enumerate([*segments.coefs.values()][:2]):
                found[at, there] = np.polyval(coefs[row][::-1], tau)
    return found

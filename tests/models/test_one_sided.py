"""What a join asks of one side alone is asked before, and no result is another one for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.solving.joins import (
    BY_SAMPLE,
    LEAST_SAMPLED,
    MIN_LEFT_OUT,
    Asking,
    joined,
    joined_among,
    joined_entities,
    joined_with_others,
)
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import where
from tests.models.pieces import EPOCH, drawn, pieces

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

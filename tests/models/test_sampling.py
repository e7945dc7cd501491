from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import where
from eddyline.models.windows.integrals import average_distances, changes, distance_integral, sampled
from tests.models.pieces import EPOCH, SECOND, drawn, pieces


def test_t3_sampling():
    price = pieces((0, 0, 10, {"price": [130, -2]}), start=EPOCH)
    found = sampled(where(price, read_condition("price < 125", ["price"])), SECOND)
    assert ((found.times - EPOCH) // SECOND).tolist() == [*range(3, 10)]
    assert found.values["price"].tolist() == [130 - 2 * t for t in range(3, 10)]


def test_ticks_are_multiples_since_1970_and_a_point_has_its_own():
    segments = pieces(
        (0, -2.5, 1, {"x": [0, 1]}),
        (1, 0.7, 0.7, {"x": [5]}),
        (2, 0.1, 0.4, {"x": [1]}),
        (3, 0, 9, None),
        (4, 3, 3.25, {"x": [2, 1]}, 3),
    )
    found = sampled(segments, SECOND)
    rows = [*zip(found.keys, found.times / SECOND, found.values["x"], strict=True)]
    assert rows == [(0, -2, -2), (0, -1, -1), (0, 0, 0), (1, 0.7, 5), (4, 3, 2)]
    assert len(sampled(segments.take(np.arange(0)), SECOND).times) == 0


def test_changes_are_ranges_without_a_gap():
    segments = pieces(
        (0, 0, 2, {"x": [0, 1]}),
        (0, 2, 3, {"x": [7, 0]}),
        (0, 4, 4, {"x": [8, 0]}),
        (0, 5, 6, {"x": [9, 0]}),
        (1, 6, 7, {"x": [1, 0]}),
        (1, 7, 8, None),
        (1, 8, 9, {"x": [2, 0]}),
    )
    found = changes(segments)
    assert (found.starts.times / SECOND).tolist() == [0, 4, 5, 6, 8]
    assert (found.ends / SECOND).tolist() == [3, 4, 6, 7, 9]
    assert found.starts.values["x"].tolist() == [0, 8, 9, 1, 2]
    assert len(changes(segments.take(np.arange(0))).ends) == 0


AXES = {"a.x": "b.x", "a.y": "b.y"}


def pair(dx, dy, *, origin=0, lo=0, hi=6):
    coefs = {"a.x": dx, "a.y": dy, "b.x": [0, 0], "b.y": [0, 0]}
    return pieces((0, lo, hi, coefs, origin), start=EPOCH)


def test_t24_average_distance():
    found = average_distances(pair([-3, 1], [4, 0], hi=6.001), AXES, 6 * SECOND, SECOND)
    assert (found.times - EPOCH).tolist() == [6 * SECOND]
    assert found.values["distance"] == pytest.approx([(7.5 + 8 * math.log(2)) / 3], abs=1e-9)


@pytest.mark.parametrize(
    ("dx", "dy", "expected"),
    [
        ([-3, 1], [0, 0], 1.5),  # they meet in the middle
        ([-6, 2], [-3, 1], 5**0.5 * 1.5),  # and so on a slant
        ([0, 1], [0, 0], 3.0),  # they part from the first instant
        ([3, 0], [4, 0], 5.0),  # no motion between them
        ([0, 0], [0, 0], 0.0),
        ([3, 1e-200], [4, 0], 5.0),
        ([3e8, 1e-3], [4e8, 0], 5e8 + 3e-3 * 0.6),
        ([-3, 1], [1e-180, 0], 1.5),
    ],
)
def test_t24_degenerate_cases(dx, dy, expected):
    found = average_distances(pair(dx, dy, hi=6.001), AXES, 6 * SECOND, SECOND)
    assert found.values["distance"] == pytest.approx([expected], rel=1e-12, abs=1e-12)


@given(st.lists(st.integers(-50, 50).map(lambda n: n / 4), min_size=5, max_size=5))
def test_distance_integrals_against_numeric_integration(numbers):
    x, vx, y, vy, length = numbers
    length = abs(length) + 0.25
    position, velocity = np.array([[x, y]]), np.array([[vx, vy]])
    edges = np.linspace(0, length, 20_001)
    at = (edges[1:] + edges[:-1]) / 2
    expected = np.hypot(x + vx * at, y + vy * at).mean() * length
    found = distance_integral(position, velocity, np.array([length]))[0]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_average_distances_over_several_pieces_and_with_gaps():
    segments = pieces(
        (0, 0, 4, {"a.x": [0, 1], "b.x": [0, 0]}),
        (0, 4, 8, {"a.x": [4, 0], "b.x": [0, 0]}),
        start=EPOCH,
    )
    found = average_distances(segments, {"a.x": "b.x"}, 4 * SECOND, 2 * SECOND)
    assert found.values["distance"] == pytest.approx([2, (2.5 + 3.5 + 8) / 4 - 0.0, 4], abs=1e-12)
    part = average_distances(segments, {"a.x": "b.x"}, 4 * SECOND, 2 * SECOND, covered=True)
    assert part.values["distance"] == pytest.approx([1, 2, 3.5, 4, 4], abs=1e-12)


def test_average_distances_where_a_position_is_not_known():
    nan = float("nan")
    segments = pieces(
        (0, 0, 4, {"a.x": [0, 1], "b.x": [0, 0]}),
        (0, 4, 5, {"a.x": [4, 0], "b.x": [nan, nan]}),
        (0, 5, 8, {"a.x": [4, 0], "b.x": [0, 0]}),
        start=EPOCH,
    )
    found = average_distances(segments, {"a.x": "b.x"}, 2 * SECOND, SECOND)
    assert ((found.times - EPOCH) // SECOND).tolist() == [2, 3, 4, 7, 8]
    assert found.values["distance"] == pytest.approx([1, 2, 3, 4, 4])


@given(
    segments=drawn(names=("a.x", "a.y", "b.x", "b.y"), degree=1, start=EPOCH),
    below=st.sampled_from([0.0, 0.5, 3.0, 40.0]),
    width=st.sampled_from([0.3, 2.0, 10.0]),
    covered=st.booleans(),
)
def test_what_is_asked_below_a_distance_is_all_that_is_below_it(segments, below, width, covered):
    width_us, every_us = round(width * SECOND), SECOND // 10
    every = average_distances(segments, AXES, width_us, every_us, covered=covered)
    found = average_distances(segments, AXES, width_us, every_us, covered=covered, below=below)
    wanted = every.take(every.values["distance"] < below)
    np.testing.assert_array_equal(found.keys, wanted.keys)
    np.testing.assert_array_equal(found.times, wanted.times)
    for each in ("values", "errors"):
        np.testing.assert_array_equal(
            getattr(found, each)["distance"], getattr(wanted, each)["distance"]
        )


def test_average_distances_of_curves_are_refused():
    segments = pieces((0, 0, 4, {"a.x": [0, 1, 1], "b.x": [0, 0, 0]}))
    with pytest.raises(NotSupportedError, match="linear models"):
        average_distances(segments, {"a.x": "b.x"}, SECOND, SECOND)

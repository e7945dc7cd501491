"""Sums and averages over entities at an instant, against each entity by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models.fitting.bounds import NEEDS, Bound
from eddyline.models.fitting.splits import EQUAL
from eddyline.models.segments import Keyed, Layout, keyed, table_of
from eddyline.models.solving.expressions import Range, projected
from eddyline.models.solving.joins import joined
from eddyline.models.solving.text import read_condition, read_expression
from eddyline.models.solving.where import where
from eddyline.models.steps import Total
from eddyline.models.windows.integrals import (
    average_distances,
    changes,
    distance_integral,
    integrals_at,
    sampled,
    totals,
    windowed_integral,
)
from tests.models.pieces import EPOCH, SECOND, drawn, pieces, ranges, value, values_at

NAN = float("nan")
windowed_sum, windowed_average = (
    partial(windowed_integral, is_average=is_) for is_ in (False, True)
)
sums_at, averages_at = (partial(integrals_at, is_average=is_) for is_ in (False, True))
START = pytest.mark.parametrize("start", [0, EPOCH])


def agrees(found, expected, start, name="x"):
    """Compare with ``(lo, hi, function of time)``."""
    assert ranges(found, start) == [(lo, hi) for lo, hi, _ in expected]
    for lo, hi, curve in expected:
        for t in np.linspace(lo, hi, 9)[:-1]:
            assert value(found, name, t, start) == pytest.approx([curve(t)], abs=1e-9)


@START
def test_t12_window_inside_one_segment(start):
    segments = pieces((0, 0, 10, {"x": [0, 0, 3]}), start=start)
    found = windowed_sum(segments, 2 * SECOND)
    agrees(found, [(2, 10, lambda t: 6 * t**2 - 12 * t + 8)], start)
    assert value(found, "x", 3, start) == pytest.approx([26], abs=1e-9)
    assert found.coefs["x"].shape == (1, 4)
    assert found.coefs["x"][0, 3] == 0


@given(segments=drawn(keys=1, most=1, start=EPOCH), width=st.integers(1, 3_000_000))
def test_the_highest_power_goes_where_a_window_lies_in_one_segment(segments, width):
    """A shift leaves the highest coefficient as it is: both terms cancel exactly (Pulse 3.7)."""
    uneven = {"x": segments.coefs["x"] / 3}
    found = windowed_sum(replace(segments, coefs=uneven), width)
    assert not found.coefs["x"][:, -1].any()


@START
def test_t13_window_over_two_segments(start):
    segments = pieces((0, 0, 10, {"x": [2, 1]}), (0, 10, 20, {"x": [17, -0.5]}), start=start)
    expected = [
        (4, 10, lambda t: 4 * t),
        (10, 14, lambda t: -75 + 19 * t - 0.75 * t**2),
        (14, 20, lambda t: 72 - 2 * t),
    ]
    found = windowed_sum(segments, 4 * SECOND)
    agrees(found, expected, start)
    assert value(found, "x", 10, start) == pytest.approx([40], abs=1e-9)
    assert value(found, "x", 14, start) == pytest.approx([44], abs=1e-9)


@START
def test_t13b_window_over_three_segments(start):
    segments = pieces(
        (0, 0, 5, {"x": [1]}), (0, 5, 8, {"x": [0, 1]}), (0, 8, 16, {"x": [3]}), start=start
    )
    found = windowed_sum(segments, 8 * SECOND)
    agrees(
        found, [(8, 13, lambda t: 8.5 + 2 * t), (13, 16, lambda t: -24 + 11 * t - t**2 / 2)], start
    )


def test_t14_averages_are_of_time():
    segments = pieces((0, 0, 11, {"x": [100, 0.5]}))
    found = windowed_average(segments, 10 * SECOND)
    assert value(found, "x", 10) == pytest.approx([102.5], abs=1e-9)
    times = np.concatenate([np.arange(10), np.arange(9.1, 9.95, 0.1)])
    assert np.mean(100 + 0.5 * times) == pytest.approx(103.434211, abs=1e-6)


@START
def test_t15_macd(start):
    price = pieces((0, 0, 100, {"ap": [100, 0.5]}), (0, 100, 200, {"ap": [250, -1]}), start=start)
    short, long = (windowed_average(price, width * SECOND) for width in (10, 60))
    agrees(
        short,
        [
            (10, 100, lambda t: 97.5 + 0.5 * t),
            (100, 110, lambda t: -652.5 + 15.5 * t - 0.075 * t**2),
            (110, 200, lambda t: 255 - t),
        ],
        start,
        "ap",
    )
    agrees(
        long,
        [
            (60, 100, lambda t: 85 + 0.5 * t),
            (100, 160, lambda t: -40 + 3 * t - 0.0125 * t**2),
            (160, 200, lambda t: 280 - t),
        ],
        start,
        "ap",
    )
    names = ["S.ap", "L.ap"]
    crossed = joined(short, long, read_condition("S.ap > L.ap", names), names=("S", "L")).segments
    found = projected(crossed, {"diff": read_expression("S.ap - L.ap", names)})
    assert value(found, "diff", 80, start) == pytest.approx([12.5], abs=1e-9)
    lo, hi = ranges(found, start)[0][0], ranges(found, start)[-1][1]
    assert (lo, hi) == (60, pytest.approx(160 - 20 * 5**0.5, abs=0.6e-6))
    rows = sampled(found, 2 * SECOND)
    assert (rows.times - start).tolist() == [t * SECOND for t in range(60, 115, 2)]
    assert len(rows.times) == 28


def test_a_gap_ends_windows_until_they_are_full_again():
    segments = pieces((0, 0, 5, {"x": [2]}), (0, 6, 12, {"x": [4]}), (1, 0, 3, {"x": [1]}))
    assert ranges(windowed_sum(segments, 2 * SECOND)) == [(2, 5), (8, 12), (2, 3)]
    found = windowed_sum(segments, 2 * SECOND, covered=True)
    at = {0.5: 1, 3: 4, 5.5: 3, 6.5: 1 + 2, 7.5: 6, 12.5: 6, 13.5: 2}
    assert ranges(found)[-1] == (3, 5)
    assert {t: value(found, "x", t, key=0)[0] for t in at} == pytest.approx(at)
    average = windowed_average(segments, 2 * SECOND, covered=True)
    assert ranges(average) == [(2, 5), (6, 7), (8, 12), (2, 3)]
    long = windowed_average(segments, 20 * SECOND, covered=True)
    assert ranges(long) == [(5, 6), (12, 20), (25, 26), (3, 20)]
    assert value(long, "x", 25.5) == pytest.approx([4])


def test_averages_of_what_is_covered_are_all_there_at_ticks():
    segments = pieces((0, 0, 5, {"x": [2]}), (0, 6, 12, {"x": [4]}))
    found = averages_at(segments, 2 * SECOND, SECOND // 2, covered=True)
    rows = dict(zip((found.times / SECOND).tolist(), found.values["x"].tolist(), strict=True))
    assert 0 not in rows
    assert rows[0.5] == rows[5.5] == pytest.approx(2)
    assert rows[6.5] == pytest.approx((2 * 0.5 + 4 * 0.5) / 1)
    assert rows[11.5] == rows[12] == rows[13.5] == pytest.approx(4)
    assert max(rows) == 13.5
    only_full = averages_at(segments, 2 * SECOND, SECOND // 2)
    assert (only_full.times / SECOND).tolist() == [2, 2.5, 3, 3.5, 4, 4.5, 5] + [
        8 + each / 2 for each in range(9)
    ]


def test_gap_longer_than_the_window():
    segments = pieces((0, 0, 3, {"x": [1]}), (0, 10, 13, {"x": [2]}))
    found = windowed_sum(segments, 2 * SECOND, covered=True)
    assert value(found, "x", 4.5) == pytest.approx([0.5])
    assert value(found, "x", 7) == []
    assert value(found, "x", 11) == pytest.approx([2])


def test_errors_of_averages_are_averages_of_errors():
    segments = pieces((0, 0, 5, {"x": [2]}), (0, 5, 12, {"x": [4]}))
    segments = replace(segments, errors={"x": np.array([1.0, 3.0])})
    average = windowed_average(segments, 2 * SECOND)
    assert dict(zip(ranges(average), average.errors["x"], strict=True)) == pytest.approx(
        {(2, 5): 1, (5, 7): 3, (7, 12): 3}
    )
    total = windowed_sum(segments, 2 * SECOND)
    assert total.errors["x"] == pytest.approx([2, 6, 6])


def test_no_digits_are_lost_on_a_long_run():
    n = 200_000
    lo = EPOCH + np.arange(n) * SECOND
    one = pieces((0, 0, 1, {"x": [1e6]}))
    segments = replace(
        one.take(np.zeros(n, int)),
        origin=lo, lo=lo, hi=lo + SECOND,
        coefs={"x": np.where(np.arange(n) < n - 50, 1e9, 0.1)[:, None]},
    )  # fmt: skip
    found = windowed_sum(segments, 10 * SECOND)
    assert found.coefs["x"][-1, 0] == pytest.approx(1.0, rel=1e-14)


def test_nothing_points_and_tombstones():
    segments = pieces((0, 0, 0, {"x": [1]}), (0, 2, 5, None))
    for given_ in (segments, segments.take(np.arange(0))):
        assert len(windowed_sum(given_, SECOND)) == 0
        assert len(averages_at(given_, SECOND, SECOND).times) == 0


def test_segments_without_values_are_gaps():
    segments = pieces(
        (0, 0, 5, {"x": [2, 0]}), (0, 5, 6, {"x": [NAN, NAN]}), (0, 6, 12, {"x": [4, 0]})
    )
    assert ranges(windowed_sum(segments, 2 * SECOND)) == [(2, 5), (8, 12)]
    assert ranges(windowed_average(segments, 2 * SECOND, covered=True)) == [(2, 5), (6, 7), (8, 12)]
    found = averages_at(segments, 2 * SECOND, SECOND // 2, covered=True)
    rows = dict(zip((found.times / SECOND).tolist(), found.values["x"].tolist(), strict=True))
    assert (rows[5.5], rows[6.5], rows[11.5]) == (2, 3, 4)
    assert len(windowed_sum(segments.take(np.array([1])), SECOND)) == 0


@given(
    segments=drawn(("x", "y"), start=EPOCH),
    width=st.sampled_from([0.1, 0.5, 1.7, 6.0]),
    covered=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_an_attribute_without_values_is_as_if_its_segments_were_not_there(
    segments, width, covered, seed
):
    rng = np.random.default_rng(seed)
    segments = replace(
        segments, errors={name: rng.random(len(segments)) for name in segments.coefs}
    )
    missing = {name: rng.random(len(segments)) < 0.4 for name in segments.coefs}
    for name, rows in missing.items():
        segments.coefs[name][rows] = NAN
        segments.errors[name][rows] = 0.0
    width_us, every = round(width * SECOND), SECOND // 3
    for name, rows in missing.items():
        alone = replace(
            segments,
            coefs={name: segments.coefs[name]},
            errors={name: segments.errors[name]},
        ).take(~rows)
        for of in (windowed_sum, windowed_average):
            own, both = (
                of(alone, width_us, covered=covered),
                of(segments, width_us, covered=covered),
            )
            agree(sampled(own, every), sampled(both, every), name)
            if len(own):
                assert np.nanmax(both.errors[name]) >= own.errors[name].max() * (1 - 1e-9)
        for at in (sums_at, averages_at):
            agree(
                at(alone, width_us, every, covered=covered),
                at(segments, width_us, every, covered=covered),
                name,
            )


def agree(own, both, name):
    """Compare the rows that have a value of an attribute."""
    found = {
        (int(key), int(time)): value
        for key, time, value in zip(both.keys, both.times, both.values[name], strict=True)
        if not np.isnan(value)
    }
    rows = zip(own.keys.tolist(), own.times.tolist(), own.values[name], strict=True)
    for key, time, value_ in rows:
        assert found.pop((key, time)) == pytest.approx(value_, rel=1e-9, abs=1e-9)
    assert not found


def numeric(segments, key, at, width):
    """Return integral and covered seconds of the window, by midpoints of a fine grid."""
    total = time = 0.0
    for row in np.flatnonzero(segments.keys == key):
        lo = max(int(segments.lo[row]), at - width)
        hi = min(int(segments.hi[row]), at)
        if lo < hi:
            edges = np.linspace(lo, hi, 1001)
            tau = ((edges[1:] + edges[:-1]) / 2 - segments.origin[row]) / SECOND
            total += np.polyval(segments.coefs["x"][row][::-1], tau).mean() * (hi - lo) / SECOND
            time += (hi - lo) / SECOND
    return total, time


@given(
    segments=drawn(start=EPOCH),
    width=st.sampled_from([0.1, 0.5, 1.7, 6.0]),
    covered=st.booleans(),
)
def test_windows_are_what_numeric_integration_says(segments, width, covered):
    width_us, every = round(width * SECOND), SECOND // 3
    total = windowed_sum(segments, width_us, covered=covered)
    average = windowed_average(segments, width_us, covered=covered)
    ticks = {
        name: {(int(k), int(t)): v for k, t, v in zip(
            found.keys, found.times, found.values["x"], strict=True)}
        for name, found in {
            "sum": sums_at(segments, width_us, every, covered=covered),
            "avg": averages_at(segments, width_us, every, covered=covered),
        }.items()
    }  # fmt: skip
    for key in np.unique(segments.keys):
        own = segments.keys == key
        start, stop = int(segments.lo[own].min()), int(segments.hi[own].max())
        for at in range(-(-start // every) * every, stop + width_us + 2 * every, every):
            expected, time = numeric(segments, key, at, width_us)
            counts = (time > 1e-9) if covered else (time > width - 1e-9)
            t = (at - EPOCH) / SECOND
            close = pytest.approx(expected, rel=1e-5, abs=2e-4)
            assert ((int(key), at) in ticks["sum"]) is counts
            if counts:
                assert ticks["sum"][int(key), at] == close
                assert ticks["avg"][int(key), at] * time == close
            for each in value(total, "x", t, EPOCH, key):
                assert each == close
                assert counts or time == 0
            for each in value(average, "x", t, EPOCH, key):
                assert each * time == close
        seen = total.take(total.keys == key)
        assert (seen.lo[1:] >= seen.hi[:-1]).all()


@given(segments=drawn(names=("x",), gaps=False, keys=2))
def test_a_condition_on_an_average_of_an_average(segments):
    once = windowed_average(segments, SECOND)
    twice = windowed_average(once, SECOND)
    found = where(twice, read_condition("x > 0", ["x"]))
    rows = sampled(found, SECOND // 4)
    assert (rows.values["x"] > -1e-6).all()


# -- sampling -------------------------------------------------------------------------------------


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


# -- totals ---------------------------------------------------------------------------------------


def total(segments, groups=None, *, is_average=False):
    groups = np.zeros(len(segments), np.int64) if groups is None else np.array(groups)
    return totals(segments, groups, is_average=is_average)


@pytest.mark.parametrize("start", [0, EPOCH])
def test_pieces_end_where_a_segment_begins_or_ends(start):
    segments = pieces(
        (0, 0, 10, {"x": [0, 1]}),
        (1, 0, 10, {"x": [5, 0]}),
        (2, 4, 6, {"x": [8, -1]}, 4),
        (2, 12, 13, {"x": [1, 0]}, 12),
        start=start,
        errors=0.25,
    )
    found = total(segments)
    assert ranges(found, start) == [(0, 4), (4, 6), (6, 10), (12, 13)]
    assert found.origin.tolist() == found.lo.tolist()
    assert found.coefs["x"].tolist() == [[5, 1], [17, 0], [11, 1], [1, 0]]
    assert found.errors["x"] == pytest.approx([0.5, 0.75, 0.5, 0.25], rel=1e-12)
    found = total(segments, is_average=True)
    assert value(found, "x", 5, start) == pytest.approx([17 / 3], rel=1e-15)
    assert found.errors["x"] == pytest.approx(0.25, rel=1e-12)
    apart = total(segments, [0, 1, 0, 0])
    assert [*zip(apart.keys.tolist(), ranges(apart, start), strict=True)] == [
        (0, (0, 4)), (0, (4, 6)), (0, (6, 10)), (0, (12, 13)), (1, (0, 10)),
    ]  # fmt: skip


def test_what_has_no_length_or_no_value_is_not_there():
    segments = pieces(
        (0, 0, 4, {"x": [1], "y": [1]}),
        (1, 1, 3, {"x": [2], "y": [math.nan]}),
        (2, 2, 2, {"x": [9], "y": [9]}),
        (3, 1, 3, None),
        (4, 5, 6, {"x": [math.nan], "y": [math.nan]}),
        (5, 7, 8, {"x": [math.nan], "y": [3]}),
    )
    found = total(segments, is_average=True)
    assert ranges(found) == [(0, 1), (1, 3), (3, 4), (7, 8)]
    np.testing.assert_array_equal(found.coefs["x"][:, 0], [1, 1.5, 1, math.nan])
    np.testing.assert_array_equal(found.coefs["y"][:, 0], [1, 1, 1, 3])
    assert found.errors["x"][3] == 0
    for none in (segments.take(np.arange(0)), segments.take(np.array([2, 3, 4]))):
        assert len(total(none)) == 0


def with_errors(segments, seed, names):
    """Return segments of any size, with errors, and some without values."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.integers(-3, 7, len(segments))
    gone = rng.random((len(segments), 2)) < 0.2
    coefs, errors = {}, {}
    for at, name in enumerate(names):
        coefs[name] = segments.coefs[name] * size[:, None] / 3
        coefs[name][gone[:, at]] = np.nan
        errors[name] = rng.choice([0.0, 0.1, 0.3], len(segments)) * size
    return replace(segments, coefs=coefs, errors=errors), rng


@given(
    segments=drawn(("x", "y"), keys=7, start=EPOCH),
    seed=st.integers(0, 2**32),
    is_average=st.booleans(),
)
def test_values_are_those_of_all_entities_within_the_error(segments, seed, is_average):
    segments, rng = with_errors(segments, seed, "xy")
    n = int(segments.keys.max()) + 1
    group_of = rng.integers(0, 3, n)
    found = total(segments, group_of[segments.keys], is_average=is_average)
    assert (found.lo < found.hi).all()
    bounds = np.concatenate([segments.lo, segments.hi, segments.hi - 1])
    times = np.concatenate([bounds, EPOCH + rng.integers(0, 20 * SECOND, 100)])
    for name in "xy":
        each = values_at(segments, times, name)
        far = rng.choice([-1, 1], len(segments)) * segments.errors[name]  # rows as far as may be
        got = values_at(found, times, name)
        for group in range(3):
            own = np.flatnonzero(group_of[segments.keys] == group)
            mine = np.flatnonzero(found.keys == group)
            for at in range(len(times)):
                there = own[~np.isnan(each[at, own])]
                now = mine[~np.isnan(got[at, mine])]
                assert len(now) == (len(there) > 0)
                if len(now):
                    wanted = math.fsum([*each[at, there], *far[there]])
                    wanted /= len(there) if is_average else 1
                    assert abs(got[at, now[0]] - wanted) <= found.errors[name][now[0]]


@given(
    segments=drawn(("x", "y"), keys=6, start=EPOCH),
    seed=st.integers(0, 2**32),
    is_average=st.booleans(),
    by=st.sampled_from([(), ("m",)]),
)
def test_nothing_depends_on_the_order_or_on_parts(segments, seed, is_average, by):
    segments, rng = with_errors(segments, seed, "xy")
    n = int(segments.keys.max()) + 1
    names = pa.table({"k": pa.array(rng.permutation(n)), "m": pa.array(rng.integers(0, 2, n))})
    step = Total(by, is_average)
    wanted = table_of(step.run(Keyed(segments, names)), None)
    part = rng.integers(0, 3, len(segments))
    mixed = [segments.take(rng.permutation(np.flatnonzero(part == each))) for each in range(3)]
    tables = [table_of(step.partial(Keyed(each, names)), None) for each in mixed]
    together = step.run(keyed(pa.concat_tables(tables), Layout(("k", "m"), ("x", "y"))))
    found = table_of(together, None)
    order = [(each, "ascending") for each in (*by, "lo")]
    for name in wanted.column_names:
        one, other = (each.sort_by(order).column(name).to_pylist() for each in (found, wanted))
        np.testing.assert_equal(one, other)


def test_how_near_entities_have_to_be():
    share, near = Bound(0.01, is_relative=True), Bound(0.5)
    positive, any_sign = {"x": Range(0.0, 5.0, 1.0)}, {"x": Range(-1.0, 5.0, 1.0)}
    average, whole = Total((), True), Total((), False)

    def back(step, bound, known):
        return step.back({"x": bound}, known, split=EQUAL)

    assert back(average, near, {}) == {"x": near}
    assert back(average, share, positive) == back(whole, share, positive) == {"x": share}
    assert average.ranges(any_sign) == any_sign
    assert whole.ranges(positive)["x"][:2] == (0.0, math.inf)
    assert whole.ranges({"x": Range(-3.0, -1.0)})["x"][:2] == (-math.inf, -1.0)
    assert whole.ranges(any_sign) == {}
    for known, helps in (({}, True), (any_sign, False)):
        for step in (average, whole):
            with pytest.raises(OptionError) as error:
                back(step, share, known)
            assert (NEEDS in error.value.facts) == helps
    with pytest.raises(OptionError, match="how many there are is not known") as error:
        back(whole, near, positive)
    assert NEEDS not in error.value.facts

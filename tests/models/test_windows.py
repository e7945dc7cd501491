from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.solving.expressions import projected
from eddyline.models.solving.joins import joined
from eddyline.models.solving.text import read_condition, read_expression
from eddyline.models.solving.where import where
from eddyline.models.windows.integrals import (
    averages_at,
    sampled,
    sums_at,
    windowed_average,
    windowed_sum,
)
from tests.models.pieces import EPOCH, SECOND, drawn, pieces, ranges, value

NAN = float("nan")
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

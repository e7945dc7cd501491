"""Positions as metres from the centre of the earth: distances, areas, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.fit import fit
from eddyline.models.solving import earth
from eddyline.models.solving.exact import rows_hold
from eddyline.models.solving.expressions import projected
from eddyline.models.solving.text import read_attributes, read_condition
from eddyline.models.solving.where import where
from eddyline.models.windows.integrals import sampled
from tests.examples import examples
from tests.oracles.geodesics import haversine, vincenty

NAMES = earth.coordinates("track")
BOTH = [f"{side}.{name}" for side in ("left", "right") for name in NAMES]
SECOND = 1_000_000
latitudes, longitudes = st.floats(-90, 90), st.floats(-180, 180)


def values_of(lat, lon, name="track"):
    """Return the attributes of positions."""
    found = np.array([earth.earth_centred(*each) for each in zip(lat, lon, strict=True)])
    return dict(zip(earth.coordinates(name), found.T, strict=True))


def holds(text, **of):
    """Return for which positions a condition holds."""
    values = {name: each for place, own in of.items()
              for name, each in values_of(*own, place.replace("_", ".")).items()}  # fmt: skip
    n = len(next(iter(values.values())))
    return rows_hold(read_condition(text, [*values]), values, n)


def test_known_points_have_their_known_coordinates():
    assert earth.earth_centred(0, 0) == (6_378_137.0, 0.0, 0.0)
    assert earth.earth_centred(90, 0) == pytest.approx((0, 0, 6_356_752.314245), abs=1e-6)
    assert earth.earth_centred(0, 180) == pytest.approx((-6_378_137.0, 0, 0), abs=1e-6)
    # The Space Needle, by another program.
    found = earth.earth_centred(47.6205, -122.3493)
    assert math.hypot(*found) == pytest.approx(6_366_536, abs=100)


@examples(300)
@given(lat=latitudes, lon=longitudes, heading=st.floats(0, 360), far=st.floats(1, 20_000))
def test_distances_are_those_of_the_ellipsoid(lat, lon, heading, far):
    north = far * math.cos(math.radians(heading)) / 111_132
    east = far * math.sin(math.radians(heading)) / 111_320
    other_lat = lat + north if abs(lat + north) <= 90 else lat - north
    other_lon = (lon + east / max(math.cos(math.radians(lat)), 0.01) + 180) % 360 - 180
    one, other = earth.earth_centred(lat, lon), earth.earth_centred(other_lat, other_lon)
    wanted = vincenty(lat, lon, other_lat, other_lon)
    assert math.dist(one, other) == pytest.approx(wanted, rel=1e-6, abs=1e-3)
    assert math.dist(one, other) == pytest.approx(
        haversine(lat, lon, other_lat, other_lon), rel=6e-3, abs=1e-3
    )


OPS = {
    "<": np.less, "<=": np.less_equal, "=": np.equal, "<>": np.not_equal, ">=": np.greater_equal,
    ">": np.greater,
}  # fmt: skip


@examples(300)
@given(
    places=st.lists(st.tuples(latitudes, longitudes), min_size=1, max_size=20),
    limit=st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])),
    op=st.sampled_from([each for each in OPS if each not in {"=", "<>"}]),
    height=st.floats(-100, 100),
)
def test_latitudes_and_longitudes_are_compared_as_degrees(places, limit, op, height):
    lat, lon = map(np.array, zip(*places, strict=True))
    # Chords are below the surface, and errors beside it.
    up = np.array(
        [
            np.cos(np.radians(lat)) * np.cos(np.radians(lon)),
            np.cos(np.radians(lat)) * np.sin(np.radians(lon)),
            np.sin(np.radians(lat)),
        ]
    )
    values = {name: each + height * up[at]
              for at, (name, each) in enumerate(values_of(lat, lon).items())}  # fmt: skip
    for name, degrees, most in (("lat", lat, 90), ("lon", lon, 180)):
        text = f"{name}(track) {op} {limit * most!r}"
        found = rows_hold(read_condition(text, NAMES), values, len(lat))
        sure = np.abs(degrees - limit * most) > 1e-9
        if name == "lon":  # no longitude at a pole, and 180 degrees are -180 degrees
            sure &= (np.abs(lat) < 89.99) & (180 - np.abs(lon) > 1e-9) & (np.abs(lon) > 1e-9)
        assert (found == OPS[op](degrees, limit * most))[sure].all()
        opposite = rows_hold(read_condition(f"NOT {text}", NAMES), values, len(lat))
        assert (found != opposite).all()


def test_equal_angles_hold_on_the_meridian_and_not_on_the_one_behind_the_earth():
    lat, lon = np.zeros(3), np.array([0.0, 180.0, 90.0])
    assert holds("lon(track) = 0", track=(lat, lon)).tolist() == [True, False, False]
    assert holds("lon(track) <> 0", track=(lat, lon)).tolist() == [False, True, True]
    lat = np.array([0.0, 10.0, -10.0])
    assert holds("lat(track) = 0", track=(lat, lon)).tolist() == [True, False, False]


def test_no_position_is_beyond_the_antimeridian_or_a_pole():
    # Fitted positions have no rounding of sin(pi) in them: y is 0 there.
    values = {"track_x": np.array([-6.4e6, 0.0, 0.0]), "track_y": np.zeros(3)}
    values["track_z"] = np.array([0.0, 6.3e6, -6.3e6])
    limits = ("lon(track) <= 180", "lon(track) >= -180", "lat(track) <= 90", "lat(track) >= -90")
    for text in limits:
        for asked, is_true in ((text, True), (f"NOT {text}", False)):
            found = rows_hold(read_condition(asked, NAMES), values, 3)
            assert (found == is_true).all(), asked


def test_180_and_minus_180_degrees_are_one_meridian():
    lon = np.array([180.0, -180.0, 179.9, -179.9, 0.0])
    track = np.array([0.0, 60.0, 0.0, -18.0, 0.0]), lon
    is_on = np.abs(lon) == 180
    for text in ("= 180", "= -180", ">= 180", "<= -180"):
        assert (holds(f"lon(track) {text}", track=track) == is_on).all(), text
        assert (holds(f"NOT lon(track) {text}", track=track) != is_on).all(), text
    for text in ("<> 180", "<> -180", "< 180", "> -180"):
        assert (holds(f"lon(track) {text}", track=track) != is_on).all(), text
    assert holds("lon(track) > 179.95", track=track).tolist() == is_on.tolist()
    assert not holds("lon(track) < -179.95", track=track).any()
    # A pole is on no meridian, and the meridian behind the earth is another one.
    poles = np.array([90.0, -90.0, 0.0]), np.array([180.0, -180.0, 0.0])
    assert not holds("lon(track) = 180", track=poles).any()


def test_areas_may_lie_across_the_antimeridian():
    lat, lon = np.zeros(4), np.array([179.0, -179.0, 0.0, 169.0])
    text = "lat(track) BETWEEN -1 AND 1 AND (lon(track) > 170 OR lon(track) < -170)"
    assert holds(text, track=(lat, lon)).tolist() == [True, True, False, False]
    assert holds("170 < lon(track) <= 179.5", track=(lat, lon)).tolist() == [
        True, False, False, False,
    ]  # fmt: skip


def test_distances_are_of_two_positions_or_of_a_place():
    left, right = (np.array([0.0]), np.array([179.999])), (np.array([0.0]), np.array([-179.999]))
    far = 0.002 * 111_319.49
    for op, limit in (("<", far + 0.01), (">", far - 0.01)):
        text = f"distance(left.track, right.track) {op} {limit}"
        assert holds(text, left_track=left, right_track=right).all()
        assert holds(f"distance(track, 0, 179.999) {op} {limit}", track=right).all()
        assert holds(f"{limit} {'>' if op == '<' else '<'} distance(track, 0, 179.999)",
                     track=right).all()  # fmt: skip
    assert holds("distance(track, 0, 0) > -1", track=left).all()
    assert not holds("distance(track, 0, 179.999) < -1", track=left).any()
    assert holds("distance(track, 0, 179.999) < distance(track, 1, 1)", track=right).all()


def test_east_and_north_are_metres_on_the_plane_at_a_place():
    track = np.array([47.7, 47.6]), np.array([-122.3, -122.2])
    wanted = {"north": (11_119, 0), "east": (0, 7_518)}
    for name, metres in wanted.items():
        for place, near in enumerate(metres):
            text = f"{name}(track, 47.6, -122.3) BETWEEN {near - 10} AND {near + 10}"
            assert holds(text, track=track)[place], text


REFUSED = [
    ("track > 3", QueryError, "track is a position; write distance"),
    ("speed(v) > 3", QueryError, "v is no position; unknown position"),
    ("lat(track) + 1 > 3", NotSupportedError, "compare it with a number"),
    ("lat(track) > lon(track)", NotSupportedError, "compare it with a number"),
    ("lat(track) > 91", QueryError, "lat is from -90 to 90 degrees"),
    ("lon(track) < 190", QueryError, "across the antimeridian write"),
    ("distance(track, 47) < 3", QueryError, "47 is no position"),
    ("distance(track, 147, 3) < 3", QueryError, "lat is from -90 to 90"),
    ("distance(track) < 3", QueryError, "takes 2 or 3"),
    ("speed(track, track) < 3", QueryError, "takes 1, got 2"),
    ("north(track, v, 3) < 3", NotSupportedError, "no constant"),
]


@pytest.mark.parametrize(("text", "kind", "said"), REFUSED)
def test_what_no_position_says_is_refused_at_its_place(text, kind, said):
    with pytest.raises(kind, match=said) as error:
        read_condition(text, [*NAMES, "v"])
    assert error.value.facts["line"] == 1


def test_a_position_without_one_is_told_how_to_fit_it():
    with pytest.raises(QueryError, match=r"fit one: track=\('lat', 'lon'\)"):
        read_condition("speed(track) > 3", ["x", "y"])


def test_bounds_of_positions_hold_in_any_direction():
    found = earth.of_track({"track": Bound(30.0), "v": Bound(2.0)}, [*NAMES, "v"])
    assert math.hypot(*(found[each].value for each in NAMES)) == pytest.approx(30)
    assert found["v"] == Bound(2.0)
    with pytest.raises(OptionError, match="is in its unit"):
        earth.of_track({"track": Bound(0.1, is_relative=True)}, NAMES)


def test_results_have_one_column_of_each_name():
    assert [each.name for group in earth.outputs([*NAMES, "v"]).values() for each in group] == [
        "lat", "lon",
    ]  # fmt: skip
    assert not earth.outputs(["x_x", "x_y", "x_z", "v"])
    with pytest.raises(OptionError, match="two columns 'lat'"):
        earth.outputs(["LAT", *NAMES])


def voyage(lat, lon, heading, speed, n=60, every=60):
    """Return positions of a ship that holds its course on the sphere, and times (s)."""
    at = np.radians([lat, lon])
    start = np.array([np.cos(at[0]) * np.cos(at[1]), np.cos(at[0]) * np.sin(at[1]), np.sin(at[0])])
    east = np.array([-np.sin(at[1]), np.cos(at[1]), 0.0])
    ahead = np.cos(np.radians(heading)) * np.cross(start, east)
    ahead += np.sin(np.radians(heading)) * east
    seconds = np.arange(n) * every
    angle = seconds * speed / 6_371_008.8
    found = np.cos(angle)[:, None] * start + np.sin(angle)[:, None] * ahead
    degrees = np.degrees([np.arcsin(found[:, 2]), np.arctan2(found[:, 1], found[:, 0])])
    return *degrees, seconds


VOYAGES = {
    "the antimeridian": (-18.0, 179.95, 90.0),
    "the north pole": (89.9, 10.0, 0.0),
    "the south pole": (-89.95, -170.0, 180.0),
    "the equator": (0.02, -122.0, 180.0),
    "high latitudes": (82.0, 30.0, 65.0),
}


@pytest.mark.parametrize("name", VOYAGES)
def test_positions_and_speeds_are_right_everywhere(name):
    lat, lon, seconds = voyage(*VOYAGES[name], speed=5.5)
    values = values_of(lat, lon)
    bounds = earth.of_track({"track": Bound(20.0)}, NAMES)
    keys = np.zeros(len(lat), np.int64)
    segments, _ = fit(keys, seconds * SECOND, values, bounds, FitOptions(degree=1))
    assert len(segments) == 1
    found = sampled(segments, 60 * SECOND)
    apart = np.array([found.values[each] - values[each][: len(found.times)] for each in NAMES])
    assert np.sqrt((apart**2).sum(axis=0)).max() <= 20.0
    speed = projected(segments, read_attributes("speed", "speed(track)", NAMES))
    value = math.hypot(*(float(each[0, 0]) for each in speed.coefs.values()))
    assert value == pytest.approx(5.5, rel=0.006)
    assert len(where(segments, read_condition("5.4 < speed(track) < 5.6", NAMES))) == 1

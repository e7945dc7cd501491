"""Positions in degrees: results in degrees, distances and speeds in metres, everywhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.solving import earth
from tests.oracles.geodesics import vincenty
from tests.spark.models.tracks import SECOND, ended, stream_of, write_files

N_SHIPS, N_ROWS, EVERY = 8, 60, 20
BOUND = 10.0
FAR = 99
"""A ship whose only row is far behind: it ends all models."""


def at(ship, seconds):
    """Return where a ship is: in the Fiji islands, on straight lines over the antimeridian."""
    lat = -18.0 + 0.002 * ship + (-1) ** ship * 1e-5 * seconds
    lon = 179.985 + 0.001 * ship + 2e-5 * seconds
    return lat, (lon + 180) % 360 - 180


def rows():
    ships = np.repeat(np.arange(N_SHIPS), N_ROWS)
    seconds = np.tile(np.arange(N_ROWS) * EVERY, N_SHIPS)
    lat, lon = at(ships, seconds)
    lon = np.where(ships == 3, lon % 360, lon)  # one counts degrees from 0 to 360
    order = np.lexsort((ships, seconds))
    ships, seconds, lat, lon = (each[order] for each in (ships, seconds, lat, lon))
    # Rows without a position say nothing, as if they were not there.
    nowhere = {"ship": [0, 1, 2, 4, 5, 6], "s": [25] * 6}
    return pa.table(
        {
            "ship": np.concatenate([ships, nowhere["ship"], [FAR]]),
            "ts": pa.array(
                (np.concatenate([seconds, nowhere["s"], [1_000_000]]) + 1_700_000_040) * SECOND
            ).cast(pa.timestamp("us", "UTC")),
            "LAT": pa.array([*lat, None, 91.0, float("nan"), 5.0, 179.5, 5.0, 0.0], pa.float64()),
            "LON": pa.array([*lon, 3.0, 181.0, 7.0, float("inf"), 3.0, -400.0, 0.0], pa.float64()),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    table = rows().sort_by("ts")
    return write_files(folder, (table.slice(number * 250, 250) for number in range(2)))


def fitted(df, **more):
    return el.models.fit(
        df, key="ship", time="ts", track=("LAT", "LON"), within={"track": BOUND},
        max_gap="5 minutes", prefix_rows=16, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def segments(spark, folder):
    return fitted(spark.read.parquet(str(folder))).persist()


def seconds_of(times):
    return np.array([each.timestamp() for each in times]) - 1_700_000_040


def test_samples_are_where_ships_are_with_their_speed(segments):
    found = segments.select("track", speed="speed(track)").sample("1 minute").toPandas()
    found = found[found.ship != FAR]
    assert [*found.columns] == [
        "ship", "time", "lat", "err_lat", "lon", "err_lon", "speed", "err_speed",
    ]  # fmt: skip
    assert len(found) == N_SHIPS * 20
    for row, seconds in zip(found.itertuples(), seconds_of(found.time), strict=True):
        lat, lon = at(row.ship, seconds)
        off = vincenty(lat, lon, row.lat, row.lon)
        assert off <= BOUND + 0.01
        assert off <= np.hypot(row.err_lat * 110_600, row.err_lon * 106_000) * 1.01 + 0.01
        metres = vincenty(lat, lon, *at(row.ship, seconds + 100))
        assert row.speed == pytest.approx(metres / 100, rel=0.01)
    assert np.ptp(found.lon) > 359


@pytest.mark.large
def test_pairs_are_those_of_the_ellipsoid(segments):
    near = segments.near(500)
    found = near.select(apart="distance(left_track, right_track)").sample("1 minute").toPandas()
    told = {
        (row.left_ship, row.right_ship, seconds): row.apart
        for row, seconds in zip(found.itertuples(), seconds_of(found.time), strict=True)
    }
    n_near = 0
    for one in range(N_SHIPS):
        for other in range(one + 1, N_SHIPS):
            for seconds in range(0, N_ROWS * EVERY, 60):
                apart = vincenty(*at(one, seconds), *at(other, seconds))
                n_near += apart < 500
                if apart < 500 - 2 * BOUND:
                    assert told[one, other, seconds] == pytest.approx(apart, abs=2 * BOUND)
                elif apart > 500 + 2 * BOUND:
                    assert (one, other, seconds) not in told
    assert n_near > 100
    assert "pairs" in repr(near)


AREA = "(lon(track) > 179.99 OR lon(track) < -179.995) AND lat(track) BETWEEN -18.001 AND -17.99"
ASKED = {
    "area": lambda s: s.where(AREA).changes(),
    "place": lambda s: s.where("distance(track, -18, 180) < 600 AND speed(track) > 2").changes(),
    "pairs": lambda s: s.near(500).changes(),
    "average": lambda s: s.avg("track", window="4 minutes", slide="2 minutes"),
    "alarms": lambda s: s.alarms(
        el.AlarmSet(
            {f"near_{m}": f"distance(track, -18, 180) < {m}" for m in (200, 400)} | {"in": AREA}
        )
    ),
}


def shown(df):
    """Return rows but those of the ship that ends all models, numbers rounded."""
    found = [[round(v, 7) if isinstance(v, float) else v for v in row] for row in df.collect()
             if FAR not in row]  # fmt: skip
    return sorted(map(tuple, found))


@pytest.mark.large
def test_areas_are_entered_and_left_where_rows_are(segments):
    for row in ASKED["area"](segments).collect():
        for instant in (row.since, row.until):
            (seconds,) = seconds_of([instant])
            if 0 < seconds < (N_ROWS - 1) * EVERY:
                lat, lon = at(row.ship, seconds)
                edges = [abs(lat + 18.001), abs(lat + 17.99), abs(lon - 179.99), abs(lon + 179.995)]
                assert min(edges) * 111_000 < BOUND * 1.1
    assert ASKED["area"](segments).where("lon > 0").count() > 2
    assert ASKED["place"](segments).count() > 2


@pytest.mark.large
@pytest.mark.parametrize("name", ASKED)
def test_a_stream_gives_what_a_batch_gives(spark, folder, tmp_path, segments, name):
    run = ended(ASKED[name](fitted(stream_of(spark, folder, 2), name="fleet")), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out"))
    wanted = ASKED[name](segments)
    assert found.columns == wanted.columns
    assert shown(found) == shown(wanted) != []
    words = " ".join(run.explain().split())
    assert "track of (LAT, LON) within 10" in words
    assert "2 rows with a latitude or longitude that is out of range" in words


@pytest.mark.large
def test_early_results_have_degrees(spark, folder, tmp_path, segments):
    query = fitted(stream_of(spark, folder, 1), name="fleet", results="early")
    ended(ASKED["area"](query), tmp_path)
    latest = el.models.latest(spark.read.parquet(str(tmp_path / "out")))
    wanted = ASKED["area"](segments)
    assert shown(latest.drop("validated")) == shown(wanted) != []


@pytest.mark.large
def test_segments_that_are_written_are_positions_when_they_are_read(spark, segments, tmp_path):
    segments.write.parquet(str(tmp_path / "kept"))
    kept = el.models.read(str(tmp_path / "kept"))
    assert shown(ASKED["place"](kept)) == shown(ASKED["place"](segments)) != []


@pytest.mark.large
def test_model_in_sql_says_the_same(spark, folder, segments):
    engine = el.Engine(spark)
    engine.table("fleet", spark.read.parquet(str(folder)))
    model = (
        f"MODEL TRACK (LAT, LON) WITHIN {BOUND} BY ship AT ts MAX GAP 5 MINUTES "
        "WITH (prefix_rows = 16)"
    )
    found = engine.query(f"SELECT ship, track FROM fleet {model} WHERE {AREA} CHANGES")
    assert shown(found.to_df()) == shown(ASKED["area"](segments))
    found = engine.query(
        f"SELECT ship, track, speed(track) AS speed FROM fleet {model} WHERE ship < 2 "
        "SAMPLE EVERY 1 MINUTE"
    )
    wanted = segments.where("ship < 2").select("track", speed="speed(track)").sample("1 minute")
    assert shown(found.to_df()) == shown(wanted)
    found = engine.query(
        f"SELECT a.ship AS one, b.ship AS other, distance(a.track, b.track) AS apart "
        f"FROM fleet {model} AS a JOIN fleet {model} AS b ON a.ship < b.ship "
        f"WHERE distance(a.track, b.track) < 500 SAMPLE EVERY 1 MINUTE"
    )
    wanted = segments.near(500).select(apart="distance(left_track, right_track)")
    wanted = {row[:3] for row in shown(wanted.sample("1 minute"))}
    # The columns of times stand before the first attribute.
    assert {row[:3] for row in shown(found.to_df())} == wanted != set()
    for text, said in {
        "SELECT ship, speed(track) AS s FROM fleet {}": "no polynomial, and segments are",
        "SELECT ship, lat(track) AS a FROM fleet {} CHANGES": "compare it with a number",
        "SELECT ship, track AS place FROM fleet {} CHANGES": "ends in track, such as place_track",
    }.items():
        with pytest.raises((QueryError, NotSupportedError), match=said):
            engine.query(text.format(model))
    with pytest.raises(QueryError, match="columns of latitude and longitude"):
        engine.query("SELECT ship FROM fleet MODEL TRACK (LAT) WITHIN 3 BY ship AT ts")
    with pytest.raises(OptionError, match="is in its unit"):
        engine.query(
            "SELECT ship, track FROM fleet MODEL TRACK (LAT, LON) WITHIN 3 % BY ship AT ts"
        )


PLACES = [(-18.0, 179.5), (60.0, 180.0), (60.0, -180.0), (-90.0, 20.0), (10.0, 90.0), (0.0, 360.0)]
NO_PLACES = [(None, 3.0), (3.0, None), (91.0, 3.0), (3.0, 181.0), (float("nan"), 3.0)]
OFF_EARTH = [(179.5, -18.0), (-18.0, 1e6), (-90.5, 3.0), (3.0, -181.0)]


def test_degrees_become_metres_without_the_rounding_of_pi(spark):
    df = spark.createDataFrame([*PLACES, *NO_PLACES, *OFF_EARTH], "la double, lo double")
    found = [tuple(row) for row in df.selectExpr(*earth.columns_of("la", "lo").values()).collect()]
    for (lat, lon), metres in zip(PLACES, found, strict=False):
        assert metres == pytest.approx(earth.earth_centred(lat, lon), abs=1e-6), (lat, lon)
        assert [each == 0 for each in metres] == [
            abs(lat) == 90 or lon == 90, abs(lat) == 90 or lon in {180, -180, 360}, lat == 0
        ]  # fmt: skip
    assert set(found[len(PLACES) : -len(OFF_EARTH)]) == {(None, None, None)}
    assert all(np.isnan(metres).all() for metres in found[-len(OFF_EARTH) :])


@pytest.mark.large
def test_ships_on_the_antimeridian_are_on_it(spark):
    df = spark.range(120).selectExpr(
        "id % 2 AS ship", "timestamp_seconds(1.7e9 + 10 * id) AS ts",
        "-18 + 0.00025 * id AS LAT", "IF(id % 2 = 0, 180D, -180D) AS LON",
    )  # fmt: skip
    segments = fitted(df)

    def ranges(of):
        return sorted(of.changes().select("ship", "since", "until").collect())

    whole = ranges(segments)
    assert {each.ship for each in whole} == {0, 1}
    for limit in (180, -180):
        assert ranges(segments.where(f"lon(track) = {limit}")) == whole
        assert segments.where(f"lon(track) <> {limit}").changes().count() == 0


@pytest.mark.large
def test_what_is_refused_of_positions_says_what_to_write(spark):
    x, y, z = earth.earth_centred(0.0, 180.0)
    df = spark.sql(
        f"SELECT 1 AS ship, timestamp_seconds(1.7e9) AS ts, {x}D AS x, {y}D AS y, {z}D AS z"
    )
    asked = {"key": "ship", "time": "ts", "horizon": "1 minute"}
    with pytest.raises(NotSupportedError, match=r"declare has no track.*'track_x'"):
        el.models.declare(df, model={"track": "x"}, track=("x", "y"), **asked)
    model = {"track_x": "x", "track_y": "y - 4 * t", "track_z": "z"}
    moving = el.models.declare(df, model=model, **asked)
    found = moving.where("speed(track) > 3 AND lon(track) < 0").sample("10 seconds").toPandas()
    assert [*found.columns] == ["ship", "time", "lat", "err_lat", "lon", "err_lon"]
    assert found.lon.between(-180, -179.99).all()
    assert len(found) > 3
    engine = el.Engine(spark)
    engine.table("moving", moving.to_df())
    averages = engine.query(
        "SELECT ship, avg(track_x) AS track_x, avg(track_y) AS track_y, avg(track_z) AS track_z "
        "FROM moving MODEL SEGMENTS [RANGE 20 SECONDS SLIDE 10 SECONDS]"
    )
    assert averages.to_df().columns == ["ship", "time", "lat", "err_lat", "lon", "err_lon"]


REFUSED = [
    ({"track": "LAT"}, OptionError, r"track is the columns of latitude and longitude"),
    ({"track": ("LAT", "LAT")}, OptionError, r"track is the columns of latitude and longitude"),
    ({"track": ("LAT", "nope")}, QueryError, "unknown column 'nope'"),
    ({"track": ("LAT", "ship_name")}, QueryError, "give degrees, a number"),
    (
        {"key": "lat", "track": ("la", "lo")},
        OptionError,
        "key 'lat' has the name of a column of positions",
    ),
    ({"within": {"track": "1 %"}}, OptionError, "is in its unit"),
    ({"within": {"track": 3.0, "LAT": 2.0}}, OptionError, "two columns 'lat'"),
]


@pytest.mark.parametrize(("more", "kind", "said"), REFUSED)
def test_what_is_no_track_is_refused(spark, more, kind, said):
    df = spark.sql(
        "SELECT 1 AS ship, 'a' AS ship_name, current_timestamp() AS ts, 1D AS LAT, 2D AS LON"
    )
    if "key" in more:
        df = df.selectExpr("ship AS lat", "ts", "LAT AS la", "LON AS lo")
    asked = {"key": "ship", "time": "ts", "track": ("LAT", "LON"), "within": 10.0, **more}
    with pytest.raises(kind, match=said):
        el.models.fit(df, **asked)


def test_exact_rows_are_asked_by_their_own_columns(spark, folder, segments):
    unmade = fitted(spark.read.parquet(str(folder)))
    for each in (segments, unmade):
        with pytest.raises(NotSupportedError, match="write conditions on their latitude"):
            each.where("lat(track) > -18").exact()
        assert each.where("ship = 3").exact().count() == N_ROWS


@pytest.mark.large
def test_bounds_of_results_become_those_of_positions(spark, folder):
    df = spark.read.parquet(str(folder))
    free = el.models.fit(df, key="ship", time="ts", track=("LAT", "LON"), max_gap="5 minutes")
    found = free.within({"track": 6.0}).sample("1 minute").toPandas()
    assert np.hypot(found.err_lat, found.err_lon).max() * 111_000 < 6.0 * 1.5
    apart = free.near(500).select(apart="distance(left_track, right_track)")
    assert apart.within({"apart": 6.0}).sample("1 minute").toPandas().err_apart.max() <= 6.0
    with pytest.raises(OptionError):
        free.select(speed="speed(track)").within({"speed": 0.1})

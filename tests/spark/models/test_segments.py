"""Segments of DataFrames against the rows that they stand for."""

from __future__ import annotations

import datetime as dt
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.fit import fit
from tests.spark.models.walks import START, WITHIN, Curves, before, walks


@pytest.fixture(scope="module")
def rows():
    return walks()


@pytest.fixture(scope="module")
def df(spark, rows):
    return spark.createDataFrame(
        rows, "fleet string, ship int, ts timestamp_ntz, x double, y double"
    )


@pytest.fixture(scope="module")
def segments(df):
    found = el.models.fit(
        df, key=["ship"], time="ts", within=WITHIN, max_gap="2 minutes", degree=1
    ).persist()
    yield found
    found.to_df().unpersist()


@pytest.fixture(scope="module")
def pieces(segments):
    return segments.to_df().toPandas()


@pytest.fixture(scope="module")
def curves(pieces):
    return Curves(pieces)


def test_no_row_is_farther_from_its_segment_than_the_bound_and_its_error(rows, pieces, curves):
    n_checked = 0
    for ship, own in rows.groupby("ship"):
        for name in "xy":
            known = own[own[name].notna()]
            bound = np.full(len(known), 0.5) if name == "x" else 0.02 * known.y.abs().to_numpy()
            # Of an instant's values that no polynomial is near enough to, the greatest counts.
            greatest = known.groupby("ts")[name].transform("max").to_numpy()
            off = np.abs(curves(ship, known.ts, name) - known[name].to_numpy())
            kept = (off <= bound * (1 + 1e-12)) | (known[name].to_numpy() < greatest)
            assert kept.all()
            certified = curves(ship, known.ts, name, "err") * (1 + 1e-9) + 1e-12
            assert (off <= certified)[known[name].to_numpy() == greatest].all()
            n_checked += len(known)
    assert n_checked > 4_500
    assert len(pieces) < len(rows) / 2


def test_segments_are_those_of_the_arrays(rows, pieces):
    ordered = rows.sort_values(["ship", "ts"], kind="stable")
    wanted, _ = fit(
        ordered.ship.to_numpy(np.int64),
        ordered.ts.to_numpy().astype("datetime64[us]").astype(np.int64),
        {name: ordered[name].to_numpy() for name in WITHIN},
        {"x": Bound(0.5), "y": Bound(0.02, is_relative=True)},
        FitOptions(degree=1, max_gap_us=120_000_000),
    )
    found = pieces.sort_values(["ship", "lo"])
    assert found.ship.tolist() == wanted.keys.tolist()
    assert found.lo.to_numpy().astype("datetime64[us]").astype(np.int64).tolist() == (
        wanted.lo.tolist()
    )
    np.testing.assert_array_equal(np.stack(found.coef_y), wanted.coefs["y"])


def test_where_is_true_exactly_on_the_ranges_that_it_returns(segments, curves):
    ranges = segments.where("x > 21 AND NOT (y BETWEEN 95 AND 101)").changes().toPandas()
    rng = np.random.default_rng(2)
    seen = 0
    for ship in range(6):
        times = pd.Timestamp(START) + pd.to_timedelta(rng.uniform(0, 1_200, 500), unit="s")
        x, y = curves(ship, times, "x"), curves(ship, times, "y")
        own = ranges[ranges.ship == ship]
        inside = (own.since.to_numpy() <= times.to_numpy()[:, None]) & (
            times.to_numpy()[:, None] < own.until.to_numpy()
        )
        wanted = (x > 21) & ~((y >= 95) & (y <= 101)) & ~np.isnan(y)
        assert inside.sum(axis=1).tolist() == wanted.astype(int).tolist()
        seen += wanted.sum()
    assert 100 < seen < 2_500


@pytest.mark.large
def test_conditions_on_keys_leave_entities_out_before_anything_is_solved(segments):
    found = segments.where("ship IN (1, 2) AND x > 20 AND SHIP <> 1")
    assert [row.ship for row in found.to_df().select("ship").distinct().collect()] == [2]
    whole = segments.where("ship = 2").where("x > 20").to_df()
    assert found.to_df().exceptAll(whole).isEmpty()


@pytest.mark.parametrize("covered", [False, True])
def test_averages_are_the_time_weighted_ones(segments, curves, covered):
    found = segments.avg("y", window="30 seconds", slide="10 seconds", covered=covered).toPandas()
    assert len(found) > 100
    for row in found.itertuples():
        values = curves(row.ship, before(row.time, 30, 600), "y")
        assert covered or not np.isnan(values).any()
        assert row.y == pytest.approx(np.nanmean(values), abs=0.05)
        assert 0 < row.err_y <= 0.02 * 160


def test_extremes_of_a_window(segments, curves):
    found = segments.max("y", window="20 seconds", slide="15 seconds").toPandas()
    assert len(found) > 100
    for row in found.itertuples():
        instants = before(row.time, 20, 2_000).append(pd.DatetimeIndex([row.time]))
        values = curves(row.ship, instants, "y")
        assert not (values > row.y + 1e-9).any()
        assert np.nanmax(values) == pytest.approx(row.y, abs=0.1)


@pytest.mark.large
def test_the_least_of_entities_at_an_instant(df):
    segments = el.models.fit(df, key=["fleet", "ship"], time="ts", within={"y": 1.0})
    curves = Curves(segments.to_df().toPandas())
    times = pd.date_range(START + dt.timedelta(minutes=2), periods=8, freq="1min")
    values = {ship: curves(ship, times, "y") for ship in range(6)}
    fleets = {None: [0], "f0": [2, 4], "f1": [1, 3, 5]}
    for by, groups in (([], {None: range(6)}), (["fleet"], fleets)):
        found = segments.min("y", by=by, slide="1 minute").toPandas()
        for group, ships in groups.items():
            own = found if not by else found[found.fleet.fillna("") == (group or "")]
            wanted = np.fmin.reduce([values[ship] for ship in ships])
            got = own.set_index("time").y.reindex(times).to_numpy()
            np.testing.assert_allclose(got, wanted)
            assert not np.isnan(wanted).all()


@pytest.mark.large
def test_sums_and_averages_of_entities_at_an_instant(df):
    segments = el.models.fit(df, key=["fleet", "ship"], time="ts", within={"y": 1.0})
    curves = Curves(segments.to_df().toPandas())
    times = pd.date_range(START + dt.timedelta(minutes=2), periods=8, freq="1min")
    values = {ship: curves(ship, times, "y") for ship in range(6)}
    both = segments.select("y", n="0 * y + 1")
    found = both.sum(by="fleet", slide="1 minute").toPandas()
    mean = segments.avg("y", by="fleet").sample("1 minute").toPandas()
    for group, ships in {"": [0], "f0": [2, 4], "f1": [1, 3, 5]}.items():
        every = np.array([values[ship] for ship in ships])
        count = (~np.isnan(every)).sum(axis=0)
        wanted = np.where(count, np.nansum(every, axis=0), np.nan)
        own = found[found.fleet.fillna("") == group].set_index("time").reindex(times)
        np.testing.assert_allclose(own.y, wanted, rtol=1e-9)
        np.testing.assert_array_equal(own.n.fillna(0), count)
        assert (own.err_y.dropna() <= 1.0 * count[count > 0] + 1e-9).all()
        own = mean[mean.fleet.fillna("") == group].set_index("time").reindex(times)
        np.testing.assert_allclose(own.y, wanted / np.maximum(count, 1), rtol=1e-9)
    assert len(found) > 8
    top = segments.avg("y").within({"y": 0.5})
    assert "fit y within 0.5" in repr(top)


@pytest.mark.large
def test_a_join_of_two_views_of_the_same_entities(segments):
    slow = segments.avg("y", window="60 seconds")
    fast = segments.avg("y", window="10 seconds")
    both = fast.join(slow, "fast.y > slow.y", names=("fast", "slow"))
    assert both.attributes == ("fast_y", "slow_y")
    found = both.select(diff="fast_y - slow_y").sample("5 seconds").toPandas()
    assert len(found) > 50
    assert (found["diff"] > 0).all()
    one = fast.sample("5 seconds").withColumnRenamed("y", "one")
    two = slow.sample("5 seconds").withColumnRenamed("y", "two")
    wanted = one.join(two, ["ship", "time"]).where("one > two").count()
    assert len(found) == wanted


@pytest.mark.large
def test_a_join_of_other_sources_agrees_with_one_of_the_same(spark, segments, tmp_path):
    segments.write.parquet(str(tmp_path / "kept"))
    written = spark.read.parquet(str(tmp_path / "kept"))
    assert written.where("origin = lo").isEmpty()
    assert not written.where("origin IS NULL").isEmpty()
    kept = el.models.read(str(tmp_path / "kept"))
    assert kept.keys == ("ship",)
    assert kept.attributes == ("x", "y")
    assert kept.to_df().exceptAll(segments.to_df()).isEmpty()
    assert segments.to_df().exceptAll(kept.to_df()).isEmpty()
    same = segments.join(segments.select(z="x + y"), "left.x < right.z - 100")
    other = segments.join(kept.select(z="x + y"), "left.x < right.z - 100")
    assert same.to_df().count() == other.to_df().count() > 0
    assert same.to_df().exceptAll(other.to_df()).isEmpty()


@pytest.mark.large
@pytest.mark.parametrize("partitions", ["1", "7"])
def test_pairs_are_each_there_once_however_work_is_cut(spark, segments, curves, partitions):
    was = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        near = segments.near(4, "x", "y").changes().toPandas()
        both = segments.pairs("left.x < right.x", other=segments).to_df()
        n_ordered = both.select("left_ship", "right_ship").distinct().count()
        whole = segments.pairs(within={"x": 4, "y": 4}, whole=True)
        shared = whole.changes().toPandas()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", was)
    assert (near.left_ship < near.right_ship).all()
    assert n_ordered == 30
    paired = {*zip(shared.left_ship, shared.right_ship, strict=True)}
    assert {*zip(near.left_ship, near.right_ship, strict=True)} <= paired
    times = pd.Timestamp(START) + pd.to_timedelta(np.arange(60, 900, 0.7), unit="s")
    n_near = 0
    for one, two in combinations(range(6), 2):
        x, y = (curves(one, times, name) - curves(two, times, name) for name in "xy")
        is_near = np.hypot(x, y) < 4
        is_shared = ~np.isnan(curves(one, times, "y") + curves(two, times, "y"))
        for table, wanted in ((near, is_near), (shared, is_shared & ((one, two) in paired))):
            own = table[(table.left_ship == one) & (table.right_ship == two)]
            inside = (own.since.to_numpy() <= times.to_numpy()[:, None]) & (
                times.to_numpy()[:, None] < own.until.to_numpy()
            )
            assert inside.sum(axis=1).tolist() == wanted.astype(int).tolist()
        n_near += is_near.sum()
    assert n_near > 5


@pytest.mark.large
def test_average_distances_of_pairs(segments, curves):
    whole = segments.select("y").pairs(whole=True)
    found = whole.avg_distance("y", window="40 seconds", slide="20 seconds").toPandas()
    assert len(found) > 100
    for row in found.sample(100, random_state=1).itertuples():
        grid = before(row.time, 40, 800)
        apart = np.abs(curves(row.left_ship, grid, "y") - curves(row.right_ship, grid, "y"))
        assert row.distance == pytest.approx(apart.mean(), abs=0.05)
        assert 0 < row.err_distance < 6
    near = whole.avg_distance("y", window="40 seconds", slide="20 seconds", below=8).toPandas()
    order = ["left_ship", "right_ship", "time"]
    wanted = found[found.distance < 8].sort_values(order).reset_index(drop=True)
    assert 10 < len(wanted) < len(found)
    pd.testing.assert_frame_equal(near.sort_values(order).reset_index(drop=True), wanted)


def test_samples_at_ticks_are_values_of_segments(segments, pieces, curves):
    found = segments.sample("7 seconds").toPandas()
    for ship, own in found.groupby("ship"):
        np.testing.assert_allclose(own.y, curves(ship, own.time, "y"))
    micros = [
        pieces[each].to_numpy().astype("datetime64[us]").astype(np.int64) for each in ("lo", "hi")
    ]
    ticks = [-(-each // 7_000_000) for each in micros]
    assert len(found) == (ticks[1] - ticks[0]).sum()
    assert set(found.time.to_numpy().astype("datetime64[us]").astype(np.int64) % 7_000_000) == {0}


@pytest.mark.large
def test_timestamps_of_a_time_zone_and_entities_without_keys(spark, change):
    change(zone="America/New_York")
    df = spark.sql(
        "SELECT timestamp_seconds(1.7e9 + id) AS ts, CAST(id AS DECIMAL(9, 2)) AS v FROM range(50)"
    )
    segments = el.models.fit(df, time="ts", within={"v": 0})
    (row,) = segments.to_df().selectExpr("unix_micros(lo) AS lo", "coef_v").collect()
    assert row.lo == 1_700_000_000_000_000
    assert row.coef_v[:2] == [0.0, 1.0]
    assert segments.max("v").sample("10 seconds").count() == 5
    assert segments.pairs().to_df().count() == 0


@pytest.mark.large
def test_nothing_in_nothing_out(df):
    segments = el.models.fit(df.limit(0), key=["fleet", "ship"], time="ts", within=WITHIN)
    assert segments.to_df().count() == 0
    assert segments.avg(window="1 minute", slide="1 minute").count() == 0
    assert segments.max("x", by="fleet").to_df().count() == 0
    assert segments.near(5, "x", "y").to_df().count() == 0
    assert segments.join(segments).changes().count() == 0


def test_declared_models_hold_until_the_next_row(spark):
    df = spark.sql(
        "SELECT id % 3 AS ship, timestamp_seconds(1.7e9 + 10 * id) AS ts, id AS x, 0.5 AS v "
        "FROM range(30)"
    )
    segments = el.models.declare(
        df, key="ship", time="ts", model={"x": "x + v * t", "y": "2 * x"}, horizon="25 seconds"
    )
    found = segments.select(z="x - y").sample("5 seconds").toPandas()
    ids = np.arange(30)
    seconds = np.arange(0, 25, 5)
    wanted = sorted(
        (int(each % 3), 1_700_000_000 + 10 * each + after, each + 0.5 * after - 2 * each)
        for each in ids.tolist()
        for after in seconds.tolist()
    )
    times = found.time.to_numpy().astype("datetime64[s]").astype(int)
    got = sorted(zip(found.ship.tolist(), times.tolist(), found.z.tolist(), strict=True))
    assert got == wanted
    assert (found.err_z == 0).all()
    with pytest.raises(QueryError, match=r"models.declare: x = x \+ w \* t: .*`w`"):
        el.models.declare(df, key="ship", time="ts", model={"x": "x + w * t"}, horizon=1)
    texts = df.withColumn("v", df.v.cast("string"))
    with pytest.raises(QueryError, match=r"x = v \+ x \* t: \(v\) is of type string; give num"):
        el.models.declare(texts, key="ship", time="ts", model={"x": "v + x * t"}, horizon=1)


def test_options_of_fits_are_taken(df):
    args = {"key": "ship", "time": "ts", "within": {"y": 2.0}}
    errors = [
        el.models.fit(df, **args, rounding=share).to_df().agg({"err_y": "avg"}).first()[0]
        for share in (0, 1)
    ]
    assert errors[0] < errors[1] <= 2.0
    lines = el.models.fit(df, **args, method="linear").to_df().first()
    assert len(lines.coef_y) == 2


def test_it_says_what_it_is(segments, df):
    made = el.models.fit(df, key="ship", time="ts", within={"y": "1 %"}).where("y > 3 AND ship = 1")
    assert repr(made) == (
        "<segments of y by ship: fit y within 1 %; method auto; where y > 3 AND ship = 1>"
    )


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"key": "boat"}, QueryError, "unknown column 'boat'.*did you mean"),
        ({"key": "ts", "time": "x"}, QueryError, "time 'x' is of type double; give a timestamp"),
        ({"within": {"fleet": 1}}, QueryError, "'fleet' is of type string; give a number"),
        ({"within": {"ship": 1}}, OptionError, "attribute 'ship' has the name of a column"),
        ({"key": ["ship", "ship"]}, OptionError, "a key is given twice"),
        ({"within": {"x": -1}}, OptionError, r"within\['x'\] is a finite number of 0 or more"),
        ({"max_gap": "soon"}, OptionError, "max_gap is an interval"),
        (
            {"key": "folded"},
            NotSupportedError,
            "'folded' has a collation .*, by which different texts are equal",
        ),
        ({"methd": "auto"}, OptionError, "unknown option of models.fit 'methd'.*did you mean"),
        ({"method": "spline"}, OptionError, "method"),
    ],
)
def test_what_cannot_be_fitted_is_told_before_anything_runs(df, given, error, message):
    df = df.withColumn("boats", df.ship).selectExpr("*", "fleet COLLATE UTF8_LCASE AS folded")
    args = {"key": "ship", "time": "ts", "within": {"x": 1}} | given
    with pytest.raises(error, match=message):
        el.models.fit(df, **args)


def test_keys_and_attributes_that_results_would_hide_are_refused(df):
    with pytest.raises(OptionError, match="key 'lo' has the name of a column of segments"):
        el.models.fit(df.withColumnRenamed("ship", "lo"), key="lo", time="ts", within={"x": 1})
    with pytest.raises(OptionError, match="attribute 'time' has the name of a column"):
        el.models.fit(df.withColumnRenamed("x", "time"), key="ship", time="ts", within={"time": 1})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.where("x > fleet"), QueryError, "unknown modelled attribute 'fleet'"),
        (lambda s: s.where("sin(x) > 1"), NotSupportedError, "no polynomial"),
        (lambda s: s.select(), QueryError, "select needs an attribute"),
        (lambda s: s.select(ship="x"), OptionError, "attribute 'ship' has the name of a column"),
        (lambda s: s.select(r="sqrt(x)"), NotSupportedError, "stand only in conditions"),
        (lambda s: s.avg("z", window="1 s"), QueryError, "unknown modelled attribute 'z'"),
        (lambda s: s.avg(window="soon"), OptionError, "window is an interval"),
        (lambda s: s.min("x", by="x"), QueryError, "unknown key 'x'"),
        (
            lambda s: s.min("x", by="ship", window="1 second"),
            NotSupportedError,
            "by= combines entities",
        ),
        (lambda s: s.avg(by="ship", window="1 second"), NotSupportedError, r"\.avg\(by=…\)"),
        (lambda s: s.sum("x", by="x"), QueryError, "unknown key 'x'"),
        (lambda s: s.sum("x", covered=True), OptionError, "covered needs a window"),
        (lambda s: s.sample(0), OptionError, "every is an interval"),
        (lambda s: s.join(3), QueryError, "join takes segments"),
        (lambda s: s.join(s, names=("a", "a")), OptionError, "two different names"),
        (lambda s: s.pairs(within={"x": "far"}), OptionError, "finite number"),
        (lambda s: s.near(1), QueryError, "near needs coordinates"),
    ],
)
def test_what_segments_cannot_do_is_told_at_once(segments, call, error, message):
    with pytest.raises(error, match=message):
        call(segments)


def test_columns_that_are_no_segments_are_refused(spark, segments):
    with pytest.raises(QueryError, match="missing: hi; got"):
        el.models.read(segments.to_df().drop("hi"))
    with pytest.raises(QueryError, match="'coef_x' is an array of doubles, got string"):
        el.models.read(segments.to_df().selectExpr("* EXCEPT (coef_x)", "'a' AS coef_x"))

"""``MODEL`` in SQL: the thesis' queries with their numbers, the face, streams, and composition."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eddyline as el
from eddyline.errors import OptionError, QueryError
from eddyline.spark.script import run_script
from tests.examples import examples
from tests.spark.models import tracks
from tests.spark.models.tracks import (
    FIRST_S,
    SECOND,
    copied,
    declared,
    ended,
    fitted,
    stream_of,
    write_files,
)

N_FILES = 4

SHIPS = "s MODEL x = x + v * t HORIZON 9 SECONDS BY ship AT ts"
FITTED = "s MODEL x WITHIN 1 BY ship MAX GAP 20 SECONDS AT ts WITH (degree = 1, prefix_rows = 16)"
PRICES = "trades MODEL price = price + slope * t HORIZON 1 SECOND BY symbol AT time"


def macd(source, symbol, value, time=""):
    """Return the thesis' fourth query."""
    return (
        f"select {symbol}, {time} S.ap - L.ap as diff from "
        f"(select {symbol}, avg({value}) as ap from {source} [RANGE 10 SECONDS SLIDE 2 SECONDS]) "
        f"as S join "
        f"(select {symbol}, avg({value}) as ap from {source} [RANGE 60 SECONDS SLIDE 2 SECONDS]) "
        f"as L on (S.{symbol} = L.{symbol}) where S.ap > L.ap"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of rows in the order of time, the last of which is far behind: it ends all models."""
    folder = tmp_path_factory.mktemp("tracks")
    rng = np.random.default_rng(8)
    seconds = np.cumsum(rng.choice([0, 1, 1, 2, 40], 600, p=[0.2, 0.5, 0.1, 0.19, 0.01]))
    seconds = np.append(seconds, seconds[-1] + 10_000)
    ships = np.append(rng.integers(0, 5, 600), 99)
    names = pa.array([None if each == 4 else int(each) for each in ships], pa.int64())
    times = pa.array((seconds + FIRST_S) * SECOND).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "ship": names,
            "ts": times,
            "x": np.cumsum(rng.integers(-2, 3, 601)) / 2,
            "v": np.full(601, 0.25),
            "flag": np.where(ships % 2 == 0, "even", "odd"),
        }
    )
    return write_files(folder, (table.slice(150 * n, 150 + n // 3) for n in range(N_FILES)))


@pytest.fixture(scope="module")
def df(spark, folder):
    found = spark.read.parquet(str(folder)).repartition(2).persist()
    yield found
    found.unpersist()


@pytest.fixture(scope="module")
def engine(spark, df):
    engine = el.Engine(spark)
    engine.table("s", df)
    rows = spark.range(200).selectExpr(
        "'A' AS symbol", "timestamp_seconds(id) AS time", "id AS second",
        "IF(id < 100, 100 + 0.5 * id, 250 - id) AS price", "IF(id < 100, 0.5, -1) AS slope",
    )  # fmt: skip
    engine.table("trades", rows.coalesce(1))
    one = spark.range(1).selectExpr("timestamp_seconds(0) AS ts", "10 AS x", "2 AS v", "0.5 AS a")
    engine.table("A", one)
    engine.table("B", one.selectExpr("ts", "1 AS v", "a"))
    curves = [("A", 0, 10, 0.0, 1.0), ("B", 0, 10, 5.0, 0.0), ("C", 4, 6, 8.0, -1.0)]
    parts = [
        (name, start + second, c0 + c1 * second, c1)
        for name, start, length, c0, c1 in curves
        for second in range(length)
    ]
    frame = spark.createDataFrame(parts, "name string, second int, x double, v double")
    engine.table("curves", frame.selectExpr("*", "timestamp_seconds(second) AS ts"))
    return engine


CURVES = "curves MODEL x = x + v * t HORIZON 1 SECOND BY name AT ts"


def bag(query):
    """Return rows in an order, numbers rounded."""
    return rounded((query.to_df() if hasattr(query, "to_df") else query).collect())


def rounded(rows):
    """Return rows in an order, numbers rounded."""
    return sorted(map(tracks.rounded, rows), key=repr)


def seconds(instant):
    return instant.timestamp()


# -- the thesis' queries, by the examples of its specification ----------------------------------


def test_t3_a_threshold_holds_until_the_model_ends(engine):
    engine.table("one", engine.tables["A"].selectExpr("ts", "130 AS x"), replace=True)
    ask = "SELECT price FROM one MODEL price = x - 2 t HORIZON 10 SECONDS AT ts WHERE price < 125"
    (row,) = engine.query(f"{ask} CHANGES").to_df().collect()
    assert (seconds(row.since), seconds(row.until)) == (2.500001, 10)
    assert row.price == pytest.approx(125, abs=1e-5)
    rows = engine.query(f"{ask} SAMPLE EVERY 1 SECOND").to_df().collect()
    assert sorted((seconds(each.time), each.price) for each in rows) == [
        (t, 130 - 2 * t) for t in range(3, 10)
    ]


def test_t1_a_join_holds_from_the_root_of_the_difference(engine):
    rows = engine.query(
        "SELECT * from A MODEL A.x = A.x + A.v t HORIZON 10 SECONDS AT ts "
        "JOIN B MODEL B.y = B.v t + B.a t^2 HORIZON 10 SECONDS AT ts ON (A.x < B.y) CHANGES"
    )
    (row,) = rows.to_df().collect()
    assert seconds(row.since) == pytest.approx(1 + 21**0.5, abs=1e-6)
    assert seconds(row.until) == 10
    assert row.A_x == pytest.approx(row.B_y, abs=1e-5)


@pytest.mark.large
def test_q3_equality_of_attributes_gives_an_instant(engine):
    query = (
        "select R.a, b as x, d from A MODEL a = x - t, b = 7 HORIZON 10 SECONDS AT ts AS R join "
        "B MODEL a = 4 + t, d = 8 HORIZON 10 SECONDS AT ts AS S where R.a = S.a and R.a < S.d "
    )
    (row,) = engine.query(f"{query} CHANGES").to_df().collect()
    assert (seconds(row.since), seconds(row.until), row.a, row.x, row.d) == (3, 3, 7, 7, 8)
    assert engine.query(query.replace("d = 8", "d = 7") + "CHANGES").to_df().count() == 0


def test_t15_macd(engine):
    rows = engine.query(macd(PRICES, "symbol", "price")).to_df().collect()
    found = {seconds(each.time): each["diff"] for each in rows}
    assert sorted(found) == list(range(60, 115, 2))
    for t, diff in found.items():
        fast = 97.5 + 0.5 * t if t < 100 else -652.5 + 15.5 * t - 0.075 * t * t
        fast = 255 - t if t >= 110 else fast
        slow = 85 + 0.5 * t if t < 100 else -40 + 3 * t - 0.0125 * t * t
        assert diff == pytest.approx(fast - slow, abs=1e-9)
    (range_,) = engine.query(f"{macd(PRICES, 'symbol', 'price')} CHANGES").to_df().collect()
    assert seconds(range_.since) == 60
    assert seconds(range_.until) == pytest.approx(160 - 20 * 5**0.5, abs=1e-6)


@pytest.mark.large
def test_t16_and_t17_greatest_of_entities_and_of_windows(engine):
    def asked(source, more):
        query = f"SELECT max(x) AS top FROM {source} {more}"
        return {seconds(each.time): each.top for each in engine.query(query).to_df().collect()}

    top = asked(CURVES, "SAMPLE EVERY 1 SECOND")
    assert top == {t: 5 if t < 4 else 12 - t if t < 6 else t for t in range(10)}
    query = (
        f"SELECT max(top) AS top FROM (SELECT max(x) AS top FROM {CURVES}) AS m "
        "[RANGE 3 SECONDS SLIDE 1 SECOND]"
    )
    found = {seconds(each.time): each.top for each in engine.query(query).to_df().collect()}
    assert [found[t] for t in range(4, 10)] == [8, 8, 8, 8, 8, 9]
    query = f"SELECT sum(x) AS s FROM {CURVES} SAMPLE EVERY 1 SECOND"
    assert {seconds(e.time): e.s for e in engine.query(query).to_df().collect()} == {
        t: t + 5 + (12 - t if 4 <= t < 10 else 0) for t in range(10)
    }
    least = engine.query(f"SELECT min(x) AS low FROM {CURVES} SAMPLE EVERY 1 SECOND").to_df()
    assert {seconds(e.time): e.low for e in least.collect()} == {
        t: min(t, 5) if t < 7 else 12 - t for t in range(10)
    }


@pytest.mark.large
def test_t24_average_distance_of_pairs(engine, spark):
    rows = spark.sql(
        "SELECT timestamp_seconds(0) AS ts, * FROM VALUES (1, -3D, 1D, 0D), (2, 0D, 0D, 4D), "
        "(3, 900D, 0D, 900D), (NULL, 0D, 0D, 4D) AS (id, x, vx, y)"
    )
    engine.table("places", rows)
    model = "places MODEL x = x + vx * t, y = y HORIZON 7 SECONDS BY id AT ts"
    query = (
        "select Candidates.id1, Candidates.id2, avg(dist) from (select S1.id as id1, S2.id as id2, "
        "sqrt(pow(S1.x-S2.x,2) + pow(S1.y-S2.y,2)) as dist "
        f"from {model} as S1 join {model} as S2 on (S1.id {{op}} S2.id)) as Candidates "
        "[RANGE 6 SECONDS SLIDE 6 SECONDS] group by id1, id2 having avg(dist) < 1000"
    )
    found = {
        op: {
            (e.id1, e.id2): e.avg_dist for e in engine.query(query.format(op=op)).to_df().collect()
        }
        for op in ("<>", "<", ">")
    }
    assert found["<"][1, 2] == pytest.approx((7.5 + 8 * np.log(2)) / 3, abs=1e-9)
    assert found["<"] == {(1, 2): found["<"][1, 2]}
    assert found[">"] == {(2, 1): pytest.approx(found["<"][1, 2])}
    assert found["<>"] == {**found["<"], **found[">"]}


@pytest.mark.large
def test_pairs_are_near_when_brute_force_says_so(engine, df):
    query = (
        "SELECT a.ship AS one, b.ship AS other, a.x FROM {0} AS a JOIN {0} AS b ON a.ship < b.ship "
        "WHERE abs(a.x - b.x) < 3.1 AND a.x > -5.1 SAMPLE EVERY 4 SECONDS"
    )
    found = bag(engine.query(query.format(SHIPS)))
    at = engine.query(f"SELECT ship, time, x FROM {SHIPS} SAMPLE EVERY 4 SECONDS").to_df().collect()
    wanted = [
        (one.ship, other.ship, one.time, round(one.x, 6), 0.0)
        for one in at
        for other in at
        if one.ship is not None
        and other.ship is not None
        and one.ship < other.ship
        and one.time == other.time
        and abs(one.x - other.x) < 3.1
        and one.x > -5.1
    ]
    assert found == rounded(wanted)
    assert len(found) > 20


# -- the face -----------------------------------------------------------------------------------


conditions = st.sampled_from(["x > {}", "NOT x BETWEEN -1 AND {}", "pow(x, 2) <= {} OR d(x) > 0"])
rows = st.sampled_from(["true", "flag = 'odd'", "ship <> 3", "v > 0 AND flag = 'even'"])
outputs = st.sampled_from(["sample", "changes", "segments", "avg", "min", "join"])


@examples(8)
@given(
    kind=st.sampled_from([FITTED, SHIPS]),
    condition=conditions,
    value=st.integers(0, 40),
    of_rows=rows,
    output=outputs,
    width=st.integers(3, 30),
    every=st.integers(1, 7),
)
def test_a_query_gives_what_the_face_gives(
    engine, df, kind, condition, value, of_rows, output, width, every
):
    condition = condition.format(value)
    made = fitted if kind is FITTED else declared
    segments = made(df.where(of_rows))
    where = f"WHERE {of_rows} AND ({condition})"
    if output in {"avg", "min"}:
        window = f"[RANGE {width} SECONDS SLIDE {every} SECONDS]"
        asked = f"SELECT ship, {output}(x) AS x FROM {kind} {window} {where}"
        face = segments.where(condition)
        wanted = getattr(face, output)("x", window=f"{width} seconds", slide=f"{every} seconds")
    elif output == "join":
        fast, slow = (
            f"(SELECT ship, avg(x) AS m FROM {kind} [RANGE {each} SECONDS] WHERE {of_rows})"
            for each in (every, width)
        )
        asked = (
            f"SELECT a.ship, a.m - b.m AS far FROM {fast} a JOIN {slow} b ON a.ship = b.ship AND "
            f"a.m > b.m SAMPLE EVERY {every} SECONDS"
        )
        known = made(df.where(f"{of_rows} AND ship IS NOT NULL"))
        one, other = (known.avg("x", window=f"{each} seconds") for each in (every, width))
        both = one.join(other, "a.x > b.x", names=("a", "b"))
        wanted = both.select(far="a_x - b_x").sample(f"{every} seconds")
    else:
        said = {"sample": f"SAMPLE EVERY {every} SECONDS", "changes": "CHANGES", "segments": ""}
        asked = f"SELECT * FROM {kind} {where} {said[output]}"
        face = segments.where(condition)
        wanted = face.to_df()
        if output != "segments":
            wanted = face.sample(f"{every} seconds") if output == "sample" else face.changes()
    query = engine.query(asked)
    assert query.columns == {each.name: each.dataType.simpleString() for each in wanted.schema}
    assert bag(query) == bag(wanted)


@pytest.mark.large
@pytest.mark.parametrize("bound", ["0.25", "2 %"])
def test_bounds_of_results_are_those_of_the_face(engine, df, bound):
    model = "s MODEL x BY ship MAX GAP 20 SECONDS AT ts WITH (degree = 1, prefix_rows = 16)"
    found = engine.query(
        f"SELECT ship, avg(x + 100) AS m FROM {model} [RANGE 9 SECONDS SLIDE 3 SECONDS] "
        f"WHERE ship <> 2 PRECISION m WITHIN {bound}"
    )
    free = el.models.fit(
        df.where("ship <> 2"), key="ship", time="ts", attributes=["x"], max_gap="20 seconds",
        degree=1, prefix_rows=16,
    )  # fmt: skip
    wanted = free.select(m="x + 100").avg("m", window="9 seconds").within({"m": bound})
    assert bag(found) == bag(wanted.sample("3 seconds"))
    if bound == "0.25":
        assert 0 < max(row.err_m for row in found.to_df().collect()) <= 0.25


@pytest.mark.large
def test_segments_that_are_kept_are_asked_again(engine, spark, df, tmp_path):
    query = engine.query(f"SELECT ship, x FROM {FITTED} WHERE ship < 3")
    query.to_df().write.parquet(str(tmp_path / "kept"))
    engine.table("kept", spark.read.parquet(str(tmp_path / "kept")), replace=True)
    found = engine.query("SELECT ship, x FROM kept MODEL SEGMENTS WHERE x > 2 AND ship > 0 CHANGES")
    assert bag(found) == bag(fitted(df.where("ship IN (1, 2)")).where("x > 2").changes())


# -- composition --------------------------------------------------------------------------------


def test_results_are_streams_of_other_queries(engine, df):
    engine.stream("near", engine.query(f"SELECT ship, x FROM {SHIPS} SAMPLE EVERY 3 SECONDS"))
    plain = declared(df).sample("3 seconds")
    filtered = engine.query("SELECT ship, x * 2 AS twice FROM near WHERE x > 3 AND ship < 3")
    wanted = plain.where("x > 3 AND ship < 3").selectExpr("ship", "x * 2 AS twice")
    assert bag(filtered) == bag(wanted)


def test_models_of_the_results_of_a_filter(engine, spark, folder):
    engine = el.Engine(spark)
    engine.stream("rows", stream_of(spark, folder), time="ts", lateness="1 second")
    engine.stream("odd", engine.query("SELECT ship, ts, x FROM rows WHERE flag = 'odd'"))
    query = engine.query("SELECT ship, x FROM odd MODEL x = x HORIZON 2 SECONDS BY ship CHANGES")
    said = [line.strip("└─ ") for line in query.explain().splitlines()[1:]]
    assert said == [
        "project models of odd: ship, since, until, x, err_x",
        "models of odd: model x = x; horizon 2 s; changes only",
        "project odd.`rows`: ship, ts, x",
        "filter odd.`rows`: flag = 'odd'",
        "read rows as odd.`rows`",
    ]


@pytest.mark.large
def test_a_script_makes_a_stream_of_models_that_queries_and_rules_read(spark, folder, tmp_path):
    file = tmp_path / "near.sql"
    file.write_text(
        f"CREATE STREAM s WITH (format='parquet', path='{folder}', time='ts', lateness='1 second');"
        f"CREATE STREAM near AS SELECT ship, time AS at, x FROM {SHIPS} SAMPLE EVERY 3 SECONDS;"
        f"CREATE QUERY q WITH (sink='parquet', path='{tmp_path}/out') AS "
        "SELECT ship, at FROM near WHERE x > 3 AND ship < 3;",
        "utf-8",
    )
    (run,) = run_script(file, spark=spark, trigger="available_now")
    assert run.await_termination(120)
    plain = declared(spark.read.parquet(str(folder))).sample("3 seconds")
    wanted = plain.where("x > 3 AND ship < 3").select("ship", "time")
    assert rounded(spark.read.parquet(str(tmp_path / "out")).collect()) == bag(wanted)
    file.write_text(file.read_text("utf-8").replace("x + v", "x + w"), "utf-8")
    with pytest.raises(QueryError, match=r"near.sql, query 'stream near', SELECT from line 1 on: "):
        run_script(file, spark=spark)


def test_rules_read_results_of_models(spark, folder):
    engine = streamed(spark, folder, 4)
    engine.stream("near", engine.query(f"SELECT ship, x FROM {SHIPS} SAMPLE EVERY 3 SECONDS"))
    query = engine.rules("tagged", el.RuleSet({"high": "x > 3"}, name="tags"), stream="near")
    assert query.columns["matches"] == "array<string>"
    with pytest.raises(QueryError, match=r"cannot be joined: .*no event time"):
        engine.query("SELECT near.x FROM near [RANGE 1 MINUTE], s WHERE near.ship = s.ship")


# -- streams ------------------------------------------------------------------------------------

ASKED = {
    "where": "SELECT ship, x FROM {0} WHERE x > 0 AND flag = 'odd' AND ship <> 3 CHANGES",
    "average": "SELECT ship, avg(x) AS ax FROM {0} [RANGE 10 SECONDS SLIDE 3 SECONDS] "
    "HAVING avg(x) > 1",
    "macd": macd("{0}", "ship", "x"),
    "near": "SELECT a.ship AS one, b.ship AS other, a.x FROM {0} AS a JOIN {0} AS b "
    "ON a.ship < b.ship WHERE abs(a.x - b.x) < 1 CHANGES",
    "mean": "SELECT avg(x) AS m FROM {0} HAVING avg(x) > -10 SAMPLE EVERY 5 SECONDS",
    "top": "SELECT max(x) AS top FROM {0} HAVING max(x) > -10 SAMPLE EVERY 5 SECONDS",
}


def streamed(spark, folder, files):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, files), time="ts", lateness="1 second")
    return engine


def without_end(rows):
    """Return rows but those of the ship that ends all models, and of its time."""
    end = datetime.datetime.fromtimestamp(1_700_000_000 + 5_000)
    times = [[each for each in row if isinstance(each, datetime.datetime)] for row in rows]
    kept = zip(rows, times, strict=True)
    return rounded(row for row, own in kept if row[0] != 99 and all(each < end for each in own))


@pytest.mark.large
@pytest.mark.parametrize("name", ASKED)
def test_a_stream_gives_what_a_table_gives_and_goes_on_from_its_checkpoint(
    spark, engine, folder, tmp_path, name
):
    text = ASKED[name].format(FITTED if name == "macd" else SHIPS)
    wanted = without_end(engine.query(text).to_df().collect())
    for numbers in ((0, 1), (2, 3)):
        copied(folder, tmp_path / "seen", numbers)
        run = ended(streamed(spark, tmp_path / "seen", 2).query(text, name="live"), tmp_path)
    assert without_end(spark.read.parquet(str(tmp_path / "out")).collect()) == wanted
    assert len(wanted) > 4
    assert "segments" in run.explain()


@pytest.mark.large
def test_queries_of_models_start_beside_others(spark, folder, tmp_path):
    engine = streamed(spark, folder, 4)
    engine.query("SELECT ship, x FROM s WHERE x > 0", name="plain")
    engine.query("SELECT ship, x FROM s WHERE x > 1 AND flag = 'odd'", name="odd")
    engine.query(ASKED["where"].format(SHIPS), name="live")
    where = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "checkpoint")}
    for run in engine.start_all("parquet", trigger="available_now", **where):
        run.await_termination()
    assert spark.read.parquet(str(tmp_path / "out/live")).count() > 4
    assert spark.read.parquet(str(tmp_path / "out/plain")).count() > 50


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "said", "column"),
    [
        ("SELECT x FROM s MODEL x WITHIN 1 BY ship CHANGES", OptionError, "MAX GAP", 17),
        (
            "SELECT x FROM s MODEL x = x + ship * t, y = nothing HORIZON 1 SECOND",
            QueryError,
            "nothing",
            41,
        ),
        ("SELECT flag FROM s MODEL flag WITHIN 1 MAX GAP 1 DAY", QueryError, "give a number", 26),
        (f"SELECT x, x + 1 AS err_x FROM {SHIPS}", OptionError, "begins with coef_", 8),
    ],
)
def test_what_streams_and_columns_do_not_allow_is_said_with_its_place(
    spark, folder, text, kind, said, column
):
    engine = streamed(spark, folder, 4)
    with pytest.raises(kind, match=said) as error:
        engine.query(text)
    assert type(error.value) is kind
    assert error.value.facts["column"] == column

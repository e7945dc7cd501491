"""Rows that satisfy conditions, exactly: against DuckDB on the same rows."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, QueryError
from tests.spark.models.walks import walks


@pytest.fixture(scope="module")
def rows():
    """Return rows with NULL, NaN, infinity, no time, duplicates of an instant and ties at edges."""
    rows = walks(4, 200)
    rng = np.random.default_rng(3)
    rows["id"] = np.arange(len(rows))
    rows["x"] = (rows.x * 2).round() / 2
    rows.loc[rng.random(len(rows)) < 0.02, "y"] = np.inf
    rows.loc[rng.random(len(rows)) < 0.02, "ts"] = pd.NaT
    return rows


@pytest.fixture(scope="module")
def df(spark, rows):
    schema = "fleet string, ship int, ts timestamp_ntz, x double, y double, id long"
    return spark.createDataFrame(rows, schema).persist()


@pytest.fixture(scope="module", params=[0.0, 1.0])
def kept(df, request, tmp_path_factory):
    within = {"x": request.param, "y": request.param}
    fitted = el.models.fit(df, key="ship", time="ts", within=within, max_gap="2 minutes")
    path = str(tmp_path_factory.mktemp("kept"))
    fitted.write.mode("overwrite").parquet(path)
    return {"fresh": fitted, "read": el.models.read(path)}


@pytest.mark.large
@pytest.mark.parametrize(
    "text",
    ["x > 21.5", "x <= 20", "x = 20 AND ship = 1", "x + y / 10 >= 30", "NOT (y < 101) OR x < 18"],
)
def test_exact_answers_are_those_of_duckdb_on_the_rows(kept, df, rows, text):
    wanted = sorted(duckdb.sql(f"SELECT id FROM rows WHERE {text}").df().id.tolist())
    assert 0 < len(wanted) < len(rows)
    given = kept["read"].where(text).exact(df, time="ts")
    assert given.columns == df.columns
    assert sorted(row.id for row in given.select("id").collect()) == wanted
    fresh = kept["fresh"].where(text).exact()
    assert sorted(row.id for row in fresh.select("id").collect()) == wanted


def test_what_has_no_rows_is_refused(kept, df):
    with pytest.raises(QueryError, match="which these segments do not know"):
        kept["read"].where("x > 3").exact()
    segments = kept["fresh"]
    with pytest.raises(NotSupportedError, match="computed from several rows"):
        segments.avg("x", window="10 seconds").exact()
    with pytest.raises(NotSupportedError, match="the slope of a model"):
        segments.where("d(x) > 3").exact()
    with pytest.raises(NotSupportedError, match="compare squares"):
        segments.where("sqrt(x) > 3").exact()


@pytest.mark.large
@pytest.mark.parametrize("is_narrow_first", [True, False])
def test_segments_that_are_kept_again_stand_for_the_rows_of_their_entities(
    df, rows, is_narrow_first
):
    every = el.models.fit(df, key="ship", time="ts", within={"x": 1.0}, max_gap="2 minutes")
    every = every.persist()
    some = every.where("ship = 1").persist()
    asked = [(some, "ship = 1"), (every, "TRUE")]
    for segments, text in asked if is_narrow_first else asked[::-1]:
        wanted = duckdb.sql(f"SELECT id FROM rows WHERE x > 20 AND {text}").df().id.tolist()
        found = segments.where("x > 20").exact().select("id").collect()
        assert sorted(row.id for row in found) == sorted(wanted)
    of_ship = duckdb.sql("SELECT count(*) FROM rows WHERE ship = 1").fetchall()
    assert some.exact().count() == of_ship[0][0] > 0


def test_conditions_are_asked_as_they_were_written(spark):
    rows = "VALUES ('a  b', timestamp_seconds(10), 1.0D), ('a b', timestamp_seconds(10), 4.0D)"
    rows += ", ('a  b', timestamp_seconds(20), 4.0D), ('a b', timestamp_seconds(20), 5.0D)"
    df = spark.sql(f"SELECT * FROM {rows} AS rows(name, ts, x)")
    segments = el.models.fit(df, key="name", time="ts", within={"x": 0.5})
    found = segments.where("name = 'a  b' AND x > 3").exact()
    assert [(row.name, row.x) for row in found.select("name", "x").collect()] == [("a  b", 4.0)]
    noted = segments.where("x > 3 -- a note\n AND x < 5")
    assert noted.exact().count() == 2
    assert "x > 3" in repr(noted)


@pytest.mark.large
def test_keys_are_instants_in_no_zone(spark, tmp_path):
    df = spark.sql(
        "SELECT timestamp_ntz '2024-03-31 02:30:00' + make_interval(0, 0, 0, id % 2) AS day, "
        "timestamp_seconds(10 * id) AS ts, DOUBLE(id) AS x FROM range(20)"
    )
    segments = el.models.fit(df, key="day", time="ts", within={"x": 0.5})
    segments.write.parquet(str(tmp_path / "kept"))
    kept = el.models.read(str(tmp_path / "kept"))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # not that of Python
    try:
        assert kept.where("x > 9.5").exact(df, time="ts").count() == 10
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_an_attribute_moves_from_value_to_value(spark):
    from eddyline.spark.models.graphs import ranges_of  # noqa: PLC0415 - of this test alone

    df = spark.sql(
        "SELECT timestamp_seconds(id) AS ts, IF(id % 2 = 0, DOUBLE(id), NULL) AS x, "
        "IF(id % 2 = 1, -3D * id, NULL) AS y FROM range(21)"
    )
    segments = el.models.fit(df, time="ts", within={"x": 0.5, "y": 0.5})
    (source,) = segments._graph.sources
    found = ranges_of(source)
    assert found["x"][:2] == (0.0, 20.0)
    assert found["x"].pace == 1.0
    assert found["y"].pace == pytest.approx(3 * 18 / 20)

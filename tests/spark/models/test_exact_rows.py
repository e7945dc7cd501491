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
    with pytest.raises(QueryError, match="not known to which one these segments were fitted"):
        kept["read"].where("x > 3").exact()
    segments = kept["fresh"]
    with pytest.raises(NotSupportedError, match="computed of several rows"):
        segments.avg("x", window="10 seconds").exact()
    with pytest.raises(NotSupportedError, match="the slope of a model"):
        segments.where("d(x) > 3").exact()
    with pytest.raises(NotSupportedError, match="compare squares"):
        segments.where("sqrt(x) > 3").exact()

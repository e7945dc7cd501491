"""Attributes that are declared by their rate, on DataFrames, streams and in SQL."""

from __future__ import annotations

import numpy as np
import pytest

import eddyline as el
from eddyline.errors import EddylineError, NotSupportedError, OptionError, QueryError
from tests.spark.models.tracks import ended, record_of, rounded

MODEL = {"x": "d(x) = a - b * x"}


@pytest.fixture(scope="module")
def tanks(spark):
    """Rows of tanks that fill up; one of a tank whose level explodes, and one without a value."""
    return spark.sql("""
        SELECT id % 3 AS tank, timestamp_seconds(20 * (id div 3)) AS ts, 2.0D + id % 3 AS a,
               0.1D AS b, CAST(id AS DOUBLE) AS x, 'full' AS name FROM range(60)
        UNION ALL VALUES (7L, timestamp_seconds(0), 0.0D, -9.0D, 30.0D, ''),
                         (8L, timestamp_seconds(0), 0.0D, 1.0D, CAST('NaN' AS DOUBLE), ''),
                         (9L, timestamp_seconds(9000), 0.0D, 1.0D, 1.0D, '')
    """)


def declared(df, **more):
    return el.models.declare(
        df, key="tank", time="ts", model=MODEL, horizon="30 seconds", within={"x": 0.01}, **more
    )


def test_solutions_are_sampled_compared_and_averaged_as_any_model(spark, tanks):
    rows = declared(tanks).where("x > 25").sample("1 second").collect()
    for row in (each for each in rows if each.tank < 3):
        second = row.time.timestamp()
        start = min(second // 20, 19)
        begin, most = start * 3 + row.tank, (2.0 + row.tank) / 0.1
        wanted = most + (begin - most) * np.exp(-0.1 * (second - 20 * start))
        assert row.x == pytest.approx(wanted, abs=0.01)
        assert row.err_x == 0.01
    assert len(rows) > 300
    engine = el.Engine(spark)
    engine.table("tanks", tanks)
    text = "FROM tanks MODEL d(x) = a - b * x WITHIN 0.01 HORIZON 30 SECONDS BY tank AT ts"
    asked = engine.query(f"SELECT tank, x {text} WHERE x > 25 SAMPLE EVERY 1 SECOND").to_df()
    assert {rounded(each) for each in asked.collect()} == {rounded(each) for each in rows}
    mean = engine.query(f"SELECT tank, avg(x) AS m {text} [RANGE 9 SECONDS SLIDE 3 SECONDS]")
    assert mean.to_df().where("m > 25").count() > 50


@pytest.mark.large
def test_a_stream_gives_what_a_batch_gives_and_counts_what_is_cut(spark, tanks, tmp_path):
    tanks.coalesce(1).write.parquet(str(tmp_path / "tanks"))
    stream = spark.readStream.schema(tanks.schema).parquet(str(tmp_path / "tanks"))
    run = ended(declared(stream, name="live").where("x > 25").changes(), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    wanted = declared(tanks).where("x > 25").changes().collect()
    assert sorted(map(rounded, found)) == sorted(map(rounded, wanted))
    assert {each.tank for each in found} == {0, 1, 2, 7}
    assert record_of(run).n_cut == 1
    assert "1 models whose rate has no solution within its bound" in " ".join(run.explain().split())


@pytest.mark.parametrize(
    ("model", "more", "kind", "said"),
    [
        ({"y": "d(y) = a - b * y"}, {}, QueryError, "d.y. = .*: it begins at the value in the row"),
        ({"x": "d(x) = nothing - x"}, {}, QueryError, "d.x. = nothing - x.*`nothing`"),
        ({"x": "d(x) = name - x"}, {}, QueryError, "name.* is of type string; give numbers"),
        ({"x": "d(x) = x ++ ) 3"}, {}, QueryError, "cannot be read as SQL"),
        ({"x": "d(x) = rand(x)"}, {}, NotSupportedError, "the rate of 'x' has RAND"),
        (MODEL, {"within": None}, OptionError, "solved as near as within says"),
    ],
)
def test_mistakes_are_said_when_a_rate_is_declared(tanks, model, more, kind, said):
    given = {"key": "tank", "time": "ts", "model": model, "horizon": 30, "within": {"x": 1}} | more
    given["within"] = given["within"] and dict.fromkeys(model, 1)
    with pytest.raises(EddylineError, match=said) as error:
        el.models.declare(tanks, **given)
    assert type(error.value) is kind

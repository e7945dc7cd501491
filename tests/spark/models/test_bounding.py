"""Ranges that values are said to be in: bounds of results follow from them, rows outside count."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.errors import OptionError, QueryError
from tests.spark.models.test_streams import folder
from tests.spark.models.tracks import ended, record_of, stream_of

__all__ = ["folder"]
SAID = {"x": (-30, 30), "v": (0, 1)}


def free(df, **more):
    return el.models.fit(
        df, key="ship", time="ts", attributes=["x", "v"], max_gap="20 seconds", degree=1,
        prefix_rows=16, rounding=0, **more,
    )  # fmt: skip


def product(segments, **more):
    return segments.select(z="x * v").within({"z": 0.5}, **more)


def said_by(run):
    return " ".join(run.explain().split())


def shown(rows):
    return sorted(tuple(each) for each in rows if each.ship != 99)


@pytest.mark.large
def test_bounds_on_streams_that_depend_on_values_take_ranges(spark, folder, tmp_path):
    batch = spark.read.parquet(str(folder))
    wanted = product(free(batch), ranges=SAID).sample("3 seconds")
    live = free(stream_of(spark, folder, 2), name="tracks")
    query = product(live, ranges=SAID, split="equal").sample("3 seconds")
    run = ended(query, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert shown(found) == shown(wanted.collect())
    assert len(found) > 50
    assert max(each.err_z for each in found) <= 0.5
    n_outside = batch.where("abs(x) > 30 OR v NOT BETWEEN 0 AND 1").count()
    record = record_of(run)
    assert record.n_outside == n_outside
    assert "x from -30 to 30, v from 0 to 1 is assumed" in said_by(run)


@pytest.mark.large
def test_rows_outside_are_counted_and_errors_of_results_say_so(spark, folder, tmp_path):
    live = free(stream_of(spark, folder, 4), name="tracks").select(z="x * x")
    query = live.within({"z": 0.5}, ranges={"X": (-0.05, 0.05)})
    run = ended(query.sample("3 seconds"), tmp_path)
    record = record_of(run)
    outside = spark.read.parquet(str(folder)).where("abs(x) > 0.05 AND ship <> 99").count()
    assert record.n_outside == outside > 0
    assert f"{outside} rows outside" in said_by(run)
    beyond = spark.read.parquet(str(tmp_path / "out")).where("err_z > 0.5").count()
    assert record.n_beyond == beyond > 0


def test_gradient_takes_how_fast_values_change(spark, folder):
    live, batch = (
        free(each) for each in (stream_of(spark, folder, 4), spark.read.parquet(str(folder)))
    )
    said = {"x": (-30, 30), "v": (0, 1), "d(x)": (-2, 1), "d(v)": (0, 0.5)}
    for each in (live, batch):
        asked = each.select(z="x + v").within({"z": 1.0}, split="gradient", ranges=said)
        assert "fit x within 0.8, v within 0.2;" in repr(asked)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (product, OptionError, r"'z' multiplies attributes.*ranges=\{'x'"),
        (
            lambda s: s.select(z="x - v").within({"z": 1}, split="gradient"),
            OptionError,
            r"by how fast it moves.*ranges=\{'x'",
        ),
        (lambda s: product(s, ranges={"x": (0, 1)}), OptionError, "how near 'v' has to be"),
        (lambda s: product(s, ranges={"z": (0, 1)}), QueryError, "unknown modelled attribute 'z'"),
        (
            lambda s: product(s, ranges=SAID).within({"z": 1}, ranges={"x": (40, 41)}),
            OptionError,
            "'x' is said to be x from -30 to 30, and x from 40 to 41",
        ),
    ],
)
def test_what_is_not_said_is_refused(spark, folder, call, error, message):
    with pytest.raises(error, match=message):
        call(free(stream_of(spark, folder, 4)))


def test_a_query_says_ranges(spark, folder):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, 4), time="ts")
    text = (
        "SELECT ship, x * v AS z FROM s MODEL (x, v) BY ship MAX GAP 20 SECONDS WITH (degree = 1) "
        "SAMPLE EVERY 3 SECONDS WITHIN 0.5"
    )
    query = engine.query(f"{text} ASSUMING x BETWEEN -30 AND 30, v BETWEEN 0 AND 1", name="z")
    assert "x from -30 to 30, v from 0 to 1 is assumed" in " ".join(map(str, query.steps))
    with pytest.raises(OptionError, match="multiplies attributes") as refused:
        engine.query(text, name="y")
    assert refused.value.facts["column"] == text.index("WITHIN 0.5") + 1
    with pytest.raises(QueryError, match="unknown modelled attribute 'z'"):
        engine.query(f"{text} ASSUMING z BETWEEN 0 AND 1", name="y")


def test_ranges_of_declared_models_are_read_of_a_batch(spark, folder):
    rows = spark.read.parquet(str(folder))
    declared = el.models.declare(
        rows, key="ship", time="ts", model={"x": "x + v * t", "v": "v"}, horizon="9 seconds"
    )
    found = product(declared).to_df().toPandas()
    assert (found.err_z <= 0.5).all()
    assert len(found) < declared.to_df().count()

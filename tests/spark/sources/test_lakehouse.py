"""Tables with a log as streams and tables of Spark's."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import eddyline as el
from eddyline.errors import OptionError
from eddyline.spark.sources import data_source
from eddyline.spark.sources.reading import table_of
from tests.sources.iceberg_tables import catalog_in, compact, make_table
from tests.sources.test_delta import EVERY, SCHEMA, added
from tests.sources.test_iceberg import EVERY as ICEBERG

pytestmark = pytest.mark.spark


def run_query(engine, query, folder, **how):
    run = query.start(
        "parquet",
        path=folder / "out",
        checkpoint=folder / "ckpt",
        trigger="available_now",
        **how,
    )
    assert run.await_termination(120)
    return run


def test_a_delta_table_is_read_as_spark_reads_its_files(spark, tmp_path):
    write_deltalake(tmp_path / "t", EVERY)
    mine = table_of(spark, el.delta(tmp_path / "t"))
    theirs = spark.read.parquet(str(tmp_path / "t"))
    assert mine.schema == theirs.schema
    assert mine.toArrow() == theirs.toArrow()


@pytest.mark.large("reads by five jobs of Python workers")
def test_a_table_is_read_at_a_version(spark, tmp_path):
    added(tmp_path, range(3))
    added(tmp_path, range(3, 5))
    source = el.delta(tmp_path)
    assert table_of(spark, source, {"version": 0}).count() == 3
    assert table_of(spark, source).count() == 5
    el.register_sources(spark)
    assert spark.read.format("eddyline_delta").option("path", str(tmp_path)).load().count() == 5


@pytest.mark.large("starts a query twice")
def test_a_column_that_was_added_is_read_after_a_restart(spark, tmp_path):
    table = tmp_path / "table"
    added(table, range(3))
    for is_new in (False, True):
        engine = el.Engine(spark)
        engine.stream("s", el.delta(table))
        run_query(engine, engine.query("SELECT id, p FROM s WHERE id <> 1", name="q"), tmp_path)
        if not is_new:
            rows = pa.table({"id": [3, 4], "p": ["x", "y"], "q": [0.5, None]})
            write_deltalake(table, rows, mode="append", schema_mode="merge")
    out = spark.read.parquet(str(tmp_path / "out")).toArrow().sort_by("id").to_pydict()
    assert out == {"id": [0, 2, 3, 4], "p": ["p 0", "p 0", "x", "y"]}


@pytest.mark.large("starts a query three times")
def test_an_iceberg_table_is_read_snapshot_by_snapshot(spark, tmp_path):
    table = make_table(tmp_path / "lake", SCHEMA)
    engine = el.Engine(spark)
    engine.stream("s", el.iceberg("db.t", catalog=catalog_in(tmp_path / "lake"), max_per_batch=2))
    query = engine.query("SELECT id, p FROM s WHERE id <> 2", name="q")
    for ids in (range(2), range(2, 7), range(7, 9)):
        table.append(pa.table({"id": ids, "p": [f"p {i}" for i in ids]}, SCHEMA))
        run_query(engine, query, tmp_path)
        compact(table)
    out = spark.read.parquet(str(tmp_path / "out")).toArrow().sort_by("id").to_pydict()
    assert out["id"] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert out["p"] == [f"p {i}" for i in out["id"]]


def test_an_iceberg_table_is_read_at_a_snapshot(spark, tmp_path):
    make_table(tmp_path, ICEBERG.schema).append(ICEBERG)
    mine = table_of(spark, el.iceberg("db.t", catalog=catalog_in(tmp_path)))
    (file,) = tmp_path.glob("db/t/data/*.parquet")
    theirs = spark.read.parquet(str(file))
    assert mine.schema == theirs.schema
    assert mine.toArrow() == theirs.toArrow()


@pytest.mark.large("starts a query three times")
def test_a_query_goes_on_where_it_stopped(spark, tmp_path):
    """A compaction between two runs brings no row again; batches have at most so many rows."""
    table = tmp_path / "table"
    added(table, range(4))
    engine = el.Engine(spark)
    source = el.delta(table, max_per_batch=2)
    engine.stream("s", source)
    query = engine.query("SELECT id, p FROM s WHERE id <> 2", name="q")
    run_query(engine, query, tmp_path)
    DeltaTable(table).optimize.compact()
    added(table, range(4, 9))
    run_query(engine, query, tmp_path)
    run_query(engine, query, tmp_path)
    out = spark.read.parquet(str(tmp_path / "out")).toArrow().sort_by("id").to_pydict()
    assert out["id"] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert out["p"] == [f"p {i % 2}" for i in out["id"]]
    sizes = [pa.parquet.read_metadata(file).num_rows for file in (tmp_path / "out").glob("batch*")]
    assert max(sizes) <= 3


def test_a_limit_of_batches_needs_a_pyspark_that_keeps_it(spark, tmp_path, monkeypatch):
    added(tmp_path, range(3))
    monkeypatch.setattr(data_source, "ReadMaxRows", None)
    with pytest.raises(OptionError, match=r"max_per_batch needs PySpark 4\.2 or later"):
        el.Engine(spark).stream("s", el.delta(tmp_path, max_per_batch=2))


@pytest.mark.large("reads by a job of Python workers")
def test_a_table_without_files_has_no_rows(spark, tmp_path):
    write_deltalake(tmp_path, EVERY.slice(0, 0))
    assert table_of(spark, el.delta(tmp_path)).count() == 0


CLICKS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("city", pa.string()), ("n", pa.int64())])


def clicks(version):
    rows = range(50 * version, 50 * version + 50)
    at = [1_700_000_000_000_000 + 1_000_000 * row for row in rows]
    cities = [None if row % 13 == 0 else f"city {row % 3}" for row in rows]
    return pa.table([pa.array(at, CLICKS.field("ts").type), cities, [*rows]], schema=CLICKS)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.large("starts a query twice over each kind of table")
def test_tasks_read_the_files_of_a_table_as_spark_hands_over_its_rows(spark, tmp_path, kind):
    if kind == "iceberg":
        table = make_table(tmp_path / "lake", CLICKS)
        catalog = catalog_in(tmp_path / "lake")
        source = el.iceberg("db.t", catalog=catalog, start="earliest", max_per_batch=60)
    else:
        source = el.delta(tmp_path / "lake", start="earliest", max_per_batch=60)
    for version in range(4):
        if kind == "iceberg":
            table.append(clicks(version))
        else:
            write_deltalake(tmp_path / "lake", clicks(version), mode="append")
    engine = el.Engine(spark)
    engine.stream("s", source, time="ts", lateness="1 second")
    text = """SELECT city, COUNT(*) AS c, SUM(n) AS total, window.end AS e
              FROM s [RANGE 20 SECONDS SLIDE 20 SECONDS] WHERE n > 4 GROUP BY city"""
    results = {}
    for lane in ("on", "off"):
        query = engine.query(text, name="q", replace=True, lane=lane)
        run = run_query(engine, query, tmp_path / lane)
        assert ("lane: no" in run.explain()) == (lane == "off")
        rows = spark.read.parquet(str(tmp_path / lane / "out")).toArrow().to_pylist()
        results[lane] = sorted(rows, key=str)
    assert results["on"] == results["off"]
    assert len(results["on"]) > 20

"""EXACT in SQL and on streams: the rows of DuckDB, however they are cut into batches."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.query.steps import FilterStep
from tests.spark.models.walks import walks

OF_STREAM = "MODEL x WITHIN 0, y WITHIN 1 % BY ship"
MODELS = f"{OF_STREAM} AT ts"
CONDITIONS = [
    "x > 21.5 AND ship <> 2",
    "x = 20 OR y < 100 AND x + y / 10 >= 30",
    "NOT (y < 101) AND (x < 18 OR fleet IS NULL)",  # NaN is above all numbers, NULL is unknown
    "x < -1e300",  # nothing
]


@pytest.fixture(scope="module")
def rows():
    """Rows with NULL, NaN, infinity, no time, no key, ties, and duplicates of an instant."""
    rows = walks(3, 100)
    rng = np.random.default_rng(3)
    rows["id"] = np.arange(len(rows))
    rows["ts"] = rows.ts.dt.tz_localize("UTC")
    rows["x"] = (rows.x * 2).round() / 2
    rows.loc[rng.random(len(rows)) < 0.03, "y"] = np.inf
    rows.loc[rng.random(len(rows)) < 0.03, "ts"] = pd.NaT
    table = pa.Table.from_pandas(rows, preserve_index=False)
    columns = {name: pa.array(rows[name].to_numpy()) for name in ("x", "y")}  # NaN is no NULL
    columns["x"] = pc.if_else(pa.array(rng.random(len(rows)) < 0.03), None, columns["x"])
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    """The rows in files, in no order, and a file without any."""
    folder = tmp_path_factory.mktemp("rows")
    for number, (at, n) in enumerate([(0, 60), (60, 0), (60, 200), (260, 40)]):
        pq.write_table(rows.slice(at, n), folder / f"{number}.parquet", coerce_timestamps="us")
    return str(folder)


@pytest.fixture(scope="module")
def df(spark, folder):
    return spark.read.parquet(folder)


def stream_of(df, folder, files):
    read = df.sparkSession.readStream.schema(df.schema).option("maxFilesPerTrigger", files)
    return read.parquet(folder)


def wanted(rows, text, columns="id"):
    return rounded(duckdb.sql(f"SELECT {columns} FROM rows WHERE {text}").fetchall())


def rounded(rows):
    return sorted(map(tuple, rows), key=repr)


def after(query, tmp_path):
    """Return what a stream has given when all is read."""
    path = str(tmp_path / "out")
    run = query.start(
        "parquet", path=path, checkpoint=str(tmp_path / "ckpt"), trigger="available_now"
    )
    run.await_termination()
    return query.source.sparkSession.read.schema(query.shape.schema).parquet(path).collect()


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_table_gives_the_rows_of_duckdb(spark, df, rows, text):
    engine = el.Engine(spark)
    engine.table("s", df)
    columns = "ship, x * 2 AS z, id, ts"
    query = engine.query(f"SELECT {columns} FROM s {MODELS} WHERE {text} EXACT")
    asked = [tuple(each) for each in query.to_df().select("id", "ship", "z").collect()]
    assert repr(rounded(asked)) == repr(wanted(rows, text, "id, ship, x * 2"))
    assert query.to_df().columns == ["ship", "z", "id", "ts"]


@pytest.mark.large
@pytest.mark.parametrize("within", [0.0, 1.0])
def test_segments_that_are_kept_leave_rows_unread(spark, df, rows, within):
    bounds = {"x": within, "y": within}
    fitted = el.models.fit(df, key="ship", time="ts", within=bounds, max_gap="2 minutes")
    engine = el.Engine(spark)
    engine.table("s", df)
    engine.table("kept", fitted.to_df().persist())
    for text, is_pruned in [
        ("k.x > 25 AND NOT (k.y < 101) AND fleet IS NOT NULL AND ship <> 2", True),
        ("(k.x < 18 OR fleet IS NULL) AND sqrt(k.x) > 3", False),
    ]:
        query = engine.query(
            f"SELECT id, x + y AS z FROM kept MODEL SEGMENTS OF s AT ts AS k WHERE {text} EXACT"
        )
        expected = wanted(rows, text.replace("k.", "").replace("sqrt(x) > 3", "x > 9"))
        assert rounded(query.to_df().select("id").collect()) == expected
        read = query.relations["kept"].df.count()
        assert (len(expected) <= read < rows.num_rows) if is_pruned else read == rows.num_rows


@pytest.mark.large
def test_parts_of_union_all_and_subqueries_give_the_rows_of_duckdb(spark, df, rows):
    fitted = el.models.fit(df, key="ship", time="ts", within={"x": 1.0}, max_gap="2 minutes")
    engine = el.Engine(spark)
    engine.table("s", df)
    engine.table("kept", fitted.to_df().persist())
    parts = [
        f"SELECT id, x FROM s {MODELS} WHERE x > 21.5 AND ship <> 2 EXACT",
        "SELECT id, x FROM kept MODEL SEGMENTS OF s AT ts WHERE x > 25 AND fleet = 'f1' EXACT",
        f"SELECT id, x FROM s {MODELS} WHERE y < 100 EXACT",
    ]
    query = engine.query(" UNION ALL ".join(parts))
    assert query.relations["kept"].df.count() < rows.num_rows
    expected = duckdb.sql(
        "SELECT id FROM rows WHERE x > 21.5 AND ship <> 2 UNION ALL SELECT id FROM rows "
        "WHERE x > 25 AND fleet = 'f1' UNION ALL SELECT id FROM rows WHERE y < 100"
    ).fetchall()
    assert rounded(query.to_df().select("id").collect()) == rounded(expected)
    inner = f"SELECT id, x, y FROM s {MODELS} WHERE x > 21.5 AND ship <> 2 EXACT"
    outer = engine.query(f"SELECT id FROM ({inner}) AS a WHERE y < 101")
    found = rounded(outer.to_df().collect())
    assert found == wanted(rows, "x > 21.5 AND ship <> 2 AND y < 101")


@pytest.mark.large
def test_a_union_of_a_stream_gives_the_rows_of_duckdb(spark, df, rows, folder, tmp_path):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(df, folder, 1), time="ts", lateness="1 second")
    query = engine.query(
        f"SELECT id FROM s {OF_STREAM} WHERE x > 21.5 EXACT "
        f"UNION ALL SELECT id + 0 AS id FROM s {OF_STREAM} WHERE ship <> 2 EXACT"
    )
    assert query.shape.columns == [*query.columns] == ["id"]
    expected = wanted(rows, "x > 21.5") + wanted(rows, "ship <> 2")
    assert rounded(after(query, tmp_path)) == rounded(expected)


def test_a_table_without_rows_gives_none(spark, df):
    engine = el.Engine(spark)
    engine.table("s", df.limit(0))
    query = engine.query(f"SELECT * FROM s {MODELS} WHERE x > 3 EXACT")
    assert (query.to_df().count(), query.to_df().columns) == (0, df.columns)
    with pytest.raises(QueryError, match="reads batch DataFrames"):
        engine.start_all()


@pytest.mark.large
def test_a_stream_gives_the_rows_of_duckdb(spark, df, rows, folder, tmp_path):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(df, folder, 4), time="ts", lateness="1 second")
    text = CONDITIONS[0]
    query = engine.query(f"SELECT id FROM s {OF_STREAM} WHERE {text} EXACT")
    assert [len(each.predicates) for each in query.steps if isinstance(each, FilterStep)] == [2]
    assert rounded(after(query, tmp_path)) == wanted(rows, text)


@pytest.mark.large
def test_segments_of_a_stream_give_the_rows_of_duckdb(df, rows, folder, tmp_path):
    stream = stream_of(df, folder, 2)
    segments = el.models.declare(
        stream, key="ship", time="ts", model={"x": "x + 0 * t"}, horizon="1 minute", name="exact"
    )
    query = segments.where("ship <> 2 AND x > 20 -- a note").where("x <= 21").exact()
    assert query.name == "exact"
    (filters,) = (each for each in query.steps if isinstance(each, FilterStep))
    assert [each.text for each in filters.predicates] == ["ship <> 2", "x > 20", "x <= 21"]
    found = after(query, tmp_path)
    assert rounded([each.id] for each in found) == wanted(rows, "ship <> 2 AND x > 20 AND x <= 21")
    every = segments.exact()
    assert every.columns == query.columns
    assert not any(each.predicates for each in every.steps if isinstance(each, FilterStep))


def test_declared_attributes_are_those_of_rows_if_they_are_columns(df, rows):
    def declared(**model):
        return el.models.declare(df, key="ship", time="ts", model=model, horizon="1 minute")

    found = declared(x="x + y * t").where("x > 21").exact().select("id").collect()
    assert rounded(found) == wanted(rows, "x > 21")
    for model in ({"x": "2 * x + y * t"}, {"z": "x"}):
        (name,) = model
        with pytest.raises(NotSupportedError, match=f"rows have no '{name}', which is computed"):
            declared(**model).where(f"{name} > 3").exact()


def test_results_of_exact_are_a_stream_of_rows(spark, df, rows):
    engine = el.Engine(spark)
    engine.table("s", df)
    engine.stream("fast", engine.query(f"SELECT id, ship FROM s {MODELS} WHERE x > 21 EXACT"))
    query = engine.query("SELECT id FROM fast WHERE ship = 1")
    assert rounded(query.to_df().collect()) == wanted(rows, "x > 21 AND ship = 1")


def test_what_is_wrong_of_models_is_said_though_none_are_made(spark, df):
    engine = el.Engine(spark)
    engine.table("s", df)
    with pytest.raises(OptionError, match=r"degree.*\(line 1, column 17\)"):
        engine.query("SELECT x FROM s MODEL x WITHIN 1 BY ship AT ts WITH (degree = 99) EXACT")
    with pytest.raises(QueryError, match=r"give a number \(line 1, column 23\)"):
        engine.query("SELECT x FROM s MODEL fleet WITHIN 1 BY ship AT ts EXACT")
    with pytest.raises(QueryError, match=r"unknown column.*'z'"):
        engine.query(f"SELECT x FROM s {MODELS} WHERE z > 1 EXACT")


def test_a_stream_has_no_other_rows(spark, df, folder):
    engine = el.Engine(spark)
    engine.table("kept", el.models.fit(df, time="ts", within={"x": 1.0}).to_df())
    engine.stream("s", stream_of(df, folder, 1))
    with pytest.raises(NotSupportedError, match=r"'s' is a stream \(line 1, column 20\)"):
        engine.query("SELECT x FROM kept MODEL SEGMENTS OF s AT ts WHERE x > 3 EXACT")
    segments = el.models.fit(stream_of(df, folder, 1), time="ts", within={"x": 1.0})
    with pytest.raises(QueryError, match="takes no DataFrame"):
        segments.where("x > 3").exact(df, time="ts")

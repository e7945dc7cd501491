"""Files that the driver writes by Arrow hold what Spark's own writer would have written."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import types as T

from eddyline.spark.sinks import files
from eddyline.spark.sinks.files import FileSink

pytestmark = pytest.mark.spark

SCHEMA = """
    id bigint, flag boolean, tiny tinyint, small smallint, whole int, real float, double double,
    text string, bytes binary, day date, at timestamp, price decimal(5,2), long_price decimal(18,3),
    huge decimal(38,10), window struct<start: timestamp, `end`: timestamp>, many array<int>,
    pairs map<string, double>, inner struct<a: struct<b: string>, c: array<struct<d: date>>>
"""
ROWS = b"org.apache.spark.sql.parquet.row.metadata"
AT = [dt.datetime(2, 1, 1), dt.datetime(1500, 5, 5, 5, 5, 5, 5), dt.datetime(9999, 12, 31, 23)]
FIRST = {
    "id": 1,
    "flag": True,
    "tiny": -128,
    "small": 2**15 - 1,
    "whole": -(2**31),
    "real": float("nan"),
    "double": -0.0,
    "text": "é\x00",
    "bytes": b"\x00\xff",
    "day": dt.date(1, 1, 1),
    "at": AT[0],
    "price": decimal.Decimal("-999.99"),
    "long_price": decimal.Decimal("999999999999999.999"),
    "huge": decimal.Decimal("1" * 28 + ".0123456789"),
    "window": {"start": AT[1], "end": AT[2]},
    "many": [1, None, 3],
    "pairs": {"a": 1.5, "b": None},
    "inner": {"a": {"b": "x"}, "c": [{"d": dt.date(9999, 12, 31)}, None]},
}
EMPTY = {"id": 3, "many": [], "pairs": {}, "window": {"start": None, "end": AT[0]}, "text": ""}


@pytest.fixture
def by_spark(monkeypatch):
    """The batches that Spark wrote although the sink was given a table."""
    found, write = [], FileSink.write

    def noted(self, df, batch_id):
        found.append(batch_id)
        write(self, df, batch_id)

    monkeypatch.setattr(FileSink, "write", noted)
    return found


@pytest.fixture
def rows(spark):
    given = [{**dict.fromkeys(FIRST), **each} for each in (FIRST, {"id": 2}, EMPTY)]
    schema = T.StructType.fromDDL(SCHEMA)
    schema["id"].nullable = False
    return spark.createDataFrame([tuple(each.values()) for each in given], schema).coalesce(1)


def sink_of(path, options=None):
    sink = FileSink(path, options)
    sink.begin(continues=False)
    return sink


def physical(path):
    """The physical schema of the only file of a folder, and what Spark reads of its own notes."""
    (file,) = path.glob("batch-*")
    footer = parquet.read_metadata(file)
    text = str(footer.schema).partition("\n")[2].replace("schema", "spark_schema", 1)
    columns = [footer.schema.column(at) for at in range(footer.num_columns)]
    told = {key: value for key, value in footer.metadata.items() if b"spark" in key}
    told[ROWS] = json.loads(told[ROWS])
    codec = footer.row_group(0).column(0).compression
    return text.replace("spark_spark", "spark"), [str(each) for each in columns], told, codec


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("instants", "INT96"),
        ("instants", "TIMESTAMP_MICROS"),
        ("zone", "America/New_York"),
        ("codec", "zstd"),
        ("codec", "uncompressed"),
    ],
)
def test_a_file_is_as_spark_writes_it(spark, rows, tmp_path, by_spark, change, setting, value):
    change(**{setting: value})
    sink_of(tmp_path / "arrow").write_arrow(rows.toArrow(), rows.schema, spark, 0)
    assert by_spark == []
    sink_of(tmp_path / "spark").write(rows, 0)
    found, wanted = (spark.read.parquet(str(tmp_path / each)) for each in ("arrow", "spark"))
    assert found.schema == wanted.schema
    assert repr(found.toArrow().to_pylist()) == repr(wanted.toArrow().to_pylist())
    assert physical(tmp_path / "arrow") == physical(tmp_path / "spark")
    names = [[each.name for each in (tmp_path / at).glob("*")] for at in ("arrow", "spark")]
    assert sorted(names[0]) == sorted(names[1])


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("instants", "TIMESTAMP_MILLIS"),
        ("spark.sql.parquet.writeLegacyFormat", "true"),
        ("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"),
        ("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY"),
        ("spark.sql.files.maxRecordsPerFile", "2"),
        ("codec", "lz4_raw"),
    ],
)
def test_under_other_settings_spark_writes(spark, rows, tmp_path, by_spark, change, setting, value):
    assert files.parquet_of(spark, rows.schema, None) is not None
    change(**{setting: value})
    assert files.parquet_of(spark, rows.schema, None) is None
    if value == "lz4_raw":
        sink_of(tmp_path).write_arrow(rows.toArrow(), rows.schema, spark, 0)
        assert by_spark == [0]
        assert spark.read.parquet(str(tmp_path)).count() == 3


def test_files_that_are_encrypted_are_written_by_spark(spark, rows):
    for conf in (spark.sparkContext._jsc.hadoopConfiguration(), spark.conf):
        conf.set("parquet.crypto.factory.class", "of.some.Company")
        try:
            assert files.parquet_of(spark, rows.schema, None) is None
        finally:
            conf.unset("parquet.crypto.factory.class")
    assert files.parquet_of(spark, rows.schema, None) is not None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp_ntz", dt.datetime(2026, 1, 1)),
        ("interval day to second", dt.timedelta(1)),
        ("array<timestamp_ntz>", [dt.datetime(2026, 1, 1)]),
        ("string collate UTF8_LCASE", "a"),
    ],
)
def test_types_that_arrow_writes_otherwise_are_written_by_spark(
    spark, tmp_path, by_spark, kind, value
):
    rows = spark.createDataFrame([(value,), (None,)], f"c {kind}")
    sink_of(tmp_path).write_arrow(rows.toArrow(), rows.schema, spark, 0)
    assert by_spark == [0]
    found = spark.read.parquet(str(tmp_path)).collect()
    assert sorted(map(repr, found)) == sorted(map(repr, rows.collect()))


def test_local_times_are_written_where_instants_are_no_int96(spark, tmp_path, by_spark, change):
    rows = spark.createDataFrame([(dt.datetime(2026, 1, 1),)], "c timestamp_ntz")
    change(instants="TIMESTAMP_MICROS")
    sink_of(tmp_path).write_arrow(rows.toArrow(), rows.schema, spark, 0)
    assert by_spark == []
    assert spark.read.parquet(str(tmp_path)).collect() == rows.collect()


def test_a_batch_that_runs_again_takes_the_place_of_the_earlier_attempt(spark, tmp_path):
    sink = sink_of(tmp_path)
    like = spark.createDataFrame([], "id bigint")

    def written(ids, batch_id):
        sink.write_arrow(pa.table({"id": pa.array(ids, pa.int64())}), like.schema, spark, batch_id)
        found = spark.read.schema("id bigint").parquet(str(tmp_path))
        return sorted(each.id for each in found.collect()), len([*tmp_path.glob("batch-*")])

    assert written([], 0) == ([], 1), "the first file tells the columns"
    assert written([1, 2], 0) == ([1, 2], 1)
    assert written([], 1) == ([1, 2], 1)
    assert written([3], 1) == ([1, 2, 3], 2)
    sink.write(like, 1)
    assert written([4], 1) == ([1, 2, 4], 2), "whoever wrote the earlier one"
    (tmp_path / "_eddyline" / "batch-00000002").mkdir(parents=True)
    (tmp_path / "_eddyline" / "batch-00000002" / "part-7.parquet").write_bytes(b"half a file")
    assert written([5], 2) == ([1, 2, 4, 5], 3), "what a crash has left is no part of it"
    assert [*(tmp_path / "_eddyline").iterdir()] == []


@pytest.mark.parametrize(
    "options", [{"files": 1}, {"compression": "gzip"}, {"mergeSchema": "true"}]
)
def test_options_of_spark_alone_keep_its_writer(tmp_path, options):
    assert FileSink(tmp_path, options).takes_arrow == ("mergeSchema" not in options)
    assert not FileSink(tmp_path / "csv", options, kind="csv").takes_arrow


def test_compression_is_that_of_the_sink(spark, tmp_path, by_spark):
    rows = spark.createDataFrame([(at,) for at in np.arange(9).tolist()], "id bigint").coalesce(1)
    sink_of(tmp_path / "a", {"compression": "gzip"}).write_arrow(
        rows.toArrow(), rows.schema, spark, 0
    )
    assert by_spark == []
    sink_of(tmp_path / "b", {"compression": "gzip"}).write(rows, 0)
    assert physical(tmp_path / "a") == physical(tmp_path / "b")
    assert [each.name for each in (tmp_path / "a").glob("batch-*")] == [
        "batch-00000000-00000.gz.parquet" if "gz" in name else name
        for name in (each.name for each in (tmp_path / "b").glob("batch-*"))
    ]

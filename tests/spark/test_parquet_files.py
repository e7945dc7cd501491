"""Columns that are read without Spark are those that Spark infers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.parquet_files import schema_of

TABLE = pa.table(
    {
        "b": pa.array([True, None]),
        "i": pa.array([1, None], pa.int32()),
        "n": pa.array([1, None], pa.int64()),
        "x": pa.array([1.5, None]),
        "f": pa.array([1.5, None], pa.float32()),
        "t": pa.array(["a", None]),
        "large": pa.array(["a", None], pa.large_string()),
        "raw": pa.array([b"a", None]),
        "day": pa.array([dt.date(2026, 1, 1), None]),
        "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "local": pa.array([dt.datetime(2026, 1, 1), None], pa.timestamp("us")),
        "d": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
        "list": pa.array([["a", None], None]),
        "of": pa.array([{"n": 1, "t": None}, None], pa.struct({"n": pa.int64(), "t": pa.string()})),
    }
)


@pytest.mark.spark
def test_columns_are_those_that_spark_infers(spark, tmp_path):
    (tmp_path / "arrow").mkdir()
    pq.write_table(TABLE, tmp_path / "arrow" / "0.parquet")
    by_arrow = spark.read.parquet(str(tmp_path / "arrow"))
    by_arrow.write.parquet(str(tmp_path / "spark"))
    by_spark = spark.read.parquet(str(tmp_path / "spark"))
    assert schema_of(tmp_path / "arrow") == by_arrow.schema
    assert schema_of(tmp_path / "spark") == by_spark.schema

"""Parquet files of tests, without asking Spark, which runs a job to infer their columns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eddyline.spark.stream_files import FileStream

OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark notes the columns of a file that it writes."""


def schema_of(folder: str | Path) -> StructType:
    """Return the columns of the files of a folder, and those below it, as Spark infers them."""
    found = pq.read_schema(min(Path(folder).rglob("*.parquet")))
    noted = (found.metadata or {}).get(OF_SPARK)
    if noted is not None:
        # Whatever was known of them, what is read may lack a value.
        nullable = re.sub(rb'ull(able)?":false', rb'ull\1":true', noted)
        return StructType.fromJson(json.loads(nullable))
    return from_arrow_schema(found, prefer_timestamp_ntz=True)


def ask_rows(monkeypatch):
    """Let files of streams say nothing, so that rows are asked as those of other sources are."""
    monkeypatch.setattr(FileStream, "from_stream", classmethod(lambda _cls, _stream, *_: None))

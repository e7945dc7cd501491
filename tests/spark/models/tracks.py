"""Rows of ships in files that streams read, segments of them, and runs over all that is there."""

from __future__ import annotations

import os
from shutil import copy2

import pyarrow.parquet as pq

import eddyline as el
from eddyline.models.streams.view import ModelRecord
from tests.spark.parquet_files import schema_of

SECOND = 1_000_000
FIRST_S = 1_700_000_000


def write_files(folder, tables):
    """Write a file for each table, which Spark reads in this order; return the folder."""
    for number, table in enumerate(tables):
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (FIRST_S + number,) * 2)
    return folder


def copied(folder, other, numbers):
    """Copy files of a folder, with their times, to one that a stream reads."""
    other.mkdir(exist_ok=True)
    for number in numbers:
        copy2(folder / f"{number}.parquet", other)


def stream_of(spark, folder, files=1):
    """Return a stream of so many files in a batch."""
    read = spark.readStream.schema(schema_of(folder)).option("maxFilesPerTrigger", files)
    return read.parquet(str(folder))


def ended(query, folder):
    """Return a run over all that is there, with its sink and checkpoint in a folder."""
    run = query.start(
        "parquet",
        path=str(folder / "out"),
        checkpoint=str(folder / "checkpoint"),
        trigger="available_now",
    )
    run.await_termination()
    return run


def record_of(run):
    """Return the newest record of models."""
    return next(each for each in run.records[-1].operators if isinstance(each, ModelRecord))


def fitted(df, **more):
    return el.models.fit(
        df, key="ship", time="ts", within={"x": 1.0}, max_gap="20 seconds", degree=1,
        prefix_rows=16, **more,
    )  # fmt: skip


def declared(df, **more):
    return el.models.declare(
        df, key="ship", time="ts", model={"x": "x + v * t"}, horizon="9 seconds", **more
    )


def rounded(row):
    """Return a row as a tuple, numbers rounded."""
    return tuple(round(each, 6) if isinstance(each, float) else each for each in row)

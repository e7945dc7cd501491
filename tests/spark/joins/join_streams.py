"""Streams for tests of joins: the rows of each batch in a file of their own."""

from __future__ import annotations

import os

import pyarrow.parquet as pq

FIRST_S = 1_700_000_000
"""When the first file was last changed (s): files are read in the order of that."""


def write_batch(folder, name, number, rows):
    """Write the rows of a stream that come in one batch."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    draft = place / f".{number:05d}.parquet"
    pq.write_table(rows, draft)
    os.utime(draft, (FIRST_S + number, FIRST_S + number))
    draft.rename(place / f"{number:05d}.parquet")


def stream_of(spark, folder, name, *, schema=None):
    """Return the stream of the files that are there and to come, one for each batch."""
    path = str(folder / name)
    schema = schema or spark.read.parquet(path).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)

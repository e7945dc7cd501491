"""Streams for tests of joins: the rows of each batch in a file of their own."""

from __future__ import annotations

import os

import pyarrow.parquet as pq

from eddyline.query.select.reader import read_query
from eddyline.query.steps import steps
from eddyline.spark.analysis import column_types
from eddyline.spark.python_workers import load_ahead
from eddyline.spark.query import Query
from eddyline.spark.relation import Relation
from eddyline.spark.run.chain import Chain
from tests.spark.parquet_files import schema_of

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
    schema = schema or schema_of(path)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)


def run_to_end(query, folder, sink="out"):
    """Start a query over all that is there, with files and a checkpoint in a folder; its run."""
    where = {"path": str(folder / sink), "checkpoint": str(folder / "ckpt")}
    return ended(query, "parquet", **where)


def ended(query, *sink, **where):
    """The run of a query over all that is there."""
    run = query.start(*sink, **where, trigger="available_now")
    assert run.await_termination(400)
    return run


def told(run):
    """What a run says of itself, as one line."""
    return " ".join(run.explain().split())


def n_jobs(spark):
    """The jobs that Spark has run so far, that which starts the workers of a session among them."""
    if (thread := load_ahead(spark, ["eddyline.spark.joins.task"])) is not None:
        thread.join()
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


def commit_fails_once(monkeypatch, batch_id):
    """Let a batch fail once, when its results are written and its state is not committed."""
    commit, failed = Chain.commit, []

    def failing(self, seen, batch):
        if batch.id == batch_id and not failed:
            failed.append(True)
            raise OSError("the disk is gone")
        commit(self, seen, batch)

    monkeypatch.setattr(Chain, "commit", failing)


def join_of(text, frames, times, lateness=None, name="join", functions=None, **options):
    """A join of DataFrames, by its text."""
    lateness = lateness or {}
    relations = {
        each: Relation(df, times.get(each), lateness.get(each)) for each, df in frames.items()
    }
    columns = {each: column_types(df) for each, df in frames.items()}
    tables = [each for each in frames if times.get(each) is None]
    query = read_query(text, columns, functions or {}, tables=tables, times=times)
    return Query(name, text, steps(query), relations, options)


def value_of(join):
    """The query of a join as a value."""
    columns = {name: column_types(each.df) for name, each in join.relations.items()}
    return read_query(join.text, columns)

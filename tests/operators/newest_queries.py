"""Queries with the operator that only tests know, and their rows by DuckDB."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import eddyline as el
from eddyline.query.steps import RESULT
from tests.operators.newest import NewestStep
from tests.spark.joins.join_streams import stream_of, write_batch

N_BATCHES, N_ROWS = 5, 400
SCHEMA = "id BIGINT, ts TIMESTAMP, k BIGINT, v BIGINT"

TEXT = "SELECT id, k, v FROM s WHERE v % 10 <> 7 AND id >= 0"
NEWEST = NewestStep("s", "k", "v", ("id",))

JOIN = (
    "SELECT greatest(s.id, t.id) AS came, s.id AS a, t.id AS b, s.k AS k, s.v + t.v AS v "
    "FROM s [RANGE 6 SECONDS], t [RANGE 3 SECONDS] "
    "WHERE s.k = t.k AND s.v % 10 <> 7 AND fair(t.v) AND s.v <> t.v"
)
NEWEST_RESULT = NewestStep(RESULT, "k", "v", ("came", "a", "b"))
"""A result comes with the later of its rows: their numbers ascend from batch to batch."""

ROWS = {
    "newest": "SELECT id, k, v, batch, id AS came, 0 AS a, 0 AS b FROM s WHERE v % 10 <> 7",
    "joined": "SELECT greatest(s.batch, t.batch) AS batch, greatest(s.id, t.id) AS came, "
    "s.id AS a, t.id AS b, s.k AS k, s.v + t.v AS v "
    "FROM s JOIN t ON s.k = t.k WHERE s.v % 10 <> 7 AND t.v > 5 AND s.v <> t.v "
    "AND greatest(s.ts, t.ts) <= least(s.ts + INTERVAL 6 SECONDS, t.ts + INTERVAL 3 SECONDS)",
}
COLUMNS = {"newest": "id, k, v", "joined": "came, a, b, k, v"}


def rows_of(name, number):
    """Rows of few keys: their versions rise slowly, so that soon most rows are stale.

    They are of seconds 2n to 2n + 3, so that batches overlap.
    """
    drawn = random.Random(f"{name}{number}")
    keys, versions = [None, *range(20)], [None, *range(100 + 5 * number)]
    seconds = [2 * number + drawn.randrange(4) for _ in range(N_ROWS)]
    return pa.table(
        {
            "id": pa.array(range(number * N_ROWS, (number + 1) * N_ROWS), pa.int64()),
            "ts": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            "k": pa.array([drawn.choice(keys) for _ in range(N_ROWS)], pa.int64()),
            "v": pa.array([drawn.choice(versions) for _ in range(N_ROWS)], pa.int64()),
        }
    )


def write(folder, n_batches):
    """Write the batches of both streams."""
    for number in range(n_batches):
        for name in "st":
            write_batch(folder, name, number, rows_of(name, number))


def expected(name, n_batches):
    """Return what a query comes to after some files of each stream, by DuckDB."""
    before = (
        "max(v) OVER (PARTITION BY k ORDER BY batch, came, a, b "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    with duckdb.connect() as connection:
        for each in "st":
            files = []
            for number in range(n_batches):
                rows = rows_of(each, number)
                files.append(rows.append_column("batch", pa.array([number] * rows.num_rows)))
            connection.register(each, pa.concat_tables(files))
        return connection.sql(
            f"SELECT {COLUMNS[name]} FROM (SELECT *, {before} AS before FROM ({ROWS[name]})) "
            "WHERE v IS NOT NULL AND (before IS NULL OR v > before) ORDER BY ALL"
        ).fetchall()


def engine_over(spark, folder):
    engine = el.Engine(spark)
    for name in "st":
        stream = stream_of(spark, folder, name, schema=SCHEMA)
        engine.stream(name, stream, time="ts", lateness="2 seconds")
    engine.function("fair", lambda v: pc.greater(v, 5), reads=["v"])
    return engine


def query_over(spark, folder, *, name="newest", step=NEWEST, **options):
    """Return a query with the new step before its last one."""
    made = engine_over(spark, folder).query(TEXT, name=name, **options)
    return made.with_steps(*made.steps[:-1], step, made.steps[-1])


def join_over(spark, folder, *, name="joined", **options):
    """Return a join with the new step behind it."""
    made = engine_over(spark, folder).query(JOIN, name=name, buckets=2, **options)
    return made.with_steps(*made.steps, NEWEST_RESULT)

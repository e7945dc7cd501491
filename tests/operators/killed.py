"""A query with the operator that only tests know; as a script, to be killed on the way."""

from __future__ import annotations

import random

import pyarrow as pa

import eddyline as el
from eddyline.spark.operators import OPERATORS
from tests.operators.newest import NewestOperator, NewestStep
from tests.spark.joins.join_streams import stream_of
from tests.spark.processes import main

N_ROWS = 400
TEXT = "SELECT id, k, v FROM s WHERE v % 10 <> 7 AND id >= 0"
NEWEST = NewestStep("s", "k", "v", ("id",))
ANSWER = """
SELECT id, k, v FROM (
  SELECT id, k, v, max(v) OVER (
    PARTITION BY k ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM s WHERE v % 10 <> 7)
WHERE v IS NOT NULL AND (before IS NULL OR v > before) ORDER BY ALL
"""


def rows_of(number):
    """Rows of few keys: their versions rise slowly, so that soon most rows are stale."""
    drawn = random.Random(number)
    keys, versions = [None, *range(20)], [None, *range(100 + 5 * number)]
    return pa.table(
        {
            "id": pa.array(range(number * N_ROWS, (number + 1) * N_ROWS), pa.int64()),
            "k": pa.array([drawn.choice(keys) for _ in range(N_ROWS)], pa.int64()),
            "v": pa.array([drawn.choice(versions) for _ in range(N_ROWS)], pa.int64()),
        }
    )


def query_over(spark, folder, *, name="newest", step=NEWEST, **options):
    """Return a query with the new step before its last one."""
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s", schema="id BIGINT, k BIGINT, v BIGINT"))
    made = engine.query(TEXT, name=name, **options)
    return made.with_steps(*made.steps[:-1], step, made.steps[-1])


def start(spark, folder):
    """Start the query over what is there."""
    OPERATORS[NewestStep] = NewestOperator.of
    out, checkpoint = str(folder / "out"), str(folder / "ckpt")
    query = query_over(spark, folder)
    return [query.start("parquet", path=out, checkpoint=checkpoint, trigger="available_now")]


if __name__ == "__main__":
    main(start)

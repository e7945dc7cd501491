"""A query of each operator over two streams of files; as a script, to be killed on the way."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc

import eddyline as el
from tests.spark.joins.join_streams import stream_of
from tests.spark.processes import main

N_ROWS = 500
SCHEMA = "id BIGINT, ts TIMESTAMP, k BIGINT"
FILTERS = "SELECT id FROM s WHERE often(k) AND k % 7 <> 3"
RULES = {"low": "k < 20", "odd": "k % 2 = 1 AND id % 3 = 0"}
JOIN = "SELECT s.id AS a, t.id AS b FROM s [RANGE 6 SECONDS], t [RANGE 3 SECONDS] WHERE s.k = t.k"


def rows_of(name, number):
    """Rows of a stream in one batch, of seconds 2n to 2n + 3, so that batches overlap."""
    drawn = random.Random(f"{name}{number}")
    seconds = [2 * number + drawn.randrange(4) for _ in range(N_ROWS)]
    return pa.table(
        {
            "id": pa.array(range(number * N_ROWS, (number + 1) * N_ROWS), pa.int64()),
            "ts": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            "k": pa.array([drawn.randrange(100) for _ in seconds], pa.int64()),
        }
    )


def start(spark, folder):
    """Start the queries over what is there, each with a sink and a checkpoint of its own."""
    engine = el.Engine(spark)
    engine.function("often", lambda k: pc.less(k, 90), reads=["k"])
    streams = {name: stream_of(spark, folder, name, schema=SCHEMA) for name in "st"}
    for name, stream in streams.items():
        engine.stream(name, stream, time="ts", lateness="2 seconds")

    def paths(name):
        path, checkpoint = str(folder / "out" / name), str(folder / "ckpt" / name)
        return {"path": path, "checkpoint": checkpoint, "trigger": "available_now"}

    filters, join = (
        engine.query(text, name=name, **options).start("parquet", **paths(name))
        for name, text, options in (("filters", FILTERS, {}), ("join", JOIN, {"buckets": 2}))
    )
    rules = el.RuleSet(RULES, name="rules")
    return filters, join, rules.start(streams["s"], "parquet", **paths("rules"))


if __name__ == "__main__":
    main(start)

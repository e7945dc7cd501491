"""A condition in AND, HAVING or ON guards a division, in conditions and in output columns alike."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddyline as el
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = [
    pytest.mark.spark,
    pytest.mark.large,  # six queries over three batches each: 20 s on two idle cores
    pytest.mark.filterwarnings("ignore::eddyline.errors.UnboundedStateWarning"),
]

MINUTE = 60_000_000
N_BATCHES = 3

PAIRS = sorted(("b", b, b) for b in (1, 2)) + [("c", 5, 5)] * N_BATCHES
QUERIES = {
    "where": (
        "SELECT k, 10 DIV v AS x FROM s WHERE v <> 0 AND 10 / v > 1",
        [("b", 5), ("b", 10), *[("c", 2)] * N_BATCHES],
    ),
    "columns": (
        "SELECT k, CASE WHEN v <> 0 THEN 10 DIV v END AS x FROM s WHERE k <> 'b'",
        [*[("a", None)] * N_BATCHES, *[("c", 2)] * N_BATCHES],
    ),
    "having": (
        "SELECT k, 10 DIV SUM(v) AS x FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k "
        "HAVING SUM(v) <> 0",
        [("c", 2)],  # the first window alone has ended
    ),
    "having of changes": (
        "SELECT k, 10 DIV SUM(v) AS x FROM s GROUP BY k HAVING SUM(v) <> 0 AND 10 / SUM(v) > 0.9",
        [("b", 10), ("c", 1), ("c", 2)],  # rows of the last batch may still have earlier ones
    ),
    "inner join": (
        "SELECT s.k, s.v, t.v AS w FROM s [RANGE 1 SECOND], t [RANGE 1 SECOND] "
        "WHERE s.k = t.k AND t.v <> 0 AND 10 / t.v > 1",
        PAIRS,
    ),
    "left join": (
        "SELECT s.k, s.v, t.v AS w FROM s [RANGE 1 SECOND] LEFT JOIN t [RANGE 1 SECOND] "
        "ON s.k = t.k AND t.v <> 0 AND 10 / t.v > 1 WHERE s.k <> 'a' AND s.v <> 0",
        PAIRS,
    ),
}


def test_rows_that_a_condition_drops_divide_nothing(spark, tmp_path):
    for number in range(N_BATCHES):
        times = pa.array([number * MINUTE] * 3, pa.timestamp("us", "UTC"))
        table = pa.table({"k": ["a", "b", "c"], "v": [0, number, 5], "ts": times})
        write_batch(tmp_path, "s", number, table)
    stream = stream_of(spark, tmp_path, "s")
    for name, (text, expected) in QUERIES.items():
        engine = el.Engine(spark)
        for alias in "st":
            engine.stream(alias, stream, time="ts", lateness="1 second")
        run = engine.query(text, name=name.replace(" ", "_")).start(
            "memory", trigger="available_now"
        )
        assert run.await_termination(120)
        rows = sorted((tuple(row) for row in run.to_df().collect()), key=repr)
        assert rows == sorted(expected, key=repr), name

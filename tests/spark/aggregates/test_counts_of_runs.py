"""An aggregate counts the rows of its newest batch and of all batches, whatever its window."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddyline as el
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark

SECOND = 1_000_000
T0 = 1_700_000_000 * SECOND
N_BATCHES, N_ROWS = 3, 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("values")
    for number in range(N_BATCHES):
        ids = range(number * N_ROWS, (number + 1) * N_ROWS)
        columns = {
            "ts": pa.array([T0 + i * SECOND for i in ids], pa.timestamp("us", "UTC")),
            "k": pa.array([None if i % 6 == 0 else f"{i % 6}" for i in ids]),
        }
        write_batch(made, "s", number, pa.table(columns))
    return made


@pytest.mark.large
@pytest.mark.parametrize(
    "window", ["RANGE 1 MINUTE SLIDE 30 SECONDS", "SESSION 5 SECONDS", "ROWS 9"]
)
def test_the_rows_of_the_newest_batch_and_of_all_are_counted(spark, folder, window):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="0 seconds")
    columns = "k, COUNT(*) AS n, window.end AS at"
    query = engine.query(f"SELECT {columns} FROM s [{window}] GROUP BY k", name=window.split()[0])
    run = ended(query)
    view = next(each.facts() for each in run.chain.operators if each.name == "aggregate")
    n_rows = [each.n_rows for each in run.records]
    assert (view.newest.n_rows, view.total.n_rows) == (n_rows[-1], sum(n_rows))

"""Values over time of a few groups, as a run knows them: those that it gave."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddyline as el
from eddyline.aggregates.samples import MOST_GROUPS, MOST_MARKED
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
            "k": pa.array([None if i % 6 == 0 else f"{i % 6} " * 40 for i in ids]),
            "v": pa.array([i * 31 % 17 - 8 for i in ids], pa.int64()),
        }
        write_batch(made, "s", number, pa.table(columns))
    return made


@pytest.mark.large
@pytest.mark.parametrize(
    "window", ["RANGE 1 MINUTE SLIDE 30 SECONDS", "SESSION 5 SECONDS", "ROWS 9"]
)
def test_values_are_those_of_results(spark, folder, window):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="0 seconds")
    columns = "k, COUNT(*) AS n, AVG(v) AS m, MAX(k) AS t, window.end AS at"
    query = engine.query(f"SELECT {columns} FROM s [{window}] GROUP BY k", name=window.split()[0])
    run = ended(query)
    given = {
        ("NULL" if row["k"] is None else row["k"][:40], row["at"]): (row["n"], row["m"])
        for row in run.to_arrow().to_pylist()
    }
    view = next(each.view() for each in run.chain.operators if each.name == "aggregate")
    n_rows = [each.n_rows for each in run.records]
    assert (view.newest.n_rows, view.total.n_rows) == (n_rows[-1], sum(n_rows))
    assert view.values == ("COUNT(*)", "AVG(v)")
    assert len(view.series) == MOST_GROUPS
    for each in view.series:
        assert len(each.name) <= 40
        assert 1 <= len(each.points) <= N_BATCHES * MOST_MARKED
        for point in each.points:
            found = given.get(
                (each.name, pa.scalar(point.instant, pa.timestamp("us", "UTC")).as_py())
            )
            if found is not None or window != "ROWS 9":  # there a change may be none
                assert point.values == pytest.approx(found)
    assert "Values of a few groups" in run.explain()

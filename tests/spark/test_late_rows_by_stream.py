"""Late rows are found by the name of their stream, however a query is nested."""

from __future__ import annotations

import datetime as dt
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import QueryError
from eddyline.spark.run.run import _is_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BATCHES = [[0, 100], [5, 200]]
"""Seconds; 5 is late."""

START = dt.datetime(2024, 3, 10)


@pytest.mark.parametrize(
    ("keeper", "stream", "is_of"),
    [
        ("n", "n", True),
        ("n (1)", "n", True),
        ("n (1), n (2)", "n", True),
        ("outer.part 1.n", "n", True),
        ("a.b (1)", "a.b", True),
        ("n (1), m (2)", "n", False),
        ("mn (1)", "n", False),
    ],
)
def test_an_input_is_of_one_stream(keeper, stream, is_of):
    assert _is_of(keeper, stream) is is_of


@pytest.mark.large
@pytest.mark.filterwarnings("ignore::eddyline.errors.LatenessWarning")
def test_late_rows_of_a_subquery_have_the_name_and_type_of_their_stream(spark, tmp_path):
    engine = el.Engine(spark)
    for name in ("n", "m"):
        (tmp_path / name).mkdir()
        for number, seconds in enumerate(BATCHES):
            times = [START + dt.timedelta(seconds=each) for each in seconds]
            file = tmp_path / name / f"{number}.parquet"
            pq.write_table(pa.table({"ts": pa.array(times, pa.timestamp("us"))}), file)
            os.utime(file, (1_000 + number, 1_000 + number))
        reader = spark.readStream.schema("ts timestamp_ntz").option("maxFilesPerTrigger", 1)
        engine.stream(name, reader.parquet(str(tmp_path / name)), time="ts", lateness="0 seconds")
    count = "SELECT window.end AS e, count(*) AS n FROM ({}) x GROUP BY window(ts, '10 seconds')"
    both = "SELECT ts FROM n UNION ALL SELECT ts FROM n"
    for number, text in enumerate(["SELECT ts FROM n WHERE ts IS NOT NULL", both]):
        query = engine.query(count.format(text), name=f"q{number}")
        run = query.start(checkpoint=str(tmp_path / f"c{number}"), trigger="available_now")
        assert run.await_termination(120)
        late = run.late_rows("n")
        assert late["_time"].type == pa.timestamp("us")
        expected = [START + dt.timedelta(seconds=5)] * (number + 1)
        assert late["_time"].to_pylist() == expected
        with pytest.raises(QueryError, match="unknown input 'm'; known: "):
            run.late_rows("m")

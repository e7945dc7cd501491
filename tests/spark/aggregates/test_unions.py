"""UNION ALL of parts that call Python, aggregate or join, against DuckDB."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.aggregates.test_composed import (
    answers,
    end,
    engine,  # noqa: F401 - a fixture
    folder,  # noqa: F401
    low,  # noqa: F401
    of_duckdb,
)

pytestmark = pytest.mark.spark

WINDOW = "[RANGE 5 SECONDS SLIDE 5 SECONDS]"


@pytest.mark.large
def test_parts_that_call_python_are_aggregated(engine, folder, low):  # noqa: F811
    engine.function("often", lambda v: v.to_numpy() % 3 == 0, reads=["v"], arrays="arrow")
    both = "SELECT k, ts, v FROM s WHERE often(v) AND v > 100 UNION ALL SELECT k, ts, -v FROM t"
    engine.stream("both", engine.query(both), time="ts")
    text = f"SELECT k, window.end AS e, count(*) AS n, sum(v) AS s FROM both {WINDOW} GROUP BY k"
    wanted = (
        "WITH b AS (SELECT k, t, v FROM s WHERE v % 3 = 0 AND v > 100 "
        f"UNION ALL SELECT k, t, -v FROM s) SELECT k, {end(5)} AS e, count(*), sum(v)::BIGINT "
        f"FROM b GROUP BY k, e HAVING e <= {low}"
    )
    found = answers(ended(engine.query(text)))
    assert found == of_duckdb(folder, wanted)
    assert len(found) > 20


@pytest.mark.large
def test_aggregates_of_two_streams_are_aggregated(engine, folder, low):  # noqa: F811
    part = "SELECT k, window.end AS e, {0} AS n FROM {1} [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
    both = f"{part.format('count(*)', 's')} UNION ALL {part.format('max(v)', 't')}"
    engine.stream("both", engine.query(both), time="e")
    text = f"SELECT window.end AS e, count(*) AS n, sum(n) AS s FROM both {WINDOW}"
    inner = f"SELECT k, {end(1)} AS e, {{0}} AS n FROM s GROUP BY ALL"
    wanted = (
        f"WITH b AS ({inner.format('count(*)')} UNION ALL {inner.format('max(v)')}) "
        f"SELECT {end(5, '(e - 1)')} AS w, count(*), sum(n)::BIGINT FROM b GROUP BY w "
        f"HAVING w <= {low}"
    )
    found = answers(ended(engine.query(text)))
    assert found == of_duckdb(folder, wanted)
    assert len(found) > 4


@pytest.mark.large
def test_a_row_that_a_part_of_an_outer_union_waits_for_is_not_late(spark, tmp_path):
    seconds = {"s": [[100], [60, 200]], "t": [[100], [200]], "v": [[50], [200]]}
    streams = el.Engine(spark)
    streams.function("always", lambda ts: np.ones(len(ts), np.bool_), reads=["ts"], arrays="arrow")
    for name, batches in seconds.items():
        (tmp_path / name).mkdir()
        for number, each in enumerate(batches):
            at = pa.array([1_000_000 * second for second in each], pa.timestamp("us", "UTC"))
            file = tmp_path / name / f"{number}.parquet"
            pq.write_table(pa.table({"ts": at}), file)
            os.utime(file, (1_000 + number, 1_000 + number))
        reader = spark.readStream.schema("ts timestamp").option("maxFilesPerTrigger", 1)
        rows = reader.parquet(str(tmp_path / name))
        streams.stream(name, rows, time="ts", lateness="0 seconds")
    part = "SELECT ts FROM {} WHERE always(ts)"
    for name, parts in {"two": "st", "three": ["two", "v"]}.items():
        text = " UNION ALL ".join(map(part.format, parts))
        streams.stream(name, streams.query(text, name=f"of_{name}"), time="ts")
    run = streams.query(
        "SELECT window.end, count(*) AS n FROM three [RANGE 10 SECONDS SLIDE 10 SECONDS]"
    ).start(checkpoint=str(tmp_path / "ckpt"), trigger="available_now")
    assert run.await_termination(120)
    found = {int(each["end"].timestamp()): each["n"] for each in run.to_arrow().to_pylist()}
    assert found == {60: 1, 70: 1, 110: 2}
    assert run.late_rows("three.part 1.two.part 1.s").num_rows == 0
    assert run.late_rows("v").column_names == ["ts", "_time"]

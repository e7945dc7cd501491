"""Streams are read with the columns that queries use."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddyline as el
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, ts TIMESTAMP, k BIGINT, v BIGINT, w STRING"
COLUMNS = ["id", "ts", "k", "v", "w"]


@pytest.fixture
def engine(spark, tmp_path):
    rows = {
        "id": pa.array(range(8), pa.int64()),
        "ts": pa.array([at * 1_000_000 for at in range(8)], pa.timestamp("us", "UTC")),
        "k": pa.array([at % 2 for at in range(8)], pa.int64()),
        "v": pa.array(range(8), pa.int64()),
        "w": pa.array(list("abcdefgh")),
    }
    write_batch(tmp_path, "s", 0, pa.table(rows))
    write_batch(tmp_path, "s", 1, pa.table(rows).slice(0, 1))
    with el.Engine(spark) as made:
        made.stream("s", stream_of(spark, tmp_path, "s", schema=SCHEMA), time="ts")
        yield made


def ended(run):
    assert run.await_termination(120)
    return run


def started(engine, texts):
    for name, text in texts.items():
        engine.query(text, name=name)
    return engine.start_all(trigger="available_now")


COUNTS = "SELECT k, sum(v) AS total FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT id FROM s WHERE v > 3", ["id", "ts", "v"]),
        ("SELECT 1 AS one FROM s", ["ts"]),
        (COUNTS, ["ts", "k", "v"]),
        ("SELECT * FROM s WHERE v > 3", COLUMNS),
    ],
)
def test_source(engine, text, read):
    assert engine.query(text).source.columns == read


@pytest.mark.large
def test_late_rows_and_facts_have_what_is_read(engine, tmp_path):
    ckpt = tmp_path / "ckpt"
    run = ended(engine.query(COUNTS).start(trigger="available_now", checkpoint=ckpt))
    late = run.late_rows("s")
    assert late.drop_columns("_time").column_names == ["ts", "k", "v"]
    assert late["v"].to_pylist() == [0]
    assert facts_of(run).calls == ("SUM(v)",)
    assert sorted(run.to_arrow().to_pylist(), key=str) == [
        {"k": 0, "total": 2},
        {"k": 1, "total": 4},
    ]


def test_queries_that_run_together_read_what_each_of_them_uses(engine):
    texts = {"a": "SELECT id FROM s WHERE v > 5", "b": "SELECT w FROM s WHERE k = 1"}
    runs = started(engine, texts)
    assert runs[0].group.scan.source.columns == ["id", "ts", "k", "v", "w"]
    found = [sorted(ended(run).to_arrow().to_pydict().popitem()[1]) for run in runs]
    assert found == [[6, 7], ["b", "d", "f", "h"]]


@pytest.mark.large
def test_aggregates_that_run_together(engine):
    texts = {"a": COUNTS, "b": COUNTS.replace("sum(v) AS total", "max(id) AS last")}
    runs = started(engine, texts)
    assert runs[0].group.scan.source.columns == ["id", "ts", "k", "v"]
    found = [sorted(map(tuple, ended(run).to_arrow().to_pylist()[0].items())) for run in runs]
    assert found == [[("k", 0), ("total", 2)], [("k", 0), ("last", 2)]]

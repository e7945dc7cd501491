"""Queries that Spark computes where it reads the stream: nothing is planned anew for a batch."""

from __future__ import annotations

from itertools import takewhile

import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException

import eddyline as el
from eddyline.errors import QueryError
from tests.spark.joins.join_streams import stream_of
from tests.spark.run.lives import SCHEMA, rows_of, write

pytestmark = pytest.mark.spark

N_BATCHES = 3


@pytest.fixture
def engine(spark, tmp_path):
    write(tmp_path, N_BATCHES)
    with el.Engine(spark) as made:
        made.stream("s", stream_of(spark, tmp_path, "s", schema=SCHEMA), time="ts")
        made.function("often", lambda k: pc.less(k, 35), reads=["k"])
        inner = made.query("SELECT id, ts, k % 2 AS odd FROM s", name="inner")
        made.stream("odd", inner)
        made.drop("inner")
        yield made


def nodes(df):
    """Return the operators that Spark has to plan for a DataFrame, from the result on."""
    found, plan = [], df._jdf.queryExecution().analyzed()
    while plan is not None:
        found.append(plan.nodeName())
        children = plan.children()
        plan = children.head() if children.nonEmpty() else None
    return found


def run_of(engine, text):
    """Return the run of a query that has ended, its rows, and what was planned of each batch."""
    planned, rows = [], []

    def take(df, _batch_id):
        planned.append(nodes(df))
        rows.extend(tuple(row.values()) for row in df.toArrow().to_pylist())

    run = engine.query(text, name="q").start(take, trigger="available_now")
    assert run.await_termination(120)
    return run, rows, planned


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("SELECT id + 1 AS more, k FROM s", lambda row: (row["id"] + 1, row["k"])),
        ("SELECT * FROM s", lambda row: tuple(row.values())),
        ("SELECT odd FROM odd", lambda row: (row["k"] % 2,)),
    ],
)
def test_columns_are_a_part_of_the_stream(engine, text, of):
    run, rows, planned = run_of(engine, text)
    came = [row for n in range(N_BATCHES) for row in rows_of("s", n).to_pylist()]
    assert sorted(rows) == sorted(map(of, came))
    assert planned == [["CollectMetrics", "LogicalRDD"]] * N_BATCHES
    counts = [rows_of("s", n).num_rows for n in range(N_BATCHES)]
    assert [(each.n_rows, each.n_kept) for each in run.records] == [(n, n) for n in counts]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, rand() AS u FROM s",
        "SELECT id, monotonically_increasing_id() AS place FROM s",
        "SELECT id, often(k) AS low FROM s",
    ],
)
def test_what_depends_on_how_rows_are_read_is_laid_over_a_batch(engine, text):
    run, rows, planned = run_of(engine, text)
    assert {each[0] for each in rows} == {
        each for n in range(N_BATCHES) for each in rows_of("s", n)["id"].to_pylist()
    }
    assert not any(each == ["CollectMetrics", "LogicalRDD"] for each in planned)
    assert all(each.n_rows == each.n_kept > 0 for each in run.records)


@pytest.mark.large
def test_windows_make_several_results_of_a_row(engine):
    run, rows, _ = run_of(engine, "SELECT id, window(ts, '20 seconds', '10 seconds') AS w FROM s")
    counts = [rows_of("s", n).num_rows for n in range(N_BATCHES)]
    timed = [pc.count(rows_of("s", n)["ts"]).as_py() for n in range(N_BATCHES)]
    assert [(each.n_rows, each.n_kept) for each in run.records] == [
        (n, 2 * n_timed) for n, n_timed in zip(counts, timed, strict=True)
    ]
    assert len(rows) == 2 * sum(timed)


def test_a_condition_behind_columns_is_told_how_many_rows_came(engine):
    run, rows, planned = run_of(engine, "SELECT id FROM odd WHERE odd = 1")
    came = [row for n in range(N_BATCHES) for row in rows_of("s", n).to_pylist()]
    assert sorted(rows) == sorted((row["id"],) for row in came if row["k"] % 2)
    counts = [rows_of("s", n).num_rows for n in range(N_BATCHES)]
    assert [each.n_rows for each in run.records] == counts
    assert [each.count("Project") for each in planned] == [1] * N_BATCHES


JOINED = "SELECT s.id, odd.id AS other FROM s [RANGE 9 SECONDS], odd [RANGE 9 SECONDS] "
LOOKED_UP = "SELECT s.id, n.name FROM s [NOW] JOIN names n ON s.k = n.key"


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "n_counts"),
    [
        (f"{JOINED} WHERE s.k = odd.odd", 1),
        (f"{JOINED} WHERE s.k = odd.odd AND s.id + odd.id > 30", 2),
        (LOOKED_UP, 1),
        (f"{LOOKED_UP} WHERE s.id + length(n.name) > 30", 2),
    ],
)
@pytest.mark.filterwarnings("ignore:.* came too late")
def test_results_of_joins_are_counted_once(spark, engine, text, n_counts):
    """By what tells of the join, unless a condition follows: then the sink's own count does."""
    engine.table(
        "names", spark.createDataFrame([(k, "a" * k) for k in range(6)], "key INT, name STRING")
    )
    run, rows, planned = run_of(engine, text)
    assert len(rows) > 10
    assert sum(each.n_kept for each in run.records) == len(rows)
    ends = {"MapInArrow", "Join"}
    above = [list(takewhile(lambda name: name not in ends, each)) for each in planned]
    assert [each.count("CollectMetrics") for each in above] == [n_counts] * N_BATCHES


def test_a_batch_that_runs_again_counts_once(engine, tmp_path):
    """A sink that fails at first: the same rows, with nothing left of the attempt before."""
    taken, fails = {}, ["full"]

    def take(df, batch_id):
        taken[batch_id] = sorted(row["k"] for row in df.collect())
        if batch_id == 1 and fails:
            raise OSError(fails.pop())

    query = engine.query("SELECT k FROM s", name="q")
    where = {"checkpoint": tmp_path / "ckpt", "trigger": "available_now"}
    with pytest.raises(StreamingQueryException, match="full"):
        query.start(take, **where).await_termination(120)
    run = query.start(take, **where)
    assert run.await_termination(120)
    assert taken == {n: sorted(rows_of("s", n)["k"].to_pylist()) for n in range(N_BATCHES)}


def test_names_of_files(engine):
    _, rows, _ = run_of(engine, "SELECT id, _metadata.file_name AS file FROM s")
    assert rows
    assert all(file.endswith(".parquet") for _, file in rows)
    assert len({file for _, file in rows}) == N_BATCHES


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, _metadata.file_name AS file FROM s WHERE id > 3",
        "SELECT more, _metadata.file_name AS file FROM "
        "(SELECT id + 1 AS more FROM s WHERE id > 3) AS t",
    ],
)
def test_names_of_files_behind_a_condition_are_refused(engine, text):
    with pytest.raises(QueryError, match="_metadata is known where Spark reads"):
        engine.query(text, name="q")


def test_a_text_that_says_metadata_is_a_text(engine):
    _, rows, _ = run_of(engine, "SELECT '_metadata' AS said FROM s WHERE id >= 0")
    assert {row[0] for row in rows} == {"_metadata"}

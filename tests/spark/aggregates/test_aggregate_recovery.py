"""Aggregates that are stopped, killed or run again give what an uninterrupted run gives."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import eddyline as el
from eddyline.errors import StateError
from tests.examples import examples
from tests.oracles.aggregate_strategies import aggregate_cases, over_cases
from tests.oracles.aggregates import differences
from tests.spark.aggregates.aggregate_streams import (
    ended,
    found,
    has_answers,
    query_of,
    settings,
    wanted,
    write_case,
)
from tests.spark.joins.join_streams import stream_of, write_batch
from tests.spark.processes import Process, soon_started

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


def is_cut(case):
    return len(case.batches) > 1 and has_answers(case)


CASES = st.one_of(aggregate_cases(), aggregate_cases(), over_cases()).filter(is_cut)
LATE_CASES = st.one_of(aggregate_cases(late=True), over_cases(late=True)).filter(is_cut)


def restarted(spark, case, folder, numbers_of_partitions):
    """Return the results of runs one after the other, and the late rows after the last one."""
    answer, checkpoint, past = [], str(folder / "ckpt"), 0
    for at, partitions in enumerate(numbers_of_partitions, 1):
        first, past = past, -(-len(case.batches) * at // len(numbers_of_partitions))
        if first == past:
            continue
        write_case(case, folder, first, past)
        with settings(spark, partitions=partitions):
            run = ended(query_of(spark, case, folder), checkpoint=checkpoint)
        answer += found(case, run.to_arrow())
    return answer, run.late_rows("s")


@given(case=CASES)
@examples(24, phases=PHASES)
def test_a_restart_goes_on(spark, case):
    with tempfile.TemporaryDirectory() as folder:
        answer, _ = restarted(spark, case, Path(folder), [2, 2])
    assert differences(answer, wanted(case)) == ([], []), case


@given(case=st.one_of(CASES, LATE_CASES), partitions=st.permutations([1, 2, 5]))
@examples(24, phases=PHASES)
def test_a_restart_goes_on_with_other_partitions(spark, case, partitions):
    with tempfile.TemporaryDirectory() as folder:
        answer, _ = restarted(spark, case, Path(folder), partitions)
    assert differences(answer, wanted(case)) == ([], []), (case, partitions)


@given(case=CASES)
@examples(16, phases=PHASES)
def test_a_batch_that_spark_runs_again_counts_once(spark, case):
    with tempfile.TemporaryDirectory() as name:
        folder, past = Path(name), len(case.batches) - 1
        where = {"path": str(folder / "out"), "checkpoint": str(folder / "ckpt")}
        write_case(case, folder, 0, past)
        for at, first in enumerate((past, past, len(case.batches))):
            if at == 1:
                write_case(case, folder, first)
            run = ended(query_of(spark, case, folder), sink="parquet", **where)
            if at < 2:
                forget(folder / "ckpt", run)
        answer = found(case, pq.read_table(folder / "out"))
    assert differences(answer, wanted(case)) == ([], []), case


def forget(checkpoint, run):
    """Make Spark run the last batch of a run again."""
    last = max(record.batch_id for record in run.records)
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "spark" / "commits" / name).unlink()


def test_a_restart_with_another_window_is_refused(spark, tmp_path):
    rows = pa.table(
        {
            "ts": pa.array([0, 1_000_000], pa.timestamp("us", "UTC")),
            "k": pa.array([1, 1], pa.int64()),
        }
    )
    write_batch(tmp_path, "s", 0, rows)
    text = "SELECT k, count(*) AS n FROM s [RANGE {} SECONDS SLIDE 1 SECOND] GROUP BY k"
    checkpoint = str(tmp_path / "ckpt")
    ended(plain_query(spark, tmp_path, text.format(2)), checkpoint=checkpoint)
    with pytest.raises(StateError, match="another query"):
        ended(plain_query(spark, tmp_path, text.format(3)), checkpoint=checkpoint)


def plain_query(spark, folder, text):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="2 seconds")
    return engine.query(text, name="windowed")


# -- kills ----------------------------------------------------------------------------------------

N_BATCHES, N_ROWS = 40, 400

FILTERED = (
    "SELECT k % 7 AS g, count(*) AS n, sum(id) AS total, max(id) AS top, "
    "count(DISTINCT k) AS d, window.end AS till FROM s [RANGE 12 SECONDS SLIDE 3 SECONDS] "
    "WHERE id % 3 <> 0 AND k < 800 GROUP BY k % 7 HAVING count(*) > 2"
)

PAIRS = (
    "SELECT greatest(s.ts, t.ts) AS ts, s.k AS k, s.id AS a, t.id AS b "
    "FROM s [RANGE 20 SECONDS], t [RANGE 10 SECONDS] "
    "WHERE s.k = t.k AND s.id % 3 <> t.id % 3"
)

JOINED = (
    "SELECT k % 7 AS g, count(*) AS n, sum(a) AS total, max(b) AS top, window.end AS till "
    "FROM pairs [RANGE 12 SECONDS SLIDE 3 SECONDS] GROUP BY k % 7"
)

SCRIPT = """
import pathlib, sys
import eddyline as el
from tests.spark.joins.join_streams import stream_of

folder, text, pairs = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
spark = el.session({"spark.driver.memory": "1g", "spark.local.dir": str(folder / "tmp"),
                    "spark.sql.warehouse.dir": str(folder / "wh")}, master="local[2,3]")
engine = el.Engine(spark)
for name in "st":
    stream = stream_of(spark, folder, name, schema="id BIGINT, ts TIMESTAMP, k BIGINT")
    engine.stream(name, stream, time="ts", lateness="2 seconds")
engine.stream("pairs", engine.query(pairs, name="pairs_query"), time="ts")
run = engine.query(text, name="q").start(
    "parquet", path=str(folder / "out"), checkpoint=str(folder / "ckpt"), trigger="available_now")
print("started", flush=True)
run.await_termination()
spark.stop()
print("done", flush=True)
"""


def rows_of(name, number):
    """The rows of a stream in one batch: seconds 4n to 4n + 5, so that batches overlap."""
    drawn = random.Random(f"{name}{number}")
    seconds = [4 * number + drawn.randrange(6) for _ in range(N_ROWS)]
    return pa.table(
        {
            "id": pa.array(range(number * N_ROWS, (number + 1) * N_ROWS), pa.int64()),
            "ts": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            "k": pa.array([drawn.randrange(900) for _ in seconds], pa.int64()),
        }
    )


def expected(text):
    """Every result that is final: lateness and batches are such that no row is late."""
    s, t = (pa.concat_tables(rows_of(name, at) for at in range(N_BATCHES)) for name in "st")
    assert s.num_rows == t.num_rows
    rows = "SELECT ts, k % 7 AS g, id AS a, id AS b, k FROM s WHERE id % 3 <> 0 AND k < 800"
    having, more, low = "HAVING count(*) > 2", ", count(DISTINCT k) AS d", "(SELECT max(ts) FROM s)"
    if text == JOINED:
        rows = (
            "SELECT greatest(s.ts, t.ts) AS ts, s.k % 7 AS g, s.id AS a, t.id AS b FROM s "
            "JOIN t USING (k) WHERE s.id % 3 <> t.id % 3 AND s.ts BETWEEN "
            "t.ts - INTERVAL 20 SECONDS AND t.ts + INTERVAL 10 SECONDS"
        )
        having, more = "", ""
        low = "(SELECT least(max(s.ts), (SELECT max(ts) FROM t)) FROM s)"
    return duckdb.sql(
        f"WITH r AS ({rows}), w AS (SELECT to_timestamp(3 * n) AS till FROM range(200) AS x(n)) "
        f"SELECT g, count(*) AS n, sum(a)::BIGINT AS total, max(b) AS top{more}, "
        "epoch_us(till) AS till FROM w "
        "JOIN r ON r.ts >= till - INTERVAL 12 SECONDS AND r.ts < till "
        f"WHERE till <= {low} - INTERVAL 2 SECONDS GROUP BY g, till {having} ORDER BY ALL"
    ).fetchall()


def got(folder):
    return duckdb.sql(
        f"SELECT * REPLACE (epoch_us(till) AS till) FROM '{folder}/out/*.parquet' ORDER BY ALL"
    ).fetchall()


def command_for(folder, text):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return script, folder, text, PAIRS


def write_streams(folder, n_batches):
    for number in range(n_batches):
        for name in "st":
            write_batch(folder, name, number, rows_of(name, number))


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "n_kills"), [(FILTERED, 8), (JOINED, 20)], ids=["filtered", "joined"]
)
def test_killed_at_random_instants(spark, tmp_path, tmp_path_factory, text, n_kills):
    one = tmp_path_factory.mktemp("one")
    write_streams(one, 1)
    write_streams(tmp_path, N_BATCHES)
    java, command = soon_started(*command_for(one, text)), command_for(tmp_path, text)
    drawn = random.Random(11)
    for _ in range(n_kills):
        process = Process(*command, java=java)
        process.await_start()
        time.sleep(drawn.uniform(0.0, 3.0))
        process.check_runs()
        process.kill()
    assert Process(*command, java=java).finish().split()[-1] == "done"
    assert got(tmp_path) == expected(text)
    manifests = tmp_path / "ckpt" / "eddyline" / "state"
    assert len(list(manifests.glob("manifest-*"))) == 2, "old manifests go"

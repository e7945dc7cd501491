"""Aggregates whose tasks read files give what those give to which Spark hands rows over."""

from __future__ import annotations

import os
import re
import shutil
from collections import namedtuple
from datetime import UTC, datetime
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pyspark.sql import functions as F

import eddyline as el
from eddyline.aggregates.loop import PLANS, AggregateLoop
from eddyline.data import parquet_spans
from eddyline.data.hashes import KINDS, add_hash, add_ints, seeds
from eddyline.errors import QueryError
from eddyline.lane import exchange
from eddyline.lane.choice import FILES
from eddyline.lane.exchange import BUCKET, by_bucket
from eddyline.spark.aggregates import operator, task
from eddyline.spark.aggregates.operator import AggregatingOperator
from tests.examples import examples
from tests.oracles.aggregate_strategies import aggregate_cases, over_cases
from tests.spark.aggregates.aggregate_streams import ended, has_answers, settings
from tests.spark.aggregates.test_any_cut import PHASES, Turning, check
from tests.spark.joins.join_streams import commit_fails_once, n_jobs, run_to_end, told

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES_ARE_ASKED = pytest.mark.parametrize("asked", ["files"], indirect=True)
BOTH_READ = pytest.mark.parametrize("reads_here", [False, True], indirect=True)

START = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def batches_read(monkeypatch):
    """The numbers of tasks of each batch whose files tasks have read."""
    found = []
    file_rows = AggregatingOperator._file_rows

    def noted(self, files, **more):
        found.append(len(files.tasks))
        return file_rows(self, files, **more)

    monkeypatch.setattr(AggregatingOperator, "_file_rows", noted)
    return found


# -- hashes and blobs -----------------------------------------------------------------------------


def test_hashes_are_those_of_spark(spark, tmp_path):
    rng = np.random.default_rng(11)
    n, texts = 300, ["", "a", "abc", "x" * 31, "ä" * 16, "y" * 33, "z" * 200, "🐟 river"]
    values = {
        "boolean": pa.array(rng.random(n) < 0.5),
        "tinyint": pa.array(rng.integers(-128, 128, n), pa.int8()),
        "smallint": pa.array(rng.integers(-(2**15), 2**15, n), pa.int16()),
        "int": pa.array(rng.integers(-(2**31), 2**31, n), pa.int32()),
        "date": pa.array(rng.integers(-(2**19), 2**20, n), pa.int32()).cast(pa.date32()),
        "bigint": pa.array(rng.integers(-(2**63), 2**63 - 1, n)),
        "timestamp": pa.array(rng.integers(-(2**50), 2**50, n)).cast(pa.timestamp("us", "UTC")),
        "timestamp_ntz": pa.array(rng.integers(-(2**50), 2**50, n)).cast(pa.timestamp("us")),
        "string": pa.array(rng.choice(texts, n)),
        "binary": pa.array(rng.choice(texts, n)).cast(pa.binary()),
    }
    assert values.keys() == set(KINDS)
    columns = {}
    for name, column in values.items():
        mask = rng.random(n) < 0.2
        columns[name] = pa.array(column.to_pylist(), column.type, mask=mask)
    parquet.write_table(pa.table(columns), tmp_path / "hashed.parquet")
    df = spark.read.parquet(str(tmp_path / "hashed.parquet"))
    for name in KINDS:
        assert dict(df.dtypes)[name] == name
    asked = [*([name] for name in KINDS), list(KINDS), list(KINDS)[::-1]]
    hashed = [F.xxhash64(F.lit(7).cast("bigint"), F.lit(3), *names) for names in asked]
    hashed.append(F.xxhash64(F.lit(3)))
    expected = df.select(*[each.alias(f"h{at}") for at, each in enumerate(hashed)]).toArrow()
    for at, names in enumerate(asked):
        found = seeds(n, 7)
        add_ints(found, np.full(n, 3))
        for name in names:
            add_hash(found, columns[name])
        assert (found == expected[f"h{at}"].to_numpy()).all(), names
        part = seeds(n - 7, 7)
        add_ints(part, np.full(n - 7, 3))
        for name in names:
            add_hash(part, columns[name].slice(7))
        assert (part == found[7:]).all(), names
    found = seeds(n)
    add_ints(found, np.full(n, 3))
    assert (found == expected[f"h{len(asked)}"].to_numpy()).all()


@given(st.lists(st.integers(0, 6), max_size=40))
def test_rows_are_parted_by_bucket_in_their_order(buckets):
    rows = pa.RecordBatch.from_pydict(
        {BUCKET: pa.array(buckets, pa.int32()), "at": pa.array(range(len(buckets)), pa.int64())}
    )
    parts = dict(by_bucket(rows, rows.column(BUCKET).to_numpy(), 7))
    assert {bucket: part.column("at").to_pylist() for bucket, part in parts.items()} == {
        bucket: [at for at, own in enumerate(buckets) if own == bucket] for bucket in {*buckets}
    }


# -- any case -------------------------------------------------------------------------------------

COMPUTED = re.compile(r"DISTINCT|SESSION|\b(abs|upper|coalesce)\b")


def may_be_read(case):
    """Return whether tasks may read the files of a case, as nothing shows that Spark computes."""
    return has_answers(case) and not COMPUTED.search(case.text)


CASES = st.one_of(aggregate_cases(), over_cases()).filter(may_be_read)


@FILES_ARE_ASKED
@BOTH_READ
@pytest.mark.large
def test_any_case_gives_what_the_definition_gives(
    spark, asked, reads_here, batches_read, monkeypatch
):
    monkeypatch.setattr(task, "REDUCED_ROWS", 7)
    monkeypatch.setattr(exchange, "BLOB_BYTES", 300)
    monkeypatch.setattr(exchange, "HELD_BYTES", 900)
    n_cases = []

    @given(case=CASES)
    @examples(40, phases=PHASES)
    def each(case):
        n_before = len(batches_read)
        check(spark, case, lane="on")
        n_cases.append(len(batches_read) > n_before)

    each()
    assert sum(n_cases) > 0.2 * len(n_cases)


@FILES_ARE_ASKED
@pytest.mark.large
def test_plans_and_ways_may_change_from_batch_to_batch(spark, asked, batches_read, monkeypatch):
    """Some batches are read by tasks, the others by Spark, under every plan."""
    files, turn = AggregatingOperator.prepare, [0]

    def prepared(self, df, batch):
        turn[0] += 1
        self.lane._wanted = "on" if turn[0] % 2 else "off"
        files(self, df, batch)

    monkeypatch.setattr(AggregatingOperator, "prepare", prepared)
    monkeypatch.setattr(operator, "AggregateLoop", Turning)

    @given(case=CASES)
    @examples(25, phases=PHASES)
    def each(case):
        check(spark, case, adaptive=False, lane="on")

    each()
    assert batches_read


# -- one stream -----------------------------------------------------------------------------------

TEXT = (
    "SELECT k, window.end AS until, count(*) AS n, sum(v) AS total, avg(v) AS mean, "
    "min(w) AS least, count(t) AS texts, first(t) AS opening "
    "FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS] GROUP BY k"
)


def write(folder, number, n_rows=400, *, seed=0, late=0, **options):
    """Write a file of 20 seconds, the first rows of which may be late (s)."""
    rng = np.random.default_rng([seed, number])
    micros = np.sort(rng.integers(0, 20_000_000, n_rows)) + 20_000_000 * number
    micros[: n_rows // 10] -= late * 1_000_000
    first = int(START.timestamp()) * 1_000_000
    table = pa.table(
        {
            "ts": pa.array(micros + first, mask=rng.random(n_rows) < 0.02).cast(
                pa.timestamp("us", "UTC")
            ),
            "k": pa.array(rng.integers(0, 12, n_rows), mask=rng.random(n_rows) < 0.1),
            "v": pa.array(rng.integers(-50, 50, n_rows) / 4, mask=rng.random(n_rows) < 0.1),
            "w": pa.array(rng.integers(-50, 50, n_rows), pa.int32()),
            "t": pa.array(rng.choice(["a", "bb", "ccc"], n_rows), mask=rng.random(n_rows) < 0.3),
        }
    )
    path = folder / f"{number}.parquet"
    parquet.write_table(table, path, row_group_size=150, **options)
    os.utime(path, (1_700_000_000 + number,) * 2)  # by which Spark takes files one after the other


def stream(spark, folder):
    schema = "ts timestamp, k bigint, v double, w int, t string"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def engine_of(spark, folder):
    engine = el.Engine(spark)
    engine.stream("s", stream(spark, folder), time="ts", lateness="1 second")
    return engine


def query(spark, folder, text=TEXT, **options):
    return engine_of(spark, folder).query(text, name="laned", **options)


def finished(engine, sink, **where):
    """Return the runs of all queries of an engine over all that is there."""
    runs = engine.start_all(sink, **where, trigger="available_now")
    for run in runs:
        assert run.await_termination(240)
    return runs


IN_LOS_ANGELES = {"zone": "America/Los_Angeles"}
"""Another time zone of the session."""


def rows_of(spark, tmp_path, name="laned"):
    found = spark.read.parquet(str(tmp_path / name / "out"))
    return sorted(map(repr, found.drop("opening").collect()))


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


Answer = namedtuple("Answer", "source rows n_late schema said")


@pytest.fixture(scope="module")
def read_by_spark(spark, tmp_path_factory):
    """Return what a query says of files that Spark scans; each is asked once."""

    @cache
    def answered(text=TEXT, n_files=3, late=0):
        folder = tmp_path_factory.mktemp("base")
        (source := folder / "in").mkdir()
        for number in range(n_files):
            write(source, number, late=late * (number == 2))
        run = run_to_end(query(spark, source, text, lane="off"), folder / "laned")
        schema = spark.read.parquet(str(folder / "laned" / "out")).schema
        n_late = run.late_rows("s").num_rows
        return Answer(source, rows_of(spark, folder), n_late, schema, told(run))

    return answered


@FILES_ARE_ASKED
@pytest.mark.large
@pytest.mark.filterwarnings("ignore::eddyline.errors.LateRowsWarning")
@pytest.mark.parametrize(
    ("plan", "has_statistics", "reads_here"),
    [
        ("driver", True, True),
        ("driver", False, True),
        *((plan, False, False) for plan in PLANS),
    ],
    indirect=["reads_here"],
)
def test_every_plan_reads_files_and_says_so(
    spark,
    read_by_spark,
    asked,
    reads_here,
    tmp_path,
    batches_read,
    monkeypatch,
    plan,
    has_statistics,
):
    """The driver reads few rows itself, and has tasks read them where they are many."""
    wanted = read_by_spark(late=40)
    assert "lane: no, because the option lane is 'off'" in wanted.said
    monkeypatch.setattr(operator, "AggregateLoop", partial(AggregateLoop, plan=plan))
    monkeypatch.setattr(parquet_spans, "MOST_ROWS_READ", 0)
    source = wanted.source
    if not has_statistics:
        (source := tmp_path / "in").mkdir()
        for number in range(3):
            write(source, number, late=40 * (number == 2), write_statistics=False)
    run = run_to_end(query(spark, source, lane="on", adaptive=False), tmp_path / "laned")
    assert run.plan() == {"aggregate": plan, "lane": FILES}
    assert batches_read == [2] * 3
    who = "the driver reads" if plan == "driver" and reads_here else "tasks read"
    assert f"lane: {who} the files of each batch" in told(run)
    assert rows_of(spark, tmp_path) == wanted.rows
    assert run.late_rows("s").num_rows == wanted.n_late > 10


@FILES_ARE_ASKED
@pytest.mark.large
def test_a_restart_may_read_rows_and_the_next_one_files(
    spark, read_by_spark, asked, source, tmp_path, batches_read
):
    for number, lane in enumerate(["on", "off", "auto"]):
        write(source, number)
        run = run_to_end(query(spark, source, lane=lane), tmp_path / "laned")
        assert ("lane" in run.plan()) == (lane != "off")
    assert len(batches_read) == 2
    assert rows_of(spark, tmp_path) == read_by_spark().rows


@FILES_ARE_ASKED
@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("sum(v)", "sum(v + 1)"), "Spark computes v + 1"),
        (TEXT.replace("GROUP BY k", "GROUP BY k % 3"), "Spark computes k % 3"),
        (TEXT.replace("sum(v)", "count(DISTINCT v)"), "Spark computes"),
        (TEXT.replace("sum(v)", "sum(v) FILTER (WHERE abs(w) > 9)"), "Spark computes abs(w) > 9"),
        (TEXT.replace("sum(v)", "first(w) FILTER (WHERE w > 0)"), "Spark computes"),
        (TEXT.replace("GROUP BY k", "GROUP BY v").replace("k,", "v,"), "tasks do not hash 'v'"),
        (
            "SELECT k, count(*) AS n FROM s [SESSION 2 SECONDS] GROUP BY k",
            "Spark puts the rows of a session together",
        ),
    ],
)
def test_why_there_is_no_lane_is_said(spark, asked, source, tmp_path, text, why):
    write(source, 0)
    asked_for = query(spark, source, text.replace("SELECT k, window", "SELECT window"))
    assert f"lane: no, because {why}" in run_to_end(asked_for, tmp_path / "laned").explain()


FILTERED = [
    "SELECT k, window.end AS until, count(*) FILTER (WHERE w > 10) AS n, count(*) AS n_all, "
    "sum(v) FILTER (WHERE w > 10) AS total, avg(v) FILTER (WHERE t = 'a' OR w < -30) AS mean, "
    "min(t) FILTER (WHERE v IS NOT NULL) AS least, max(ts) FILTER (WHERE t LIKE 'b%') AS late, "
    "count(t) FILTER (WHERE w > 10) AS texts, "
    "count_if(w BETWEEN 1 AND 9) AS few, count_if(v > 0) FILTER (WHERE w > 10) AS both, "
    "max(w) FILTER (WHERE w > 1000) AS none "
    "FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS] WHERE w <> 7 GROUP BY k",
    "SELECT ts, w, count(*) FILTER (WHERE v > 2) OVER o AS n, sum(w) FILTER (WHERE t = 'a') OVER o "
    "AS total FROM s WINDOW o AS (PARTITION BY k ORDER BY ts "
    "RANGE BETWEEN INTERVAL 3 SECONDS PRECEDING AND CURRENT ROW)",
]


ODD = [
    "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)", "k IS NULL", "NOT (w > 3)", "v IN (1.25, NULL)",
    "v NOT IN (1.25, NULL)", "t <> 'a'", "t >= 'b'", "k = w", "NOT (t LIKE '%c' AND w < 0)",
    "ts > '2026-05-01 00:00:09'", "w % 2 = 0", "v > CAST('NaN' AS DOUBLE)", "t RLIKE '^b+$'",
]  # fmt: skip
"""Conditions, some of which tasks do not evaluate."""


@FILES_ARE_ASKED
@pytest.mark.large
@pytest.mark.parametrize("reads_here", [False], indirect=True)
def test_any_condition_of_filter_counts_what_spark_counts(
    spark, asked, reads_here, source, tmp_path
):
    for number in range(2):
        write(source, number)
    calls = "count(*) FILTER (WHERE {0}) AS n, count_if({0}) AS m, sum(w) FILTER (WHERE {0}) AS s"
    n_read = 0
    for condition in ODD:
        text = f"SELECT k, {calls.format(condition)} FROM s [RANGE 5 SECONDS] GROUP BY k"
        found = {}
        for lane in ("off", "on"):
            run = ended(query(spark, source, text, lane=lane), sink="memory")
            found[lane] = sorted(map(repr, run.to_arrow().to_pylist()))
            n_read += lane == "on" and "lane: no" not in told(run)
        assert found["on"] == found["off"], condition
    assert n_read >= 8


@FILES_ARE_ASKED
@BOTH_READ
@pytest.mark.parametrize("text", [FILTERED[0], pytest.param(FILTERED[1], marks=pytest.mark.large)])
def test_conditions_of_filter_are_evaluated_over_the_files(
    spark, asked, reads_here, tmp_path, batches_read, read_by_spark, text
):
    wanted = read_by_spark(text)
    run = run_to_end(query(spark, wanted.source, text, lane="on"), tmp_path / "laned")
    assert "lane: no" not in told(run)
    assert batches_read
    assert rows_of(spark, tmp_path) == wanted.rows
    assert len(wanted.rows) > 50


CONDITIONS = [
    "w > 10 AND (t = 'a' OR t LIKE 'b%') AND k IS NOT NULL",
    "w BETWEEN -5 AND 5 AND v IN (1.25, 2.5, 3) OR v < 0 OR v IS NULL",
    "w > 1000",
    "ts > '2026-04-30 17:00:10' AND ts <= TIMESTAMP '2026-04-30 17:00:40'",
    "TRUE",
]


@FILES_ARE_ASKED
@pytest.mark.filterwarnings("ignore::eddyline.errors.LateRowsWarning")
@pytest.mark.parametrize(
    ("condition", "reads_here"),
    [
        (CONDITIONS[0], True),
        *(
            pytest.param(condition, reads_here, marks=pytest.mark.large)
            for condition, reads_here in [
                (CONDITIONS[0], False),
                *zip(CONDITIONS[1:], [False, True, True, False], strict=True),
            ]
        ),
    ],
    indirect=["reads_here"],
)
def test_a_condition_before_the_aggregate_is_evaluated_over_the_files(
    spark, read_by_spark, asked, reads_here, tmp_path, batches_read, condition
):
    text = TEXT.replace("GROUP BY", f"WHERE {condition} GROUP BY")
    with settings(spark, **IN_LOS_ANGELES):
        wanted = read_by_spark(text, late=40)
        run = run_to_end(query(spark, wanted.source, text, lane="on"), tmp_path / "laned")
    assert len(batches_read) == 3
    assert run.plan()["lane"] == FILES
    assert rows_of(spark, tmp_path) == wanted.rows
    assert bool(wanted.rows) == (condition != "w > 1000")
    assert run.late_rows("s").num_rows == wanted.n_late
    if condition != "TRUE":
        assert "lane: the filters run where files are read for the aggregate" in told(run)


@FILES_ARE_ASKED
@pytest.mark.large
@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("abs(w) > 3", "Spark evaluates abs(w) > 3"),
        ("w + 1 > v", "Spark evaluates w + 1 > v"),
        ("even(w)", "even is evaluated in Python"),
        ("w > rand()", "Spark evaluates w > rand()"),
    ],
)
def test_why_a_condition_is_not_evaluated_over_the_files_is_said(
    spark, asked, source, tmp_path, condition, why
):
    write(source, 0)
    engine = engine_of(spark, source)
    engine.function("even", lambda w: pc.equal(pc.bit_wise_and(w, 1), 0), reads=["w"])
    text = TEXT.replace("GROUP BY", f"WHERE {condition} GROUP BY")
    run = run_to_end(engine.query(text, name="laned"), tmp_path / "laned")
    assert f"lane: no, because {why}" in told(run)


@FILES_ARE_ASKED
@pytest.mark.large
def test_a_condition_that_settings_change_is_left_to_spark(spark, asked, source, tmp_path):
    write(source, 0)
    text = TEXT.replace("GROUP BY", "WHERE ts > '2026-04-30 17:00:10' GROUP BY")
    made = query(spark, source, text, lane="on")
    with settings(spark, **IN_LOS_ANGELES):
        run = run_to_end(made, tmp_path / "laned")
        run_to_end(query(spark, source, text, lane="off"), tmp_path / "base")
    assert "lane: no, because settings that conditions depend on have changed" in told(run)
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")


@FILES_ARE_ASKED
@pytest.mark.large
@pytest.mark.parametrize(
    ("condition", "lane"),
    [("w > NULL", "off"), ("w > NULL", "on"), ("NOT (t = 'a' OR w IN (3, NULL))", "on")],
)
def test_a_condition_that_spark_knows_to_be_false_gives_no_rows(
    spark, asked, source, tmp_path, condition, lane
):
    for number in range(2):
        write(source, number)
    text = TEXT.replace("GROUP BY", f"WHERE {condition} GROUP BY")
    run = run_to_end(query(spark, source, text, lane=lane), tmp_path / "laned")
    assert rows_of(spark, tmp_path) == []
    assert [each.n_rows for each in run.records] == [400, 400]
    places = [each for each in run.journal if each["event"] == "place"]
    assert len(places) <= 1


@FILES_ARE_ASKED
@pytest.mark.parametrize("reads_here", [True], indirect=True)
@pytest.mark.parametrize(
    ("output", "has_jobs"),
    [
        (
            "k, window.end AS until, count(*) AS n, avg(v) AS mean, k AS again, window, "
            "first(t) AS earliest, window.start AS since, max(w)",
            False,
        ),
        pytest.param("k, count(v) AS n, round(avg(v), 1) AS mean", True, marks=pytest.mark.large),
    ],
)
def test_an_aggregate_of_few_rows_takes_no_job_of_spark(
    spark, read_by_spark, asked, reads_here, tmp_path, output, has_jobs
):
    text = f"SELECT {output} FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS] WHERE w > 0 GROUP BY k"
    wanted = read_by_spark(text, n_files=2)
    before = n_jobs(spark)
    run = run_to_end(query(spark, wanted.source, text, lane="on"), tmp_path / "laned")
    assert (n_jobs(spark) > before) == has_jobs
    assert "The first batch has 400 rows: the driver answers the cells" in told(run)
    assert spark.read.parquet(str(tmp_path / "laned" / "out")).schema == wanted.schema
    assert rows_of(spark, tmp_path) == wanted.rows


@FILES_ARE_ASKED
@BOTH_READ
@pytest.mark.large
def test_a_batch_that_fails_behind_its_file_is_there_once(
    spark, read_by_spark, asked, reads_here, tmp_path, monkeypatch
):
    wanted = read_by_spark()
    commit_fails_once(monkeypatch, 1)
    with pytest.raises(Exception, match="the disk is gone"):
        run_to_end(query(spark, wanted.source, lane="on"), tmp_path / "laned")
    run_to_end(query(spark, wanted.source, lane="on"), tmp_path / "laned")
    assert rows_of(spark, tmp_path) == wanted.rows


@FILES_ARE_ASKED
@pytest.mark.large
def test_a_filter_and_the_aggregate_behind_it_take_turns(
    spark, read_by_spark, asked, source, tmp_path, batches_read
):
    """Where rows come by Spark's scan the filter is laid and learns; else the aggregate does it."""
    text = TEXT.replace("GROUP BY", "WHERE w > 0 AND v < 9 GROUP BY")
    for number, lane in enumerate(["off", "on", "off"]):
        write(source, number)
        run = run_to_end(query(spark, source, text, lane=lane), tmp_path / "laned")
    assert len(batches_read) == 1
    assert "the filters run where files are read" not in told(run)
    assert rows_of(spark, tmp_path) == read_by_spark(text).rows


@FILES_ARE_ASKED
@BOTH_READ
@pytest.mark.large
def test_groups_that_are_cells_of_their_own_are_too_many_for_the_driver(
    spark, read_by_spark, asked, reads_here, source, tmp_path, monkeypatch
):
    """The driver holds none of them, and knows the event times all the same."""
    wanted = read_by_spark()
    monkeypatch.setattr("eddyline.spark.bucketed.MOST_FETCHED", 20)
    monkeypatch.setattr(parquet_spans, "MOST_ROWS_READ", 0)
    for number in range(3):
        write(source, number, write_statistics=False)
    monkeypatch.setattr(operator, "AggregateLoop", partial(AggregateLoop, plan="driver"))
    run_to_end(query(spark, source, lane="on", adaptive=False), tmp_path / "laned")
    assert rows_of(spark, tmp_path) == wanted.rows


@FILES_ARE_ASKED
@pytest.mark.large
def test_a_file_that_is_replaced_in_a_batch_fails_it_and_it_runs_again(
    spark, read_by_spark, asked, source, tmp_path, monkeypatch
):
    write(source, 0)
    wanted_rows = tmp_path / "kept.parquet"
    shutil.copy(source / "0.parquet", wanted_rows)
    file_rows = AggregatingOperator._file_rows

    def replaced(self, files, **more):
        write(source, 0, n_rows=77)
        return file_rows(self, files, **more)

    monkeypatch.setattr(AggregatingOperator, "_file_rows", replaced)
    with pytest.raises(Exception, match="was written again after Spark had listed it"):
        run_to_end(query(spark, source, lane="on"), tmp_path / "laned")
    monkeypatch.undo()
    shutil.copy(wanted_rows, source / "0.parquet")
    run_to_end(query(spark, source, lane="on"), tmp_path / "laned")
    assert rows_of(spark, tmp_path) == read_by_spark(n_files=1).rows


SHARING = {
    "values": "count(*) AS n, max(w) AS most, avg(v) AS mean",
    "a computed column": "count(*) + 1 AS n, max(w) AS most, avg(v) AS mean",
}


@FILES_ARE_ASKED
@pytest.mark.large
@pytest.mark.parametrize(
    ("columns", "sink", "reads_here"),
    [
        ("values", "memory", True),
        ("values", "parquet", True),
        ("values", "parquet", False),
        ("a computed column", "memory", False),
        ("a computed column", "parquet", True),
    ],
    indirect=["reads_here"],
)
def test_queries_that_share_cells_read_files(
    spark, asked, reads_here, source, tmp_path, batches_read, columns, sink
):
    for number in range(2):
        write(source, number)
    found = {}
    for lane in ("off", "on"):
        engine, names = engine_of(spark, source), []
        for length, by in ((4, "k"), (6, "t"), (10, "k")):
            names.append(f"q{length}")
            engine.query(
                f"SELECT {by} AS g, window.end AS until, {SHARING[columns]} FROM s "
                f"[RANGE {length} SECONDS SLIDE 2 SECONDS] GROUP BY {by}",
                name=names[-1],
                lane=lane,
            )
        path = {} if sink == "memory" else {"path": tmp_path / lane / "out"}
        before = n_jobs(spark)
        runs = finished(engine, sink, **path, checkpoint=tmp_path / lane / "ckpt")
        has_jobs = n_jobs(spark) > before
        if sink == "memory":
            tables = [run.to_arrow() for run in runs]
        else:
            folders = [str(tmp_path / lane / "out" / name) for name in names]
            tables = [spark.read.parquet(each).toArrow() for each in folders]
        found[lane] = [(each.schema, sorted(map(repr, each.to_pylist()))) for each in tables]
    assert found["on"] == found["off"]
    assert all(rows for _, rows in found["on"])
    assert batches_read
    if reads_here and columns == "values":
        assert not has_jobs


@FILES_ARE_ASKED
@BOTH_READ
@pytest.mark.large
def test_queries_of_other_conditions_share_the_cells_of_files(
    spark, asked, reads_here, source, tmp_path, batches_read
):
    for number in range(2):
        write(source, number)
    found = {}
    for lane in ("off", "on"):
        engine = engine_of(spark, source)
        for name, where in {"all": "TRUE", "low": "w < 0", "texts": "t LIKE 'b%' OR v > 5"}.items():
            engine.query(
                f"SELECT k, window.end AS until, count(*) AS n, sum(v) AS total, "
                f"count(v) FILTER (WHERE w > -9) AS some FROM s "
                f"[RANGE 6 SECONDS SLIDE 2 SECONDS] WHERE {where} GROUP BY k",
                name=name,
                lane=lane,
            )
        runs = finished(engine, "memory")
        assert len({id(run.shared) for run in runs}) == 1
        found[lane] = {run.name: sorted(map(repr, run.to_arrow().to_pylist())) for run in runs}
    assert found["on"] == found["off"]
    assert all(found["on"].values())
    assert batches_read


@FILES_ARE_ASKED
@pytest.mark.large
@pytest.mark.parametrize("reads_here", [True], indirect=True)
def test_of_queries_together_one_may_leave_and_come_again(
    spark, asked, reads_here, source, tmp_path, batches_read
):
    """Each run has other queries; the answers of each are those that it has alone."""
    here = {0: (4, 6), 1: (6,), 2: (4, 6, 10), 3: (4, 6, 10)}
    for number, lengths in here.items():
        write(source, number)
        engine = engine_of(spark, source)
        for length in lengths:
            text = f"SELECT k, window.end AS until, count(*) AS n FROM s [RANGE {length} SECONDS]"
            engine.query(f"{text} GROUP BY k", name=f"q{length}", lane="on")
        finished(engine, "parquet", path=tmp_path / "out", checkpoint=tmp_path / "ckpt")
    text = "SELECT k, window.end AS until, count(*) AS n FROM s [RANGE 6 SECONDS] GROUP BY k"
    run = ended(query(spark, source, text, lane="off"), sink="memory")
    rows = spark.read.parquet(str(tmp_path / "out" / "q6")).toArrow()
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, run.to_arrow().to_pylist()))
    assert batches_read


@pytest.mark.parametrize("name", ["__micros", "__START", "__bucket", "__check1", "__group0"])
def test_a_column_that_a_temporary_one_would_replace_is_named(spark, source, name):
    write(source, 0)
    engine = el.Engine(spark)
    rows = stream(spark, source).withColumnRenamed("w", name)
    engine.stream("s", rows, time="ts")
    text = f"SELECT `{name}`, count(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY `{name}`"
    with pytest.raises(QueryError, match=f"the column '{name}', which is the name of a temporary"):
        engine.query(text, name="named")

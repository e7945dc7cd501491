"""Joins whose tasks read files give what those give to which Spark hands rows over."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pyspark.sql.types import StructType

import eddyline as el
from eddyline.data import parquet_spans
from eddyline.lane.choice import FILES
from eddyline.query.query import RowsWindow
from eddyline.query.select.reader import read_query
from eddyline.query.steps import ProjectStep, steps
from eddyline.spark import bucketed
from eddyline.spark.joins import task
from eddyline.spark.joins.operator import JoinOperator
from eddyline.spark.joins.task import FileJoinRows
from eddyline.state.grid import Grid, Split
from tests.examples import examples
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import bag, results
from tests.spark.aggregates.test_any_cut import PHASES
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import (
    commit_fails_once,
    ended,
    n_jobs,
    run_to_end,
    stream_of,
    told,
    write_batch,
)
from tests.spark.joins.test_join_streams import T0, answered, drawn_join

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::eddyline.errors.LateRowsWarning"),
]

FILES_ARE_ASKED = pytest.mark.parametrize("asked", ["files"], indirect=True)
HERE = pytest.mark.parametrize("reads_here", [True], indirect=True)
BY_TASKS = pytest.param(False, marks=pytest.mark.large)
BOTH_READ = pytest.mark.parametrize("reads_here", [BY_TASKS, True], indirect=True)
SAID = {False: "tasks read the files of each batch", True: "the driver reads the files"}


@pytest.fixture
def batches_read(monkeypatch):
    """The numbers of tasks of each batch whose files tasks have read."""
    found, read = [], JoinOperator._reading_of

    def noted(self, batch):
        reading = read(self, batch)
        if reading is not None:
            found.append(reading.n_tasks)
        return reading

    monkeypatch.setattr(JoinOperator, "_reading_of", noted)
    return found


def may_be_read(case):
    """Return whether tasks may read the files of a case: its inputs are joined as they are."""
    is_plain = case.query.emits == "istream" and case.batches
    of_inputs = [each for each in steps(case.query) if isinstance(each, ProjectStep)]
    own = {each.name for each in case.query.inputs} | {each.stream for each in case.query.inputs}
    is_plain = is_plain and not any(each.input in own for each in of_inputs)
    return is_plain and not any(isinstance(each.window, RowsWindow) for each in case.query.inputs)


@FILES_ARE_ASKED
@BOTH_READ
def test_any_cut_gives_the_definition(spark, asked, reads_here, batches_read):
    n_cases = []

    @given(
        case=join_cases(max_inputs=4, expressions=False, statics=False).filter(may_be_read),
        n_buckets=st.integers(1, 6),
    )
    @examples(40, few=3, phases=PHASES)
    def each(case, n_buckets):
        n_before = len(batches_read)
        with tempfile.TemporaryDirectory() as folder:
            join = drawn_join(spark, case, Path(folder), buckets=n_buckets, lane="on")
            run = ended(join)
            wanted = results(case.query, case.tables, case.times)
            wanted = wanted.filter(wanted["_at"].to_numpy() < answered(case)).drop_columns("_at")
            assert bag(run.to_arrow()) == bag(wanted)
        n_cases.append(len(batches_read) > n_before)

    each()
    assert sum(n_cases) > 0.2 * len(n_cases)


@pytest.mark.parametrize("splits", [(), (Split(0, 3, (("b", 2), ("a", 2))),)])
def test_rows_go_to_the_buckets_that_hold_them(splits):
    """Along classes of other inputs a row goes to all buckets; a split bin is cut by time."""
    rng = np.random.default_rng(5)
    n, grid = 500, Grid((4, 3), splits)
    common = pa.schema([("__input", pa.int32()), ("__start", pa.int64()), ("__key0", pa.int64())])
    work = FileJoinRows(
        tasks=(),
        columns=(),
        handed=("ts", "k"),
        ignores_case=True,
        sent_rows=1,
        n_buckets=grid.n_buckets,
        most_rows=None,
        time="ts",
        spans=False,
        number=0,
        name="a",
        keys={0: "k"},
        hashed=(),
        slots={},
        where=None,
        common=common,
        grid=grid,
    )
    block = (
        pa.array(rng.integers(0, 10**9, n), mask=rng.random(n) < 0.1).cast(
            pa.timestamp("us", "UTC")
        ),
        pa.array(rng.integers(0, 40, n), mask=rng.random(n) < 0.1),
    )
    (rows,) = work.bucketed(iter([block]))
    assert rows.num_rows == sum(
        time.is_valid and key.is_valid for time, key in zip(*block, strict=True)
    )
    codes, starts = {0: rows.column("__key0").to_numpy()}, rows.column("__start").to_numpy()
    found = {bucket: part.to_pylist() for bucket, part in work.parted(rows)}
    for bucket in range(grid.n_buckets):
        held = grid.holds(bucket, "a", codes, starts)
        assert found.get(bucket, []) == rows.filter(pa.array(held)).to_pylist()
    assert len(found) == grid.n_buckets


# -- two and three streams ------------------------------------------------------------------------

TEXT = (
    "SELECT a.t, a.w, b.v AS bv, c.v AS cv FROM a [RANGE 6 SECONDS] JOIN b [RANGE 4 SECONDS] ON "
    "a.k = b.k JOIN c [RANGE 9 SECONDS] ON b.t = c.t"
)
COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "int", "t": "string", "w": "double"}
LATENESS_US = 4_000_000

TABLE_TEXT = (
    "SELECT a.t, b.v, d.w FROM a [RANGE 6 SECONDS] JOIN b [RANGE 4 SECONDS] ON a.k = b.k "
    "JOIN d ON a.k = d.k"
)
TABLE = pa.table({"k": range(30), "w": [f"w{key}" for key in range(30)]})
TABLE_COLUMNS = {"k": "bigint", "w": "string"}


@cache
def rows_of(name, number):
    """Return a batch of a stream: ten seconds and the six before, from which some are late."""
    rng, n_rows = np.random.default_rng([number, "abc".index(name)]), 120
    micros = rng.integers(-6_000_000, 10_000_000, n_rows) + 10_000_000 * number
    times = pa.array(micros + int(T0.timestamp()) * 1_000_000, mask=rng.random(n_rows) < 0.02)
    return pa.table(
        {
            "ts": times.cast(pa.timestamp("us", "UTC")),
            "k": pa.array(rng.integers(0, 20, n_rows), mask=rng.random(n_rows) < 0.1),
            "v": pa.array(rng.integers(0, 99, n_rows), pa.int32()),
            "t": pa.array(rng.choice(["x", "yy", "zzz", "ä"], n_rows)),
            "w": pa.array(rng.normal(size=n_rows)),
            "unread": pa.array([[1, 2]] * n_rows),
        }
    )


def write(folder, *numbers):
    """Write a file of each stream for each batch."""
    for number in numbers:
        for name in "abc":
            write_batch(folder, name, number, rows_of(name, number))


@cache
def parted(name, n_batches):
    """Return the rows of a stream that come in time, and those that are late."""
    parts, latest = {False: [], True: []}, -(2**63) + LATENESS_US
    for number in range(n_batches):
        rows = rows_of(name, number)
        micros = rows["ts"].cast(pa.int64()).to_pandas()
        is_late = (micros < latest - LATENESS_US).to_numpy()
        latest = max(latest, int(micros.max()))
        for late, found in parts.items():
            found.append(rows.filter(pa.array(is_late == late)))
    return tuple(pa.concat_tables(each) for each in parts.values())


@cache
def wanted(text, n_batches):
    """Return the results by the definition, over the rows that come in time."""
    tables = {name: parted(name, n_batches)[0] for name in "abc"} | {"d": TABLE}
    columns = dict.fromkeys("abc", COLUMNS) | {"d": TABLE_COLUMNS}
    times = dict.fromkeys("abc", "ts") | {"d": None}
    return bag(results(read_query(text, columns), tables, times).drop_columns("_at"))


def late_times(name, n_batches, condition="true"):
    """Return the event times of the late rows that have keys and meet a condition."""
    rows = parted(name, n_batches)[1]
    keys = {"a": "k", "b": "k", "c": "t"}[name]
    text = f"SELECT ts FROM rows AS {name} WHERE {keys} IS NOT NULL AND {condition} ORDER BY ts"
    found = duckdb.sql(text).to_arrow_table()["ts"].cast(pa.int64())
    assert rows.num_rows
    return found.to_pylist()


def late_in(run, name):
    return sorted(run.late_rows(name)["_time"].cast(pa.int64()).to_pylist())


def query(spark, folder, text=TEXT, names="abc", **options):
    engine = el.Engine(spark)
    for name in names:
        stream = stream_of(spark, folder, name)
        engine.stream(name, stream, time="ts", lateness=f"{LATENESS_US} microseconds")
    if names == "ab":
        engine.table("d", spark.createDataFrame(TABLE))
    return engine.query(text, name="laned", **options)


def ran(spark, folder, text=TEXT, **options):
    """Run over all that is there, from where the run before stopped."""
    return run_to_end(query(spark, folder, text, **options), folder / "laned")


def found(folder):
    return bag(parquet.read_table(folder / "laned" / "out"))


@FILES_ARE_ASKED
@pytest.mark.parametrize(
    ("reads_here", "own"),
    [
        pytest.param(False, {"a": "a.v > 30", "b": "b.v < 90"}, marks=pytest.mark.large),
        (True, {}),
    ],
    indirect=["reads_here"],
)
def test_a_restart_may_read_rows_and_the_next_one_files(
    spark, asked, reads_here, tmp_path, batches_read, own
):
    """So may the filters of inputs, which go with the join."""
    text = TEXT + (f" WHERE {' AND '.join(own.values())}" if own else "")
    for number, lane in enumerate(["on", "off", "auto"]):
        write(tmp_path, number)
        run = ran(spark, tmp_path, text, lane=lane)
        assert run.plan().get("lane") == (None if lane == "off" else FILES)
        said = "no, because the option lane is 'off'" if lane == "off" else SAID[reads_here]
        assert f"lane: {said}" in run.explain()
    assert batches_read == [3] * 2
    assert found(tmp_path) == wanted(text, 3)
    assert found(tmp_path).total() > 50
    for name in "abc":
        assert late_in(run, name) == late_times(name, 3, own.get(name, "true")) != []


NO_PARTNER = "rows that have no partner are needed, or their order"


@FILES_ARE_ASKED
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("a.k = b.k", "a.k + 1 = b.k"), "Spark computes the key k + 1 of a"),
        (TEXT.replace("a.k = b.k", "a.w = b.w"), "tasks do not compare 'w', of type double"),
        (TEXT + " WHERE a.v + 1 > 3", "Spark evaluates v + 1 > 3"),
        (
            "SELECT a.t, b.v FROM (SELECT *, v + 1 AS x FROM a) AS a [RANGE 6 SECONDS] "
            "JOIN b [RANGE 4 SECONDS] ON a.x = b.k",
            "an input is computed before it is joined",
        ),
        (
            "SELECT a.t, b.v FROM a [RANGE 6 SECONDS] LEFT JOIN b [RANGE 4 SECONDS] ON a.k = b.k",
            NO_PARTNER,
        ),
        ("SELECT a.t, b.v FROM a [ROWS 3] JOIN b [RANGE 4 SECONDS] ON a.k = b.k", NO_PARTNER),
    ],
)
def test_why_there_is_no_lane_is_known_before_a_run(spark, asked, tmp_path, text, why):
    write(tmp_path, 0)
    (join,) = (of for of in query(spark, tmp_path, text).operators if of.name == "join")
    assert join.lane.note == f"lane: no, because {why}"


@pytest.mark.large
@FILES_ARE_ASKED
def test_a_run_says_why_there_is_no_lane(spark, asked, tmp_path):
    write(tmp_path, 0)
    run = ran(spark, tmp_path, TEXT + " WHERE a.v + 1 > 3", lane="on")
    assert "lane: no, because Spark evaluates v + 1 > 3" in told(run)


@pytest.mark.large
@FILES_ARE_ASKED
def test_files_that_do_not_say_their_event_times_are_read_by_spark(
    spark, asked, tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet_spans, "MOST_ROWS_READ", 0)
    for name in "abc":
        (tmp_path / name).mkdir()
        file = tmp_path / name / "0.parquet"
        parquet.write_table(rows_of(name, 0), file, write_statistics=False)
    run = ran(spark, tmp_path, lane="on")
    assert "lane: no, because the files do not say how far their event times go" in told(run)
    assert found(tmp_path) == wanted(TEXT, 1)


OF_ALL = {"a": "a.v > 30", "b": "b.t IN ('x', 'yy')", "c": "(c.v < 50 OR c.w IS NULL)"}


@FILES_ARE_ASKED
@pytest.mark.parametrize(
    ("reads_here", "own", "more"),
    [
        (True, OF_ALL, []),
        (True, {"a": "a.v > 30"}, ["a.v + b.v < 99"]),
        (True, {"b": "b.v > 1000"}, []),
        pytest.param(False, OF_ALL, ["a.v + b.v < 99"], marks=pytest.mark.large),
        pytest.param(False, {"b": "b.v > 1000"}, [], marks=pytest.mark.large),
    ],
    indirect=["reads_here"],
)
def test_conditions_on_inputs_are_evaluated_over_the_files(
    spark, asked, reads_here, tmp_path, batches_read, own, more
):
    write(tmp_path, 0, 1)
    text = f"{TEXT} WHERE {' AND '.join([*own.values(), *more])}"
    run = ran(spark, tmp_path, text, lane="on")
    assert batches_read == [3] * 2
    assert found(tmp_path) == wanted(text, 2)
    assert bool(found(tmp_path)) == (own.get("b") != "b.v > 1000")
    assert "lane: the filters run where files are read for the join" in told(run)
    for name in "abc":
        assert late_in(run, name) == late_times(name, 2, own.get(name, "true"))


@pytest.mark.large
@FILES_ARE_ASKED
@HERE
@pytest.mark.parametrize(
    ("output", "schema", "has_jobs"),
    [
        (
            "a.t AS `a.t`, b.v AS bv, c.v, c.w AS `c.w`, a.w",
            "`a.t` string, bv int, v int, `c.w` double, w double",
            False,
        ),
        ("a.v + 1 AS more, c.t", "more int, t string", False),
        ("a.v % 7 AS rest, c.t", "rest int, t string", True),
    ],
)
def test_a_join_of_few_rows_takes_no_job_of_spark(
    spark, asked, reads_here, tmp_path, output, schema, has_jobs
):
    write(tmp_path, 0, 1)
    text = TEXT.replace("a.t, a.w, b.v AS bv, c.v AS cv", output)
    before = n_jobs(spark)
    ran(spark, tmp_path, text, lane="on")
    assert (n_jobs(spark) > before) == has_jobs
    assert found(tmp_path) == wanted(text, 2)
    written = spark.read.parquet(str(tmp_path / "laned" / "out")).schema
    assert written == StructType.fromDDL(schema)


@FILES_ARE_ASKED
@HERE
def test_texts_of_one_hash_are_compared(spark, asked, reads_here, tmp_path, monkeypatch):
    write(tmp_path, 0, 1)
    monkeypatch.setattr(task, "add_hash", lambda hashes, column: None)
    run = ran(spark, tmp_path, lane="on")
    assert SAID[True] in told(run)
    assert found(tmp_path) == wanted(TEXT, 2)
    assert found(tmp_path).total() > 100
    assert facts_of(run).n_results > 2 * found(tmp_path).total(), "combinations of one hash"


@FILES_ARE_ASKED
@HERE
@pytest.mark.parametrize(
    "bound", ["FEW_RESULTS", pytest.param("MOST_HELD_BYTES", marks=pytest.mark.large)]
)
def test_what_is_too_much_for_the_driver_is_left_to_tasks(
    spark, asked, reads_here, tmp_path, batches_read, monkeypatch, bound
):
    """Results and windows each have a bound, as rows have: ``reads_here`` sets that of rows."""
    write(tmp_path, 0, 1)
    text = TEXT.replace("b.v AS bv", "b.v % 7 AS bv") if bound == "FEW_RESULTS" else TEXT
    monkeypatch.setattr(bucketed, bound, 3)
    run = ran(spark, tmp_path, text, lane="on")
    assert "lane: tasks read the files" in told(run)
    assert len(batches_read) == 2
    assert found(tmp_path) == wanted(text, 2)


@pytest.mark.large
@FILES_ARE_ASKED
@BOTH_READ
def test_a_batch_that_fails_behind_its_file_is_there_once(
    spark, asked, reads_here, tmp_path, monkeypatch
):
    write(tmp_path, 0, 1)
    commit_fails_once(monkeypatch, 1)
    with pytest.raises(Exception, match="the disk is gone"):
        ran(spark, tmp_path, lane="on")
    ran(spark, tmp_path, lane="on")
    assert found(tmp_path) == wanted(TEXT, 2)


@pytest.mark.large
@FILES_ARE_ASKED
@BOTH_READ
def test_a_static_table_comes_with_the_first_batch_and_files_are_read_then(
    spark, asked, reads_here, tmp_path, batches_read
):
    """Of two streams and a table; that of one stream is sent to the rows."""
    write(tmp_path, 0, 1)
    run = ran(spark, tmp_path, TABLE_TEXT, names="ab", lane="on", adaptive=False)
    assert found(tmp_path) == wanted(TABLE_TEXT, 2)
    assert batches_read == [2]
    assert f"lane: {SAID[reads_here]}" in told(run)

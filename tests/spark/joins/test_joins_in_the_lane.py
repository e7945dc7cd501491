"""Joins whose tasks read files give what those give to which Spark hands rows over."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import eddyline as el
from eddyline.data import parquet_spans
from eddyline.lane.choice import FILES
from eddyline.query.query import RowsWindow
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
    n_jobs,
    run_to_end,
    stream_of,
    told,
    write_batch,
)
from tests.spark.joins.test_join_streams import T0, answered, drawn_join

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES_ARE_ASKED = pytest.mark.parametrize("asked", ["files"], indirect=True)
BOTH_READ = pytest.mark.parametrize("reads_here", [False, True], indirect=True)
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
    @examples(40, phases=PHASES)
    def each(case, n_buckets):
        n_before = len(batches_read)
        with tempfile.TemporaryDirectory() as folder:
            join = drawn_join(spark, case, Path(folder), buckets=n_buckets, lane="on")
            run = join.start(trigger="available_now")
            assert run.await_termination(240)
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


def write(folder, number, n_rows=120, **options):
    """Write a file of ten seconds for each stream."""
    for at, name in enumerate("abc"):
        rng = np.random.default_rng([number, at])
        micros = rng.integers(-2_000_000, 10_000_000, n_rows) + 10_000_000 * number
        times = pa.array(micros + int(T0.timestamp()) * 1_000_000, mask=rng.random(n_rows) < 0.02)
        rows = pa.table(
            {
                "ts": times.cast(pa.timestamp("us", "UTC")),
                "k": pa.array(rng.integers(0, 20, n_rows), mask=rng.random(n_rows) < 0.1),
                "v": pa.array(rng.integers(0, 99, n_rows), pa.int32()),
                "t": pa.array(rng.choice(["x", "yy", "zzz", "ä"], n_rows)),
                "w": pa.array(rng.normal(size=n_rows)),
                "unread": pa.array([[1, 2]] * n_rows),
            }
        )
        if options:
            (folder / name).mkdir(parents=True, exist_ok=True)
            parquet.write_table(rows, folder / name / f"{number:05d}.parquet", **options)
        else:
            write_batch(folder, name, number, rows)


def query(spark, folder, text=TEXT, **options):
    engine = el.Engine(spark)
    for name in "abc":
        stream = stream_of(spark, folder, name)
        engine.stream(name, stream, time="ts", lateness="4 seconds")
    return engine.query(text, name="laned", **options)


def rows_of(spark, folder, name="laned"):
    return sorted(map(repr, spark.read.parquet(str(folder / name / "out")).collect()))


@FILES_ARE_ASKED
@BOTH_READ
def test_a_restart_may_read_rows_and_the_next_one_files(
    spark, asked, reads_here, tmp_path, batches_read
):
    for number, lane in enumerate(["on", "off", "on", "auto"]):
        write(tmp_path, number)
        run = run_to_end(query(spark, tmp_path, lane=lane), tmp_path / "laned")
        assert run.plan().get("lane") == (None if lane == "off" else FILES)
        said = "no, because the option lane is 'off'" if lane == "off" else SAID[reads_here]
        assert f"lane: {said}" in run.explain()
    assert batches_read == [3] * 3
    base = run_to_end(query(spark, tmp_path, lane="off"), tmp_path / "base")
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")
    assert len(rows_of(spark, tmp_path)) > 100
    for name in "abc":
        late = [each.late_rows(name).num_rows for each in (base, run)]
        assert late[0] == late[1]


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
            "rows that have no partner are needed, or their order",
        ),
        (
            "SELECT a.t, b.v FROM a [ROWS 3] JOIN b [RANGE 4 SECONDS] ON a.k = b.k",
            "rows that have no partner are needed, or their order",
        ),
    ],
)
def test_why_there_is_no_lane_is_said(spark, asked, tmp_path, text, why):
    write(tmp_path, 0)
    assert f"lane: no, because {why}" in told(
        run_to_end(query(spark, tmp_path, text), tmp_path / "laned")
    )


@FILES_ARE_ASKED
@BOTH_READ
@pytest.mark.parametrize(
    "condition",
    [
        "a.v > 30",
        "a.v > 30 AND b.t IN ('x', 'yy') AND (c.v < 50 OR c.w IS NULL)",
        "a.v > 30 AND a.v + b.v < 99",
        "b.v > 1000",
    ],
)
def test_conditions_on_inputs_are_evaluated_over_the_files(
    spark, asked, reads_here, tmp_path, batches_read, condition
):
    for number in range(3):
        write(tmp_path, number)
    text = f"{TEXT} WHERE {condition}"
    base = run_to_end(query(spark, tmp_path, text, lane="off"), tmp_path / "base")
    run = run_to_end(query(spark, tmp_path, text, lane="on"), tmp_path / "laned")
    assert batches_read == [3] * 3
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")
    assert bool(rows_of(spark, tmp_path)) == (condition != "b.v > 1000")
    assert "lane: the filters run where files are read for the join" in told(run)
    for name in "abc":
        late = [each.late_rows(name).num_rows for each in (base, run)]
        assert late[0] == late[1]


@FILES_ARE_ASKED
def test_filters_of_inputs_and_the_join_take_turns(spark, asked, tmp_path, batches_read):
    text = TEXT + " WHERE a.v > 30 AND b.v < 90"
    for number, lane in enumerate(["on", "off", "auto", "off"]):
        write(tmp_path, number)
        run_to_end(query(spark, tmp_path, text, lane=lane), tmp_path / "laned")
    assert batches_read == [3] * 2
    run_to_end(query(spark, tmp_path, text, lane="off"), tmp_path / "base")
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")
    assert len(rows_of(spark, tmp_path)) > 50


@FILES_ARE_ASKED
@pytest.mark.parametrize("reads_here", [True], indirect=True)
@pytest.mark.parametrize(
    ("output", "has_jobs"),
    [
        ("a.t, b.v AS bv, c.v", False),
        ("a.t AS `a.t`, c.w AS `c.w`, a.w", False),
        ("a.v + 1 AS more, c.t", True),
    ],
)
def test_a_join_of_few_rows_takes_no_job_of_spark(
    spark, asked, reads_here, tmp_path, output, has_jobs
):
    for number in range(3):
        write(tmp_path, number)
    text = TEXT.replace("a.t, a.w, b.v AS bv, c.v AS cv", output)
    run_to_end(query(spark, tmp_path, text, lane="off"), tmp_path / "base")
    before = n_jobs(spark)
    run_to_end(query(spark, tmp_path, text, lane="on"), tmp_path / "laned")
    assert (n_jobs(spark) > before) == has_jobs
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")
    found, wanted = (
        spark.read.parquet(str(tmp_path / name / "out")).schema for name in ("laned", "base")
    )
    assert found == wanted


@FILES_ARE_ASKED
@pytest.mark.parametrize("reads_here", [True], indirect=True)
def test_texts_of_one_hash_are_compared(spark, asked, reads_here, tmp_path, monkeypatch):
    for number in range(2):
        write(tmp_path, number)
    base = run_to_end(query(spark, tmp_path, lane="off"), tmp_path / "base")
    monkeypatch.setattr(task, "add_hash", lambda hashes, column: None)
    run = run_to_end(query(spark, tmp_path, lane="on"), tmp_path / "laned")
    assert SAID[True] in told(run)
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")
    assert len(rows_of(spark, tmp_path)) > 100
    n_combined = [facts_of(each).n_results for each in (base, run)]
    assert n_combined[1] > 2 * n_combined[0]


@FILES_ARE_ASKED
@pytest.mark.parametrize("reads_here", [True], indirect=True)
@pytest.mark.parametrize("bound", ["FEW_RESULTS", "MOST_READ", "MOST_HELD_BYTES"])
def test_what_is_too_much_for_the_driver_is_left_to_tasks(
    spark, asked, reads_here, tmp_path, batches_read, monkeypatch, bound
):
    """Results, windows and rows each have a bound; answers are the same."""
    for number in range(3):
        write(tmp_path, number)
    text = TEXT.replace("b.v AS bv", "b.v + 1 AS bv") if bound == "FEW_RESULTS" else TEXT
    run_to_end(query(spark, tmp_path, text, lane="off"), tmp_path / "base")
    monkeypatch.setattr(bucketed, bound, 3)
    run = run_to_end(query(spark, tmp_path, text, lane="on"), tmp_path / "laned")
    assert "lane: tasks read the files" in told(run)
    assert len(batches_read) == 3
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")


@FILES_ARE_ASKED
@BOTH_READ
def test_a_batch_that_fails_behind_its_file_is_there_once(
    spark, asked, reads_here, tmp_path, monkeypatch
):
    for number in range(3):
        write(tmp_path, number)
    commit_fails_once(monkeypatch, 1)
    with pytest.raises(Exception, match="the disk is gone"):
        run_to_end(query(spark, tmp_path, lane="on"), tmp_path / "laned")
    run_to_end(query(spark, tmp_path, lane="on"), tmp_path / "laned")
    run_to_end(query(spark, tmp_path, lane="off"), tmp_path / "base")
    assert rows_of(spark, tmp_path) == rows_of(spark, tmp_path, "base")


@FILES_ARE_ASKED
def test_files_that_do_not_say_their_event_times_are_read_by_spark(
    spark, asked, tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet_spans, "MOST_ROWS_READ", 0)
    write(tmp_path, 0, write_statistics=False)
    run = run_to_end(query(spark, tmp_path, lane="on"), tmp_path / "laned")
    assert "lane: no, because the files do not say how far their event times go" in told(run)
    assert rows_of(spark, tmp_path)


@FILES_ARE_ASKED
@BOTH_READ
def test_a_static_table_comes_with_the_first_batch_and_files_are_read_then(
    spark, asked, reads_here, tmp_path, batches_read
):
    """Of two streams and a table; that of one stream is sent to the rows."""
    for number in range(3):
        write(tmp_path, number)
    text = (
        "SELECT a.t, b.v, d.w FROM a [RANGE 6 SECONDS] JOIN b [RANGE 4 SECONDS] ON a.k = b.k "
        "JOIN d ON a.k = d.k"
    )
    found = {}
    for lane in ("off", "on"):
        engine = el.Engine(spark)
        for name in "ab":
            engine.stream(name, stream_of(spark, tmp_path, name), time="ts", lateness="4 seconds")
        rows = [(key, f"w{key}") for key in range(30)]
        engine.table("d", spark.createDataFrame(rows, "k bigint, w string"))
        asked_for = engine.query(text, name="laned", lane=lane, adaptive=False)
        run = run_to_end(asked_for, tmp_path / lane)
        found[lane] = rows_of(spark, tmp_path, lane)
    assert found["on"] == found["off"]
    assert batches_read == [2] * 2
    assert f"lane: {SAID[reads_here]}" in told(run)

"""Results that tasks write to files, or send to the driver, are those that Spark would write."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import SourceError
from eddyline.lane import results as lane_results
from eddyline.lane.expressions import ColumnValues
from eddyline.lane.results import by_place
from eddyline.spark.arrow_tasks import Tasks
from eddyline.spark.run.job import write_by_tasks
from eddyline.spark.sinks import files
from eddyline.spark.sinks.files import FileSink
from eddyline.spark.sinks.sinks import MemorySink, takes_tasks
from eddyline.spark.task_results import TaskResults
from tests.spark.joins.join_streams import (
    commit_fails_once,
    ended,
    run_to_end,
    stream_of,
    told,
    write_batch,
)
from tests.spark.run.test_files_by_arrow import by_spark, physical, rows, sink_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:.* came too late"),
    pytest.mark.parametrize("reads_here", [False], indirect=True),
]
FILES_ARE_ASKED = pytest.mark.parametrize("asked", ["files"], indirect=True)

__all__ = ["by_spark", "rows"]

N_BATCHES = 3


def rows_of(name, number, n_rows=300):
    """Return rows of a batch: late ones, NULL, NaN, and texts of any length."""
    rng = np.random.default_rng([number, ord(name)])
    seconds = 10 * number + rng.integers(-12 * (number > 0), 10, n_rows)
    keys = rng.integers(0, 12, n_rows)
    gone = rng.random((4, n_rows)) < 0.05
    x = rng.integers(-50, 50, n_rows) / 4
    x[::31] = np.nan
    return pa.table(
        {
            "id": pa.array(np.arange(n_rows) + number * n_rows),
            "ts": pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC"), mask=gone[0]),
            "k": pa.array(keys, mask=gone[1]),
            "x": pa.array(x, mask=gone[2]),
            "y": pa.array(10 * np.sin(seconds / 5) + keys),
            "text": pa.array(rng.choice(["", "ä" * 40, "b"], n_rows), mask=gone[3]),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    for number in range(N_BATCHES):
        for name in "st":
            write_batch(folder, name, number, rows_of(name, number))
    return folder


OVER = "PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 5 SECONDS PRECEDING AND CURRENT ROW"
QUERIES = {
    "filter": "SELECT text, ts AS at, id FROM s WHERE small(x)",
    "rules": "",
    "join": "SELECT s.id, t.id AS other, t.text FROM s [RANGE 3 SECONDS], t [RANGE 3 SECONDS] "
    "WHERE s.k = t.k",
    "aggregate": "SELECT k, window.end AS at, count(*) AS n, sum(id) AS total, avg(x) AS mean, "
    "max(text) AS last FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "over": f"SELECT text, count(*) OVER w AS n, max(x) OVER w AS high FROM s WINDOW w AS ({OVER})",
    "model": "SELECT k, time, y FROM s MODEL y WITHIN 1 BY k MAX GAP 3 SECONDS AT ts WHERE y > 0 "
    "SAMPLE EVERY 200 MILLISECONDS",
}
"""By name; the rules are a set of their own."""

FROM_ROWS = {"join", "aggregate", "over", "model"}
"""Those of which tasks also give the results where Spark reads the rows."""


def query_of(spark, folder, name, **options):
    engine = el.Engine(spark)
    for stream in "st":
        engine.stream(stream, stream_of(spark, folder, stream), time="ts", lateness="2 seconds")
    engine.function("small", lambda x: pc.less(x, 3.0), reads=["x"])
    if name == "rules":
        rules = el.RuleSet(
            {f"k{k}": f"k = {k % 12} AND x > {k - 40}" for k in range(70)}, name="rules"
        )
        return engine.rules("rules", rules, stream="s", **options)
    return engine.query(QUERIES[name], name=name, **options)


def bag(table):
    """The rows of a table, to be compared with NaN and NULL."""
    return Counter(map(repr, table.to_pylist()))


@pytest.fixture(scope="module")
def by_rows(spark, folder, tmp_path_factory):
    """Return a function: the files of a query whose results are rows of Spark's."""
    found = {}

    def written(name):
        if name not in found:
            place = tmp_path_factory.mktemp("rows")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FileSink, "takes_results", lambda *_: False)
                run_to_end(query_of(spark, folder, name), place)
            found[name] = spark.read.parquet(str(place / "out"))
        return found[name]

    return written


@pytest.fixture(autouse=True)
def _driver_answers_nothing(monkeypatch):
    for few in ("FEW", "MANY"):
        monkeypatch.setattr(f"eddyline.spark.aggregates.operator.{few}", 0)


@pytest.fixture
def by_tasks(monkeypatch):
    """The batches whose results tasks wrote."""
    found, writer = [], FileSink.result_writer

    def noted(self, *given):
        found.append(given[-1])
        return writer(self, *given)

    monkeypatch.setattr(FileSink, "result_writer", noted)
    return found


@FILES_ARE_ASKED
@pytest.mark.parametrize(
    "name",
    [
        name if name in {"filter", "join"} else pytest.param(name, marks=pytest.mark.large)
        for name in QUERIES
    ],
)
def test_files_have_what_spark_would_write(spark, folder, tmp_path, by_tasks, by_rows, name):
    wanted = by_rows(name)
    assert by_tasks == []
    run = run_to_end(query_of(spark, folder, name), tmp_path)
    assert by_tasks[-1] >= N_BATCHES - 1
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.schema == wanted.schema
    assert bag(found.toArrow()) == bag(wanted.toArrow())
    assert sum(each.n_kept for each in run.records) == wanted.count() > 50
    assert "tasks write the results to the sink themselves" in told(run)
    assert [*(tmp_path / "out" / "_eddyline").iterdir()] == []


@pytest.mark.large
@pytest.mark.parametrize("name", sorted(FROM_ROWS))
@pytest.mark.parametrize("asked", ["rows"], indirect=True)
def test_results_of_rows_that_spark_reads_are_written_by_tasks_too(
    spark, folder, tmp_path, by_tasks, by_rows, name
):
    wanted = by_rows(name)
    run_to_end(query_of(spark, folder, name), tmp_path)
    assert by_tasks
    assert bag(spark.read.parquet(str(tmp_path / "out")).toArrow()) == bag(wanted.toArrow())


@pytest.mark.large
@FILES_ARE_ASKED
def test_lane_off_leaves_results_to_spark(spark, folder, tmp_path, by_tasks, by_rows):
    run = run_to_end(query_of(spark, folder, "join", lane="off"), tmp_path)
    assert by_tasks == []
    assert bag(spark.read.parquet(str(tmp_path / "out")).toArrow()) == bag(
        by_rows("join").toArrow()
    )
    assert "tasks write" not in told(run)


@pytest.mark.large
@FILES_ARE_ASKED
@pytest.mark.parametrize("name", ["filter", "over", "rules", "aggregate"])
def test_memory_has_the_same_rows_and_types(spark, folder, by_rows, change, monkeypatch, name):
    """Spark hands over the first batch, as in a trial of the lane; one more batch has no rows."""
    wanted = by_rows(name).toArrow()
    change(zone="Europe/Berlin")
    takes = iter([False])
    monkeypatch.setattr(MemorySink, "takes_results", lambda *_: next(takes, True))
    run = ended(query_of(spark, folder, name), "memory")
    sink = run.sink
    assert bag(sink.table()) == bag(wanted)
    sink.commit([], run.outlet._schema, spark, N_BATCHES)
    kinds = {str(batch.schema.remove_metadata()) for batch in sink.batches.values()}
    assert len(kinds) == 1


@pytest.mark.large
@pytest.mark.parametrize(
    "text",
    [
        "SELECT id + 1 AS next FROM s WHERE small(x)",
        "SELECT id FROM s WHERE small(x) AND k > 3",
        "SELECT k, stddev(x) AS spread FROM s [RANGE 6 SECONDS SLIDE 6 SECONDS] GROUP BY k",
    ],
)
def test_what_spark_computes_is_written_by_spark(
    spark, folder, tmp_path, by_tasks, monkeypatch, text
):
    monkeypatch.setitem(QUERIES, "computed", text)
    run_to_end(query_of(spark, folder, "computed"), tmp_path)
    assert by_tasks == []
    assert spark.read.parquet(str(tmp_path / "out")).count() > 0


@pytest.mark.large
@FILES_ARE_ASKED
@pytest.mark.parametrize("name", ["filter", "join"])
def test_under_settings_that_arrow_does_not_know_spark_writes(
    spark, folder, tmp_path, by_tasks, by_rows, change, name
):
    wanted = by_rows(name)
    change(**{"spark.sql.parquet.writeLegacyFormat": "true"})
    run = run_to_end(query_of(spark, folder, name), tmp_path)
    assert by_tasks == []
    found = spark.read.parquet(str(tmp_path / "out"))
    assert bag(found.toArrow()) == bag(wanted.toArrow())
    assert sum(each.n_kept for each in run.records) == found.count()


@pytest.mark.large
@pytest.mark.parametrize("name", sorted(FROM_ROWS))
def test_large_texts_are_those_of_spark(spark, folder, tmp_path, by_tasks, by_rows, change, name):
    wanted = by_rows(name)
    change(**{"spark.sql.execution.arrow.useLargeVarTypes": "true"})
    run_to_end(query_of(spark, folder, name), tmp_path)
    assert by_tasks
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.schema == wanted.schema
    assert bag(found.toArrow()) == bag(wanted.toArrow())


def test_two_writers_of_one_task_write_two_files(tmp_path):
    parquet = lane_results.Parquet("snappy", "parquet", is_int96=False, says={})
    writers = [lane_results.FileWriter(str(tmp_path), parquet) for _ in range(2)]
    assert len({writer._path for writer in writers}) == 2


@pytest.mark.large
@FILES_ARE_ASKED
@pytest.mark.parametrize("name", ["filter", "join"])
def test_a_batch_that_fails_behind_its_files_is_there_once(
    spark, folder, tmp_path, monkeypatch, by_rows, name
):
    commit_fails_once(monkeypatch, 1)
    with pytest.raises(Exception, match="the disk is gone"):
        run_to_end(query_of(spark, folder, name), tmp_path)
    run_to_end(query_of(spark, folder, name), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert bag(found.toArrow()) == bag(by_rows(name).toArrow())


@pytest.mark.large
@FILES_ARE_ASKED
def test_batches_without_results_leave_one_file_that_tells_the_columns(
    spark, folder, tmp_path, by_tasks
):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts")
    engine.function("none", lambda x: pc.and_(pc.less(x, 0.0), pc.greater(x, 0.0)), reads=["x"])
    run_to_end(engine.query("SELECT id, ts FROM s WHERE none(x)", name="none"), tmp_path)
    assert by_tasks == [0, 1, 2]
    (file,) = (tmp_path / "out").glob("batch-*")
    assert pq.read_schema(file).names == ["id", "ts"]
    assert [*(tmp_path / "out" / "_eddyline").iterdir()] == []
    assert spark.read.parquet(str(tmp_path / "out")).count() == 0


# -- queries that run together --------------------------------------------------------------------

TOGETHER = {
    "short": "SELECT k, window.end AS at, count(*) AS n FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY k",
    "long": "SELECT max(text) AS last, k FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k",
    "coarse": "SELECT sum(id) AS total, window FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS]",
}


def started_together(spark, folder, tmp_path):
    """The runs of queries that share the stream, at their ends."""
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="2 seconds")
    for name, text in TOGETHER.items():
        engine.query(text, name=name)
    where = {"checkpoint": str(tmp_path / "ckpt"), "trigger": "available_now"}
    runs = engine.start_all("parquet", path=str(tmp_path / "out"), **where)
    assert all(run.await_termination(400) for run in runs)
    return runs


def bags(spark, tmp_path):
    read = {name: spark.read.parquet(str(tmp_path / "out" / name)) for name in TOGETHER}
    return {name: bag(df.toArrow()) for name, df in read.items()}


@pytest.mark.large
@FILES_ARE_ASKED
def test_each_query_that_runs_together_with_others_has_files_of_its_own(
    spark, folder, tmp_path, by_tasks, monkeypatch, change
):
    with monkeypatch.context() as patch:
        patch.setattr(FileSink, "takes_results", lambda *_: False)
        started_together(spark, folder, tmp_path / "rows")
    wanted = bags(spark, tmp_path / "rows")
    assert by_tasks == []
    assert all(wanted.values())
    runs = started_together(spark, folder, tmp_path / "tasks")
    assert len(by_tasks) >= 2 * len(TOGETHER)
    assert bags(spark, tmp_path / "tasks") == wanted
    for run in runs:
        assert sum(each.n_kept for each in run.records) == wanted[run.name].total()
    n_before = len(by_tasks)
    change(**{"spark.sql.parquet.writeLegacyFormat": "true"})
    started_together(spark, folder, tmp_path / "legacy")
    assert len(by_tasks) == n_before
    assert bags(spark, tmp_path / "legacy") == wanted
    for place in ("tasks", "legacy"):
        assert [*(tmp_path / place).glob("out/*/_eddyline/*")] == []


@pytest.mark.large
@FILES_ARE_ASKED
def test_queries_that_run_together_may_stay_in_memory(spark, folder, tmp_path, by_tasks):
    started_together(spark, folder, tmp_path)
    wanted = bags(spark, tmp_path)
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="2 seconds")
    for name, text in TOGETHER.items():
        engine.query(text, name=name)
    runs = engine.start_all("memory", trigger="available_now")
    assert all(run.await_termination(400) for run in runs)
    assert runs[0].shared.router.by_tasks
    assert {run.name: bag(run.to_arrow()) for run in runs} == wanted


# -- the parts of it ------------------------------------------------------------------------------


def results_of(df, n_tasks=1):
    """Return rows as tasks give them, with a report behind."""

    def work(batches):
        for batch in batches:
            yield batch.append_column("report", pa.nulls(batch.num_rows, pa.binary()))
        kinds = batch.schema.types
        report = pa.array([b"seen"], pa.binary())
        yield pa.RecordBatch.from_arrays(
            [*(pa.nulls(1, kind) for kind in kinds), report], [*batch.schema.names, "report"]
        )

    seen = Observation()
    metrics = lambda n: (F.collect_list("report").alias("reports"), n.alias("n"))  # noqa: E731
    tasks = Tasks(df.coalesce(1) if n_tasks == 1 else df.repartition(n_tasks), work)
    return TaskResults(tasks, ("report",), seen, metrics), seen


@pytest.mark.parametrize(
    ("setting", "value"),
    [("instants", "INT96"), ("zone", "America/New_York"), ("codec", "uncompressed")],
)
def test_a_file_of_every_type_is_as_spark_writes_it(
    spark, rows, tmp_path, by_spark, change, setting, value
):
    change(**{setting: value})
    results, seen = results_of(rows)
    assert write_by_tasks(sink_of(tmp_path / "tasks"), results, rows.schema, spark, 0) == 3
    assert by_spark == []
    assert seen.get == {"reports": [b"seen"], "n": 3}
    sink_of(tmp_path / "spark").write(rows, 0)
    found, wanted = (spark.read.parquet(str(tmp_path / each)) for each in ("tasks", "spark"))
    assert found.schema == wanted.schema
    assert repr(found.toArrow().to_pylist()) == repr(wanted.toArrow().to_pylist())
    assert physical(tmp_path / "tasks") == physical(tmp_path / "spark")
    names = [[each.name for each in (tmp_path / at).glob("*")] for at in ("tasks", "spark")]
    assert sorted(names[0]) == sorted(names[1])


def test_rows_of_every_type_come_to_the_driver(spark, rows):
    results, seen = results_of(rows)
    sink = MemorySink()
    assert write_by_tasks(sink, results, rows.schema, spark, 0) == 3
    assert seen.get["n"] == 3
    assert repr(sink.table().to_pylist()) == repr(rows.toArrow().to_pylist())
    assert sink.table().schema == rows.toArrow().schema


def test_a_task_writes_row_groups_as_it_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(lane_results, "GROUP_ROWS", 100)
    parquet = lane_results.Parquet("snappy", "snappy.parquet", is_int96=False, says={"a": "b"})
    writer = lane_results.FileWriter(str(tmp_path), parquet, 3)
    for _ in range(5):
        assert [*writer.add(pa.table({"x": [*range(70)]}))] == []
        assert writer._held.n_rows < 100
    ((name, n_rows),) = writer.close()
    assert name.startswith(b"part-00003-")
    footer = pq.read_metadata(tmp_path / name.decode())
    groups = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
    assert (groups, n_rows) == ([140, 140, 70], 350)
    assert footer.metadata[b"a"] == b"b"
    assert [*lane_results.FileWriter(str(tmp_path), parquet).close()] == []
    assert os.listdir(tmp_path) == [name.decode()]


def test_blobs_are_sent_as_they_fill(monkeypatch):
    monkeypatch.setattr(lane_results, "BLOB_BYTES", 1_000)
    writer = lane_results.BlobWriter()
    sent = [each for _ in range(7) for each in writer.add(pa.table({"x": [*range(50)]}))]
    assert [n_rows for _, n_rows in [*sent, *writer.close()]] == [150, 150, 50]
    assert [*writer.close()] == []


def test_a_row_of_a_block_does_not_keep_the_block():
    writer = lane_results.BlobWriter()
    before = pa.total_allocated_bytes()
    for _ in range(50):
        block = pa.table({"x": pa.array([*range(100_000)])})
        assert [*writer.add(block.slice(7, 1))] == []
        del block
    assert pa.total_allocated_bytes() - before < 1_000_000
    ((blob, n_rows),) = writer.close()
    assert n_rows == 50
    assert pa.ipc.open_stream(blob).read_all()["x"].to_pylist() == [7] * 50


def test_queries_together_hold_a_bounded_number_of_bytes(monkeypatch):
    monkeypatch.setattr(lane_results, "HELD_BYTES", 4_000)
    pick = lane_results.Picked((ColumnValues(("x",)),), pa.schema([("x", pa.int64())]))
    queries = dict.fromkeys(range(20), (pick, lane_results.BlobWriter))
    writer = lane_results.WriterPerQuery(queries, "of")
    table = pa.table({"x": [*range(40)], "of": [[place % 21, 3] for place in range(40)]})
    receipts = []
    for _ in range(30):
        receipts += writer.add(table)
        assert sum(each._held.n_bytes for each in writer._writers.values()) < 5_000
    receipts += writer.close()
    found = {place: sum(n for _, n in own) for place, own in by_place(receipts).items()}
    wanted = Counter(place for row in table["of"].to_pylist() for place in row if place < 20)
    assert found == {place: 30 * n for place, n in wanted.items()}


def test_a_field_is_picked_whatever_its_name_is():
    table = pa.table({"a.b": [{".x": 1, "y": {"z": "deep"}}]})
    kinds = pa.schema([("one", pa.int32()), ("two", pa.string())])
    pick = lane_results.Picked((ColumnValues(("a.b", 0)), ColumnValues(("a.b", 1, 0))), kinds)
    assert pick(table).to_pylist() == [{"one": 1, "two": "deep"}]


def test_files_of_attempts_that_do_not_count_are_left_out(spark, tmp_path, monkeypatch):
    df = spark.range(10)
    sink = sink_of(tmp_path)
    results, _ = results_of(df, 2)
    write = TaskResults.write

    def with_another(self, *given):
        found = write(self, *given)
        (staging,) = (tmp_path / "_eddyline").glob("batch-00000000-*")
        pq.write_table(pa.table({"id": [77]}), staging / "part-00000-other.snappy.parquet")
        return found

    monkeypatch.setattr(TaskResults, "write", with_another)
    assert write_by_tasks(sink, results, df.schema, spark, 0) == 10
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path)).collect()) == [*range(10)]
    assert len([*tmp_path.glob("batch-*")]) == 2


def test_a_task_of_a_stopped_attempt_adds_no_rows_to_the_next_one(spark, tmp_path):
    """The batch runs again by another way, and the old task writes its file only then."""
    df = spark.range(5)
    sink = sink_of(tmp_path)
    sink.write_arrow(df.toArrow(), df.schema, spark, 0)
    old = sink.result_writer(df.schema, spark, 1)()
    assert [*old.add(df.toArrow())] == []
    staged = sink._written
    take = sink.take

    def after_the_old_one(folder, *given):
        os.makedirs(staged, exist_ok=True)  # as if it had made the file before
        assert len([*old.close()]) == 1
        take(folder, *given)

    sink.take = after_the_old_one
    sink.write_arrow(df.toArrow(), df.schema, spark, 1)
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path)).collect()) == sorted(
        [*range(5)] * 2
    )
    assert os.listdir(staged)
    FileSink(tmp_path).begin(continues=True)
    assert not (tmp_path / "_eddyline").exists()


def test_files_that_the_driver_does_not_find_are_an_error(spark, tmp_path, monkeypatch):
    sink = sink_of(tmp_path)
    results, _ = results_of(spark.range(10))
    (tmp_path / "elsewhere").mkdir()
    make = files._file_writer
    monkeypatch.setattr(
        files, "_file_writer", lambda _folder, parquet: make(str(tmp_path / "elsewhere"), parquet)
    )
    with pytest.raises(SourceError, match=r"of which the driver lacks .; all workers must reach"):
        write_by_tasks(sink, results, spark.range(10).schema, spark, 0)


@pytest.mark.large
@FILES_ARE_ASKED
def test_a_folder_that_tasks_cannot_write_to_is_named(spark, folder, tmp_path, monkeypatch):
    # As of a disk that only the driver has.
    monkeypatch.setattr(FileSink, "_empty_staging", lambda self, *_: f"{self.root}/not/there")
    with pytest.raises(SourceError, match=r"a task cannot write results to .*/not/there/part-"):
        run_to_end(query_of(spark, folder, "filter"), tmp_path)


@pytest.mark.parametrize("options", [{"files": 2}, {"mergeSchema": "true"}])
def test_options_of_spark_alone_keep_its_writer(spark, tmp_path, options):
    schema = spark.range(1).schema
    assert not takes_tasks(FileSink(tmp_path, options), schema, spark)
    assert takes_tasks(FileSink(tmp_path, {"compression": "zstd"}), schema, spark)
    assert not takes_tasks(FileSink(tmp_path / "csv", kind="csv"), schema, spark)
    assert not takes_tasks(FileSink(tmp_path), None, spark)


@pytest.mark.large
def test_a_type_that_arrow_lacks_is_left_to_spark(spark, folder):
    engine = el.Engine(spark)
    rows = stream_of(spark, folder, "s").selectExpr("id", "x", "INTERVAL '3' MONTH AS span")
    engine.stream("s", rows)
    engine.function("small", lambda x: pc.less(x, 3.0), reads=["x"])
    found = []
    query = engine.query("SELECT span, id FROM s WHERE small(x)", name="months")
    run = query.start(lambda df, _: found.append(df.count()), trigger="available_now")
    assert run.await_termination(400)
    assert sum(found) > 50

"""What files say of a micro-batch is what its rows are; where they say nothing, rows are asked."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import eddyline as el
from eddyline.spark import clock, stream_files
from eddyline.spark.joins import inputs
from eddyline.spark.stream_files import FileStream, file_column
from tests.spark.joins.join_streams import stream_of, write_batch
from tests.spark.parquet_files import ask_rows, schema_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.* came too late"),
    pytest.mark.parametrize("asked", ["files"], indirect=True),
]

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
N_BATCHES = 3


def rows(number):
    """Rows out of order, one without an instant; in the last batch one that is late."""
    seconds = [number * 10 + at * 7 % 10 for at in range(10)]
    if number == N_BATCHES - 1:
        seconds[4] = 2
    instants = [T0 + dt.timedelta(seconds=each) for each in seconds]
    return pa.table(
        {
            "id": pa.array(range(number * 10, number * 10 + 10)),
            "k": pa.array([at % 2 for at in range(10)]),
            "ts": pa.array([*instants[:-1], None], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("a b%20c=d")
    for number in range(N_BATCHES):
        for name in "st":
            write_batch(made, name, number, rows(number))
        write_batch(made, "far", number, rows(number + 8640))  # a day later
    return made


@pytest.fixture
def s(spark, folder):
    return stream_of(spark, folder, "s")


def told(df, tmp_path, plans=(lambda df: df,)):
    """What files say of each micro-batch of a stream, by plans over it, once counted alike."""
    streams, found = [FileStream.from_stream(plan(df), tmp_path / "ckpt") for plan in plans], []
    assert None not in streams

    def take(batch, batch_id):
        files = [stream.files(batch_id) for stream in streams]
        found.append([[each.span(at, "ts") for at in range(len(each.streams))] for each in files])
        true = [plan(batch).count() for plan in plans]
        assert [each.n_rows for each in files] == true

    query = df.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "ckpt"))
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return found


def span_of(number):
    known = [each for each in rows(number)["ts"].to_pylist() if each is not None]
    ends = [round((each - T0).total_seconds()) for each in (min(known), max(known))]
    return (10, 9, *ends)


def seconds(span):
    micros = round(T0.timestamp()) * 1_000_000
    return (
        span.n_rows,
        span.n_timed,
        *((each - micros) // 1_000_000 for each in (span.earliest, span.latest)),
    )


def test_rows_and_instants_are_those_of_the_batch(s, tmp_path):
    plans = (
        lambda df: df,
        lambda df: df.select("ts", "id"),
        lambda df: df.select((F.col("id") + 1).alias("more"), "ts"),
        lambda df: df.withWatermark("ts", "1 second"),
        lambda df: df.withColumnRenamed("ts", "at").select("at", "id"),
        lambda df: df.select("ts"),
        lambda df: df.select("id"),
    )
    found = told(s, tmp_path, plans)
    for number, of_plans in enumerate(found):
        assert [seconds(one) for (one,) in of_plans] == [span_of(number)] * len(plans)
    assert len(found) == N_BATCHES


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_files_that_spark_has_written(spark, folder, tmp_path, change, kind):
    written = spark.read.parquet(str(folder / "s")).coalesce(1)
    change(instants=kind)
    written.write.parquet(str(tmp_path / "s"))
    df = spark.readStream.schema(written.schema).parquet(str(tmp_path / "s"))
    (((span,),),) = told(df, tmp_path)
    spans = [span_of(number) for number in range(N_BATCHES)]
    assert seconds(span) == (30, 27, min(s[2] for s in spans), max(s[3] for s in spans))


@pytest.mark.large
def test_streams_that_are_united_are_told_one_by_one(spark, folder, tmp_path):
    for number in (N_BATCHES, N_BATCHES + 1):  # Spark begins with the oldest of each
        write_batch(folder, "u", number, rows(number % 2))
    s, u = (stream_of(spark, folder, name).select("id", "ts") for name in "su")
    both = s.unionByName(u)
    stream, seen = FileStream.from_stream(both, tmp_path / "c"), []
    assert stream.sources == (0, 1)

    def take(batch, batch_id):
        files = stream.files(batch_id)
        spans = [files.span(at, "ts").n_rows for at in range(2)]
        seen.append((files.n_rows, spans, batch.count()))

    query = both.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert seen == [(20, [10, 10], 20), (20, [10, 10], 20), (10, [10, 0], 10)]


@pytest.mark.parametrize(
    "made",
    [
        lambda df: df.where("id > 3"),
        lambda df: df.select(F.explode(F.array("id", "id")), "ts"),
        lambda df: df.select(F.window("ts", "2 seconds", "1 second"), "id"),
        lambda df: df.select(F.window("ts", "2 seconds"), "id"),  # leaves out rows without instant
        lambda df: df.dropDuplicates(["id"]),
        lambda df: df.unionByName(df.where("id > 3")),
        lambda df: df.sparkSession.readStream.format("rate").load(),
    ],
)
def test_other_streams_are_none(s, made):
    assert FileStream.from_stream(made(s), Path()) is None
    assert file_column(made(s), made(s).columns[0]) is None


def test_what_columns_are_in_files(s):
    assert file_column(s, "ts") == "ts"
    assert file_column(s.select(F.col("ts").alias("at")), "at") == "ts"
    assert file_column(s.withColumnsRenamed({"ts": "a b"}).select("a b"), "a b") == "ts"
    assert file_column(s, "id") is None  # no instant
    assert file_column(s, "none") is None
    assert file_column(s.select((F.col("ts") + F.expr("INTERVAL 1 DAY")).alias("ts")), "ts") is None
    assert file_column(s.select(F.to_timestamp(F.lit("2026-01-01")).alias("ts")), "ts") is None
    swapped = s.withColumn("other", F.col("ts") + F.expr("INTERVAL 1 DAY"))
    assert file_column(swapped.selectExpr("other AS ts", "ts AS other"), "ts") is None
    assert file_column(swapped.selectExpr("other AS ts", "ts AS other"), "other") == "ts"
    assert file_column(s.unionByName(s), "ts") is None


def test_columns_that_are_names_of_folders_are_not_told(spark, tmp_path):
    schema = "id BIGINT, k BIGINT, ts TIMESTAMP"
    for day in (1, 2):
        place = tmp_path / "s" / f"ts=2026-02-0{day}"
        place.mkdir(parents=True)
        pq.write_table(rows(day), place / "a.parquet")
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/s")
    found = told(df, tmp_path)
    assert found == [[[None]], [[None]]]


def test_many_files_are_left_to_spark(s, tmp_path, monkeypatch):
    monkeypatch.setattr(stream_files, "MOST_OPENED", 0)
    stream, found = FileStream.from_stream(s, tmp_path), []
    query = s.writeStream.foreachBatch(lambda _df, number: found.append(stream.files(number)))
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert found == [None] * N_BATCHES


def test_rows_that_spark_may_leave_out_are_not_told(spark, folder, s, change):
    path = str(folder / "s")
    reader = spark.readStream.schema(schema_of(path)).option("ignoreMissingFiles", "true")
    assert FileStream.from_stream(reader.parquet(path), Path()) is None
    change(**{"spark.sql.files.ignoreCorruptFiles": "true"})
    assert FileStream.from_stream(s, Path()) is None


def test_batches_of_frames_are_none(spark, folder, tmp_path):
    assert FileStream.from_stream(spark.read.parquet(str(folder / "s")), tmp_path) is None


OFFSETS = 'v1\n{}\n{"logOffset":0}'
ENTRIES = 'v1\n{"path":"file:///a%20b.parquet","timestamp":1,"batchId":0}'


@pytest.mark.parametrize(
    ("offsets", "entries", "paths"),
    [
        (OFFSETS, ENTRIES, ("/a b.parquet",)),
        (OFFSETS.replace("v1", "v2"), ENTRIES, None),
        (OFFSETS.replace(":0", ':"x"'), ENTRIES, None),
        (OFFSETS.replace(":0", ":1"), ENTRIES, None),
        (OFFSETS + '\n{"logOffset":0}', ENTRIES, None),
        ("v1\n{}", ENTRIES, None),
        ("v1\n{}\n-", ENTRIES, ()),
        ("", ENTRIES, None),
        (OFFSETS, ENTRIES.replace("v1", "v2"), None),
        (OFFSETS, ENTRIES.replace("file:///", "s3a://"), None),
        (OFFSETS, ENTRIES.replace('"batchId":0', '"batchId":1'), None),
        (OFFSETS, ENTRIES.replace("a%20b", "a%3Fb"), None),
        (OFFSETS, ENTRIES.replace("a%20b", "[ab]"), None),
        (OFFSETS, ENTRIES[:-5], None),
        (OFFSETS, "v1", None),
        (OFFSETS, "", None),
    ],
)
def test_logs_of_another_form_say_nothing(tmp_path, offsets, entries, paths):
    stream = FileStream((0,), tmp_path)
    assert stream.files(0) is None
    for log, text in (("offsets/0", offsets), ("sources/0/0", entries)):
        (tmp_path / log).parent.mkdir(parents=True)
        (tmp_path / log).write_text(text)
    found = stream.files(0)
    assert (None if found is None else found.streams[0].paths) == paths


def test_a_batch_may_have_the_files_of_several_steps(tmp_path):
    for log in ("offsets", "sources/0"):
        (tmp_path / log).mkdir(parents=True)
    for batch_id, last in enumerate((0, 2, 2)):
        (tmp_path / "offsets" / str(batch_id)).write_text(OFFSETS.replace(":0", f":{last}"))
    for step in range(3):
        entry = ENTRIES.replace("a%20b", f"f{step}").replace('"batchId":0', f'"batchId":{step}')
        (tmp_path / "sources" / "0" / str(step)).write_text(entry)
    stream = FileStream((0,), tmp_path)
    paths = [stream.files(batch_id).streams[0].paths for batch_id in range(3)]
    assert paths == [("/f0.parquet",), ("/f1.parquet", "/f2.parquet"), ()]


def test_a_stream_that_is_read_twice_is_one_source(s, tmp_path):
    both = s.select("id", "ts").unionByName(s.select("id", "ts"))
    assert FileStream.from_stream(both, tmp_path).sources == (0, 0)
    found = told(both, tmp_path)
    assert [[seconds(each) for each in spans] for (spans,) in found] == [
        [span_of(number)] * 2 for number in range(N_BATCHES)
    ]


@pytest.mark.large
@pytest.mark.parametrize("tail_bytes", [1 << 20, 300, 10])
def test_files_are_found_where_spark_writes_all_in_one_list(
    spark, tmp_path, change, monkeypatch, tail_bytes
):
    monkeypatch.setattr(stream_files, "TAIL_BYTES", tail_bytes)
    for number in range(5):
        write_batch(tmp_path, "s", number, rows(0).slice(number))
    change(**{"spark.sql.streaming.fileSource.log.compactInterval": "2"})
    df = stream_of(spark, tmp_path, "s")
    stream, found = FileStream.from_stream(df, tmp_path / "c"), []

    def take(batch, batch_id):
        found.append((stream.files(batch_id), batch.count()))

    query = df.writeStream.foreachBatch(take)
    query = query.option("checkpointLocation", str(tmp_path / "c"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert any((tmp_path / "c" / "sources" / "0").glob("*.compact"))
    known = [(files.streams[0].paths, n_rows) for files, n_rows in found if files]
    for (path,), n_rows in known:
        assert n_rows == 10 - int(path.removesuffix(".parquet")[-1])
    assert len(known) < 5 if tail_bytes == 10 else len(known) == 5
    assert known


# -- queries ------------------------------------------------------------------------------------


QUERIES = {
    "columns": "SELECT id + 1 AS more FROM s",
    "condition": "SELECT id FROM s WHERE k = 1",
    "window": "SELECT k, count(*) AS n, window.end AS e FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY k",
    "changes": "SELECT k, count(*) AS n, max(id) AS top FROM s GROUP BY k",
    "over": "SELECT id, count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 5 SECONDS "
    "PRECEDING AND CURRENT ROW) AS n FROM s",
    "join": "SELECT s.id AS a, t.id AS b FROM s [RANGE 3 SECONDS], t [RANGE 3 SECONDS] "
    "WHERE s.k = t.k",
    "windows of a join": "SELECT k, count(*) AS n, window.end AS e "
    "FROM pairs [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k",
    "joined windows": "SELECT c.n AS n, s.id AS id FROM counts [RANGE 3 SECONDS] c, "
    "s [RANGE 3 SECONDS] WHERE c.k = s.k",
    "union": "SELECT id, k FROM s UNION ALL SELECT id, k FROM t",
    "union with a join": "SELECT id, k, ts FROM u UNION ALL SELECT s.id AS id, t.id AS k, "
    "s.ts AS ts FROM s [RANGE 3 SECONDS], t [RANGE 3 SECONDS] WHERE s.k = t.k",
}


def life_of(spark, folder, text, sink="memory"):
    """The results of a query, and how many rows each of its batches had and gave."""
    with el.Engine(spark) as engine:
        for name in "st":
            rows = stream_of(spark, folder, name)
            engine.stream(name, rows, time="ts", lateness="4 seconds")
        pairs = "SELECT s.k AS k, s.ts AS ts FROM s [RANGE 2 SECONDS], t [NOW] WHERE s.k = t.k"
        engine.stream("pairs", engine.query(pairs, name="p"), time="ts")
        engine.stream("u", stream_of(spark, folder, "far"), time="ts", lateness="4 seconds")
        counts = QUERIES["window"]
        engine.stream("counts", engine.query(counts, name="c"), time="e")
        run = engine.query(text, name="q").start(sink, trigger="available_now")
        assert run.await_termination(120)
        found = sink.rows if sink != "memory" else map(str, run.to_arrow().to_pylist())
        return sorted(found), [(each.n_rows, each.n_kept) for each in run.records]


class Observed:
    """A sink that notes how often rows are observed in the plan of each batch."""

    takes_all = True

    def __init__(self):
        self.rows, self.walls = [], []

    def __call__(self, df, _id):
        self.walls.append(walls(df._jdf.queryExecution().analyzed()))
        self.rows += map(str, df.collect())


def walls(node):
    """How often rows are observed in a plan of Spark's."""
    own = node.nodeName() == "CollectMetrics"
    children = node.children()
    return own + sum(walls(children.apply(at)) for at in range(children.size()))


@pytest.fixture
def looks(monkeypatch):
    """The jobs that look at event times."""
    found = []
    for module in (clock, inputs):
        run = module.counted
        monkeypatch.setattr(module, "counted", lambda *args, run=run: found.append(1) or run(*args))
    return found


N_WALLS = {
    "columns": (0, 1),  # what the sink takes
    "condition": (1, 2),
    "over": (1, 2),  # what tasks report
    "join": (1, 3),
}
"""How often rows are observed, where files are asked and where rows are."""

LOOK = ("changes", "windows of a join")
"""Queries that look at event times where more files are new than are opened."""

BY_RESULTS = ("joined windows",)
"""Queries whose input is of results, which no file tells of."""

LARGE = {
    "windows of a join": "runs two operators twice",
    "joined windows": "runs two operators twice",
    "union with a join": "runs two operators twice",
} | dict.fromkeys(("window", "over", "union", "changes"), "runs a query twice")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.large(LARGE[name])] if name in LARGE else [])
        for name in QUERIES
    ],
)
def test_answers_and_counts_are_those_of_rows_that_are_asked(
    spark, folder, monkeypatch, looks, name
):
    """Less is observed, and no job looks at the event times of files."""
    files, asked = (Observed() if name in N_WALLS else "memory" for _ in range(2))
    with_files = life_of(spark, folder, QUERIES[name], files)
    assert not looks or name in BY_RESULTS
    if name in LOOK:
        monkeypatch.setattr(stream_files, "MOST_OPENED", 0)
    else:
        ask_rows(monkeypatch)
    assert with_files == life_of(spark, folder, QUERIES[name], asked)
    assert with_files[0]
    assert looks or name not in LOOK
    if name in N_WALLS:
        assert [*zip(files.walls, asked.walls, strict=True)] == [N_WALLS[name]] * N_BATCHES


def test_a_sink_that_takes_a_part_is_told_what_it_took(spark, folder):
    with el.Engine(spark) as engine:
        engine.stream("s", stream_of(spark, folder, "s"), time="ts")
        taken = []
        run = engine.query("SELECT id + 1 AS more FROM s", name="q").start(
            lambda df, _id: taken.append(len(df.limit(2).collect())), trigger="available_now"
        )
        assert run.await_termination(120)
        assert taken == [2, 2, 2]
        assert all(each.n_rows == 10 for each in run.records)
        assert all(2 <= each.n_kept <= 10 for each in run.records)

"""Queries over Kafka topics: as those over files, through restarts and failing batches."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import OptionError, PluginError, QueryError, SourceError
from eddyline.sources.rejected import RejectedRecord
from eddyline.spark import stream_files
from eddyline.spark.run.run import Run
from eddyline.spark.script import run_script
from eddyline.spark.sources.reading import register_sources, stream_of

pytestmark = pytest.mark.spark

DDL = "id LONG, k STRING, total DOUBLE, ts TIMESTAMP"
T0 = 1_700_000_000


def event(number):
    return {
        "id": number,
        "k": f"k{number % 7}",
        "total": (number * 37) % 101 / 2,
        "ts": T0 + number,
    }


def documents(numbers, n_partitions=2):
    return [(n % n_partitions, json.dumps(event(n)).encode()) for n in numbers]


def orders(broker, topic, **options):
    how = {"schema": DDL, "timeout": "20 seconds", **options}
    return el.kafka(broker.servers, topic, **how)


def engine_over(spark, source, **more):
    engine = el.Engine(spark)
    engine.stream("orders", source, time="ts", lateness="5 minutes", **more)
    return engine


def ended(query, sink="memory", **how):
    run = query.start(sink, trigger="available_now", **how)
    assert run.await_termination(120)
    return run


def rows(run):
    return Counter(tuple(row.values()) for row in run.to_arrow().to_pylist())


def written(folder):
    return sorted(pq.read_table(folder)["id"].to_pylist())


COMPOSED = {
    "where": "SELECT id, k, total, ts FROM orders WHERE total > 10 AND k <> 'k3'",
    "aggregate": (
        "SELECT k, count(*) AS n, sum(total) AS total FROM orders [RANGE 1 MINUTE SLIDE 1 MINUTE] "
        "WHERE total > 3 GROUP BY k"
    ),
    "join": (
        "SELECT o.id, p.id AS other, p.total FROM orders [RANGE 20 SECONDS] o, "
        "payments [RANGE 20 SECONDS] p WHERE o.k = p.k AND o.total < p.total"
    ),
    "the same topic twice": (
        "SELECT a.k, count(*) AS n FROM orders [RANGE 5 SECONDS] a, again [RANGE 5 SECONDS] b "
        "WHERE a.id = b.id GROUP BY a.k"
    ),
}


@pytest.fixture(scope="module")
def events(broker, spark, tmp_path_factory):
    """Topics of orders and payments, and files with the same events."""
    sources = {}
    for name, numbers in (("orders", range(300)), ("payments", range(100, 400))):
        topic = broker.topic(name, 3)
        broker.produce(topic, documents(numbers, 3))
        folder = tmp_path_factory.mktemp(name)
        table = pa.Table.from_pylist([event(n) for n in numbers])
        instants = pa.array([datetime.fromtimestamp(t.as_py(), UTC) for t in table["ts"]])
        table = table.set_column(3, "ts", instants.cast(pa.timestamp("us", tz="UTC")))
        pq.write_table(table, folder / "0.parquet")
        files = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        sources[name] = topic, files.parquet(str(folder))
    return sources


@pytest.mark.large("runs each query twice")
@pytest.mark.parametrize("name", COMPOSED)
def test_answers_over_topics_are_those_over_files(spark, broker, events, name):
    answers = []
    for over_kafka in (True, False):
        engine = el.Engine(spark)
        for stream, kind in (("orders", "orders"), ("again", "orders"), ("payments", "payments")):
            topic, files = events[kind]
            source = orders(broker, topic, max_per_batch=170) if over_kafka else files
            engine.stream(stream, source, time="ts", lateness="30 seconds")
        answers.append(rows(ended(engine.query(COMPOSED[name]))))
    assert answers[0] == answers[1]
    assert answers[0]


@pytest.mark.large("runs a query twice")
def test_rules_over_topics_are_those_over_files(spark, broker, events):
    rules = el.RuleSet(
        {"big": "total > 40 AND k IN ('k1', 'k2')", "odd": "id % 2 = 1 AND total < 5"}
    )
    answers = []
    for over_kafka in (True, False):
        topic, files = events["orders"]
        engine = engine_over(spark, orders(broker, topic) if over_kafka else files)
        query = engine.rules("alerts", rules, stream="orders")
        answers.append(Counter(map(repr, ended(query).to_arrow().to_pylist())))
    assert answers[0] == answers[1]
    assert answers[0]


@pytest.mark.large("runs a query four times")
@pytest.mark.parametrize("asked", ["files"], indirect=True)
@pytest.mark.parametrize("reads_here", [True], indirect=True)
@pytest.mark.parametrize("name", ["aggregate", "join"])
def test_it_makes_no_difference_who_reads_the_records(
    spark, broker, events, name, tmp_path, monkeypatch, asked, reads_here
):
    """The driver reads few records; many bytes, or ``lane="off"``, leave them to tasks."""
    answers, readers = [], []
    for way in ("driver", "tasks", "too many bytes", "driver"):
        limit = 1 if way == "too many bytes" else 256 << 20
        monkeypatch.setattr(stream_files, "MOST_BYTES_HERE", limit)
        engine = el.Engine(spark)
        for stream in ("orders", "payments"):
            topic, _ = events[stream]
            source = orders(broker, topic, max_per_batch=70)
            engine.stream(stream, source, time="ts", lateness="30 seconds")
        lane = "off" if way == "tasks" else "auto"
        query = engine.query(COMPOSED[name], name=f"{name} {len(answers)}", lane=lane)
        checkpoint = tmp_path / str(len(answers))
        run = ended(query, checkpoint=checkpoint)
        answers.append(rows(run))
        readers.append("the driver reads the files" in run.explain())
        assert not [*checkpoint.rglob("read/*/*.parquet")]
    assert answers[0]
    assert all(answer == answers[0] for answer in answers[1:])
    assert readers == [True, False, False, True]


@pytest.mark.large("runs a query in several batches")
@pytest.mark.parametrize("asked", ["files"], indirect=True)
@pytest.mark.parametrize("reads_here", [True], indirect=True)
def test_values_that_the_driver_rejects_are_counted_once(
    spark, broker, tmp_path, asked, reads_here
):
    topic = broker.topic()
    broker.produce(topic, documents(range(60)))
    broker.produce(topic, [(0, b"broken"), (1, b"broken, too")])
    broker.produce(topic, documents(range(60, 200)))
    engine = engine_over(spark, orders(broker, topic, max_per_batch=50))
    run = ended(engine.query(COMPOSED["aggregate"]), checkpoint=tmp_path / "ckpt")
    assert "the driver reads the files" in run.explain()
    assert run.rejected("orders")["value"].to_pylist() == ["broken", "broken, too"]
    counts = [m.value for m in run.metrics() if m.name == "eddyline_rejected_values_total"]
    assert counts == [2]


# -- restarts -------------------------------------------------------------------------------------


@pytest.mark.large("starts a query five times")
def test_a_query_goes_on_where_it_stopped(spark, broker, tmp_path):
    topic = broker.topic()
    engine = engine_over(spark, orders(broker, topic, max_per_batch=30))
    query = engine.query("SELECT id FROM orders WHERE id <> 5", name="q")
    how = {"path": tmp_path / "out", "checkpoint": tmp_path / "ckpt"}
    expected = []
    for first, last in ((0, 100), (100, 101), (101, 220)):
        broker.produce(topic, documents(range(first, last)))
        expected += [n for n in range(first, last) if n != 5]
        run = ended(query, "parquet", **how)
        assert written(tmp_path / "out") == expected
        assert max(batch.n_rows for batch in run.records) <= 30
    # The last batch runs again: its offsets are there, and its commit is not.
    commits = tmp_path / "ckpt" / "spark" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for file in (commits / str(last), commits / f".{last}.crc"):
        file.unlink(missing_ok=True)
    broker.produce(topic, documents(range(220, 230)))
    ended(query, "parquet", **how)
    assert written(tmp_path / "out") == [n for n in range(230) if n != 5]
    ended(query, "parquet", **how)
    assert written(tmp_path / "out") == [n for n in range(230) if n != 5]


@pytest.mark.large("stops a query between batches and starts it again")
def test_a_query_that_is_stopped_on_the_way_goes_on(spark, broker, tmp_path):
    """A planned batch that did not run has its offsets, whatever ``available_now`` sees later."""
    topic = broker.topic()
    broker.produce(topic, documents(range(200)))
    failing = {"at": 3}

    def write(df, batch_id):
        if batch_id == failing["at"]:
            raise RuntimeError("the sink is away")
        ids = [row.id for row in df.collect()]
        seen[batch_id] = ids

    seen: dict[int, list[int]] = {}
    engine = engine_over(spark, orders(broker, topic, max_per_batch=20))
    query = engine.query("SELECT id FROM orders", name="q")
    for at in (3, 4, -1):
        failing["at"] = at
        run = query.start(write, checkpoint=tmp_path / "ckpt", trigger="available_now")
        if at < 0:
            assert run.await_termination(120)
        else:
            with pytest.raises(Exception, match="the sink is away"):
                run.await_termination(120)
            broker.produce(topic, documents(range(200 + 10 * at, 210 + 10 * at)))
    ids = sorted(i for batch in seen.values() for i in batch)
    assert ids == [*range(200), *range(230, 250)]
    assert max(len(batch) for batch in seen.values()) <= 20


@pytest.mark.large("waits for batches of a query that goes on")
def test_a_query_that_goes_on_reads_topics_that_come_later(spark, own_broker, tmp_path):
    first = own_broker.topic("late", 1)
    own_broker.produce(first, documents(range(5), 1))
    source = orders(own_broker, None, pattern=f"{first}.*", metadata=["kafka_topic"])
    engine = engine_over(spark, source)
    query = engine.query("SELECT id, kafka_topic FROM orders", name="q")
    run = query.start("memory", trigger="100 milliseconds")
    try:
        until(lambda: run.records and run.to_arrow().num_rows == 5)
        later = own_broker.named(f"{first}-later", 1)
        own_broker.produce(later, documents(range(5, 9), 1))
        until(lambda: run.to_arrow().num_rows == 9)
        with own_broker.away():
            time.sleep(3)
        own_broker.produce(first, documents(range(9, 12), 1))
        until(lambda: run.to_arrow().num_rows == 12)
    finally:
        run.stop()
    table = run.to_arrow()
    assert sorted(table["id"].to_pylist()) == list(range(12))
    assert Counter(table["kafka_topic"].to_pylist()) == {first: 8, later: 4}


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


# -- rejected values ------------------------------------------------------------------------------


@pytest.mark.large("runs a query, fails a batch and runs it again")
def test_rejected_values_count_once(spark, broker, tmp_path):
    topic = broker.topic("rejects", 2)
    values = documents(range(60))
    for position in (3, 17, 44):
        values[position] = values[position][0], b'{"id": "x"}'
    values[50] = values[50][0], b"\xff{"
    broker.produce(topic, values)
    failing = {"at": 1}

    def write(df, batch_id):
        df.collect()
        if batch_id == failing["at"]:
            raise RuntimeError("the sink is away")

    engine = engine_over(spark, orders(broker, topic, max_per_batch=20))
    query = engine.query("SELECT id FROM orders WHERE id >= 0", name="q")
    how = {"checkpoint": tmp_path / "ckpt", "trigger": "available_now"}
    run = query.start(write, **how)
    with pytest.raises(Exception, match="the sink is away"):
        run.await_termination(120)
    failing["at"] = -1
    run = query.start(write, **how)
    assert run.await_termination(120)
    table = run.rejected("orders")
    assert table.num_rows == 4
    assert Counter(table["topic"].to_pylist()) == {topic: 4}
    places = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert sorted(places) == [(0, 22), (0, 25), (1, 1), (1, 8)]
    assert "\\xff{" in table["value"].to_pylist()
    n_rejected = sum(
        record.n_rejected
        for batch in run.records
        for record in batch.operators
        if isinstance(record, RejectedRecord)
    )
    n_after_first = sum(batch > 0 for batch in table["batch"].to_pylist())
    assert n_rejected == n_after_first > 0, "the first batch is one of the run before"
    lines = [line for batch in run.records for line in batch.lines if "rejected" in line]
    said = re.compile(r"orders: \d rejected; run\.rejected\('orders'\) has them")
    assert lines
    assert all(said.fullmatch(line) for line in lines)
    with pytest.raises(QueryError, match=r"unknown stream that rejects values 'order'.*orders"):
        run.rejected("order")


@pytest.mark.large("runs a query of two streams and starts two queries")
def test_two_queries_over_one_topic_run_together(spark, broker, tmp_path):
    topic = broker.topic("shared")
    values = documents(range(40))
    values[7] = values[7][0], b"nope"
    broker.produce(topic, values)
    engine = engine_over(spark, orders(broker, topic))
    engine.query("SELECT id FROM orders WHERE total > 20", name="high")
    engine.query("SELECT id FROM orders WHERE total <= 20", name="low")
    runs = engine.start_all("memory", trigger="available_now")
    assert all(run.await_termination(120) for run in runs)
    ids = sorted(i for run in runs for i in run.to_arrow()["id"].to_pylist())
    assert ids == [n for n in range(40) if n != 7]
    for run in runs:
        assert run.rejected("orders").num_rows == 1


@pytest.mark.parametrize("name", ["..", "Ströme von Übersee", "流" * 40, "a/b", "x" * 200])
@pytest.mark.large("runs a query for each name")
def test_streams_of_unusual_names_reject_values(spark, broker, tmp_path, name):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, [(0, b'{"id": 1}'), (0, b"{")])
    engine = el.Engine(spark)
    engine.stream(name, orders(broker, topic))
    query = engine.query(f"SELECT id FROM `{name}` WHERE id > 0", name="q")
    run = ended(query, checkpoint=tmp_path / "ckpt")
    assert run.to_arrow()["id"].to_pylist() == [1]
    assert run.rejected(name)["value"].to_pylist() == ["{"]
    folders = {file.name for file in (tmp_path / "ckpt").rglob("rejected")}
    assert folders == {"rejected"}
    assert len(list((tmp_path / "ckpt").glob("*.json"))) == 0


# -- without an engine, and by a script -----------------------------------------------------------


@pytest.mark.large("runs two streams of Spark's own")
def test_spark_reads_topics_without_an_engine(spark, broker, tmp_path):
    topic = broker.topic("plain", 1)
    broker.produce(topic, [(0, b"a"), (0, b"b"), (0, b"\xff")])
    register_sources(spark)
    reader = spark.readStream.format("eddyline_kafka").option("servers", broker.servers)
    reader = reader.option("topic", topic).option("value", "text").option("maxPerBatch", 2)
    with pytest.raises(Exception, match="max_per_batch"):
        reader.load()
    reader = spark.readStream.format("eddyline_kafka").options(
        servers=broker.servers, topic=topic, value="text", max_per_batch=2, METADATA="kafka_offset"
    )
    out, rejected = tmp_path / "out", tmp_path / "rejected"
    df = reader.option("rejected_to", str(rejected)).load()
    assert df.columns == ["value", "kafka_offset"]
    for more in ((), ((0, b"c"),)):
        if more:
            broker.produce(topic, more)
        how = df.writeStream.option("checkpointLocation", str(tmp_path / "c"))
        how.trigger(availableNow=True).format("parquet").start(str(out)).awaitTermination(120)
    table = spark.read.parquet(str(out)).toArrow().sort_by("kafka_offset")
    assert table.to_pydict() == {"value": ["a", "b", "c"], "kafka_offset": [0, 1, 3]}
    (file,) = rejected.iterdir()
    assert json.loads(file.read_text())["offset"] == 2


@pytest.mark.large("runs a query that fails")
def test_a_rejected_value_without_a_folder_is_an_error(spark, broker, tmp_path):
    topic = broker.topic("plain", 1)
    broker.produce(topic, [(0, b"\xff")])
    register_sources(spark)
    df = spark.readStream.format("eddyline_kafka").options(
        servers=broker.servers, topic=topic, value="text"
    )
    run = df.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="give the option rejected_to"):
        run.trigger(availableNow=True).start().awaitTermination(120)


@pytest.mark.large("runs a script")
def test_a_script_reads_topics_and_writes_one(spark, broker, tmp_path):
    topic, results = broker.topic("script"), broker.topic("results", 2)
    broker.produce(topic, documents(range(20)))
    file = tmp_path / "script.sql"
    file.write_text(
        f"""
        CREATE STREAM orders WITH (format='kafka', servers='{broker.servers}', topic='{topic}',
          schema='{DDL}', timestamps='s', time='ts', lateness='1 minute', max_per_batch='7');
        CREATE QUERY high WITH (sink='kafka', servers='{broker.servers}', topic='{results}',
          key='k', checkpoint='{tmp_path}/c') AS SELECT id, k FROM orders WHERE id > 4
        """
    )
    (run,) = run_script(file, spark=spark, trigger="available_now")
    assert run.await_termination(120)
    records = broker.consumed(results, 2)
    assert sorted(json.loads(r.value())["id"] for r in records) == list(range(5, 20))
    assert all(json.loads(r.value())["k"].encode() == r.key() for r in records)


# -- errors ---------------------------------------------------------------------------------------


def failure(run):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind, its words are asked
        run.await_termination(120)
    return str(caught.value)


@pytest.mark.large("starts two queries that fail")
def test_a_wrong_server_and_a_missing_topic_are_said(spark, broker):
    for source, words in (
        (el.kafka("127.0.0.1:1", "t", value="bytes", timeout="1 second"), "does not answer"),
        (orders(broker, "nope"), "there is no topic 'nope'"),
    ):
        engine = el.Engine(spark)
        engine.stream("orders", source)
        query = engine.query("SELECT * FROM orders", name="q")
        said = failure(query.start("memory", trigger="available_now"))
        assert words in said
        assert "Traceback" not in said
        assert len(said) < 700, said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schema": "id LONGG"}, "cannot be read"),
        ({"schema": "i INTERVAL DAY TO SECOND"}, "JSON has no values of the type of column 'i'"),
        ({"schema": " "}, "needs the columns of a value"),
        (
            {"schema": "id LONG, kafka_key STRING", "metadata": ["kafka_key"]},
            "the column 'kafka_key' twice",
        ),
    ],
)
def test_schemas_that_cannot_be_are_said(spark, options, words):
    with pytest.raises((OptionError, QueryError), match=words):
        el.Engine(spark).stream("s", el.kafka("host:9092", "t", **options))


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka.admin", None)
    with pytest.raises(PluginError, match=r"eddyline\[kafka\]"):
        el.kafka("host:9092", "t", value="bytes").initial()


@pytest.mark.large("runs a query that ends at once")
def test_plans_and_errors_show_no_secret(spark, broker):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, documents(range(3), 1))
    settings = {"sasl.password": "pass-word", "ssl.key.pem": "key-of-mine"}
    df = stream_of(spark, orders(broker, topic, settings=settings), "s")
    texts = [df._jdf.queryExecution().toString(), str(df)]
    engine = engine_over(spark, orders(broker, topic, settings=settings))
    run = ended(engine.query("SELECT id FROM orders WHERE id > 0", name="q"))
    texts += [run.explain(), repr(run), repr(run.records)]
    assert not any(secret in text for text in texts for secret in settings.values())
    with pytest.raises(SourceError) as caught:
        orders(broker, "nope", settings=settings).initial()
    assert "word" not in str(caught.value)


def test_a_cluster_needs_a_folder_that_its_workers_reach(spark, monkeypatch):
    monkeypatch.setattr(Run, "_master", "spark://host:7077")
    engine = engine_over(spark, el.kafka("host:9092", "t", schema=DDL))
    query = engine.query("SELECT id FROM orders WHERE id > 0", name="q")
    with pytest.raises(OptionError, match=r"keeps rejected values, which all workers .*checkpoint"):
        query.start("memory", trigger="available_now")


@pytest.mark.large("runs a query")
def test_columns_that_are_not_null(spark, broker, tmp_path):
    """Spark may drop a test for NULL of such columns, so no NULL may come."""
    topic = broker.topic(n_partitions=1)
    documents = [None, b'{"id": 1, "at": {"x": 1}}', b'{"id": 2, "at": {}}', b"{}"]
    broker.produce(topic, [(0, document) for document in documents])
    ddl = "id LONG NOT NULL, at STRUCT<x: INT NOT NULL>"
    engine = el.Engine(spark)
    engine.stream("orders", orders(broker, topic, schema=ddl))
    run = ended(engine.query("SELECT id, at.x AS x FROM orders WHERE id IS NOT NULL", name="q"))
    assert run.to_arrow().to_pylist() == [{"id": 1, "x": 1}]
    assert run.rejected("orders")["offset"].to_pylist() == [0, 2, 3]

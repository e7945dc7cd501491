"""Results as records of a Kafka topic, each batch once."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaException

import eddyline as el
from eddyline.errors import OptionError, QueryError, SourceError
from eddyline.spark.sinks.kafka import KafkaSink, _Writing
from tests.sources.broker import sent
from tests.spark.processes import Process
from tests.spark.sinks import killed_kafka

pytestmark = pytest.mark.spark


def writing(broker, topic, batch_id, query="q", **more):
    settings = {"bootstrap.servers": broker.servers}
    return _Writing(settings, topic, f"{topic}-{query}", query, batch_id, 10.0, **more)


def batch_of(*values, keys=None):
    arrays = [pa.array(keys or [None] * len(values), pa.binary()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, ["__eddyline_key", "__eddyline_value"])


def n_written(task, *batches):
    return sum(batch["n_rows"][0].as_py() for batch in task(iter(batches)))


def values_in(broker, topic, n_partitions=1, **how):
    return sorted(record.value() for record in broker.consumed(topic, n_partitions, **how))


# -- one task -------------------------------------------------------------------------------------


def test_a_task_that_runs_again_writes_nothing(broker):
    topic = broker.topic("out", 1)
    for batch_id, expected in ((0, 2), (0, 0), (1, 2), (0, 0), (1, 0)):
        task = writing(broker, topic, batch_id)
        assert n_written(task, batch_of(), batch_of(b"a"), batch_of(b"b")) == expected
    assert values_in(broker, topic) == [b"a", b"a", b"b", b"b"]
    assert n_written(writing(broker, topic, 0, query="other"), batch_of(b"c")) == 1


def test_a_task_without_rows_writes_nothing(broker):
    topic = broker.topic("out", 1)
    assert n_written(writing(broker, topic, 0)) == 0
    assert n_written(writing(broker, topic, 0), batch_of()) == 0
    assert values_in(broker, topic) == []


def test_an_attempt_that_was_left_behind_cannot_commit(broker):
    topic = broker.topic("out", 1)
    old = broker.producer(transactional_id=f"{topic}-q-0")
    old.init_transactions(10)
    old.begin_transaction()
    sent(old, topic, [(0, b"left behind")])
    assert n_written(writing(broker, topic, 0), batch_of(b"a")) == 1
    with pytest.raises(KafkaException):
        old.commit_transaction(1)
    # The broker of the tests also shows records that were flushed and aborted.
    values = values_in(broker, topic)
    assert values.count(b"a") == 1


def test_records_say_query_batch_and_row(broker):
    topic = broker.topic("out", 1)
    n_written(writing(broker, topic, 7), batch_of(b"a", None, b"", keys=[b"k", None, b""]))
    records = sorted(broker.consumed(topic, 1), key=lambda record: record.offset())
    assert [(r.key(), r.value()) for r in records] == [(b"k", b"a"), (None, None), (b"", b"")]
    assert [dict(r.headers()) for r in records] == [
        {"eddyline.query": b"q", "eddyline.batch": b"7", "eddyline.row": b"0-%d" % number}
        for number in range(3)
    ]


def test_a_large_value_is_written(broker):
    topic = broker.topic("out", 1)
    value = b"x" * 10_000_000
    assert n_written(writing(broker, topic, 0), batch_of(value)) == 1
    assert values_in(broker, topic) == [value]


def test_more_records_than_the_client_queues_are_written(broker):
    topic = broker.topic("out", 1)
    settings = {"bootstrap.servers": broker.servers, "queue.buffering.max.messages": 50}
    task = _Writing(settings, topic, topic, "q", 0, 10.0)
    assert n_written(task, batch_of(*(b"%d" % n for n in range(1_000)))) == 1_000
    assert len(values_in(broker, topic)) == 1_000


def test_a_broker_that_is_away_for_a_while_costs_time_alone(own_broker):
    topic = own_broker.topic("out", 1)
    with own_broker.away():
        task = _Writing({"bootstrap.servers": own_broker.servers}, topic, topic, "q", 0, 1.0)
        with pytest.raises(SourceError, match=r"batch 0 .*no record is lost or written tw"):
            n_written(task, batch_of(b"a"))
    assert n_written(writing(own_broker, topic, 0), batch_of(b"a")) == 1
    assert values_in(own_broker, topic) == [b"a"]


def test_settings_are_not_shown(broker):
    settings = {"bootstrap.servers": broker.servers, "sasl.password": "pass-word"}
    task = _Writing(settings, "t", "t", "q", 0, 1.0)
    assert "pass-word" not in repr(task)
    sink = KafkaSink(broker.servers, "t", settings={"sasl.password": "pass-word"})
    assert "pass-word" not in repr(sink)


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"value": "avro"}, "value of the sink must be one of json, column"),
        ({"tasks": 0}, "tasks of the sink must be a whole number from 1 on"),
        ({"tasks": "²"}, "tasks of the sink must be a whole number from 1 on"),
        ({"tasks": "many"}, "tasks of the sink must be a whole number from 1 on"),
        ({"timeout": "1 hour"}, "timeout of the sink must be from 1 second to 15 minutes"),
        ({"timeout": 5}, "timeout of the sink must be from 1 second"),
        ({"topic": ""}, "topic of the sink"),
    ],
)
def test_arguments_are_checked_at_once(arguments, words):
    with pytest.raises((OptionError, QueryError), match=words):
        KafkaSink(**{"servers": "host:9092", "topic": "t", **arguments})


def test_a_missing_topic_and_a_wrong_server_are_said(broker):
    broker.named("results-of-mine", 1)
    with pytest.raises(SourceError, match=r"'results-of-min'.*results-of-mine.*make it first"):
        KafkaSink(broker.servers, "results-of-min").begin(continues=False)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1 does not answer"):
        KafkaSink("127.0.0.1:1", "t", timeout="1 second").begin(continues=False)


# -- queries --------------------------------------------------------------------------------------


@pytest.fixture
def stream(spark, tmp_path):
    """A stream of files: ``put`` adds one."""

    class Stream:
        folder = tmp_path / "in"

        def put(self, number, ids):
            table = pa.table({"id": ids, "k": [f"k{i % 5}" for i in ids]})
            pq.write_table(table, self.folder / f"{number}.parquet")

        def engine(self):
            files = spark.readStream.schema("id LONG, k STRING").option("maxFilesPerTrigger", 1)
            engine = el.Engine(spark)
            engine.stream("s", files.parquet(str(self.folder)))
            return engine

    Stream.folder.mkdir()
    return Stream()


def ended(query, broker, topic, place, **how):
    run = query.start(
        "kafka",
        servers=broker.servers,
        topic=topic,
        checkpoint=place / "ckpt",
        trigger="available_now",
        **how,
    )
    assert run.await_termination(120)
    return run


def ids_in(broker, topic, n_partitions):
    return sorted(json.loads(r.value())["id"] for r in broker.consumed(topic, n_partitions))


@pytest.mark.large("starts a query three times")
def test_a_batch_that_runs_again_is_there_once(broker, stream, tmp_path):
    topic = broker.topic("out", 3)
    query = stream.engine().query("SELECT id, k FROM s WHERE id <> 3", name="q")
    for number in range(3):
        stream.put(number, list(range(10 * number, 10 * number + 10)))
    stream.put(3, [3])  # a batch without results
    ended(query, broker, topic, tmp_path, key="k")
    expected = [n for n in range(30) if n != 3]
    assert ids_in(broker, topic, 3) == expected
    commits = tmp_path / "ckpt" / "spark" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for number in (last, last - 1):
        for file in (commits / str(number), commits / f".{number}.crc"):
            file.unlink(missing_ok=True)
        ended(query, broker, topic, tmp_path, key="k")
        assert ids_in(broker, topic, 3) == expected
    partitions = defaultdict(set)
    for record in broker.consumed(topic, 3):
        partitions[record.key()].add(record.partition())
    assert {len(numbers) for numbers in partitions.values()} == {1}
    assert len(partitions) == 5


@pytest.mark.large("starts two queries together")
def test_queries_that_run_together_write_into_one_topic(broker, stream, tmp_path):
    topic = broker.topic("out", 2)
    engine = stream.engine()
    engine.query("SELECT id, k FROM s WHERE id < 6", name="low")
    engine.query("SELECT id, k FROM s WHERE id >= 4", name="high")
    stream.put(0, list(range(10)))
    runs = engine.start_all(
        "kafka",
        servers=broker.servers,
        topic=topic,
        key=["k", "id"],
        checkpoint=tmp_path / "ckpt",
        trigger="available_now",
    )
    assert all(run.await_termination(120) for run in runs)
    records = broker.consumed(topic, 2)
    of_query = Counter(dict(record.headers())["eddyline.query"] for record in records)
    assert of_query == {b"low": 6, b"high": 6}
    assert ids_in(broker, topic, 2) == sorted([*range(6), *range(4, 10)])
    assert {frozenset(json.loads(record.key())) for record in records} == {frozenset({"k", "id"})}


@pytest.mark.large("stops the broker for some seconds while a query runs")
def test_a_query_waits_for_its_broker(own_broker, stream, tmp_path):
    topic = own_broker.topic("out", 1)
    query = stream.engine().query("SELECT id FROM s WHERE id >= 0", name="q")
    how = {"servers": own_broker.servers, "topic": topic, "timeout": "1 minute"}
    run = query.start("kafka", checkpoint=tmp_path / "ckpt", trigger="100 milliseconds", **how)
    try:
        with own_broker.away():
            stream.put(0, list(range(10)))
            time.sleep(8)
            assert run.isActive
        deadline = time.monotonic() + 60
        while len(ids_in(own_broker, topic, 1)) < 10 and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        run.stop()
    assert ids_in(own_broker, topic, 1) == list(range(10))


@pytest.mark.large("starts a JVM for each kill")
@pytest.mark.usefixtures("soon_started")
def test_a_query_that_is_killed_writes_each_row_once(broker, tmp_path, monkeypatch):
    topic = broker.topic("killed", 2)
    monkeypatch.setenv(killed_kafka.SERVERS, broker.servers)
    monkeypatch.setenv(killed_kafka.TOPIC, topic)
    (tmp_path / "in").mkdir()
    for number in range(12):
        ids = list(range(100 * number, 100 * number + 100))
        table = pa.table({"id": ids, "k": [f"k{i % 9}" for i in ids]})
        pq.write_table(table, tmp_path / "in" / f"{number:02}.parquet")
    drawn = random.Random(5)
    for _ in range(2):
        process = Process("-m", killed_kafka.__name__, tmp_path)
        process.await_start()
        time.sleep(drawn.uniform(0.5, 3.0))
        process.kill()
    Process("-m", killed_kafka.__name__, tmp_path).finish()
    records = broker.consumed(topic, 2)
    places = defaultdict(set)
    for record in records:
        headers = dict(record.headers())
        places[headers["eddyline.batch"], headers["eddyline.row"]].add(record.value())
    assert all(len(values) == 1 for values in places.values()), "a batch gives the same rows again"
    ids = [json.loads(value)["id"] for values in places.values() for value in values]
    assert sorted(ids) == [n for n in range(1_200) if n % 3]

"""Kafka topics as a source, against a real broker and without Spark."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
)
from hypothesis import given
from hypothesis import strategies as st

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, SourceError
from eddyline.sources import source_of
from eddyline.sources.kafka import (
    _IDLE,
    METADATA,
    MOST_IDLE,
    MOST_SPLITS,
    SPLIT_RECORDS,
    Range,
    _give_back,
    _limited,
    _metadata,
    _PartitionReader,
    _taken_reader,
)
from eddyline.sources.rejected import RejectedValues
from tests.examples import examples
from tests.sources.broker import sent

BYTES = pa.schema([("value", pa.binary())])
ORDERS = pa.schema([("id", pa.int64()), ("total", pa.float64())])
DDL = "id LONG, total DOUBLE"


def bytes_of(broker, topic, **options):
    return el.kafka(broker.servers, topic, value="bytes", **{"timeout": "10 seconds", **options})


def orders(broker, topic, **options):
    return el.kafka(broker.servers, topic, schema=DDL, **{"timeout": "10 seconds", **options})


def read(source, start, end, schema=BYTES, folder=None):
    """Return the rows between offsets; splits and offsets go the way that Spark sends them."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    splits = pickle.loads(pickle.dumps(source.splits(start, end)))
    worker = source_of("kafka", source.options, source.function)
    worker.rejected_to = None if folder is None else str(folder)
    batches = [batch for split in splits for batch in worker.read(split, schema)]
    return pa.Table.from_batches(batches, schema)


def all_rows(source, schema=BYTES, folder=None):
    start = source.initial()
    return read(source, start, source.latest(start, None, None), schema, folder)


def values_of(table):
    return sorted(table["value"].to_pylist())


def numbered(numbers, n_partitions=2):
    return [(n % n_partitions, b"%d" % n) for n in numbers]


def with_metadata(*names, schema=BYTES):
    return pa.schema([*schema, *(pa.field(name, METADATA[name][1]) for name in names)])


def rejected_in(tmp_path):
    """Return the rejected values of a stream ``s``, as a run of an engine would show them."""
    return RejectedValues(tmp_path).table("s", 10**9).drop(["batch"]).to_pylist()


# -- offsets --------------------------------------------------------------------------------------


def test_a_query_reads_what_came_and_then_what_is_new(broker):
    topic = broker.topic()
    broker.produce(topic, numbered(range(10)))
    source = bytes_of(broker, topic)
    start = source.initial()
    assert start == {topic: {"0": 0, "1": 0}}
    end = source.latest(start, None, None)
    assert end == {topic: {"0": 5, "1": 5}}
    assert values_of(read(source, start, end)) == [b"%d" % n for n in range(10)]
    broker.produce(topic, [(1, b"new")])
    last = source.latest(end, None, None)
    assert last == {topic: {"0": 5, "1": 6}}
    assert values_of(read(source, end, last)) == [b"new"]
    assert source.splits(last, last) == []


def test_several_topics_and_an_empty_one(broker):
    first, second, empty = broker.topic("a", 1), broker.topic("b", 3), broker.topic("c")
    broker.produce(first, [(0, b"x")])
    broker.produce(second, [(2, b"y")])
    source = bytes_of(broker, [first, second, empty])
    assert values_of(all_rows(source)) == [b"x", b"y"]
    assert [*source.initial()] == sorted([first, second, empty])


def test_a_pattern_names_topics_as_a_whole_and_takes_later_ones(broker):
    first = broker.topic("pattern")
    broker.named(f"x{first}")
    broker.produce(first, [(0, b"old")])
    source = bytes_of(broker, None, pattern=rf"{first}(-later)?")
    start = source.initial()
    assert [*start] == [first]
    end = source.latest(start, None, None)
    later = broker.named(f"{first}-later", 1)
    broker.produce(later, [(0, b"new 1"), (0, b"new 2")])
    known = source.latest(end, None, None)
    # Offsets in the checkpoint say where a topic began, before a batch reads of it.
    assert known == end | {later: {"0": 0}}
    last = source.latest(known, None, None)
    assert values_of(read(source, end, known)) == []
    assert values_of(read(source, known, last)) == [b"new 1", b"new 2"]


def test_a_new_partition_begins_at_the_first_record_that_it_has(broker, monkeypatch):
    """Retention may have removed records of a topic before a pattern matches it."""
    source = bytes_of(broker, "t", max_per_batch=4)
    answers = {"earliest": {"t": {"0": 0, "1": 90}}, "latest": {"t": {"0": 7, "1": 100}}}

    def asked(partitions, where):
        return {t: {str(p): answers[where][t][str(p)] for p in ps} for t, ps in partitions.items()}

    monkeypatch.setattr(source, "_partitions", lambda **_: {"t": [0, 1]})
    monkeypatch.setattr(source, "_topic_ids", lambda _: {})
    monkeypatch.setattr(source, "_offsets", asked)
    offsets, bounds = {"t": {"0": 5}}, []
    for _ in range(6):
        bounds.append(offsets)
        offsets = source.latest(offsets, 4, None)
    assert bounds[1] == {"t": {"0": 7, "1": 90}}
    assert bounds[-1] == answers["latest"] == offsets
    pieces = [p for low, high in pairwise(bounds) for p in source.splits(low, high)]
    assert sum(p.end - p.first for p in pieces) == 12
    assert not any(piece.is_lost for piece in pieces)


@given(
    waiting=st.dictionaries(st.integers(0, 9), st.integers(0, 1_000), min_size=1),
    most=st.integers(1, 500),
)
def test_limits_are_kept_and_every_record_is_read_in_the_end(waiting, most):
    ends = {"t": {str(p): 10 + n for p, n in waiting.items()}}
    now = {"t": {str(p): 10 for p in waiting}}
    for _ in range(2 + sum(waiting.values()) // most):
        later = _limited(now, ends, most)
        n_records = [later["t"][p] - now["t"][p] for p in now["t"]]
        assert min(n_records) >= 0
        left = sum(ends["t"][p] - now["t"][p] for p in now["t"])
        assert sum(n_records) == min(most, left)
        now = later
    assert now == ends


def test_a_partition_with_few_records_is_not_starved(broker):
    topic = broker.topic()
    broker.produce(topic, [(0, b"x")] * 1_000 + [(1, b"y")] * 10)
    source = bytes_of(broker, topic, max_per_batch=101)
    start = source.initial()
    end = source.latest(start, source.most_rows, None)
    assert end == {topic: {"0": 100, "1": 1}}


def test_a_query_that_ends_reads_to_the_end_of_its_start(broker):
    topic = broker.topic()
    broker.produce(topic, numbered(range(10)))
    source = bytes_of(broker, topic)
    until = source.latest(None, None, None)
    broker.produce(topic, numbered(range(10, 20)))
    start = source.initial()
    end = source.latest(start, 7, until)
    assert sum(end[topic].values()) == 7
    end = source.latest(end, 7, until)
    assert end == until == source.latest(end, 7, until)
    # Where a new query starts may be later than where it ends: nothing is read twice.
    late = bytes_of(broker, topic, start="latest").initial()
    assert late == {topic: {"0": 10, "1": 10}} == source.latest(late, None, until)


def test_a_query_that_ends_leaves_topics_that_come_later_to_the_next_one(broker):
    first = broker.topic("ends")
    broker.produce(first, numbered(range(2)))
    source = bytes_of(broker, None, pattern=f"{first}.*")
    until = source.latest(None, None, None)
    start = source.initial()
    later = broker.named(f"{first}-b", 1)
    broker.produce(later, [(0, b"later")])
    end = source.latest(start, None, until)
    assert end == until | {later: {"0": 0}} == source.latest(end, None, until)
    last = source.latest(end, None, source.latest(None, None, None))
    assert values_of(read(source, end, last)) == [b"later"]


# -- where a query starts -------------------------------------------------------------------------


def at_instants(monkeypatch, source, times):
    """Let a source ask a topic with records of such times (ms); the tests' broker has no answer."""
    offsets = source._offsets

    def asked(partitions, where):
        if not isinstance(where, int):
            return offsets(partitions, where)
        first = next((number for number, ms in enumerate(times) if ms >= where), -1)
        return {name: {str(number): first for number in ns} for name, ns in partitions.items()}

    monkeypatch.setattr(source, "_offsets", asked)


def test_start_at_words_offsets_and_instants(broker, monkeypatch):
    topic = broker.topic()
    broker.produce(topic, numbered(range(10)))
    for start, expected in (
        ("earliest", (0, 0)),
        ("latest", (5, 5)),
        ({topic: {0: 3}}, (3, 0)),
        ({topic: {"0": 3, "1": "latest"}}, (3, 5)),
        ({topic: {"0": "earliest", "1": 5}}, (0, 5)),
        ("1970-01-01T00:16:40.002Z", (2, 2)),
        ("1970-01-01T00:16:40.0015Z", (2, 2)),
        ("1970-01-01T01:16:40.001+01:00", (1, 1)),
        ("1969-12-31T23:59:59.999Z", (0, 0)),
        ("2100-01-01", (5, 5)),
    ):
        source = bytes_of(broker, topic, start=start)
        at_instants(monkeypatch, source, [1_000_000 + number for number in range(5)])
        assert source.initial() == {topic: {"0": expected[0], "1": expected[1]}}, start


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("tomorrow", "start is earliest, latest, an instant"),
        ("2026-02-30", "start is earliest"),
        ('{"t": {"0": -1}}', "start is earliest"),
        ('{"t": {"0": 1.5}}', "start is earliest"),
        ('{"t": {"0": true}}', "start is earliest"),
        ('{"t": [5]}', "start is earliest"),
        ("{", "start is earliest"),
    ],
)
def test_a_start_that_cannot_be_read_is_said(start, words):
    with pytest.raises(OptionError, match=re.escape(words)):
        el.kafka("host:9092", "t", value="bytes", start=start)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({0: 5}, "start is 5 for partition 0 .* records from 0 to before 2"),
        ({7: 0}, r"start names partition 7 of topic .*; there are .* \(2\)"),
    ],
)
def test_a_start_outside_the_partition_is_said(broker, start, words):
    topic = broker.topic()
    broker.produce(topic, numbered(range(4)))
    with pytest.raises(OptionError, match=words):
        bytes_of(broker, topic, start={topic: start}).initial()


def test_a_start_in_a_topic_that_is_not_read_is_said(broker):
    with pytest.raises(OptionError, match="start names partition 0 of topic 'other'"):
        bytes_of(broker, broker.topic(), start={"other": {0: 1}}).initial()


# -- losses ---------------------------------------------------------------------------------------


def test_a_missing_topic_is_said_with_those_that_are_there(broker):
    topic = broker.topic()
    for on_loss in ("error", "count"):
        with pytest.raises(SourceError, match=r"there is no topic 'nope' .*topics: .* Make the"):
            bytes_of(broker, [topic, "nope"], on_loss=on_loss).initial()
    assert bytes_of(broker, None, pattern="nope.*").initial() == {}


def test_a_deleted_topic_is_an_error_or_is_waited_for(broker):
    topic = broker.topic()
    broker.produce(topic, numbered(range(4)))
    source = bytes_of(broker, topic)
    start = source.initial()
    end = source.latest(start, None, None)
    _IDLE.clear()
    broker.delete(topic)
    with pytest.raises(SourceError, match="there is no topic"):
        source.latest(end, None, None)
    with pytest.raises(SourceError, match="there is no topic"):
        source.splits(start, end)
    counting = bytes_of(broker, topic, on_loss="count")
    assert counting.latest(end, None, None) == end
    assert all(piece.is_lost for piece in counting.splits(start, end))
    assert sum(piece.end - piece.first for piece in counting.splits(start, end)) == 4


def made_anew(broker, topic):
    """Delete a topic and make it again.

    A consumer that asks the broker of the tests for records meanwhile crashes.
    """
    _IDLE.clear()
    gc.collect()
    broker.delete(topic)
    broker.named(topic)


def test_a_topic_made_anew_is_an_error_or_is_read_from_its_first_record(broker, tmp_path):
    topic = broker.topic()
    broker.produce(topic, numbered(range(10)))
    source, counting = bytes_of(broker, topic), bytes_of(broker, topic, on_loss="count")
    end = source.latest(source.initial(), None, None)
    read(source, source.initial(), end)
    made_anew(broker, topic)
    broker.produce(topic, numbered(range(100, 104)))
    with pytest.raises(SourceError, match=r"ends at 2, and .* read up to 5: .*on_loss='count'"):
        source.latest(end, None, None)
    bounds = [end]
    for _ in range(3):
        bounds.append(counting.latest(bounds[-1], 3, None))
    assert bounds[-1] == {topic: {"0": 2, "1": 2}}
    rows = [
        row
        for number, (low, high) in enumerate(pairwise(bounds))
        for row in values_of(read(counting, low, high, folder=tmp_path / "s" / str(number)))
    ]
    assert sorted(rows) == [b"100", b"101", b"102", b"103"]
    reasons = [value["reason"] for value in rejected_in(tmp_path)]
    assert reasons == ["the partition was made anew; record 5 and later ones may be lost"] * 2


def removed(monkeypatch, source, first):
    """Let a source believe that retention has removed records before ``first``."""
    offsets = source._offsets

    def asked(partitions, where):
        known = offsets(partitions, where)
        if where != "earliest":
            return known
        return {t: {p: max(o, first) for p, o in ps.items()} for t, ps in known.items()}

    monkeypatch.setattr(source, "_offsets", asked)


def test_records_that_are_gone_are_an_error_or_counted(broker, monkeypatch, tmp_path):
    topic = broker.topic()
    broker.produce(topic, numbered(range(20)))
    for on_loss in ("error", "count"):
        source = bytes_of(broker, topic, on_loss=on_loss)
        start = source.initial()
        end = source.latest(start, None, None)
        removed(monkeypatch, source, 4)
        if on_loss == "error":
            with pytest.raises(SourceError, match=r"records 0 to 3 of partition 0 .* are gone"):
                source.splits(start, end)
        else:
            table = read(source, start, end, folder=tmp_path / "s" / "0")
    assert values_of(table) == sorted(b"%d" % n for n in range(8, 20))
    assert rejected_in(tmp_path) == [
        {
            "topic": topic,
            "partition": partition,
            "offset": 0,
            "reason": "records 0 to 3 were gone before they were read",
            "value": None,
            "n_records": 4,
        }
        for partition in (0, 1)
    ]


def test_a_batch_of_records_that_are_all_gone(broker, monkeypatch, tmp_path):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, numbered(range(9), 1))
    source = bytes_of(broker, topic, on_loss="count")
    removed(monkeypatch, source, 8)
    table = read(source, {topic: {"0": 2}}, {topic: {"0": 5}}, folder=tmp_path / "s" / "0")
    assert table.num_rows == 0
    assert rejected_in(tmp_path)[0]["n_records"] == 3


def test_records_that_go_while_a_task_reads_are_said(monkeypatch):
    """The broker of the tests gives no error there, so the client is a stand-in."""
    client = Client({}, [], {}, KafkaError.OFFSET_OUT_OF_RANGE)
    monkeypatch.setattr("eddyline.sources.kafka._taken_reader", lambda *_: reader_of(client))
    monkeypatch.setattr("eddyline.sources.kafka._IDLE", [])
    source = el.kafka("host:9092", "t", value="bytes")
    with pytest.raises(SourceError, match=r"records from 50 on of partition 0 .* are gone"):
        list(source.read(Range("t", 0, 50, 60), BYTES))


def test_a_reader_of_a_topic_that_was_made_anew_gets_a_new_client(monkeypatch):
    readers = []

    def made(settings):
        reader = reader_of(None)
        reader.settings, reader.process = settings, os.getpid()
        readers.append(reader)
        return reader

    monkeypatch.setattr("eddyline.sources.kafka._PartitionReader", made)
    monkeypatch.setattr("eddyline.sources.kafka._IDLE", [])
    for topic_id in ("a", "a", "b", "b"):
        reader = _taken_reader({}, Range("t", 0, 0, 1, topic_id=topic_id))
        reader.topics["t"] = topic_id
        _give_back(reader)
    assert len(readers) == 2


# -- splits ---------------------------------------------------------------------------------------


@given(
    offsets=st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    first=st.integers(0, 1_000),
)
@examples(400)
def test_splits_cover_each_offset_once(offsets, first):
    source = el.kafka("host:9092", "t", value="bytes", on_loss="count")
    source._partitions = lambda **_: {"t": list(range(len(offsets)))}
    source._topic_ids = lambda _: {"t": "id"}
    source._offsets = lambda partitions, _: {
        t: {str(p): first for p in ps} for t, ps in partitions.items()
    }
    start = {"t": {str(p): low for p, (low, _, is_known) in enumerate(offsets) if is_known}}
    end = {"t": {str(p): low + n for p, (low, n, _) in enumerate(offsets)}}
    pieces = source.splits(start, end)
    for p, (low, n, is_known) in enumerate(offsets):
        parts = sorted((x.first, x.end) for x in pieces if x.partition == p)
        begin = low if is_known else first
        if low + n <= begin:
            assert parts == []
            continue
        assert (parts[0][0], parts[-1][1]) == (begin, low + n)
        assert all(a[1] == b[0] for a, b in pairwise(parts))
    whole = [x for x in pieces if not x.is_lost]
    assert len(whole) <= MOST_SPLITS + len(offsets)
    # A range is cut only if its pieces are worth a task each.
    for p in range(len(offsets)):
        parts = [x.end - x.first for x in whole if x.partition == p]
        assert len(parts) < 2 or min(parts) >= SPLIT_RECORDS
    names = [f"{x.topic}-{x.partition}-{x.first}" for x in pieces]
    assert len(names) == len({*names})


@pytest.fixture(scope="module")
def long_topic(broker):
    """A topic with 3,000 numbers in each of two partitions."""
    topic = broker.topic("long")
    broker.produce(topic, numbered(range(6_000)))
    return topic


@given(
    cuts=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 3_000), st.integers(0, 900)),
        min_size=1,
        max_size=6,
    ),
    is_left=st.lists(st.booleans(), min_size=6, max_size=6),
)
@examples(40, few=10)
def test_ranges_in_any_order_give_their_records(broker, long_topic, cuts, is_left):
    """One worker reads ranges of tasks one after the other; some tasks end early."""
    source = bytes_of(broker, long_topic, metadata=["kafka_offset"])
    schema = with_metadata("kafka_offset")
    for (partition, first, n), leaves in zip(cuts, is_left, strict=False):
        end = min(3_000, first + n)
        rows = source.read(Range(long_topic, partition, first, end), schema)
        if leaves:
            next(rows, None)
            rows.close()
            continue
        offsets = [o for batch in rows for o in batch.column(1).to_pylist()]
        assert offsets == list(range(first, end))


def test_ranges_that_follow_each_other_open_no_partition_again(broker, long_topic):
    source = bytes_of(broker, long_topic)
    assert len(list(source.read(Range(long_topic, 0, 0, 10), BYTES))) == 1
    reader = _IDLE[-1]
    inner = reader._consumer
    reader._consumer = NeverAssigned(inner)
    try:
        for first in range(10, 2_701, 299):
            batches = list(source.read(Range(long_topic, 0, first, first + 299), BYTES))
            assert sum(batch.num_rows for batch in batches) == 299
    finally:
        reader._consumer = inner


class NeverAssigned:
    """A consumer that is assigned no other partition."""

    def __init__(self, inner):
        self.consume = inner.consume


def test_threads_of_one_process_read_at_once(broker, long_topic, monkeypatch):
    """The driver has a thread for each query."""
    monkeypatch.setattr("eddyline.sources.kafka.READ_AT_ONCE", 50)
    source, other = bytes_of(broker, long_topic), orders(broker, long_topic, on_reject="keep")

    def numbers(place):
        partition, first = place
        batches = source.read(Range(long_topic, partition, first, first + 250), BYTES)
        return [int(value) for batch in batches for value in batch.column(0).to_pylist()]

    def readers(schema):
        return {other._json(schema).schema for _ in range(2_000)}

    places = [(n % 2, 250 * (n // 2)) for n in range(20)] * 2
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(numbers, places))
        schemas = [ORDERS, pa.schema([("id", pa.int64())]), pa.schema([("total", pa.float64())])]
        assert list(threads.map(readers, schemas)) == [{schema} for schema in schemas]
    assert answers == [[2 * (first + n) + p for n in range(250)] for p, first in places]
    assert len(_IDLE) <= MOST_IDLE


def test_a_process_that_forks_reads_in_both(broker, long_topic):
    source = bytes_of(broker, long_topic)
    assert all_rows(source).num_rows == 6_000
    child = os.fork()
    if child == 0:
        n_rows = -1
        try:
            n_rows = all_rows(source).num_rows
        finally:
            os._exit(0 if n_rows == 6_000 else 1)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert all_rows(source).num_rows == 6_000


# -- transactions ---------------------------------------------------------------------------------


def in_transaction(broker, name, topic, values, *, commits=True):
    producer = broker.producer(transactional_id=name)
    producer.init_transactions(10)
    producer.begin_transaction()
    sent(producer, topic, values)
    if commits:
        producer.commit_transaction(10)
    else:
        producer.abort_transaction(10)


def test_records_of_an_open_transaction_are_read_once_it_is_committed(broker):
    topic = broker.topic(n_partitions=1)
    source = bytes_of(broker, topic)
    start = source.initial()
    producer = broker.producer(transactional_id=topic)
    producer.init_transactions(10)
    producer.begin_transaction()
    sent(producer, topic, [(0, b"a"), (0, b"b")])
    assert source.latest(start, None, None) == start
    producer.commit_transaction(10)
    # The broker of the tests moves its end with the batch after the transaction.
    broker.produce(topic, [(0, b"end")])
    end = source.latest(start, None, None)
    assert end == {topic: {"0": 4}}, "two records, the mark of the transaction, and one more"
    assert values_of(read(source, start, end)) == [b"a", b"b", b"end"]


def test_gaps_of_transactions_are_no_losses_and_do_not_slow_reading(broker):
    topic = broker.topic(n_partitions=1)
    for number in range(20):
        in_transaction(broker, topic, topic, [(0, b"%d" % number)] * 5)
    broker.produce(topic, [(0, b"end")])
    source = bytes_of(broker, topic)
    expected = sorted([b"%d" % (n // 5) for n in range(100)] + [b"end"])
    assert values_of(all_rows(source)) == expected
    # Ranges of any size, read one after the other, give each record once.
    end = source.latest(source.initial(), None, None)[topic]["0"]
    started = time.monotonic()
    for size in (1, 5, 60):
        rows = [
            value
            for first in range(0, end, size)
            for batch in source.read(Range(topic, 0, first, min(end, first + size)), BYTES)
            for value in batch.column(0).to_pylist()
        ]
        assert sorted(rows) == expected, size
    assert time.monotonic() - started < 5


class Message:
    """A record, or an event, as the client hands it out."""

    def __init__(self, offset, code=None):
        self._offset, self._error = offset, None if code is None else KafkaError(code)

    def offset(self):
        return self._offset

    def error(self):
        return self._error

    def value(self):
        return b"%d" % self._offset


class Client:
    """A consumer of one topic, of which records are missing where transactions were aborted.

    Args:
        visible: the offsets of records that are handed out, by partition.
        sizes: of the answers to ``consume``, in turn.
        ends: the end of each partition.
        code: of an error that it gives instead.
    """

    def __init__(self, visible, sizes, ends, code=None):
        self.visible, self.sizes, self.ends, self.code = visible, sizes or [1], ends, code
        self.place = None
        self.n_asked = 0

    def assign(self, places):
        (place,) = places
        self.place = [place.partition, place.offset]

    def list_topics(self, *_, **__):
        return None

    def consume(self, most, _):
        if self.code is not None:
            return [Message(0, self.code)]
        self.n_asked += 1
        partition, first = self.place
        waiting = [o for o in self.visible[partition] if o >= first]
        handed = waiting[: min(most, self.sizes[self.n_asked % len(self.sizes)])]
        if handed:
            self.place[1] = handed[-1] + 1
        messages = [Message(offset) for offset in handed]
        if len(handed) == len(waiting) and len(messages) < most:
            self.place[1] = self.ends[partition]
            messages.append(Message(self.ends[partition], KafkaError._PARTITION_EOF))
        return messages


def reader_of(client):
    reader = _PartitionReader.__new__(_PartitionReader)
    reader._client, reader._consumer = confluent_kafka, client
    reader.topics, reader._place, reader._ahead, reader.timeout_s = {}, None, [], 5.0
    return reader


@given(
    visible=st.lists(st.sets(st.integers(0, 39)), min_size=2, max_size=2),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    cuts=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 39), st.integers(1, 40), st.booleans()),
        min_size=1,
        max_size=8,
    ),
)
@examples(1_000, few=200)
def test_missing_records_of_aborted_transactions_are_no_losses(visible, sizes, cuts):
    """Any offsets may be missing, any number handed out at once, and ranges come in any order."""
    known = {partition: sorted(offsets) for partition, offsets in enumerate(visible)}
    reader = reader_of(Client(known, sizes, {0: 40, 1: 40}))
    after = {0: 0, 1: 0}
    for partition, first, n, follows in cuts:
        start = after[partition] if follows else first
        end = min(40, start + n)
        parts = reader.read(Range("t", partition, start, end))
        offsets = [record.offset() for records in parts for record in records]
        assert offsets == [offset for offset in known[partition] if start <= offset < end]
        after[partition] = end


# -- values ---------------------------------------------------------------------------------------


def test_json_gives_the_columns_of_the_schema(broker):
    topic = broker.topic()
    broker.produce(topic, [(0, b'{"id": 1, "total": 2.5, "more": []}'), (1, b'{"total": 3}')])
    table = all_rows(orders(broker, topic), ORDERS).sort_by("total")
    assert table.to_pylist() == [{"id": 1, "total": 2.5}, {"id": None, "total": 3.0}]


def test_values_that_cannot_be_read_are_set_aside_with_place_and_reason(broker, tmp_path):
    topic = broker.topic(n_partitions=1)
    values = [b'{"id": 1}', b"{", b'{"id": "x"}', None, b'{"id": 2}', b"\xff", b"null", b""]
    broker.produce(topic, [(0, value) for value in values])
    source = orders(broker, topic)
    for _ in range(2):  # as a batch that runs again
        table = all_rows(source, ORDERS, tmp_path / "s" / "0")
    assert table["id"].to_pylist() == [1, None, 2]
    assert [(v["offset"], v["value"]) for v in rejected_in(tmp_path)] == [
        (1, "{"),
        (2, '{"id": "x"}'),
        (5, "\\xff"),
        (6, "null"),
        (7, ""),
    ]
    assert all(v["reason"] for v in rejected_in(tmp_path))


def test_a_record_without_a_value_is_a_row_of_nulls(broker):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, [(0, None), (0, b"x"), (0, b""), (0, None)], key=b"k")
    for value in ("bytes", "text"):
        source = el.kafka(broker.servers, topic, value=value, metadata=["kafka_key"])
        kind = pa.binary() if value == "bytes" else pa.string()
        schema = pa.schema([("value", kind), ("kafka_key", pa.binary())])
        empty, x = (b"", b"x") if value == "bytes" else ("", "x")
        table = all_rows(source, schema)
        assert table["value"].to_pylist() == [None, x, empty, None]
        assert table["kafka_key"].to_pylist() == [b"k"] * 4


def test_a_record_without_a_value_is_rejected_where_columns_are_not_null(broker, tmp_path):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, [(0, None), (0, b'{"id": 1}'), (0, b'{"total": 2}'), (0, None)])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("total", pa.float64())])
    source = el.kafka(broker.servers, topic, schema="id LONG NOT NULL, total DOUBLE")
    table = all_rows(source, schema, tmp_path / "s" / "0")
    assert table.to_pylist() == [{"id": 1, "total": None}]
    rejected = rejected_in(tmp_path)
    assert [(v["offset"], v["value"]) for v in rejected] == [
        (0, None),
        (2, '{"total": 2}'),
        (3, None),
    ]
    assert rejected[0]["reason"] == "the record has no value, and column 'id' is NOT NULL"


def test_text_that_is_not_utf_8_is_rejected(broker, tmp_path):
    topic = broker.topic(n_partitions=1)
    values = [
        "grün".encode(),
        "grün".encode("latin-1"),
        b"\xed\xa0\x80",
        b"a\0b",
        None,
        b"\xf0\x9f",
    ]
    broker.produce(topic, [(0, value) for value in values])
    source = el.kafka(broker.servers, topic, value="text")
    table = all_rows(source, pa.schema([("value", pa.string())]), tmp_path / "s" / "0")
    assert table["value"].to_pylist() == ["grün", "a\0b", None]
    assert [v["offset"] for v in rejected_in(tmp_path)] == [1, 2, 5]
    assert rejected_in(tmp_path)[0]["reason"] == "text is not UTF-8: invalid start byte (byte 2)"


def test_values_that_cannot_be_read_stop_a_query_that_says_so(broker, tmp_path):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, [(0, b'{"id": 1}'), (0, b"{")])
    with pytest.raises(SourceError, match=r"offset 1 of partition 0 .* on_reject='keep'"):
        all_rows(orders(broker, topic, on_reject="error"), ORDERS, tmp_path)
    with pytest.raises(SourceError, match=r"give the option rejected_to, .* engine.stream"):
        all_rows(orders(broker, topic), ORDERS)
    source = source_of(
        "kafka", orders(broker, topic).options | {"rejected_to": str(tmp_path / "s" / "0")}
    )
    assert all_rows(source, ORDERS, tmp_path / "s" / "0").num_rows == 1
    assert len(rejected_in(tmp_path)) == 1


def test_metadata_columns(broker):
    topic = broker.topic()
    headers = [("a", b"1"), ("a", None), ("é", b"\xff")]
    broker.produce(topic, [(1, b"x")], key=b"\xffk", headers=headers, timestamp=1_700_000_000_123)
    broker.produce(topic, [(1, b"y")])
    names = tuple(METADATA)
    source = bytes_of(broker, topic, metadata=names)
    assert source.ddl().startswith("value BINARY, kafka_key BINARY, kafka_headers ARRAY<STRUCT<")
    first, second = all_rows(source, with_metadata(*names)).to_pylist()
    assert first["kafka_timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert abs(second.pop("kafka_timestamp").timestamp() - time.time()) < 60
    del first["kafka_timestamp"]
    assert first == {
        "value": b"x",
        "kafka_key": b"\xffk",
        "kafka_headers": [{"key": k, "value": v} for k, v in headers],
        "kafka_topic": topic,
        "kafka_partition": 1,
        "kafka_offset": 0,
    }
    assert (second["kafka_key"], second["kafka_headers"]) == (None, None)


def test_times_that_no_column_can_have_are_null(broker):
    topic = broker.topic(n_partitions=1)
    for ms in (2**62, 253_402_300_799_999, 253_402_300_800_000, 1):
        broker.produce(topic, [(0, b"x")], timestamp=ms)
    source = bytes_of(broker, topic, metadata=["kafka_timestamp"])
    times = all_rows(source, with_metadata("kafka_timestamp"))["kafka_timestamp"].to_pylist()
    assert [t is None for t in times] == [True, False, True, False]


class Record:
    """A record as the client gives it."""

    def __init__(self, kind):
        self.kind = kind

    def timestamp(self):
        return self.kind, 1_000


def test_the_time_of_a_record_may_be_that_of_the_log():
    kinds = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE)
    column = _metadata("kafka_timestamp", [Record(kind) for kind in kinds])
    assert column.cast(pa.int64()).to_pylist() == [1_000_000, 1_000_000, None]


def test_a_function_reads_values(broker):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, [(0, b"1,2.5"), (0, None), (0, b"3,4")])

    def decoded(values):
        parts = [value.decode().split(",") for value in values.to_pylist()]
        return {"total": [float(p[1]) for p in parts], "id": [int(p[0]) for p in parts]}

    expected = {"id": [1, None, 3], "total": [2.5, None, 4.0]}
    source = orders(broker, topic, value=decoded)
    assert all_rows(source, ORDERS).to_pydict() == expected
    source = orders(broker, topic, value=lambda values: pa.table(decoded(values)))
    assert all_rows(source, ORDERS).to_pydict() == expected
    source = orders(broker, topic, value=f"{__name__}:decoded_here")
    assert all_rows(source, ORDERS)["id"].to_pylist() == [5, None, 5]


def decoded_here(values):
    return {
        "id": [len(value) for value in values.to_pylist()][:0] + [5] * len(values),
        "total": [0.0] * len(values),
    }


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda _: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda _: None, "the columns id, total, got NoneType"),
        (lambda v: {"id": v}, r"the columns id, total, got \['id'\]"),
        (lambda _: {"id": [], "total": []}, "returned 0 rows for 1 values"),
        (lambda _: {"id": ["x"], "total": [1.0]}, "another type for 'id'"),
        (lambda _: {"id": [None], "total": [1.0]}, "returned NULL for 'id', which is NOT NULL"),
    ],
)
def test_a_function_that_fails_is_said(broker, function, words):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, [(0, b"x")])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("total", pa.float64())])
    with pytest.raises(SourceError, match=words):
        all_rows(orders(broker, topic, value=function), schema)


@pytest.mark.parametrize(
    ("value", "words"), [("no_such_module:f", "cannot be imported"), ("json:nope", "cannot be im")]
)
def test_a_function_that_is_not_there_is_said(broker, value, words):
    topic = broker.topic(n_partitions=1)
    broker.produce(topic, [(0, b"x")])
    with pytest.raises(SourceError, match=words):
        all_rows(orders(broker, topic, value=value), ORDERS)


def test_large_values(broker):
    topic = broker.topic(n_partitions=1)
    values = [bytes([n]) * 10_000_000 for n in range(3)]
    broker.produce(topic, [(0, value) for value in values])
    assert all_rows(bytes_of(broker, topic))["value"].to_pylist() == values
    gc.collect()


# -- options and errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": None}, "needs topic= or pattern="),
        ({"pattern": "t.*"}, "needs topic= or pattern="),
        ({"topic": None, "pattern": "("}, "is no regular expression"),
        ({"topic": ","}, "names no topic"),
        ({"servers": " "}, "needs servers="),
        ({"value": "jsn"}, "value is one of json, bytes, text, module:function, got 'jsn'"),
        ({"value": "json", "schema": None}, "needs the columns of a value"),
        ({"value": "text"}, "leave out schema="),
        ({"on_loss": "ignore"}, "on_loss is one of error, count"),
        ({"on_reject": "count"}, "on_reject is one of error, keep"),
        ({"timestamps": "ns"}, "timestamps is one of s, ms, us"),
        ({"metadata": ["offset"]}, "metadata is one of kafka_key"),
        ({"metadata": ["kafka_key", "kafka_key"]}, "kafka_key twice"),
        ({"timeout": "soon"}, "timeout is a span"),
        ({"timeout": "0 seconds"}, "timeout is a span"),
        ({"max_per_batch": 0}, "'max_per_batch' is a number of rows from 1 on"),
        ({"max_per_batch": "many"}, "'max_per_batch' is a number of rows from 1 on"),
        ({"max_per_batch": "²"}, "'max_per_batch' is a number of rows from 1 on"),
    ],
)
def test_options_are_checked_at_once(options, words):
    with pytest.raises(OptionError, match=re.escape(words)):
        el.kafka(**{"servers": "host:9092", "topic": "t", "schema": DDL, **options})


def test_an_unknown_option_is_said_with_a_hint():
    with pytest.raises(OptionError, match="servers"):
        source_of("kafka", {"server": "host:9092", "topic": "t", "value": "bytes"})


def test_types_that_json_does_not_have_are_said():
    source = el.kafka("host:9092", "t", schema="i INTERVAL DAY TO SECOND")
    with pytest.raises(OptionError, match="JSON has no values of the type of column 'i'"):
        source.check(pa.schema([("i", pa.duration("us"))]))


def test_a_broker_that_is_not_there_is_said(own_broker):
    own_broker.stop()
    source = el.kafka(own_broker.servers, "t", value="bytes", timeout="1 second")
    started = time.monotonic()
    with pytest.raises(SourceError, match=f"Kafka at {own_broker.servers} does not answer: .*1 s"):
        source.initial()
    assert 0.9 < time.monotonic() - started < 5
    with pytest.raises(SourceError, match="gave no record of partition 0 of topic 't' from 0 on"):
        list(source.read(Range("t", 0, 0, 5), BYTES))


def test_a_broker_that_is_away_for_a_while_costs_time_alone(own_broker):
    topic = own_broker.topic()
    own_broker.produce(topic, numbered(range(10)))
    source = bytes_of(own_broker, topic, timeout="60 seconds")
    start = source.initial()
    with own_broker.away():
        short = bytes_of(own_broker, topic, timeout="1 second")
        with pytest.raises(SourceError, match="does not answer"):
            short.latest(start, None, None)
    end = source.latest(start, None, None)
    assert values_of(read(source, start, end)) == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("n_unknown", [1, 2, 99])
def test_a_partition_that_has_no_end_for_a_moment_is_asked_again(broker, monkeypatch, n_unknown):
    topic = broker.topic()
    broker.produce(topic, numbered(range(10)))
    source = bytes_of(broker, topic)
    start, ask, n_asked = source.initial(), source._offsets, []

    def offsets(partitions, where):
        answer = ask(partitions, where)
        if where == "latest":
            n_asked.append(where)
        if where == "latest" and len(n_asked) <= n_unknown:
            answer[topic]["0"] = confluent_kafka.OFFSET_INVALID
        return answer

    monkeypatch.setattr(source, "_offsets", offsets)
    if n_unknown == 99:
        with pytest.raises(SourceError, match="was deleted, or made anew"):
            source.latest(start, None, None)
        return
    end = source.latest(start, None, None)
    assert len(n_asked) > n_unknown
    monkeypatch.undo()
    assert sorted(values_of(read(source, start, end))) == [b"%d" % n for n in range(10)]


def test_time_that_the_reader_takes_is_not_the_brokers(broker, long_topic, monkeypatch):
    monkeypatch.setattr("eddyline.sources.kafka.READ_AT_ONCE", 1_000)
    source = bytes_of(broker, long_topic, timeout="1 second")
    n_rows = 0
    for batch in source.read(Range(long_topic, 0, 0, 3_000), BYTES):
        n_rows += batch.num_rows
        if n_rows == batch.num_rows:
            time.sleep(1.2)
    assert n_rows == 3_000


def test_settings_that_the_client_does_not_know_are_said(broker):
    source = bytes_of(broker, "t", settings={"no.such": 1})
    with pytest.raises(OptionError, match=r"settings of Kafka: .*no\.such"):
        source.initial()


SECRETS = {
    "sasl.password": "pass-word",
    "sasl.username": "some-body",
    "ssl.key.pem": "key-of-mine",
    "ssl.keystore.password": "store-word",
    "sasl.oauthbearer.config": "principal=me-and-mine",
}


def test_secrets_are_not_shown(broker):
    source = bytes_of(broker, "t", settings=SECRETS)
    texts = [repr(source), str(source)]
    for ask in (source.version, lambda: source_of("kafka", source.options | {"topick": "t"})):
        with pytest.raises((NotSupportedError, OptionError)) as caught:
            ask()
        texts += [str(caught.value), repr(caught.value)]
    for settings in (
        SECRETS | {"security.protocol": "nope"},
        {
            "sasl.password": "pass-word",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "some-body",
        },
        {"ssl.key.pem": "key-of-mine", "security.protocol": "ssl"},
    ):
        with pytest.raises((OptionError, SourceError)) as caught:
            bytes_of(broker, "t", settings=settings, timeout="1 second").initial()
        texts += [str(caught.value), repr(caught.value), repr(vars(caught.value))]
    for secret in SECRETS.values():
        assert not any(secret in text for text in texts), secret
    assert "servers=" in repr(source)


def test_a_topic_is_no_table():
    with pytest.raises(
        NotSupportedError, match=r"read as a stream, not as a table: engine\.stream"
    ):
        el.kafka("host:9092", "t", value="bytes").version()


def test_names_of_topics_may_be_as_long_as_kafka_allows(broker, tmp_path):
    topic = broker.named(f"{os.getpid()}-".ljust(249, "x"), 1)
    broker.produce(topic, [(0, b"{")])
    assert all_rows(orders(broker, topic), ORDERS, tmp_path / "s" / "0").num_rows == 0
    assert [v["topic"] for v in rejected_in(tmp_path)] == [topic]


def test_many_partitions_are_read_quickly(broker):
    topic = broker.topic(n_partitions=64)
    broker.produce(topic, numbered(range(640), 64))
    source = bytes_of(broker, topic)
    started = time.monotonic()
    assert values_of(all_rows(source)) == sorted(b"%d" % n for n in range(640))
    assert time.monotonic() - started < 5

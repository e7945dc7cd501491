"""Results as records of a Kafka topic.

Readers of committed records see each micro-batch once. The rows of a batch are distributed over a
fixed number of tasks by their key, or by their value. So a batch that runs again gives each task
the same rows. A task writes its rows in one transaction, which also commits a marker: offset
``batch + 1`` of a consumer group of the query and the task. A task whose marker is there already
writes nothing. Kafka ends an open transaction of an earlier attempt when the next one begins.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from eddyline.errors import OptionError, QueryError, SourceError
from eddyline.query.spans import micros_in
from eddyline.registry import checked_text, unknown
from eddyline.sources.kafka import client_package, opened, reason_in
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

N_TASKS = 2
"""Tasks of a batch. The number must stay the same for a batch that runs again."""

MOST_BYTES = 100_000_000
"""Largest record that the producer sends; brokers have limits of their own, 1 MB by default."""

_QUERY_ID = "sql.streaming.queryId"
_KEY, _VALUE = "__eddyline_key", "__eddyline_value"
_VALUES = ("json", "column")
_POLL_S = 0.1


class KafkaSink:
    """Writes each row as a record; see the module.

    Args:
        servers: brokers, such as ``host:9092``.
        topic: of all records.
        key: a column, or columns, whose values are the key of a record; of several as JSON. Records
            of one key keep to one partition.
        value: ``json``: an object of all columns; ``column``: the column ``value``, as it is.
        tasks: tasks, and transactions, of a batch; not to be changed while a batch is to run again.
        timeout: how long the broker may be away before the query fails.
        settings: of librdkafka, such as ``{"security.protocol": "SASL_SSL"}``.

    Raises:
        OptionError: an argument is unknown or out of range.
    """

    notes: tuple[str, ...] = ()
    takes_all = True

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        key: str | Sequence[str] | None = None,
        value: str = "json",
        tasks: int | str = N_TASKS,
        timeout: str = "2 minutes",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.servers = checked_text("servers of the sink", servers)
        self.topic = checked_text("topic of the sink", topic)
        self.keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
        self.query = ""
        """Name of the query, for the headers of records."""
        self.member = ""
        """The same if several queries run together as one query of Spark's."""
        if value not in _VALUES:
            msg = f"value of the sink must be one of {', '.join(_VALUES)}, got {value!r}"
            raise OptionError(msg, value=value)
        self.value = value
        if not re.fullmatch(r"[0-9]+", str(tasks)) or int(tasks) < 1:
            msg = f"tasks of the sink must be a whole number from 1 on, got {tasks!r}"
            raise OptionError(msg, tasks=tasks)
        self.n_tasks = int(tasks)
        timeout_us = micros_in(timeout) if isinstance(timeout, str) else None
        if timeout_us is None or not 1_000_000 <= timeout_us <= 900_000_000:
            msg = f"timeout of the sink must be from 1 second to 15 minutes, got {timeout!r}"
            raise OptionError(msg, timeout=timeout)
        self.timeout_s = timeout_us / 1e6
        self.settings = {str(name): text for name, text in (settings or {}).items()}

    def begin(self, *, continues: bool) -> None:  # noqa: ARG002
        """See that the topic is there.

        Raises:
            SourceError: the broker does not answer, or has no such topic.
        """
        admin_package = client_package("confluent_kafka.admin")
        admin = opened(
            admin_package.AdminClient, {"bootstrap.servers": self.servers, **self.settings}
        )
        try:
            topics = admin.list_topics(timeout=self.timeout_s).topics
        except client_package("confluent_kafka").KafkaException as error:
            msg = f"Kafka at {self.servers} does not answer: {reason_in(error)}"
            raise SourceError(msg, servers=self.servers) from None
        if self.topic not in topics:
            shown = [name for name in topics if not name.startswith("__")]
            msg = f"{unknown('topic', self.topic, shown)}; make it first"
            raise SourceError(msg, topic=self.topic)

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Write the rows of a batch, unless an earlier attempt did.

        Raises:
            QueryError: there is no such column.
            SourceError: the broker does not take the records.
        """
        key, value = self._key(df), self._value(df)
        query_id = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or "no query"
        name = f"eddyline-{query_id}" + (f"-{self.member}" if self.member else "")
        task = _Writing(
            {"bootstrap.servers": self.servers, **self.settings},
            self.topic,
            name,
            self.query or str(query_id),
            batch_id,
            self.timeout_s,
        )
        records = df.select(key.alias(_KEY), value.alias(_VALUE))
        by = _KEY if self.keys else _VALUE
        parted = records.repartition(self.n_tasks, by).mapInArrow(task, "n_rows BIGINT")
        parted.write.format("noop").mode("overwrite").save()

    def _key(self, df: DataFrame) -> Column:
        for name in self.keys:
            _check_column(df, name)
        if not self.keys:
            return F.lit(None).cast("binary")
        if len(self.keys) > 1:
            names = [F.col(quoted(name)) for name in self.keys]
            return F.to_json(F.struct(*names)).cast("binary")
        kind = dict(df.dtypes)[self.keys[0]]
        column = F.col(quoted(self.keys[0]))
        return column if kind == "binary" else column.cast("string").cast("binary")

    def _value(self, df: DataFrame) -> Column:
        if self.value == "json":
            columns = [F.col(quoted(name)) for name in df.columns]
            return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")
        _check_column(df, "value")
        kind = dict(df.dtypes)["value"]
        if kind not in ("string", "binary"):
            msg = f"the column value is a text or bytes where value='column', got {kind}"
            raise QueryError(msg, type=kind)
        return F.col("value").cast("binary")


def _check_column(df: DataFrame, name: str) -> None:
    if name not in df.columns:
        raise QueryError(unknown("column", name, df.columns), name=name)


@dataclass(frozen=True)
class _Writing:
    """Writes the rows of one task in a transaction."""

    settings: Mapping[str, Any] = field(repr=False)
    """Of the client; some are secrets."""
    topic: str
    name: str
    """Start of the names of transactions and groups."""
    query: str
    batch_id: int
    timeout_s: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield how many rows were written."""
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        client = client_package("confluent_kafka")
        try:
            n_rows = self._write(batches, f"{self.name}-{number}", number)
        except (client.KafkaException, BufferError) as error:
            msg = (
                f"Kafka does not take the records of batch {self.batch_id} for topic "
                f"{self.topic!r}: {reason_in(error)}; start the query again once it does: "
                f"no record is lost or written twice"
            )
            raise SourceError(msg, topic=self.topic) from None
        yield pa.RecordBatch.from_pydict({"n_rows": [n_rows]})

    def _write(self, batches: Iterator[pa.RecordBatch], name: str, number: int) -> int:
        client = client_package("confluent_kafka")
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        producer = opened(client.Producer, self._producer_settings(name))
        # Ends what an earlier attempt left open, so its marker is there or never will be.
        producer.init_transactions(self.timeout_s)
        marker = client.TopicPartition(self.topic, 0)
        group = opened(
            client.Consumer,
            {
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **self.settings,
                "group.id": name,
            },
        )
        try:
            (committed,) = group.committed([marker], self.timeout_s)
            if committed.offset > self.batch_id:
                return 0
            producer.begin_transaction()
            n_rows = self._produce(producer, first, batches, number)
            done = client.TopicPartition(
                self.topic, 0, self.batch_id + 1, json.dumps({"query": self.query})
            )
            producer.send_offsets_to_transaction(
                [done], group.consumer_group_metadata(), self.timeout_s
            )
            producer.commit_transaction(self.timeout_s)
        finally:
            group.close()
        return n_rows

    def _producer_settings(self, name: str) -> dict[str, Any]:
        return {
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "message.max.bytes": MOST_BYTES,
            "queue.buffering.max.kbytes": 262_144,
            "transaction.timeout.ms": round(self.timeout_s * 1_000),
            **self.settings,
            "transactional.id": name,
        }

    def _produce(
        self, producer: Any, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], number: int
    ) -> int:
        client = client_package("confluent_kafka")
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        n_rows = 0
        facts = [
            ("eddyline.query", self.query.encode()),
            ("eddyline.batch", str(self.batch_id).encode()),
        ]
        for batch in itertools.chain([first], rest):
            keys, values = (batch.column(name).to_pylist() for name in (_KEY, _VALUE))
            for key, value in zip(keys, values, strict=True):
                headers = [*facts, ("eddyline.row", b"%d-%d" % (number, n_rows))]
                n_rows += 1
                deadline = 0.0
                while True:
                    try:
                        producer.produce(
                            self.topic, value, key, headers=headers, on_delivery=delivered
                        )
                        break
                    except BufferError:
                        deadline = deadline or time.monotonic() + self.timeout_s
                        if time.monotonic() > deadline:
                            raise
                        producer.poll(_POLL_S)
            producer.poll(0)
            if failed:
                raise client.KafkaException(failed[0])
        producer.flush(self.timeout_s)
        if failed:
            raise client.KafkaException(failed[0])
        return n_rows

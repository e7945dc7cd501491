"""Kafka topics as a stream, without a consumer group.

librdkafka reads them. An offset names the next record of each partition: ``{"orders": {"0": 12,
"1": 9}}``. A task reads a range of one partition. Only committed records are read. A partition that
is new begins at its first record. Records that are gone are an error, or are counted (``on_loss``).

Values that cannot be decoded are rejected: the task writes them, with place and reason, into the
folder of the batch (``rejected``), so that a batch that runs again writes the same file.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eddyline.errors import OptionError, SourceError
from eddyline.query.spans import micros_in
from eddyline.registry import package
from eddyline.sources.json_values import (
    FIRST_US,
    LAST_US,
    UNITS,
    JsonReader,
    Rejected,
    instants_of,
)
from eddyline.sources.rejected import Rejects
from eddyline.sources.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eddyline.sources.source import Offset

    Decoder = Callable[[pa.BinaryArray], Any]
    """Returns the columns of values, or the same number of rows as a table."""

METADATA = {
    "kafka_key": ("BINARY", pa.binary()),
    "kafka_headers": (
        "ARRAY<STRUCT<key: STRING, value: BINARY>>",
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ),
    "kafka_topic": ("STRING", pa.string()),
    "kafka_partition": ("INT", pa.int32()),
    "kafka_offset": ("BIGINT", pa.int64()),
    "kafka_timestamp": ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
}
"""Columns beside the value, with their types."""

VALUES = ("json", "bytes", "text")
"""How values are read, beside a function."""

EARLIEST, LATEST = "earliest", "latest"

READ_AT_ONCE = 10_000
"""Records that a task takes from the client at once."""

SPLIT_RECORDS = 200_000
"""Fewest records of a range that is worth a task of its own."""

MOST_ASKED, ASKED_AGAIN_S = 6, 0.2
"""How often a partition is asked for its end, and the pause between (s)."""

FEW_RECORDS = 100_000
"""Most records that the driver reads: some 0.3 s."""

MOST_SPLITS = 64
"""Most ranges of a batch, unless it has more partitions: each has a range at least."""

_POLL_S = 0.01
_QUIET = logging.getLogger("eddyline.kafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


@dataclass(frozen=True)
class Range:
    """Records of one partition; what one task reads."""

    topic: str
    partition: int
    first: int
    end: int
    is_lost: bool = False
    """Whether the records are gone, which the task only notes; no record: nobody knows which."""
    topic_id: str = ""
    """Of the topic, which is another one once the topic was made anew; empty: not known."""


class Kafka(Source):
    """Topics of Kafka; see ``kafka``."""

    kind = "kafka"
    names = frozenset(
        {
            *("servers", "topic", "pattern", "value", "schema", "start", "max_per_batch"),
            *("metadata", "on_loss", "on_reject", "timestamps", "timezone", "timeout"),
            "rejected_to",
        }
    )
    prefixes = ("kafka.",)
    rejects = True

    def __init__(self, options: Mapping[str, str], function: Decoder | None = None) -> None:
        super().__init__(options)
        self.function = function
        self.rejected_to = options.get("rejected_to")
        self.servers = self._required("servers")
        topic, pattern = options.get("topic"), options.get("pattern")
        if (topic is None) == (pattern is None):
            msg = "a source of Kafka needs topic= or pattern=, and not both"
            raise OptionError(msg, topic=topic, pattern=pattern)
        self.topics = tuple(dict.fromkeys(filter(None, re.split(r"\s*,\s*", topic or ""))))
        if topic is not None and not self.topics:
            msg = f"topic={topic!r} names no topic"
            raise OptionError(msg, topic=topic)
        self.pattern = None if pattern is None else _pattern(pattern)
        self.value = options.get("value", "json")
        self.timeout_s = _seconds(options.get("timeout", "2 minutes"))
        self.on_loss = _one_of("on_loss", options.get("on_loss", "error"), ("error", "count"))
        self.on_reject = _one_of("on_reject", options.get("on_reject", "keep"), ("error", "keep"))
        _one_of("timestamps", options.get("timestamps", "s"), tuple(UNITS))
        self.metadata = tuple(filter(None, re.split(r"[\s,]+", options.get("metadata", ""))))
        for name in self.metadata:
            _one_of("metadata", name, tuple(METADATA))
            if self.metadata.count(name) > 1:
                msg = f"metadata names {name} twice"
                raise OptionError(msg, option="metadata")
        self._start = _start(options.get("start", EARLIEST))
        self._check_value()

    def _required(self, name: str) -> str:
        if not self.options.get(name, "").strip():
            msg = f"a source of Kafka needs {name}=, such as servers='host:9092'"
            raise OptionError(msg, option=name)
        return self.options[name]

    def _check_value(self) -> None:
        schema = self.options.get("schema")
        if self.value in ("bytes", "text"):
            if schema is not None:
                msg = f"value={self.value!r} gives the one column value; leave out schema="
                raise OptionError(msg, schema=schema)
        elif schema is None or not schema.strip():
            msg = (
                f"value={self.value!r} needs the columns of a value: "
                f"schema='id LONG, ts TIMESTAMP, total DOUBLE'"
            )
            raise OptionError(msg, value=self.value)
        elif self.value not in (*VALUES, "function") and ":" not in self.value:
            _one_of("value", self.value, (*VALUES, "module:function"))

    def ddl(self, version: Offset | None = None) -> str:  # noqa: ARG002 - a topic has no versions
        """Return the columns."""
        value = {"bytes": "value BINARY", "text": "value STRING"}.get(self.value)
        columns = [value or self.options["schema"]]
        return ", ".join([*columns, *(f"{name} {METADATA[name][0]}" for name in self.metadata)])

    def check(self, schema: pa.Schema) -> None:
        """Raise OptionError if values cannot give the columns."""
        for name in schema.names:
            if schema.names.count(name) > 1:
                msg = f"schema= and metadata= name the column {name!r} twice"
                raise OptionError(msg, column=name)
        if self.value == "json":
            self._json(schema).check()

    # -- offsets ----------------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Return where a new query starts."""
        partitions = self._partitions(is_first=True)
        if isinstance(self._start, dict):
            return self._start_offsets(self._start, partitions)
        if isinstance(self._start, str):
            return self._offsets(partitions, self._start)
        ends = self._offsets(partitions, LATEST)
        # A partition without a record from the instant on starts at its end.
        return _per_partition(
            self._offsets(partitions, self._start),
            lambda topic, partition, offset: ends[topic][partition] if offset < 0 else offset,
        )

    def _start_offsets(
        self, asked: Mapping[str, Mapping[str, Any]], partitions: Mapping[str, Sequence[int]]
    ) -> Offset:
        """Return offsets that the user gave; other partitions start at their first record."""
        for topic, offsets in asked.items():
            for partition in offsets:
                if partition not in map(str, partitions.get(topic, ())):
                    listed = ", ".join(f"{t} ({len(p)})" for t, p in partitions.items())
                    msg = (
                        f"start names partition {partition} of topic {topic!r}; there are {listed}"
                    )
                    raise OptionError(msg, topic=topic, partition=partition)
        first, last = self._offsets(partitions, EARLIEST), self._offsets(partitions, LATEST)
        words = {EARLIEST: first, LATEST: last}

        def chosen(topic: str, partition: str, offset: int) -> int:
            start = asked.get(topic, {}).get(partition, offset)
            start = words[start][topic][partition] if start in words else int(start)
            if not offset <= start <= last[topic][partition]:
                msg = (
                    f"start is {start:,} for partition {partition} of topic {topic!r}, which has "
                    f"records from {offset:,} to before {last[topic][partition]:,}"
                )
                raise OptionError(msg, topic=topic, partition=partition)
            return start

        return _per_partition(first, chosen)

    def latest(self, start: Offset | None, most_rows: int | None, until: Offset | None) -> Offset:
        """Return how far a batch may read."""
        ends = self._ends(start or {})
        self.newest_offset = {topic: dict(partitions) for topic, partitions in ends.items()}
        before = {topic: dict(offsets) for topic, offsets in (start or {}).items()}
        if start is not None:
            self._begin_new(before, ends)
            self._heed_losses(before, ends)
        if until is not None:
            # A partition that is newer than the end has none there: it stays where it is.
            ends = _per_partition(
                ends,
                lambda topic, partition, end: max(
                    before.get(topic, {}).get(partition, 0),
                    min(end, until.get(topic, {}).get(partition, 0)),
                ),
            )
        return ends if most_rows is None else _limited(before, ends, most_rows)

    def _ends(self, start: Offset) -> Offset:
        """Return the end of each partition; one that was read and has no end is asked again.

        A broker that comes back answers so for a moment. If it goes on, the partition is gone.
        """
        for n_left in range(MOST_ASKED - 1, -1, -1):
            ends = self._offsets(self._partitions(), LATEST)
            has_all = all(
                int(ends.get(topic, {}).get(partition, 0)) >= 0
                for topic, offsets in start.items()
                for partition, first in offsets.items()
                if int(first) >= 0
            )
            if has_all or not n_left:
                break
            time.sleep(ASKED_AGAIN_S)
        return ends

    def _begin_new(self, before: Offset, ends: Offset) -> None:
        """Let new partitions begin at their first record.

        This batch reads nothing of them: only offsets in Spark's checkpoint say where they began.
        """
        new = {
            topic: numbers
            for topic, offsets in ends.items()
            if (numbers := [int(p) for p in offsets if p not in before.get(topic, {})])
        }
        for topic, offsets in self._offsets(new, EARLIEST).items():
            ends[topic] |= offsets
            before[topic] = before.get(topic, {}) | offsets

    def _heed_losses(self, before: Offset, ends: Offset) -> None:
        """Go on with what is left, or raise SourceError, where partitions are gone or new again."""
        for topic, offsets in before.items():
            there = ends.setdefault(topic, {})
            for partition, offset in offsets.items():
                end = there.get(partition)
                if end is not None and end >= offset:
                    continue
                if self.on_loss == "error":
                    what = f"ends at {end:,}" if end is not None else "is not there"
                    raise _gone(
                        f"partition {partition} of topic {topic!r} {what}, and the query has read "
                        f"up to {offset:,}: the topic was deleted, or made anew",
                        topic=topic,
                    )
                if end is None:
                    there[partition] = offset
                else:
                    offsets[partition] = 0

    def are_few(self, start: Offset, end: Offset) -> bool:
        """Whether the driver itself may read the records between two offsets."""
        n_records: int = sum(
            int(last) - int(start.get(topic, {}).get(partition, 0))
            for topic, partitions in end.items()
            for partition, last in partitions.items()
        )
        return n_records <= FEW_RECORDS

    def splits(self, start: Offset, end: Offset) -> Sequence[Range]:
        """Return the ranges that tasks read."""
        ranges, pieces = [], []
        for topic, offsets in end.items():
            for partition, last in offsets.items():
                first = int(start.get(topic, {}).get(partition, 0))
                if last < first:
                    pieces.append(self._made_anew(Range(topic, int(partition), first, last)))
                    first = 0
                if last > first:
                    ranges.append(Range(topic, int(partition), first, last))
        if not ranges:
            return pieces
        partitions: dict[str, list[int]] = {}
        for part in ranges:
            partitions.setdefault(part.topic, []).append(part.partition)
        there = self._still_there(partitions)
        firsts, ids = self._offsets(there, EARLIEST), self._topic_ids(there)
        n_records = sum(part.end - part.first for part in ranges)
        size = max(SPLIT_RECORDS, -(-n_records // MOST_SPLITS))
        for part in ranges:
            before = start.get(part.topic, {}).get(str(part.partition))
            is_new = before is None or before > part.end
            first = firsts.get(part.topic, {}).get(str(part.partition), part.end)
            pieces += self._pieces(part, first, size, is_new=is_new)
        return [replace(piece, topic_id=ids.get(piece.topic, "")) for piece in pieces]

    def _topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the identity of each topic, if the broker knows one."""
        client, names = client_package("confluent_kafka"), list(topics)
        with suppress(client.KafkaException):
            futures = _admin(self._settings()).describe_topics(
                client.TopicCollection(names), request_timeout=min(10.0, self.timeout_s)
            )
            return {name: str(future.result().topic_id) for name, future in futures.items()}
        return {}

    def _made_anew(self, part: Range) -> Range:
        """Return a note that a partition has fewer records than were read."""
        if self.on_loss == "error":
            raise _gone(
                f"partition {part.partition} of topic {part.topic!r} was made anew after record "
                f"{part.first:,}",
                topic=part.topic,
            )
        return Range(part.topic, part.partition, part.first, part.first, is_lost=True)

    def _still_there(self, partitions: Mapping[str, list[int]]) -> dict[str, list[int]]:
        there = self._partitions()
        for topic, numbers in partitions.items():
            lost = [number for number in numbers if number not in there.get(topic, ())]
            if lost and self.on_loss == "error":
                raise _gone(
                    f"partitions {lost} of topic {topic!r} are no longer there", topic=topic
                )
        return {
            topic: kept
            for topic, numbers in partitions.items()
            if (kept := [number for number in numbers if number in there.get(topic, ())])
        }

    def _pieces(self, part: Range, first: int, size: int, *, is_new: bool) -> list[Range]:
        """Return a range in pieces; ``first`` is the first record that the partition still has."""
        lost_end = min(first, part.end)
        pieces = []
        if lost_end > part.first and not is_new:
            if self.on_loss == "error":
                raise _gone(
                    f"records {part.first:,} to {lost_end - 1:,} of partition {part.partition} of "
                    f"topic {part.topic!r} are gone (retention or deletion)",
                    topic=part.topic,
                )
            pieces = [Range(part.topic, part.partition, part.first, lost_end, is_lost=True)]
        start = max(part.first, lost_end)
        n_pieces = max(1, (part.end - start) // size)
        bounds = np.linspace(start, part.end, n_pieces + 1).astype(np.int64).tolist()
        pieces += [
            Range(part.topic, part.partition, low, high)
            for low, high in itertools.pairwise(bounds)
            if high > low
        ]
        return pieces

    def _partitions(self, *, is_first: bool = False) -> dict[str, list[int]]:
        """Return the partitions of each topic.

        Args:
            is_first: whether the query is new, so that a missing topic is no loss.

        Raises:
            SourceError: the broker does not answer, or a topic is missing.
        """
        names = self._asked(lambda admin, wait_s: admin.list_topics(timeout=wait_s)).topics
        if self.pattern is not None:
            chosen = [name for name in names if self.pattern.fullmatch(name)]
        else:
            chosen = [name for name in self.topics if name in names]
        if missing := [name for name in self.topics if name not in names]:
            shown = ", ".join(sorted(name for name in names if not name.startswith("__"))[:20])
            msg = (
                f"there is no topic {', '.join(map(repr, missing))} at {self.servers}; topics: "
                f"{shown or 'none'}. Make the topic, or correct topic="
            )
            if self.on_loss == "error" or is_first:
                raise SourceError(msg, topic=missing[0])
        return {name: sorted(names[name].partitions) for name in sorted(chosen)}

    def _offsets(self, partitions: Mapping[str, Sequence[int]], where: str | int) -> Offset:
        """Return an offset of each partition: the first, the end, or that of an instant (ms)."""
        client = client_package("confluent_kafka")
        spec = client_package("confluent_kafka.admin").OffsetSpec
        if where == EARLIEST:
            wanted = spec.earliest()
        elif where == LATEST:
            wanted = spec.latest()
        else:
            wanted = spec.for_timestamp(where)
        asked = {
            client.TopicPartition(topic, number): wanted
            for topic, numbers in partitions.items()
            for number in numbers
        }
        if not asked:
            return {topic: {} for topic in partitions}

        def ask(admin: Any, wait_s: float) -> dict[Any, int]:
            futures = admin.list_offsets(
                asked,
                isolation_level=client.IsolationLevel.READ_COMMITTED,
                request_timeout=wait_s,
            )
            return {place: future.result().offset for place, future in futures.items()}

        offsets: Offset = {topic: {} for topic in partitions}
        for place, offset in self._asked(ask).items():
            offsets[place.topic][str(place.partition)] = offset
        return offsets

    def _asked(self, ask: Callable[[Any, float], Any]) -> Any:
        """Return the answer of the broker; asks again until the time is over.

        Raises:
            SourceError: it does not answer.
        """
        client = client_package("confluent_kafka")
        deadline = time.monotonic() + self.timeout_s
        while True:
            left_s = max(0.5, min(deadline - time.monotonic(), 30.0))
            try:
                return ask(_admin(self._settings()), left_s)
            except client.KafkaException as error:
                if _is_final(error) or time.monotonic() > deadline:
                    raise self._away(error) from None
                time.sleep(min(1.0, left_s))

    def _away(self, error: Exception) -> SourceError:
        reason = reason_in(error)
        msg = (
            f"Kafka at {self.servers} does not answer: {reason}. See that servers= is right and "
            f"that the broker can be reached; a longer timeout= waits longer than "
            f"{self.timeout_s:.0f} s"
        )
        return SourceError(msg, servers=self.servers)

    def _settings(self) -> dict[str, Any]:
        handed_on = {
            name.removeprefix("kafka."): value
            for name, value in self.options.items()
            if name.startswith("kafka.")
        }
        return {"bootstrap.servers": self.servers, **handed_on}

    # -- records ----------------------------------------------------------------------------------

    def read(self, split: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range; values that cannot be decoded are rejected."""
        with Rejects(self, f"{split.topic}-{split.partition}-{split.first}") as rejects:
            if split.is_lost:
                rejects.lost(split.topic, split.partition, split.first, split.end)
                return
            value_schema = pa.schema(list(schema)[: len(schema) - len(self.metadata)])
            for records in self._records(split):
                yield self._batch(records, value_schema, schema, rejects)

    def _batch(
        self, records: Sequence[Any], value_schema: pa.Schema, schema: pa.Schema, rejects: Rejects
    ) -> pa.RecordBatch:
        values = [record.value() for record in records]
        positions = [position for position, value in enumerate(values) if value is not None]
        # A record without a value (a tombstone) is a row of NULLs.
        has_nulls = len(positions) < len(values)
        columns, rejected = self._decoded(
            [values[position] for position in positions] if has_nulls else values, value_schema
        )
        reasons = {positions[document.position]: document.reason for document in rejected}
        required = [field.name for field in value_schema if not field.nullable]
        if has_nulls and required:
            reason = f"the record has no value, and column {required[0]!r} is NOT NULL"
            reasons |= {p: reason for p, value in enumerate(values) if value is None}
        for position, reason in sorted(reasons.items()):
            record = records[position]
            rejects.add(
                record.topic(), record.partition(), record.offset(), reason, values[position]
            )
        kept = [p for p in range(len(values)) if p not in reasons]
        if has_nulls:
            rows = np.full(len(values), -1)
            rows[[p for p in positions if p not in reasons]] = np.arange(len(columns[0]))
            places = pa.array(rows[kept], pa.int64(), mask=rows[kept] < 0)
            columns = [column.take(places) for column in columns]
        if self.metadata:
            rest = records if len(kept) == len(records) else [records[p] for p in kept]
            columns = [*columns, *(_metadata(name, rest) for name in self.metadata)]
        return pa.RecordBatch.from_arrays(
            [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)],
            schema=schema,
        )

    def _decoded(
        self, values: list[bytes], schema: pa.Schema
    ) -> tuple[list[pa.Array], Sequence[Any]]:
        """Return the columns of values, and the values that were rejected."""
        if self.value == "bytes":
            return [pa.array(values, pa.binary())], ()
        if self.value == "json":
            batch, rejected = self._json(schema).read(values)
            return batch.columns, rejected
        if self.value == "text":
            return _texts(values)
        return _call(self._function(), values, schema), ()

    def _json(self, schema: pa.Schema) -> JsonReader:
        timezone = self.options.get("timezone", "UTC")
        key = (schema, self.options.get("timestamps", "s"), timezone)
        last_key, reader = _READERS.get("json", (None, None))
        if reader is None or last_key != key:
            reader = JsonReader(*key)
            _READERS["json"] = key, reader
        return reader

    def _function(self) -> Decoder:
        if self.function is None:
            module, _, name = self.value.partition(":")
            try:
                self.function = getattr(import_module(module), name)
            except (ImportError, AttributeError) as error:
                msg = f"value={self.value!r} cannot be imported in a worker: {error}"
                raise SourceError(msg, value=self.value) from error
        function: Decoder = self.function
        return function

    def _records(self, split: Range) -> Iterator[list[Any]]:
        """Yield the records of a range, some at once.

        Raises:
            SourceError: the broker does not answer for as long as ``timeout``.
        """
        reader = _taken_reader(self._settings(), split)
        reader.timeout_s = self.timeout_s
        try:
            yield from reader.read(split)
        finally:
            _give_back(reader)


def _texts(values: list[bytes]) -> tuple[list[pa.Array], list[Rejected]]:
    """Return the texts of values, and the values that are not UTF-8."""
    try:
        return [pa.array(values, pa.binary()).cast(pa.string())], []
    except pa.ArrowInvalid:
        rejected, texts = [], []
        for position, value in enumerate(values):
            try:
                texts.append(value.decode())
            except UnicodeDecodeError as error:
                reason = f"text is not UTF-8: {error.reason} (byte {error.start})"
                rejected.append(Rejected(position, reason))
        return [pa.array(texts, pa.string())], rejected


_READERS: dict[str, tuple[Any, JsonReader]] = {}
"""The JSON reader that was used last, and what it is made of; threads replace both at once."""


def _call(function: Decoder, values: list[bytes], schema: pa.Schema) -> list[pa.Array]:
    """Return the columns that a function of the user's makes of values.

    Raises:
        SourceError: it fails, or returns other columns or another number of rows.
    """
    name = getattr(function, "__name__", "value")
    try:
        result = function(pa.array(values, pa.binary()))
    except Exception as error:
        msg = f"value function {name!r} raised {type(error).__name__}: {error}"
        raise SourceError(msg, function=name) from error
    arrays = result if isinstance(result, dict) else None
    if isinstance(result, (pa.Table, pa.RecordBatch)):
        arrays = {column: result[column] for column in result.schema.names}
    if arrays is None or {*arrays} != {*schema.names}:
        got = sorted(arrays) if arrays is not None else type(result).__name__
        msg = (
            f"value function {name!r} returns a table or a dict of arrays with the columns "
            f"{', '.join(schema.names)}, got {got}"
        )
        raise SourceError(msg, function=name)
    columns = []
    for field in schema:
        column = arrays[field.name]
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if len(column) != len(values):
            msg = f"value function {name!r} returned {len(column)} rows for {len(values)} values"
            raise SourceError(msg, function=name)
        try:
            columns.append(pa.array(column).cast(field.type))
        except pa.ArrowException as error:
            msg = f"value function {name!r} returned another type for {field.name!r}: {error}"
            raise SourceError(msg, function=name, column=field.name) from error
        if columns[-1].null_count and not field.nullable:
            msg = f"value function {name!r} returned NULL for {field.name!r}, which is NOT NULL"
            raise SourceError(msg, function=name, column=field.name)
    return columns


def _metadata(name: str, records: Sequence[Any]) -> pa.Array:
    """Return a column beside the value."""
    kind = METADATA[name][1]
    if name == "kafka_timestamp":
        # Type 0 says that the record has no time. A producer may send any number.
        instants = [
            ms * 1_000 if type_of_time and FIRST_US <= ms * 1_000 <= LAST_US else None
            for type_of_time, ms in (record.timestamp() for record in records)
        ]
        return pa.array(instants, pa.int64()).cast(kind)
    if name == "kafka_headers":
        headers = [
            None
            if (pairs := record.headers()) is None
            else [{"key": k, "value": v} for k, v in pairs]
            for record in records
        ]
        return pa.array(headers, kind)
    getter = name.removeprefix("kafka_")
    return pa.array([getattr(record, getter)() for record in records], kind)


# -- clients --------------------------------------------------------------------------------------

_CLIENTS: dict[str, tuple[Any, Any]] = {}
"""By what it is for: the settings and the client of this process, and its number."""

_IDLE: list[_PartitionReader] = []
"""Readers that no thread uses. A worker has one thread, the driver one for each query."""

MOST_IDLE = 4
"""Most readers that wait for another range."""

_FORKED: list[Any] = []
"""Clients of a process that forked this one: without their threads, they cannot be closed."""


def client_package(module: str) -> Any:
    """Return a module of the client's package.

    Raises:
        PluginError: it is not installed.
    """
    return package(module, ("Kafka", "kafka"))


def _kept(role: str, settings: dict[str, Any], make: Callable[[], Any]) -> Any:
    key = settings, os.getpid()
    last_key, client = _CLIENTS.get(role, (None, None))
    if last_key is not None and last_key[1] != key[1]:
        _FORKED.append(client)
    if last_key != key:
        client = make()
        _CLIENTS[role] = key, client
    return client


def _admin(settings: dict[str, Any]) -> Any:
    def make() -> Any:
        return opened(client_package("confluent_kafka.admin").AdminClient, settings)

    return _kept("admin", settings, make)


def opened(make: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """Return a client.

    Raises:
        OptionError: a setting is unknown or wrong.
    """
    try:
        return make(settings, logger=_QUIET)
    except client_package("confluent_kafka").KafkaException as error:
        msg = f"settings of Kafka: {reason_in(error)}"
        raise OptionError(msg) from None


def _taken_reader(settings: dict[str, Any], split: Range) -> _PartitionReader:
    """Return a reader that no other thread has; if possible one that stands where a range begins.

    A client is lost in a topic that was made anew, so such a reader goes.
    """
    taken: list[_PartitionReader] = []
    with suppress(IndexError):
        while True:
            taken.append(_IDLE.pop())
    _FORKED.extend(reader for reader in taken if reader.process != os.getpid())
    usable = [
        reader
        for reader in taken
        if reader.process == os.getpid()
        and reader.topics.get(split.topic, split.topic_id) == split.topic_id
    ]
    fitting = [reader for reader in usable if reader.settings == settings]
    best = max(fitting, key=lambda reader: reader.is_at(split), default=None)
    _IDLE.extend(reader for reader in usable if reader is not best)
    return _PartitionReader(settings) if best is None else best


def _give_back(reader: _PartitionReader) -> None:
    _IDLE.append(reader)
    del _IDLE[:-MOST_IDLE]


_ERROR = methodcaller("error")


class _PartitionReader:
    """Reads ranges of partitions in one thread, one range after the other."""

    def __init__(self, settings: dict[str, Any]) -> None:
        client = client_package("confluent_kafka")
        defaults = {
            "group.id": "eddyline",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # A fetch that waits for records keeps the next partition waiting. To pause partitions
            # would spare the fetches of idle workers, but to resume them takes up to a second.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 10 * READ_AT_ONCE,
            "queued.max.messages.kbytes": 65_536,
        }
        self.settings, self.process = settings, os.getpid()
        self._client = client
        self._consumer = opened(client.Consumer, {**defaults, **settings})
        self.topics: dict[str, str] = {}
        """Topics that the client knows, with their identity."""
        self._place: tuple[str, int, int] | None = None
        self._ahead: list[Any] = []
        """Records after the last range that the client has handed out."""
        self.timeout_s = 120.0

    def read(self, split: Range) -> Iterator[list[Any]]:
        """Yield the records of a range.

        Raises:
            SourceError: records are gone, or the broker does not answer.
        """
        ahead: list[Any] = []
        if self.is_at(split):
            ahead = self._ahead
        else:
            self._get_to_know(split)
            place = self._client.TopicPartition(split.topic, split.partition, split.first)
            self._consumer.assign([place])
        self._place, self._ahead = None, []
        yield from self._read(split, ahead)
        self._place = (split.topic, split.partition, split.end)

    def is_at(self, split: Range) -> bool:
        """Return whether the last range ended where a range begins."""
        return self._place == (split.topic, split.partition, split.first)

    def _get_to_know(self, split: Range) -> None:
        """Ask for the leaders of a topic; the client itself does so once a second only."""
        if split.topic not in self.topics:
            with suppress(self._client.KafkaException):
                self._consumer.list_topics(split.topic, timeout=min(5.0, self.timeout_s))
            self.topics[split.topic] = split.topic_id

    def _read(self, split: Range, ahead: list[Any]) -> Iterator[list[Any]]:
        position, deadline = split.first, time.monotonic() + self.timeout_s
        while True:
            records, at_end, position = self._sorted_out(ahead, split, position)
            if records:
                yield records
                # What is done with the records takes none of the broker's time.
                deadline = time.monotonic() + self.timeout_s
            if at_end or position >= split.end:
                return
            if time.monotonic() > deadline:
                msg = (
                    f"Kafka gave no record of partition {split.partition} of topic {split.topic!r} "
                    f"from {position:,} on for {self.timeout_s:.0f} s; see that the broker can be "
                    f"reached, then start the query again: nothing is lost"
                )
                raise SourceError(msg, topic=split.topic)
            ahead = self._consumer.consume(min(READ_AT_ONCE, split.end - position), _POLL_S)

    def _sorted_out(
        self, handed: list[Any], split: Range, position: int
    ) -> tuple[list[Any], bool, int]:
        """Return the records of the range among those handed out, and how far the range is read."""
        if handed and self._are_all_of(handed, split):
            return handed, False, handed[-1].offset() + 1
        records: list[Any] = []
        for number, record in enumerate(handed):
            error = record.error()
            if error is not None:
                if error.code() == self._client.KafkaError._PARTITION_EOF:
                    position = max(position, record.offset())
                    continue
                raise self._failure(error, split, position)
            if record.offset() >= split.end:
                self._ahead = handed[number:]
                return records, True, split.end
            if record.offset() >= split.first:
                records.append(record)
                position = record.offset() + 1
        return records, False, position

    @staticmethod
    def _are_all_of(handed: list[Any], split: Range) -> bool:
        """Return whether all that was handed out are records of the range, as it mostly is."""
        if any(map(_ERROR, handed)):
            return False
        # A client hands out the records of a partition in the order of their offsets.
        return bool(handed[0].offset() >= split.first and handed[-1].offset() < split.end)

    def _failure(self, error: Any, split: Range, position: int) -> Exception:
        codes = self._client.KafkaError
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            return _gone(
                f"records from {position:,} on of partition {split.partition} of topic "
                f"{split.topic!r} are gone",
                topic=split.topic,
            )
        msg = (
            f"partition {split.partition} of topic {split.topic!r} cannot be read from "
            f"{position:,} on: {error.str()}"
        )
        return SourceError(msg, topic=split.topic)


def _is_final(error: Exception) -> bool:
    """Return whether the broker would give the same error again."""
    cause = error.args[0] if error.args else None
    name = getattr(cause, "name", lambda: "")()
    return name in {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "_SSL",
        "_RESOLVE_FATAL",
    }


def reason_in(error: Exception) -> str:
    """Return the words of an error of the client."""
    cause = error.args[0] if error.args else error
    return str(getattr(cause, "str", lambda: cause)())


def _gone(what: str, **facts: Any) -> SourceError:
    msg = (
        f"{what}. Give on_loss='count' to go on with what is left (run.rejected() lists what was "
        f"lost), or start the query with a new checkpoint"
    )
    return SourceError(msg, **facts)


def _per_partition(offsets: Offset, change: Callable[[str, str, int], int]) -> Offset:
    return {
        topic: {
            partition: change(topic, partition, offset) for partition, offset in partitions.items()
        }
        for topic, partitions in offsets.items()
    }


def _limited(start: Offset, ends: Offset, most_rows: int) -> Offset:
    """Return ends with at most so many records in all, in proportion to what waits."""
    waiting = {
        (topic, partition): max(0, end - int(start.get(topic, {}).get(partition, 0)))
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    }
    total = sum(waiting.values())
    if total <= most_rows:
        return ends
    shares = {place: n * most_rows // total for place, n in waiting.items()}
    rest = most_rows - sum(shares.values())
    # What division leaves goes to the partitions with most records, one each.
    for place in sorted(waiting, key=lambda place: (-waiting[place], place))[:rest]:
        shares[place] += 1
    return _per_partition(
        ends,
        lambda topic, partition, _: (
            int(start.get(topic, {}).get(partition, 0)) + shares[(topic, partition)]
        ),
    )


# -- options --------------------------------------------------------------------------------------


def kafka(
    servers: str,
    topic: str | Sequence[str] | None = None,
    *,
    pattern: str | None = None,
    value: str | Decoder = "json",
    schema: str | None = None,
    start: str | Mapping[str, Mapping[int, int]] = EARLIEST,
    max_per_batch: int | None = None,
    metadata: Sequence[str] = (),
    on_loss: str = "error",
    on_reject: str = "keep",
    timestamps: str = "s",
    timeout: str = "2 minutes",
    settings: Mapping[str, Any] | None = None,
) -> Kafka:
    """Return topics of Kafka as a source, for ``engine.stream``.

    Args:
        servers: brokers, such as ``host:9092``; several are separated by commas.
        topic: one topic or several.
        pattern: a regular expression that names of topics match as a whole, in place of ``topic``.
            Topics that come later are read from their first record on.
        value: ``json`` (an object of ``schema``), ``bytes`` or ``text`` (one column ``value``), or
            a function of an Arrow array of values that returns the columns of ``schema``; also as
            ``module:function``.
        schema: the columns of a value, as Spark's DDL. A column that is NOT NULL must be there.
        start: where a new query starts: ``earliest``, ``latest``, an instant such as
            ``2026-11-30T12:00:00Z``, or offsets by topic and partition. A query that goes on from
            its checkpoint ignores it.
        max_per_batch: most records of a micro-batch; needs PySpark 4.2.
        metadata: columns beside the value, of ``kafka_key``, ``kafka_headers``, ``kafka_topic``,
            ``kafka_partition``, ``kafka_offset`` and ``kafka_timestamp``.
        on_loss: ``error`` if records or topics are gone before they were read, or ``count``.
        on_reject: ``keep`` values that cannot be decoded (``run.rejected``), or ``error``.
        timestamps: unit of JSON numbers that are instants: ``s``, ``ms`` or ``us``.
        timeout: how long a broker may be away before the query fails.
        settings: of librdkafka, such as ``{"security.protocol": "SASL_SSL"}``.

    Raises:
        OptionError: a value is unknown, missing or out of range.
    """
    texts: dict[str, Any] = {
        "servers": servers,
        "topic": topic if topic is None or isinstance(topic, str) else ",".join(topic),
        "pattern": pattern,
        "value": "function" if callable(value) else value,
        "schema": schema,
        "start": start if isinstance(start, str) else json.dumps(start),
        "max_per_batch": max_per_batch,
        "metadata": ",".join(metadata),
        "on_loss": on_loss,
        "on_reject": on_reject,
        "timestamps": timestamps,
        "timeout": timeout,
    }
    texts |= {f"kafka.{name}": value for name, value in (settings or {}).items()}
    options = {name: str(text) for name, text in texts.items() if text is not None}
    return Kafka(options, value if callable(value) else None)


def _one_of(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        msg = f"{name} is one of {', '.join(choices)}, got {value!r}"
        raise OptionError(msg, option=name)
    return value


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        msg = f"pattern {text!r} is no regular expression: {error}"
        raise OptionError(msg, pattern=text) from None


def _seconds(text: str) -> float:
    micros = micros_in(text)
    if micros is None or micros <= 0:
        msg = f"timeout is a span such as '2 minutes', got {text!r}"
        raise OptionError(msg, timeout=text)
    return micros / 1e6


def _start(text: str) -> str | int | dict[str, Any]:
    """Return where a new query starts: a word, an instant (ms since 1970), or offsets."""
    if text in (EARLIEST, LATEST):
        return text
    advice = (
        f"start is {EARLIEST}, {LATEST}, an instant such as 2026-11-30T12:00:00Z, or offsets such "
        f'as {{"orders": {{"0": 5}}}}, got {text!r}'
    )
    if text.lstrip().startswith("{"):
        try:
            offsets = json.loads(text)
            is_right = all(
                start in (EARLIEST, LATEST) or (type(start) is int and start >= 0)
                for partitions in offsets.values()
                for start in partitions.values()
            )
        except (ValueError, AttributeError):
            is_right = False
        if not is_right:
            raise OptionError(advice, start=text)
        return {
            topic: {str(p): o for p, o in partitions.items()}
            for topic, partitions in offsets.items()
        }
    try:
        instant = instants_of(pa.array([text]), "UTC")
    except ValueError:
        raise OptionError(advice, start=text) from None
    # Kafka has no part of a ms, and negative numbers are words there.
    return max(0, -(-int(instant.cast(pa.int64())[0].as_py()) // 1_000))

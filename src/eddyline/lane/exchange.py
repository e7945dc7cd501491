"""Tasks that read row groups and shuffle rows as Arrow blobs.

``FileBuckets`` reads columns block by block. ``bucketed``, which each operator implements, returns
rows with their buckets. A task sorts them by bucket and sends a few blobs to each: Arrow batches in
the IPC format. Spark shuffles blobs by the number of their bucket and knows nothing of the rows in
them, so a row costs its bytes. ``unpacked`` turns blobs into rows again where a bucket works.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.parquet_spans import Span
from eddyline.lane.scan import size_of
from eddyline.lane.task import FileReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eddyline.data.arrays import Ints, Mask

BUCKET = "__bucket"
"""The column of a row's bucket."""

BLOB = "__blob"
"""The column of blobs. Without a bucket it has the span of a task's event times instead, or NULL if
the task has more rows than are asked for."""

BLOBS = f"{BUCKET} int, {BLOB} binary"
"""The columns of what tasks send, as Spark's DDL."""

SENT = pa.schema([(BUCKET, pa.int32()), (BLOB, pa.binary())])
"""The same for Arrow."""

FEW_BUCKETS = 1 << 16
"""Buckets whose numbers fit into 16 bits."""

BLOB_BYTES = 16 << 20
"""Bytes of rows of a bucket, or of results, that a task sends at once."""

HELD_BYTES = 128 << 20
"""Bytes that a task holds, of all buckets or of all queries, before it sends or writes them all."""


class Condition(Protocol):
    """A condition over rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""

    def keeps(self, columns: Sequence[pa.Array], n_rows: int) -> Mask:
        """Return the rows for which it is true ((N,)), given those columns."""


def columns_to_read(handed: Sequence[str], where: Condition | None) -> tuple[str, ...]:
    """Return the columns that are handed on, and behind them the others that a condition reads."""
    tested = () if where is None else where.columns
    return (*dict.fromkeys((*handed, *tested)),)


@dataclass(frozen=True)
class FileBuckets(FileReader):
    """Reads row groups and sends rows to buckets; derive one with the work of an operator."""

    n_buckets: int
    most_rows: int | None
    """Rows that a task may send; with more of them it sends none. None: as many as there are."""
    time: str
    """The column of event time."""
    spans: bool
    """Whether a task reports the event times of all rows that it reads, as a ``Span``."""
    where: Condition | None
    """The rows that are sent; None: all."""

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns that are read: ``handed``, and those of the condition."""
        return columns_to_read(self.handed, self.where)

    def passing(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[tuple[pa.Array, ...]]:
        """Yield the columns ``handed`` of the rows that pass the condition."""
        if self.where is None:
            yield from blocks
            return
        n_handed = len(self.handed)
        places = [self.looked_at.index(name) for name in self.where.columns]
        for block in blocks:
            keep = self.where.keeps([block[place] for place in places], len(block[0]))
            handed = block[:n_handed]
            if not keep.all():
                mask = pa.array(keep)
                handed = tuple(column.filter(mask) for column in handed)
            yield handed

    def bucketed(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.RecordBatch]:
        """Yield what is sent of the blocks of the columns ``handed``; see ``parted``."""
        raise NotImplementedError

    def parted(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each bucket that has some; a row may go to several."""
        return by_bucket(rows, rows.column(BUCKET).to_numpy(), self.n_buckets)

    def blobs(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield what a task sends.

        Raises:
            SourceError: a file is gone, another one, or damaged.
        """
        seen = _Seen(self.handed.index(self.time)) if self.spans else None
        blocks = self.blocks(number)
        held = _Held()
        n_rows, most = 0, self.most_rows
        blocks = blocks if seen is None else seen.over(blocks)
        for rows in self.bucketed(self.passing(blocks)):
            n_rows += rows.num_rows
            if most is not None and n_rows > most:
                break
            for bucket, part in self.parted(rows):
                yield from held.add(bucket, part)
        if most is None or n_rows <= most:
            yield from held.left()
        else:
            yield _too_many()
            if seen is not None:  # the others are read for their event times alone
                collections.deque(blocks, maxlen=0)
        if seen is not None:
            yield _seen_by(seen.span)


class _Held:
    """Rows of buckets that are not sent yet."""

    def __init__(self) -> None:
        self._parts: dict[int, list[pa.RecordBatch]] = {}
        self._bytes: dict[int, int] = {}
        self._n_held = 0
        """Bytes that were added since all were sent. Parts are slices of blocks, so a block takes
        memory until the last of its parts is sent."""

    def add(self, bucket: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Hold rows of a bucket; yield those held as a blob if they are many."""
        self._parts.setdefault(bucket, []).append(rows)
        self._bytes[bucket] = self._bytes.get(bucket, 0) + rows.nbytes
        self._n_held += rows.nbytes
        if self._bytes[bucket] >= BLOB_BYTES:
            del self._bytes[bucket]
            yield _sent(bucket, packed(self._parts.pop(bucket)))
        if self._n_held >= HELD_BYTES:
            yield from self.left()

    def left(self) -> Iterator[pa.RecordBatch]:
        """Yield the blobs of all rows that are held."""
        for bucket, parts in self._parts.items():
            yield _sent(bucket, packed(parts))
        self._parts, self._bytes, self._n_held = {}, {}, 0


class _Seen:
    """The span of the event times that pass.

    Args:
        place: of the column of event time in a block.
    """

    def __init__(self, place: int) -> None:
        self._place = place
        self.span = Span()

    def over(self, blocks: Iterator[tuple[pa.Array, ...]]) -> Iterator[tuple[pa.Array, ...]]:
        """Yield blocks as they are."""
        for block in blocks:
            self.span = self.span.merge(_span_of(block[self._place]))
            yield block


def _span_of(times: pa.Array) -> Span:
    """Return the span of some event times."""
    n_timed = len(times) - times.null_count
    if not n_timed:
        return Span(len(times))
    ends = pc.min_max(times.view(pa.int64()))
    return Span(len(times), n_timed, ends["min"].as_py(), ends["max"].as_py())


@dataclass(frozen=True)
class Reading:
    """The tasks of a job that reads one stream or several."""

    streams: tuple[FileBuckets, ...]

    @property
    def n_tasks(self) -> int:
        """The tasks of all streams."""
        return sum(len(stream.tasks) for stream in self.streams)

    @property
    def size(self) -> tuple[int, int]:
        """The rows of all row groups, and the bytes of the columns that are read."""
        return size_of(task for stream in self.streams for task in stream.tasks)

    def blobs(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield what a task sends; see ``FileBuckets.blobs``."""
        for stream in self.streams:
            if number < len(stream.tasks):
                return stream.blobs(number)
            number -= len(stream.tasks)
        raise IndexError(number)


def by_bucket(
    rows: pa.RecordBatch, buckets: Ints, n_buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each bucket that has some, in their order.

    Args:
        rows: of all buckets.
        buckets: of each row ((N,)).
        n_buckets: how many there are.
    """
    if not rows.num_rows:
        return
    if n_buckets == 1:
        yield 0, rows
        return
    # Numbers of 16 bits are sorted by their digits, in time that grows with the rows alone.
    short = buckets.astype(np.uint16) if n_buckets <= FEW_BUCKETS else buckets
    order = np.argsort(short, kind="stable")
    bounds = np.searchsorted(buckets[order], np.arange(n_buckets + 1))
    rows = rows.take(pa.array(order))
    for bucket in range(n_buckets):
        first, end = int(bounds[bucket]), int(bounds[bucket + 1])
        if first < end:
            yield bucket, rows.slice(first, end - first)


def packed(parts: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Return batches of one schema, at least one, as a blob."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0].schema) as stream:
        for part in parts:
            stream.write_batch(part)
    return sink.getvalue()


def _sent(bucket: int | None, blob: pa.Buffer | bytes | None) -> pa.RecordBatch:
    columns = [pa.array([bucket], pa.int32()), binary_of(blob)]
    return pa.RecordBatch.from_arrays(columns, schema=SENT)


def binary_of(value: pa.Buffer | bytes | None) -> pa.Array:
    """Return one binary value, or NULL, as an array; it is not copied."""
    if value is None:
        return pa.nulls(1, pa.binary())
    data = pa.py_buffer(value)
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])


def _too_many() -> pa.RecordBatch:
    """Return what a task sends that has more rows than are asked for."""
    return _sent(None, None)


def _seen_by(span: Span) -> pa.RecordBatch:
    """Return the span of the event times of a task as it is sent."""
    return _sent(None, msgspec.msgpack.encode(span))


def span_and_blobs(sent: pa.Table) -> tuple[Span, list[pa.RecordBatch] | None]:
    """Return the span that tasks tell, empty if they tell none, and the blobs that they sent.

    There are no blobs if a task has too many rows.
    """
    is_of_bucket = pc.is_valid(sent[BUCKET])
    others = sent.filter(pc.invert(is_of_bucket))[BLOB]
    spans = (msgspec.msgpack.decode(blob, type=Span) for blob in others.drop_null().to_pylist())
    span = reduce(Span.merge, spans, Span())
    blobs = sent.filter(is_of_bucket).to_batches()
    return span, None if others.null_count else blobs


def by_blob(sent: Iterable[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    """Return the rows of blobs by bucket."""
    arrived: dict[int, list[pa.RecordBatch]] = {}
    for batch in sent:
        for bucket, blob in zip(batch.column(BUCKET).to_pylist(), batch.column(BLOB), strict=True):
            arrived.setdefault(bucket, []).extend(pa.ipc.open_stream(blob.as_buffer()))
    return arrived


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blobs; batches that are no blobs are yielded as they are."""
    for batch in batches:
        if BLOB not in batch.schema.names:
            yield batch
            continue
        for blob in batch.column(BLOB):
            yield from pa.ipc.open_stream(blob.as_buffer())

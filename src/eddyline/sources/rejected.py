"""Values that a source could not read.

Workers write them. The driver counts and shows them. A task writes the rejected values of its split
into the folder of its batch, under a name that the split alone determines. A task or batch that
runs again replaces the file, so each value counts once. ``RejectedValues`` counts the values of a
batch once it is safe and keeps the newest ``MOST_KEPT`` values of each stream.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from eddyline.data.files import replace_file
from eddyline.errors import SourceError
from eddyline.runtime.records import Numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.sources.source import Source

MOST_KEPT = 10_000
"""Values of a stream that are kept; of more, the oldest go."""

MOST_OF_A_SPLIT = 1_000
"""Values of a split that are kept; others are counted."""

SHOWN_BYTES = 1_000
"""Bytes of a value that are kept."""

FOLDER = "rejected"
"""The folder in a checkpoint."""

PROPERTY = "eddyline.rejected"
"""Spark's local property with that folder, by which workers know it."""


class RejectedValue(msgspec.Struct):
    """A value that gave no row, or records that are gone."""

    topic: str
    partition: int
    offset: int
    """Of the record; of records that are gone, of the first."""
    reason: str
    value: str | None = None
    """The first bytes of the value; what is not UTF-8 is escaped."""
    n_records: int = 1
    """Records that are meant; 0: nobody knows how many."""


SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("value", pa.string()),
        ("n_records", pa.int64()),
    ]
)
"""The columns of rejected values."""


def file_name(name: str) -> str:
    """Return the name of a file or folder for a name of any signs and any length."""
    quoted = _NO_FILE_NAME.sub(lambda sign: quote(sign[0], safe="").replace(".", "%2E"), name)
    if len(quoted.encode()) <= _MOST_BYTES_OF_A_NAME:
        return quoted
    return f"{quoted[:40]}%20{blake2b(name.encode(), digest_size=16).hexdigest()}"


_NO_FILE_NAME = re.compile(r"[^\w.-]|^\.")
_MOST_BYTES_OF_A_NAME = 200
"""File systems take 255 bytes; endings come on top."""


class Rejects:
    """Collects what one task rejects, and writes it when the task has read its split.

    Args:
        source: what the task reads.
        name: of the split, unique in its batch.
    """

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self._name = name
        self._values: list[RejectedValue] = []

    def __enter__(self) -> Self:
        """Begin with nothing."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Write what was rejected, unless the task failed."""
        if kind is None and self._values:
            self._write()

    def add(
        self, topic: str, partition: int, offset: int, reason: str, value: bytes | None
    ) -> None:
        """Reject a value.

        Raises:
            SourceError: the source is to stop, or there is no folder.
        """
        where = f"value at offset {offset:,} of partition {partition} of topic {topic!r}"
        if self._source.options.get("on_reject") == "error":
            msg = f"{where} cannot be read: {reason}; on_reject='keep' sets such values aside"
            raise SourceError(msg, topic=topic, offset=offset)
        if self._source.rejected_to is None:
            msg = (
                f"{where} cannot be read: {reason}; give the option rejected_to, a folder for such "
                f"values, or read the source by engine.stream(…)"
            )
            raise SourceError(msg, topic=topic, offset=offset)
        if len(self._values) >= MOST_OF_A_SPLIT:
            self._count(topic, partition, offset)
            return
        shown = None if value is None else value[:SHOWN_BYTES].decode(errors="backslashreplace")
        self._values.append(RejectedValue(topic, partition, offset, reason, shown))

    def _count(self, topic: str, partition: int, offset: int) -> None:
        """Count a value of a split that has rejected too many to keep them all."""
        if len(self._values) == MOST_OF_A_SPLIT:
            reason = f"values after {MOST_OF_A_SPLIT:,} rejected ones of a task are only counted"
            self._values.append(RejectedValue(topic, partition, offset, reason, None, 0))
        self._values[-1].n_records += 1

    def lost(self, topic: str, partition: int, first: int, end: int) -> None:
        """Note records that are gone."""
        if self._source.rejected_to is not None:
            reason = (
                f"records {first:,} to {end - 1:,} were gone before they were read"
                if end > first
                else f"the partition was made anew; record {first:,} and later ones may be lost"
            )
            value = RejectedValue(topic, partition, first, reason, None, end - first)
            self._values.append(value)

    def _write(self) -> None:
        assert self._source.rejected_to is not None
        folder = Path(self._source.rejected_to)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            content = b"\n".join(map(msgspec.json.encode, self._values))
            replace_file(folder / f"{file_name(self._name)}.json", content)
        except OSError as error:
            msg = (
                f"rejected values cannot be written to {folder}: {error}; free space, or give "
                f"write permission"
            )
            raise SourceError(msg, path=str(folder)) from error


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """What a stream rejected in a batch; see ``runtime.records``."""

    component: str
    n_rejected: int
    plan: None = None

    def numbers(self, n_rows: int) -> Numbers:  # noqa: ARG002
        """Return the count."""
        return Numbers(sums={"n_rejected": self.n_rejected})

    def with_earlier(self, earlier: RejectedRecord, share: float) -> RejectedRecord:  # noqa: ARG002
        """Return one record for both."""
        return RejectedRecord(self.component, self.n_rejected + earlier.n_rejected)


def rejected_lines(record: RejectedRecord) -> tuple[str, ...]:
    """Return a line for the progress; none if nothing was rejected."""
    if not record.n_rejected:
        return ()
    stream = record.component.removeprefix(COMPONENT)
    return (f"{stream}: {record.n_rejected:,} rejected; run.rejected({stream!r}) has them",)


def rejected_notes(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return how many values each stream has rejected in the life of a query, in words."""
    return tuple(
        f"{n_rejected:,} values of {stream} could not be read; run.rejected({stream!r}) has the "
        f"newest"
        for stream, n_rejected in (
            (component.removeprefix(COMPONENT), count) for component, count in counts.items()
        )
    )


COMPONENT = "source "
"""Start of the names of components."""


class RejectedValues:
    """What the streams of a run rejected.

    Args:
        folder: with a folder for each stream, and in that one for each batch.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._n_kept: dict[str, dict[int, int]] = {}
        """Values that are kept, by the folder's name of a stream and by batch."""
        self._tables: dict[str, pa.Table] | None = None
        """The values by the folder's name of a stream, once the folder is gone."""

    def keep_in_memory(self) -> None:
        """Keep the values of a run whose folder goes with it."""
        if self._tables is None:
            self._tables = {
                stream.name: _table(stream, _batches(stream)) for stream in self._streams()
            }

    def records(self, batch_id: int) -> Iterator[RejectedRecord]:
        """Yield what each stream rejected in a batch that is safe; older values go."""
        for stream in self._streams():
            values = _values(stream / str(batch_id))
            yield RejectedRecord(
                f"{COMPONENT}{unquote(stream.name)}", sum(value.n_records for value in values)
            )
            if values:
                self._keep_newest(stream, batch_id, len(values))

    def _keep_newest(self, stream: Path, batch_id: int, n_values: int) -> None:
        """Remove the oldest batches of a stream that has more values than are kept."""
        if stream.name not in self._n_kept:
            self._n_kept[stream.name] = {
                batch: len(_values(stream / str(batch))) for batch in _batches(stream)
            }
        n_kept = self._n_kept[stream.name]
        n_kept[batch_id] = n_values
        n_all = sum(n_kept.values())
        for batch in sorted(n_kept):
            if n_all <= MOST_KEPT or batch >= batch_id:
                break
            n_all -= n_kept.pop(batch)
            shutil.rmtree(stream / str(batch), ignore_errors=True)

    def table(self, name: str, last_batch: int) -> pa.Table:
        """Return the newest values that a stream rejected, in the order of batches.

        A stream that has rejected nothing has an empty table.
        """
        if self._tables is not None:
            return self._tables.get(file_name(name), SCHEMA.empty_table())
        stream = self.folder / file_name(name)
        # Values of a later batch are of one that has not ended.
        return _table(stream, [batch for batch in _batches(stream) if batch <= last_batch])

    def _streams(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.is_dir() else []


def _batches(stream: Path) -> list[int]:
    if not stream.is_dir():
        return []
    return sorted(int(batch.name) for batch in stream.iterdir() if batch.name.isdecimal())


def _table(stream: Path, batches: list[int]) -> pa.Table:
    rows = [
        {"batch": batch, **msgspec.structs.asdict(value)}
        for batch in batches
        for value in _values(stream / str(batch))
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def _values(batch: Path) -> list[RejectedValue]:
    """Return the values of a batch by their place.

    A batch that runs again may be cut in other places, if records went meanwhile. So a place counts
    once, whatever the files of its tasks are.
    """
    decoder = msgspec.json.Decoder(RejectedValue)
    values: dict[tuple[str, int, int], RejectedValue] = {}
    for file in batch.glob("*.json"):
        with suppress(OSError):  # an older one that goes meanwhile
            for value in map(decoder.decode, file.read_bytes().splitlines()):
                values[value.topic, value.partition, value.offset] = value
    return [values[place] for place in sorted(values)]

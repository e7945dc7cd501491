"""Spark data sources over ``eddyline.sources``.

This part runs in Spark's processes. Spark keeps the offsets of streams in its checkpoint. It runs
readers in Python processes of its own, some of which it starts for each batch. So this module keeps
no state between them and imports little.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from eddyline.errors import OptionError
from eddyline.sources.rejected import PROPERTY, file_name
from eddyline.sources.source import LIMIT
from eddyline.spark.arrow_types import to_arrow_schema
from eddyline.spark.sources.kept import (
    FIRST,
    PREFIX,
    STREAM,
    VERSION,
    offsets_of_batch,
    plain_offset,
    read_options,
)

try:  # PySpark 4.1 has neither
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # pragma: no cover - depends on the version
    ReadAllAvailable = ReadMaxRows = None  # type: ignore[assignment,misc]
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from eddyline.sources.source import Offset, Source


class _Partition(InputPartition):
    """A split."""


class SourceOfSpark(DataSource):
    """A data source of Spark's."""

    kind = ""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        texts = {str(name).lower(): str(value) for name, value in dict(options).items()}
        self.version, self.stream = texts.get(VERSION), texts.get(STREAM)
        self.source = read_options(self.kind, texts)

    @classmethod
    def name(cls) -> str:
        """Return the name that users give to ``format``."""
        return PREFIX + cls.kind

    def schema(self) -> str:
        """Return the columns; of a version of a table those that it had."""
        return self.source.ddl(None if self.version is None else json.loads(self.version))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a table."""
        return TableReader(self.source, schema, self.version)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream.

        Raises:
            OptionError: this PySpark cannot limit batches, and an option does.
        """
        check_limit(self.source)
        return StreamReader(self.source, schema, self.stream)


def check_limit(source: Source) -> None:
    """Raise OptionError if batches are limited and this PySpark has no limits."""
    if source.most_rows is not None and ReadMaxRows is None:
        msg = (
            f"{LIMIT} needs PySpark 4.2 or later, because sources in Python cannot limit their "
            f"batches before; leave it out"
        )
        raise OptionError(msg, max_per_batch=source.most_rows)


def _folder_of_batch(stream: str) -> str | None:
    """Return where a task of a run of eddyline's puts rejected values."""
    task = TaskContext.get()
    folder = None if task is None else task.getLocalProperty(PROPERTY)
    if task is None or not folder:
        return None
    batch = task.getLocalProperty("streaming.sql.batchId")
    return str(Path(folder) / file_name(stream) / str(batch))


class TableReader(DataSourceReader):
    """Reads one version of a table."""

    def __init__(self, source: Source, schema: StructType, version: str | None) -> None:
        self._source = source
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._version = None if version is None else json.loads(version)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits of the version."""
        version = self._source.version() if self._version is None else self._version
        return [_Partition(split) for split in self._source.table_splits(version)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split; none of a table without files, of which Spark makes one."""
        if partition.value is None:
            return iter(())
        return self._source.read(partition.value, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from offset to offset.

    Spark writes the end of each batch into its checkpoint, but asks for the initial offset again
    when the first batch runs again. So the end of the first batch carries its start (``FIRST``).
    """

    def __init__(self, source: Source, schema: StructType, stream: str | None) -> None:
        self._source = source
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._stream = stream
        self._until: Offset | None = None
        self._initial: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts."""
        self._initial = self._source.initial()
        return self._initial

    def getDefaultReadLimit(self) -> Any:
        """Return the most rows of a batch."""
        most = self._source.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far the query reads before it stops."""
        self._until = self._source.latest(None, None, None)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Return how far the next batch reads."""
        before = self._initial if start is None else plain_offset(start)
        end = self._source.latest(before, getattr(limit, "max_rows", None), self._until)
        if end == before:
            return end if start is None else dict(start)
        return {**end, FIRST: before} if before == self._initial else end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offset that there is."""
        return self._source.newest_offset

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the splits of a batch."""
        first, last = offsets_of_batch(start, end)
        return [_Partition(split) for split in self._source.splits(first, last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        if self._source.rejects and self._stream is not None:
            self._source.rejected_to = _folder_of_batch(self._stream)
        return self._source.read(partition.value, self._schema)

    def commit(self, end: Offset) -> None:
        """Do nothing: Spark keeps the offsets."""

    def stop(self) -> None:
        """Close connections."""
        self._source.stop()

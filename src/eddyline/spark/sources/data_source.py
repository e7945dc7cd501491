"""Data sources of Spark's over the sources of ``eddyline.sources``.

``spark.readStream.format("eddyline_kafka")`` and ``spark.read.format("eddyline_delta")`` work after
``register(spark)``, without an engine. Spark keeps the offsets of streams in its checkpoint. It
runs readers in Python processes of its own, so this module must not keep state between them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema

from eddyline.sources import SOURCES, source_of
from eddyline.sources.source import REJECTED, Source

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
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eddyline.sources.source import Offset

PREFIX = "eddyline_"
"""Start of the names of data sources."""

VERSION = "__version"
"""The option with the version of a table, as JSON."""


class _Partition(InputPartition):
    """A split."""


class SourceOfSpark(DataSource):
    """A data source of Spark's."""

    kind = ""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        texts = {str(name).lower(): str(value) for name, value in dict(options).items()}
        self.version = texts.pop(VERSION, None)
        self.source = source_of(self.kind, texts)

    @classmethod
    def name(cls) -> str:
        """Return the name that users give to ``format``."""
        return PREFIX + cls.kind

    def schema(self) -> str:
        """Return the columns."""
        ddl = self.source.ddl()
        return f"{ddl}, {REJECTED} STRING" if self.source.rejects else ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a table."""
        return TableReader(self.source, schema, self.version)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        return StreamReader(self.source, schema)


def register(spark: SparkSession) -> None:
    """Let a session read every source by ``format("eddyline_…")``."""
    for kind in SOURCES:
        spark.dataSource.register(
            type(f"{kind.capitalize()}OfSpark", (SourceOfSpark,), {"kind": kind})
        )


def stream_of(spark: SparkSession, source: Source) -> DataFrame:
    """Return a source as a streaming DataFrame.

    Raises:
        SourceError: it does not answer.
    """
    register(spark)
    return spark.readStream.format(PREFIX + source.kind).options(**source.options).load()


def table_of(spark: SparkSession, source: Source, version: Offset | None = None) -> DataFrame:
    """Return a version of a source as a batch DataFrame; the newest if None.

    Raises:
        SourceError: it does not answer.
    """
    register(spark)
    text = json.dumps(source.version() if version is None else version)
    reader = spark.read.format(PREFIX + source.kind).options(**source.options)
    return reader.option(VERSION, text).load()


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
        """Yield the rows of a split."""
        return self._source.read(partition.value, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from offset to offset."""

    def __init__(self, source: Source, schema: StructType) -> None:
        self._source = source
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._until: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts."""
        return self._source.initial()

    def getDefaultReadLimit(self) -> Any:
        """Return the most rows of a batch."""
        most = self._source.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far the query reads before it stops."""
        self._until = self._source.latest(None, None, None)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Return how far the next batch reads."""
        return self._source.latest(start, getattr(limit, "max_rows", None), self._until)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the splits of a batch."""
        return [_Partition(split) for split in self._source.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        return self._source.read(partition.value, self._schema)

    def commit(self, end: Offset) -> None:
        """Do nothing: Spark keeps the offsets."""

    def stop(self) -> None:
        """Close connections."""
        self._source.stop()

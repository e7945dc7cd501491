"""Data sources of Spark's over the sources of ``eddyline.sources``.

``spark.readStream.format("eddyline_kafka")`` works after ``register_sources(spark)``, without an
engine. Spark keeps the offsets of streams in its checkpoint. It runs readers in Python processes of
its own, so this module must not keep state between them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema

from eddyline.errors import OptionError
from eddyline.sources import SOURCES, source_of
from eddyline.sources.rejected import PROPERTY, file_name
from eddyline.spark.analysis import is_known, reason_of
from eddyline.spark.sources.kept import (
    FIRST,
    HIDDEN,
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
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
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
        """Return the columns."""
        return self.source.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a table."""
        return TableReader(self.source, schema, self.version)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        return StreamReader(self.source, schema, self.stream)


def register_sources(spark: SparkSession) -> None:
    """Let a session read every source without an engine, by ``format("eddyline_kafka")``.

    Args:
        spark: the session; its readers then take the options of the source as texts.
    """
    for kind in SOURCES:
        spark.dataSource.register(
            type(f"{kind.capitalize()}OfSpark", (SourceOfSpark,), {"kind": kind})
        )


def own_source(spark: SparkSession, kind: str, options: Mapping[str, str]) -> Source | None:
    """Return the source of eddyline that a script names as its format; None for one of Spark's.

    ``eddyline_delta`` is always a source of eddyline. ``delta`` is one unless the session has a
    connector of that name, and ``kafka`` is one if it has ``servers``.

    Raises:
        OptionError: an unknown option, or a value out of range.
    """
    name = kind.lower().removeprefix(PREFIX)
    if name not in SOURCES:
        return None
    is_named = kind.lower().startswith(PREFIX) or "servers" in options
    if is_named or not (name == "kafka" or is_known(spark, name)):
        return source_of(name, {option.lower(): text for option, text in options.items()})
    return None


def stream_of(spark: SparkSession, source: Source, name: str | None = None) -> DataFrame:
    """Return a source as a streaming DataFrame.

    Args:
        spark: the session.
        source: what it reads.
        name: of the stream in its engine, under which rejected values are kept.

    Raises:
        SourceError: it does not answer.
    """
    register_sources(spark)
    options = _options(spark, source)
    if name is not None and source.rejects:
        options[STREAM] = name
    source.check(to_arrow_schema(_schema_of(spark, source), timezone="UTC"))
    return spark.readStream.format(PREFIX + source.kind).options(**options).load()


def _options(spark: SparkSession, source: Source) -> dict[str, str]:
    """Return the options of Spark's reader."""
    shown: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for name, text in source.options.items():
        (hidden if source.is_handed_on(name) else shown)[name] = text
    if "timezone" in source.names:
        shown.setdefault("timezone", str(spark.conf.get("spark.sql.session.timeZone")))
    if hidden or source.function is not None:
        pickled = cloudpickle.dumps((hidden, source.function))  # type: ignore[no-untyped-call]
        shown[HIDDEN] = b64encode(pickled).decode()
    return shown


def _schema_of(spark: SparkSession, source: Source) -> StructType:
    """Return the columns of a source.

    Raises:
        OptionError: its schema cannot be read.
    """
    try:
        return spark.createDataFrame([], source.ddl()).schema
    except PySparkException as error:
        msg = f"the columns {source.ddl()!r} cannot be read: {reason_of(error)}"
        raise OptionError(msg, schema=source.ddl()) from error


def table_of(spark: SparkSession, source: Source, version: Offset | None = None) -> DataFrame:
    """Return a version of a source as a batch DataFrame; the newest if None.

    Raises:
        SourceError: it does not answer.
    """
    register_sources(spark)
    text = json.dumps(source.version() if version is None else version)
    reader = spark.read.format(PREFIX + source.kind).options(**_options(spark, source))
    return reader.option(VERSION, text).load()


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
        """Yield the rows of a split."""
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

"""Sources of eddyline as DataFrames, for an engine or without one.

``spark.readStream.format("eddyline_kafka")`` works after ``register_sources(spark)``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from eddyline.errors import OptionError
from eddyline.sources import SOURCES, source_of
from eddyline.spark.analysis import is_known, reason_of
from eddyline.spark.arrow_types import to_arrow_schema
from eddyline.spark.sources.data_source import SourceOfSpark, check_limit
from eddyline.spark.sources.kept import HIDDEN, PREFIX, STREAM, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from eddyline.sources.source import Offset, Source


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
        OptionError: it has an option that cannot be kept, such as ``max_per_batch`` here.
    """
    check_limit(source)
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

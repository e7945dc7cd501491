"""Early results on Spark: their columns, and the newest word of all that were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.revisions import BOUNDS, VALIDATED, VERSION
from eddyline.models.rows import ERR, TOMB, Layout
from eddyline.registry import unknown
from eddyline.spark.relation import checked_frame
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_IS_LABEL = "eddyline.is_label"
"""Metadata of a column of ``latest``, which files of Parquet keep: it is no key of segments."""
RESULTS = ("final", "early")
"""When results of a stream are given."""


def read_results(given: str, *, is_streaming: bool) -> bool:
    """Return whether results are given early.

    Raises:
        OptionError: it is no time to give results, or early ones are asked of rows that are all
            there.
    """
    if given not in RESULTS:
        raise OptionError(unknown("results", str(given), RESULTS), results=given)
    if given == "early" and not is_streaming:
        msg = "results='early' is of streams; of a batch DataFrame all results are final"
        raise OptionError(msg, results=given)
    return given == "early"


def with_revisions(schema: StructType) -> StructType:
    """Return the columns of results with those that early ones have beside them."""
    more = [StructField(VERSION, LongType()), StructField(VALIDATED, BooleanType())]
    tomb = [] if TOMB in schema.fieldNames() else [StructField(TOMB, BooleanType())]
    return StructType([*schema.fields, *tomb, *more])


def as_final(results: DataFrame) -> DataFrame:
    """Return results over batch DataFrames as early ones are: none is taken back any more."""
    tomb = {} if TOMB in results.columns else {TOMB: F.lit(False)}
    return results.withColumns({**tomb, VERSION: F.lit(-1).cast("long"), VALIDATED: F.lit(True)})


def latest(results: DataFrame) -> DataFrame:
    """Return the results that hold, of early results as they were written.

    Of each entity and instant at which a result begins the newest row counts; a tombstone is none.
    Nothing depends on the order of rows, and rows that were written twice are one.

    Args:
        results: all rows that a query with ``results="early"`` has given: segments, or those of
            ``sample`` and ``changes``; columns that are none of results are keys.

    Returns:
        The columns of the same results without early ones, and ``validated``: whether event time,
        or rows of the entity, have come to the end of the result. Segments can be read,
        ``el.models.read(el.models.latest(df))``: ``validated`` says by its metadata that it is no
        key.

    Raises:
        QueryError: these are no early results.
        NotSupportedError: they are a stream; read what was written.

    Example:
        >>> rows = spark.read.parquet("out/")  # doctest: +SKIP
        >>> el.models.latest(rows).where("validated").show()  # doctest: +SKIP
    """
    frame = checked_frame("the input of models.latest", results)
    if frame.isStreaming:
        msg = "models.latest takes rows that were written, not a stream: read them as a batch"
        raise NotSupportedError(msg)
    keys, (begin, _) = _identity(frame.columns)
    known = [*keys, begin]
    others = [each for each in frame.columns if each not in known]
    newest = F.max_by(F.struct(*map(_column, others)), _column(VERSION)).alias("__newest")
    found = frame.groupBy(*map(_column, known)).agg(newest).where(f"NOT __newest.{TOMB}")
    is_segment = begin == BOUNDS["segments"][0]
    dropped = {VERSION} if is_segment else {VERSION, TOMB}
    columns = [
        _column(each) if each in known else F.col(f"__newest.{quoted(each)}").alias(each)
        for each in frame.columns
        if each not in dropped
    ]
    return found.select(*columns).withMetadata(VALIDATED, {_IS_LABEL: True})


def without_label(segments: DataFrame) -> DataFrame:
    """Return segments without what ``latest`` says beside them."""
    fields = segments.schema.fields
    labels = [each.name for each in fields if (each.metadata or {}).get(_IS_LABEL)]
    return segments.drop(*labels)


def _identity(columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, str]]:
    """Return the columns of the entity, and those of where a result begins and ends.

    Raises:
        QueryError: these are no early results.
    """
    lacking = [each for each in (VERSION, TOMB, VALIDATED) if each not in columns]
    kind = next((each for each in BOUNDS.values() if {*each} <= {*columns}), None)
    if lacking or kind is None:
        pairs = " or ".join(" and ".join(dict.fromkeys(each)) for each in BOUNDS.values())
        msg = (
            f"models.latest takes early results, with {VERSION}, {TOMB} and {VALIDATED}, and "
            f"{pairs}; got {', '.join(columns)}"
        )
        raise QueryError(msg, columns=list(columns))
    own = {VERSION, VALIDATED, *kind}
    if kind == BOUNDS["segments"]:
        return Layout.of([each for each in columns if each not in own - {*kind}]).keys, kind
    attributes = {each for each in columns if ERR + each in columns}
    own |= {TOMB, *attributes, *(ERR + each for each in attributes)}
    return tuple(each for each in columns if each not in own), kind


def _column(name: str) -> Column:
    return F.col(quoted(name))

"""Event time in Spark's SQL: µs since 1970, of timestamps with and without a time zone.

A ``TIMESTAMP`` is an instant. A ``TIMESTAMP_NTZ`` is the reading of a wall clock, on a time line of
its own: its µs are those of the same reading in UTC. Spark's casts and ``timestampdiff`` read it in
the time zone of the session. When clocks go forward, they move the skipped hour over the next hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

LOCAL = "timestamp_ntz"
"""The type of event times that are readings of a wall clock."""

_EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


def time_type(df: DataFrame, time: str, stream: str) -> str:
    """Return the type of the event time of a stream.

    Raises:
        QueryError: the column is no timestamp.
    """
    kind = dict(df.dtypes)[time]
    if kind in ("timestamp", LOCAL):
        return kind
    msg = f"the event time {time!r} of {stream!r} is of type {kind}; give a timestamp"
    raise QueryError(msg, stream=stream, time=time)


def check_one_type(query: str, streams: Iterable[tuple[str, DataFrame, str | None]]) -> None:
    """Refuse streams whose event times are on different time lines.

    Args:
        query: the name of the query.
        streams: name, rows and event-time column of each; a table has no such column.

    Raises:
        QueryError: both types occur, or a column is no timestamp.
    """
    types = {name: time_type(df, time, name) for name, df, time in streams if time is not None}
    if len({*types.values()}) > 1:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in types.items())
        msg = (
            f"query {query!r} needs event times of one type, got {listed}; cast the column of one "
            f"stream, such as withColumn('ts', col('ts').cast('timestamp')), which reads wall "
            f"clocks in the time zone of the session"
        )
        raise QueryError(msg, query=query, types=types)


def micros_of(df: DataFrame, time: str, stream: str) -> Column:
    """Return the event time of the rows of a stream (µs).

    Raises:
        QueryError: the column is no timestamp.
    """
    if time_type(df, time, stream) == LOCAL:
        return local_micros(quoted(time))
    return F.unix_micros(F.col(quoted(time)))


def local_micros(text: str) -> Column:
    """Return the µs from 1970 to a ``timestamp_ntz``, which is in no time zone."""
    seconds = f"CAST(CAST(({text}\n) - {_EPOCH} AS INTERVAL SECOND) AS DECIMAL(20,6))"
    return F.expr(f"CAST({seconds} * 1000000 AS BIGINT)")


def instant_of(micros: str, *, is_local: bool) -> str:
    """Return SQL that turns µs since 1970 into a timestamp, with or without a time zone."""
    if is_local:
        return f"{_EPOCH} + ({micros}) * INTERVAL '0.000001' SECOND"
    return f"timestamp_micros({micros})"

"""Event time in Spark's SQL: µs since 1970, of timestamps with and without a time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def micros_of(df: DataFrame, time: str, stream: str) -> Column:
    """Return the event time of the rows of a stream (µs).

    Raises:
        QueryError: the column is no timestamp.
    """
    kind = dict(df.dtypes)[time]
    if kind == "timestamp":
        return F.unix_micros(F.col(quoted(time)))
    if kind == "timestamp_ntz":
        return local_micros(quoted(time))
    msg = f"the event time {time!r} of {stream!r} is of type {kind}; give a timestamp"
    raise QueryError(msg, stream=stream, time=time)


def local_micros(text: str) -> Column:
    """Return the µs from 1970 to a ``timestamp_ntz``, which is in no time zone."""
    return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', ({text}\n))")


def instant_of(micros: Column, *, is_local: bool) -> Column:
    """Return µs since 1970 as a timestamp, or in no time zone."""
    if not is_local:
        return F.timestamp_micros(micros)
    epoch = F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
    # As decimals: a double has too few digits for the µs of what is after 2112.
    seconds = micros.cast("decimal(20,0)") / F.lit(1_000_000)
    return epoch + F.make_dt_interval(secs=seconds.cast("decimal(18,6)"))

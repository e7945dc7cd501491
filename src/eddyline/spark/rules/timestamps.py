"""Reads points in time as a session does: one look-up for all that rules name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from eddyline.sql.literals import Moment

# The casts that Spark puts around such constants; a day and a time without a zone become timestamps
# each in their own way where the clock jumps.
_MICROS = """unix_micros(CASE kind
    WHEN 'date' THEN CAST(CAST(text AS DATE) AS TIMESTAMP_LTZ)
    WHEN 'timestamp_ntz' THEN CAST(CAST(text AS TIMESTAMP_NTZ) AS TIMESTAMP_LTZ)
    ELSE CAST(text AS TIMESTAMP_LTZ)
END) AS micros"""


def micros_of(spark: SparkSession, moments: Sequence[Moment]) -> dict[Moment, int]:
    """Return the microseconds since 1970 (UTC) of moments, in the time zone of the session."""
    if not moments:
        return {}
    rows = pa.table(
        {"text": [each.text for each in moments], "kind": [each.kind for each in moments]}
    )
    # Rows that come from here: Spark computes them while it plans, without a job.
    found = spark.createDataFrame(rows).selectExpr(_MICROS).toArrow()
    return dict(zip(moments, found["micros"].to_pylist(), strict=True))

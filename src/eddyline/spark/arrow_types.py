"""Arrow types of Spark's types, whatever the version of PySpark.

PySpark 4.1 has all instants in UTC, and 4.3 asks for their time zone.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas import types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_HAS_ZONE = "timezone" in inspect.signature(types.to_arrow_schema).parameters


def to_arrow_schema(
    schema: StructType, *, timezone: str = "UTC", prefers_large_types: bool = False
) -> pa.Schema:
    """Return the Arrow schema of a schema of Spark's.

    Args:
        schema: the schema.
        timezone: the time zone of instants.
        prefers_large_types: whether texts and binaries have offsets of 64 bits.
    """
    zone: dict[str, Any] = {"timezone": timezone} if _HAS_ZONE else {}
    return types.to_arrow_schema(schema, prefers_large_types=prefers_large_types, **zone)


def to_arrow_type(kind: DataType, *, timezone: str = "UTC") -> pa.DataType:
    """Return the Arrow type of a type of Spark's, with instants in a time zone."""
    zone: dict[str, Any] = {"timezone": timezone} if _HAS_ZONE else {}
    return types.to_arrow_type(kind, **zone)

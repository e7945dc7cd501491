"""The same functions as Spark's own Arrow and pandas UDFs.

A module of its own, without ``from __future__ import annotations``: Spark reads the type hints.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.functions import arrow_udf, pandas_udf  # type: ignore[attr-defined] # not in the stubs
from pyspark.sql.types import BooleanType


def arrow_udf_of(fn: Callable[[Any], Any]) -> Any:
    """Return a function over Arrow arrays as an Arrow UDF."""

    def evaluate(line: pa.Array) -> pa.Array:
        return fn(line)

    return arrow_udf(evaluate, BooleanType())


def pandas_udf_of(fn: Callable[[Any], Any]) -> Any:
    """Return a function over pandas series as a pandas UDF."""

    def evaluate(line: pd.Series) -> pd.Series:
        return fn(line)

    return pandas_udf(evaluate, BooleanType())


def arrow_crossing() -> Any:
    """Return a function that does nothing, over any number of columns: the crossing alone."""

    def evaluate(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for batch in batches:
            # Where there is one column, Spark hands over the array itself.
            column = batch[0] if isinstance(batch, tuple) else batch
            yield pa.array([False] * len(column))

    return arrow_udf(evaluate, BooleanType()).asNondeterministic()

"""The same functions as Spark's own Arrow and pandas UDFs.

A module of its own, without ``from __future__ import annotations``: Spark reads the type hints.
"""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.functions import arrow_udf, pandas_udf
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

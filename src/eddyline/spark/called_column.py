"""The answers of a Python function as a column of Spark's."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined] # not in the stubs
from pyspark.sql.types import BooleanType

from eddyline.query.predicate_results import truths
from eddyline.spark.analysis import operand
from eddyline.spark.arrow_tasks import begin_task

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from eddyline.query.predicates import FunctionPredicate

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``evaluate``.


def called_column(df: "DataFrame", predicate: "FunctionPredicate") -> "Column":
    """Return the answers of a function over a DataFrame; NULL where it gives none."""

    def evaluate(*columns: pa.Array) -> pa.Array:
        begin_task()
        return truths(predicate, columns)

    udf: Any = arrow_udf(evaluate, BooleanType())
    if not predicate.deterministic:
        udf = udf.asNondeterministic()
    found: Column = udf(*(operand(df, text) for text in predicate.reads))
    return found

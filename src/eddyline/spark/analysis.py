"""Spark's analysis of the columns of a DataFrame and of expressions over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from eddyline.errors import QueryError
from eddyline.spark.operator import PREFIX
from eddyline.spark.session import is_on
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def column_types(df: DataFrame) -> dict[str, str]:
    """Return name and type of each column; where columns share a name, no type is known."""
    types: dict[str, str] = {}
    for name, kind in df.dtypes:
        types[name] = kind if types.get(name, kind) == kind else "unknown"
    return types


def arrow_schema(spark: SparkSession, schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark takes for a schema, by the session's settings."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    is_large = is_on(spark, "spark.sql.execution.arrow.useLargeVarTypes")
    return to_arrow_schema(schema, timezone=zone, prefers_large_types=is_large)


def check_names(df: DataFrame) -> None:
    """Refuse columns that a temporary column would replace.

    Raises:
        QueryError: there is one; the message names it.
    """
    for column in df.columns:
        if column.lower().startswith(PREFIX):
            msg = (
                f"the input has a column {column!r}, but names that start with {PREFIX} are those "
                f"of temporary columns; rename it with withColumnRenamed"
            )
            raise QueryError(msg, column=column)


def operand(df: DataFrame, text: str) -> Column:
    """Return the column of exactly that name, or else the text as SQL."""
    return F.expr(quoted(text) if text in df.columns else text)


def analysed(df: DataFrame, columns: Sequence[Column]) -> list[DataType | AnalysisException]:
    """Return the type of each expression over a DataFrame, or the error that Spark refuses it with.

    Spark analyses all of them at once, and one by one only to find those that are wrong.

    Raises:
        AnalysisException: each is fine alone, and together they are not.
    """
    try:
        return _types(df, columns)
    except AnalysisException:
        found = [_type_or_error(df, column) for column in columns]
        if not any(isinstance(each, AnalysisException) for each in found):
            raise
        return found


def _types(df: DataFrame, columns: Sequence[Column]) -> list[DataType | AnalysisException]:
    numbered = (column.alias(f"c{number}") for number, column in enumerate(columns))
    return [field.dataType for field in df.select(*numbered).schema]


def _type_or_error(df: DataFrame, column: Column) -> DataType | AnalysisException:
    try:
        return _types(df, [column])[0]
    except AnalysisException as error:
        return error

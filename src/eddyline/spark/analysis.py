"""Spark's analysis of DataFrame columns and of expressions over them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, PySparkTypeError
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from eddyline.errors import NotSupportedError, QueryError
from eddyline.registry import hint
from eddyline.spark.arrow_types import to_arrow_schema, to_arrow_type
from eddyline.spark.operator import PREFIX
from eddyline.spark.session import is_on
from eddyline.sql.functions import CASTS, SAFE, STRICT
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark logs what Spark refuses, whoever handles it."""


_TOO_DEEP = (
    "it is nested too deeply, or has too many operators in a row, for the stack of Spark's "
    "threads; write it flatter, split it, or start Spark with a larger stack "
    "(spark.driver.extraJavaOptions=-Xss16m)"
)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Silence PySpark's log around a call that Spark may refuse.

    Raises:
        AnalysisException: Spark refuses the call, or runs out of stack on a deep expression.
    """
    before = {name: PySparkLogger.getLogger(name).disabled for name in _LOGGERS}
    try:
        for name in _LOGGERS:
            PySparkLogger.getLogger(name).disabled = True
        yield
    except Py4JJavaError as error:
        if not is_overflow(error):
            raise
        raise AnalysisException(message=_TOO_DEEP) from error
    finally:
        for name, was_disabled in before.items():
            PySparkLogger.getLogger(name).disabled = was_disabled


def is_overflow(error: Py4JJavaError) -> bool:
    """Return whether Java ran out of stack."""
    cause = error.java_exception
    while cause is not None:
        if cause.getClass().getName() == "java.lang.StackOverflowError":
            return True
        cause = cause.getCause()
    return False


def column_types(df: DataFrame) -> dict[str, str]:
    """Return name and type of each column; where columns share a name, no type is known."""
    types: dict[str, str] = {}
    for name, kind in df.dtypes:
        types[name] = kind if types.get(name, kind) == kind else "unknown"
    return types


def frame_of(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return the rows of a table as a DataFrame, with columns of some types."""
    # PySpark does not take a table without rows that has nested columns.
    rows: Any = table if table.num_rows else []
    return spark.createDataFrame(rows, schema)


def arrow_schema(spark: SparkSession, schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark takes for a schema, by the session's settings."""
    return _arrow_schema(spark, schema, str(spark.conf.get("spark.sql.session.timeZone")))


def table_schema(spark: SparkSession, schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the tables that ``DataFrame.toArrow`` returns for a schema."""
    return _arrow_schema(spark, schema, "UTC")


def _arrow_schema(spark: SparkSession, schema: StructType, zone: str) -> pa.Schema:
    is_large = is_on(spark, "spark.sql.execution.arrow.useLargeVarTypes")
    return to_arrow_schema(schema, timezone=zone, prefers_large_types=is_large)


def check_outputs(what: str, df: DataFrame) -> None:
    """Refuse two output columns of one name, because sinks cannot distinguish them.

    Raises:
        QueryError: two columns have one name.
    """
    is_exact = is_on(df.sparkSession, "spark.sql.caseSensitive")
    seen: dict[str, str] = {}
    for name in df.columns:
        key = name if is_exact else name.lower()
        if (other := seen.get(key)) is not None:
            both = repr(name) if other == name else f"{other!r} and {name!r}, one name for Spark"
            msg = f"{what}: two output columns are called {both}; give one another name with AS"
            raise QueryError(msg, name=name)
        seen[key] = name


def check_travel(what: str, fields: Iterable[StructField]) -> None:
    """Refuse columns that tasks need and whose type Arrow lacks.

    Raises:
        NotSupportedError: Arrow lacks the type of a column.
    """
    for field in fields:
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except PySparkTypeError as error:
            kind = field.dataType.simpleString()
            of_months = isinstance(field.dataType, YearMonthIntervalType)
            instead = f"CAST(CAST({field.name} AS INTERVAL MONTH) AS INT)" if of_months else "CAST"
            msg = (
                f"{what} needs the column {field.name!r} in Python tasks, and Arrow has no type "
                f"for {kind}; leave the column out, or convert it: {instead}"
            )
            raise NotSupportedError(msg, column=field.name, type=kind) from error


def has_no_order(kind: object) -> bool:
    """Return whether values of a type cannot be compared."""
    if isinstance(kind, StructType):
        return any(has_no_order(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return has_no_order(kind.elementType)
    return isinstance(kind, MapType | VariantType)


def is_collated(kind: object) -> bool:
    """Return whether texts of a type may be equal although their bytes differ."""
    if isinstance(kind, StructType):
        return any(is_collated(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return is_collated(kind.elementType)
    return isinstance(kind, StringType) and kind.collation != "UTF8_BINARY"


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


def refused(
    what: str, error: AnalysisException, functions: Iterable[str] = (), **facts: Any
) -> QueryError:
    """Return an error for an expression that Spark refuses.

    Args:
        what: is refused.
        error: Spark's reason; of a function that it does not know it names none that is close.
        functions: of the user, which texts may call.
        **facts: of the error; an unknown function is added.
    """
    condition = error.getCondition()
    if condition == "FAILED_TO_PARSE_TOO_COMPLEX":
        return QueryError(f"{what}: {_TOO_DEEP}", **facts)
    if condition != "UNRESOLVED_ROUTINE":
        message = error.getMessage() if condition else str(error)
        return QueryError(f"{what}: {message or error}", **facts)
    name = str((error.getMessageParameters() or {}).get("routineName", "")).strip("`")
    close = hint(name, [(function, function) for function in (*functions, *SAFE, *STRICT, *CASTS)])
    return QueryError(f"{what}: unknown function {name!r}{close}", **facts, unknown_function=name)


def reason_of(error: BaseException) -> str:
    """Return the first line of an error of Spark, without the trace of the JVM."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage() or java.toString())
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))


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
        types = [_type_or_error(df, column) for column in columns]
        if not any(isinstance(kind, AnalysisException) for kind in types):
            raise
        return types


@unlogged()
def _types(df: DataFrame, columns: Sequence[Column]) -> list[DataType | AnalysisException]:
    numbered = (column.alias(f"c{number}") for number, column in enumerate(columns))
    return [field.dataType for field in df.select(*numbered).schema]


def _type_or_error(df: DataFrame, column: Column) -> DataType | AnalysisException:
    try:
        return _types(df, [column])[0]
    except AnalysisException as error:
        return error


def why_unknown(spark: Any, kind: str) -> str:
    """Return why a session knows no data source of a name; "" if it knows one, or cannot tell."""
    if not hasattr(spark, "_jvm"):
        return ""
    sources = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(kind, spark._jsparkSession.sessionState().conf())
    except (PySparkException, Py4JJavaError) as error:
        return reason_of(error)
    return ""


def is_known(spark: Any, kind: str) -> bool:
    """Return whether a session knows a data source of a name."""
    return not why_unknown(spark, kind)

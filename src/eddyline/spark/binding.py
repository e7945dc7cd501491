"""Binds a conjunction to a DataFrame: what eddyline and Spark know of its predicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NullType

from eddyline.errors import QueryError
from eddyline.query.binding import BoundConjunction, bind
from eddyline.query.predicates import SqlPredicate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from eddyline.query.predicates import Predicate

PREFIX = "__eddyline"
"""Start of the names of temporary columns; none of them is left in a result."""


def bind_to(df: DataFrame, predicates: tuple[Predicate, ...]) -> BoundConjunction:
    """Say where each predicate goes over the columns of a DataFrame.

    Raises:
        QueryError: a predicate does not fit the columns; the message names it.
    """
    _check_names(df)
    ansi = str(df.sparkSession.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
    bound = bind(predicates, _types(df), ansi=ansi)
    _check_by_spark(df, [each for each in predicates if isinstance(each, SqlPredicate)])
    return bound


def _check_names(df: DataFrame) -> None:
    """Refuse columns that a temporary column would replace."""
    for column in df.columns:
        if column.lower().startswith(PREFIX):
            msg = (
                f"the input has a column {column!r}, but names that start with {PREFIX} are those "
                f"of temporary columns; rename it with withColumnRenamed"
            )
            raise QueryError(msg, column=column)


def _types(df: DataFrame) -> dict[str, str]:
    """Return name and type of each column; where columns share a name, no type is known."""
    types: dict[str, str] = {}
    for name, kind in df.dtypes:
        types[name] = kind if types.get(name, kind) == kind else "unknown"
    return types


def _check_by_spark(df: DataFrame, predicates: list[SqlPredicate]) -> None:
    """Let Spark analyse all SQL predicates at once, and one by one only to find the wrong one."""
    try:
        kinds = [field.dataType for field in df.select(*_columns(predicates)).schema]
    except AnalysisException:
        for predicate in predicates:
            _check_alone(df, predicate)
        raise
    for predicate, kind in zip(predicates, kinds, strict=True):
        if not isinstance(kind, BooleanType | NullType):
            msg = (
                f"predicate {predicate.name!r} is not a condition: {predicate.text} is of type "
                f"{kind.simpleString()}; compare it with something"
            )
            raise QueryError(msg, name=predicate.name, type=kind.simpleString())


def _check_alone(df: DataFrame, predicate: SqlPredicate) -> None:
    try:
        df.select(*_columns([predicate])).schema  # noqa: B018 - asking for it is the analysis
    except AnalysisException as error:
        msg = f"predicate {predicate.name!r}: Spark cannot resolve {predicate.text}: {error}"
        raise QueryError(msg, name=predicate.name) from error


def _columns(predicates: list[SqlPredicate]) -> list[Column]:
    return [F.expr(each.text).alias(f"p{index}") for index, each in enumerate(predicates)]

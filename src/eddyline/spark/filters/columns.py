"""Predicates that are given as columns of Spark's, such as ``F.col("k") > 5``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.query.predicates import SqlPredicate
from eddyline.spark.analysis import unlogged

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from eddyline.query.predicates import Predicate


@dataclass(frozen=True)
class ColumnPredicate:
    """A column that waits for the DataFrame that tells its SQL text."""

    column: Column = field(repr=False)
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            shown = str(self.column).removeprefix("Column<'").removesuffix("'>")
            object.__setattr__(self, "name", shown)

    @property
    def text(self) -> str:
        """The column as Spark shows it."""
        return self.name


def as_text(df: DataFrame, given: Predicate | ColumnPredicate) -> Predicate:
    """Return a predicate over a DataFrame, as SQL text where it is given as a column.

    Raises:
        QueryError: the column does not fit the DataFrame, or has no text that means the same, such
            as a call of a Python function.
    """
    if not isinstance(given, ColumnPredicate):
        return given
    plain = df.toDF(*df.columns)  # whose names have no qualifiers
    try:
        text, means_it = _text_of(plain, given.column)
    except AnalysisException:
        try:
            text, means_it = _text_of(df, given.column)
        except AnalysisException as error:
            msg = f"predicate {given.name!r} does not fit the columns: {error}"
            raise QueryError(msg, predicate=given.name) from error
    if not means_it:
        msg = (
            f"predicate {given.name!r} is a column that SQL text cannot say; write it as SQL text, "
            f"or make its Python function a predicate: el.predicate(function, reads=[…])"
        )
        raise QueryError(msg, predicate=given.name)
    return SqlPredicate(text)


@unlogged()
def _text_of(df: DataFrame, column: Column) -> tuple[str, bool]:
    """Return a text for a column over a DataFrame, and whether Spark reads it as the same."""
    selected: Any = df.select(column.alias("c"))
    if not hasattr(selected, "_jdf"):
        return "", False
    plan = selected._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Project":
        return "", False  # of several rows at once
    text = str(plan.projectList().head().child().sql())
    try:
        again = df.select(F.expr(text).alias("c"))
        return text, bool(selected.sameSemantics(again))
    except AnalysisException:
        return text, False

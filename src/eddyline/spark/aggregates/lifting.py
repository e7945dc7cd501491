"""Calls of aggregates as columns: what is combined of each row, and the values of what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from eddyline.aggregates.functions import function_of, number_type
from eddyline.aggregates.monoids import MONOIDS
from eddyline.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eddyline.aggregates.functions import AggregateFunction
    from eddyline.query.aggregates import AggregateCall

MICROS = "__micros"
"""The column of the event time of rows (µs)."""


@dataclass(frozen=True, slots=True)
class LiftedPartial:
    """One partial aggregate of a call."""

    column: str
    """The column that it travels in."""
    monoid: str
    lift: str
    """SQL of what is combined of a row."""
    kind: DataType
    """Type of the partial."""
    value_kind: DataType
    """Type of what the monoid gives of partials."""

    @property
    def reduced(self) -> Column:
        """Spark's aggregate that makes one partial of many rows."""
        return F.expr(MONOIDS[self.monoid].reduce_sql.format(x=f"({self.lift}\n)")).alias(
            self.column
        )

    @property
    def of_row(self) -> Column:
        """The partial of a single row.

        Raises:
            QueryError: there is none.
        """
        template = MONOIDS[self.monoid].lift_sql
        if not template:
            msg = f"an aggregate of {self.lift!r} cannot be taken row by row"
            raise QueryError(msg, lift=self.lift)
        text = template.format(x=f"({self.lift}\n)", type=self.kind.simpleString())
        return F.expr(text).cast(self.kind).alias(self.column)


@dataclass(frozen=True)
class LiftedCall:
    """A call of an aggregate over the rows of a DataFrame."""

    call: AggregateCall
    function: AggregateFunction
    partials: tuple[LiftedPartial, ...]
    kind: DataType
    """Type of its value."""

    def value(self, prefix: str = "") -> Column:
        """Return its value by the columns that tasks return, which may have a prefix."""
        names = [f"{prefix}{each.column}" for each in self.partials]
        return F.expr(f"({self.function.final.format(*names)}\n)").cast(self.kind)

    @cached_property
    def fields(self) -> tuple[StructField, ...]:
        """The columns that tasks return for it."""
        return tuple(StructField(each.column, each.value_kind) for each in self.partials)


def lifted(df: DataFrame, calls: Sequence[AggregateCall]) -> tuple[LiftedCall, ...]:
    """Return calls over a DataFrame that has the column ``MICROS``, too.

    Raises:
        QueryError: a call that Spark refuses; the message says which.
    """
    return tuple(_lifted(df, number, call) for number, call in enumerate(calls))


def _lifted(df: DataFrame, number: int, call: AggregateCall) -> LiftedCall:
    function = function_of(call.function, len(call.arguments), is_distinct=call.is_distinct)
    arguments = [f"({each}\n)" for each in call.arguments]
    try:
        kinds = [each[1] for each in df.selectExpr(*arguments).dtypes] if arguments else []
        of_numbers = number_type(kinds[0]) if kinds else "double"
        lifts = function.lifts(arguments, time=MICROS, number=of_numbers)
        if call.where:
            lifts = tuple(f"CASE WHEN ({call.where}\n) THEN {each} END" for each in lifts)
        monoids = [MONOIDS[each.monoid] for each in function.partials]
        texts = [function.reference_of(arguments, time=MICROS)]
        for monoid, lift in zip(monoids, lifts, strict=True):
            of_value = monoid.value_sql or monoid.reduce_sql
            texts += [each.format(x=f"({lift}\n)") for each in (monoid.reduce_sql, of_value)]
        found = df.selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(texts))).schema
    except AnalysisException as error:
        msg = f"{call.text}: {error.getMessage() or error}"
        raise QueryError(msg, call=call.text) from error
    kind, *types = (field.dataType for field in found)
    partials = tuple(
        LiftedPartial(f"__p{number}_{at}", each.monoid, lifts[at], *types[2 * at : 2 * at + 2])
        for at, each in enumerate(function.partials)
    )
    return LiftedCall(call, function, partials, kind)

"""Binds a conjunction to a DataFrame: what eddyline and Spark know of its predicates."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NullType

from eddyline.errors import QueryError
from eddyline.filters.binding import BoundConjunction, bind
from eddyline.query.attributes import Attribute, attribute, candidates
from eddyline.query.predicates import SqlPredicate
from eddyline.spark.analysis import analysed, check_names, column_types, refused, unlogged
from eddyline.spark.filters.plan_text import computes_nothing
from eddyline.spark.session import is_ansi, is_on
from eddyline.sql.analysis import resolve_columns
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddyline.options import FilterOptions
    from eddyline.query.predicates import Predicate

MAX_ATTRIBUTES = 8
"""Columns that are looked at to tell classes of rows apart, unless the user names them."""


def bind_to(
    df: DataFrame, predicates: tuple[Predicate, ...], options: FilterOptions
) -> BoundConjunction:
    """Say where each predicate goes over the columns of a DataFrame.

    Raises:
        QueryError: a predicate, or an attribute to route by, does not fit the columns; the
            message names it.
    """
    check_names(df)
    ansi = is_ansi(df.sparkSession)
    bound = bind(predicates, column_types(df), ansi=ansi)
    _check_by_spark(df, [each for each in predicates if isinstance(each, SqlPredicate)])
    if options.routing is False:
        return bound
    if options.route_by is None:
        may_route = len(predicates) > 1 and options.resolved().adaptive
        return replace(bound, attributes=_candidates(df, bound)) if may_route else bound
    named = tuple(_attribute(df, text, ansi=ansi) for text in options.route_by)
    return replace(bound, attributes=named)


def _candidates(df: DataFrame, bound: BoundConjunction) -> tuple[Attribute, ...]:
    """Return the columns that may tell classes of rows apart and take no computing.

    Nobody else may ask for a column that the input computes: to do so for the sake of an order
    could cost more than the order saves, or raise.
    """
    found = candidates(_routable(df), 2 * MAX_ATTRIBUTES)
    named = [F.col(quoted(each.name)) for each in found]
    if found and not computes_nothing(df.select(*named)):
        read = _read(bound)
        found = tuple(
            each
            for each, column in zip(found, named, strict=True)
            if each.name in read or computes_nothing(df.select(column))
        )
    return found[:MAX_ATTRIBUTES]


def fits(df: DataFrame, bound: BoundConjunction, options: FilterOptions) -> bool:
    """Return whether another input of the same columns has the attributes for nothing, too."""
    read = _read(bound)
    others = [F.col(quoted(each.name)) for each in bound.attributes if each.name not in read]
    return options.route_by is not None or not others or computes_nothing(df.select(*others))


def _read(bound: BoundConjunction) -> set[str]:
    """Return the columns that predicates read."""
    return set().union(
        *(columns for segment in bound.segments for columns in segment.columns),
        *(each.columns for segment in bound.segments for each in segment.native),
    )


def _routable(df: DataFrame) -> dict[str, str]:
    """Return the columns that a name says exactly: Spark tells those of one name not apart."""
    ignores_case = not is_on(df.sparkSession, "spark.sql.caseSensitive")
    names = Counter(each.lower() if ignores_case else each for each in df.columns)
    return {
        name: kind for name, kind in df.dtypes if names[name.lower() if ignores_case else name] == 1
    }


def _attribute(df: DataFrame, text: str, *, ansi: bool) -> Attribute:
    """Return an attribute that the user named, a column or a SQL expression."""
    types = column_types(df)
    if text in types:
        kind = _kind(df, text, quoted(text))
        made = attribute(text, quoted(text), kind, [text])
    else:
        found = resolve_columns(text, types, name="route_by", ansi=ansi, qualifiers=None)
        if found.may_raise or not found.is_deterministic:
            msg = f"route_by: {text!r} cannot tell classes of rows apart: {found.reason}"
            raise QueryError(msg, attribute=text)
        kind = _kind(df, text, text)
        made = attribute(text, f"({text}\n)", kind, found.columns)
    if made is None:
        msg = (
            f"route_by: {text!r} is of type {kind}, which cannot tell classes of rows apart; "
            f"give a number, a text, a boolean, a date or a time"
        )
        raise QueryError(msg, attribute=text, type=kind)
    return made


@unlogged()
def _kind(df: DataFrame, text: str, sql: str) -> str:
    """Return the Spark type of an attribute that the user named."""
    try:
        return df.select(F.expr(sql)).dtypes[0][1]
    except AnalysisException as error:
        what = f"route_by: Spark cannot resolve {text!r}"
        raise refused(what, error, attribute=text) from error


def _check_by_spark(df: DataFrame, predicates: list[SqlPredicate]) -> None:
    """Check that Spark can evaluate SQL predicates, and takes them for conditions."""
    found = analysed(df, [F.expr(each.text) for each in predicates])
    for predicate, kind in zip(predicates, found, strict=True):
        if isinstance(kind, AnalysisException):
            what = f"predicate {predicate.name!r}: Spark cannot resolve {predicate.text}"
            raise refused(what, kind, name=predicate.name) from kind
        if not isinstance(kind, BooleanType | NullType):
            msg = (
                f"predicate {predicate.name!r} is not a condition: {predicate.text} is of type "
                f"{kind.simpleString()}; compare it with something"
            )
            raise QueryError(msg, name=predicate.name, type=kind.simpleString())

"""Binding of a conjunction to a DataFrame.

It has what eddyline and Spark know of the predicates and their input. In come predicates as users
write them, a DataFrame and options; out comes a ``BoundConjunction``, which says where each
predicate goes and which columns may tell classes of rows apart. ``bind_to`` checks predicates and
attributes against the columns. ``as_text`` turns Spark columns such as ``F.col("k") > 5`` into SQL
text. ``is_narrow`` and ``computes_nothing`` read the physical plan.

``DataFrame.explain`` is the one public call that both kinds of sessions have, and it prints.
Queries run on threads of one process, so the print of this thread is caught and no other.
"""

from __future__ import annotations

import io
import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NullType

from eddyline.errors import QueryError
from eddyline.filters.binding import BoundConjunction, bind
from eddyline.query.predicates import SqlPredicate
from eddyline.routing.table import Attribute, attribute, candidates
from eddyline.spark.analysis import analysed, check_names, column_types, refused, unlogged
from eddyline.spark.session import is_ansi, is_on
from eddyline.sql.analysis import resolve_columns
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from eddyline.options import FilterOptions
    from eddyline.query.predicates import Predicate

MAX_ATTRIBUTES = 8
"""Columns that are looked at to tell classes of rows apart, unless the user names them."""

_NEEDS_SHUFFLE = re.compile(r"Exchange|Sort|Aggregate|Join|Window|CartesianProduct|CollectMetrics")
"""Work that a second job would do again, or see: an observation belongs to the user's own job."""

_COMPUTES = re.compile(r" AS |EvalPython")
_RENAMES = re.compile(r"(?:(?<=\[)|(?<=, ))[^\s,()\[~-][^,()\[]*#\d+L?(?:\.\w+)* AS ")
"""``column#7 AS name`` or ``struct#7.field AS name``: what a plan says of a column that stands."""

_printing = threading.Lock()


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
    _check_by_spark(
        df, [predicate for predicate in predicates if isinstance(predicate, SqlPredicate)]
    )
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
    attributes = candidates(_routable(df), 2 * MAX_ATTRIBUTES)
    named = [F.col(quoted(attribute.name)) for attribute in attributes]
    if attributes and not computes_nothing(df.select(*named)):
        read = _read(bound)
        attributes = tuple(
            attribute
            for attribute, column in zip(attributes, named, strict=True)
            if attribute.name in read or computes_nothing(df.select(column))
        )
    return attributes[:MAX_ATTRIBUTES]


def fits(df: DataFrame, bound: BoundConjunction, options: FilterOptions) -> bool:
    """Return whether another input of the same columns has the attributes for nothing, too."""
    read = _read(bound)
    others = [
        F.col(quoted(attribute.name))
        for attribute in bound.attributes
        if attribute.name not in read
    ]
    return options.route_by is not None or not others or computes_nothing(df.select(*others))


def _read(bound: BoundConjunction) -> set[str]:
    """Return the columns that predicates read."""
    return set().union(
        *(columns for segment in bound.segments for columns in segment.columns),
        *(predicate.columns for segment in bound.segments for predicate in segment.native),
    )


def _routable(df: DataFrame) -> dict[str, str]:
    """Return the columns that a name says exactly: Spark tells those of one name not apart."""
    ignores_case = not is_on(df.sparkSession, "spark.sql.caseSensitive")
    names = Counter(column.lower() if ignores_case else column for column in df.columns)
    return {
        name: kind for name, kind in df.dtypes if names[name.lower() if ignores_case else name] == 1
    }


def _attribute(df: DataFrame, text: str, *, ansi: bool) -> Attribute:
    """Return an attribute that the user named, a column or a SQL expression."""
    types = column_types(df)
    if text in types:
        kind = _kind(df, text, quoted(text))
        chosen = attribute(text, quoted(text), kind, [text])
    else:
        resolved = resolve_columns(text, types, name="route_by", ansi=ansi, qualifiers=None)
        if resolved.may_raise or not resolved.is_deterministic:
            msg = f"route_by: {text!r} cannot tell classes of rows apart: {resolved.reason}"
            raise QueryError(msg, attribute=text)
        kind = _kind(df, text, text)
        chosen = attribute(text, f"({text}\n)", kind, resolved.columns)
    if chosen is None:
        msg = (
            f"route_by: {text!r} is of type {kind}, which cannot tell classes of rows apart; "
            f"give a number, a text, a boolean, a date or a time"
        )
        raise QueryError(msg, attribute=text, type=kind)
    return chosen


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
    kinds = analysed(df, [F.expr(predicate.text) for predicate in predicates])
    for predicate, kind in zip(predicates, kinds, strict=True):
        if isinstance(kind, AnalysisException):
            what = f"predicate {predicate.name!r}: Spark cannot resolve {predicate.text}"
            raise refused(what, kind, name=predicate.name) from kind
        if not isinstance(kind, BooleanType | NullType):
            msg = (
                f"predicate {predicate.name!r} is not a condition: {predicate.text} is of type "
                f"{kind.simpleString()}; compare it with something"
            )
            raise QueryError(msg, name=predicate.name, type=kind.simpleString())


# -- predicates that are Spark columns ------------------------------------------------------------


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


def as_text(df: DataFrame, predicate: Predicate | ColumnPredicate) -> Predicate:
    """Return a predicate over a DataFrame, as SQL text where it is given as a column.

    Raises:
        QueryError: the column does not fit the DataFrame, or has no text that means the same, such
            as a call of a Python function.
    """
    if not isinstance(predicate, ColumnPredicate):
        return predicate
    plain = df.toDF(*df.columns)  # whose names have no qualifiers
    try:
        text, means_it = _text_of(plain, predicate.column)
    except AnalysisException:
        try:
            text, means_it = _text_of(df, predicate.column)
        except AnalysisException as error:
            msg = f"predicate {predicate.name!r} does not fit the columns: {error}"
            raise QueryError(msg, predicate=predicate.name) from error
    if not means_it:
        msg = (
            f"predicate {predicate.name!r} is a Spark column without SQL text; write it as SQL "
            f"text, or make its Python function a predicate: el.predicate(function, reads=[…])"
        )
        raise QueryError(msg, predicate=predicate.name)
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


# -- the physical plan of an input ----------------------------------------------------------------


class _CaughtPrint(io.TextIOBase):
    """Catches what one thread prints and lets the others through."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out
        self.thread = threading.get_ident()
        self.caught: list[str] = []

    def write(self, text: str) -> int:
        if threading.get_ident() != self.thread:
            return int(self.out.write(text))
        self.caught.append(text)
        return len(text)

    def flush(self) -> None:
        self.out.flush()


def printed_plan(df: DataFrame) -> str:
    """Return the physical plan, as ``explain`` prints it."""
    with _printing:
        out, sys.stdout = sys.stdout, _CaughtPrint(sys.stdout)
        try:
            df.explain()
            return "".join(sys.stdout.caught)
        finally:
            sys.stdout = out


def is_narrow(df: DataFrame) -> bool:
    """Return whether the first rows can be had without running a shuffle or a join."""
    return not _NEEDS_SHUFFLE.search(_without_cached(printed_plan(df)))


def computes_nothing(df: DataFrame) -> bool:
    """Return whether all columns are those of the sources, at most under other names."""
    return not _COMPUTES.search(_RENAMES.sub("", _without_cached(printed_plan(df))))


def _without_cached(plan: str) -> str:
    """Return a physical plan without what stands below a cached table."""
    lines, depth = [], None
    for line in plan.splitlines():
        indent = len(line) - len(line.lstrip(" +-:*"))
        if depth is not None and indent > depth:
            continue
        depth = indent if "InMemoryTableScan" in line else None
        lines.append(line)
    return "\n".join(lines)

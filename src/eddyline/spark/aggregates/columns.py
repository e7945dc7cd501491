"""Columns of an aggregate on Spark.

They are calls, groups, cells, and shuffle columns. ``Lifting`` makes calls of aggregates columns:
what is combined of each row, and the values of what monoids give. ``Groups`` are the columns that
rows are grouped by, with their codes and buckets. ``Placement`` makes cells of rows, before or
behind the shuffle. ``ShuffleColumns`` collects the columns of rows that travel to tasks, each
expression once, whatever tasks make of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DatetimeType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    NumericType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)
from sqlglot import TokenType

from eddyline.aggregates.columns import is_there
from eddyline.aggregates.functions import (
    COUNT_IF,
    AggregateFunction,
    Partial,
    UserMonoid,
    function_of,
    is_count,
    is_plain,
    number_type,
)
from eddyline.aggregates.monoids import MONOIDS, Monoid
from eddyline.aggregates.plan import WAYS, Lift
from eddyline.errors import NotSupportedError, QueryError
from eddyline.lane.exchange import BUCKET
from eddyline.query.query import both
from eddyline.spark.analysis import check_travel, has_no_order, is_collated, refused, unlogged
from eddyline.spark.arrow_types import to_arrow_type
from eddyline.spark.bucketed import shuffled
from eddyline.spark.prepared import Known, Reduced
from eddyline.sql.parsing import quoted, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eddyline.aggregates.plan import Way
    from eddyline.aggregates.windows import Slides
    from eddyline.data.arrays import Mask
    from eddyline.query.query import AggregateCall
    from eddyline.rules.match.row_test import RowTest

_NESTED = StructType, ArrayType, MapType, VariantType, NullType

MICROS = "__micros"
"""The column of the event time of rows (µs)."""


_TEMPORARY = re.compile(
    r"__(micros|start|bucket|(code|check)\d*|passes|own_(code|check)|(part|group|by)\d+)"
)
"""Names of the columns that are added to rows, in small letters."""


def check_no_temporary(query: str, columns: Sequence[str]) -> None:
    """Refuse rows with a column that a temporary column would replace.

    Raises:
        QueryError: there is one; the message names it.
    """
    for column in columns:
        if _TEMPORARY.fullmatch(column.lower()):
            msg = (
                f"query {query!r} aggregates rows with the column {column!r}, which is the name of "
                f"a temporary column; rename it with withColumnRenamed before engine.stream(…)"
            )
            raise QueryError(msg, query=query, column=column)


@dataclass(frozen=True)
class Masked:
    """The argument of a call with FILTER, or the rows that it counts."""

    column: str
    """SQL of the argument; empty if rows are counted."""
    where: str
    """SQL of the condition."""


@dataclass(frozen=True)
class Made:
    """Source of the partials of single rows in tasks; see ``aggregates.plan.Lift``."""

    way: Way
    text: str
    """SQL of what travels; empty if nothing does."""
    kind: pa.DataType | None
    present: str = ""
    """SQL of a value, where 1 is made of any but NULL: tasks that have it need nothing else."""
    masked: Masked | None = None
    """What travels, where a condition decides: tasks that read files evaluate it themselves."""


@dataclass(frozen=True)
class LiftedPartial:
    """One partial aggregate of a call."""

    column: str
    """The column of what the monoid gives of partials."""
    source: str
    """The column that it travels in: of rows the same for equal partials of several calls."""
    monoid: Monoid
    name: str
    """The name of the monoid in the table; empty of a user's."""
    lift: str
    """SQL of what is combined of a row."""
    kind: DataType
    """Type of the column."""
    value_kind: DataType
    """Type of what the monoid gives of partials."""
    making: Made | None = None
    """How tasks make it; None: Spark does."""

    @property
    def can_reduce(self) -> bool:
        """Whether tasks make cells of partials of single rows."""
        return bool(self.name and self.monoid.lift_sql) and self.monoid.can_merge

    @cached_property
    def reduced(self) -> Column:
        """Spark's aggregate that makes one partial of many rows; of a user's, their arguments."""
        template = self.monoid.reduce_sql or "collect_list({x})"
        return F.expr(template.format(x=f"({self.lift}\n)")).alias(self.source)

    @cached_property
    def of_row(self) -> Column:
        """The partial of a single row; of a user's aggregate, its arguments."""
        template = self.monoid.lift_sql or "{x}"
        text = template.format(x=f"({self.lift}\n)", type=self.kind.simpleString())
        return F.expr(text).cast(self.kind).alias(self.source)


@dataclass(frozen=True)
class LiftedCall:
    """A call of an aggregate over the rows of a DataFrame."""

    call: AggregateCall
    final: str
    """SQL template of its value over what the monoids give."""
    partials: tuple[LiftedPartial, ...]
    kind: DataType
    """Type of its value."""

    def value(self, prefix: str = "") -> Column:
        """Return its value by the columns that tasks return, which may have a prefix."""
        names = [f"{prefix}{partial.column}" for partial in self.partials]
        return F.expr(f"({self.final.format(*names)}\n)").cast(self.kind)

    @property
    def is_plain(self) -> bool:
        """Whether the value is what tasks return, or 0 for the NULL of a count."""
        return is_plain(self.final) and self.kind == self.partials[0].value_kind

    @property
    def is_count(self) -> bool:
        """Whether the value is 0 where tasks return NULL."""
        return is_count(self.final)

    @cached_property
    def fields(self) -> tuple[StructField, ...]:
        """The columns that tasks return for it."""
        return tuple(StructField(partial.column, partial.value_kind) for partial in self.partials)


class Lifting:
    """Makes calls columns over a DataFrame that has the column ``MICROS``, too.

    Args:
        df: the rows.
        by_row: whether single rows are combined, and not cells.
    """

    def __init__(self, df: DataFrame, *, by_row: bool) -> None:
        self.df = df
        self.by_row = by_row
        self._sources: dict[tuple[str, str], str] = {}
        """The columns in which partials of rows travel, by what they are."""

    def calls(self, calls: Sequence[AggregateCall]) -> tuple[LiftedCall, ...]:
        """Return calls as columns.

        Raises:
            QueryError: one that Spark refuses; the message says which.
        """
        return tuple(self._call(number, call) for number, call in enumerate(calls))

    def _call(self, number: int, call: AggregateCall) -> LiftedCall:
        arguments = [f"({argument}\n)" for argument in call.arguments]
        try:
            with unlogged():
                if call.own is not None:
                    return self._own(number, call, arguments)
                return self._known(number, call, arguments)
        except PySparkTypeError as error:  # Arrow lacks the type
            msg = f"{call.text} is not supported: {error.getMessage()}"
            raise NotSupportedError(msg, call=call.text) from error
        except AnalysisException as error:
            raise refused(call.text, error, call=call.text) from error

    def _known(self, number: int, call: AggregateCall, arguments: Sequence[str]) -> LiftedCall:
        """Return a call of a function of the table."""
        asked = function_of(call.function, len(arguments), is_distinct=call.is_distinct)
        function = asked.by_row if self.by_row and asked.by_row else asked
        written = arguments
        kinds = self._kinds(arguments)
        if call.function != "count" or call.is_distinct:
            _check_kinds(call, kinds)
        if any(isinstance(kind, YearMonthIntervalType) for kind in kinds):  # Arrow has none
            arguments = [
                _months_of(text) if isinstance(kind, YearMonthIntervalType) else text
                for text, kind in zip(arguments, kinds, strict=True)
            ]
            kinds = self._kinds(arguments)
        of_numbers = number_type(kinds[0].simpleString()) if kinds else "double"
        lifts = function.lifts(arguments, time=MICROS, number=of_numbers)
        argument = _Argument(
            _filtered(arguments[0], call.where) if len(kinds) == 1 else "",
            kinds[0] if len(kinds) == 1 else None,
            unfiltered=arguments[0] if len(kinds) == 1 else "",
            where=call.where,
        )
        partials = tuple(
            self._partial(f"__p{number}_{place}", partial, _filtered(lift, call.where), argument)
            for place, (partial, lift) in enumerate(zip(function.partials, lifts, strict=True))
        )
        kind = self._type(asked.reference_of(written, time=MICROS))
        names = [f"{{{place}}}" for place in range(len(partials))]
        final = _escaped(function, names, arguments)
        if isinstance(kind, YearMonthIntervalType):
            final = f"make_ym_interval(0, CAST(round({final}) AS INT))"
        return LiftedCall(call, final, partials, kind)

    def _kinds(self, arguments: Sequence[str]) -> list[DataType]:
        """Return the types of expressions."""
        fields = self.df.selectExpr(*arguments).schema if arguments else ()
        return [field.dataType for field in fields]

    def _partial(
        self, column: str, partial: Partial, lift: str, argument: _Argument
    ) -> LiftedPartial:
        monoid = MONOIDS[partial.monoid]
        template = monoid.reduce_sql or "{x}"
        kind = self._type(template.format(x=f"({lift}\n)"))
        what = (partial.monoid, lift)
        source = self._sources.setdefault(what, column) if self.by_row else column
        gives, making = value_type(monoid, kind), _made(partial, lift, kind, argument)
        return LiftedPartial(column, source, monoid, partial.monoid, lift, kind, gives, making)

    def _own(self, number: int, call: AggregateCall, arguments: Sequence[str]) -> LiftedCall:
        """Return a call of a user's aggregate: its arguments travel, and tasks lift them."""
        monoid = UserMonoid(call.own)
        named = ", ".join(f"{argument} AS a{place}" for place, argument in enumerate(arguments))
        lift = _filtered(f"struct({named})", call.where)
        of_row = self._type(lift)
        struct = to_arrow_type(of_row, timezone="UTC")
        fields = [pa.array([], struct.field(index).type) for index in range(struct.num_fields)]
        lifted = monoid.lifted(fields)
        none = np.empty(0, np.int64)
        kind = from_arrow_type(monoid.value(lifted, none, none).type)
        column = of_row if self.by_row else self._type(f"collect_list({lift})")
        name = f"__p{number}_0"
        partial = LiftedPartial(name, name, monoid, "", lift, column, kind)
        return LiftedCall(call, "{0}", (partial,), kind)

    def _type(self, text: str) -> DataType:
        return as_nullable(self.df.selectExpr(f"({text}\n) AS c").schema[0].dataType)


@dataclass(frozen=True)
class _Argument:
    """The one argument of a call."""

    text: str
    """SQL, NULL where FILTER is not true; empty if there is not one argument."""
    kind: DataType | None
    """Its type; None if there is not one argument."""
    unfiltered: str
    """The same SQL without FILTER."""
    where: str
    """The condition of FILTER; empty if there is none."""

    @property
    def masked(self) -> Masked | None:
        """The argument and the condition; None without FILTER, or of several arguments."""
        return Masked(self.unfiltered, self.where) if self.unfiltered and self.where else None


def _made(partial: Partial, lift: str, partial_kind: DataType, argument: _Argument) -> Made | None:
    """Return how tasks make a partial of a row of what travels; None if Spark makes it.

    Args:
        partial: the partial.
        lift: SQL of what is combined of a row.
        partial_kind: type of the partial.
        argument: the argument of its call.
    """
    way, kind = WAYS.get((partial.lift, partial.monoid)), argument.kind
    if partial.monoid == "count":
        # Of a text it is enough to send whether it is there.
        is_short = isinstance(kind, NumericType | DatetimeType | BooleanType)
        if way is not None and not argument.where and (way == "one" or is_short):
            return Made(way, argument.text, None)
        is_present = way == "present" and not argument.where
        present = argument.text if is_present else ""
        return Made("true", f"({lift}\n) IS NOT NULL", None, present, _counted(partial, argument))
    is_nested = isinstance(kind, _NESTED)
    if way is None or kind is None or is_nested or (way == "timed" and argument.where):
        return None
    if way in ("same", "timed"):
        return Made(way, argument.text, None, masked=argument.masked)
    is_exact = isinstance(kind, DecimalType)
    if not isinstance(kind, NumericType) or (way == "moments" and is_exact):
        return None
    number = pa.float64()
    if way != "moments":
        sum_type = (
            partial_kind["sum"].dataType if isinstance(partial_kind, StructType) else partial_kind
        )
        number = to_arrow_type(sum_type, timezone="UTC")
    return Made(way, argument.text, number, masked=argument.masked)


def _counted(partial: Partial, argument: _Argument) -> Masked | None:
    """Return which rows a count with a condition counts; None without one."""
    if partial.lift == COUNT_IF:
        return Masked("", both(argument.unfiltered, argument.where))
    way = WAYS.get((partial.lift, partial.monoid))
    if way == "one":
        return Masked("", argument.where) if argument.where else None
    return argument.masked if way == "present" else None


def as_nullable(kind: DataType) -> DataType:
    """Return a type whose parts may all be NULL: combined partials may be, where no value is."""
    if isinstance(kind, StructType):
        fields = [StructField(field.name, as_nullable(field.dataType)) for field in kind]
        return StructType(fields)
    return ArrayType(as_nullable(kind.elementType)) if isinstance(kind, ArrayType) else kind


def value_type(monoid: Monoid, kind: DataType) -> DataType:
    """Return the type of what a monoid gives of partials of a type."""
    column = pa.array([], to_arrow_type(kind, timezone="UTC"))
    if type(monoid).value is Monoid.value:  # the partial itself: no kernel is loaded to ask
        return from_arrow_type(column.type)
    none = np.empty(0, np.int64)
    return from_arrow_type(monoid.value(column, none, none).type)


def _check_kinds(call: AggregateCall, kinds: Sequence[DataType]) -> None:
    """Refuse values that tasks cannot compare as Spark does.

    Raises:
        NotSupportedError: the call has such values.
    """
    for kind in kinds:
        if has_no_order(kind):
            msg = f"{call.text}: values of {kind.simpleString()} cannot be compared"
            raise NotSupportedError(msg, call=call.text)
        if is_collated(kind) and not call.function.startswith(("first", "last", "any")):
            msg = (
                f"{call.text}: texts with a collation ({kind.simpleString()}) are not supported "
                f"yet; write lower(…), or … COLLATE UTF8_BINARY"
            )
            raise NotSupportedError(msg, call=call.text)


def _months_of(text: str) -> str:
    """Return SQL of the months of an interval of years and months."""
    return f"CAST(CAST({text} AS INTERVAL MONTH) AS INT)"


def _filtered(lift: str, where: str) -> str:
    return f"CASE WHEN ({where}\n) THEN {lift} END" if where else lift


def _escaped(function: AggregateFunction, names: Sequence[str], arguments: Sequence[str]) -> str:
    """Return the SQL of a value with places for the columns; braces of arguments are text."""
    escaped = [argument.replace("{", "{{").replace("}", "}}") for argument in arguments]
    return function.final_of(names, escaped)


CODE, CHECK = "__code", "__check"
"""Columns of the two hashes that a group is known by; see ``aggregates.cells``. Those of coarser
groups have numbers: see ``code_columns``."""

START = "__start"
"""The column of the first instant of a cell (µs)."""

ROWS = "__rows"
"""The column of the number of rows of a cell."""

CHECK_SEED = 0x9E3779B9
"""Hashed before a group for its second hash, which is another one by that."""


_WITH_PARTS = StructType, ArrayType

_FLOATS = FloatType, DoubleType


def code_columns() -> Iterator[str]:
    """Yield the columns of codes, in the order of their keys.

    >>> [*islice(code_columns(), 4)]
    ['__code', '__check', '__code1', '__check1']
    """
    yield from (CODE, CHECK)
    for level in count(1):
        yield from (f"{CODE}{level}", f"{CHECK}{level}")


@dataclass(frozen=True)
class Groups:
    """The groups of rows of a DataFrame."""

    columns: tuple[tuple[str, str], ...]
    """Name and SQL text of each."""
    fields: tuple[StructField, ...]
    """Their names and types."""
    coarser: tuple[tuple[str, ...], ...] = ()
    """Names of the columns of coarser groups that cells have codes of, too: one or more, all of
    them among those before. A group of the last ones lies in one bucket."""

    @classmethod
    def from_columns(cls, df: DataFrame, columns: Sequence[tuple[str, str]]) -> Groups:
        """Return the groups by expressions over a DataFrame.

        Raises:
            QueryError: one that Spark refuses, or of a type that cannot be grouped by.
            NotSupportedError: texts of a collation.
        """
        fields = []
        for name, text in columns:
            try:
                with unlogged():
                    kind = df.selectExpr(f"({text}\n) AS g").schema[0].dataType
            except AnalysisException as error:
                raise refused(f"GROUP BY {text}", error, group=text) from error
            if has_no_order(kind):
                msg = f"GROUP BY {text}: {kind.simpleString()} is no type to group by"
                raise QueryError(msg, group=text)
            if is_collated(kind):
                msg = (
                    f"GROUP BY {text}: texts that are equal without being the same "
                    f"({kind.simpleString()}) are not supported yet; write lower(…), or "
                    f"… COLLATE UTF8_BINARY"
                )
                raise NotSupportedError(msg, group=text)
            check_travel(f"GROUP BY {text}", [StructField(text, kind)])
            fields.append(StructField(name, kind))
        return cls(tuple(columns), tuple(fields))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of their columns."""
        return tuple(name for name, _ in self.columns)

    @property
    def values(self) -> list[str]:
        """SQL of their columns, over the rows."""
        return [f"({text}\n) AS {quoted(name)}" for name, text in self.columns]

    @property
    def shuffle_columns(self) -> dict[str, str]:
        """SQL of their columns over rows that have these, by name; of a column, that column."""
        return {
            name: quoted(name) if plain_name(text) is None else text for name, text in self.columns
        }

    @property
    def are_nested(self) -> bool:
        """Whether some have parts: a zero in these has a sign until Spark groups by them."""
        return any(isinstance(field.dataType, _WITH_PARTS) for field in self.fields)

    @property
    def are_exact(self) -> bool:
        """Whether equal groups have equal bits: zeros have a sign, and there are many NaN."""
        return not any(
            isinstance(field.dataType, (*_WITH_PARTS, *_FLOATS)) for field in self.fields
        )

    @cached_property
    def own_keys(self) -> list[Column]:
        """The columns that tell cells apart."""
        return [F.col(name) for name in (START, *map(quoted, self.names))]

    @cached_property
    def keys(self) -> list[Column]:
        """The same and what is computed of them."""
        coded = islice(code_columns(), 2 * (1 + len(self.coarser)))
        return [*(F.col(name) for name in (BUCKET, *coded)), *self.own_keys]

    def codes(self, n_buckets: int) -> list[str]:
        """Return SQL of the codes and the bucket of groups, over rows with their columns."""
        every = (self.names, *self.coarser)
        hashes = [text for names in every for text in self._hashes(names)]
        bucket = f"CAST(pmod({hashes[-2]}, {n_buckets}L) AS INT)"
        coded = [f"{text} AS {name}" for text, name in zip(hashes, code_columns(), strict=False)]
        return [*coded, f"{bucket} AS {BUCKET}"]

    def hashes(self, code: str, check: str) -> list[str]:
        """Return SQL of the two hashes of groups, over rows with their columns, by some names."""
        first, second = self._hashes(self.names)
        return [f"{first} AS {code}", f"{second} AS {check}"]

    def _hashes(self, names: Sequence[str]) -> tuple[str, str]:
        """Return SQL of both hashes of some of the columns."""
        parts = [part for field in self.fields if field.name in names for part in _hashed(field)]
        # A hash steps over NULL, so the places of NULLs are hashed, too.
        nulls = [f"IF({quoted(name)} IS NULL, {1 << k}, 0)" for k, name in enumerate(names)]
        hashed = ", ".join([" + ".join(nulls) or "0", *parts])
        return f"xxhash64({hashed})", f"xxhash64({CHECK_SEED}L, {hashed})"


def _hashed(field: StructField) -> list[str]:
    """Return what is hashed of a column; of nested ones their text, too, which shows NULLs."""
    column = quoted(field.name)
    is_nested = isinstance(field.dataType, _WITH_PARTS)
    return [column, f"CAST({column} AS STRING)"] if is_nested else [column]


_NO_NAMES = TokenType.NULL, TokenType.TRUE, TokenType.FALSE

_NAME = re.compile(r"[A-Za-z_]\w*|`.*`", re.ASCII | re.DOTALL)

TRAVELS = "__t"
"""What columns that travel are named, with a number behind it."""


@dataclass(frozen=True)
class MaskedColumn:
    """A column of the rows where a condition is true; NULL elsewhere."""

    column: str
    """The column; empty if only the condition counts."""
    test: RowTest
    is_count: bool
    """Whether it says of each row if it counts: the condition is true, and the value no NULL."""

    def of_rows(self, rows: pa.RecordBatch, passes: Mask) -> pa.Array:
        """Return the column of some rows, given those for which the condition is true ((N,))."""
        column = rows.column(self.column) if self.column else None
        if self.is_count:
            return pa.array(passes if column is None else passes & is_there(column))
        assert column is not None
        return pc.if_else(pa.array(passes), column, pa.scalar(None, column.type))


class ShuffleColumns:
    """Shuffle columns of rows, and the columns that tasks make of them, in order.

    Args:
        columns: of the rows.
        in_files: whether tasks read the rows themselves, so that nothing is computed before.
        test: compiles a condition for these tasks; None if they cannot evaluate it.
    """

    def __init__(
        self, columns: Sequence[str], *, in_files: bool, test: Callable[[str], RowTest | None]
    ) -> None:
        self._in_files = in_files
        self._test = cache(test)
        lower = [column.lower() for column in columns]
        self._known = {
            column.lower(): column for column in columns if lower.count(column.lower()) == 1
        }
        self._made: dict[str, Column] = {}
        self._names: dict[str, str] = {}
        self.lifts: dict[str, Lift] = {}
        """How tasks make the columns that were added."""
        self.plain: dict[str, str] = {}
        """The column of the rows that each that travels is."""
        self.computed: list[str] = []
        """SQL of those that are none, and that Spark computes."""
        self.masked: dict[str, MaskedColumn] = {}
        """Those that tasks which read files make by a condition."""

    @property
    def columns(self) -> list[Column]:
        """The columns that travel, over the rows."""
        return [column.alias(name) for name, column in self._made.items()]

    def add(self, name: str, text: str) -> None:
        """Add a column by its name in tasks, and SQL over the rows."""
        self.lifts[name] = Lift("same", self._travels(text))

    def add_partial(self, partial: LiftedPartial, *, is_timed: bool = True) -> None:
        """Add the partials of single rows.

        Args:
            partial: of a call.
            is_timed: whether tasks know the event time of each row.
        """
        making = partial.making
        if self._in_files and making is not None and making.present:
            self.lifts[partial.source] = Lift("present", self._travels(making.present))
        elif self._in_files and making is not None and (masked := self._masked(making)):
            self.lifts[partial.source] = Lift(making.way, masked, making.kind)
        elif making is None or (making.way == "timed" and not is_timed):
            self.computed.append(partial.lift)
            self._made[partial.source] = partial.of_row
            self.lifts[partial.source] = Lift("same", partial.source)
        else:
            column = self._travels(making.text) if making.text else ""
            self.lifts[partial.source] = Lift(making.way, column, making.kind)

    def own(self, text: str) -> str | None:
        """Return the column of the rows that an expression is; None if it is another one."""
        plain = plain_name(text)
        return None if plain is None else self._known.get(plain.lower())

    def _masked(self, making: Made) -> str:
        """Return the name of a column that tasks make by a condition; "" if they cannot."""
        masked = making.masked
        if masked is None:
            return ""
        column, test = self.own(masked.column) if masked.column else "", self._test(masked.where)
        if column is None or test is None:
            self.computed.append(masked.where if test is None else masked.column)
            return ""
        is_count = making.way == "true"
        key = f"{column} {test.id} {is_count}"
        if key not in self._names:
            name = self._names[key] = f"{TRAVELS}{len(self._names)}"
            self.masked[name] = MaskedColumn(column, test, is_count)
        return self._names[key]

    def _travels(self, text: str) -> str:
        """Return the name under which an expression travels."""
        column = self.own(text)
        key = text if column is None else f"`{column}"
        if key not in self._names:
            name = self._names[key] = f"{TRAVELS}{len(self._names)}"
            self._made[name] = F.expr(text) if column is None else F.col(quoted(column))
            if column is None:
                self.computed.append(text)
            else:
                self.plain[name] = column
        return self._names[key]


def plain_name(text: str) -> str | None:
    r"""Return the name that an expression is; None if it is more.

    >>> plain_name("(dateTime\n)"), plain_name("`a b`"), plain_name("v + 1"), plain_name("'v'")
    ('dateTime', 'a b', None, None)
    """
    tokens = [token for token in tokens_of(text) if token.text not in ("(", ")")]
    if len(tokens) != 1 or tokens[0].token_type in _NO_NAMES:
        return None
    (only,) = tokens
    return only.text if _NAME.fullmatch(text, only.start, only.end + 1) else None


@dataclass(frozen=True, slots=True)
class Placement:
    """The buckets of groups, and whether rows are shuffled before they become cells."""

    groups: Groups
    n_buckets: int
    is_late: bool
    """Whether Spark makes cells behind the shuffle."""
    known: Known = field(default_factory=Known)
    """Steps of the operator that were laid before."""

    def coded(self, rows: DataFrame, start: str = MICROS) -> DataFrame:
        """Return rows with the start of their cells, their groups with codes, and their buckets.

        Args:
            rows: with their event time.
            start: SQL of the start of the cell of each (µs).
        """
        return self._coded(self._grouping(rows, start))

    def grouped(self, rows: DataFrame, start: str, reduced: Sequence[Column]) -> DataFrame:
        """Return the cells of rows; they are in their buckets if rows are shuffled first.

        Args:
            rows: with their event time.
            start: SQL of the start of the cell of each (µs).
            reduced: the partial aggregates of a cell.
        """
        rows = self._grouping(rows, start)
        if not self.is_late and not self.groups.are_nested:
            return self._coded(self._reduced(rows, self.groups.own_keys, reduced))
        rows = self._coded(rows)
        rows = shuffled(rows, self.n_buckets) if self.is_late else rows
        return self._reduced(rows, self.groups.keys, reduced)

    def _grouping(self, rows: DataFrame, start: str) -> DataFrame:
        """Return rows with the columns that tell cells apart."""
        return self.known.selected(rows, "*", *self.groups.values, f"{start} AS {START}")

    def _coded(self, rows: DataFrame) -> DataFrame:
        """Return rows, or cells, of which there are fewer, with codes and buckets."""
        return self.known.selected(rows, "*", *self.groups.codes(self.n_buckets))

    def _reduced(
        self, rows: DataFrame, keys: Sequence[Column], reduced: Sequence[Column]
    ) -> DataFrame:
        """Return the cells of rows; of an operator, these are always reduced alike."""
        if len(keys) not in self.known.reductions:
            aggregates = [F.count(F.lit(1)).alias(ROWS), *reduced]
            self.known.reductions[len(keys)] = Reduced(keys, aggregates)
        return self.known.reductions[len(keys)].over(rows)


def start_of_cell(slides: Slides) -> str:
    """Return SQL of the start of the cell of each row (µs); see ``Slides.cell_of``."""
    place = f"pmod({MICROS} - {slides.origin}L, {slides.slide}L)"
    start = f"{MICROS} - {place}"
    return f"{start} + IF({place} >= {slides.cut}L, {slides.cut}L, 0L)" if slides.cut else start

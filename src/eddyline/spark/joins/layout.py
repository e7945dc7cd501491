"""Positions of each input's columns and keys in the common DataFrame.

Keys become codes: 64 bits that are equal wherever SQL says that keys are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from eddyline.errors import NotSupportedError, QueryError
from eddyline.joins.plan import MARKS
from eddyline.query.query import UnboundedWindow
from eddyline.query.steps import ProjectStep
from eddyline.spark.analysis import refused, unlogged
from eddyline.spark.relation import local_micros
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.query.query import KeyClass, RowsWindow, Window
    from eddyline.query.steps import FilterStep, JoinStep
    from eddyline.spark.operator import LaidOut
    from eddyline.spark.relation import Refresh

INPUT, PASSES, START = "__input", "__passes", "__start"
"""The columns of a row's input, by number, whether it can join, and its event time (µs).

Whether it can join is NULL of a row that is dropped and comes for its event time alone.
"""

KEY, SLOT, RAW = "__key", "__slot", "__raw"
"""The columns of its codes (numbered by key class), of what it carries (numbered), and of what its
predicates and keys read before there are codes (numbered)."""

TEXT_OF = "\0text of "
"""Prefix of a column's name in the name of its text."""

WIDTHS = ("tinyint", "smallint", "int", "bigint")

EXACT = (*WIDTHS, "boolean", "date", "timestamp", "timestamp_ntz")
"""Types whose values are numbers of 64 bits, so that equal codes are equal values."""

_PLAIN = (*EXACT, "float", "double", "string", "binary")
"""Types whose values have an order that Arrow knows."""


@dataclass(frozen=True, slots=True)
class InputLayout:
    """The places of one input's columns in the common DataFrame."""

    name: str
    number: int
    """The value of the column INPUT."""
    keys: tuple[int, ...]
    """Its key classes, ascending."""
    columns: tuple[tuple[str, str], ...]
    """Each column that results need, and the common column that holds or says it."""
    window: Window
    """Its window; a table is in one that keeps all rows."""
    keys_only: tuple[tuple[str, int], ...] = ()
    """Columns that are read as keys and for nothing else, and the class whose code is each."""
    more: tuple[tuple[str, str], ...] = ()
    """More columns, where rows are counted: what they are ordered and grouped by."""
    ties: tuple[str, ...] = ()
    """The columns that order rows of one instant, where rows are counted."""
    is_raw: bool = False
    """Whether rows without a key count, too: in windows of N rows, as instants, and where rows
    without a partner are results."""
    is_awaited: bool = False
    """Whether results wait for its event time: all rows come, if only to tell their time."""

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """Every column that comes, and the common column that holds or says it."""
        return (*self.columns, *self.more)

    @property
    def slots(self) -> dict[str, str]:
        """The columns that the common columns for them hold, by name."""
        return {
            name: place for name, place in self.carried if place.startswith(SLOT) and name != MARKS
        }

    @property
    def marks_in(self) -> str:
        """The common column that says which queries need a row; empty if all need all rows."""
        return dict(self.more).get(MARKS, "")


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input of a join: the rows of a stream or table, and the steps before they are joined."""

    name: str
    """The name by which expressions qualify its columns."""
    relation: str
    """The relation that is joined, which its last step makes."""
    stream: str
    """The stream or table that it is of."""
    df: DataFrame
    """The rows of the stream or table."""
    time: str | None
    """Event-time column of the stream; None for a table, whose rows were always there."""
    lateness: str | None
    """What was said of how late its rows may come; None if nothing was."""
    window: Window
    steps: tuple[FilterStep | ProjectStep, ...]
    """The steps over its rows alone."""
    shape: DataFrame
    """A DataFrame with the columns that are joined, for analysis only."""
    needed: tuple[str, ...]
    """The columns that results need."""
    compared: tuple[str, ...]
    """The columns that equalities read."""
    laid_out: LaidOut | None = None
    """What makes its rows, where these are results of operators of its own: aggregates, joins."""
    key: str | None = None
    """The column that was declared to be the key of the stream."""
    refresh: Refresh | None = None
    """How the table is read again while the join runs; None: it does not change."""
    wheres: tuple[str, ...] = ()
    """The condition of each of several queries on its rows (empty: it needs all), as SQL; none if
    they need the same rows."""

    @property
    def marks(self) -> str:
        """SQL of the bits of the queries that need a row."""
        bits = (
            f"CASE WHEN ({where}\n) THEN {1 << bit}L ELSE 0L END" if where else f"{1 << bit}L"
            for bit, where in enumerate(self.wheres)
        )
        return " + ".join(bits)

    @property
    def is_streaming(self) -> bool:
        """Whether the rows of the input come in micro-batches."""
        return bool((self.df if self.laid_out is None else self.laid_out.source).isStreaming)

    @property
    def is_projected(self) -> bool:
        """Whether the input has computed columns and not those of the stream."""
        return any(isinstance(step, ProjectStep) for step in self.steps)


class SharedColumns:
    """Common columns of one kind, in which inputs take turns.

    Args:
        prefix: of their names.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.kinds: list[str] = []

    def take(self, kind: str, taken: Collection[str]) -> str:
        """Return a column of a type that is none of some; one is added if there is none."""
        for number, slot_kind in enumerate(self.kinds):
            place = f"{self.prefix}{number}"
            if slot_kind == kind and place not in taken:
                return place
        self.kinds.append(kind)
        return f"{self.prefix}{len(self.kinds) - 1}"

    @property
    def types(self) -> dict[str, str]:
        """The type of each column."""
        return {f"{self.prefix}{number}": kind for number, kind in enumerate(self.kinds)}


class Layouts:
    """Gives the inputs of a join their places.

    Args:
        step: the join.
        kinds: the type in which the members of each key class are compared.
    """

    def __init__(self, step: JoinStep, kinds: Sequence[str]) -> None:
        self.step = step
        self.kinds = kinds
        self.rough = tuple(k for k, kind in enumerate(kinds) if kind not in EXACT)
        """Key classes whose codes are hashes."""
        self.slots = SharedColumns(SLOT)
        self.raws = SharedColumns(RAW)

    def add(self, number: int, join_input: JoinInput) -> InputLayout:
        """Return the layout of an input; common columns that are missing are added.

        Raises:
            NotSupportedError: rows are grouped by a column that has no order.
        """
        types, is_timed = dict(join_input.shape.dtypes), join_input.time is not None
        window = join_input.window if is_timed else UnboundedWindow()
        is_outer = self.step.kind != "inner"
        is_ordered = window.counts is not None or self.step.emits != "istream"
        is_awaited = is_timed and (is_ordered or (is_outer and number == 1))
        is_raw = is_timed and (window.counts is not None or self.step.emits == "rstream")
        is_raw |= is_outer and number == 0
        # The code of a row that cannot join says nothing.
        codes = {} if is_raw else self._coded(join_input, types)
        # Where codes are hashes, keys are compared again.
        read = [name for name in join_input.compared if self.rough or name not in codes]
        columns = tuple(dict.fromkeys((*join_input.needed, *read)))
        ties = () if window.counts is None else _ties(join_input, window.counts, types)
        types |= dict.fromkeys([name for name in ties if name not in types], "string")
        places = {name: f"{KEY}{k}" for name, k in codes.items()}
        if (
            join_input.time is not None
            and join_input.laid_out is None
            and not (is_raw or join_input.is_projected)
        ):
            places.setdefault(join_input.time, START)
        carried = dict.fromkeys((*columns, *ties, *([MARKS] if join_input.wheres else [])))
        types[MARKS] = "bigint"
        places = {name: place for name, place in places.items() if name in carried}
        for name in carried:
            if name not in places:
                places[name] = self.slots.take(types[name], places.values())
        return InputLayout(
            join_input.name,
            number,
            self.classes(join_input),
            tuple((name, places[name]) for name in columns),
            window,
            tuple((name, codes[name]) for name in join_input.compared if name not in columns),
            tuple((name, places[name]) for name in carried if name not in columns),
            ties,
            is_raw,
            is_awaited,
        )

    def classes(self, join_input: JoinInput) -> tuple[int, ...]:
        """Return the key classes of an input, ascending."""
        return tuple(k for k, key in enumerate(self.step.keys) if join_input.name in key.members)

    def _coded(self, join_input: JoinInput, types: Mapping[str, str]) -> dict[str, int]:
        """Return the columns of an input whose values codes are, and the class of each."""
        exact = [k for k in self.classes(join_input) if k not in self.rough]
        return {
            name: k
            for k in exact
            for name in types
            if {name, quoted(name)} & {*self.step.keys[k].members[join_input.name]}
        }


def _ties(join_input: JoinInput, window: RowsWindow, types: Mapping[str, str]) -> tuple[str, ...]:
    """Return all columns, to order rows of one instant; types without an order as text."""
    for name in window.partition_by:
        if not _is_plain(types[name]):
            msg = (
                f"PARTITION BY {name} of {join_input.name!r}: {types[name]} is no type to group by"
            )
            raise NotSupportedError(msg, input=join_input.name, column=name)
    columns = [(name, kind) for name, kind in types.items() if kind != "void"]
    return tuple(name if _is_plain(kind) else f"{TEXT_OF}{name}" for name, kind in columns)


def _is_plain(kind: str) -> bool:
    return kind in _PLAIN or kind.startswith(("decimal", "char", "varchar"))


DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Digits that Spark takes whole numbers to have, where they meet decimals."""

_NO_KEYS = re.compile(r"(^|[<:,])(map|variant|void|geometry|geography)\b(?!:)|collate|^interval$")
"""Types whose equal values may have different hashes, as whole values or as parts."""

_FLOATS = re.compile(r"[<:,](float|double)\b(?!:)")
"""Types whose equal values may differ in bits; inside other types nothing normalizes them."""

MAX_DIGITS = 38
"""Most digits of a decimal."""


def codes_of(name: str, keys: Mapping[int, KeyClass], kinds: Sequence[str]) -> dict[str, Column]:
    """Return the codes of an input by common column; NULL on rows that cannot join.

    Where several expressions of an input are members of one class, only rows on which they are
    equal can join, and no key is computed on others.

    Args:
        name: the input.
        keys: its key classes by number.
        kinds: the type in which the members of every key class are compared.
    """
    tests = [
        F.expr(f"({first}\n) = ({other}\n)")
        for key in keys.values()
        for first, *others in [key.members[name]]
        for other in others
    ]
    codes = {f"{KEY}{k}": _code(key.members[name][0], kinds[k]) for k, key in keys.items()}
    if not tests:
        return codes
    return {place: F.when(reduce(and_, tests), code) for place, code in codes.items()}


def key_type(key: KeyClass, inputs: Iterable[JoinInput]) -> str:
    """Return the type in which the members of a key class are compared.

    Raises:
        QueryError: a member cannot be resolved, or they are of types that SQL would convert.
        NotSupportedError: equal values of the type may have different hashes.
    """
    types: dict[str, str] = {}
    for join_input in inputs:
        for text in key.members.get(join_input.name, ()):
            try:
                with unlogged():
                    types[f"{join_input.name}: {text}"] = join_input.shape.select(
                        F.expr(text)
                    ).dtypes[0][1]
            except AnalysisException as error:
                what = f"the key {text!r} of {join_input.name!r} cannot be resolved"
                raise refused(what, error, input=join_input.name, key=text) from error
    kinds = set(types.values())
    _check_kinds(types)
    if kinds <= set(WIDTHS):
        return max(kinds, key=WIDTHS.index)
    if kinds <= {"float", "double"}:
        return "double"
    if len(kinds) == 1:
        return kinds.pop()
    listed = ", ".join(f"{what} ({kind})" for what, kind in types.items())
    if all(kind in DIGITS or kind.startswith("decimal") for kind in kinds):
        sizes = [_digits(kind) for kind in kinds]
        if sum(map(max, zip(*sizes, strict=True))) <= MAX_DIGITS:
            return "decimal"
        msg = (
            f"decimal keys have no common type of {MAX_DIGITS} digits, so SQL would round them: "
            f"{listed}; cast them to one type"
        )
        raise QueryError(msg, types=types)
    msg = f"keys that are compared have different types: {listed}; cast them to one type"
    raise QueryError(msg, types=types)


def _check_kinds(members: Mapping[str, str]) -> None:
    """Refuse members whose equal values may have different hashes; types by member."""
    for what, kind in members.items():
        if _NO_KEYS.search(kind) or _FLOATS.search(kind):
            msg = (
                f"the join key {what} has the type {kind}, which is not supported; compare plain "
                f"values in it"
            )
            raise NotSupportedError(msg, type=kind)


def _digits(kind: str) -> tuple[int, int]:
    """Return the digits before and behind the point of a type of numbers."""
    if kind in DIGITS:
        return DIGITS[kind], 0
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    return precision - scale, scale


def _code(text: str, kind: str) -> Column:
    """Return the code of a key: equal wherever SQL says that the keys are equal."""
    value = F.expr(f"({text}\n)")
    if kind in WIDTHS:
        return value.cast("bigint")
    if kind == "boolean":
        return value.cast("int").cast("bigint")
    if kind == "date":
        return F.unix_date(value).cast("bigint")
    if kind == "timestamp":
        return F.unix_micros(value)
    if kind == "timestamp_ntz":
        return F.expr(local_micros(text))
    there = value.isNotNull()
    if kind == "double":
        # 0.0 and -0.0 are equal, and so are all NaN.
        wide = value.cast("double")
        value = F.when(wide == 0, 0.0).when(F.isnan(wide), F.lit(float("nan"))).otherwise(wide)
    elif kind == "decimal":
        # Equal ones are equal as doubles, too; unequal ones are compared again.
        value = value.cast("double")
    return F.when(there, F.xxhash64(value))

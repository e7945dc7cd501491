"""The places of each input's columns in the DataFrame that all inputs of a join share.

Columns of the same type take turns in the same place, so a row carries the columns of the widest
input and not those of all. What a code or the event time says travels as that alone. An input with
predicates carries what these and its keys read in *raw* places, until the keys are known: a key is
computed for rows that pass alone, and the shuffle carries nothing raw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError
from eddyline.query.query import UnboundedWindow
from eddyline.query.steps import ProjectStep
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.query import RowsWindow, Window
    from eddyline.query.steps import FilterStep, JoinStep
    from eddyline.spark.operator import LaidOut

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
        return {name: place for name, place in self.carried if place.startswith(SLOT)}


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
    made: LaidOut | None = None
    """What makes its rows, where these are results of operators of its own: aggregates, joins."""
    key: str | None = None
    """The column that was declared to be the key of the stream."""

    @property
    def is_streaming(self) -> bool:
        """Whether its rows come in micro-batches."""
        return bool((self.df if self.made is None else self.made.source).isStreaming)

    @property
    def is_projected(self) -> bool:
        """Whether its columns are computed, and not those of the stream."""
        return any(isinstance(each, ProjectStep) for each in self.steps)


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
        for number, known in enumerate(self.kinds):
            place = f"{self.prefix}{number}"
            if known == kind and place not in taken:
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

    def add(self, number: int, each: JoinInput) -> InputLayout:
        """Return the layout of an input; common columns that are missing are added.

        Args:
            number: of the input.
            each: the input.

        Raises:
            NotSupportedError: rows are grouped by a column that has no order.
        """
        types, is_timed = dict(each.shape.dtypes), each.time is not None
        window = each.window if is_timed else UnboundedWindow()
        is_outer = self.step.kind != "inner"
        is_ordered = window.counts is not None or self.step.emits != "istream"
        is_awaited = is_timed and (is_ordered or (is_outer and number == 1))
        is_raw = is_timed and (window.counts is not None or self.step.emits == "rstream")
        is_raw |= is_outer and number == 0
        # The code of a row that cannot join says nothing.
        codes = {} if is_raw else self._coded(each, types)
        # Where codes are hashes, keys are compared again.
        read = [name for name in each.compared if self.rough or name not in codes]
        columns = tuple(dict.fromkeys((*each.needed, *read)))
        ties = () if window.counts is None else _ties(each, window.counts, types)
        types |= dict.fromkeys([name for name in ties if name not in types], "string")
        places = {name: f"{KEY}{k}" for name, k in codes.items()}
        if each.time is not None and each.made is None and not (is_raw or each.is_projected):
            places.setdefault(each.time, START)
        carried = dict.fromkeys((*columns, *ties))
        places = {name: place for name, place in places.items() if name in carried}
        for name in carried:
            if name not in places:
                places[name] = self.slots.take(types[name], places.values())
        return InputLayout(
            each.name,
            number,
            self.classes(each),
            tuple((name, places[name]) for name in columns),
            window,
            tuple((name, codes[name]) for name in each.compared if name not in columns),
            tuple((name, places[name]) for name in carried if name not in columns),
            ties,
            is_raw,
            is_awaited,
        )

    def classes(self, each: JoinInput) -> tuple[int, ...]:
        """Return the key classes of an input, ascending."""
        return tuple(k for k, key in enumerate(self.step.keys) if each.name in key.members)

    def _coded(self, each: JoinInput, types: Mapping[str, str]) -> dict[str, int]:
        """Return the columns of an input whose values codes are, and the class of each."""
        exact = [k for k in self.classes(each) if k not in self.rough]
        return {
            name: k
            for k in exact
            for name in types
            if {name, quoted(name)} & {*self.step.keys[k].members[each.name]}
        }


def _ties(each: JoinInput, window: RowsWindow, types: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that order rows of one instant: all, those without an order as text."""
    for name in window.partition_by:
        if not _is_plain(types[name]):
            msg = f"PARTITION BY {name} of {each.name!r}: {types[name]} is no type to group by"
            raise NotSupportedError(msg, input=each.name, column=name)
    columns = [(name, kind) for name, kind in types.items() if kind != "void"]
    return tuple(name if _is_plain(kind) else f"{TEXT_OF}{name}" for name, kind in columns)


def _is_plain(kind: str) -> bool:
    return kind in _PLAIN or kind.startswith(("decimal", "char", "varchar"))

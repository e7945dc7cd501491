"""Where the rows of each input of a join are in the DataFrame that all inputs share.

Columns of the same type take turns in the same place, so a row carries the columns of the widest
input and not those of all. What a code or the event time says travels as that alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.errors import NotSupportedError
from eddyline.query.windows import UnboundedWindow
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.query import Input, Query
    from eddyline.query.windows import RowsWindow, Window

START, KEY, SLOT = "__start", "__key", "__slot"
"""The columns that say the event time of a row (µs), its codes (numbered by key class), and what it
carries (numbered)."""

TEXT_OF = "\0text of "
"""What stands before the name of a column in that of its text."""

WIDTHS = ("tinyint", "smallint", "int", "bigint")

EXACT = (*WIDTHS, "boolean", "date", "timestamp", "timestamp_ntz")
"""Types whose values are numbers of 64 bits, so that equal codes are equal values."""

_PLAIN = (*EXACT, "float", "double", "string", "binary")
"""Types whose values have an order that Arrow knows."""


@dataclass(frozen=True, slots=True)
class InputLayout:
    """Where the rows of one input are in the common DataFrame."""

    name: str
    stream: str
    """The stream or table that it is of."""
    number: int
    """What the column INPUT says."""
    keys: tuple[int, ...]
    """Its key classes, ascending."""
    columns: tuple[tuple[str, str], ...]
    """Each column that results need, and the common column that holds or says it."""
    window: Window
    keys_only: tuple[tuple[str, int], ...] = ()
    """Columns that are read as keys and for nothing else, and the class whose code is each."""
    more: tuple[tuple[str, str], ...] = ()
    """More columns, where rows are counted: what they are ordered and grouped by."""
    ties: tuple[str, ...] = ()
    """The columns that order rows of one instant, where rows are counted."""
    is_raw: bool = False
    """Whether rows that cannot join come, too."""

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """Every column that comes, and the common column that holds or says it."""
        return (*self.columns, *self.more)


class Layouts:
    """Gives the inputs of a join their places.

    Args:
        query: the join.
        kinds: the type in which the members of each key class are compared.
        needed: by input, the columns that results need.
        compared: by input, the columns that equalities read. Results need them as well where
            codes are hashes, as these are compared again.
    """

    def __init__(
        self,
        query: Query,
        kinds: Sequence[str],
        needed: Mapping[str, Collection[str]],
        compared: Mapping[str, Collection[str]],
    ) -> None:
        self.query = query
        self.kinds = kinds
        self.rough = tuple(k for k, kind in enumerate(kinds) if kind not in EXACT)
        """Key classes whose codes are hashes."""
        self.slots: list[str] = []
        """The types of the columns that are shared so far."""
        self._needed = needed
        self._compared = compared

    def add(self, number: int, df: DataFrame, time: str | None) -> InputLayout:
        """Return where the rows of an input are; common columns that are missing are added.

        Args:
            number: of the input.
            df: its rows.
            time: its event-time column; None for a table.

        Raises:
            NotSupportedError: rows are grouped by a column that has no order.
        """
        each, types = self.query.inputs[number], dict(df.dtypes)
        is_timed = time is not None
        window = each.window if is_timed else UnboundedWindow()  # rows of a table never leave
        counts = window.counts
        is_raw = is_timed and (counts is not None or self.query.emits == "rstream")
        # The code of a row that cannot join says nothing.
        codes = {} if is_raw else self._coded(each, types)
        compared = self._compared[each.name]
        read = compared if self.rough else [name for name in compared if name not in codes]
        columns = tuple(dict.fromkeys((*self._needed[each.name], *read)))
        ties = () if counts is None else _ties(each, counts, types)
        types |= dict.fromkeys([name for name in ties if name not in types], "string")
        said = {name: f"{KEY}{k}" for name, k in codes.items()}
        if time is not None and not is_raw:
            said.setdefault(time, START)
        places = self._places(dict.fromkeys((*columns, *ties)), types, said)
        return InputLayout(
            each.name,
            each.stream,
            number,
            self._classes(each),
            tuple((name, places[name]) for name in columns),
            window,
            tuple((name, codes[name]) for name in compared if name not in columns),
            tuple((name, place) for name, place in places.items() if name not in columns),
            ties,
            is_raw=is_raw,
        )

    def _classes(self, each: Input) -> tuple[int, ...]:
        return tuple(k for k, key in enumerate(self.query.keys) if each.name in key.members)

    def _coded(self, each: Input, types: Mapping[str, str]) -> dict[str, int]:
        """Return the columns of an input whose values codes are, and the class of each."""
        exact = [k for k in self._classes(each) if k not in self.rough]
        return {
            name: k
            for k in exact
            for name in types
            if {name, quoted(name)} & {*self.query.keys[k].members[each.name]}
        }

    def _places(
        self, columns: Collection[str], types: Mapping[str, str], said: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the common columns that hold some columns, or say them."""
        places: dict[str, str] = {}
        for name in columns:
            if name in said:
                places[name] = said[name]
                continue
            free = [
                f"{SLOT}{number}"
                for number, kind in enumerate(self.slots)
                if kind == types[name] and f"{SLOT}{number}" not in places.values()
            ]
            if not free:
                self.slots.append(types[name])
                free = [f"{SLOT}{len(self.slots) - 1}"]
            places[name] = free[0]
        return places


def _ties(each: Input, window: RowsWindow, types: Mapping[str, str]) -> tuple[str, ...]:
    """Return what orders rows of one instant: all columns, those without an order as text."""
    for name in window.partition_by:
        if not _is_plain(types[name]):
            msg = f"PARTITION BY {name} of {each.name!r}: {types[name]} is no type to group by"
            raise NotSupportedError(msg, input=each.name, column=name)
    columns = [(name, kind) for name, kind in types.items() if kind != "void"]
    return tuple(name if _is_plain(kind) else f"{TEXT_OF}{name}" for name, kind in columns)


def _is_plain(kind: str) -> bool:
    return kind in _PLAIN or kind.startswith(("decimal", "char", "varchar"))

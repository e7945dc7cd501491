"""The inputs of a join as one DataFrame: tagged, with codes, in columns that they share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.spark.event_time import micros_of
from eddyline.spark.joins.input_steps import column_of, laid_input, passes_of
from eddyline.spark.joins.keys import codes_of, key_type
from eddyline.spark.joins.layout import INPUT, KEY, PASSES, RAW, START, Layouts
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.options import FilterOptions
    from eddyline.query.steps import JoinStep
    from eddyline.spark.joins.input_steps import LaidInput
    from eddyline.spark.joins.layout import InputLayout, JoinInput


@dataclass(frozen=True, slots=True)
class Source:
    """The inputs of a join as one DataFrame."""

    streams: DataFrame | None
    """The rows of the streams; None if there is none."""
    tables: DataFrame | None
    """The rows of the static tables; None if there is none."""
    layouts: tuple[InputLayout, ...]
    rough: tuple[int, ...]
    """Key classes whose codes are hashes: where they are equal, the keys are compared again."""
    laid: tuple[LaidInput, ...] = ()
    """The inputs with steps of their own, which are still to be laid; their keys come last."""

    @property
    def awaited(self) -> tuple[int, ...]:
        """The numbers of the inputs of which rows that cannot join come, too."""
        return tuple(each.number for each in self.layouts if each.is_awaited or each.is_raw)

    @property
    def rows(self) -> DataFrame:
        """The rows of the streams, or of tables where there are no streams."""
        rows = self.tables if self.streams is None else self.streams
        assert rows is not None
        return rows

    def timed(self, df: DataFrame, *, is_first: bool) -> DataFrame:
        """Return the rows of a batch that have an event time, and at first those of the tables."""
        if is_first and self.tables is not None:
            df = df.unionByName(self.tables)
        return df.where(F.col(START).isNotNull())

    def keyed(self, df: DataFrame) -> DataFrame:
        """Return rows of the inputs with all their keys, once all steps are laid over them."""
        for each in self.laid:
            df = each.keys.lay(df)
        return df.drop(*(name for name in df.columns if name.startswith(RAW)))


def source_of(step: JoinStep, inputs: Sequence[JoinInput], options: FilterOptions) -> Source:
    """Return the inputs of a join as one DataFrame.

    Every row is there. One that has a NULL in a key never joins and is marked, of inputs without
    steps at once, of the others when their keys are known.

    Args:
        step: the join.
        inputs: in the order of the join.
        options: how the order of predicates is learned.

    Raises:
        QueryError: keys that cannot be compared, an event time that is no time, or a step that does
            not fit the columns of its input.
        NotSupportedError: rows that are grouped by a column that has no order.
    """
    kinds = [key_type(key, inputs) for key in step.keys]
    places = Layouts(step, kinds)
    layouts = tuple(places.add(number, each) for number, each in enumerate(inputs))
    laid: dict[int, LaidInput] = {}
    codes: dict[int, dict[str, Column]] = {}
    for each, layout in zip(inputs, layouts, strict=True):
        keys = {k: step.keys[k] for k in layout.keys}
        codes[layout.number] = codes_of(each.name, keys, kinds)
        if each.steps:
            laid[layout.number] = laid_input(
                each, layout, keys, codes[layout.number], places.raws, options
            )
    types = dict.fromkeys([f"{KEY}{k}" for k in range(len(kinds))], "bigint")
    types |= places.slots.types | places.raws.types
    parts: dict[bool, list[DataFrame]] = {True: [], False: []}
    for each, layout in zip(inputs, layouts, strict=True):
        if layout.number in laid:
            own = {place: column_of(name) for name, place in laid[layout.number].start.items()}
            part = _tagged(each, layout.number, own, F.lit(True), types)
        else:
            own = {place: column_of(name) for name, place in layout.slots.items()}
            own |= codes[layout.number]
            passes = passes_of(layout, [of.isNotNull() for of in codes[layout.number].values()])
            part = _tagged(each, layout.number, own, passes, types)
        parts[each.time is not None].append(part)
    streams, tables = _union(parts[True]), _union(parts[False])
    return Source(streams, tables, layouts, places.rough, tuple(laid.values()))


def _tagged(
    each: JoinInput,
    number: int,
    own: Mapping[str, Column],
    passes: Column,
    types: Mapping[str, str],
) -> DataFrame:
    """Return the rows of an input in the common columns.

    Args:
        each: the input.
        number: its number.
        own: what it has in common columns.
        passes: whether a row can join, as far as that is known.
        types: of the common columns.
    """
    tags = {INPUT: F.lit(number), PASSES: passes, START: _start(each)}
    filled = {name: own.get(name, F.lit(None)).cast(kind) for name, kind in types.items()}
    return each.df.select(*[column.alias(name) for name, column in (tags | filled).items()])


def _union(parts: Sequence[DataFrame]) -> DataFrame | None:
    return reduce(lambda one, other: one.unionByName(other), parts) if parts else None


def _start(each: JoinInput) -> Column:
    """Return the event time of rows (µs)."""
    if each.time is None:
        return F.lit(ALWAYS)
    return micros_of(each.df, each.time, each.stream)

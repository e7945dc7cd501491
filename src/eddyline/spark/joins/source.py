"""The inputs of a join as one DataFrame: tagged, with codes, in their buckets by one shuffle.

Declared keys of streams are found among the key classes. Each row goes to the partitions that are
its buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from eddyline.joins.graph import UniqueKey
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.joins.input_steps import column_of, laid_input, passes_of
from eddyline.spark.joins.layout import INPUT, KEY, PASSES, RAW, START, Layouts, codes_of, key_type
from eddyline.spark.parts import Part, Trunk
from eddyline.spark.relation import LOCAL, micros_of, time_type
from eddyline.spark.stream_files import file_column
from eddyline.sql.parsing import quoted
from eddyline.state.grid import N_BINS
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.options import FilterOptions
    from eddyline.query.steps import JoinStep
    from eddyline.spark.joins.input_steps import LaidInput
    from eddyline.spark.joins.layout import InputLayout, JoinInput
    from eddyline.spark.operator import Clock, Operator
    from eddyline.state.grid import Grid, Split


@dataclass(frozen=True, slots=True)
class MadeInput:
    """An input whose rows are results of operators of its own."""

    number: int
    """Its number in the join."""
    part: Part
    tags: tuple[Column, ...]
    """The common columns over its rows."""
    types: Mapping[str, str]
    """Of the common columns, but for those of every row."""

    @property
    def clock(self) -> Clock:
        """Event time of its rows: none is to come before ``after``."""
        assert self.part.of.clock is not None
        return self.part.of.clock

    def rows(self) -> DataFrame:
        """Return its rows in the batch that is being laid, and one that tells the time alone.

        Event time goes on where there are no results, too, and rows of UNION ALL and of filters are
        ahead of it: these pass at once, while earlier ones may still come.
        """
        rows = self.part.results.select(*self.tags).where(F.col(PASSES).isNotNull())
        if self.clock.has_late:
            rows = rows.where(F.col(START).isNull() | (F.col(START) >= self.clock.before))
        at = self.clock.after
        if at in (ALWAYS, FOREVER):
            return rows
        # As values, and not as numbers in the code that Spark makes of a statement.
        nothing = "".join(f", CAST(NULL AS {kind})" for kind in self.types.values())
        names = ", ".join([INPUT, PASSES, START, *self.types])
        told = rows.sparkSession.sql(
            f"SELECT * FROM VALUES ({self.number}, CAST(NULL AS BOOLEAN), {at}L{nothing}) "
            f"AS told({names})"
        )
        return rows.unionByName(told)


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
    trunk: Trunk | None = None
    """The rows of all inputs, where some are made by operators of their own."""
    made: tuple[MadeInput, ...] = ()
    """These inputs."""
    in_files: tuple[tuple[int, str | None], ...] = ()
    """Of each stream that nothing makes: its number, and its event time in the files that it is
    read from, if it is; in the order in which they are united."""

    @property
    def awaited(self) -> tuple[int, ...]:
        """The numbers of the inputs of which rows that cannot join come, too."""
        return tuple(each.number for each in self.layouts if each.is_awaited or each.is_raw)

    @property
    def rows(self) -> DataFrame:
        """The rows of the streams, or of tables where there are no streams."""
        if self.trunk is not None:
            return self.trunk.source
        rows = self.tables if self.streams is None else self.streams
        assert rows is not None
        return rows

    @property
    def operators(self) -> list[Operator]:
        """The operators that make inputs."""
        if self.trunk is None:
            return []
        return [self.trunk, *(own for each in self.made for own in each.part.operators())]

    def of_streams(self, df: DataFrame) -> DataFrame | None:
        """Return the rows of the streams that nothing makes; None if there are none.

        Args:
            df: the rows that the query reads.
        """
        if self.trunk is None:
            return df
        return None if self.streams is None else self.trunk.rows(0, df)

    def joined(self, df: DataFrame) -> DataFrame:
        """Return the rows of all streams, with the results of those that are made."""
        made = [each.rows() for each in self.made]
        own = self.of_streams(df)
        rows = _union([*([] if own is None else [own]), *made])
        assert rows is not None
        return rows

    def timed(self, df: DataFrame, *, is_first: bool) -> DataFrame:
        """Return the rows of a batch that have an event time, and at first those of the tables."""
        if is_first and self.tables is not None:
            df = df.unionByName(self.tables)
        return df.where(f"{START} IS NOT NULL")

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
    tags: dict[int, list[Column]] = {}
    in_files: list[tuple[int, str | None]] = []
    for each, layout in zip(inputs, layouts, strict=True):
        if layout.number in laid:
            own = {place: column_of(name) for name, place in laid[layout.number].start.items()}
            passes = F.lit(True)
        else:
            own = {place: column_of(name) for name, place in layout.slots.items()}
            own |= codes[layout.number]
            passes = passes_of(layout, [of.isNotNull() for of in codes[layout.number].values()])
        columns = _tagged(each, layout.number, own, passes, types)
        if each.made is None:
            parts[each.time is not None].append(each.df.select(*columns))
            if each.time is not None:
                in_files.append((layout.number, file_column(each.df, each.time)))
        else:
            tags[layout.number] = columns
    streams, tables = _union(parts[True]), _union(parts[False])
    trunk, made = _made(inputs, tags, streams, types)
    steps = tuple(laid.values())
    return Source(streams, tables, layouts, places.rough, steps, trunk, made, tuple(in_files))


def _made(
    inputs: Sequence[JoinInput],
    tags: Mapping[int, list[Column]],
    streams: DataFrame | None,
    types: Mapping[str, str],
) -> tuple[Trunk | None, tuple[MadeInput, ...]]:
    """Return the rows of all inputs, and the inputs that are made; nothing if none is.

    Args:
        inputs: in the order of the join.
        tags: the common columns of the inputs that are made, by number.
        streams: the rows of the other streams.
        types: of the common columns.
    """
    if not tags:
        return None, ()
    laid = {number: of for number, each in enumerate(inputs) if (of := each.made) is not None}
    first = [] if streams is None else [streams]
    trunk = Trunk([*first, *(each.source for each in laid.values())])
    places = enumerate(laid.items(), len(first))
    parts = {n: Part(trunk, place, inputs[n].name, of) for place, (n, of) in places}
    return trunk, tuple(MadeInput(n, part, tuple(tags[n]), types) for n, part in parts.items())


def _tagged(
    each: JoinInput,
    number: int,
    own: Mapping[str, Column],
    passes: Column,
    types: Mapping[str, str],
) -> list[Column]:
    """Return the common columns over the rows of an input.

    Args:
        each: the input.
        number: its number.
        own: what it has in common columns.
        passes: whether a row can join, as far as that is known.
        types: of the common columns.
    """
    tags = {INPUT: F.lit(number), PASSES: passes, START: _start(each)}
    filled = {name: own.get(name, F.lit(None)).cast(kind) for name, kind in types.items()}
    return [column.alias(name) for name, column in (tags | filled).items()]


def _union(parts: Sequence[DataFrame]) -> DataFrame | None:
    return reduce(lambda one, other: one.unionByName(other), parts) if parts else None


def _start(each: JoinInput) -> Column:
    """Return the event time of rows (µs)."""
    if each.time is None:
        return F.lit(ALWAYS)
    micros = micros_of(each.df, each.time, each.stream)
    clock = None if each.made is None else each.made.clock
    return micros if clock is None else micros + F.lit(clock.offset)


def declared_keys(
    step: JoinStep, inputs: Sequence[JoinInput], rough: Collection[int]
) -> dict[str, UniqueKey]:
    """Return the declared keys by which inputs are joined, by input.

    Args:
        step: the join.
        inputs: its inputs.
        rough: key classes whose codes are hashes.
    """
    found = {}
    for each in inputs:
        # Of columns that are computed nothing was declared.
        if each.key is None or each.is_projected:
            continue
        texts = {each.key, quoted(each.key)}
        for number, of in enumerate(step.keys):
            if texts & {*of.members.get(each.name, ())}:
                schema = StructType([each.shape.schema[each.key]])
                kind = to_arrow_schema(schema, timezone="UTC").field(0).type
                exact = None if number in rough else kind
                is_local = (
                    each.time is not None and time_type(each.df, each.time, each.stream) == LOCAL
                )
                found[each.name] = UniqueKey(each.stream, each.key, number, exact, is_local)
    return found


PART = "__part"
"""The columns of a row's place along a side of the grid (numbered)."""


class Placement:
    """A cut of rows into buckets, laid over batch after batch.

    Its columns are built once: each takes many calls to the JVM.

    Args:
        grid: how rows are cut into buckets; one if there are inputs of which all rows are needed.
        source: the inputs.
    """

    def __init__(self, grid: Grid, source: Source) -> None:
        self.grid = grid
        awaited, passes = source.awaited, F.col(PASSES)
        self._needed = passes | F.col(INPUT).isin(*awaited) if awaited else passes
        self._tells_time = bool(awaited)
        self._copies: list[tuple[str, Column]] = []
        """The columns, by name, that say along which parts of a side a row is copied."""
        self._bucket = F.lit(0)
        for key, size in enumerate(grid.shape):
            if size > 1:
                self._bucket = self._bucket * size + self._part(key, size, source)
        self._kept: list[Column] = []
        """The columns that go to a bucket."""

    def _part(self, key: int, size: int, source: Source) -> Column:
        """Return the place of a row along a side; of a row with several, what they are put in."""
        code = F.col(f"{KEY}{key}")
        part = _bin_of(code) % size
        cases = [
            (_bin_of(code) == split.bin, _parts_of(split, size, source.layouts))
            for split in self.grid.splits
            if split.key == key
        ]
        if not all(key in each.keys for each in source.layouts):
            cases.insert(0, (code.isNull(), F.array(*map(F.lit, range(size)))))
        if not cases:
            return part
        parts = F.array(part)
        for is_one, its_parts in reversed(cases):
            parts = F.when(is_one, its_parts).otherwise(parts)
        self._copies.append((f"{PART}{key}", F.explode(parts)))
        return F.col(f"{PART}{key}")

    def lay(self, df: DataFrame) -> tuple[DataFrame, Column]:
        """Return the rows of the source that are needed, and the bucket of each."""
        if not self._kept:
            self._kept = self._columns(df.columns)
        df, bucket = df.where(self._needed), self._bucket
        for name, parts in self._copies:
            df = df.withColumn(name, parts)
        if self._copies:
            df, bucket = df.withColumn(BUCKET, bucket), F.col(BUCKET)
        return df.select(*self._kept), bucket

    def _columns(self, names: Sequence[str]) -> list[Column]:
        if not self._tells_time:
            return [F.col(each) for each in names if each != PASSES]
        # A row that comes for its event time alone brings nothing else.
        told, passes = {INPUT, PASSES, START}, F.col(PASSES)
        return [
            F.col(each) if each in told else F.when(passes.isNotNull(), F.col(each)).alias(each)
            for each in names
        ]


def _bin_of(code: Column) -> Column:
    """Return the bin of a code; see ``grid.bins_of``."""
    return F.pmod(F.xxhash64(code), F.lit(N_BINS)).cast("int")


def _parts_of(split: Split, size: int, layouts: Sequence[InputLayout]) -> Column:
    """Return the places of a row of a split bin along a key class of so many parts."""
    cases = []
    for each in layouts:
        n_parts, step = split.side(each.name)
        first = _bin_of(F.col(START)) % n_parts * step + split.bin
        places = F.array(*[(first + copy) % size for copy in split.copies(each.name)])
        cases.append(F.when(F.col(INPUT) == each.number, places))
    return F.coalesce(*cases)

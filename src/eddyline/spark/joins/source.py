"""Inputs of a join as one DataFrame.

Its rows have the tag of their input and codes of their keys, and reach their buckets in one
shuffle.

``laid_input`` adds the steps over one input to the common DataFrame. A step works on the rows of
its input alone, and sees the columns under the input's own names. The columns that a step computes
become common columns and go through the shuffle. ``Source`` has all inputs. ``declared_keys`` finds
the declared keys of streams among the key classes. ``Placement`` sends each row to the partitions
that are its buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlglot import exp

from eddyline.joins.graph import UniqueKey
from eddyline.lane.exchange import BUCKET
from eddyline.query.predicates import FunctionPredicate, named
from eddyline.query.steps import FilterStep
from eddyline.spark.analysis import column_types
from eddyline.spark.arrow_types import to_arrow_schema
from eddyline.spark.filters.binding import bind_to
from eddyline.spark.filters.guard import settled
from eddyline.spark.joins.layout import (
    INPUT,
    KEY,
    PASSES,
    RAW,
    START,
    TEXT_OF,
    Layouts,
    codes_of,
    key_type,
)
from eddyline.spark.operator import Laid, Operator
from eddyline.spark.parts import Part, Trunk
from eddyline.spark.prepared import Added, Renamed
from eddyline.spark.relation import LOCAL, micros_of, time_type
from eddyline.spark.session import is_ansi
from eddyline.spark.stream_files import file_column
from eddyline.sql.analysis import resolve_columns
from eddyline.sql.parsing import parse_output, quoted
from eddyline.state.grid import N_BINS
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.filters.binding import BoundConjunction
    from eddyline.options import FilterOptions
    from eddyline.query.query import KeyClass
    from eddyline.query.steps import JoinStep, ProjectStep
    from eddyline.spark.joins.layout import InputLayout, JoinInput, SharedColumns
    from eddyline.spark.operator import Batch, Clock
    from eddyline.sql.analysis import SqlAnalysis
    from eddyline.state.grid import Grid, Split


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """The columns of an input in the common DataFrame."""

    number: int
    """The number of the input."""
    places: Mapping[str, str]
    """The common column that holds each column, by name."""
    renamed: Renamed = field(default_factory=Renamed, compare=False, repr=False)

    @property
    def is_mine(self) -> Column:
        """Condition that a row belongs to the input."""
        return F.col(INPUT) == self.number

    def named(self, df: DataFrame) -> DataFrame:
        """Return the common DataFrame with the columns of the input under their own names."""
        return self.renamed.over(df, {place: name for name, place in self.places.items()})

    def unnamed(self, df: DataFrame) -> DataFrame:
        """Return the DataFrame with common columns alone, which ``named`` was given."""
        return self.renamed.over(df, self.places)


@dataclass(frozen=True, slots=True)
class InputPredicates:
    """A filter step over one input."""

    relation: str
    own_columns: OwnColumns
    bound: BoundConjunction
    marks: str
    """The column that is set on rows that are dropped; they go if empty."""
    dropped: str
    """SQL of what it is set to: false if windows count the rows, NULL if only time does."""
    is_first: bool
    """Whether it is the first step over its input, so that its columns are those of the stream."""


class InputProject(Operator):
    """A projection of one input of a join.

    Args:
        relation: the relation that it makes.
        own_columns: the columns of the input before it.
        computed: the SQL of each column that is computed, by its common column.
        may_raise: whether a computed column may raise an error.
    """

    def __init__(
        self,
        relation: str,
        own_columns: OwnColumns,
        computed: Mapping[str, str],
        *,
        may_raise: bool,
    ) -> None:
        self.name = f"project {relation}"
        self.own_columns, self.computed, self.may_raise = own_columns, computed, may_raise

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - the same for every batch
        """Compute the columns for the rows of the input."""
        df = self.own_columns.named(settled(df) if self.may_raise else df)
        return Laid(self.own_columns.unnamed(self._added.over(df) if self.computed else df))

    @cached_property
    def _added(self) -> Added:
        mine = self.own_columns.is_mine & F.col(PASSES).isNotNull()
        return Added(
            {
                place: F.when(mine, F.expr(text)).otherwise(F.col(place))
                for place, text in self.computed.items()
            }
        )


@dataclass(frozen=True)
class InputKeys:
    """The keys of an input that has steps, and what it carries through the shuffle."""

    own_columns: OwnColumns
    codes: Mapping[str, Column]
    """The code of each key, by its common column."""
    slots: Mapping[str, str]
    """The columns that results need, by the common column that is to hold each."""
    may_raise: bool
    """Whether some key may raise an error, which counts only on rows that pass."""
    layout: InputLayout

    def lay(self, df: DataFrame) -> DataFrame:
        """Compute them for the rows of the input that can join."""
        df = self.own_columns.named(settled(df) if self.may_raise else df)
        for added in self._added:
            df = added.over(df)
        return self.own_columns.unnamed(df)

    @cached_property
    def _added(self) -> tuple[Added, Added]:
        """The keys and what is carried; then whether a row that has these can join."""
        mine, passes = self.own_columns.is_mine, F.col(PASSES)
        can_join = mine & passes if self.layout.is_awaited else mine
        values = {place: F.when(can_join, code) for place, code in self.codes.items()}
        values |= {place: F.when(mine, column_of(name)) for place, name in self.slots.items()}
        has_keys = passes_of(self.layout, [F.col(place).isNotNull() for place in self.codes])
        return (
            Added({place: value.otherwise(F.col(place)) for place, value in values.items()}),
            Added({PASSES: F.when(can_join, has_keys).otherwise(passes)}),
        )


@dataclass(frozen=True, slots=True)
class LaidInput:
    """An input that has steps: what they are, and the columns that they start from."""

    start: Mapping[str, str]
    """The columns of the stream that are carried, by name, and the common column of each."""
    steps: tuple[InputPredicates | InputProject, ...]
    keys: InputKeys


def laid_input(
    join_input: JoinInput,
    layout: InputLayout,
    keys: Mapping[int, KeyClass],
    codes: Mapping[str, Column],
    raws: SharedColumns,
    options: FilterOptions,
) -> LaidInput:
    """Return the steps of an input over common columns; missing ones are added to ``raws``.

    ``codes`` are those of the keys of the input.

    Raises:
        QueryError: a step that does not fit the columns before it.
    """
    df, types = join_input.df, dict(join_input.df.dtypes)
    # Where nothing is projected, columns are where results find them from the start.
    places = (
        {}
        if join_input.is_projected
        else {name: place for name, place in layout.slots.items() if not name.startswith(TEXT_OF)}
    )
    for name in _read(join_input, keys):
        places.setdefault(name, "")
    for name, place in places.items():
        places[name] = place or raws.take(types[name], places.values())
    start = dict(places)
    laid: list[InputPredicates | InputProject] = []
    for step in join_input.steps:
        own_columns = OwnColumns(layout.number, places)
        if isinstance(step, FilterStep):
            counts = layout.is_raw and step.input == join_input.relation
            marks, dropped = PASSES if layout.is_awaited else "", "false" if counts else "NULL"
            columns = df.select(*[F.col(quoted(name)) for name in places])
            bound = bind_to(columns, named(step.predicates), options)
            laid.append(InputPredicates(step.input, own_columns, bound, marks, dropped, not laid))
        else:
            projected, places, df = _projected(df, step, own_columns, raws)
            laid.append(projected)
    own_columns = OwnColumns(layout.number, places)
    slots = {place: name for name, place in layout.slots.items() if places.get(name) != place}
    may_raise = any(
        facts_of(df, text).may_raise
        for key in keys.values()
        for text in key.members[join_input.name]
    )
    return LaidInput(start, tuple(laid), InputKeys(own_columns, codes, slots, may_raise, layout))


def _projected(
    df: DataFrame, step: ProjectStep, own_columns: OwnColumns, raws: SharedColumns
) -> tuple[InputProject, dict[str, str], DataFrame]:
    """Return a projection, the place of each of its columns, and a DataFrame with these."""
    shape = df.selectExpr(*step.projections)
    texts = _columns_of(step, df)
    places: dict[str, str] = {}
    computed: dict[str, str] = {}
    for (name, kind), text in zip(shape.dtypes, texts, strict=True):
        if isinstance(parse_output(text), exp.Column):
            (column,) = facts_of(df, text).columns
            if dict(df.dtypes)[column] == kind:  # else it is a field of a struct
                places[name] = own_columns.places[column]
                continue
        places[name] = raws.take(kind, {*own_columns.places.values(), *places.values()})
        computed[places[name]] = text
    may_raise = any(facts_of(df, text).may_raise for text in computed.values())
    return InputProject(step.output, own_columns, computed, may_raise=may_raise), places, shape


def _columns_of(step: ProjectStep, df: DataFrame) -> list[str]:
    """Return the SQL of each column of a projection, one for each column of a star."""
    return [
        column
        for text in step.projections
        for column in ([quoted(name) for name in df.columns] if text.strip() == "*" else [text])
    ]


def _read(join_input: JoinInput, keys: Mapping[int, KeyClass]) -> dict[str, None]:
    """Return the columns of the stream that the steps and keys of an input read."""
    texts: list[str] = []
    for step in join_input.steps:
        if not isinstance(step, FilterStep):
            texts += _columns_of(step, join_input.df)
            return _columns_in(join_input.df, texts)
        for predicate in step.predicates:
            if isinstance(predicate, FunctionPredicate):
                texts += predicate.reads
            else:
                texts.append(predicate.text)
    texts += [text for key in keys.values() for text in key.members[join_input.name]]
    return _columns_in(join_input.df, texts)


def _columns_in(df: DataFrame, texts: Iterable[str]) -> dict[str, None]:
    """Return the columns that some expressions read, in order of first mention."""
    columns: dict[str, None] = {}
    for text in texts:
        # A column by its exact name need not be SQL.
        names = (text,) if text in df.columns else facts_of(df, text).columns
        columns.update(dict.fromkeys(names))
    return columns


def facts_of(df: DataFrame, text: str) -> SqlAnalysis:
    """Return the facts of an expression, which may have an alias."""
    ansi, tree = is_ansi(df.sparkSession), parse_output(text)
    types = column_types(df)
    return resolve_columns(text, types, name=text, ansi=ansi, qualifiers=None, tree=tree)


def column_of(name: str) -> Column:
    """Return a column that an input carries, or the text of one."""
    plain = F.col(quoted(name.removeprefix(TEXT_OF)))
    return F.when(plain.isNotNull(), F.to_json(F.array(plain))) if TEXT_OF in name else plain


def passes_of(layout: InputLayout, are_there: Iterable[Column]) -> Column:
    """Return whether a row of an input can join: NULL if it is not even counted.

    ``are_there`` says of each of its keys whether it is there, and of the row whether a query
    needs it.
    """
    can_join = reduce(and_, are_there)
    is_only_time = layout.is_awaited and not layout.is_raw
    return F.when(can_join, F.lit(True)) if is_only_time else can_join


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
        assert self.part.laid_out.clock is not None
        return self.part.laid_out.clock

    def rows(self) -> DataFrame:
        """Return its rows in the batch that is being laid, and one that tells the time alone.

        Event time goes on where there are no results, too, and rows of UNION ALL and of filters are
        ahead of it: these pass at once, while earlier ones may still come.
        """
        rows = self.part.results.select(*self.tags).where(F.col(PASSES).isNotNull())
        if self.clock.has_late:
            rows = rows.where(F.col(START).isNull() | (F.col(START) >= self.clock.before))
        after = self.clock.after
        if after in (ALWAYS, FOREVER):
            return rows
        # As values, and not as numbers in the code that Spark makes of a statement.
        nothing = "".join(f", CAST(NULL AS {kind})" for kind in self.types.values())
        names = ", ".join([INPUT, PASSES, START, *self.types])
        time_row = rows.sparkSession.sql(
            f"SELECT * FROM VALUES ({self.number}, CAST(NULL AS BOOLEAN), {after}L{nothing}) "
            f"AS told({names})"
        )
        return rows.unionByName(time_row)


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
    made_inputs: tuple[MadeInput, ...] = ()
    """These inputs."""
    in_files: tuple[tuple[int, str | None], ...] = ()
    """Of each stream that nothing makes: its number, and its event time in the files that it is
    read from, if it is; in the order in which they are united."""
    kinds: tuple[str, ...] = ()
    """The type in which the members of each key class are compared."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Of the common columns, but for those of every row."""
    refreshed: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    """By name, the common columns over the rows of the tables that are refreshed: these are read in
    jobs of their own, and are not among ``tables``."""

    def layout(self, name: str) -> InputLayout:
        """Return the places of the columns of an input."""
        return next(layout for layout in self.layouts if layout.name == name)

    @property
    def awaited(self) -> tuple[int, ...]:
        """Numbers of the inputs whose rows come even if they cannot join."""
        return tuple(layout.number for layout in self.layouts if layout.is_awaited or layout.is_raw)

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
        return [
            self.trunk,
            *(
                operator
                for made_input in self.made_inputs
                for operator in made_input.part.operators()
            ),
        ]

    def of_streams(self, df: DataFrame) -> DataFrame | None:
        """Return the rows of the streams that nothing makes; None if there are none."""
        if self.trunk is None:
            return df
        return None if self.streams is None else self.trunk.rows(0, df)

    def joined(self, df: DataFrame) -> DataFrame:
        """Return the rows of all streams, also of streams made by operators."""
        results = [made_input.rows() for made_input in self.made_inputs]
        streams = self.of_streams(df)
        rows = _union([*([] if streams is None else [streams]), *results])
        assert rows is not None
        return rows

    def timed(self, df: DataFrame, *, is_first: bool) -> DataFrame:
        """Return a batch's rows with an event time; the first batch adds the tables."""
        if is_first and self.tables is not None:
            df = df.unionByName(self.tables)
        return df.where(f"{START} IS NOT NULL")

    def keyed(self, df: DataFrame) -> DataFrame:
        """Return rows of the inputs with all their keys, once all steps are laid over them."""
        for laid in self.laid:
            df = laid.keys.lay(df)
        return df.drop(*(name for name in df.columns if name.startswith(RAW)))


def source_of(step: JoinStep, inputs: Sequence[JoinInput], options: FilterOptions) -> Source:
    """Return the inputs of a join as one DataFrame.

    Every row is there. One that has a NULL in a key never joins and is marked, of inputs without
    steps at once, of the others when their keys are known.

    Raises:
        QueryError: keys that cannot be compared, an event time that is no time, or a step that does
            not fit the columns of its input.
        NotSupportedError: rows that are grouped by a column that has no order.
    """
    kinds = [key_type(key, inputs) for key in step.keys]
    places = Layouts(step, kinds)
    layouts = tuple(places.add(number, join_input) for number, join_input in enumerate(inputs))
    laid: dict[int, LaidInput] = {}
    codes: dict[int, dict[str, Column]] = {}
    for join_input, layout in zip(inputs, layouts, strict=True):
        keys = {k: step.keys[k] for k in layout.keys}
        codes[layout.number] = codes_of(join_input.name, keys, kinds)
        if join_input.steps:
            laid[layout.number] = laid_input(
                join_input, layout, keys, codes[layout.number], places.raws, options
            )
    types = dict.fromkeys([f"{KEY}{k}" for k in range(len(kinds))], "bigint")
    types |= places.slots.types | places.raws.types
    parts: dict[bool, list[DataFrame]] = {True: [], False: []}
    tags: dict[int, list[Column]] = {}
    in_files: list[tuple[int, str | None]] = []
    refreshed: dict[str, tuple[Column, ...]] = {}
    for join_input, layout in zip(inputs, layouts, strict=True):
        if layout.number in laid:
            values = {place: column_of(name) for name, place in laid[layout.number].start.items()}
            passes = F.lit(True)
        else:
            values = {place: column_of(name) for name, place in layout.slots.items()}
            values |= codes[layout.number]
            are_there = [code.isNotNull() for code in codes[layout.number].values()]
            if layout.marks_in:
                values[layout.marks_in] = F.expr(join_input.marks)
                are_there.append(values[layout.marks_in] != 0)
            passes = passes_of(layout, are_there)
        columns = _tagged(join_input, layout.number, values, passes, types)
        if join_input.refresh is not None:
            refreshed[join_input.name] = (*columns,)
        elif join_input.laid_out is None:
            parts[join_input.time is not None].append(join_input.df.select(*columns))
            if join_input.time is not None:
                in_files.append((layout.number, file_column(join_input.df, join_input.time)))
        else:
            tags[layout.number] = columns
    streams, tables = _union(parts[True]), _union(parts[False])
    trunk, made_inputs = _made(inputs, tags, streams, types)
    steps = tuple(laid.values())
    return Source(
        streams,
        tables,
        layouts,
        places.rough,
        steps,
        trunk,
        made_inputs,
        tuple(in_files),
        tuple(kinds),
        types,
        refreshed,
    )


def _made(
    inputs: Sequence[JoinInput],
    tags: Mapping[int, list[Column]],
    streams: DataFrame | None,
    types: Mapping[str, str],
) -> tuple[Trunk | None, tuple[MadeInput, ...]]:
    """Return the rows of all inputs, and the inputs that are made; nothing if none is.

    ``tags`` are the common columns of the inputs that are made, by number.
    """
    if not tags:
        return None, ()
    laid = {
        number: laid_out
        for number, join_input in enumerate(inputs)
        if (laid_out := join_input.laid_out) is not None
    }
    first = [] if streams is None else [streams]
    trunk = Trunk([*first, *(laid_out.source for laid_out in laid.values())])
    places = enumerate(laid.items(), len(first))
    parts = {n: Part(trunk, place, inputs[n].name, laid_out) for place, (n, laid_out) in places}
    return trunk, tuple(MadeInput(n, part, tuple(tags[n]), types) for n, part in parts.items())


def _tagged(
    join_input: JoinInput,
    number: int,
    values: Mapping[str, Column],
    passes: Column,
    types: Mapping[str, str],
) -> list[Column]:
    """Return the common columns over the rows of an input.

    ``values`` is what it has in common columns, ``passes`` whether a row can join as far as that is
    known.
    """
    tags = {INPUT: F.lit(number), PASSES: passes, START: _start(join_input)}
    filled = {name: values.get(name, F.lit(None)).cast(kind) for name, kind in types.items()}
    return [column.alias(name) for name, column in (tags | filled).items()]


def _union(parts: Sequence[DataFrame]) -> DataFrame | None:
    return reduce(lambda one, other: one.unionByName(other), parts) if parts else None


def _start(join_input: JoinInput) -> Column:
    """Return the event time of rows (µs)."""
    if join_input.time is None:
        return F.lit(ALWAYS)
    micros = micros_of(join_input.df, join_input.time, join_input.stream)
    clock = None if join_input.laid_out is None else join_input.laid_out.clock
    return micros if clock is None else micros + F.lit(clock.offset)


def declared_keys(
    step: JoinStep, inputs: Sequence[JoinInput], rough: Collection[int]
) -> dict[str, UniqueKey]:
    """Return the declared keys by which inputs are joined, by input.

    ``rough`` are the key classes whose codes are hashes.
    """
    declared = {}
    for join_input in inputs:
        # Of columns that are computed nothing was declared.
        if join_input.key is None or join_input.is_projected:
            continue
        texts = {join_input.key, quoted(join_input.key)}
        for number, key_class in enumerate(step.keys):
            if texts & {*key_class.members.get(join_input.name, ())}:
                schema = StructType([join_input.shape.schema[join_input.key]])
                kind = to_arrow_schema(schema, timezone="UTC").field(0).type
                exact = None if number in rough else kind
                is_local = (
                    join_input.time is not None
                    and time_type(join_input.df, join_input.time, join_input.stream) == LOCAL
                )
                declared[join_input.name] = UniqueKey(
                    join_input.stream, join_input.key, number, exact, is_local
                )
    return declared


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
        if not all(key in layout.keys for layout in source.layouts):
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
            return [F.col(name) for name in names if name != PASSES]
        # A row that comes for its event time alone brings nothing else.
        time_columns, passes = {INPUT, PASSES, START}, F.col(PASSES)
        return [
            F.col(name)
            if name in time_columns
            else F.when(passes.isNotNull(), F.col(name)).alias(name)
            for name in names
        ]


def _bin_of(code: Column) -> Column:
    """Return the bin of a code; see ``grid.bins_of``."""
    return F.pmod(F.xxhash64(code), F.lit(N_BINS)).cast("int")


def _parts_of(split: Split, size: int, layouts: Sequence[InputLayout]) -> Column:
    """Return the places of a row of a split bin along a key class of so many parts."""
    cases = []
    for layout in layouts:
        n_parts, step = split.side(layout.name)
        first = _bin_of(F.col(START)) % n_parts * step + split.bin
        places = F.array(*[(first + copy) % size for copy in split.copies(layout.name)])
        cases.append(F.when(F.col(INPUT) == layout.number, places))
    return F.coalesce(*cases)

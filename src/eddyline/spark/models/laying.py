"""Segments as Spark plans: one shuffle and one Arrow task.

The shuffle moves rows, or segments. A ``Source`` is where segments come from: rows that are fitted,
or segments that are there. ``laid`` runs a graph over sources, in the stages that it has on a
stream (``streams.plan.staged``): pairs and values over entities are tasks of their own, which
``paired`` and ``over_entities`` run.

``Versions`` says which segments hold of those that were written more than once, and checks that no
two of them do at one instant. ``latest`` keeps the newest word of all early results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, LongType, StructField, StructType

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models import graph
from eddyline.models.fitting.stored import Stored
from eddyline.models.graph import SIDE
from eddyline.models.revisions import BOUNDS, VALIDATED, VERSION
from eddyline.models.segments import COEF, ERR, FLAGS, TIMES, TOMB, Layout, entity_blocks, gathered
from eddyline.models.solving import earth
from eddyline.models.steps import CELL, OverEntities, Shape
from eddyline.models.streams.plan import staged
from eddyline.registry import unknown
from eddyline.spark.arrow_tasks import begin_task, map_batches, map_groups
from eddyline.spark.models.files import FitOfFiles, segments_of_files
from eddyline.spark.relation import checked_frame
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType

    from eddyline.models.fitting.declared import Declared
    from eddyline.models.fitting.fit import Fit
    from eddyline.models.steps import DifferentEntities
    from eddyline.spark.models.files import FileModelRows

    Maker = Fit | Declared | Stored
    """How rows become segments."""
    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class RawRows:
    """The rows that segments stand for, and what is known of them."""

    def __init__(self, df: DataFrame, time: str, columns: Mapping[str, str] | None = None) -> None:
        self.df, self.time = df, time
        self.columns = columns or {}
        """SQL of attributes that are computed from columns."""
        self.uncovered: dict[str, pa.Table] = {}
        """For attributes the instants of rows that the errors of segments do not hold for."""

    def where(self, conditions: Sequence[str]) -> RawRows:
        """Return the rows of the entities on whose keys conditions are true."""
        if not conditions:
            return self
        df = reduce(lambda df, text: df.where(text), conditions, self.df)
        return RawRows(df, self.time, self.columns)

    @cached_property
    def types(self) -> dict[str, DataType]:
        """The types of columns by name."""
        return {field.name: field.dataType for field in self.df.schema}


@dataclass(frozen=True, eq=False)
class Source:
    """Source of segments: rows to fit, or existing segments."""

    df: DataFrame
    shape: Shape
    maker: Maker | None = None
    """How rows become segments; None if ``df`` has them."""
    name: str = "models"
    """Of the query, if the rows are a stream."""
    lateness: str | None = None
    """How late a row of a stream may be."""
    is_early: bool = False
    """Whether results of a stream are given before they are final."""
    raw: RawRows | None = None
    """The rows that segments stand for, if that is known of segments that are there."""
    conditions: tuple[str, ...] = ()
    """On the keys of the entities that it has, as SQL."""
    first: Source | None = None
    """The same of all entities, if it has some."""
    holding: Callable[[DataFrame], DataFrame] | None = None
    """Returns those of segments that hold, if ``df`` has them as they were written."""
    lane: str = "auto"
    """Whether tasks read the files of rows; the option of that name."""

    @property
    def every(self) -> Source:
        """The same of all entities."""
        return self.first or self

    @cached_property
    def raws(self) -> dict[int, RawRows]:
        """Other rows that segments were said to stand for, by the ``id`` of their DataFrame."""
        return {}

    @property
    def time_type(self) -> DataType:
        """The type of timestamps."""
        return self.df.schema["lo" if self.maker is None else self.maker.time].dataType

    @property
    def key_fields(self) -> list[StructField]:
        """Name and type of each key."""
        return [self.df.schema[key] for key in self.shape.keys]

    @property
    def is_streaming(self) -> bool:
        """Whether the rows are a stream."""
        return self.df.isStreaming

    def where(self, text: str) -> Source:
        """Return the source with the entities on whose keys a condition is true."""
        conditions = (*self.conditions, text)
        return replace(self, df=self.df.where(text), conditions=conditions, first=self.every)

    def reading(self) -> FileModelRows | None:
        """Return what reads the files of the rows; None if Spark does."""
        assert self.maker is not None
        assert not isinstance(self.maker, Stored)  # of streams alone
        return FitOfFiles(self.maker, self.lane, self.conditions).rows_to_read(self.every.df)

    @property
    def segments(self) -> DataFrame:
        """The segments as rows."""
        if self.maker is None:
            df = self.df if self.holding is None else self.holding(self.df)
            return df.select(*map(_column, self.shape.layout.columns))
        return laid([self], graph.Input(0, self.shape))


def laid(
    sources: Sequence[Source], node: graph.Node, made_keys: Sequence[StructField] = ()
) -> DataFrame:
    """Return what comes out of a graph over sources, whose keys have the same names and types.

    Args:
        sources: what is read.
        node: what is done.
        made_keys: the keys that steps put before those of entities.
    """
    return in_degrees(as_modelled(sources, node, made_keys), node.shape)


def in_degrees(results: DataFrame, shape: Shape) -> DataFrame:
    """Replace positions by degrees, and vectors by lengths, in results that are rows."""
    if not has_positions(shape):
        return results
    instead = earth.outputs(shape.attributes)
    texts: list[str] = []
    for name in results.columns:
        if name in instead:
            for output in instead[name]:
                texts.append(f"{output.value} AS {quoted(output.name)}")
                texts.append(f"{output.error} AS {quoted(ERR + output.name)}")
        elif name.removeprefix(ERR) not in instead:
            texts.append(quoted(name))
    return results.selectExpr(*texts)


def has_positions(shape: Shape) -> bool:
    """Return whether results that are rows have positions, or vectors."""
    return shape.kind != "segments" and bool(earth.outputs(shape.attributes))


def as_modelled(
    sources: Sequence[Source], node: graph.Node, made_keys: Sequence[StructField] = ()
) -> DataFrame:
    """Return the same results with the modelled attributes."""
    sources, node = _last_stage(sources, node)
    first = sources[0]
    keys, how = first.shape.keys, first.maker
    schema = schema_of(node.shape, [*made_keys, *first.key_fields], first.time_type)
    is_whole = graph.sees_entities(node)
    if how is not None and len(sources) == 1:
        assert not isinstance(how, Stored)  # of streams alone
        task, reading = _solving(node, [first.shape], how.tables), first.reading()
        if reading is not None:
            return segments_of_files(first.df.sparkSession, reading, task, schema)
        ordered = by_entity(rows_to_fit(first.df, how), keys, how.time)
        return map_batches(ordered, task, schema)
    segments = first.segments if len(sources) == 1 else _together(sources)
    if isinstance(node, graph.Input):
        return segments
    placed = by_entity(segments, keys) if is_whole else segments
    return map_batches(placed, _solving(node, [source.shape for source in sources]), schema)


def _last_stage(sources: Sequence[Source], node: graph.Node) -> tuple[Sequence[Source], graph.Node]:
    """Return the last stage of a graph, and what it reads: the results of those before it."""
    if not any(map(graph.is_crossing, graph.parts(node))):
        return sources, node
    inputs = [*sources]
    *before, last = staged(node, len(sources))
    for stage in before:
        read = [inputs[number] for number in stage.inputs]
        match stage.node:
            case graph.Unary(OverEntities() as step):
                df = over_entities(read[0], step)
            case graph.OtherEntities(_, _, step, conditions):
                pairs = paired(read[0], None if step.is_self else read[-1], step)
                df = reduce(lambda df, text: df.where(text), conditions, pairs)
            case _:
                df = as_modelled(read, stage.node)
        inputs.append(Source(df, stage.node.shape))
    return [inputs[number] for number in last.inputs], last.node


def over_entities(source: Source, step: OverEntities) -> DataFrame:
    """Return the value of entities: what counts of each task's ones, then of all tasks'."""
    shape, by = source.shape, step.by
    layout = shape.layout
    partial = over_tables(lambda tables: graph.stepped(tables, step.partial, layout))
    final = over_tables(lambda tables: graph.stepped(tables, step.run, layout), by)
    carried = schema_of(shape, source.key_fields, source.time_type)
    few = map_batches(source.segments, partial, carried)
    grouped = [field for field in source.key_fields if field.name in by]
    results = schema_of(step.shape(shape), grouped, source.time_type)
    return map_batches(by_entity(few, by), final, results)


def paired(left: Source, right: Source | None, step: DifferentEntities) -> DataFrame:
    """Return the pairs of different entities: each pair of groups of entities in a task.

    Args:
        left: segments.
        right: the other side; None is the same one.
        step: what pairs are wanted.
    """
    sources = (left, left if right is None else right)
    partitions = int(left.df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    n = math.isqrt(max(partitions, 1) - 1) + 1
    shapes = (sources[0].shape, sources[1].shape)

    def task(table: pa.Table) -> pa.Table:
        return graph.paired(table, step, shapes, n)

    keys = [quoted(key) for key in shapes[0].keys]
    group = f"CAST(pmod(xxhash64({', '.join(keys)}), {n}) AS INT)" if keys else "0"
    if right is None:
        cell = f"struct(least({{0}}, _x) * {n} + greatest({{0}}, _x), IF(_x < {{0}}, 1, 0))"
        placed = _in_cells(left.segments, group, cell, n)
    else:
        placed = _in_cells(left.segments, group, f"struct({{0}} * {n} + _x, 0)", n)
        others = _in_cells(right.segments, group, f"struct(_x * {n} + {{0}}, 1)", n)
        placed = placed.unionByName(others, allowMissingColumns=True)
    fields = fields_of_pairs(step.names, [source.key_fields for source in sources])
    schema = schema_of(step.shape(*shapes), fields, sources[0].time_type)
    return map_groups(placed, CELL, task, schema)


def fields_of_pairs(
    names: tuple[str, str], sides: Sequence[Sequence[StructField]]
) -> list[StructField]:
    """Return name and type of the keys of pairs, by those of both sides."""
    return [
        StructField(f"{name}_{field.name}", field.dataType)
        for name, side in zip(names, sides, strict=True)
        for field in side
    ]


def _in_cells(segments: DataFrame, group: str, cell: str, n: int) -> DataFrame:
    """Return segments once for each cell that they are in.

    Args:
        segments: with their keys.
        group: SQL of the group of an entity.
        cell: SQL of cell and side, by the group and ``_x``, another one.
        n: the number of groups.
    """
    cells = f"transform(sequence(0, {n - 1}), _x -> {cell.format(group)})"
    exploded = segments.selectExpr("*", f"explode({cells}) AS {CELL}")
    return exploded.withColumns({SIDE: F.col(f"{CELL}.col2"), CELL: F.col(f"{CELL}.col1")})


def over_tables(
    work: Callable[[Iterator[pa.Table]], Iterator[pa.RecordBatch]],
    keys: Sequence[str] | None = None,
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Table]] = gathered,
) -> Task:
    """Return a task that does some work on tables.

    Args:
        work: on the tables of a task.
        keys: if they are given, all rows of an entity are in one table.
        read: makes tables of what the task gets.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        tables = read(batches)
        yield from work(tables if keys is None else entity_blocks(tables, keys))

    return task


def _solving(
    node: graph.Node,
    shapes: Sequence[Shape],
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Table]] = gathered,
) -> Task:
    layouts = [shape.layout for shape in shapes]
    keys = layouts[0].keys if graph.sees_entities(node) else None
    return over_tables(lambda tables: graph.solved(tables, node, layouts), keys, read)


def rows_to_fit(rows: DataFrame, how: Maker, *more: str, instant: str | None = None) -> DataFrame:
    """Return the columns that are read of rows, and others as SQL.

    Rows without an instant are in no segment. ``instant`` is a column that has it where the time
    is hidden, as that of rows which only tell the time.
    """
    columns = [*map(quoted, dict.fromkeys((*how.keys, how.time)))]
    columns += [f"{text} AS {quoted(name)}" for name, text in how.columns.items()]
    return rows.where(_column(instant or how.time).isNotNull()).selectExpr(*columns, *more)


def _together(sources: Sequence[Source]) -> DataFrame:
    """Return the segments of several sources, and of which each is."""
    return united(
        [
            source.segments.withColumn(SIDE, F.lit(number).cast("int"))
            for number, source in enumerate(sources)
        ]
    )


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of DataFrames, NULL where one has no such column."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def by_entity(df: DataFrame, keys: Sequence[str], *then: str) -> DataFrame:
    """Return rows with all of an entity in one partition, behind each other."""
    columns = [_column(key) for key in keys]
    placed = df.repartition(*columns) if columns else df.repartition(1)
    order = [*columns, *(_column(column) for column in then)]
    return placed.sortWithinPartitions(*order) if order else placed


def schema_of(shape: Shape, keys: Sequence[StructField], time: DataType) -> StructType:
    """Return the columns of results as Spark types."""
    fields = [*keys]
    if shape.kind == "segments":
        fields += [StructField(column, time) for column in TIMES]
        fields += [StructField(flag, BooleanType()) for flag in FLAGS]
    else:
        fields += [StructField(column, time) for column in shape.times]
    for attribute in shape.attributes:
        name, kind = (COEF + attribute, ArrayType(DoubleType())) if shape.kind == "segments" else (
            attribute, DoubleType())  # fmt: skip
        fields += [StructField(name, kind), StructField(ERR + attribute, DoubleType())]
    return StructType(fields)


def _column(name: str) -> Column:
    return F.col(quoted(name))


# -- versions of segments as they were written ----------------------------------------------------


_VERSION, _BEFORE, _END = "__version", "__before", "__end"
_FIRST = np.iinfo(np.int64).min
"""The version of segments that have none: they were written before all others."""


class Versions:
    """Segments as they were written.

    Args:
        df: their rows.
        layout: the columns of these that segments have.
        version: that which says which segment was written later; None if nothing does.
    """

    def __init__(self, df: DataFrame, layout: Layout, version: str | None) -> None:
        self._df, self._layout, self._version = df, layout, version

    def holding(self, df: DataFrame) -> DataFrame:
        """Return the segments that hold, of all entities or of some.

        Raises:
            QueryError: two overlap, and nothing says which of them holds.
        """
        self._check()
        if self._version is None:
            return df.where(f"NOT {TOMB}")
        layout = self._layout
        version = F.coalesce(F.col(quoted(self._version)).cast("long"), F.lit(_FIRST))
        columns = [F.col(quoted(column)) for column in layout.columns]
        rows = by_entity(df.select(*columns, version.alias(_VERSION)), layout.keys)
        fields = [df.schema[key] for key in layout.keys]
        schema = schema_of(Shape(layout.keys, layout.attributes), fields, df.schema["lo"].dataType)
        task = over_tables(lambda tables: graph.newest(tables, layout, _VERSION), layout.keys)
        return map_batches(rows, task, schema)

    def _check(self) -> None:
        """Look once whether two segments overlap of which nothing says which holds."""
        overlap = self._overlapping
        if overlap is None:
            return
        ranges = " and ".join(f"[{row.lo}, {row.hi})" for row in (overlap[_BEFORE], overlap))
        keys = ", ".join(f"{name} = {overlap[name]!r}" for name in self._layout.keys)
        whose = f" of {keys}" if keys else ""
        if self._version is None:
            way = (
                "; say which column does, el.models.read(df, version='…'), as early results do "
                "by version and validated; or leave out rows that are there twice"
            )
        else:
            way = f", as {self._version!r} is {overlap[_VERSION]} in both; give each its own"
        msg = f"models.read: segments{whose} overlap, {ranges}, and nothing says which counts{way}"
        raise QueryError(msg, keys={name: overlap[name] for name in self._layout.keys})

    @cached_property
    def _overlapping(self) -> Row | None:
        """A segment, and before it one that it overlaps; None if there are none."""
        if self._version is None:
            return _overlapping(self._df, self._keys)
        # Tombstones give way to segments of their version, and what was written twice is the same.
        rows = self._df.where(f"NOT {TOMB}")
        return _overlapping(rows, self._keys) and _overlapping(rows.dropDuplicates(), self._keys)

    @property
    def _keys(self) -> list[Column]:
        """Columns that say which segments must not overlap."""
        keys = [F.col(quoted(key)) for key in self._layout.keys]
        if self._version is None:
            return keys
        return [*keys, F.col(quoted(self._version)).alias(_VERSION)]


def _overlapping(rows: DataFrame, keys: list[Column]) -> Row | None:
    """Return the first segment that begins before one that is no later has ended, if there is one.

    Only keys and times are read. Segments of an entity are in one partition in general, or in some
    one behind the other: so what each partition has of an entity is looked at as one range first,
    and segments are brought together only where these overlap.
    """
    end = F.when(F.col("is_point"), F.expr("hi + INTERVAL '0.000001' SECOND")).otherwise(
        F.col("hi")
    )
    ranges = rows.select(*keys, "lo", "hi", end.alias(_END))
    names = ranges.columns[: len(keys)]
    task = over_tables(lambda tables: graph.spans(tables, names, ("hi", _END)))
    spans = map_batches(ranges, task, ranges.schema)
    return _first(spans, names) and _first(ranges, names)


def _first(ranges: DataFrame, names: list[str]) -> Row | None:
    """Return the first range that begins before one that is no later has ended, and that one."""
    keys = [F.col(quoted(name)) for name in names] or [F.lit(0)]
    earlier = Window.partitionBy(*keys).orderBy("lo", _END)
    earlier = earlier.rowsBetween(Window.unboundedPreceding, -1)
    reached = F.max(F.struct(_END, "lo", "hi")).over(earlier)
    overlaps = ranges.withColumn(_BEFORE, reached).where(f"{_BEFORE}.{_END} > lo")
    texts = {end: F.col(end).cast("string") for end in ("lo", "hi")}
    before = (F.col(f"{_BEFORE}.{end}").cast("string").alias(end) for end in ("lo", "hi"))
    texts[_BEFORE] = F.struct(*before)
    return overlaps.withColumns(texts).first()


# -- columns of early results ---------------------------------------------------------------------


_IS_LABEL = "eddyline.is_label"
"""Metadata of a column of ``latest``, which files of Parquet keep: it is no key of segments."""
RESULTS = ("final", "early")
"""When results of a stream are given."""


def read_results(results: str, *, is_streaming: bool) -> bool:
    """Return whether results are given early.

    Raises:
        OptionError: it is no time to give results, or early ones are asked of rows that are all
            there.
    """
    if results not in RESULTS:
        raise OptionError(unknown("results", str(results), RESULTS), results=results)
    if results == "early" and not is_streaming:
        msg = "results='early' needs a stream; all results of a batch DataFrame are final"
        raise OptionError(msg, results=results)
    return results == "early"


def with_revisions(schema: StructType) -> StructType:
    """Return the columns of results with those that early ones have beside them."""
    more = [StructField(VERSION, LongType()), StructField(VALIDATED, BooleanType())]
    tomb = [] if TOMB in schema.fieldNames() else [StructField(TOMB, BooleanType())]
    return StructType([*schema.fields, *tomb, *more])


def as_final(results: DataFrame) -> DataFrame:
    """Return results over batch DataFrames as early ones are: none is taken back any more."""
    tomb = {} if TOMB in results.columns else {TOMB: F.lit(False)}
    return results.withColumns({**tomb, VERSION: F.lit(-1).cast("long"), VALIDATED: F.lit(True)})


def latest(results: DataFrame) -> DataFrame:
    """Return the results that hold, of early results as they were written.

    Of each entity and instant at which a result begins the newest row counts; a tombstone is none.
    Nothing depends on the order of rows, and rows that were written twice are one.

    Args:
        results: all rows that a query with ``results="early"`` has given: segments, or those of
            ``sample`` and ``changes``; columns that are none of results are keys.

    Returns:
        The columns of the same results without early ones, and ``validated``: whether event time,
        or rows of the entity, have come to the end of the result. Segments can be read,
        ``el.models.read(el.models.latest(df))``: ``validated`` says by its metadata that it is no
        key.

    Raises:
        QueryError: these are no early results.
        NotSupportedError: they are a stream; read what was written.

    Example:
        >>> rows = spark.read.parquet("out/")  # doctest: +SKIP
        >>> el.models.latest(rows).where("validated").show()  # doctest: +SKIP
    """
    frame = checked_frame("the input of models.latest", results)
    if frame.isStreaming:
        msg = "models.latest takes rows that were written, not a stream: read them as a batch"
        raise NotSupportedError(msg)
    keys, (begin, _) = _identity(frame.columns)
    identity = [*keys, begin]
    others = [column for column in frame.columns if column not in identity]
    newest = F.max_by(F.struct(*map(_column, others)), _column(VERSION)).alias("__newest")
    held = frame.groupBy(*map(_column, identity)).agg(newest).where(f"NOT __newest.{TOMB}")
    is_segment = begin == BOUNDS["segments"][0]
    dropped = {VERSION} if is_segment else {VERSION, TOMB}
    columns = [
        _column(column) if column in identity else F.col(f"__newest.{quoted(column)}").alias(column)
        for column in frame.columns
        if column not in dropped
    ]
    return held.select(*columns).withMetadata(VALIDATED, {_IS_LABEL: True})


def without_label(segments: DataFrame) -> DataFrame:
    """Return segments without what ``latest`` says beside them."""
    fields = segments.schema.fields
    labels = [field.name for field in fields if (field.metadata or {}).get(_IS_LABEL)]
    return segments.drop(*labels) if labels else segments


def _identity(columns: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, str]]:
    """Return the columns of the entity, and those of where a result begins and ends.

    Raises:
        QueryError: these are no early results.
    """
    lacking = [column for column in (VERSION, TOMB, VALIDATED) if column not in columns]
    kind = next((bounds for bounds in BOUNDS.values() if {*bounds} <= {*columns}), None)
    if lacking or kind is None:
        pairs = " or ".join(" and ".join(dict.fromkeys(bounds)) for bounds in BOUNDS.values())
        msg = (
            f"models.latest takes early results, with {VERSION}, {TOMB} and {VALIDATED}, and "
            f"{pairs}; got {', '.join(columns)}"
        )
        raise QueryError(msg, columns=list(columns))
    not_keys = {VERSION, VALIDATED, *kind}
    if kind == BOUNDS["segments"]:
        return Layout.from_columns(
            [column for column in columns if column not in not_keys - {*kind}]
        ).keys, kind
    attributes = {column for column in columns if ERR + column in columns}
    not_keys |= {TOMB, *attributes, *(ERR + attribute for attribute in attributes)}
    return tuple(column for column in columns if column not in not_keys), kind

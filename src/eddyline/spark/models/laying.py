"""Segments as Spark plans: one shuffle of rows, or of segments, and one Arrow task."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, StructField, StructType

from eddyline.models import blocks, earth, graph, tasks
from eddyline.models.pairs import CELL
from eddyline.models.rows import COEF, ERR, FLAGS, TIMES
from eddyline.models.tasks import SIDE
from eddyline.spark.arrow_tasks import begin_task, map_batches, map_groups
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eddyline.models.declared import Declared
    from eddyline.models.fitted import Fit
    from eddyline.models.pairs import DifferentEntities
    from eddyline.models.steps import Shape
    from eddyline.models.window_steps import OverEntities

    Maker = Fit | Declared
    """How rows become segments."""
    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Relation(Protocol):
    """Segments as a graph reads them."""

    @property
    def shape(self) -> Shape:
        """Their columns."""

    @property
    def maker(self) -> Maker | None:
        """How rows become segments; None if there are segments already."""

    @property
    def df(self) -> DataFrame:
        """The rows, or the segments as rows."""

    @property
    def segments(self) -> DataFrame:
        """The segments as rows."""

    @property
    def time_type(self) -> DataType:
        """The type of timestamps."""

    @property
    def key_fields(self) -> list[StructField]:
        """Name and type of each key."""


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
        return {each.name: each.dataType for each in self.df.schema}


@dataclass(frozen=True, eq=False)
class Source:
    """Where segments come from: rows that are fitted, or segments that are there."""

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
        return [self.df.schema[each] for each in self.shape.keys]

    @property
    def is_streaming(self) -> bool:
        """Whether the rows are a stream."""
        return self.df.isStreaming

    def where(self, text: str) -> Source:
        """Return the source with the entities on whose keys a condition is true."""
        conditions = (*self.conditions, text)
        return replace(self, df=self.df.where(text), conditions=conditions, first=self.every)

    @property
    def segments(self) -> DataFrame:
        """The segments as rows."""
        if self.maker is None:
            df = self.df if self.holding is None else self.holding(self.df)
            return df.select(*map(_column, self.shape.layout.columns))
        return laid([self], graph.Input(0, self.shape))


def laid(
    sources: Sequence[Relation], node: graph.Node, made: Sequence[StructField] = ()
) -> DataFrame:
    """Return what comes out of a graph over sources, whose keys have the same names and types.

    Args:
        sources: what is read.
        node: what is done.
        made: the keys that steps put before those of entities.
    """
    return in_degrees(as_modelled(sources, node, made), node.shape)


def in_degrees(results: DataFrame, shape: Shape) -> DataFrame:
    """Replace positions by degrees, and vectors by lengths, in results that are rows."""
    instead = {} if shape.kind == "segments" else earth.outputs(shape.attributes)
    if not instead:
        return results
    texts: list[str] = []
    for name in results.columns:
        if name in instead:
            for each in instead[name]:
                texts.append(f"{each.value} AS {quoted(each.name)}")
                texts.append(f"{each.error} AS {quoted(ERR + each.name)}")
        elif name.removeprefix(ERR) not in instead:
            texts.append(quoted(name))
    return results.selectExpr(*texts)


def as_modelled(
    sources: Sequence[Relation], node: graph.Node, made: Sequence[StructField] = ()
) -> DataFrame:
    """Return the same results with the modelled attributes."""
    first = sources[0]
    keys, how = first.shape.keys, first.maker
    schema = schema_of(node.shape, [*made, *first.key_fields], first.time_type)
    is_whole = graph.sees_entities(node)
    if how is not None and len(sources) == 1:
        ordered = by_entity(read_columns(first.df, how), keys, how.time)
        return map_batches(ordered, _task(how.tables, node, [first.shape]), schema)
    segments = first.segments if len(sources) == 1 else _together(sources)
    if isinstance(node, graph.Input):
        return segments
    placed = by_entity(segments, keys) if is_whole else segments
    task = _task(blocks.tables, node, [each.shape for each in sources])
    return map_batches(placed, task, schema)


def over_entities(source: Source, step: OverEntities) -> DataFrame:
    """Return the value of entities: what counts of each task's ones, then of all tasks'."""
    given = source.shape
    layout, by = given.layout, step.by
    shape = step.shape(given)

    def partial(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        yield from tasks.stepped(blocks.tables(batches), step.partial, layout)

    def final(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        whole = blocks.entity_blocks(blocks.tables(batches), by)
        yield from tasks.stepped(whole, step.run, layout)

    carried = schema_of(given, source.key_fields, source.time_type)
    few = map_batches(source.segments, partial, carried)
    grouped = [each for each in source.key_fields if each.name in by]
    results = schema_of(shape, grouped, source.time_type)
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
        return tasks.paired(table, step, shapes, n)

    keys = [quoted(each) for each in shapes[0].keys]
    group = f"CAST(pmod(xxhash64({', '.join(keys)}), {n}) AS INT)" if keys else "0"
    if right is None:
        cell = f"struct(least({{0}}, _x) * {n} + greatest({{0}}, _x), IF(_x < {{0}}, 1, 0))"
        placed = _in_cells(left.segments, group, cell, n)
    else:
        placed = _in_cells(left.segments, group, f"struct({{0}} * {n} + _x, 0)", n)
        others = _in_cells(right.segments, group, f"struct(_x * {n} + {{0}}, 1)", n)
        placed = placed.unionByName(others, allowMissingColumns=True)
    fields = fields_of_pairs(step.names, [each.key_fields for each in sources])
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


def _task(
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Table]],
    node: graph.Node,
    shapes: Sequence[Shape],
) -> Task:
    layouts = [each.layout for each in shapes]
    is_whole = graph.sees_entities(node)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        tables = read(batches)
        whole = blocks.entity_blocks(tables, layouts[0].keys) if is_whole else tables
        yield from tasks.solved(whole, node, layouts)

    return task


def read_columns(rows: DataFrame, how: Maker, *more: str) -> DataFrame:
    """Return the columns that are read of rows, and others as SQL.

    Rows without an instant are in no segment.
    """
    columns = [*map(quoted, how.keys), quoted(how.time)]
    columns += [f"{text} AS {quoted(name)}" for name, text in how.columns.items()]
    return rows.where(_column(how.time).isNotNull()).selectExpr(*columns, *more)


def _together(sources: Sequence[Relation]) -> DataFrame:
    """Return the segments of several sources, and of which each is."""
    marked = [
        each.segments.withColumn(SIDE, F.lit(at).cast("int")) for at, each in enumerate(sources)
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), marked)


def by_entity(df: DataFrame, keys: Sequence[str], *then: str) -> DataFrame:
    """Return rows with all of an entity in one partition, behind each other."""
    columns = [_column(each) for each in keys]
    placed = df.repartition(*columns) if columns else df.repartition(1)
    order = [*columns, *(_column(each) for each in then)]
    return placed.sortWithinPartitions(*order) if order else placed


def schema_of(shape: Shape, keys: Sequence[StructField], time: DataType) -> StructType:
    """Return the columns of results as Spark types."""
    fields = [*keys]
    if shape.kind == "segments":
        fields += [StructField(each, time) for each in TIMES]
        fields += [StructField(each, BooleanType()) for each in FLAGS]
    else:
        fields += [StructField(each, time) for each in shape.times]
    for each in shape.attributes:
        name, kind = (COEF + each, ArrayType(DoubleType())) if shape.kind == "segments" else (
            each, DoubleType())  # fmt: skip
        fields += [StructField(name, kind), StructField(ERR + each, DoubleType())]
    return StructType(fields)


def _column(name: str) -> Column:
    return F.col(quoted(name))

"""Graphs over segments as Spark plans: one shuffle of rows, or of segments, and one Arrow task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DoubleType, StructField, StructType

from eddyline.models import plan, tasks
from eddyline.models.rows import COEF, ERR, FLAGS, TIMES
from eddyline.models.tasks import SIDE
from eddyline.spark.arrow_tasks import quiet_when_cut_short
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eddyline.models.steps import Envelope, Shape

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, eq=False)
class Source:
    """Where segments come from: rows that are fitted, or segments that are there."""

    df: DataFrame
    shape: Shape
    fit: tasks.Fit | None = None
    """How ``df`` becomes segments; None if it has them."""

    @property
    def time_type(self) -> DataType:
        """The type of timestamps."""
        return self.df.schema["lo" if self.fit is None else self.fit.time].dataType

    @property
    def key_fields(self) -> list[StructField]:
        """Name and type of each key."""
        return [self.df.schema[each] for each in self.shape.keys]

    def where(self, text: str) -> Source:
        """Return the source with the entities on whose keys a condition is true."""
        return replace(self, df=self.df.where(text))

    @property
    def segments(self) -> DataFrame:
        """The segments as rows."""
        if self.fit is None:
            return self.df.select(*map(_column, self.shape.layout.columns))
        return laid([self], plan.Input(0, self.shape))


def laid(sources: Sequence[Source], node: plan.Node) -> DataFrame:
    """Return what comes out of a graph over sources, whose keys have the same names and types."""
    first = sources[0]
    keys, how = first.shape.keys, first.fit
    schema = _schema(node.shape, first.key_fields, first.time_type)
    is_whole = plan.sees_entities(node)
    if how is not None and len(sources) == 1:
        return _by_entity(_rows(first, how), keys, how.time).mapInArrow(
            _task(lambda batches: tasks.fitted_tables(batches, how), node, [first.shape]), schema
        )
    segments = first.segments if len(sources) == 1 else _together(sources)
    if isinstance(node, plan.Input):
        return segments
    placed = _by_entity(segments, keys) if is_whole else segments
    return placed.mapInArrow(_task(tasks.tables, node, [each.shape for each in sources]), schema)


def envelope(segments: DataFrame, source: Source, step: Envelope) -> DataFrame:
    """Return the least or greatest value of entities: of each task's ones, then of all tasks'."""
    given = source.shape
    layout, by = given.layout, step.by
    shape = step.shape(given)

    def partial(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        quiet_when_cut_short()
        yield from tasks.stepped(tasks.tables(batches), step.partial, layout)

    def final(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        quiet_when_cut_short()
        blocks = tasks.entity_blocks(tasks.tables(batches), by)
        yield from tasks.stepped(blocks, step.run, layout)

    few = segments.mapInArrow(partial, _schema(given, source.key_fields, source.time_type))
    grouped = [each for each in source.key_fields if each.name in by]
    return _by_entity(few, by).mapInArrow(final, _schema(shape, grouped, source.time_type))


def _task(
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Table]],
    node: plan.Node,
    shapes: Sequence[Shape],
) -> Task:
    layouts = [each.layout for each in shapes]
    is_whole = plan.sees_entities(node)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        quiet_when_cut_short()
        tables = read(batches)
        blocks = tasks.entity_blocks(tables, layouts[0].keys) if is_whole else tables
        yield from tasks.solved(blocks, node, layouts)

    return task


def _rows(source: Source, how: tasks.Fit) -> DataFrame:
    """Return the columns that are fitted; rows without an instant are in no segment."""
    values = [_column(each).cast("double").alias(each) for each in how.within]
    time = _column(how.time)
    return source.df.where(time.isNotNull()).select(*map(_column, how.keys), time, *values)


def _together(sources: Sequence[Source]) -> DataFrame:
    """Return the segments of several sources, and of which each is."""
    marked = [
        each.segments.withColumn(SIDE, F.lit(at).cast("int")) for at, each in enumerate(sources)
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), marked)


def _by_entity(df: DataFrame, keys: Sequence[str], *then: str) -> DataFrame:
    """Return rows with all of an entity in one partition, behind each other."""
    columns = [_column(each) for each in keys]
    placed = df.repartition(*columns) if columns else df.repartition(1)
    order = [*columns, *(_column(each) for each in then)]
    return placed.sortWithinPartitions(*order) if order else placed


def _schema(shape: Shape, keys: Sequence[StructField], time: DataType) -> StructType:
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

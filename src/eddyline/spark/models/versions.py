"""Segments as they were written: which of them hold, by version, and that no two of them do."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F

from eddyline.errors import QueryError
from eddyline.models import blocks, tasks
from eddyline.models.rows import TOMB
from eddyline.models.steps import Shape
from eddyline.spark.arrow_tasks import begin_task, map_batches
from eddyline.spark.models.laying import by_entity, schema_of
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Row

    from eddyline.models.rows import Layout

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
        columns = [F.col(quoted(each)) for each in layout.columns]
        rows = by_entity(df.select(*columns, version.alias(_VERSION)), layout.keys)
        fields = [df.schema[each] for each in layout.keys]
        schema = schema_of(Shape(layout.keys, layout.attributes), fields, df.schema["lo"].dataType)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            begin_task()
            whole = blocks.entity_blocks(blocks.tables(batches), layout.keys)
            yield from tasks.newest(whole, layout, _VERSION)

        return map_batches(rows, task, schema)

    def _check(self) -> None:
        """Look once whether two segments overlap of which nothing says which holds."""
        found = self._overlapping
        if found is None:
            return
        ranges = " and ".join(f"[{each.lo}, {each.hi})" for each in (found[_BEFORE], found))
        keys = ", ".join(f"{name} = {found[name]!r}" for name in self._layout.keys)
        whose = f" of {keys}" if keys else ""
        if self._version is None:
            way = (
                "; say which column does, el.models.read(df, version='…'), as early results do "
                "by version and validated; or leave out rows that are there twice"
            )
        else:
            way = f", as {self._version!r} is {found[_VERSION]} in both; give each its own"
        msg = f"models.read: segments{whose} overlap, {ranges}, and nothing says which counts{way}"
        raise QueryError(msg, keys={name: found[name] for name in self._layout.keys})

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
        """What says which segments must not overlap."""
        keys = [F.col(quoted(each)) for each in self._layout.keys]
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

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        yield from tasks.spans(blocks.tables(batches), names, ("hi", _END))

    spans = map_batches(ranges, task, ranges.schema)
    return _first(spans, names) and _first(ranges, names)


def _first(ranges: DataFrame, names: list[str]) -> Row | None:
    """Return the first range that begins before one that is no later has ended, and that one."""
    own = [F.col(quoted(each)) for each in names] or [F.lit(0)]
    earlier = Window.partitionBy(*own).orderBy("lo", _END)
    earlier = earlier.rowsBetween(Window.unboundedPreceding, -1)
    reached = F.max(F.struct(_END, "lo", "hi")).over(earlier)
    found = ranges.withColumn(_BEFORE, reached).where(f"{_BEFORE}.{_END} > lo")
    texts = {each: F.col(each).cast("string") for each in ("lo", "hi")}
    before = (F.col(f"{_BEFORE}.{each}").cast("string").alias(each) for each in ("lo", "hi"))
    texts[_BEFORE] = F.struct(*before)
    return found.withColumns(texts).first()

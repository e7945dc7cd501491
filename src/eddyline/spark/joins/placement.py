"""Placement of rows: each goes to the partitions that are its buckets, in one shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.joins.layout import INPUT, KEY, PASSES, START
from eddyline.state.grid import N_BINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.spark.joins.layout import InputLayout
    from eddyline.spark.joins.source import Source
    from eddyline.state.grid import Grid, Split

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

    def lay(self, df: DataFrame) -> DataFrame:
        """Return the rows of the source that are needed, each in the partitions of its buckets."""
        if not self._kept:
            self._kept = self._columns(df.columns)
        df, bucket = df.where(self._needed), self._bucket
        for name, parts in self._copies:
            df = df.withColumn(name, parts)
        if self._copies:
            df, bucket = df.withColumn(BUCKET, bucket), F.col(BUCKET)
        return df.select(*self._kept).repartitionById(self.grid.n_buckets, bucket)

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

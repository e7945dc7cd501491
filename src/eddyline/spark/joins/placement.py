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


def placed(df: DataFrame, grid: Grid, source: Source) -> DataFrame:
    """Return the rows that are needed, each in the partitions that are its buckets.

    Args:
        df: rows of the source.
        grid: how they are cut into buckets; one if there are inputs of which all rows are needed.
        source: the inputs.
    """
    awaited, passes = source.awaited, F.col(PASSES)
    df = df.where(passes | F.col(INPUT).isin(*awaited) if awaited else passes)
    kept = df.columns
    bucket = F.lit(0)
    for key, size in enumerate(grid.shape):
        if size == 1:
            continue
        code = F.col(f"{KEY}{key}")
        part = _bin_of(code) % size
        cases = [
            (_bin_of(code) == split.bin, _parts_of(split, size, source.layouts))
            for split in grid.splits
            if split.key == key
        ]
        if not all(key in each.keys for each in source.layouts):
            cases.insert(0, (code.isNull(), F.array(*map(F.lit, range(size)))))
        if cases:
            parts = F.array(part)
            for is_one, its_parts in reversed(cases):
                parts = F.when(is_one, its_parts).otherwise(parts)
            df = df.withColumn(f"{PART}{key}", F.explode(parts))
            part = F.col(f"{PART}{key}")
        bucket = bucket * size + part
    if any(name.startswith(PART) for name in df.columns):
        df = df.withColumn(BUCKET, bucket)
        bucket = F.col(BUCKET)
    if not awaited:
        kept.remove(PASSES)
        return df.select(*kept).repartitionById(grid.n_buckets, bucket)
    # A row that comes for its event time alone brings nothing else.
    told = {INPUT, PASSES, START}
    columns = [
        F.col(each) if each in told else F.when(passes.isNotNull(), F.col(each)).alias(each)
        for each in kept
    ]
    return df.select(*columns).repartitionById(grid.n_buckets, bucket)


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

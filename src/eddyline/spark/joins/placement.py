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
    awaited = source.awaited
    of_awaited = f" OR {INPUT} IN ({', '.join(map(str, awaited))})" if awaited else ""
    df = df.where(f"{PASSES}{of_awaited}")
    kept = df.columns
    bucket = "0"  # SQL, as each column is a dozen calls into Spark
    for key, size in enumerate(grid.shape):
        if size == 1:
            continue
        code = f"{KEY}{key}"
        part = f"{_bin_of(code)} % {size}"
        cases = [
            (F.expr(f"{_bin_of(code)} = {split.bin}"), _parts_of(split, size, source.layouts))
            for split in grid.splits
            if split.key == key
        ]
        if not all(key in each.keys for each in source.layouts):
            cases.insert(0, (F.col(code).isNull(), F.array(*map(F.lit, range(size)))))
        if cases:
            parts = F.array(F.expr(part))
            for is_one, its_parts in reversed(cases):
                parts = F.when(is_one, its_parts).otherwise(parts)
            df = df.withColumn(f"{PART}{key}", F.explode(parts))
            part = f"{PART}{key}"
        bucket = f"({bucket}) * {size} + {part}"
    if any(name.startswith(PART) for name in df.columns):
        df = df.withColumn(BUCKET, F.expr(bucket))
        bucket = BUCKET
    if not awaited:
        others = [each for each in df.columns if each not in kept]
        return df.drop(PASSES, *others).repartitionById(grid.n_buckets, F.expr(bucket))
    passes = F.col(PASSES)
    # A row that comes for its event time alone brings nothing else.
    told = {INPUT, PASSES, START}
    columns = [
        F.col(each) if each in told else F.when(passes.isNotNull(), F.col(each)).alias(each)
        for each in kept
    ]
    return df.select(*columns).repartitionById(grid.n_buckets, F.expr(bucket))


def _bin_of(code: str) -> str:
    """Return SQL of the bin of a code; see ``grid.bins_of``."""
    return f"CAST(pmod(xxhash64({code}), {N_BINS}) AS INT)"


def _parts_of(split: Split, size: int, layouts: Sequence[InputLayout]) -> Column:
    """Return the places of a row of a split bin along a key class of so many parts."""
    cases = []
    for each in layouts:
        n_parts, step = split.side(each.name)
        first = F.expr(f"{_bin_of(START)} % {n_parts} * {step} + {split.bin}")
        places = F.array(*[(first + copy) % size for copy in split.copies(each.name)])
        cases.append(F.when(F.col(INPUT) == each.number, places))
    return F.coalesce(*cases)

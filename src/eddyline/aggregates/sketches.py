"""Sketches of Spark's DataSketches functions: collected here, combined and read by Spark.

A cell is a list of sketches, of one element as Spark makes it. Lists grow where cells are merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eddyline.aggregates.lists import Lists

LG_K = 12
"""Binary logarithm of the registers of a sketch of distinct values: a relative standard error of
1.04 / sqrt(2^12) = 1.63 % of combined ones (DataSketches, HLL)."""

KLL_K = 200
"""Size of a sketch of quantiles: its ranks are off by less than 1.33 % of all rows, with a
confidence of 99 % (DataSketches, KLL)."""


def united(lists: str, union: str) -> str:
    """Return SQL of one sketch made of a list of sketches; NULL if there is no list.

    >>> united("c", "hll_union")
    'reduce(slice(c, 2, greatest(size(c), 1)), c[0], (a, b) -> hll_union(a, b))'
    """
    rest = f"slice({lists}, 2, greatest(size({lists}), 1))"
    return f"reduce({rest}, {lists}[0], (a, b) -> {union}(a, b))"


@dataclass(frozen=True, slots=True)
class DistinctSketch(Lists):
    """Sketches of distinct whole numbers."""

    reduce_sql: ClassVar[str] = f"array(hll_sketch_agg({{x}}, {LG_K}))"
    lift_sql: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class QuantileSketch(Lists):
    """Sketches of the order of doubles."""

    reduce_sql: ClassVar[str] = f"array(kll_sketch_agg_double({{x}}, {KLL_K}))"
    lift_sql: ClassVar[str] = ""

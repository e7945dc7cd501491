"""All monoids by name. A new one is a class beside this, and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.aggregates.extremes import First, FirstRow, Greatest, Last, LastRow, Least
from eddyline.aggregates.lists import Distinct, DistinctMean, DistinctSum, Lists
from eddyline.aggregates.means import Mean
from eddyline.aggregates.moments import Moments, PairMoments
from eddyline.aggregates.quantiles import Quantile
from eddyline.aggregates.sketches import DistinctSketch, QuantileSketch
from eddyline.aggregates.sums import Count, Sum

if TYPE_CHECKING:
    from eddyline.aggregates.monoid import Monoid

MONOIDS: dict[str, Monoid] = {
    "sum": Sum(),
    "count": Count(),
    "mean": Mean(),
    "min": Least(),
    "max": Greatest(),
    "first": First(),
    "last": Last(),
    "first_row": FirstRow(),
    "last_row": LastRow(),
    "moments": Moments(),
    "pair_moments": PairMoments(),
    "distinct": Distinct(),
    "distinct_sum": DistinctSum(),
    "distinct_mean": DistinctMean(),
    "lists": Lists(),
    "distinct_sketch": DistinctSketch(),
    "quantile_sketch": QuantileSketch(),
    "quantile": Quantile(),
}
"""As in Spark's ANSI mode; out of it, take what ``under(ansi=False)`` of them returns."""

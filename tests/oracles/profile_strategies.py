"""Hypothesis strategies for what the engine works on: outcomes, profiles, orders and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

if TYPE_CHECKING:
    from eddyline.data.outcomes import Bits
    from eddyline.stats.profile import Order

COSTS_NS = (1.0, 2.0, 3.0, 10.0, 50.0)
"""Costs that the strategies draw from: few, so that ratios tie."""

EDGE_FLOATS = (0.0, -0.0, 1.0, -1.5, 1e300, float("inf"), float("-inf"), float("nan"))
"""Values that comparisons get wrong most often."""


def drops(
    *, n_filters: st.SearchStrategy[int] | None = None, max_rows: int = 40
) -> st.SearchStrategy[Bits]:
    """Return outcome matrices: which filter drops which row ((R, F); R may be 0)."""
    sizes = st.integers(1, 6) if n_filters is None else n_filters
    shapes = st.tuples(st.integers(0, max_rows), sizes)
    return hnp.arrays(np.bool_, shapes, elements=st.booleans(), fill=st.nothing())


def orders(n_filters: int) -> st.SearchStrategy[Order]:
    """Return orders of F filters."""
    return st.permutations(range(n_filters)).map(tuple)


def costs(n_filters: int) -> st.SearchStrategy[np.ndarray]:
    """Return costs of F filters (ns; (F,)), often with ties."""
    values = st.lists(st.sampled_from(COSTS_NS), min_size=n_filters, max_size=n_filters)
    return values.map(lambda ns: np.array(ns, dtype=np.float64))


@st.composite
def profiles(
    draw: st.DrawFn, *, n_filters: st.SearchStrategy[int] | None = None, max_rows: int = 40
) -> FilterProfile:
    """Return profiles of full outcome codes with known costs."""
    outcomes = draw(drops(n_filters=n_filters, max_rows=max_rows))
    n = outcomes.shape[1]
    return FilterProfile.of_sample(
        tuple(f"f{f}" for f in range(n)),
        outcomes,
        prob=draw(st.sampled_from([1.0, 0.5, 0.125])),
        costs=CostSums.of_rows(1, draw(costs(n))),
    )


@st.composite
def ordered_profiles(
    draw: st.DrawFn, *, n_filters: st.SearchStrategy[int] | None = None, max_rows: int = 40
) -> tuple[Order, FilterProfile]:
    """Return a profile and an order of its filters."""
    profile = draw(profiles(n_filters=n_filters, max_rows=max_rows))
    return draw(orders(profile.n_filters)), profile


@st.composite
def tables(draw: st.DrawFn, *, max_rows: int = 30) -> pa.Table:
    """Return tables ``id, i, x, s`` with nulls, NaN, infinities, ties and empty strings."""
    n_rows = draw(st.integers(0, max_rows))

    def column(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        cells = st.lists(st.none() | values, min_size=n_rows, max_size=n_rows)
        return pa.array(draw(cells), type=kind)

    return pa.table(
        {
            "id": pa.array(range(n_rows), type=pa.int64()),
            "i": column(st.integers(-3, 3), pa.int64()),
            "x": column(st.sampled_from(EDGE_FLOATS), pa.float64()),
            "s": column(st.sampled_from(["", "a", "b", "ab", "é"]), pa.string()),
        }
    )

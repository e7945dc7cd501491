"""Strategies and slow oracles of partitions and tables."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import strategies as st

from eddyline.routing.partitions import Partition
from eddyline.routing.table import RouteTable

EDGES = (
    float("-inf"), -1.7976931348623157e308, -1e300, -3.0, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1,
    1.0, 2.0, 24.0, 2.0**52, 2.0**53, 2.0**53 + 2, 1e17, 1e300, float("inf"), float("nan"),
)  # fmt: skip
"""Doubles that are easily put in a wrong bin."""

values = st.sampled_from(EDGES) | st.floats(width=64)
points = st.sets(
    (st.sampled_from(EDGES) | st.floats()).filter(lambda x: not math.isnan(x)), max_size=6
).map(lambda found: tuple(sorted({x + 0.0 for x in found})))


def partitions(name: str = "a") -> st.SearchStrategy[Partition]:
    return st.one_of(
        points.map(lambda found: Partition(name, "values", found)),
        points.map(lambda found: Partition(name, "ranges", found)),
        st.integers(1, 6).map(lambda n: Partition(name, "hash", n_hash=n)),
    )


@st.composite
def tables(draw, n_filters: int = 3, max_attributes: int = 3) -> RouteTable:
    n = draw(st.integers(0, max_attributes))
    parts = tuple(draw(partitions(name)) for name in "abc"[:n])
    orders = draw(st.lists(st.permutations(range(n_filters)).map(tuple), min_size=1, max_size=4))
    n_classes = math.prod(part.n_bins for part in parts)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    groups = rng.integers(0, len(orders), n_classes)
    return RouteTable(parts, tuple(orders), tuple(groups.tolist()))


def rows(n_columns: int, max_rows: int = 30) -> st.SearchStrategy[np.ndarray]:
    row = st.lists(values, min_size=n_columns, max_size=n_columns)
    made = st.lists(row, max_size=max_rows)
    return made.map(lambda cells: np.array(cells, dtype=np.float64).reshape(len(cells), n_columns))


def slow_bin(part: Partition, value: float) -> int:
    if math.isnan(value):
        return part.n_bins - 1
    if part.kind == "hash":
        return int(min(abs(value), 2.0**53)) % part.n_hash
    if part.kind == "ranges":
        return sum(point <= value for point in part.points)
    return next((b for b, point in enumerate(part.points) if point == value), len(part.points))


def slow_group(table: RouteTable, row: np.ndarray) -> int:
    every = product(*(range(part.n_bins) for part in table.partitions))
    groups = dict(zip(every, table.groups, strict=True))
    cells = zip(table.partitions, row, strict=True)
    return groups[tuple(slow_bin(part, float(value)) for part, value in cells)]

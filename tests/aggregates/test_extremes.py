from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates.monoids import MONOIDS
from tests.aggregates.slow import VALUES, by_range, columns, cuts, ranges, same, sliced, sort_key

KINDS = list(VALUES)
BEST = {
    "min": lambda own: min(own, key=sort_key),
    "max": lambda own: max(own, key=sort_key),
    "first": lambda own: own[0],
    "last": lambda own: own[-1],
}
TIMELY = pa.struct([("t", pa.int64()), ("x", pa.float64())])


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", ["min", "max"])
@given(data=st.data())
def test_extremes_of_all_types(name, kind, data):
    column, values = data.draw(columns([kind]))
    lo, hi = data.draw(ranges(len(values)))
    found = MONOIDS[name].value(column, lo, hi)
    assert found.type == kind
    same(found.to_pylist(), by_range(values, lo, hi, BEST[name]))


@pytest.mark.parametrize("name", ["first", "last"])
@given(data=st.data())
def test_first_and_last_entries(name, data):
    plain = [kind for kind in KINDS if not pa.types.is_struct(kind)]
    column, values = data.draw(columns(plain))
    lo, hi = data.draw(ranges(len(values)))
    same(MONOIDS[name].value(column, lo, hi).to_pylist(), by_range(values, lo, hi, BEST[name]))


@pytest.mark.parametrize(("name", "like"), [("first", "min"), ("last", "max")])
@given(data=st.data())
def test_first_and_last_by_time_are_extremes_of_time_and_value(name, like, data):
    times = data.draw(st.lists(st.integers(0, 6), max_size=20))
    if data.draw(st.booleans()):
        times.sort()
    rows = [
        data.draw(st.none() | st.fixed_dictionaries({"t": st.just(each), "x": VALUES_OR_NULL}))
        for each in times
    ]
    column = sliced(data.draw, rows, TIMELY)
    lo, hi = data.draw(ranges(len(rows)))
    found = MONOIDS[name].merge(column, lo, hi).to_pylist()
    same(found, by_range(rows, lo, hi, BEST[like]))
    same(found, MONOIDS[like].value(column, lo, hi).to_pylist())
    values = [None if each is None else each["x"] for each in found]
    same(MONOIDS[name].value(column, lo, hi).to_pylist(), values)


VALUES_OR_NULL = st.none() | VALUES[pa.float64()]


@given(st.data())
def test_cells_of_cells(data):
    name = data.draw(st.sampled_from(list(BEST)))
    column, values = data.draw(columns(KINDS))
    if name in ("first", "last") and pa.types.is_struct(column.type):
        return
    lo, hi = data.draw(cuts(len(values)))
    merged = MONOIDS[name].merge(column, lo, hi)
    whole = np.array([0]), np.array([len(values)])
    found = MONOIDS[name].value(merged, np.array([0]), np.array([lo.size])).to_pylist()
    same(found, MONOIDS[name].value(column, *whole).to_pylist())


def test_maps_are_in_the_order_of_their_entries():
    column = pa.array([[("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int64()))
    assert MONOIDS["min"].value(column, np.array([0]), np.array([2])).to_pylist() == [[("a", 1)]]

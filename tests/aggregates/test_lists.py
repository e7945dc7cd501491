from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates import lists
from eddyline.aggregates.monoids import MONOIDS
from eddyline.errors import AggregateError, PlanError
from tests.aggregates.slow import VALUES, cuts, ranges, same, sliced

KINDS = [kind for kind in VALUES if not pa.types.is_list(kind)] + [pa.list_(pa.float64())]
ONE = np.array([0]), np.array([1])


@st.composite
def cells(draw, kinds):
    """Return a column of lists, some of them NULL or with NULL in them, and its values."""
    kind = draw(st.sampled_from(kinds))
    values = draw(st.lists(st.none() | st.lists(st.none() | VALUES[kind], max_size=4), max_size=15))
    return sliced(draw, values, pa.list_(kind)), values


def elements(values, start, stop):
    return [each for cell in values[start:stop] for each in cell or [] if each is not None]


def equality_key(value):
    """Return what is equal for values that are equal in Spark's groups."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(equality_key(value[name]) for name in sorted(value))
    return tuple(map(equality_key, value)) if isinstance(value, list) else value


@given(st.data())
def test_lists_are_joined(data):
    column, values = data.draw(cells(KINDS))
    lo, hi = data.draw(ranges(len(values)))
    found = MONOIDS["lists"].value(column, lo, hi)
    found.validate(full=True)
    assert found.type == column.type
    for own, start, stop in zip(found.to_pylist(), lo, hi, strict=True):
        expected = elements(values, start, stop)
        same(own or [], expected)
        assert (own is None) == (not expected)


@given(st.data())
def test_distinct_values(data):
    column, values = data.draw(cells(KINDS))
    lo, hi = data.draw(ranges(len(values)))
    merged = MONOIDS["distinct"].merge(column, lo, hi)
    merged.validate(full=True)
    assert merged.type == column.type
    counts = MONOIDS["distinct"].value(column, lo, hi).to_pylist()
    for own, count, start, stop in zip(merged.to_pylist(), counts, lo, hi, strict=True):
        expected = distinct_in_order(elements(values, start, stop))
        assert list(map(equality_key, own or [])) == expected
        assert count == (len(expected) or None)


def distinct_in_order(values):
    return list(dict.fromkeys(map(equality_key, values)))


@given(st.data())
def test_sums_and_averages_of_distinct_values(data):
    column, values = data.draw(cells([pa.int32(), pa.int64(), pa.decimal128(10, 2)]))
    lo, hi = data.draw(ranges(len(values)))
    sums = MONOIDS["distinct_sum"].value(column, lo, hi)
    averages = MONOIDS["distinct_mean"].value(column, lo, hi).to_pylist()
    for total, average, start, stop in zip(sums.to_pylist(), averages, lo, hi, strict=True):
        own = set(elements(values, start, stop))
        assert total == (sum(own) if own else None)
        assert (average is None) == (not own)
        if own:
            assert float(average) == pytest.approx(float(sum(own)) / len(own), abs=1e-5)


@given(st.data())
def test_cells_of_cells(data):
    column, values = data.draw(cells(KINDS))
    lo, hi = data.draw(cuts(len(values)))
    name = data.draw(st.sampled_from(["lists", "distinct"]))
    merged = MONOIDS[name].merge(column, lo, hi)
    found = MONOIDS[name].value(merged, np.array([0]), np.array([lo.size])).to_pylist()
    whole = MONOIDS[name].value(column, np.array([0]), np.array([len(values)])).to_pylist()
    assert list(map(equality_key, found)) == list(map(equality_key, whole))


def test_a_distinct_sum_beyond_64_bits():
    column = pa.array([[2**63 - 1, 1, 1]], pa.list_(pa.int64()))
    with pytest.raises(AggregateError):
        MONOIDS["distinct_sum"].value(column, *ONE)
    assert MONOIDS["distinct_sum"].under(ansi=False).value(column, *ONE).to_pylist() == [-(2**63)]


def test_distinct_texts_have_no_sum():
    with pytest.raises(PlanError, match="sums of distinct string"):
        MONOIDS["distinct_sum"].value(pa.array([["a"]]), *ONE)


def test_more_values_than_an_array_holds(monkeypatch):
    monkeypatch.setattr(lists, "_MOST", 3)
    column = pa.array([[1, 2], [3]])
    whole = np.array([0, 0]), np.array([1, 2])
    with pytest.raises(AggregateError, match="5 values are in the lists of 2 windows"):
        MONOIDS["lists"].value(column, *whole)


@given(st.data())
def test_exact_quantiles(data):
    frac = data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
    values = data.draw(st.lists(st.none() | VALUES[pa.float64()], max_size=25))
    rows = [
        data.draw(st.sampled_from([None, {"p": frac, "x": None}]))
        if x is None
        else {"p": frac, "x": x}
        for x in values
    ]
    column = sliced(data.draw, rows, pa.struct([("p", pa.float64()), ("x", pa.float64())]))
    lo, hi = data.draw(ranges(len(values)))
    found = MONOIDS["quantile"].value(column, lo, hi).to_pylist()
    for own, start, stop in zip(found, lo, hi, strict=True):
        there = sorted(
            (each for each in values[start:stop] if each is not None),
            key=lambda x: (math.isnan(x), 0.0 if math.isnan(x) else x, math.copysign(1.0, x)),
        )
        if there:
            rank = min(max(math.ceil(frac * len(there)), 1), len(there))
            same([own], [there[rank - 1]])
        else:
            assert own is None


def test_quantiles_do_not_merge():
    with pytest.raises(PlanError, match="cannot be merged"):
        MONOIDS["quantile"].merge(pa.array([1.0]), *ONE)

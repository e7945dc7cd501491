from __future__ import annotations

import functools
import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates.monoids import MONOIDS
from eddyline.errors import AggregateError, PlanError
from tests.aggregates.slow import by_range, columns, cuts, ranges, same

EXACT = Context(prec=90)
SUM, MEAN, COUNT = MONOIDS["sum"], MONOIDS["mean"], MONOIDS["count"]
KINDS = [pa.int32(), pa.int64(), pa.decimal128(38, 4)]
ALL = np.array([0]), np.array([2])


@given(st.data())
def test_exact_sums(data):
    column, values = data.draw(columns(KINDS))
    lo, hi = data.draw(ranges(len(values)))
    found = SUM.value(column, lo, hi)
    assert found.type == column.type
    assert found.to_pylist() == by_range(values, lo, hi, total)


def total(values):
    return sum(values) if isinstance(values[0], int) else functools.reduce(EXACT.add, values)


@given(st.data())
def test_sums_of_doubles(data):
    column, values = data.draw(columns([pa.float64()]))
    lo, hi = data.draw(ranges(len(values)))
    # 0.0 first: the sum of -0.0 is 0.0, as Spark's.
    expected = by_range(values, lo, hi, lambda own: sum(own, 0.0))
    close = by_range(values, lo, hi, exact_sum)
    for found, plain, exact in zip(
        SUM.value(column, lo, hi).to_pylist(), expected, close, strict=True
    ):
        same([found], [exact if plain is not None and math.isfinite(plain) else plain], rel=1e-15)


def exact_sum(values):
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan


def test_a_huge_number_leaves_no_trace():
    column = pa.array([1e16, 1.0, 1.0, -1e16, 3.0])
    found = SUM.value(column, np.array([0, 0, 2, 4]), np.array([3, 4, 5, 5]))
    assert found.to_pylist() == [1e16 + 2, 2.0, -1e16 + 4, 3.0]


def test_infinity_ends_with_its_range():
    column = pa.array([1.0, math.inf, -math.inf, 2.0, math.nan, 3.0])
    found = SUM.value(column, np.array([0, 0, 1, 2, 3, 5]), np.array([1, 2, 3, 4, 5, 6]))
    same(found.to_pylist(), [1.0, math.inf, math.nan, -math.inf, math.nan, 3.0])


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_a_sum_beyond_64_bits(value):
    column = pa.array([value, value, *([-value, 0] if value > 0 else [2**63 - 1, 1])])
    with pytest.raises(AggregateError, match="sum of 1 ranges does not fit into int64"):
        SUM.value(column, *ALL)
    wrapped = (2 * value + 2**63) % 2**64 - 2**63
    assert SUM.under(ansi=False).value(column, *ALL).to_pylist() == [wrapped]
    assert SUM.value(column, np.array([0, 1]), np.array([4, 4])).to_pylist() == [value, 0]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_38_digits(sign):
    most = EXACT.multiply(Decimal(10**38 - 1), sign)
    column = pa.array([most, Decimal(sign), most.copy_negate(), most, most], pa.decimal128(38, 0))
    with pytest.raises(AggregateError, match="decimal128"):
        SUM.value(column, *ALL)
    lo, hi = np.array([0, 0, 0, 1, 2]), np.array([1, 2, 3, 4, 5])
    expected = [most, None, Decimal(sign), Decimal(sign), most]
    assert SUM.under(ansi=False).value(column, lo, hi).to_pylist() == expected
    many = pa.array([most] * 50, pa.decimal128(38, 0))  # beyond 128 bits
    with pytest.raises(AggregateError):
        SUM.value(many, np.array([0]), np.array([50]))


def test_what_has_no_sum():
    with pytest.raises(PlanError, match="sums of string are not known"):
        SUM.value(pa.array(["a"]), *ALL)


@given(st.data())
def test_counts_are_sums(data):
    values = data.draw(st.lists(st.none() | st.integers(0, 9), max_size=20))
    lo, hi = data.draw(ranges(len(values)))
    found = COUNT.under(ansi=False).value(pa.array(values, pa.int64()), lo, hi).to_pylist()
    assert found == by_range(values, lo, hi, sum)


@given(st.data())
def test_averages(data):
    kind = data.draw(st.sampled_from([pa.float64(), pa.decimal128(38, 4)]))
    column, values = data.draw(columns([kind]))
    lo, hi = data.draw(ranges(len(values)))
    cells = average_cells(column)
    found = MEAN.value(cells, lo, hi)
    assert found.type == (kind if kind == pa.float64() else pa.decimal128(38, 8))
    if kind == pa.float64():
        sums = SUM.value(column, lo, hi).to_pylist()
        n = by_range(values, lo, hi, len)
        expected = [None if a is None else a / b for a, b in zip(sums, n, strict=True)]
    else:
        expected = by_range(values, lo, hi, rounded_average)
    same(found.to_pylist(), expected)


def average_cells(column):
    values = column.to_pylist()
    rows = [{"sum": each, "n": 0 if each is None else 1} for each in values]
    return pa.array(rows, pa.struct([("sum", column.type), ("n", pa.int64())]))


@given(st.data())
def test_averages_of_few_digits(data):
    cents = st.integers(-(10**6), 10**6).map(lambda n: Decimal(n).scaleb(-4))
    values = data.draw(st.lists(st.none() | cents, max_size=25))
    lo, hi = data.draw(ranges(len(values)))
    found = MEAN.value(average_cells(pa.array(values, pa.decimal128(38, 4))), lo, hi)
    assert found.type == pa.decimal128(38, 8)
    assert found.to_pylist() == by_range(values, lo, hi, rounded_average)


def rounded_average(values):
    with localcontext(prec=80):
        unscaled = sum(int(each.scaleb(4)) for each in values)
    twice = 2 * abs(unscaled) * 10**4 + len(values)
    quotient = twice // (2 * len(values))
    with localcontext(prec=80):  # else 28 digits are left
        return Decimal(-quotient if unscaled < 0 else quotient).scaleb(-8)


def test_an_average_of_a_sum_that_was_lost_is_lost():
    rows = [{"sum": None, "n": 2}, {"sum": Decimal(1), "n": 1}, None]
    cells = pa.array(rows, pa.struct([("sum", pa.decimal128(38, 0)), ("n", pa.int64())]))
    found = MEAN.under(ansi=False)
    lo, hi = np.array([0, 1, 2]), np.array([2, 3, 3])
    assert found.value(cells, lo, hi).to_pylist() == [None, Decimal(1), None]
    assert found.merge(cells, lo, hi).to_pylist()[0] == {"sum": None, "n": 3}


def test_an_average_of_too_many_digits():
    kind = pa.struct([("sum", pa.decimal128(38, 2)), ("n", pa.int64())])
    cells = pa.array([{"sum": Decimal(10**36 - 1), "n": 1}], kind)
    with pytest.raises(AggregateError, match="more than 38 digits"):
        MEAN.value(cells, np.array([0]), np.array([1]))
    found = MEAN.under(ansi=False).value(cells, np.array([0]), np.array([1]))
    assert found.to_pylist() == [None]


@given(st.data())
def test_cells_of_cells(data):
    name = data.draw(st.sampled_from(["sum", "mean"]))
    column, values = data.draw(columns(KINDS[1:]))
    if name == "mean":
        column = average_cells(
            pa.array(values, pa.decimal128(38, 4)) if column.type == pa.int64() else column
        )
    lo, hi = data.draw(cuts(len(values)))
    merged = MONOIDS[name].merge(column, lo, hi)
    assert merged.type == column.type
    whole = np.array([0]), np.array([len(values)])
    parts = np.array([0]), np.array([lo.size])
    assert MONOIDS[name].value(merged, *parts).equals(MONOIDS[name].value(column, *whole))

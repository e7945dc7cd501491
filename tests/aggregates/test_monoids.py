"""Monoids against values computed range by range, and partials of partials."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from decimal import Context, Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates import monoids
from eddyline.aggregates.monoids import MONOIDS
from eddyline.errors import AggregateError, PlanError
from tests.aggregates.slow import VALUES, by_range, columns, cuts, ranges, same, sliced, sort_key

EXACT = Context(prec=90)
SUM, MEAN, COUNT = MONOIDS["sum"], MONOIDS["mean"], MONOIDS["count"]
NUMBERS = [pa.int32(), pa.int64(), pa.decimal128(38, 4)]
ALL = np.array([0]), np.array([2])


@given(st.data())
def test_exact_sums(data):
    column, values = data.draw(columns(NUMBERS))
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
    assert replace(SUM, ansi=False).value(column, *ALL).to_pylist() == [wrapped]
    assert SUM.value(column, np.array([0, 1]), np.array([4, 4])).to_pylist() == [value, 0]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_38_digits(sign):
    most = EXACT.multiply(Decimal(10**38 - 1), sign)
    column = pa.array([most, Decimal(sign), most.copy_negate(), most, most], pa.decimal128(38, 0))
    with pytest.raises(AggregateError, match="decimal128"):
        SUM.value(column, *ALL)
    lo, hi = np.array([0, 0, 0, 1, 2]), np.array([1, 2, 3, 4, 5])
    expected = [most, None, Decimal(sign), Decimal(sign), most]
    assert replace(SUM, ansi=False).value(column, lo, hi).to_pylist() == expected
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
    found = replace(COUNT, ansi=False).value(pa.array(values, pa.int64()), lo, hi).to_pylist()
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
    found = replace(MEAN, ansi=False)
    lo, hi = np.array([0, 1, 2]), np.array([2, 3, 3])
    assert found.value(cells, lo, hi).to_pylist() == [None, Decimal(1), None]
    assert found.merge(cells, lo, hi).to_pylist()[0] == {"sum": None, "n": 3}


def test_an_average_of_too_many_digits():
    kind = pa.struct([("sum", pa.decimal128(38, 2)), ("n", pa.int64())])
    cells = pa.array([{"sum": Decimal(10**36 - 1), "n": 1}], kind)
    with pytest.raises(AggregateError, match="more than 38 digits"):
        MEAN.value(cells, np.array([0]), np.array([1]))
    found = replace(MEAN, ansi=False).value(cells, np.array([0]), np.array([1]))
    assert found.to_pylist() == [None]


MOMENTS, PAIRS = MONOIDS["moments"], MONOIDS["pair_moments"]
ONE = pa.struct([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])
TWO = pa.struct(
    [pa.field("n", pa.int64(), nullable=False)]
    + [(name, pa.float64()) for name in ("mean_x", "mean_y", "xy", "xx", "yy")]
)
FINITE = st.integers(-1000, 1000).map(lambda n: n / 8)
DOUBLES = st.none() | FINITE | st.sampled_from([math.nan, math.inf, -math.inf])


def one(value):
    """Return the moments of a row, of which some are NULL and some empty."""
    if value is None:
        return {"n": 0, "mean": None, "m2": None}
    return {"n": 1, "mean": value, "m2": value - value}


@given(st.data())
def test_moments_of_ranges(data):
    values = data.draw(st.lists(DOUBLES, max_size=25))
    rows = [
        data.draw(st.sampled_from([None, one(None)])) if each is None else one(each)
        for each in values
    ]
    column = sliced(data.draw, rows, ONE)
    lo, hi = data.draw(ranges(len(values)))
    found = MOMENTS.value(column, lo, hi)
    assert found.type == ONE
    for moments, start, stop in zip(found.to_pylist(), lo, hi, strict=True):
        own = [each for each in values[start:stop] if each is not None]
        if not own:
            assert moments is None
            continue
        assert moments["n"] == len(own)
        if all(map(math.isfinite, own)):
            assert moments["mean"] == pytest.approx(np.mean(own), abs=1e-12)
            assert moments["m2"] == pytest.approx(np.var(own) * len(own), rel=1e-12, abs=1e-9)
        else:
            assert math.isnan(moments["m2"])


def test_a_small_spread_far_from_zero():
    rng = np.random.default_rng(3)
    values = 1e9 + rng.normal(size=1000)
    column = pa.array([one(each) for each in values], ONE)
    (found,) = MOMENTS.value(column, np.array([100]), np.array([1000])).to_pylist()
    assert found["m2"] / found["n"] == pytest.approx(np.var(values[100:]), rel=1e-7)


def test_infinity_of_moments_ends_with_its_range():
    column = pa.array([one(each) for each in (1.0, math.inf, 3.0, 5.0)], ONE)
    found = MOMENTS.value(column, np.array([0, 1, 2]), np.array([3, 4, 4])).to_pylist()
    assert math.isnan(found[0]["m2"])
    assert math.isnan(found[1]["m2"])
    assert found[2] == {"n": 2, "mean": 4.0, "m2": 2.0}


def pair(value):
    if value is None:
        return None
    x, y = value
    zero = {"xy": (x - x) * (y - y), "xx": x - x, "yy": y - y}
    return {"n": 1, "mean_x": x, "mean_y": y, **zero}


@pytest.mark.large
@given(st.data())
def test_moments_of_pairs(data):
    values = data.draw(st.lists(st.none() | st.tuples(FINITE, FINITE), max_size=25))
    column = pa.array(
        [pair(each) for each in values], pa.struct([(each.name, each.type) for each in TWO])
    )
    lo, hi = data.draw(ranges(len(values)))
    for found, start, stop in zip(PAIRS.value(column, lo, hi).to_pylist(), lo, hi, strict=True):
        own = np.array([each for each in values[start:stop] if each is not None])
        if not own.size:
            assert found is None
            continue
        spread = np.cov(own.T, bias=True) * len(own)
        assert [found["mean_x"], found["mean_y"]] == pytest.approx(own.mean(axis=0), abs=1e-12)
        assert [found["xx"], found["xy"], found["yy"]] == pytest.approx(
            [spread[0, 0], spread[0, 1], spread[1, 1]], rel=1e-12, abs=1e-9
        )


def test_fields_that_are_never_null_stay_so():
    column = pa.array([pair((1.0, 2.0))], pa.struct(list(TWO)))
    found = PAIRS.value(column, np.array([0, 1]), np.array([1, 1]))
    found.validate(full=True)
    assert found.type == column.type
    assert found.field(0).null_count == 0
    assert found.to_pylist()[1] is None


ORDERED = list(VALUES)
BEST = {
    "min": lambda own: min(own, key=sort_key),
    "max": lambda own: max(own, key=sort_key),
    "first": lambda own: own[0],
    "last": lambda own: own[-1],
}
TIMELY = pa.struct([("t", pa.int64()), ("x", pa.float64())])


@pytest.mark.large
@pytest.mark.parametrize("kind", ORDERED, ids=str)
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
    plain = [kind for kind in ORDERED if not pa.types.is_struct(kind)]
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


def test_maps_are_in_the_order_of_their_entries():
    column = pa.array([[("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int64()))
    assert MONOIDS["min"].value(column, np.array([0]), np.array([2])).to_pylist() == [[("a", 1)]]


LISTED = [kind for kind in VALUES if not pa.types.is_list(kind)] + [pa.list_(pa.float64())]
FIRST_ENTRY = np.array([0]), np.array([1])


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
    column, values = data.draw(cells(LISTED))
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
    column, values = data.draw(cells(LISTED))
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


def cells_to_merge(draw, name):
    """Return a column of cells of a monoid."""
    if name in ("sum", "mean"):
        column, values = draw(columns(NUMBERS[1:]))
        if name == "sum":
            return column
        kind = pa.decimal128(38, 4)
        return average_cells(pa.array(values, kind) if column.type == pa.int64() else column)
    if name == "moments":
        return pa.array(
            [one(each) for each in draw(st.lists(st.none() | FINITE, max_size=25))], ONE
        )
    if name in ("lists", "distinct"):
        return draw(cells(LISTED))[0]
    is_timely = name in ("first", "last")
    return draw(
        columns([each for each in ORDERED if not (is_timely and pa.types.is_struct(each))])
    )[0]


@pytest.mark.parametrize("name", ["sum", "mean", "moments", *BEST, "lists", "distinct"])
@given(data=st.data())
def test_cells_of_cells_give_what_the_cells_give(name, data):
    column, monoid = cells_to_merge(data.draw, name), MONOIDS[name]
    lo, hi = data.draw(cuts(len(column)))
    merged = monoid.merge(column, lo, hi)
    assert merged.type == column.type
    (found,) = monoid.value(merged, np.array([0]), np.array([lo.size])).to_pylist()
    (wanted,) = monoid.value(column, np.array([0]), np.array([len(column)])).to_pylist()
    if name == "moments" and found and wanted:
        assert found == pytest.approx(wanted, rel=1e-12, abs=1e-9)
    elif name in ("lists", "distinct"):
        assert equality_key(found) == equality_key(wanted)
    else:
        same([found], [wanted])


def test_a_distinct_sum_beyond_64_bits():
    column = pa.array([[2**63 - 1, 1, 1]], pa.list_(pa.int64()))
    with pytest.raises(AggregateError):
        MONOIDS["distinct_sum"].value(column, *FIRST_ENTRY)
    assert replace(MONOIDS["distinct_sum"], ansi=False).value(column, *FIRST_ENTRY).to_pylist() == [
        -(2**63)
    ]


def test_distinct_texts_have_no_sum():
    with pytest.raises(PlanError, match="sums of distinct string"):
        MONOIDS["distinct_sum"].value(pa.array([["a"]]), *FIRST_ENTRY)


def test_more_values_than_an_array_holds(monkeypatch):
    monkeypatch.setattr(monoids, "_MOST", 3)
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
        MONOIDS["quantile"].merge(pa.array([1.0]), *FIRST_ENTRY)


AT = 1_600_000_000_000_000


@pytest.mark.parametrize(("name", "wanted"), [("first", [1, 1, 1]), ("last", [1, 1, 2])])
def test_ties_that_a_null_parts(name, wanted):
    kind = pa.struct([("t", pa.int64()), ("x", pa.int64())])
    column = pa.array([{"t": AT, "x": 1}, None, {"t": AT, "x": 2}], kind)
    lo, hi = np.zeros(3, np.int64), np.arange(1, 4)
    merged = MONOIDS[name].merge(column, lo, hi).to_pylist()
    assert [entry["x"] for entry in merged] == wanted

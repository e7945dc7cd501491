from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.aggregates.monoids import MONOIDS
from tests.aggregates.slow import cuts, ranges, sliced

MOMENTS, PAIRS = MONOIDS["moments"], MONOIDS["pair_moments"]
ONE = pa.struct([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])
TWO = pa.struct(
    [pa.field("n", pa.int64(), nullable=False)]
    + [(name, pa.float64()) for name in ("mean_x", "mean_y", "xy", "xx", "yy")]
)
FINITE = st.integers(-1000, 1000).map(lambda n: n / 8)
VALUES = st.none() | FINITE | st.sampled_from([math.nan, math.inf, -math.inf])


def one(value):
    """Return the moments of a row, of which some are NULL and some empty."""
    if value is None:
        return {"n": 0, "mean": None, "m2": None}
    return {"n": 1, "mean": value, "m2": value - value}


@given(st.data())
def test_moments_of_ranges(data):
    values = data.draw(st.lists(VALUES, max_size=25))
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


def test_infinity_ends_with_its_range():
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


@given(st.data())
def test_cells_of_cells(data):
    values = data.draw(st.lists(st.none() | FINITE, max_size=25))
    column = pa.array([one(each) for each in values], ONE)
    lo, hi = data.draw(cuts(len(values)))
    merged = MOMENTS.merge(column, lo, hi)
    (found,) = MOMENTS.value(merged, np.array([0]), np.array([lo.size])).to_pylist()
    (whole,) = MOMENTS.value(column, np.array([0]), np.array([len(values)])).to_pylist()
    assert (found is None) == (whole is None)
    if found is not None:
        assert found == pytest.approx(whole, rel=1e-12, abs=1e-9)


def test_fields_that_are_never_null_stay_so():
    column = pa.array([pair((1.0, 2.0))], pa.struct(list(TWO)))
    found = PAIRS.value(column, np.array([0, 1]), np.array([1, 1]))
    found.validate(full=True)
    assert found.type == column.type
    assert found.field(0).null_count == 0
    assert found.to_pylist()[1] is None

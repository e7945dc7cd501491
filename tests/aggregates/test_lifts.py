"""Columns that tasks make of those that travel, and values beside those before them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from eddyline.aggregates.bucket import Beside
from eddyline.aggregates.monoids import MONOIDS
from eddyline.aggregates.plan import Lift, lifted

INSTANTS = np.array([7, 8, 9])
DECIMALS = pa.decimal128(20, 2)


def made(way, values, kind=None):
    table = pa.table({"x": pa.chunked_array([values[:1], values[1:]])})
    return lifted(table, INSTANTS, {"p": Lift(way, "" if way == "one" else "x", kind)})["p"]


@pytest.mark.parametrize(
    ("way", "values", "kind", "wanted"),
    [
        ("same", pa.array(["a", None, "b"]), None, ["a", None, "b"]),
        ("number", pa.array([1, None, -3], pa.int8()), pa.int64(), [1, None, -3]),
        (
            "number",
            pa.array([Decimal("1.25"), None, None]),
            DECIMALS,
            [Decimal("1.25"), None, None],
        ),
        ("true", pa.array([True, False, None]), None, [1, 0, 0]),
        ("present", pa.array([0.0, None, 2.0]), None, [1, 0, 1]),
        ("one", pa.array([None, None, 1]), None, [1, 1, 1]),
    ],
)
def test_plain_columns(way, values, kind, wanted):
    found = made(way, values, kind)
    assert found.to_pylist() == wanted
    assert kind is None or found.type == kind


def test_partials_of_several_parts():
    values = pa.array([2**53 + 1, None, 5])
    assert made("timed", values).to_pylist() == [
        {"t": 7, "x": 2**53 + 1},
        {"t": 8, "x": None},
        {"t": 9, "x": 5},
    ]
    assert made("mean", values, pa.float64()).to_pylist() == [
        {"sum": float(2**53), "n": 1},  # as Java says it
        {"sum": None, "n": 0},
        {"sum": 5.0, "n": 1},
    ]
    infinite = pa.array([1.5, float("inf"), None])
    one, other, none = made("moments", infinite, pa.float64()).to_pylist()
    assert one == {"n": 1, "mean": 1.5, "m2": 0.0}
    assert (other["n"], other["mean"]) == (1, float("inf"))
    assert np.isnan(other["m2"])
    assert none == {"n": 0, "mean": None, "m2": None}


def test_values_before_are_those_of_the_result_before_but_for_firsts():
    # Two groups; that of the second result of the second group is not the first one's.
    ranges = np.array([[0, 1, 0, 0], [0, 2, 0, 1], [2, 3, 2, 2], [4, 5, 3, 4]])
    beside = Beside(ranges)
    assert beside.is_apart.tolist() == [True, False, True, True]
    values = beside.values(MONOIDS["sum"], pa.chunked_array([pa.array([1, 0, 3, 5, 5])]))
    assert values.to_pylist() == [None, 1, 1, None, 3, 5, 5]
    assert values.take(pa.array(beside.at)).to_pylist() == [1, 1, 3, 5]
    assert values.take(pa.array(beside.at - 1)).to_pylist() == [None, 1, None, 5]
    assert beside.differs(values, np.arange(4)).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([float("nan"), float("nan"), 1.0, None, None]), [False, True, True, False]),
        (pa.array([0.0, -0.0, 0.0, 1.0, 1.0]), [False, False, True, False]),
        (pa.array(["a", "a", None, None, "b"]), [False, True, False, True]),
    ],
)
def test_what_is_distinct(values, wanted):
    ranges = np.array([[k + 1, k + 2, k, k + 1] for k in range(4)])
    beside = Beside(ranges)
    assert beside.differs(values, np.arange(4)).tolist() == wanted
    some = np.array([1, 3])
    assert beside.differs(values, some).tolist() == [wanted[1], wanted[3]]

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, QueryError
from eddyline.models.solving.expressions import (
    And,
    Attribute,
    Comparison,
    Number,
    Or,
    Sum,
    projected,
)
from eddyline.models.solving.text import read_condition, read_expression
from eddyline.models.solving.where import where
from tests.models.pieces import EPOCH, SECOND, drawn, pieces, ranges, value

START = pytest.mark.parametrize("start", [0, EPOCH])


def solved(text, *rows, start=0):
    segments = pieces(*rows, start=start)
    found = where(segments, read_condition(text, [*segments.coefs]))
    return ranges(found, start)


def from_roots(*roots):
    return np.poly(roots)[::-1]


def close(found, expected):
    """Compare ranges: instants are whole microseconds."""
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.5e-6 + 1e-9)


@START
def test_t1_algebra_of_a_join(start):
    row = (0, 0, 10, {"x": [10, 2, 0], "y": [0, 1, 0.5]})
    close(solved("x < y", row, start=start), [(1 + 21**0.5, 10)])


@START
def test_t3_threshold(start):
    assert solved("price < 125", (0, 0, 10, {"price": [130, -2]}), start=start) == [(2.500001, 10)]


@START
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("<", []),
        ("<=", [(1, 1)]),
        ("=", [(1, 1)]),
        (">", [(0, 1), (1.000001, 3)]),
        ("<>", [(0, 1), (1.000001, 3)]),
        (">=", [(0, 3)]),
    ],
)
def test_t4_touching(op, expected, start):
    assert solved(f"x {op} 0", (0, 0, 3, {"x": [1, -2, 1]}), start=start) == expected


@pytest.mark.parametrize("op", ["<", "<=", "=", "<>", ">=", ">"])
def test_t5_identical(op):
    expected = [(0, 3)] if op in {"<=", "=", ">="} else []
    assert solved(f"x {op} y", (0, 0, 3, {"x": [7, 1], "y": [7, 1]})) == expected


@START
def test_t6_cubic(start):
    row = (0, 0, 4, {"x": from_roots(1, 2, 3)})
    assert solved("x < 0", row, start=start) == [(0, 1), (2.000001, 3)]
    assert solved("x >= 0", row, start=start) == [(1, 2.000001), (3, 4)]


@START
def test_t7_quartic(start):
    row = (0, 0, 5, {"x": from_roots(1, 2, 3, 4)})
    assert solved("x <= 0", row, start=start) == [(1, 2.000001), (3, 4.000001)]


@pytest.mark.parametrize("text", ["0 < x AND x < 5", "0 < x < 5", "NOT (x <= 0 OR x >= 5)"])
def test_t8_chained(text):
    row = (0, 0, 6, {"x": [-1, -2, 1]})
    close(solved(text, row), [(1 + 2**0.5, 1 + 7**0.5)])


def test_t9_boolean():
    row = (0, 0, 6, {"x": [-2, 1], "y": [4, -1]})
    assert solved("(x > 0 OR y > 0) AND x < y", row) == [(0, 3)]


def test_a_segment_that_satisfies_everywhere_stays_as_it_is():
    segments = pieces((0, 2, 5, {"x": [0, 1]}, 1), errors=0.25)
    found = where(segments, read_condition("x > -1", ["x"]))
    assert (found.origin, found.lo, found.hi) == (segments.origin, segments.lo, segments.hi)
    assert found.errors["x"] == 0.25


def test_what_is_cut_keeps_its_origin_and_its_polynomial():
    segments = pieces((0, 2, 5, {"x": [0, 1], "y": [3, 4]}, 1))
    found = where(segments, read_condition("x >= 2", ["x", "y"]))
    assert ranges(found) == [(3, 5)]
    assert found.origin == segments.origin
    np.testing.assert_array_equal(found.coefs["y"], segments.coefs["y"])


def test_a_root_between_two_microseconds_is_at_the_earlier_one():
    segments = pieces((0, 0, 5, {"x": [-2, 0, 1]}))
    below, above = (where(segments, read_condition(f"x {op} 0", ["x"])) for op in ("<", ">="))
    assert below.hi == above.lo == int(2**0.5 * SECOND)


def test_a_point_is_tested_at_its_instant_and_a_tombstone_stays():
    segments = pieces((0, 1, 1, {"x": [0, 1]}), (1, 3, 3, {"x": [0, 1]}), (2, 4, 5, None))
    found = where(segments, read_condition("x > 2", ["x"]))
    assert found.keys.tolist() == [1, 2]
    assert found.is_point.tolist() == [True, False]
    assert found.is_tombstone.tolist() == [False, True]


@pytest.mark.parametrize(
    ("text", "coefs", "origin"),
    [
        ("x = 0", [-3 * 2**0.5, 3], 0),
        ("x = 0", [-3 * (2**0.5 + 50_000), 3], -50_000),
        ("x = 0", [6, -6 * 2**0.5, 3], 0),
        ("x <= 0", [6, -6 * 2**0.5, 3], 0),
    ],
)
def test_what_a_condition_gave_satisfies_it_again(text, coefs, origin):
    """A root is not a whole microsecond: the polynomial is not quite 0 where it is stored."""
    condition = read_condition(text, ["x"])
    once = where(pieces((0, 0, 5, {"x": coefs}, origin)), condition)
    assert once.is_point.tolist() == [True]
    assert len(where(once, condition)) == 1


def test_nothing_and_one_segment():
    condition = read_condition("x * x > 1", ["x"])
    one = pieces((0, 0, 3, {"x": [0, 1]}))
    assert len(where(one.take(np.arange(0)), condition)) == 0
    assert ranges(where(one, condition)) == [(1.000001, 3)]


def test_roots_at_the_ends_of_a_piece():
    row = (0, 1, 3, {"x": [-3, 4, -1]})  # -(t - 1)(t - 3)
    assert solved("x > 0", row) == [(1.000001, 3)]
    assert solved("x <= 0", row) == [(1, 1)]
    assert solved("x = 0", row) == [(1, 1)]
    assert solved("x < 0", row) == []


def test_roots_within_a_microsecond_are_one_instant():
    row = (0, 0, 3, {"x": from_roots(1, 1 + 2e-7)})
    assert solved("x > 0", row) == [(0, 1), (1.000001, 3)]
    assert solved("x <= 0", row) == [(1, 1)]


def test_absolute_values_and_roots():
    row = (0, 0, 10, {"x": [-4, 1], "y": [0, 1]})
    assert solved("abs(x) < 2", row) == [(2.000001, 6)]
    assert solved("NOT abs(x) < 2", row) == [(0, 2.000001), (6, 10)]
    assert solved("abs(x) <> 0", row) == [(0, 4), (4.000001, 10)]
    assert solved("3 - abs(x) >= abs(x) - 1", row) == [(2, 6.000001)]
    assert solved("sqrt(y) < 2", row) == [(0, 4)]
    assert solved("sqrt(x) < 2", row) == [(4, 8)]
    assert solved("NOT sqrt(x) < 2", row) == [(8, 10)]
    assert solved("sqrt(x) > -1", row) == [(4, 10)]
    assert solved("2 * sqrt(y) + 1 = 5", row) == [(4, 4)]
    assert solved("sqrt(pow(x, 2)) <= 1", row) == [(3, 5.000001)]
    close(solved("sqrt(y) < x", row), [((9 + 17**0.5) / 2, 10)])


def test_slopes():
    row = (0, 0, 10, {"x": [0, -6, 1]})
    assert solved("d(x) > 0", row) == [(3.000001, 10)]
    assert solved("d(x) BETWEEN -2 AND 2", row) == [(2, 4.000001)]


TEXTS = {
    "x < 1": lambda x, y: x < 1,
    "x >= y": lambda x, y: x >= y,
    "x * y > 0 OR x < -2": lambda x, y: (x * y > 0) | (x < -2),
    "NOT (x BETWEEN -1 AND 1) AND y <= 2": lambda x, y: ((x < -1) | (x > 1)) & (y <= 2),
    "abs(x - y) < 1 OR y > 3": lambda x, y: (abs(x - y) < 1) | (y > 3),
    "sqrt(pow(x, 2) + pow(y, 2)) < 2": lambda x, y: np.hypot(x, y) < 2,
    "-1 < x <= 2": lambda x, y: (x > -1) & (x <= 2),
    "x <> 0 AND y <> x": lambda x, y: (x != 0) & (y != x),
}
CLEARANCE_US = 40


@given(
    segments=drawn(("x", "y")), text=st.sampled_from([*TEXTS]), epoch=st.sampled_from([0, EPOCH])
)
def test_solutions_are_what_dense_samples_say(segments, text, epoch):
    segments = replace(
        segments, **{name: getattr(segments, name) + epoch for name in ("origin", "lo", "hi")}
    )
    found = where(segments, read_condition(text, ["x", "y"]))
    for row in range(len(segments)):
        lo, hi = int(segments.lo[row]), int(segments.hi[row])
        own = (found.keys == segments.keys[row]) & (found.lo >= lo) & (found.hi <= hi)
        edges = np.concatenate([found.lo[own], found.hi[own]])
        times = np.linspace(lo, hi, 400, endpoint=False).astype(np.int64) + 13
        times = times[times < hi]
        if edges.size:
            times = times[np.abs(times[:, None] - edges).min(axis=1) > CLEARANCE_US]
        inside = np.zeros(len(times), bool)
        for each in np.flatnonzero(own & ~found.is_point):
            inside |= (found.lo[each] <= times) & (times < found.hi[each])
        tau = (times - segments.origin[row]) / SECOND
        x, y = (np.polyval(segments.coefs[name][row][::-1], tau) for name in ("x", "y"))
        np.testing.assert_array_equal(inside, TEXTS[text](x, y), f"{text} {segments.take([row])}")


@pytest.mark.parametrize(
    ("op", "expected"), [("<=", (4, 10)), (">=", (0, 4.000001)), ("<", (4.000001, 10))]
)
def test_a_root_with_a_negative_factor(op, expected):
    assert solved(f"7 - 2 * sqrt(y) {op} 3", (0, 0, 10, {"y": [0, 1]})) == [expected]


@pytest.mark.parametrize("root", [2**0.5, 3**0.5, 5**0.5, 1 / 3, 0.7])
def test_a_quartic_that_touches_is_one_point(root):
    coefs = np.convolve(np.poly([root] * 2), [1.0, 0.3, 1.0])[::-1]
    found = solved("x <= 0", (0, 0, 3, {"x": coefs}))
    assert found == [(pytest.approx(root, abs=1e-6), pytest.approx(root, abs=1e-6))]
    assert found[0][0] == found[0][1]


@pytest.mark.parametrize("op", ["<", "<=", "=", "<>", ">=", ">"])
def test_no_comparison_is_true_of_an_attribute_without_values(op):
    nan = float("nan")
    segments = pieces(
        (0, 0, 4, {"x": [nan, nan, nan], "y": [-1, 1]}),
        (1, 1, 1, {"x": [nan], "y": [0, 1]}),
        (2, 0, 4, {"x": [nan], "y": [-1, 1]}),  # the rest of its coefficients is 0
    )
    names = [*segments.coefs]
    for text in (f"x {op} 0", f"x {op} y", f"x * x - x {op} 1", f"y >= 0 AND x {op} 0"):
        assert not len(where(segments, read_condition(text, names))), text
    found = where(segments, read_condition(f"x {op} 0 OR y >= 0", names))
    assert ranges(found) == [(1, 4), (1, 1), (1, 4)]


# -- condition text -------------------------------------------------------------------------------


NAMES = ["lat", "lon", "left.x", "right.x", "a.v"]


def test_a_condition_is_a_tree_of_comparisons_with_0():
    found = read_condition("lat > 40.5 AND lon < -70", NAMES)
    assert found == And(
        (
            Comparison(Sum(Attribute("lat"), Number(-40.5)), ">"),
            Comparison(Sum(Attribute("lon"), Number(70.0)), "<"),
        )
    )


def test_not_ends_in_the_comparisons():
    one = read_condition("NOT (lat > 1 AND NOT lon <= 2)", NAMES)
    assert one == read_condition("lat <= 1 OR lon <= 2", NAMES)
    assert read_condition("lat NOT BETWEEN 1 AND 2", NAMES) == read_condition(
        "1 > lat OR lat > 2", NAMES
    )
    assert read_condition("lat NOT IN (1, 2)", NAMES) == read_condition(
        "lat <> 1 AND lat <> 2", NAMES
    )
    assert isinstance(read_condition("NOT (0 < lat < 1)", NAMES), Or)


def test_names_in_any_case_and_without_what_is_clear():
    assert read_expression("LAT", NAMES) == Attribute("lat")
    assert read_expression("v", NAMES) == Attribute("a.v")
    assert read_expression("`left`.X", NAMES) == Attribute("left.x")


@pytest.mark.parametrize(
    ("text", "kind", "said", "column"),
    [
        ("lat > 1 AND lot < 2", QueryError, "did you mean", 13),
        ("x > 1", QueryError, "left.x or right.x", 1),
        ("lon > 1 AND lat > NULL", QueryError, "NULL", 13),
        ("lat > 1 / 0", QueryError, "divides by 0", None),
        ("lat > CAST('NaN' AS DOUBLE)", NotSupportedError, "no finite number", None),
        ("lat > 1e999", NotSupportedError, "no finite number", None),
        ("lat > 'a'", NotSupportedError, "no finite number", 7),
        ("1 / lat > 2", NotSupportedError, "divides by a modelled attribute", 1),
        ("sqrt(lat) + sqrt(lon) < 2", NotSupportedError, "by squares", 1),
        ("lat * sqrt(lon) < 2", NotSupportedError, "by squares", 1),
        ("lon < 1 OR sin(lat) < 1", NotSupportedError, "sin()", 12),
        ("pow(lat, 0.5) < 1", NotSupportedError, "whole exponent", 10),
        ("pow(lat, lon) < 1", NotSupportedError, "no constant", 10),
        ("pow(lat) < 1", QueryError, "takes 2", 1),
        ("d(abs(lat)) < 1", NotSupportedError, "d() takes", 1),
        ("lat IS NULL", NotSupportedError, "no comparison", 1),
        ("lat + 1", NotSupportedError, "no comparison", 1),
        ("lat <", QueryError, "cannot be read", 5),
        ("", QueryError, "is empty", None),
        (
            "abs(lat) + abs(lat + 1) + abs(lat + 2) + abs(lat + 3) + abs(lat + 4) + abs(lon) "
            "+ abs(lon + 1) < 9",
            NotSupportedError,
            "write it as several",
            1,
        ),
    ],
)
def test_what_is_refused_and_where(text, kind, said, column):
    with pytest.raises(kind) as caught:
        read_condition(text, NAMES)
    assert said in caught.value.message
    if column:
        assert caught.value.facts["column"] == column


def test_an_expression_with_abs_is_no_attribute():
    with pytest.raises(NotSupportedError, match="only in conditions"):
        read_expression("abs(lat)", NAMES)


def test_projected_attributes_and_their_errors():
    segments = pieces((0, 1, 3, {"x": [1, 1], "y": [0, 2]}), errors=0.5)
    columns = {
        name: read_expression(text, ["x", "y"])
        for name, text in {
            "sum": "x - 3 * y",
            "product": "x * y",
            "square": "pow(x, 2)",
            "slope": "d(x)",
            "half": "x / 2",
            "one": "1",
        }.items()
    }
    found = projected(segments, columns)
    expected = {"sum": 3 - 12, "product": 12, "square": 9, "slope": 1, "half": 1.5, "one": 1}
    assert {name: value(found, name, 2)[0] for name in columns} == pytest.approx(expected)
    errors = {name: found.errors[name][0] for name in columns}
    assert errors == {
        "sum": 2.0,
        "product": 4 * 0.5 + 6 * 0.5 + 0.25,
        "square": 4 * 0.5 + 4 * 0.5 + 0.25,
        "slope": np.inf,
        "half": 0.25,
        "one": 0.0,
    }

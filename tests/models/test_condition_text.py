from __future__ import annotations

import numpy as np
import pytest

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
from tests.models.pieces import pieces, value

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

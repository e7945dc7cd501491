"""Models that are declared by equations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.fitting.declared import Declared, declared, read_equations

HORIZON = 10


def table_of(rows):
    """Return rows of entity, seconds and coefficients of one attribute."""
    keys, seconds, coefs = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "k": pa.array(keys, pa.string()),
            "ts": (pa.array(np.array(seconds, float) * 1e6, pa.float64()))
            .cast(pa.int64())
            .cast(pa.timestamp("us")),
            "x": pa.array(coefs, pa.list_(pa.float64())),
        }
    )


def made(rows):
    how = Declared(("k",), "ts", read_equations({"x": "a + b * t"}), HORIZON * 1_000_000)
    found = declared(table_of(rows), how)
    names = found.names.column("k").to_pylist()
    segments = found.segments
    return [
        (name, lo / 1e6, hi / 1e6, coefs.tolist())
        for name, lo, hi, coefs in zip(
            names, segments.lo, segments.hi, segments.coefs["x"], strict=True
        )
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x + v * t", ["x", "v"]),
        ("x", ["x"]),
        ("t", [0, 1]),
        ("-t * 3", [0, -3]),
        ("x - (v - 2 * t) * t", ["x", "-v", 2]),
        ("(a + t) * (b - t) / 2", ["a * b / 2", "(b - a) / 2", -0.5]),
        ("pow(t - a, 2) + y", ["a * a + y", "-2 * a", 1]),
        ("t * t * t * t", [0, 0, 0, 0, 1]),
        ("(x + x) / v", ["2 * x / v"]),
    ],
)
def test_coefficients_are_those_of_the_polynomial(text, wanted):
    rng = np.random.default_rng(1)
    names = {each: float(rng.normal()) for each in "xvaby"}
    found = read_equations({"z": text})["z"].coefs
    values = [eval(each.replace("1.0D", "1.0"), {}, names) for each in found]
    assert values == pytest.approx([eval(str(each), {}, names) for each in wanted])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"x": "sin(t)"}, NotSupportedError, "no polynomial of t"),
        ({"x": "1 / t"}, NotSupportedError, "no polynomial of t"),
        ({"x": "pow(t, 0.5)"}, NotSupportedError, "no polynomial of t"),
        ({"x": "pow(t, 3) * t * t"}, NotSupportedError, "degree 5; 4 is the highest"),
        ({"x": "a +"}, QueryError, "an operand is missing"),
        ({"x": ""}, OptionError, "is a text"),
        ({}, OptionError, "an equation for each attribute"),
        ("x + t", OptionError, "an equation for each attribute"),
    ],
)
def test_what_is_no_equation_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        read_equations(given)


def test_a_row_is_valid_until_the_next_one_or_the_horizon():
    rows = [("a", 0, [1, 2]), ("a", 4, [5, 0]), ("b", 1, [0, 0]), ("a", 30, [7, 7])]
    assert made(rows) == [
        ("a", 0, 4, [1, 2]),
        ("a", 4, 14, [5, 0]),
        ("a", 30, 40, [7, 7]),
        ("b", 1, 11, [0, 0]),
    ]


def test_rows_that_say_nothing_do_not_end_others():
    rows = [("a", 0, [1, 2]), ("a", 2, [None, 1]), ("a", 3, [float("inf"), 1]), ("a", 5, [3, 1])]
    assert made(rows) == [("a", 0, 5, [1, 2]), ("a", 5, 15, [3, 1])]


def test_of_rows_at_one_instant_the_greatest_counts():
    assert made([("a", 0, [1, 9]), ("a", 0, [2, 1]), ("a", 0, [2, 3])]) == [("a", 0, 10, [2, 3])]


def test_no_rows_are_no_segments():
    assert made([]) == []


coefficients = st.lists(st.integers(-3, 3), min_size=2, max_size=2)
row = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 40), coefficients)


@given(st.lists(row, max_size=20), st.randoms())
def test_segments_depend_on_rows_and_not_on_their_order(rows, random):
    shuffled = [*rows]
    random.shuffle(shuffled)
    found = sorted(made(rows), key=repr)
    assert sorted(made(shuffled), key=repr) == found
    for name, seconds, _ in rows:
        assert sum(each[0] == name and each[1] <= seconds < each[2] for each in found) == 1

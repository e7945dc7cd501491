"""How a fit is asked for: what is read, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import inf, nan

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, OptionError
from eddyline.models.fitting.bounds import (
    Bound,
    FitOptions,
    assumed_in_words,
    common_range,
    inverted_expression,
    n_outside,
    read_bounds,
    read_length,
    read_ranges,
    spread,
    weights_of,
)
from eddyline.models.fitting.splits import GRADIENT, LEAST_SHARE, Part, read_split
from eddyline.models.solving import polynomials
from eddyline.models.solving.expressions import Number, Range, Terms, terms_of
from eddyline.models.solving.text import read_expression
from eddyline.models.solving.where import begun
from eddyline.models.streams.plan import StreamInput, StreamPlan
from tests.models.batches import DECLARED, FIT, INPUT, SHAPE, coded, reported, rows_of, table_of
from tests.models.pieces import pieces


@pytest.mark.parametrize(
    ("given", "bound", "text"),
    [
        (0.5, Bound(0.5), "0.5"),
        ("0.5", Bound(0.5), "0.5"),
        (" 2.5e-3 ", Bound(0.0025), "0.0025"),
        (0, Bound(0.0), "0"),
        ("1 %", Bound(0.01, is_relative=True), "1 %"),
        ("12%", Bound(0.12, is_relative=True), "12 %"),
    ],
)
def test_a_bound_is_a_number_or_a_share(given, bound, text):
    assert read_bounds({"lat": given}) == {"lat": bound}
    assert str(bound) == text


@pytest.mark.parametrize("given", [-1, "-1 %", float("nan"), float("inf"), "close", None, True, []])
def test_what_is_no_bound_is_refused_by_name(given):
    with pytest.raises(OptionError, match=r"within\['lat'\] is a finite number of 0 or more"):
        read_bounds({"lon": 1, "lat": given})


@pytest.mark.parametrize("given", [{}, None, 0.5, ["lat"], {1: 0.5}, {"": 0.5}])
def test_bounds_are_given_by_name(given):
    with pytest.raises(OptionError):
        read_bounds(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "slide"),
        ("degree", 5),
        ("degree", 1.0),
        ("prefix_rows", 15),
        ("max_gap_us", 0),
    ],
)
def test_options_say_which_value_is_out_of_range(name, value):
    with pytest.raises(OptionError, match=name):
        FitOptions(**{name: value})


# -- lengths --------------------------------------------------------------------------------------


LONGEST = 3_652_500 * 86_400


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        (1.5, 1_500_000),
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        (timedelta(milliseconds=2), 2_000),
        *((each, LONGEST * 1_000_000)
          for each in ("3652500 days", timedelta(days=3_652_500), LONGEST)),
    ],
)  # fmt: skip
def test_a_length_is_an_interval_or_seconds(given, micros):
    assert read_length("horizon", given) == micros


@pytest.mark.parametrize(
    "length",
    [
        "3652501 days",
        "3652500 days 1 microsecond",
        timedelta.max,
        LONGEST + 1,
        1e300,
        "9" * 4_500 + " days",
    ],
)
def test_longer_lengths_are_refused_by_what_they_are(length):
    with pytest.raises(
        OptionError, match=r"horizon .* is too long; the longest time is 3652500 DAYS"
    ):
        read_length("horizon", length)


@pytest.mark.parametrize(
    "length", [0, -1, inf, nan, True, "0 seconds", "-1 day", "1 month", "soon", None, []]
)
def test_what_is_no_length_is_refused(length):
    with pytest.raises(OptionError, match="horizon is an interval such as '10 minutes'"):
        read_length("horizon", length)


# -- assumed --------------------------------------------------------------------------------------


ROW_VALUES = st.one_of(
    st.none(), st.sampled_from([-1.0, 0.0, 2.0, 5.0, np.inf, -np.inf, np.nan, 7.5])
)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        (3, "two ends for each attribute"),
        ({"x": 3}, "two finite numbers"),
        ({"x": (3, 1)}, "two finite numbers"),
        ({"x": (0, float("inf"))}, "two finite numbers"),
        ({"x": (0, True)}, "two finite numbers"),
        ({"x": (0, 1, 2)}, "two finite numbers"),
        ({"d(x)": (0, 1)}, "lacks that of 'x'"),
        ({3: (0, 1)}, "attribute in ranges"),
    ],
)
def test_what_is_no_range_is_refused(ranges, message):
    with pytest.raises(OptionError, match=message):
        read_ranges(ranges)


def test_ranges_of_values_and_of_how_fast_they_change():
    found = read_ranges({"x": (0, 100), " D( x ) ": (-3, 2), "y": [1, 1]})
    assert found["x"] == Range(0, 100, 3)
    assert found["y"][:2] == (1, 1)
    assert assumed_in_words(found) == "; x from 0 to 100, y from 1 to 1 is assumed"
    assert assumed_in_words({}) == ""
    with pytest.raises(OptionError, match=r"lacks that of 'd\(y\)'"):
        read_ranges({"x": (0, 100), "d(x)": (-3, 2), "y": (1, 1)}, by_pace=True)


def test_of_two_ranges_both_hold():
    assert common_range(Range(0, 10, 2), Range(5, 20), "x") == Range(5, 10, 2)
    with pytest.raises(OptionError, match="'x' is said to be x from 0 to 1, and x from 2 to 3"):
        common_range(Range(0, 1), Range(2, 3), "x")


@given(st.lists(st.tuples(ROW_VALUES, ROW_VALUES), max_size=8))
def test_rows_outside_are_counted_as_one_by_one(rows):
    assumed = {"x": Range(0.0, 5.0), "y": Range(-2.0, 2.0)}

    def is_out(value, known):
        return value is not None and np.isfinite(value) and not known.low <= value <= known.high

    wanted = sum(any(is_out(*pair) for pair in zip(row, assumed.values(), strict=True))
                 for row in rows)  # fmt: skip
    columns = [pa.array(list(each), pa.float64()) for each in zip(*rows, strict=True)] or [
        pa.array([], pa.float64())
    ] * 2
    plain = pa.table(dict(zip("xy", columns, strict=True)))
    assert n_outside(plain, assumed) == wanted
    lists = [[None if v is None else [v, 3.0] for v in each.to_pylist()] for each in columns]
    of_models = {
        name: pa.array(each, pa.list_(pa.float64())) for name, each in zip("xy", lists, strict=True)
    }
    assert n_outside(pa.table(of_models), assumed) == wanted


@pytest.mark.parametrize("maker", [FIT, DECLARED], ids=["fit", "declared"])
@pytest.mark.parametrize("cuts", [[], [7], [3, 20, 21, 50]])
def test_a_row_outside_counts_once_in_any_batches(maker, cuts):
    assumed = {"x": Range(-1.0, 1.0), "y": Range(-0.5, 3.0)}
    table = coded(table_of(rows_of(4, 60), maker)).sort_by("ts")
    plan = StreamPlan((StreamInput(replace(maker, assumed=assumed), SHAPE),), INPUT)
    reports, _ = reported(plan, table, cuts)
    n = sum(each.counts.total.n_outside for each in reports)
    assert n == n_outside(table, assumed) > 10


# -- splits ---------------------------------------------------------------------------------------


NAMES = ["x", "y", "z"]


def reach_on(given, length):
    """Return what gives the greatest absolute values of expressions on a segment."""

    def reach(part):
        low, high = polynomials.extremes(terms_of(part, given).coefs, length)
        return float(max(abs(low[0]), abs(high[0])))

    return reach


def terms(*coefs):
    return {
        name: Terms(np.array([each]), np.abs([each]))
        for name, each in zip(NAMES, coefs, strict=False)
    }


def near(expression):
    assert isinstance(expression, Number), "only products look at how large attributes are"
    return abs(expression.value)


def shares_of(moves):
    return GRADIENT.of({name: Part(name, 1.0, pace) for name, pace in moves.items()})


def split(text, amount, reach=near, shares=None):
    return spread(read_expression(text, NAMES), amount, reach, shares)


def test_t22_shares_are_by_how_fast_attributes_move():
    shares = shares_of({"x": 3.0, "y": 1.0})
    for text in ("x + y", "x - y"):
        found = split(text, 0.4, shares=shares)
        assert found == pytest.approx({"x": 0.3, "y": 0.1}, abs=1e-9)


def test_what_rests_has_the_least_share():
    least = LEAST_SHARE / 3
    expected = np.array([0.5, least, 0.5]) / (1 + least)
    found = shares_of({"x": 2.0, "y": 0.0, "z": 2.0})
    assert [*found.values()] == pytest.approx(expected)
    assert shares_of({"x": 0.0, "y": 0.0}) == {"x": 0.5, "y": 0.5}
    assert shares_of({"x": np.nan, "y": 1.0}) == {"x": 0.5, "y": 0.5}


def test_a_split_is_a_name_a_function_or_one_of_a_package_and_its_shares_are_checked():
    assert read_split("gradient") is GRADIENT
    with pytest.raises(OptionError, match=r"unknown split 'equl'.*did you mean 'equal'"):
        read_split("equl")

    def equal(parts):  # the name of another one
        return [0.75, *[0.25 / (len(parts) - 1)] * (len(parts) - 1)]

    expression, known = read_expression("x - 2 * y", NAMES), {}
    found = inverted_expression(expression, "z", Bound(0.4), known, split=read_split(equal))
    assert {name: each.value for name, each in found.items()} == pytest.approx(
        {"x": 0.3, "y": 0.05}, abs=1e-9
    )
    for given_ in ([1.0, 0.5], [1.0], [0.0, 1.0], ["a", "b"], [np.nan, 0.5]):
        wrong = read_split(lambda _, shares=given_: shares)
        with pytest.raises(OptionError, match="share above 0, together 1 at most; for x, y"):
            inverted_expression(expression, "z", Bound(0.4), known, split=wrong)


def test_t23_the_inputs_that_caused_an_output_make_its_inverse_unique():
    """4 + 1 and -1 - 2 + 8 are both 5: what may be off by 5 depends on which inputs there were."""
    assert split("x + y", 5.0) == pytest.approx({"x": 2.5, "y": 2.5})
    assert split("x + y + z", 5.0) == pytest.approx(dict.fromkeys(NAMES, 5 / 3))


def test_what_changes_nothing_and_what_may_be_anything():
    assert split("2 * x - 3 * y", 12.0) == pytest.approx({"x": 3.0, "y": 2.0})
    assert split("x + 0 * y", 1.0) == pytest.approx({"x": 1.0, "y": np.inf})
    assert split("x", 0.3) == {"x": 0.3}
    assert split("x - y", 0.0) == {"x": 0.0, "y": 0.0}
    with pytest.raises(NotSupportedError, match=r"has d\(\)"):
        split("x + d(y)", 1.0)
    assert split("x * x", 4.0, lambda _: 0.0) == pytest.approx({"x": 2.0})
    beside = split("x * y", 4.0, lambda _: 0.0)
    assert beside == pytest.approx({"x": 2.0, "y": 2.0})  # 0 times 0, and both are off
    assert split("x * y", 4.0, lambda _: np.inf) == {"x": 0.0, "y": 0.0}


def test_weights_of_sums():
    assert weights_of(read_expression("2 * (x - y / 4) - x + pow(z, 1)", NAMES)) == {
        "x": 1.0, "y": -0.5, "z": 1.0,
    }  # fmt: skip
    assert weights_of(read_expression("x * y", NAMES)) is None
    assert weights_of(read_expression("pow(x, 0) * y + pow(x, 2)", NAMES)) is None


TEXTS = ["x - 3 * y", "x * y - z", "pow(x, 3)", "(x - y) * (x - y) + z", "x * y * z", "2 * x + 1"]
VALUES = st.integers(-40, 40).map(lambda n: n / 4) | st.just(0.0)


@given(
    text=st.sampled_from(TEXTS),
    coefs=st.lists(VALUES, min_size=6, max_size=6),
    amount=st.sampled_from([1e-6, 0.5, 3.0, 1000.0]),
    seed=st.integers(0, 2**32),
    is_by_pace=st.booleans(),
)
def test_inputs_within_their_shares_are_together_within_the_whole(
    text, coefs, amount, seed, is_by_pace
):
    rng = np.random.default_rng(seed)
    expression = read_expression(text, NAMES)
    x, y, z = (coefs[at : at + 2] for at in (0, 2, 4))
    segments = pieces((0, 0, 3, {"x": x, "y": y, "z": z}))
    given_ = begun(segments, NAMES)
    length = np.array([3.0])
    read = [name for name in NAMES if name in text]
    paces = dict(zip(read, rng.uniform(0, 3, len(read)).tolist(), strict=True))
    shares = shares_of(paces) if is_by_pace else None
    bounds = spread(expression, amount, reach_on(given_, length), shares)
    times = np.linspace(0, 3, 40)
    models = {
        name: np.polyval(each[::-1], times) for name, each in zip(NAMES, (x, y, z), strict=True)
    }
    for off in (rng.uniform(-1, 1, (3, 40)), rng.choice([-1.0, 1.0], (3, 40))):
        rows = {
            name: models[name] + bounds.get(name, 0.0) * off[at] for at, name in enumerate(NAMES)
        }
        apart = np.abs(value(text, rows) - value(text, models))
        assert (apart <= amount + 1e-9 * (1 + np.abs(value(text, models)))).all()


def value(text, given_):
    x, y, z = (given_[name] for name in NAMES)
    return {
        "x - 3 * y": x - 3 * y,
        "x * y - z": x * y - z,
        "pow(x, 3)": x**3,
        "(x - y) * (x - y) + z": (x - y) ** 2 + z,
        "x * y * z": x * y * z,
        "2 * x + 1": 2 * x + 1,
    }[text]


@given(text=st.sampled_from(TEXTS), amount=st.floats(1e-9, 1e9))
def test_all_of_the_amount_is_given_away(text, amount):
    """At the corner where every error adds up, the whole error is the amount."""
    reach = dict.fromkeys(NAMES, 2.0)

    def size(part):
        coefs = {name: Terms(np.array([[far]]), np.array([[far]])) for name, far in reach.items()}
        return terms_of(part, coefs).size.item()

    bounds = split(text, amount, size)
    if text == "(x - y) * (x - y) + z":
        b = bounds["x"] + bounds["y"]
        whole = 2 * 4 * b + b * b + bounds["z"]
    elif text == "x * y - z":
        whole = 2 * bounds["x"] + 2 * bounds["y"] + bounds["x"] * bounds["y"] + bounds["z"]
    elif text == "pow(x, 3)":
        whole = (2 + bounds["x"]) ** 3 - 8
    elif text == "x * y * z":
        whole = (2 + bounds["x"]) * (2 + bounds["y"]) * (2 + bounds["z"]) - 8
    else:
        whole = bounds["x"] + 3 * bounds["y"] if "y" in bounds else 2 * bounds["x"]
    assert whole == pytest.approx(amount, rel=1e-6)


def test_a_factor_beside_a_large_one_has_the_lesser_bound():
    reach = {"x": 1.0, "y": 9.0}
    found = split("x * y", 1.0, lambda part: reach[part.name])
    assert 0 < found["x"] < found["y"]
    assert 9 * found["x"] + found["y"] + found["x"] * found["y"] == pytest.approx(1.0)

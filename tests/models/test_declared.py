"""Models that are declared by equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.models.fitting.bounds import Bound
from eddyline.models.fitting.declared import Declared, declared, read_equations
from eddyline.models.fitting.fit import FitReport
from eddyline.models.streams.plan import StreamInput, StreamPlan
from tests.models.batches import (
    DECLARED,
    DOOR,
    INPUT,
    SECOND,
    SHAPE,
    at_once,
    coded,
    reported,
    rows_of,
    shown,
    streamed,
    table_of,
)

HORIZON = 10


def arrow_rows(rows):
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
    found = declared(arrow_rows(rows), how)
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


# -- door -----------------------------------------------------------------------------------------


def allowed(bound, value):
    return bound.value * abs(value) if bound.is_relative else bound.value


def by_a_loop(rows, how):
    """Return for each model its entity, begin and end, and how many rows it stands for."""
    keys, times, x, y = rows
    latest = {}  # of an instant the row of the greatest coefficients counts
    for key, time, *values in sorted(
        zip(keys, times, x, np.nan_to_num(y, nan=np.inf), strict=True)
    ):
        latest[key, time] = values
    found, before = [], None
    for (key, time), values in sorted(latest.items()):
        goes_on = before is not None and before[0] == key and time - before[1] < how.horizon_us
        if goes_on:
            _, begin, _, own, _ = found[-1]
            model = own[0] + (time - begin) / SECOND, own[1]
            goes_on = all(
                not np.isfinite(each) or abs(each - its) <= allowed(bound, each)
                for each, its, bound in zip(values, model, how.within.values(), strict=True)
            )
            if found[-1][0] == key:
                found[-1][2] = min(found[-1][2], time)
        if goes_on:
            found[-1][2] = time + how.horizon_us
            found[-1][4] += 1
        else:
            found.append([key, time, time + how.horizon_us, values, 1])
        before = key, time
    return found


@given(
    seed=st.integers(0, 2**32), n=st.integers(1, 150), most=st.sampled_from([0.0, 0.5, 1.5, 9.0])
)
def test_rows_are_dropped_as_a_loop_drops_them_and_are_within_printed_errors(seed, n, most):
    rows = rows_of(seed, n)
    how = replace(DOOR, within={"x": Bound(most), "y": Bound(0.5, is_relative=True)})
    table = table_of(rows, how).sort_by([("k", "ascending"), ("ts", "ascending")])
    found = declared(table, how)
    names = found.entities.column("k").to_pylist()
    got = [
        (names[key], lo, hi)
        for key, lo, hi in zip(*(getattr(found.segments, each).tolist() for each in
                                 ("keys", "lo", "hi")), strict=True)
    ]  # fmt: skip
    named = {0: "k0", 1: "k1", 2: None}
    wanted = [(named[key], begin, end) for key, begin, end, _, _ in by_a_loop(rows, how)]
    assert sorted(got, key=repr) == sorted(wanted, key=repr)
    segments = found.segments
    checked = 0
    for key, time, x, y in zip(*rows, strict=True):
        (at,) = [
            place
            for place, (name, lo, hi) in enumerate(got)
            if name == named[key] and lo <= time < hi
        ]
        for name, value in (("x", x), ("y", y)):
            others = rows[2 if name == "x" else 3][(rows[0] == key) & (rows[1] == time)]
            if np.isfinite(value) and len(others) == 1:
                coefs = segments.coefs[name][at]
                model = np.polyval(coefs[::-1], (time - segments.origin[at]) * 1e-6)
                assert abs(value - model) <= segments.errors[name][at] or np.isnan(model)
                checked += 1
    assert checked or n < 20


@pytest.mark.large
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 120),
    cuts=st.lists(st.integers(0, 120), max_size=5),
)
def test_counts_do_not_depend_on_batches(seed, n, cuts):
    table = table_of(rows_of(seed, n), DOOR).sort_by("ts")
    whole = reports(table, [], DOOR)
    assert reports(table, cuts, DOOR) == whole
    assert whole.n_rows == whole.n_segments + whole.n_dropped
    assert whole.n_broken < whole.n_segments
    without = reports(table, cuts, DECLARED)
    assert (without.n_dropped, without.n_broken) == (0, 0)
    assert without.n_rows == whole.n_rows


def test_a_model_goes_on_by_a_row_that_is_not_kept():
    # Of the rows at 0, 1 and 4 s the bucket keeps the first and the last one, a horizon apart.
    seconds = np.array([0, 1, 4, 5])
    table = table_of((seconds * 0, seconds * SECOND, seconds * 1.0, seconds * 0.0 + 2), DOOR)
    found = streamed(table, DOOR, INPUT, [3], 0, np.random.default_rng(0))
    assert shown(found) == shown(at_once(table, DOOR, INPUT))
    assert sum(map(len, found)) == 1


def reports(table, cuts, how):
    plan = StreamPlan((StreamInput(how, SHAPE),), INPUT)
    found, _ = reported(plan, coded(table), [min(each, len(table)) for each in cuts])
    return sum((report.counts.total for report in found), FitReport())


@pytest.mark.parametrize(
    ("within", "message"),
    [
        ({"z": Bound(1.0)}, "unknown attribute in within 'z'"),
        ({"x": Bound(1.0, is_relative=True)}, "less than 100 %"),
    ],
)
def test_bounds_that_say_nothing_are_refused(within, message):
    with pytest.raises(OptionError, match=message):
        replace(DECLARED, within=within)

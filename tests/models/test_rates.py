"""Attributes that are declared by their rate: segments against closed forms, and errors."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import EddylineError, NotSupportedError, OptionError, QueryError
from eddyline.models.fitting.bounds import read_bounds
from eddyline.models.fitting.declared import Declared, declared, read_equations
from eddyline.models.solving.polynomials import evaluate
from tests.examples import examples

SECOND = 1_000_000
HORIZON_S = 40


def made(model, rows, within, keys=("k",)):
    """Return segments of rows: the time of each in seconds, and coefficients by attribute."""
    how = Declared(keys, "ts", read_equations(model), HORIZON_S * SECOND, read_bounds(within))
    table = pa.table(
        {
            "k": pa.array([row["k"] for row in rows]),
            "ts": pa.array([row["ts"] * SECOND for row in rows], pa.timestamp("us", "UTC")),
        }
        | {name: pa.array([row[name] for row in rows], pa.list_(pa.float64())) for name in model}
    )
    return declared(table, how)


def check_follows(model, rows, within, closed):
    """Check that all of each row's time has pieces that are within the bound of a closed form."""
    segments = made(model, rows, within).segments
    for number, row in enumerate(rows):
        own = segments.take(segments.keys == number)
        since = row["ts"] * SECOND
        assert own.lo[0] == since
        assert own.hi[-1] == since + HORIZON_S * SECOND
        assert (own.lo[1:] == own.hi[:-1]).all(), "no gaps"
        for name, bound in within.items():
            for share in np.linspace(0, 1, 9):
                micros = own.lo + np.asarray(share * (own.hi - own.lo), np.int64)
                found = evaluate(own.coefs[name], own.seconds(micros))
                wanted = closed(row, (micros - since) * 1e-6)[name]
                np.testing.assert_array_less(np.abs(found - wanted), bound)
            assert (own.errors[name] == bound).all()
    return segments


numbers = st.floats(-20, 20, allow_subnormal=False)
some_bounds = st.sampled_from([1e-4, 0.01, 1.0])


def rows_of(values, *names):
    return [
        {"k": number, "ts": 7 * number} | dict(zip(names, each, strict=True))
        for number, each in enumerate(values)
    ]


@examples(40)
@given(st.lists(st.tuples(numbers, numbers, st.floats(-0.2, 3)), min_size=1, max_size=5),
       some_bounds)  # fmt: skip
def test_exponential_decay_and_growth_are_followed(values, bound):
    rows = rows_of([([x, a, b],) for x, a, b in values], "x")

    def closed(row, t):
        x, a, b = row["x"]
        if abs(b) < 1e-9:
            return {"x": x + a * t * (1 - b * t / 2) - x * b * t}
        return {"x": a / b + (x - a / b) * np.exp(-b * t)}

    check_follows({"x": "d(x) = a - b * x"}, rows, {"x": bound}, closed)


@examples(20)
@given(st.lists(st.tuples(st.floats(0.01, 30), st.floats(0.1, 2), st.floats(1, 20)), min_size=1,
                max_size=4), some_bounds)  # fmt: skip
def test_logistic_growth_is_followed(values, bound):
    rows = rows_of([([x, r, most],) for x, r, most in values], "x")

    def closed(row, t):
        x, r, most = row["x"]
        return {"x": most / (1 + (most / x - 1) * np.exp(-r * t))}

    check_follows({"x": "d(x) = r * x * (1 - x / most)"}, rows, {"x": bound}, closed)


@examples(20)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4), some_bounds)
def test_a_constant_rate_is_a_line_and_a_falling_body_a_parabola(values, bound):
    rows = rows_of([([h], [v]) for h, v in values], "h", "v")

    def fallen(row, t):
        h, v = row["h"][0], row["v"][0]
        return {"h": h + v * t - 9.81 / 2 * t**2, "v": v - 9.81 * t}

    model = {"h": "d(h) = v", "v": "d(V) = -9.81"}
    segments = check_follows(model, rows, dict.fromkeys("hv", bound), fallen)
    assert len(segments) == len(rows), "what is a polynomial is one piece"
    assert segments.coefs["h"].shape[1] <= 3
    assert segments.coefs["v"].shape[1] == 2
    line = made({"h": "d(h) = v"}, rows_of([([h, v],) for h, v in values], "h"), {"h": bound})
    assert line.segments.coefs["h"].shape[1] <= 2


def test_a_rate_may_depend_on_time_and_call_functions():
    def closed(row, t):
        return {"x": row["x"][0] + np.sin(t) + np.exp(-t) - 1}

    check_follows({"x": "d(x) = cos(t) - exp(-t)"}, rows_of([([3.0],)], "x"), {"x": 0.01}, closed)


def test_rows_cut_their_predecessors_and_equations_stand_beside_rates():
    rows = [
        {"k": 1, "ts": 0, "x": [1.0, -0.5], "y": [2.0, 3.0]},
        {"k": 1, "ts": 10, "x": [5.0, -0.5], "y": [9.0, 1.0]},
    ]
    segments = made({"x": "d(x) = b * x", "y": "y + v * t"}, rows, {"x": 0.01}).segments
    assert len(segments) > 4
    for start, end, x, y, v in ((0, 10, 1.0, 2.0, 3.0), (10, 10 + HORIZON_S, 5.0, 9.0, 1.0)):
        own = segments.take((segments.lo >= start * SECOND) & (segments.lo < end * SECOND))
        assert own.hi[-1] == end * SECOND
        middle = (own.lo + own.hi) // 2
        t = middle * 1e-6 - start
        assert evaluate(own.coefs["y"], own.seconds(middle)) == pytest.approx(y + v * t)
        assert evaluate(own.coefs["x"], own.seconds(middle)) == pytest.approx(
            x * np.exp(-0.5 * t), abs=0.01
        )


@pytest.mark.parametrize(
    ("rate", "value", "closed", "until"),
    [
        ("d(x) = x * x", 0.5, lambda t: 1 / (2 - t), 2.0),
        ("d(x) = -1 / x", 3.0, lambda t: np.sqrt(9 - 2 * t), 4.5),
        ("d(x) = ln(3 - t)", 1.0, lambda t: t + 1 - (3 - t) * np.log(3 - t) + 3 * np.log(3) - 2 * t,
         3.0),
    ],
)  # fmt: skip
def test_what_explodes_is_cut_within_its_bound_and_counted(rate, value, closed, until):
    how = Declared(("k",), "ts", read_equations({"x": rate}), HORIZON_S * SECOND,
                   read_bounds({"x": 0.01}))  # fmt: skip
    table = pa.table(
        {
            "k": pa.array([1, 1, 2]),
            "ts": pa.array([0, 100 * SECOND, 0], pa.timestamp("us", "UTC")),
            "x": pa.array([[value], [value], [None]], pa.list_(pa.float64())),
        }
    )
    part = how.part(table, 200 * SECOND, None)
    segments = part.segments.segments
    first = segments.take(segments.lo < 100 * SECOND)
    assert 0.85 * until < first.hi[-1] * 1e-6 <= until
    for share in (0.0, 0.5, 1.0):
        micros = first.lo + np.asarray(share * (first.hi - first.lo), np.int64)
        off = evaluate(first.coefs["x"], first.seconds(micros)) - closed(micros * 1e-6)
        assert np.abs(off).max() <= 0.01
    assert part.report.n_cut == 2
    assert part.report.n_without == 1
    assert "2 models cut where the rate has no solution" in str(part.report)


@pytest.mark.parametrize(
    ("model", "within", "kind", "said"),
    [
        ({"x": "d(y) = 3"}, {"x": 1}, QueryError, "is written d.x. = …, got D.y."),
        ({"x": "d(x) = x +"}, {"x": 1}, QueryError, "cannot be read as SQL"),
        ({"x": "d(x) = floor(x)"}, {"x": 1}, NotSupportedError, "rate of 'x' has FLOOR.*it may"),
        ({"x": "d(x) = x > 3"}, {"x": 1}, NotSupportedError, "rate of 'x' has"),
        ({"x": "d(x) = y", "y": "y + v * t"}, {"x": 1}, NotSupportedError, "declared by an equ"),
        ({"x": "d(x) = a"}, {}, OptionError, "solved as near as within says"),
        ({"x": "d(x) = a"}, {"x": "1 %"}, OptionError, "distance above 0.*got 1 %"),
        ({"x": "d(x) = a"}, {"x": 0}, OptionError, "distance above 0"),
        ({"x": "d(x) = a", "y": "y + v * t"}, {"x": 1, "y": 1}, OptionError, "leave it out"),
    ],
)  # fmt: skip
def test_mistakes_in_rates_are_said(model, within, kind, said):
    with pytest.raises(EddylineError, match=said) as error:
        Declared(("k",), "ts", read_equations(model), SECOND, read_bounds(within) if within else {})
    assert type(error.value) is kind

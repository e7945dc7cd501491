"""Values near the largest and the least double: the right answer, or an error that says so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.errors import ModelError
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.fit import fit
from eddyline.models.segments import Keyed
from eddyline.models.solving import polynomials
from eddyline.models.solving.text import read_condition, read_expression
from eddyline.models.solving.where import where
from eddyline.models.steps import Extremum, Integral, Project, Sample, Total
from eddyline.models.windows.extrema import Functions, Pieces, extreme
from eddyline.models.windows.integrals import distance_integral, sampled
from tests.alarms.alone import alone, together
from tests.models.pieces import SECOND, pieces, ranges

LARGEST = 1.7976931348623157e308
VALUES = [1e100, 1e150, 1e155, 1e200, 1e300, 1e307, 1.7e308, LARGEST, 1e-100, 1e-200, 1e-300]
ON_VALUES = pytest.mark.parametrize("size", VALUES)


def solved(text, *rows):
    segments = pieces(*rows)
    return ranges(where(segments, read_condition(text, [*segments.coefs])))


@ON_VALUES
def test_comparisons_with_constants(size):
    row = (0, 0, 10, {"x": [size]})
    for text in (
        f"x > {size / 10!r}",
        f"x > {-size!r}",
        "x > 0",
        f"x = {size!r}",
        f"-x < {size!r}",
    ):
        assert solved(text, row) == [(0, 10)], text
    for text in (f"x < {size / 10!r}", f"x < {-size!r}", f"x <> {size!r}", f"-x >= {size!r}"):
        assert solved(text, row) == [], text


@ON_VALUES
@pytest.mark.parametrize("sign", [1, -1])
def test_a_line_from_the_least_value_to_the_greatest(size, sign):
    row = (0, 0, 8, {"x": [-sign * size, sign * size / 4], "y": [sign * size, -sign * size / 4]})
    up, down = (">", "<") if sign > 0 else ("<", ">")
    assert solved(f"x {up} 0", row) == [(4.000001, 8)]
    assert solved(f"x {down} 0", row) == [(0, 4)]
    assert solved(f"x {up} y", row) == [(4.000001, 8)]
    assert solved(f"x {up} {sign * size / 2!r}", row) == [(6.000001, 8)]
    assert solved("x = y", row) == [(4, 4)]


@ON_VALUES
@pytest.mark.parametrize("sign", [1, -1])
def test_roots_of_parabolas_and_cubics(size, sign):
    parabola = [sign * size / 32 * each for each in np.poly([2, 6])[::-1]]
    assert solved("x = 0", (0, 0, 8, {"x": parabola})) == [(2, 2), (6, 6)]
    cubic = [sign * size / 512 * each for each in np.poly([2, 4, 6])[::-1]]
    assert solved("x = 0", (0, 0, 8, {"x": cubic})) == [(2, 2), (4, 4), (6, 6)]
    touching = [sign * size / 64 * each for each in np.poly([4, 4])[::-1]]
    assert solved("x = 0", (0, 0, 8, {"x": touching})) == [(4, 4)]


@pytest.mark.parametrize("size", [1e100, 1e155, 1e200, 1e300, 1.7e308])
def test_products_and_distances_that_overflow(size):
    row = (0, 0, 8, {"x": [-size, size / 4], "y": [size]})
    assert solved("x * x > 1", row) == [(0, 4), (4.000001, 8)]
    assert solved("x * y < 0", row) == [(0, 4)]
    assert solved("x * x = y * y", row) == [(0, 0)]
    assert solved("pow(x, 3) > pow(y, 2)", row) in ([(4.000001, 8)], [(4.000002, 8)])
    assert solved(f"sqrt(pow(x, 2) + pow(y, 2)) > {size / 2!r}", row) == [(0, 8)]
    assert solved(f"sqrt(pow(x, 2)) < {size / 2!r}", row) == [(2.000001, 6)]
    assert solved("abs(x) >= y", row) == [(0, 0)]
    assert solved("x - y - y < 0", row) == [(0, 8)]


@pytest.mark.parametrize("size", [1e155, 1e300, 1.7e308])
def test_alarms_give_what_conditions_do(size):
    segments = pieces(
        (0, 0, 8, {"x": [-size, size / 4], "y": [size]}),
        (0, 8, 12, {"x": [size], "y": [float("nan")]}),
        (1, 0, 8, {"x": [1.0], "y": [-size]}),
    )
    texts = [
        f"x {op} {c!r}" for op in ("<", "<=", "=", "<>", ">=", ">") for c in (0.0, size, -size)
    ]
    texts += ["x * y > 1", "x * x < y", f"x > {-size!r} AND y < {size!r}", f"x - y > {size!r}"]
    texts += [f"x * x > {size!r} OR y > 0", f"x BETWEEN {-size!r} AND {size / 2!r}"]
    named = {f"a{at}": text for at, text in enumerate(texts)}
    found, _ = together(segments, named)
    assert repr(found) == repr(alone(segments, named))  # NaN is no value
    assert {row[1] for row in found if row[0] == f"a{len(texts) - 6}"} == {0}


def test_infinite_constants():
    row = (0, 0, 10, {"x": [1, 1]})
    assert solved("x < 1e308 * 10", row) == [(0, 10)]
    assert solved("x <= -1e308 * 10", row) == []


def keyed(*rows):
    segments = pieces(*rows)
    n = int(segments.keys.max()) + 1
    return Keyed(segments, pa.table({"k": [f"e{at}" for at in range(n)]}))


def test_a_value_that_no_double_holds_is_refused():
    given = keyed((0, 0, 8, {"x": [1e200]}), (1, 0, 4, {"x": [2.0]}))
    step = Project({"z": read_expression("x * x", ["x"])}, {"z": "x * x"})
    with pytest.raises(ModelError, match=r"'z' of k='e0' from 1970-01-01T00:00:00"):
        step.run(given)
    whole = Project({"z": read_expression("x * x - x * x", ["x"])}, {"z": "x * x - x * x"})
    assert whole.run(given).segments.coefs["z"].tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("every_us", [None, SECOND])
def test_averages_of_large_values_are_there_and_sums_are_refused(every_us):
    given = keyed((0, 0, 60, {"x": [1.5e308]}), (1, 0, 60, {"x": [2.0]}))
    average = Integral(10 * SECOND, every_us, is_average=True, is_covered=False).run(given)
    segments = average.segments if every_us is None else average.samples
    found = segments.coefs["x"][:, 0] if every_us is None else segments.values["x"]
    np.testing.assert_allclose(found[segments.keys == 0], 1.5e308)
    np.testing.assert_allclose(found[segments.keys == 1], 2.0)
    with pytest.raises(ModelError, match=r"sum of the last 10 s.*'x' of k='e0'"):
        Integral(10 * SECOND, every_us, is_average=False, is_covered=False).run(given)


def test_averages_and_sums_over_entities():
    given = keyed((0, 0, 60, {"x": [1.5e308]}), (1, 0, 60, {"x": [1.5e308]}))
    average = Total((), is_average=True).run(given).segments
    np.testing.assert_allclose(average.coefs["x"], 1.5e308)
    with pytest.raises(ModelError, match="sum over entities: 'x' from"):
        Total((), is_average=False).run(given)


def test_samples_of_a_line_whose_terms_overflow():
    given = keyed((0, 0, 8, {"x": [-1.7e308, 1.7e308 / 4]}))
    found = Sample(SECOND).run(given).samples
    np.testing.assert_allclose(found.values["x"] / 1.7e308, np.linspace(-1, 0.75, 8), atol=1e-15)
    moved = polynomials.shifted(given.segments.coefs["x"], np.array([6.0]))
    np.testing.assert_allclose(moved, [[0.85e308, 1.7e308 / 4]])
    assert len(sampled(given.segments, SECOND).times) == 8


def test_the_greatest_of_curves():
    coefs = np.array([[-1.7e308, 1.7e308 / 4], [1.7e308, -1.7e308 / 4]])
    nothing, rows = np.zeros(2, np.int64), np.arange(2)
    pieces_of = Pieces(nothing, rows, rows, nothing, nothing + 8 * SECOND, np.zeros(2))
    found = extreme(Functions(nothing, coefs), pieces_of, largest=True)
    assert found.rows.tolist() == [1, 0]
    assert found.lo.tolist() == [0, 4 * SECOND]


@pytest.mark.parametrize("is_largest", [True, False])
@pytest.mark.parametrize("every_us", [None, SECOND])
def test_extremes_over_windows(every_us, is_largest):
    given = keyed((0, 0, 8, {"x": [-1.7e308, 1.7e308 / 4]}), (1, 0, 8, {"x": [1.0, 1.0]}))
    found = Extremum(2 * SECOND, every_us, is_largest=is_largest).run(given)
    if every_us is None:
        found = Sample(SECOND).run(found)
    values = found.samples.values["x"][found.samples.keys == 0]
    whole = np.linspace(-1, 1, 9)
    expected = np.concatenate([whole, [1]]) if is_largest else np.concatenate([[-1, -1], whole[:8]])
    np.testing.assert_allclose(
        values[: len(expected)] / 1.7e308, expected[: len(values)], atol=1e-12
    )


@ON_VALUES
def test_distances(size):
    position = np.array([[-size / 8, size / 16]])
    velocity = np.array([[size / 16, 0.0]])
    found = distance_integral(position, velocity, np.array([4.0]))
    expected = distance_integral(position / size, velocity / size, np.array([4.0]))
    np.testing.assert_allclose(found / size, expected, rtol=1e-12)


@pytest.mark.parametrize("size", [*VALUES, 1e-308, 5e-324])
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_fits_are_within_their_bound(size, degree):
    times = np.arange(60) * SECOND
    values = np.linspace(-1, 1, 60) * size
    values[7], values[8], values[9] = np.inf, np.nan, -0.0
    keys = np.zeros(60, np.int64)
    found, _ = fit(
        keys, times, {"x": values.copy()}, {"x": Bound(0.05, True)}, FitOptions(degree=degree)
    )
    place = np.searchsorted(found.lo, times, "right") - 1
    seen = polynomials.evaluate(found.coefs["x"][place], (times - found.origin[place]) * 1e-6)
    finite = np.isfinite(values)
    assert (np.abs(seen - values)[finite] <= 0.05 * np.abs(values[finite])).all()

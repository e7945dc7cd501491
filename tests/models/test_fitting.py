"""Segments of rows: the bound holds for any of them, and each row has one segment."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.fitting import kernels
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.fit import FitReport, fit, fit_part
from eddyline.models.fitting.growing_kernels import polynomial_of
from eddyline.models.solving.joins import joined
from eddyline.models.solving.text import read_condition
from eddyline.models.solving.where import where
from eddyline.models.windows import integrals
from tests.alarms.alone import named, ranges_of
from tests.models.drawn_rows import METHODS, Rows, drawn_rows
from tests.models.pieces import EPOCH, SECOND, drawn, pieces

methods = st.sampled_from(METHODS).map(lambda each: FitOptions(method=each[0], degree=each[1]))
gaps = st.sampled_from([None, 5, 3_000_000])


def rows_of(values, *, times=None, bound=0.0, keys=None, **more):
    """Return rows of one entity, a second apart."""
    n = len(values)
    times = np.arange(n) * SECOND if times is None else np.asarray(times, np.int64)
    keys = np.zeros(n, np.int64) if keys is None else np.asarray(keys, np.int64)
    bound = bound if isinstance(bound, Bound) else Bound(bound)
    return Rows(keys, times, {"v": np.asarray(values, float)}, {"v": bound})


def segment_of(segments, keys, times):
    """Return the segment that covers each row; by brute force, exactly one."""
    covers = (
        (segments.keys == keys[:, None])
        & (segments.lo <= times[:, None])
        & (times[:, None] < segments.hi)
    )
    assert (covers.sum(1) == 1).all()
    if not len(keys):
        return np.empty(0, np.intp)
    return covers.argmax(1)


def read(segments, name, at, times):
    """Return the values of rows as a reader finds them."""
    found = np.zeros(len(at))
    tau = np.multiply(times - segments.origin[at], 1e-6)
    with np.errstate(all="ignore"):
        for k in range(segments.coefs[name].shape[1] - 1, -1, -1):
            found = found * tau + segments.coefs[name][at, k]
    return found


def is_greatest(rows, name, row):
    """Return whether no row of the same instant has a greater value."""
    values = rows.values[name]
    same = (rows.keys == rows.keys[row]) & (rows.times == rows.times[row])
    return not (values[same & np.isfinite(values)] > values[row]).any()


def check(rows, segments, report):
    """Check that each row with a value is in one segment, and near it."""
    has_value = np.any([np.isfinite(each) for each in rows.values.values()], axis=0)
    assert report.n_without == (~has_value).sum()
    assert report.n_rows == has_value.sum()
    assert report.n_segments == len(segments)
    kept = rows.take(has_value)
    at = segment_of(segments, kept.keys, kept.times)
    n_lost = 0
    for name, bound in rows.within.items():
        values = kept.values[name]
        far = np.abs(values - read(segments, name, at, kept.times))
        allowed = bound.value * np.abs(values) if bound.is_relative else bound.value
        is_lost = np.isfinite(values) & ~(far <= allowed)
        n_lost += is_lost.sum()
        for row in np.flatnonzero(is_lost):  # only against a greater one at the same instant
            assert not is_greatest(kept, name, row)
        near = np.isfinite(values) & ~is_lost
        if report.n_conflicts:  # those that lost say nothing, wherever they are
            near &= [is_greatest(kept, name, row) for row in range(len(values))]
        worst = np.zeros(len(segments))
        np.maximum.at(worst, at[near], far[near])
        assert (segments.errors[name] >= worst).all()
    assert n_lost <= report.n_conflicts


def same(one, other):
    """Check that segments are equal, to the bit."""
    for name in ("keys", "origin", "lo", "hi", "is_point", "is_tombstone"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name in ("coefs", "errors"):
        mine, others = getattr(one, name), getattr(other, name)
        assert list(mine) == list(others)
        for each in mine:
            np.testing.assert_array_equal(mine[each], others[each], f"{name} of {each}")


@given(drawn_rows(), methods, gaps)
def test_every_row_is_in_one_segment_and_within_the_bound(rows, options, gap):
    options = FitOptions(method=options.method, degree=options.degree, max_gap_us=gap)
    check(rows, *fit(*rows.args, options))


@given(drawn_rows(), methods, st.integers(0, 2**32))
def test_any_order_of_rows_gives_the_same_segments(rows, options, seed):
    order = np.random.default_rng(seed).permutation(len(rows.keys))
    found, report = fit(*rows.args, options)
    again, told = fit(*rows.take(order).args, options)
    same(found, again)
    assert told == report


def in_parts(rows, options, instants):
    """Fit rows as their event time goes on, up to instants and then to the end."""
    held, before, carried = np.empty(0, np.intp), -(2**63), None
    gap = options.max_gap_us
    for until in [*np.sort(instants), None]:
        stop = 2**63 - 1 if until is None else until
        new = np.flatnonzero((rows.times >= before) & (rows.times < stop))
        places = np.sort(np.concatenate([held, new]))
        part = rows.take(places)
        last = np.full(rows.keys.max() + 1, -(2.0**63))
        np.maximum.at(last, part.keys, part.times)
        is_over = until is None or (gap is not None and last + gap < stop)
        goes_on = np.zeros(last.size, np.bool_) | ~np.asarray(is_over)
        found = fit_part(*part.args, options, goes_on=goes_on, carried=carried)
        held, carried, before = places[found.held], found.carried, stop
        yield found
    assert not held.size


@given(drawn_rows(), methods, gaps, st.lists(st.floats(0, 1), max_size=4))
def test_any_cut_in_time_gives_the_same_segments(rows, options, gap, cuts):
    options = FitOptions(
        method=options.method, degree=options.degree, max_gap_us=gap, prefix_rows=16
    )
    found, report = fit(*rows.args, options)
    span = float(np.ptp(rows.times))
    parts = list(in_parts(rows, options, [rows.times.min() + int(each * span) for each in cuts]))
    told = sum((each.report for each in parts), FitReport())
    assert told == report
    made = [each.segments for each in parts]
    keys, lo = (np.concatenate([getattr(each, name) for each in made]) for name in ("keys", "lo"))
    order = np.lexsort((lo, keys))
    for name in ("keys", "origin", "lo", "hi"):
        every = np.concatenate([getattr(each, name) for each in made])
        np.testing.assert_array_equal(every[order], getattr(found, name), name)
    for name in rows.within:
        coefs = np.concatenate([each.coefs[name] for each in made])
        np.testing.assert_array_equal(coefs[order], found.coefs[name])


@given(drawn_rows(missing=False))
def test_the_best_lines_are_never_more_than_swing_or_constants(rows):
    n = {
        method: len(fit(*rows.args, FitOptions(method=method))[0])
        for method in ("linear", "swing", "constant")
    }
    # Rounding halves segments where it is as large as the bound, and products overflow at the ends.
    if all(1e-200 < each.value < 1e290 and not each.is_relative for each in rows.within.values()):
        assert n["linear"] <= min(n["swing"], n["constant"])


@given(drawn_rows(ties=False, missing=False), st.sampled_from([None, 5, 3_000_000]))
def test_connected_segments_have_no_jumps(rows, gap):
    found, _ = fit(*rows.args, FitOptions(method="connected", max_gap_us=gap))
    follows = np.flatnonzero((found.keys[1:] == found.keys[:-1]) & (found.hi[:-1] == found.lo[1:]))
    for name in rows.within:
        before = read(found, name, follows, found.hi[follows])
        after = read(found, name, follows + 1, found.lo[follows + 1])
        is_start = np.isin(found.lo[follows + 1], rows.times)
        joined = before == after
        # One that begins anew is one that rounding kept apart.
        assert (joined | is_start).all()


def test_a_segment_of_lines_is_one_and_exact():
    found, report = fit(*rows_of(3.0 * np.arange(1000) + 7, bound=0.0).args)
    assert (found.lo.tolist(), found.hi.tolist()) == ([0], [1000 * SECOND])
    assert found.coefs["v"].tolist() == [[7.0, 3.0, 0.0]]
    assert found.errors["v"].tolist() == [0.0]
    assert report.fitters == {"linear": 1}


def test_a_bound_of_zero_keeps_constants_and_lines_and_else_every_row():
    values = [5.0] * 10 + [1.1, 2.7, 0.3, 9.9]
    found, _ = fit(*rows_of(values).args, FitOptions(method="constant"))
    assert found.lo.tolist() == [0, *(each * SECOND for each in range(10, 14))]
    assert found.coefs["v"][:, 0].tolist() == [5.0, 1.1, 2.7, 0.3, 9.9]


def test_attributes_share_break_points():
    n = 20
    values = {"a": np.where(np.arange(n) < 5, 0.0, 9.0), "b": np.where(np.arange(n) < 12, 0.0, 9.0)}
    found, _ = fit(
        np.zeros(n, np.int64),
        np.arange(n) * SECOND,
        values,
        {"a": Bound(0.1), "b": Bound(0.1)},
        FitOptions(method="constant"),
    )
    assert found.lo.tolist() == [0, 5 * SECOND, 12 * SECOND]
    assert found.coefs["a"].tolist() == [[0.0], [9.0], [9.0]]


def test_a_gap_ends_a_segment_and_has_no_model():
    times = np.array([0, 1, 2, 3, 100, 101, 102]) * SECOND
    rows = rows_of([1.0] * 7, times=times)
    found, _ = fit(*rows.args, FitOptions(max_gap_us=10 * SECOND))
    assert found.lo.tolist() == [0, 100 * SECOND]
    assert found.hi.tolist() == [4 * SECOND, 103 * SECOND], "one typical spacing each"


def test_an_instant_alone_stands_for_a_second_at_most_the_gap():
    for gap, length in ((None, SECOND), (7, 7), (10 * SECOND, SECOND)):
        found, _ = fit(*rows_of([4.0]).args, FitOptions(max_gap_us=gap))
        assert (found.hi - found.lo).tolist() == [length]


def test_two_values_of_an_instant_are_both_near_or_the_greater_wins():
    near = rows_of([1.0, 1.5, 1.2], times=[0, 0, SECOND], bound=0.25)
    found, report = fit(*near.args, FitOptions(method="constant"))
    assert report.n_conflicts == 0
    assert found.coefs["v"].tolist() == [[1.25]]
    apart = rows_of([1.0, 1.6, 1.6], times=[0, 0, SECOND], bound=0.25)
    found, report = fit(*apart.args, FitOptions(method="constant", rounding=0.0))
    assert report.n_conflicts == 1
    assert found.coefs["v"].tolist() == [[1.6]]


@pytest.mark.parametrize("values", [[100.0, 102.01], [-102.01, -100.0], [100.0, 101.0, 102.01]])
def test_bounds_that_are_shares_of_values_meet_beside_their_middle(values):
    """The middle, 101.005, is 0.005 too far from 100; 100.995 is near both."""
    rows = rows_of(values, times=[0] * len(values), bound=Bound(0.01, is_relative=True))
    found, report = fit(*rows.args, FitOptions(method="constant", rounding=0.0))
    assert report.n_conflicts == 0
    assert all(abs(each - found.coefs["v"][0, 0]) <= 0.01 * abs(each) for each in values)


def test_rows_without_a_value_are_skipped_and_an_attribute_without_any_is_nan():
    n = 6
    values = {"a": np.array([1.0, np.nan, 1.0, np.nan, np.inf, 1.0]), "b": np.full(n, np.nan)}
    within = {"a": Bound(0.0), "b": Bound(0.0)}
    found, report = fit(np.zeros(n, np.int64), np.arange(n) * SECOND, values, within)
    assert report.n_rows == 3
    assert report.n_without == 3
    assert found.coefs["a"].tolist() == [[1.0, 0.0, 0.0]]
    assert np.isnan(found.coefs["b"][:, 0]).all()


def test_no_rows_have_no_segments():
    nothing = np.empty(0, np.int64)
    found, report = fit(nothing, nothing, {"v": np.empty(0)}, {"v": Bound(1.0)})
    assert len(found) == 0
    assert report == FitReport()
    assert found.coefs["v"].shape == (0, 3)


def test_coefficients_do_not_know_the_epoch():
    """T27: in absolute time they would lose their digits."""
    tau = np.arange(0, 10, 0.5)
    times = 1_700_000_000 * SECOND + (tau * SECOND).astype(np.int64)
    rows = rows_of(1 + 2 * tau + 0.5 * tau**2, times=times, bound=1e-9)
    found, _ = fit(*rows.args, FitOptions(method="polynomial", degree=2))
    assert len(found) == 1
    np.testing.assert_allclose(found.coefs["v"], [[1, 2, 0.5]], atol=1e-8)


def test_each_entity_has_the_fitter_that_stores_least():
    n = 2000
    step = np.arange(n)
    rng = np.random.default_rng(3)
    steps = np.cumsum(rng.integers(-9, 9, n) * (rng.random(n) < 0.05)) * 10.0
    values = np.concatenate([steps, np.abs(step % 200 - 100.0) * 5, 50 * np.sin(step / 40)])
    keys = np.repeat(np.arange(3), n)
    rows = Rows(keys, np.tile(step, 3) * SECOND, {"v": values}, {"v": Bound(0.5)})
    found, report = fit(*rows.args, FitOptions(degree=3))
    assert report.fitters["constant"] == 1
    assert report.fitters["linear"] == 1
    assert report.fitters["degree 3"] == 1
    assert "constant 1, degree 3 1, linear 1" in str(report)
    by_method = [
        len(fit(*rows.args, FitOptions(method=each))[0]) for each in ("constant", "linear")
    ]
    assert len(found) < min(by_method)


@given(drawn_rows())
def test_an_entity_shorter_than_the_prefix_has_the_segments_of_its_fitter(rows):
    """The trial that wins is kept: it is what the fitter makes of the entity alone."""
    for entity in np.unique(rows.keys):
        alone = rows.take(rows.keys == entity)
        found, report = fit(*alone.args, FitOptions(degree=3))
        for name in report.fitters:
            degree = int(name[-1]) if name.startswith("degree") else 3
            method = "polynomial" if name.startswith("degree") else name
            other, _ = fit(*alone.args, FitOptions(method=method, degree=degree))
            np.testing.assert_array_equal(found.lo, other.lo)
            np.testing.assert_array_equal(found.hi, other.hi)
            for each, coefs in other.coefs.items():
                size = coefs.shape[1]
                np.testing.assert_array_equal(found.coefs[each][:, :size], coefs)
                assert not found.coefs[each][:, size:].any()


@given(drawn_rows(), methods, st.sampled_from([0.25, 1.0]))
def test_rounding_moves_no_break_and_takes_its_share_of_the_room(rows, options, share):
    given_options = {"method": options.method, "degree": options.degree}
    whole, _ = fit(*rows.args, FitOptions(**given_options, rounding=0.0))
    found, report = fit(*rows.args, FitOptions(**given_options, rounding=share))
    check(rows, found, report)
    np.testing.assert_array_equal(found.lo, whole.lo)
    np.testing.assert_array_equal(found.hi, whole.hi)
    for name, bound in rows.within.items():
        if not bound.is_relative:
            room = bound.value - whole.errors[name]
            most = (whole.errors[name] + share * room) * (1 + 1e-9)
            # An error is told by three digits, rounded up.
            assert (found.errors[name] <= np.minimum(bound.value, 1.25 * most)).all()
        as_it_was = (found.coefs[name] == whole.coefs[name]).all(axis=1)
        assert (found.errors[name] <= 1.25 * whole.errors[name])[as_it_was].all()


def test_an_attribute_that_is_not_rounded_keeps_an_error_of_0_beside_one_that_is():
    n = 4_000
    rng = np.random.default_rng(0)
    values = {
        "x": np.cumsum(rng.normal(0, 0.05, n)),
        "gear": np.repeat(10.0 * rng.permutation(n // 200), 200),
    }
    rows = np.zeros(n, np.int64), np.arange(n) * SECOND, values, dict.fromkeys(values, Bound(0.5))
    found, _ = fit(*rows, FitOptions(method="linear"))
    whole, _ = fit(*rows, FitOptions(method="linear", rounding=0.0))
    assert (found.coefs["x"] != whole.coefs["x"]).any()
    is_exact = whole.errors["gear"] == 0
    assert is_exact.mean() > 0.5
    assert not found.errors["gear"][is_exact].any()


def test_rounded_coefficients_are_short_and_whole_ones_stay():
    rng = np.random.default_rng(5)
    values = 40.7128 + rng.uniform(-0.001, 0.001, 100)
    found, _ = fit(*rows_of(values, bound=0.5).args)
    assert (found.coefs["v"][:, 0] * 8 % 1 == 0).all(), found.coefs
    whole, _ = fit(*rows_of(3 + 2.0 * np.arange(50), bound=0.5).args)
    assert whole.coefs["v"].tolist() == [[3.0, 2.0, 0.0]]


def test_polynomials_of_their_own_degree_are_found():
    step = np.linspace(-1, 1, 3000)
    for degree in (2, 3, 4):
        values = np.polynomial.chebyshev.chebval(step, [0] * degree + [100.0])
        options = FitOptions(method="polynomial", degree=degree)
        found, _ = fit(*rows_of(values, bound=1e-6).args, options)
        assert len(found) == 1


def test_a_segment_ends_at_the_most_rows_that_it_may_have():
    n = kernels.MAX_INSTANTS + 10
    found, _ = fit(*rows_of(np.zeros(n)).args)
    assert found.lo.tolist() == [0, kernels.MAX_INSTANTS * SECOND]


@pytest.mark.parametrize("bound", [Bound(0.0), Bound(1e-30), Bound(1e300), Bound(1.0, True)])
def test_the_ends_of_doubles_hold(bound):
    values = [0.0, -0.0, 5e-324, 1e-308, 1.7e308, -1.7e308, 1.7e308, 1.0, 1.0 + 2**-52, 1e16]
    rows = rows_of(values, bound=bound)
    for method, degree in METHODS:
        check(rows, *fit(*rows.args, FitOptions(method=method, degree=degree)))


def test_a_report_can_be_shown():
    rows = rows_of([1.0, np.nan, 5.0, 2.0], times=[0, 1, 2, 2])
    told = str(fit(*rows.args)[1])
    assert told == (
        "3 rows in 1 segment, 3.0 rows each; runs by fitter: linear 1; "
        "1 row without a value; 1 value lost to a greater one at the same instant"
    )


def test_a_quadratic_leaves_nothing_of_what_stood_in_its_room_before():
    times = np.arange(0, 8_000_000, 1_000_000)
    times.setflags(write=False)  # as those of a fit are; others would be compiled anew
    mid = (times / 1e6) ** 2
    coefs = np.full(5, 7.0)
    assert polynomial_of(2, times, mid, np.full(8, 0.5), np.empty((8, 16)), coefs)
    np.testing.assert_allclose(coefs, [0.0, 0.0, 1.0, 0.0, 0.0], atol=1e-9)
    assert not coefs[3:].any()


# -- fitting oracle -------------------------------------------------------------------------------


def has_line(points):
    """Return whether a line passes all intervals, exactly.

    If one does, so does one through two ends of intervals, or there is one interval.
    """
    if len(points) == 1:
        return True
    corners = [(x, y) for x, low, high in points for y in (low, high)]
    for (x0, y0), (x1, y1) in permutations(corners, 2):
        if x0 < x1:
            slope = Fraction(y1 - y0) / (x1 - x0)
            if all(low <= y0 + slope * (x - x0) <= high for x, low, high in points):
                return True
    return False


def fewest(columns):
    """Return where segments begin if each is as long as it can be."""
    starts, start = [0], 0
    for end in range(1, len(columns[0])):
        if not all(has_line(points[start : end + 1]) for points in columns):
            start = end
            starts.append(start)
    return starts


wholes = st.integers(-8, 8)


@given(
    st.lists(st.tuples(st.integers(1, 3), wholes, wholes), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 2),
)
def test_segments_of_lines_begin_where_exact_arithmetic_has_them(rows, half, n_attributes):
    # Bounds of halves and whole values: no interval only touches a line by rounding.
    steps, *columns = zip(*rows, strict=True)
    seconds = np.cumsum(steps)
    bound = half / 2 + 0.25 / 7
    exact = Fraction(bound)
    chosen = dict(zip("ab", columns[:n_attributes], strict=False))
    intervals = [
        [(Fraction(int(x)), y - exact, y + exact) for x, y in zip(seconds, column, strict=True)]
        for column in chosen.values()
    ]
    values = {name: np.array(column, float) for name, column in chosen.items()}
    found, _ = fit(
        np.zeros(len(rows), np.int64),
        seconds * SECOND,
        values,
        dict.fromkeys(values, Bound(bound)),
        FitOptions(method="linear"),
    )
    wanted = [int(seconds[each]) * SECOND for each in fewest(intervals)]
    assert found.lo.tolist() == wanted


# -- instants -------------------------------------------------------------------------------------


STEP = SECOND // 64
HOLDS = {
    "<": lambda p: p < 0,
    "<=": lambda p: p <= 0,
    "=": lambda p: p == 0,
    "<>": lambda p: p != 0,
    ">=": lambda p: p >= 0,
    ">": lambda p: p > 0,
}


def product(one, other):
    return [
        sum(one[i] * other[k - i] for i in range(len(one)) if 0 <= k - i < len(other))
        for k in range(len(one) + len(other) - 1)
    ]


def with_roots(factor, roots):
    """Return exact coefficients by ascending powers; roots are in steps."""
    found = [Fraction(factor)]
    for root in roots:
        found = product(found, [Fraction(-root, 64), Fraction(1)])
    return found


POLYNOMIALS = st.builds(
    with_roots,
    st.sampled_from([-1, Fraction(1, 2), 1, 3]),
    st.lists(st.integers(-4, 40), max_size=3),
) | st.just([Fraction(0)])


@st.composite
def entities(draw, names=("x", "y"), start=EPOCH):
    """Draw adjoining segments of one entity with exact coefficients: 7 plus a polynomial."""
    rows, exact, at = [], [], 0
    for _ in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 32))
        own = {name: draw(POLYNOMIALS) for name in names}
        coefs = {name: [float(each[0] + 7), *map(float, each[1:])] for name, each in own.items()}
        rows.append((0, at / 64, (at + length) / 64, coefs, at / 64))
        exact.append((start + at * STEP, start + (at + length) * STEP, own))
        at += length
    return pieces(*rows, start=start), exact


def value(polynomial, micros):
    seconds = Fraction(micros, SECOND)
    return sum(each * seconds**power for power, each in enumerate(polynomial))


def instants(exact):
    """Return the instants at which roots may be, those beside them, and some between."""
    lo, hi = exact[0][0], exact[-1][1]
    found = {
        at + near for at in range(lo, hi + 1, STEP) for near in (-1, 0, 1) if lo <= at + near < hi
    }
    return sorted(found | {at + STEP // 3 for at in range(lo, hi, STEP) if at + STEP // 3 < hi})


def truth(exact, times, holds):
    """Return the instants at which a condition on exact values of attributes holds."""
    found = set()
    for lo, hi, own in exact:
        for at in times:
            if lo <= at < hi and holds({n: value(each, at - lo) for n, each in own.items()}):
                found.add(at)
    return found


def holds_at(segments, times):
    """Return the instants that are in some of the segments."""
    return {
        at
        for lo, hi in zip(segments.lo, segments.ends, strict=True)
        for at in times
        if lo <= at < hi
    }


def asked(segments, text):
    return where(segments, read_condition(text, [*segments.coefs]))


@given(entities(), st.sampled_from([*HOLDS]), st.sampled_from([0, 1, -3]))
def test_a_comparison_holds_at_the_instants_of_the_exact_one(drawn_entity, op, shift):
    segments, exact = drawn_entity
    times = instants(exact)
    holds = HOLDS[op]
    for text, of in {
        f"x {op} 7": lambda v: v["x"],
        f"x {op} {7 + shift}": lambda v: v["x"] - shift,
        f"x {op} y": lambda v: v["x"] - v["y"],
        f"(x - 7) * (y - 7) {op} 0": lambda v: v["x"] * v["y"],
        f"pow(x - 7, 2) {op} 0": lambda v: v["x"] ** 2,
    }.items():
        if shift and text in {f"x {op} {7 + shift}", f"x {op} y"}:
            continue  # its roots are no multiples of a step
        expected = truth(exact, times, lambda v, of=of: holds(of(v)))
        assert holds_at(asked(segments, text), times) == expected, text


@given(entities(), st.sampled_from([*HOLDS]), st.sampled_from([*HOLDS]))
def test_and_or_not_and_where_of_where_are_sets(drawn_entity, op, other):
    segments, exact = drawn_entity
    times = instants(exact)
    one, two = f"x {op} 7", f"y {other} 7"
    a = truth(exact, times, lambda v: HOLDS[op](v["x"]))
    b = truth(exact, times, lambda v: HOLDS[other](v["y"]))
    every = truth(exact, times, lambda v: True)
    assert holds_at(asked(segments, f"{one} AND {two}"), times) == a & b
    assert holds_at(asked(segments, f"{one} OR {two}"), times) == a | b
    assert holds_at(asked(segments, f"NOT ({one} AND {two})"), times) == every - (a & b)
    for first, second in ((one, two), (two, one)):
        assert holds_at(asked(asked(segments, first), second), times) == a & b
    both = joined(asked(segments, one), asked(segments, two), names=("a", "b")).segments
    assert holds_at(both, times) == a & b
    ranges = ranges_of(segments, {"a": one, "b": f"{one} AND {two}", "c": f"{one} OR {two}"})
    found = ranges.run(named(segments))
    for name, expected in {"a": a, "b": a & b, "c": a | b}.items():
        rows = [
            found.entities.column("alarm")[int(key)].as_py() == name for key in found.segments.keys
        ]
        assert holds_at(found.segments.take(np.array(rows, bool)), times) == expected, name


@given(entities(names=("x",)), st.sampled_from([*HOLDS]))
def test_changes_and_samples_tell_the_same_instants(drawn_entity, op):
    segments, exact = drawn_entity
    times = instants(exact)
    expected = truth(exact, times, lambda v: HOLDS[op](v["x"]))
    found = asked(segments, f"x {op} 7")
    made = integrals.changes(found)
    ends = np.where(made.ends == made.starts.times, made.ends + 1, made.ends)
    told = {
        at for lo, hi in zip(made.starts.times, ends, strict=True) for at in times if lo <= at < hi
    }
    assert told == expected
    ticks = {at for at in times if at % STEP == 0}
    sampled = set(integrals.sampled(found, STEP).times.tolist())
    assert sampled & ticks == expected & ticks
    assert sampled <= expected | (sampled - set(times))


@pytest.mark.parametrize("text", ["x {} 1", "x * y {} 2", "x - y {} 0", "d(x) {} 0.5"])
@given(segments=drawn(("x", "y"), degree=3, start=EPOCH), offset=st.integers(-2, 2))
def test_less_equal_and_greater_part_the_instants_wherever_segments_are_cut(text, segments, offset):
    found = {op: asked(segments, text.format(op)) for op in HOLDS}
    edges = np.concatenate([[*each.lo, *each.ends] for each in found.values()]).astype(np.int64)
    keys = np.concatenate([[*each.keys, *each.keys] for each in found.values()]).astype(np.int64)
    for row in range(len(segments)):
        lo, hi = int(segments.lo[row]), int(segments.ends[row])
        near = edges[keys == segments.keys[row]]
        times = sorted(
            {t for e in near for t in range(e - 2, e + 3) if lo <= t < hi} | {lo, hi - 1}
        )
        own = {op: holds_at(only(each, segments.keys[row]), times) for op, each in found.items()}
        parts = [own["<"], own["="], own[">"]]
        assert sum(map(len, parts)) == len(times)
        assert set().union(*parts) == set(times)
        assert own["<="] == own["<"] | own["="]
        assert own[">="] == own[">"] | own["="]
        assert own["<>"] == own["<"] | own[">"]
        middle = min(max(times[len(times) // 2] + offset, lo + 1), hi - 1)
        if lo < middle < hi:
            one = segments.take(np.array([row, row]))
            parts_of = replace(one, lo=np.array([lo, middle]), hi=np.array([middle, hi]))
            for op in HOLDS:
                assert holds_at(asked(parts_of, text.format(op)), times) == own[op], (op, middle)
                for at in times[:3]:
                    point = replace(
                        segments.take(np.array([row])),
                        lo=np.array([at]), hi=np.array([at]), is_point=np.array([True]),
                    )  # fmt: skip
                    assert bool(len(asked(point, text.format(op)))) == (at in own[op])


def only(segments, key):
    return segments.take(segments.keys == key)


@pytest.mark.parametrize("slope", [1.0, 1e-5, 3e-9, -1e-7])
@pytest.mark.parametrize("base", [3.0, 1e5, 1e9])
def test_slow_lines_are_at_a_constant_for_one_instant(slope, base):
    """A microsecond later the value may be the same double: the root says what holds."""
    segments = pieces((0, 0, 200_000, {"x": [base - 100_000 * slope, slope]}), start=EPOCH)
    constant = float(np.float64(segments.coefs["x"][0, 0]) + 100_000 * slope)
    above, at, below = (asked(segments, f"x {op} {constant!r}") for op in (">", "=", "<"))
    assert len(at) == 1
    assert at.is_point.all()
    for side in (above, below):
        assert len(side) == 1
        assert not len(asked(side, f"x = {constant!r}"))
        assert len(asked(side, f"x <> {constant!r}")) == 1
    assert sorted([*above.lo, *below.lo]) == [segments.lo[0], at.lo[0] + 1]


def test_a_range_that_a_point_ends_is_told_with_that_instant():
    one = pieces((0, 0, 2, {"x": [0, 1]}), (0, 2, 5, {"x": [0, 1]}), start=EPOCH)
    found = integrals.changes(asked(one, "x <= 2"))
    assert found.ends.tolist() == [EPOCH + 2 * SECOND + 1]

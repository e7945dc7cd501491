"""What models decide of rows: never anything that the rows do not say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError
from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.fit import fit
from eddyline.models.solving.exact import FALSE, OPEN, TRUE, decide, rows_hold, uncovered
from eddyline.models.solving.text import read_condition
from tests.models.drawn_rows import METHODS, drawn_rows
from tests.models.pieces import EPOCH, SECOND, pieces

NAN, INF = float("nan"), float("inf")


def decisions(text, *rows, errors=0.0, at=(), key=0):
    """Return what is decided at instants in seconds."""
    segments = pieces(*rows, start=EPOCH, errors=errors)
    found = decide(segments, read_condition(text, [*segments.coefs]))
    times = EPOCH + np.rint(np.array(at) * SECOND).astype(np.int64)
    return found.of(np.full(len(times), key, np.int64), times).tolist()


def test_within_the_error_of_the_threshold_rows_are_read():
    row = (0, 0, 10, {"x": [0, 1]})
    at = [0, 2.9, 3, 5, 7, 7.1, 9.9, 10, -1]
    found = decisions("x < 5", row, errors=2.0, at=at)
    assert found == [TRUE, TRUE, OPEN, OPEN, OPEN, FALSE, FALSE, OPEN, OPEN]
    assert decisions("x >= 5", row, errors=2.0, at=[0, 2.9]) == [FALSE, FALSE]
    assert decisions("x = 5", row, errors=2.0, at=at[:5]) == [FALSE, FALSE, OPEN, OPEN, OPEN]
    assert decisions("x <> 5", row, errors=2.0, at=at[:5]) == [TRUE, TRUE, OPEN, OPEN, OPEN]


@pytest.mark.parametrize("op", ["<", "<=", "=", "<>", ">=", ">"])
def test_a_touching_root_is_read_and_what_is_around_it_is_not(op):
    """(t - 1)² without an error: rounding alone could have it on either side of 0."""
    found = decisions(f"x {op} 0", (0, 0, 3, {"x": [1, -2, 1]}), at=[0, 0.99, 1, 1.01, 2.9])
    away = TRUE if op in {">", ">=", "<>"} else FALSE
    assert found == [away, away, OPEN, away, away]


def test_constants_without_an_error_are_decided_at_the_threshold_itself():
    row = (0, 0, 3, {"x": [0.1, 0], "y": [0.2, 0]})
    assert decisions("x <= 0.1", row, at=[0, 2]) == [TRUE, TRUE]
    assert decisions("x < 0.1", row, at=[0, 2]) == [FALSE, FALSE]
    assert decisions("x < y", row, at=[0, 2]) == [TRUE, TRUE]


def test_who_reads_rows_may_round_sums_otherwise():
    """0.1 + 0.2 is more than 0.3 in doubles, and 0.3 in decimals."""
    row = (0, 0, 3, {"x": [0.1, 0], "y": [0.2, 0]})
    assert decisions("x + y > 0.3", row, at=[0, 2]) == [OPEN, OPEN]
    assert decisions("x + y > 0.2999", row, at=[0, 2]) == [TRUE, TRUE]


def test_errors_add_up_over_what_is_computed():
    row = (0, 0, 10, {"x": [0, 1], "y": [3, 0]})
    at = [4, 5.9, 7.1]
    assert decisions("x - y > 2", row, errors=0.5, at=at) == [OPEN, OPEN, TRUE]
    # A product errs by 10 * 0.5 + 3 * 0.5 + 0.5 * 0.5, with the greatest values of the segment.
    found = decisions("x * y > 12", row, errors=0.5, at=[1.7, 1.8, 6.2, 6.3])
    assert found == [FALSE, OPEN, OPEN, TRUE]


def test_segments_without_values_points_and_tombstones():
    segments = pieces(
        (0, 0, 4, {"x": [NAN], "y": [1]}),
        (1, 0, 4, None),
        (2, 2, 2, {"x": [7], "y": [1]}),
        (3, 0, 4, {"x": [1, 1], "y": [1]}),
    )
    decided = decide(segments, read_condition("x > 0 AND y > 0", ["x", "y"]))
    keys, times = np.arange(5), np.full(5, 2 * SECOND)
    assert decided.of(keys, times).tolist() == [FALSE, OPEN, TRUE, TRUE, OPEN]
    hidden = decided.of(keys, times, uncovered=np.array([1, 1, 1, 1, 1], bool))
    assert hidden.tolist() == [OPEN] * 5
    nothing = segments.take(np.arange(0))
    assert decide(nothing, read_condition("x > 0", ["x"])).of(keys, times).tolist() == [OPEN] * 5


def test_ranges_cover_each_segment_once_and_neighbours_differ():
    segments = pieces((0, 0, 10, {"x": [8, -6, 1]}), (1, 5, 9, {"x": [-1, 0]}), errors=0.25)
    found = decide(segments, read_condition("x > 0", ["x"]))
    assert found.keys.tolist() == [0] * 5 + [1]
    assert found.codes.tolist() == [TRUE, OPEN, FALSE, OPEN, TRUE, FALSE]
    np.testing.assert_array_equal(found.lo[1:5], found.hi[:4])
    assert (found.lo[0], found.hi[4]) == (0, 10 * SECOND)
    assert found.take(found.codes == OPEN).lo.tolist() == found.lo[[1, 3]].tolist()


def test_a_value_that_is_missing_or_infinite_satisfies_nothing():
    values = {"x": np.array([NAN, INF, -INF, 1.0]), "y": np.array([1.0, 1, 1, NAN])}
    for op in ("<", "<=", "=", "<>", ">=", ">"):
        assert not rows_hold(read_condition(f"x {op} y", ["x", "y"]), values, 4).any()
    either = read_condition("x > 0 OR y > 0", ["x", "y"])
    assert rows_hold(either, values, 4).tolist() == [True, True, True, True]


def test_slopes_are_of_models_alone():
    segments = pieces((0, 0, 10, {"x": [0, 1]}))
    with pytest.raises(NotSupportedError, match="a row alone has none"):
        decide(segments, read_condition("x > 1 OR d(x) > 0", ["x"]))


def test_what_is_too_large_to_be_solved_is_read():
    assert decisions("x * x > 1", (0, 0, 9, {"x": [1e300, 1]}), errors=1.0, at=[1]) == [OPEN]


def test_rows_that_lost_at_their_instant_are_not_covered():
    """No function is near both values of an instant: the model is of the greater one."""
    keys, times = np.zeros(4, np.int64), np.array([0, 1, 1, 2]) * SECOND
    values = {"x": np.array([5.0, 5.0, -9.0, INF])}
    segments, report = fit(keys, times, values, {"x": Bound(0.5)})
    assert report.n_conflicts == 1
    away = uncovered(segments, keys, times, values)
    assert away.tolist() == [False, False, True, True]
    condition = read_condition("x > 0", ["x"])
    decided = decide(segments, condition)
    assert decided.of(keys[1:3], times[1:3], away[1:3]).tolist() == [TRUE, OPEN]
    kept = satisfied(decided, condition, keys, times, reading(values), away)
    assert kept.tolist() == [True, True, False, False]


def satisfied(decided, condition, keys, times, read, away):
    """Return for which rows a condition holds, of which only the open ones are read."""
    codes = decided.of(keys, times, away)
    found = codes == TRUE
    rows = np.flatnonzero(codes == OPEN)
    if rows.size:
        found[rows] = rows_hold(condition, read(rows), len(rows))
    return found


def reading(values, seen=None):
    def read(rows):
        if seen is not None:
            seen.append(rows)
        return {name: each[rows] for name, each in values.items()}

    return read


def finite(*given):
    return np.logical_and.reduce([np.isfinite(each) for each in given])


TEXTS = {
    "a < {0}": lambda a, b, c, at: finite(a) & (a < at),
    "a >= {0}": lambda a, b, c, at: finite(a) & (a >= at),
    "a = {0}": lambda a, b, c, at: finite(a) & (a == at),
    "a <> {0}": lambda a, b, c, at: finite(a) & (a != at),
    "NOT a = {0} AND b <= {0}": lambda a, b, c, at: finite(a, b) & (a != at) & (b <= at),
    "a < b OR c > {0}": lambda a, b, c, at: (finite(a, b) & (a < b)) | (finite(c) & (c > at)),
    "abs(b - c) <= abs({0})": lambda a, b, c, at: finite(b, c) & (abs(b - c) <= abs(at)),
    "pow(a - {0}, 2) <= 0": lambda a, b, c, at: finite(a) & ((a - at) * (a - at) <= 0),
    "{0} < a < b": lambda a, b, c, at: finite(a, b) & (a > at) & (a < b),
}


@given(
    rows=drawn_rows(max_rows=80),
    method=st.sampled_from(METHODS),
    text=st.sampled_from([*TEXTS]),
    place=st.integers(0, 79),
    loosened=st.sampled_from([0.0, 0.0, 1e-12, 1.0]),
)
def test_rows_are_those_without_models(rows, method, text, place, loosened):
    """With missing values, several rows of an instant, bounds of 0, and thresholds that are met."""
    segments, _ = fit(*rows.args, FitOptions(method=method[0], degree=method[1]))
    wider = {name: each * (1 + loosened) for name, each in segments.errors.items()}
    segments = replace(segments, errors=wider)
    names = [*rows.values]
    values = {name: rows.values[name if name in names else "a"] for name in "abc"}
    given_ = values["a"][np.isfinite(values["a"])]
    at = float(given_[place % len(given_)]) if len(given_) else 1.0
    condition = read_condition(text.format(repr(at)), [*"abc"])
    coefs, errors = (
        {name: each[name if name in names else "a"] for name in "abc"}
        for each in (segments.coefs, segments.errors)
    )
    segments = replace(segments, coefs=coefs, errors=errors)
    away = uncovered(segments, rows.keys, rows.times, values)
    decided = decide(segments, condition)
    seen = []
    found = satisfied(decided, condition, rows.keys, rows.times, reading(values, seen), away)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = TEXTS[text](*(values[name] for name in "abc"), at)
    np.testing.assert_array_equal(found, expected)
    codes = decided.of(rows.keys, rows.times, away)
    np.testing.assert_array_equal(np.concatenate([*seen, []]), np.flatnonzero(codes == OPEN))


@given(rows=drawn_rows(max_rows=60, missing=False, ties=False), share=st.floats(-1, 1))
def test_every_value_that_an_error_allows_is_decided_alike(rows, share):
    """Rows are moved to anywhere within the error of their segments: decisions have to hold."""
    segments, _ = fit(*rows.args, FitOptions(method="linear"))
    errors = {name: np.maximum(each, 1.0) for name, each in segments.errors.items()}
    segments = replace(segments, errors=errors)
    condition = read_condition("a * a - 2 * a < 3 OR a > 1000", ["a"])
    codes = decide(segments, condition).of(rows.keys, rows.times)
    by_key = np.array(
        [
            np.flatnonzero((segments.keys == key) & (segments.lo <= time))[-1]
            for key, time in zip(rows.keys, rows.times, strict=True)
        ]
    )
    tau = (rows.times - segments.origin[by_key]) * 1e-6
    middle = segments.coefs["a"][by_key, 0] + segments.coefs["a"][by_key, 1] * tau
    for each in (share, -1.0, 1.0):
        moved = middle + each * errors["a"][by_key] * (1 - 1e-14)
        with np.errstate(over="ignore", invalid="ignore"):
            holds = (moved * moved - 2 * moved < 3) | (moved > 1000)
        settled = codes != OPEN
        np.testing.assert_array_equal(holds[settled], codes[settled] == TRUE)

"""How far predicates are from being true, and rows that are not so far from their models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.errors import NotSupportedError
from eddyline.models import polynomials
from eddyline.models.bounds import Bound
from eddyline.models.condition_text import read_condition
from eddyline.models.exact import rows_hold
from eddyline.models.joins import joined
from eddyline.models.slack import slack, slack_bounds, violation_at, watched
from eddyline.models.validation import NO_MODEL, VIOLATES, WITHIN, validated
from tests.models.pieces import EPOCH, SECOND, drawn, pieces

NAN, INF = float("nan"), float("inf")


def slack_of(text, *rows):
    segments = pieces(*rows, start=EPOCH)
    return slack(segments, read_condition(text, [*segments.coefs])).tolist()


def test_t18_slack_of_a_threshold():
    assert slack_of("x < 5", (0, 0, 3, {"x": [10, -1]})) == pytest.approx([2], abs=1e-9)


def test_t19_a_satisfied_comparison_does_not_count():
    row = (0, 0, 3, {"x": [5.1], "y": [0]})
    assert slack_of("x < 5 AND y < 100", row) == pytest.approx([0.1], abs=1e-9)


def test_t20_two_comparisons_are_nearest_where_they_are_violated_alike():
    assert slack_of("t > 3 AND t < 1", (0, 0, 4, {"t": [0, 1]})) == pytest.approx([1], abs=1e-9)


def test_slack_where_two_comparisons_change_places():
    row = (0, 0, 6, {"x": [10, -1], "y": [4, 1]})
    assert slack_of("x < 5 AND y < 5", row) == pytest.approx([2])  # at 3, where both are 7
    live = watched(pieces(row, start=EPOCH), read_condition("x < 3 OR y < 3", ["x", "y"]), {})
    # Before 3 that of y is nearer, behind it that of x: both are held to the nearer one.
    near = codes(live, [1, 1, 5, 5], x=[7.01, 6.99, 3.01, 2.99], y=[5, 5, 9, 9])
    assert near == [WITHIN, VIOLATES, WITHIN, VIOLATES]
    assert codes(live, [1, 5], x=[9, 5], y=[3.01, 6.99]) == [WITHIN, VIOLATES]


def test_t2_slack_of_a_join_is_up_to_where_it_ends():
    left = pieces((0, 0, 8, {"x": [10, 2]}), start=EPOCH)
    right = pieces((0, 3, 10, {"y": [0, 1, 0.5]}, 3), start=EPOCH)
    condition = read_condition("left.x < right.y", ["left.x", "right.y"])
    pairs = joined(left, right).segments
    assert slack(pairs, condition) == pytest.approx([8.5], abs=1e-9)
    bounds = slack_bounds(pairs, condition)
    assert {name: far[0] for name, far in bounds.items()} == pytest.approx(
        {"left.x": 4.25, "right.y": 4.25}, abs=1e-4
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 5 OR y < 0", 1),
        ("x = 5", 2),
        ("x <> 7", 0),
        ("abs(x - 10) < 1", 2),
        ("x > 9 AND y > 3", 2),
        ("x <= 7", 0),
        ("x * y > 20", 6),
    ],
)
def test_slack_of_conditions(text, expected):
    assert slack_of(text, (0, 0, 3, {"x": [7], "y": [1, 1 / 3]})) == pytest.approx([expected])


def test_slack_without_values_and_of_tombstones():
    segments = pieces((0, 0, 3, {"x": [NAN], "y": [4]}), (1, 0, 3, None), (2, 1, 1, {"x": [7]}))
    condition = read_condition("x < 5", ["x"])
    assert slack(segments, condition).tolist() == [INF, INF, 2]
    bounds = slack_bounds(segments, read_condition("x < 5 OR y < 1", ["x", "y"]))
    assert bounds["x"][0] == 0  # any value of x is news
    assert bounds["y"][0] == pytest.approx(3)
    assert [far[1] for far in bounds.values()] == [INF, INF]
    with pytest.raises(NotSupportedError, match="a row alone has none"):
        slack(segments, read_condition("d(x) < 5", ["x"]))


def test_violations_at_instants():
    segments = pieces((0, 0, 9, {"x": [0, 1]}, -2), start=EPOCH)
    condition = read_condition("x < 5", ["x"])
    times = EPOCH + np.array([1, 3, 6]) * SECOND
    assert violation_at(segments, condition, np.zeros(3, int), times).tolist() == [0, 0, 3]


def codes(live, at, key=0, **values):
    """Return what rows are, each for itself."""
    times = EPOCH + np.rint(np.array(at) * SECOND).astype(np.int64)
    keys = np.full(len(times), key, np.int64)

    def nothing(rows):
        return live  # the same again

    found = [
        validated(live, keys[[row]], times[[row]], {n: np.array(each)[[row]] for n, each in
                                                    values.items()}, nothing).codes[0]
        for row in range(len(times))
    ]  # fmt: skip
    return [int(each) for each in found]


def test_next_to_a_solution_there_is_no_slack_and_farther_away_there_is():
    """price = 130 - 2 t < 125 holds from 2.5 on: there rows are held to the output's bound."""
    price = pieces((0, 0, 10, {"price": [130, -2]}), start=EPOCH)
    live = watched(price, read_condition("price < 125", ["price"]), {"price": Bound(0.5)})
    at = [0, 0, 0, 2.4, 2.4, 3, 3, 3, 10]
    rows = [125.001, 125, 900.0, 125.001, 124.999, 124.5, 124.6, 123.4, 110]
    w, v = WITHIN, VIOLATES
    assert codes(live, at, price=rows) == [w, v, w, w, v, w, v, v, NO_MODEL]


def test_shares_of_values_where_a_condition_holds():
    price = pieces((0, 0, 10, {"price": [100]}), start=EPOCH)
    live = watched(price, read_condition("price < 125", ["price"]), {"price": Bound(0.1, True)})
    assert codes(live, [1, 1, 1, 1], price=[111.0, 112, 91, 90]) == [0, 1, 0, 1]


def test_attributes_that_are_not_compared_are_free_while_nothing_holds():
    both = pieces((0, 0, 10, {"x": [7], "y": [1]}), (1, 0, 10, {"x": [3], "y": [1]}), start=EPOCH)
    live = watched(both, read_condition("x < 5", ["x", "y"]), {"x": Bound(1.0), "y": Bound(1.0)})
    assert codes(live, [1, 1], x=[6.0, 6.0], y=[99.0, NAN]) == [WITHIN, WITHIN]
    assert codes(live, [1, 1], key=1, x=[3.5, 3.5], y=[99.0, NAN]) == [VIOLATES, WITHIN]


def test_a_value_where_the_model_has_none_is_news():
    none = pieces((0, 0, 10, {"x": [NAN], "y": [1]}), start=EPOCH)
    live = watched(none, read_condition("x < 5 AND y > 3", ["x", "y"]), {})
    assert codes(live, [1, 1, 1], x=[NAN, 99.0, INF], y=[99.0, 1.0, 1]) == [0, VIOLATES, 0]


def test_a_comparison_that_is_only_touched_does_not_hold():
    zero = pieces((0, 0, 10, {"x": [0, 0]}), start=EPOCH)
    live = watched(zero, read_condition("x < 0", ["x"]), {"x": Bound(5.0)})
    assert codes(live, [1, 1, 1], x=[-1.0, 0.0, 1.0]) == [VIOLATES] * 3  # by rounding it may
    near = pieces((0, 0, 10, {"x": [1, 0]}), start=EPOCH)
    live = watched(near, read_condition("x < 0", ["x"]), {"x": Bound(5.0)})
    assert codes(live, [1, 1, 1], x=[-0.1, 0.1, 99.0]) == [VIOLATES, WITHIN, WITHIN]


TEXTS = [
    "x < 1", "x >= y", "x * y > 0 OR x < -2", "NOT (x BETWEEN -1 AND 1) AND y <= 2",
    "abs(x - y) < 1 OR y > 3", "sqrt(pow(x, 2) + pow(y, 2)) < 2", "-1 < x <= 2", "x <> 0 AND y = x",
    "x + 2 * y < 3 AND x - y > 1", "x > 20 OR (y < -20 AND x * x < 4)",
]  # fmt: skip


def distances(live, rows, times):
    """Return how far below and above each attribute rows may be, ``[rows]`` each."""
    since = (times - live.segments.origin[rows]) * 1e-6
    return {
        name: [np.maximum(polynomials.evaluate(of[name][rows], since), 0)
               for of in (live.below, live.above)]
        for name in live.segments.coefs
    }  # fmt: skip


@given(
    segments=drawn(("x", "y"), keys=1, most=2, degree=2, gaps=False, start=EPOCH),
    text=st.sampled_from(TEXTS),
    seed=st.integers(0, 2**32),
    missing=st.sampled_from([False, False, False, True]),
)
def test_rows_that_are_dropped_where_nothing_holds_satisfy_nothing(segments, text, seed, missing):
    rng = np.random.default_rng(seed)
    if missing:
        segments.coefs["x"][0] = NAN
    condition = read_condition(text, ["x", "y"])
    live = watched(segments, condition, {"x": Bound(1.0), "y": Bound(1.0)})
    rows = rng.integers(0, len(live), 120)
    lo, hi = live.segments.lo[rows], live.segments.hi[rows]
    # Ends of pieces, the microseconds beside them, and anything in between.
    places = [lo, hi - 1, rng.integers(lo, hi)]
    times = np.choose(rng.integers(0, 3, 120), places)
    since = (times - live.segments.origin[rows]) * 1e-6
    values = {}
    for name, (below, above) in distances(live, rows, times).items():
        middle = polynomials.evaluate(live.segments.coefs[name][rows], since)
        most = np.where(rng.random(120) < 0.5, -np.minimum(below, 1e6), np.minimum(above, 1e6))
        part = rng.choice([0.0, 0.5, 1 - 1e-9, 1.0, 1.2], 120)
        values[name] = np.where(np.isnan(middle), rng.choice([NAN, 0.0], 120), middle + part * most)
    found = np.array(codes(live, (times - EPOCH) / SECOND, **values))
    dropped = (found == WITHIN) & live.is_strict[rows]
    assert not rows_hold(condition, values, 120)[dropped].any()
    # Where models say that it does not hold, as near as can be is near enough, but next to roots.
    known = live.is_strict[rows] & (not missing)
    amount = violation_at(
        segments, condition, np.searchsorted(segments.lo, times, "right") - 1, times
    )
    exact = {name: polynomials.evaluate(live.segments.coefs[name][rows], since) for name in values}
    near = np.array(codes(live, (times - EPOCH) / SECOND, **exact))
    assert (near[known & (amount > 0.1)] == WITHIN).all()


@given(segments=drawn(("x", "y"), keys=2, degree=3), text=st.sampled_from(TEXTS))
def test_slack_is_the_least_violation(segments, text):
    condition = read_condition(text, ["x", "y"])
    found = slack(segments, condition)
    for row in range(len(segments)):
        times = np.linspace(segments.lo[row], segments.hi[row], 400).astype(np.int64)
        seen = violation_at(segments, condition, np.full(400, row), times)
        assert found[row] <= seen.min() + 1e-9 * (1 + seen.max())
        steepest = np.abs(np.diff(seen)).max()
        assert found[row] >= seen.min() - steepest - 1e-9


@given(
    segments=drawn(("x", "y"), keys=1, most=2, gaps=False),
    text=st.sampled_from(TEXTS),
    seed=st.integers(0, 2**32),
)
def test_a_condition_stays_false_within_the_bounds_of_a_segment(segments, text, seed):
    rng = np.random.default_rng(seed)
    condition = read_condition(text, ["x", "y"])
    bounds = slack_bounds(segments, condition)
    rows = rng.integers(0, len(segments), 100)
    times = rng.integers(segments.lo[rows], segments.hi[rows])
    since = (times - segments.origin[rows]) * 1e-6
    free = np.full(len(segments), INF)
    off = (1 - 1e-12) * rng.choice([-1.0, 1.0, 0.3], (2, 100))
    values = {
        name: polynomials.evaluate(segments.coefs[name][rows], since)
        + off[at] * np.minimum(bounds.get(name, free)[rows], 1e6)
        for at, name in enumerate("xy")
    }
    bound = slack(segments, condition)[rows] > 0
    assert not rows_hold(condition, values, 100)[bound].any()


def test_what_cannot_be_solved_is_always_news():
    huge = pieces((0, 0, 10, {"x": [1e200, 1]}), start=EPOCH)
    live = watched(huge, read_condition("x * x < 5", ["x"]), {"x": Bound(1.0)})
    assert codes(live, [1], x=[1e200]) == [VIOLATES]

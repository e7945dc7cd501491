from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models import polynomials
from eddyline.models.bounds import Bound
from eddyline.models.condition_text import read_condition
from eddyline.models.slack import watched
from eddyline.models.validation import VIOLATES, WITHIN, validated
from eddyline.models.watching import both
from tests.models.pieces import EPOCH, SECOND, drawn, pieces

TEXTS = ["x < 1", "x >= y", "x * y > 0", "x > 2 AND y < 3", "y > 4 OR x < -3"]


def code(live, key, time, values):
    """Return what a row is by itself."""
    at = np.array([key], np.int64), np.array([time], np.int64)
    given_ = {name: np.array([each]) for name, each in values.items()}
    return int(validated(live, *at, given_, lambda _: live).codes[0])


def test_the_lesser_of_two_distances_counts_before_and_behind_where_they_cross():
    """x is 10 - t: x < 5 is 5 - t away, and x > 12 is 2 + t: the same at 1.5."""
    segments = pieces((0, 0, 4, {"x": [10, -1]}), start=EPOCH)
    one, other = (watched(segments, read_condition(text, ["x"]), {}) for text in ("x<5", "x>12"))
    found = both(one, other)
    assert len(found) == 1  # each side of x is bounded by one of them
    rows = {11.9: WITHIN, 12.1: VIOLATES, 5.1: WITHIN, 4.9: VIOLATES}
    assert {x: code(found, 0, EPOCH + SECOND, {"x": x}) for x in rows} == rows
    one, other = (
        watched(segments, read_condition(text, ["x"]), {}) for text in ("x * x < 25", "x * x > 144")
    )
    crossed = both(one, other)
    assert len(crossed) == 2
    assert crossed.is_strict.all()


def test_bounds_of_one_query_and_slack_of_another():
    segments = pieces((0, 0, 4, {"x": [10, -1]}), start=EPOCH)
    first = watched(segments, read_condition("x > 5", ["x"]), {"x": Bound(0.5)})
    second = watched(segments, read_condition("x > 9", ["x"]), {"x": Bound(0.1)})
    found = both(first, second)
    assert len(found) == 3  # behind 1 the second has t - 1, which is more than 0.5 from 1.5 on
    at = {0.5: (9.59, 9.61), 3.0: (6.5, 7.51)}
    codes = {t: [code(found, 0, EPOCH + round(t * SECOND), {"x": x}) for x in pair]
             for t, pair in at.items()}  # fmt: skip
    assert codes == {0.5: [WITHIN, VIOLATES], 3.0: [VIOLATES, VIOLATES]}
    assert code(found, 0, EPOCH + 3 * SECOND, {"x": 7.49}) == WITHIN


@given(
    segments=drawn(("x", "y"), keys=2, most=2, degree=2, start=EPOCH),
    texts=st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)),
    seed=st.integers(0, 2**32),
)
def test_what_both_allow_each_allows(segments, texts, seed):
    rng = np.random.default_rng(seed)
    bounds = {"x": Bound(0.5), "y": Bound(0.25)}
    lives = [watched(segments, read_condition(text, ["x", "y"]), bounds) for text in texts]
    found = both(*lives)
    rows = rng.integers(0, len(found), 12)
    times = rng.integers(found.segments.lo[rows], found.segments.hi[rows])
    since = (times - found.segments.origin[rows]) * 1e-6
    for at, (row, time) in enumerate(zip(rows, times, strict=True)):
        values = {}
        for name in ("x", "y"):
            far = [
                float(polynomials.evaluate(of[name][[row]], since[[at]])[0])
                for of in (found.below, found.above)
            ]
            model = polynomials.evaluate(found.segments.coefs[name][[row]], since[[at]])[0]
            side = rng.integers(0, 2)
            part = rng.choice([0.0, 0.5, 1 - 1e-9, 1.01])
            values[name] = model + (2 * side - 1) * part * np.clip(far[side], 0, 1e6)
        key = found.segments.keys[row]
        each = [code(live, key, time, values) for live in lives]
        if code(found, key, time, values) == WITHIN:
            assert each == [WITHIN, WITHIN]
        elif each == [WITHIN, WITHIN]:  # only because the lesser one is a little less
            less = {name: model_near(found, row, since[at], name, values[name]) for name in values}
            assert code(found, key, time, less) == WITHIN or near_a_root(found, row, since[at])


def model_near(live, row, since, name, value):
    """Return a value that is nearer to its model by a part of the distance."""
    model = polynomials.evaluate(live.segments.coefs[name][[row]], np.array([since]))[0]
    return model + (value - model) * 0.9


def near_a_root(live, row, since):
    return any(
        polynomials.evaluate(of[name][[row]], np.array([since]))[0] < 1e-3
        for of in (live.below, live.above)
        for name in of
    )

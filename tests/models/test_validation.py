"""Rows against models: what a loop over rows says, for any cut into batches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.bounds import Bound
from eddyline.models.condition_text import read_condition, read_expression
from eddyline.models.expressions import projected
from eddyline.models.inversion import of_expression
from eddyline.models.ranges import Range
from eddyline.models.slack import watched
from eddyline.models.updates import overridden
from eddyline.models.validation import LATE, NO_MODEL, VIOLATES, WITHIN, Live, validated
from tests.models.pieces import SECOND, pieces

NAN, INF = float("nan"), float("inf")
HORIZON = 8 * SECOND


@dataclass
class Rows:
    keys: np.ndarray
    times: np.ndarray
    values: dict[str, np.ndarray]
    asked: list[int] = field(default_factory=list)

    def take(self, places):
        return Rows(self.keys[places], self.times[places],
                    {name: each[places] for name, each in self.values.items()})  # fmt: skip

    def models(self, at):
        """Return a line from each row on, for a time."""
        segments = [
            (self.keys[row], 0, HORIZON / SECOND, {"x": [self.values["x"][row], 1.0], "y": [
                self.values["y"][row], 0]}) for row in at
        ]  # fmt: skip
        parts = [pieces(each, start=int(self.times[row])) for each, row in zip(segments, at,
                 strict=True)]  # fmt: skip
        made = [Live.within(each, {}) for each in parts]
        return Live.joined(made).segments

    def remodel(self, bounds=None, condition=None):
        def made(at):
            self.asked += at.tolist()
            segments = self.models(at)
            if condition is None:
                return Live.within(segments, bounds)
            return watched(segments, condition, bounds)

        return made


def start(n_keys=0):
    one = pieces((0, 0, 5, {"x": [0, 1], "y": [0]}))
    return Live.within(one, {}).take(np.zeros(1, bool))


def of(times, x, keys=None, y=None):
    n = len(times)
    return Rows(
        np.zeros(n, np.int64) if keys is None else np.array(keys, np.int64),
        np.rint(np.array(times) * SECOND).astype(np.int64),
        {"x": np.array(x, float), "y": np.zeros(n) if y is None else np.array(y, float)},
    )


def test_a_violator_begins_a_new_model_and_rows_go_on_against_it():
    rows = of([0, 1, 2, 3, 4, 20], [5, 6.5, 9, 10, 8, 1])
    remodel = rows.remodel({"x": Bound(0.5), "y": Bound(0.0)})
    found = validated(start(), rows.keys, rows.times, rows.values, remodel)
    assert found.codes.tolist() == [NO_MODEL, WITHIN, VIOLATES, WITHIN, VIOLATES, NO_MODEL]
    assert (rows.asked, found.rounds) == ([0, 2, 4, 5], 4)
    assert found.live.segments.lo.tolist() == [20 * SECOND]


def test_entities_are_validated_in_the_same_rounds():
    rows = of([0, 0, 1, 1, 2, 2], [5, 7, 9, 8, 10, 0], keys=[0, 1] * 3)
    found = validated(start(), rows.keys, rows.times, rows.values, rows.remodel({"x": Bound(0.5)}))
    assert found.codes.tolist() == [2, 2, VIOLATES, WITHIN, WITHIN, VIOLATES]
    assert found.rounds == 2
    assert found.live.segments.keys.tolist() == [0, 1]
    assert found.live.segments.lo.tolist() == [SECOND, 2 * SECOND]


def test_values_that_are_missing_say_nothing_and_late_rows_change_nothing():
    live = Live.within(pieces((0, 5, 9, {"x": [0, 0], "y": [0]})), {"x": Bound(1.0)})
    rows = of([5, 6, 7, 4, 8], [NAN, INF, 1.0, 99.0, 1.01], y=[1e9, NAN, 0, 0, 0])
    found = validated(live, rows.keys, rows.times, rows.values, rows.remodel({"x": Bound(1.0)}))
    assert found.codes.tolist() == [WITHIN, WITHIN, WITHIN, LATE, VIOLATES]


def test_bounds_for_each_segment_shares_and_free_attributes():
    segments = pieces((0, 0, 5, {"x": [10], "y": [1]}), (0, 5, 9, {"x": [-10], "y": [1]}))
    rows = of([1, 1, 6, 6], [10.5, 10.6, -10.9, -11.1], y=[9, 9, 9, 9])
    bounds = {"x": np.array([0.5, 1.0])}
    nothing = lambda at: Live.within(segments.take(np.array([1])), bounds_of_second)  # noqa: E731
    bounds_of_second = {"x": np.array([1.0])}
    codes = [
        validated(Live.within(segments, bounds), one.keys, one.times, one.values, nothing).codes[0]
        for one in (rows.take([row]) for row in range(4))
    ]
    assert codes == [WITHIN, VIOLATES, WITHIN, VIOLATES]
    share = Live.within(segments, {"x": Bound(0.1, is_relative=True)})
    rows = of([1, 1, 6], [11.1, 11.2, -9.1], y=[9, 9, 9])  # 1.1 is within 10 % of 11.1
    found = validated(share, rows.keys, rows.times, rows.values, lambda _: share)
    assert found.codes.tolist() == [WITHIN, VIOLATES, WITHIN]


def test_nothing_to_validate():
    rows = of([], [])
    live = Live.within(pieces((3, 0, 5, {"x": [0, 1], "y": [0]})), {"x": Bound(1.0)})
    found = validated(live, rows.keys, rows.times, rows.values, rows.remodel({}))
    assert (len(found.codes), found.rounds, found.live) == (0, 0, live)


def slow(rows, remodel):
    """Return codes by the loop over rows, and how often there was a new model."""
    models: dict[int, Live] = {}
    codes, n = [], 0
    for row in range(len(rows.keys)):
        key, time = int(rows.keys[row]), int(rows.times[row])
        code = NO_MODEL
        live = models.get(key)
        if live is not None:
            segments = live.segments
            there = np.flatnonzero((segments.lo <= time) & (time < segments.hi))
            if time < segments.lo[0]:
                code = LATE
            elif there.size:
                code = slow_code(live, int(there[0]), time, rows, row)
        codes.append(code)
        if code in {NO_MODEL, VIOLATES}:
            models[key] = remodel(np.array([row]))
            n += 1
    return codes, n


def slow_code(live, piece, time, rows, row):
    tau = (time - int(live.segments.origin[piece])) / SECOND
    for name, given_ in rows.values.items():
        value = given_[row]
        if not np.isfinite(value):
            continue
        model, below, above = (
            np.polyval(of_[name][piece][::-1], tau) if np.isfinite(of_[name][piece]).all() else
            of_[name][piece][0] for of_ in (live.segments.coefs, live.below, live.above)
        )  # fmt: skip
        far = below if value < model else above
        if min(below, above) < 0:
            return VIOLATES
        if np.isinf(far):
            continue
        far += live.shares[name][piece] * abs(value)
        near = abs(value - model) < far if live.is_strict[piece] else abs(value - model) <= far
        if not near:
            return VIOLATES
    return WITHIN


@st.composite
def drawn_streams(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, n_keys = draw(st.integers(0, 60)), draw(st.integers(1, 4))
    steps = rng.integers(0, draw(st.sampled_from([2, 5])), n)
    times = np.cumsum(steps) * SECOND // 4
    if draw(st.booleans()):  # some come late
        times = np.maximum(times - rng.integers(0, 2, n) * 3 * SECOND, 0)
    x = np.cumsum(rng.normal(size=n)) * draw(st.sampled_from([0.3, 2.0])) + times / SECOND
    y = rng.integers(-3, 4, n).astype(float)
    for each in (x, y):
        each[rng.random(n) < 0.1] = rng.choice([NAN, INF, 0.125])
    keys = rng.integers(0, n_keys, n) if n_keys < 4 else np.sort(rng.integers(0, 4, n))
    return Rows(keys.astype(np.int64), times.astype(np.int64), {"x": x, "y": y})


WATCHED = ["x > 5", "x < 3 OR y > 1", "x * x + y * y > 20 AND y <> 0", None]


@given(
    rows=drawn_streams(),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    text=st.sampled_from(WATCHED),
    bound=st.sampled_from([Bound(0.5), Bound(0.0), Bound(0.2, is_relative=True)]),
)
def test_any_cut_into_batches_gives_what_a_loop_over_rows_gives(rows, cuts, text, bound):
    condition = None if text is None else read_condition(text, ["x", "y"])
    bounds = {"x": bound, "y": Bound(2.0)}
    expected, n_models = slow(rows, rows.remodel(bounds, condition))
    live, codes, asked = start(), [], 0
    edges = [0, *sorted(min(each, len(rows.keys)) for each in cuts), len(rows.keys)]
    for first, stop in itertools.pairwise(edges):
        batch = rows.take(slice(first, stop))
        remodel = batch.remodel(bounds, condition)
        found = validated(live, batch.keys, batch.times, batch.values, remodel)
        live, asked = found.live, asked + len(batch.asked)
        codes += found.codes.tolist()
    assert codes == expected
    assert asked == n_models


OUTPUTS = {"sum": "2 * x - y", "product": "x * y", "square": "x * x - 3 * y"}


@given(
    text=st.sampled_from([*OUTPUTS.values()]),
    bound=st.sampled_from([Bound(0.5), Bound(3.0), Bound(0.0)]),
    seed=st.integers(0, 2**32),
)
def test_outputs_of_models_are_within_their_bounds_of_what_rows_give(text, bound, seed):
    """From the bound of an output to those of inputs, to models, and back: at every row."""
    rng = np.random.default_rng(seed)
    rows = of(np.cumsum(rng.integers(1, 4, 90)) / 3, np.zeros(90), keys=rng.integers(0, 2, 90))
    expression = read_expression(text, ["x", "y"])
    values = dict.fromkeys(("x", "y"), Range(-100.0, 100.0))
    bounds = of_expression(expression, "o", bound, values)
    off = rng.choice([0.0, 1 - 1e-9, -1 + 1e-9, 1.1, -1.1], (2, 90))
    rows.values["x"] = rows.times / SECOND + off[0] * bounds["x"].value
    rows.values["y"] = 3.0 + off[1] * bounds["y"].value
    made = []

    def remodel(at):
        made.append(rows.models(at))
        return Live.within(made[-1], bounds)

    validated(start(), rows.keys, rows.times, rows.values, remodel)
    every = joined_segments(made)
    models = overridden(every, np.arange(len(every)))
    outputs = projected(models, {"o": expression})
    x, y = rows.values["x"], rows.values["y"]
    expected = {"2 * x - y": 2 * x - y, "x * y": x * y, "x * x - 3 * y": x * x - 3 * y}[text]
    for key, time, value in zip(rows.keys, rows.times, expected, strict=True):
        own = (outputs.keys == key) & (outputs.lo <= time) & (time < outputs.hi)
        (row,) = np.flatnonzero(own)
        since = (time - outputs.origin[row]) / SECOND
        found = np.polyval(outputs.coefs["o"][row][::-1], since)
        assert abs(found - value) <= bound.value + 1e-9 * (1 + abs(value))


def joined_segments(parts):
    return Live.joined([Live.within(each, {}) for each in parts]).segments


@pytest.mark.parametrize("n", [1, 3000])
def test_each_row_may_be_a_violator(n):
    """Rows are walked once, however many of them begin new models: 3,000 rounds, no 3,000²."""
    rows = of(np.arange(n), 10.0 * np.arange(n))
    seen = []

    def remodel(at):
        seen.append(at.tolist())
        one = pieces((0, 0, 10**6, {"x": [rows.values["x"][at[0]]], "y": [0]}))
        return Live.within(one, {"x": Bound(1.0)})

    found = validated(start(), rows.keys, rows.times, rows.values, remodel)
    assert seen == [[each] for each in range(n)]
    assert found.codes.tolist() == [NO_MODEL] + [VIOLATES] * (n - 1)

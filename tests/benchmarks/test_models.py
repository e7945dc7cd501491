"""What the benchmarks of models compare with: queries on rows say what brute force says."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.harness.scenario import Settings
from benchmarks.models import answers
from benchmarks.models.crossovers import crossover, legs
from benchmarks.models.data import SECOND_US, Fleet, Moving, Rows, fleet_v1, in_metres, moving_v1
from benchmarks.models.row_engine import (
    following,
    macd,
    macd_in_a_loop,
    near,
    windowed_minimum,
)

from eddyline.models.segments import in_seconds
from eddyline.models.solving import polynomials

SLIDE, WIDTH = 2 * SECOND_US, 10 * SECOND_US


def drawn(seed, n=400, keys=3):
    """Return rows of entities, of which the first ends early."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(1, 120 * SECOND_US, n))
    values = {name: rng.normal(size=n).cumsum() + 100 for name in ("price", "x", "y")}
    rows = Rows(rng.integers(0, keys, n), times, values)
    return rows.take((rows.keys > 0) | (times < 60 * SECOND_US)).by_entity


@pytest.mark.parametrize("seed", range(3))
def test_windows_of_rows_are_those_of_brute_force(seed):
    rows = drawn(seed)
    found = windowed_minimum(rows, "x", WIDTH, SLIDE)
    first = -(-rows.times.min() // SLIDE)
    for key in range(found.shape[0]):
        for at in range(found.shape[1]):
            tick = (first + at) * SLIDE
            inside = (rows.keys == key) & (rows.times > tick - WIDTH) & (rows.times <= tick)
            assert found[key, at] == rows.values["x"][inside].min(initial=np.inf)


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize("asked", [macd, macd_in_a_loop])
def test_averages_that_cross_are_those_of_brute_force(asked, seed):
    rows = drawn(seed)
    keys, ticks, apart = asked(rows, WIDTH, 3 * WIDTH, SLIDE)
    got = {(k, t): value for k, t, value in zip(keys.tolist(), ticks.tolist(), apart, strict=True)}
    wanted = {}
    for key in range(3):
        for tick in range(0, 122 * SECOND_US, SLIDE):
            means = [
                rows.values["price"][
                    (rows.keys == key) & (rows.times > tick - width) & (rows.times <= tick)
                ]
                for width in (WIDTH, 3 * WIDTH)
            ]
            if all(len(each) for each in means) and means[0].mean() > means[1].mean() + 1e-9:
                wanted[key, tick] = means[0].mean() - means[1].mean()
    assert wanted
    assert {each for each, value in got.items() if value > 1e-9} == wanted.keys()
    for each, value in wanted.items():
        assert got[each] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("n_vessels", "hours"), [(10, 1), (20, 5)])
def test_vessels_that_follow_are_those_of_brute_force(n_vessels, hours):
    """In an hour most panes of a pair have rows; of thinned rows over five few do."""
    rows = in_metres(fleet_v1(Fleet(n_vessels, hours)))
    if hours > 1:
        rows = rows.take(np.random.default_rng(0).random(len(rows)) < 0.01)
    rows = rows.by_time
    apart, width, slide, distance = 10 * SECOND_US, 600 * SECOND_US, 10 * SECOND_US, 1_000.0
    found = following(rows, apart, width, slide, distance)
    one, other = np.nonzero(
        (rows.keys[:, None] < rows.keys) & (np.abs(rows.times[:, None] - rows.times) < apart)
    )
    at = np.stack([rows.values["x"], rows.values["y"]], axis=1)
    away = np.sqrt(((at[one] - at[other]) ** 2).sum(axis=1))
    later = np.maximum(rows.times[one], rows.times[other])
    sums: dict[tuple[int, int, int], list[float]] = {}
    for a, b, time, each in zip(rows.keys[one], rows.keys[other], later, away, strict=True):
        closing = -(-time // slide) * slide
        for tick in range(closing, closing + width, slide):
            sums.setdefault((int(a), int(b), tick), []).append(each)
    wanted = {each: np.mean(d) for each, d in sums.items() if np.mean(d) < distance}
    got = zip(found.left.tolist(), found.right.tolist(), found.ticks.tolist(), strict=True)
    got = dict(zip(got, found.distance, strict=True))
    assert wanted
    assert got.keys() == wanted.keys()
    assert all(got[each] == pytest.approx(value) for each, value in wanted.items())


def test_pairs_of_rows_are_those_of_brute_force():
    rows = drawn(7)
    left, right = rows.take(rows.keys == 0).by_time, rows.take(rows.keys > 0).by_time
    found = near(left, right, SECOND_US, 5.0)
    apart = [left.values[name][:, None] - right.values[name] for name in ("x", "y")]
    wanted = (np.hypot(*apart) < 5.0) & (np.abs(left.times[:, None] - right.times) < SECOND_US)
    assert wanted.any()
    got = sorted(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert got == [tuple(each) for each in np.argwhere(wanted).tolist()]


def test_legs_pass_all_rows():
    shape = Moving(2_000, 7, n_objects=4)
    rows = moving_v1(shape)
    made = legs(rows, shape)
    at = np.searchsorted(made.keys * 10**12 + made.lo, rows.keys * 10**12 + rows.times, "right") - 1
    since = in_seconds(rows.times - made.origin[at])
    assert (made.keys[at] == rows.keys).all()
    assert (rows.times < made.hi[at]).all()
    for name in ("x", "y"):
        values = polynomials.evaluate(made.coefs[name][at], since)
        np.testing.assert_allclose(values, rows.values[name], atol=1e-6)


@pytest.mark.parametrize(
    ("ratios", "wanted"),
    [([0.5, 0.4, 0.3], 2.0), ([2.0, 1.0, 0.5], 4.0), ([4.0, 2.0, 0.5], 5.657), ([4, 3, 2], 16.0)],
)
def test_a_crossover_is_where_times_are_equal(ratios, wanted):
    assert crossover((2, 4, 8), ratios) == pytest.approx(wanted, rel=1e-3)


def test_what_nobody_chose_comes_in_as_a_seed_and_is_told(monkeypatch):
    monkeypatch.setattr(answers, "drawn", partial(answers.drawn, n_entities=2, n_each=200))
    first, again = (answers.unseen(Settings(quick=True, unseen=7)) for _ in range(2))
    assert first == again
    assert first.value == 0
    assert first.details["checked"] > 0
    assert "seeds 7 to 10;" in first.note
    assert answers.unseen(Settings(quick=True, unseen=8)) != first

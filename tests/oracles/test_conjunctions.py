from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.oracles.conjunctions import (
    TupleAGreedy,
    conjunction,
    kleene_and,
    kleene_not,
    kleene_or,
)

VALUES = (True, False, None)
ROWS = [{"x": x, "y": y} for x, y in itertools.product((0, 1, None), repeat=2)]


def is_one(name):
    return lambda row: None if row[name] is None else row[name] == 1


def divides(row):
    return None if row["x"] is None else 1 / row["x"] == 1


@pytest.mark.parametrize(("a", "b"), [*itertools.product(VALUES, repeat=2)])
def test_kleene_tables(a, b):
    rank = {False: 0, None: 1, True: 2}
    assert kleene_and([a, b]) is min(a, b, key=rank.get)
    assert kleene_or([a, b]) is max(a, b, key=rank.get)
    assert kleene_not(kleene_and([a, b])) is kleene_or([kleene_not(a), kleene_not(b)])


def test_kleene_of_nothing():
    assert kleene_and([]) is True
    assert kleene_or([]) is False


def test_null_drops():
    assert conjunction(ROWS, [is_one("x"), is_one("y")]) == [{"x": 1, "y": 1}]
    assert conjunction(ROWS, [is_one("x")]) == [{"x": 1, "y": y} for y in (0, 1, None)]


def test_an_error_counts_only_if_the_row_survives_all_others():
    assert conjunction(ROWS, [divides, is_one("x")]) == conjunction(ROWS, [is_one("x")])
    with pytest.raises(ZeroDivisionError):
        conjunction(ROWS, [divides, is_one("y")])


def test_the_order_of_predicates_never_matters():
    predicates = [divides, is_one("x"), is_one("y")]
    answers = [conjunction(ROWS, order) for order in itertools.permutations(predicates)]
    assert all(answer == answers[0] for answer in answers)


def test_sampled_a_greedy_counts_what_it_profiles():
    rng = np.random.default_rng(0)
    reference = TupleAGreedy([1, 1, 1], prob=0.5, rng=rng, window_rows=10**6)
    drops = rng.random((2000, 3)) < 0.5
    emitted = sum(reference.process(row) for row in drops)
    assert emitted == (~drops.any(axis=1)).sum()
    n_dropped = len(drops) - emitted
    assert abs(len(reference.window) - n_dropped / 2) < 4 * np.sqrt(n_dropped / 4)
    assert abs(reference.emitted_samples - emitted / 2) < 4 * np.sqrt(emitted / 4)
    assert reference.n_extra <= 2 * len(reference.window)

"""Conditions that are counted batch by batch: never of two situations together."""

from __future__ import annotations

import numpy as np
import pytest

from eddyline.runtime.choice import KEPT, Conditions

NAMES = ("x", "y")


def step(known, *shares, n=1_000.0):
    """Take in a batch of so many rows."""
    return known.step(NAMES, np.array(shares), np.full(len(shares), n), n)


def test_batches_add_up_and_newer_ones_count_more():
    known = Conditions()
    assert known.situation(None, 1) is None
    assert not step(known, 0.5, 0.1)
    assert not step(known, 0.55, 0.1)
    expected = (KEPT * 0.5 + 0.55) / (KEPT + 1)
    np.testing.assert_allclose(known.shares, [expected, 0.1])
    assert known.n_sampled == pytest.approx((KEPT + 1) * 1_000)
    assert known.situation("evidence", 1_800).is_settled
    assert not known.situation("evidence", 1_801).is_settled


def test_what_is_known_begins_with_the_batch_that_changed():
    known = Conditions()
    for _ in range(5):
        assert not step(known, 0.5, 0.1)
    assert step(known, 0.5, 0.6)
    np.testing.assert_allclose(known.shares, [0.5, 0.6])
    assert known.n_sampled == 1_000


@pytest.mark.parametrize("seed", range(5))
def test_chance_is_no_change_and_few_rows_are_not_enough_for_one(seed):
    rng = np.random.default_rng(seed)
    known = Conditions()
    for n in rng.integers(1, 200, 200):
        assert not step(known, *rng.binomial(n, [0.5, 0.02]) / n, n=float(n))
    assert not step(known, 0.9, 0.02, n=2.0)


def test_what_a_batch_does_not_measure_stays_as_it_is():
    known = Conditions()
    step(known, 0.5, 0.1)
    for _ in range(50):
        assert not step(known, 0.5, np.nan)
    np.testing.assert_allclose(known.shares, [0.5, 0.1])
    assert known.counts[1] == 1_000
    unknown = Conditions()
    step(unknown, np.nan, 0.1)
    assert np.isnan(unknown.shares[0])
    assert (unknown.situation(None, 1).counts >= 1.0).all()


def test_other_things_are_no_change_of_these():
    known = Conditions()
    step(known, 0.5, 0.1)
    assert not known.step(("z",), np.array([0.9]), np.array([10.0]), 10.0)
    assert known.names == ("z",)
    np.testing.assert_allclose(known.shares, [0.9])

"""The map of where change detection pays: its prices against trying prices out."""

from __future__ import annotations

import math

import numpy as np
from benchmarks.change.payoff import WANTED, Cell, price_from, row_of, run_of
from hypothesis import given
from hypothesis import strategies as st

tried = np.linspace(0.0, 40.0, 4001)
"""Prices that are tried out; the counts below are whole, so none lies beyond."""


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-5, 5)), min_size=1, max_size=4))
def test_the_least_price_is_that_of_trying_prices_out(lacking):
    evaluations, changes = np.array(lacking, dtype=float).T
    is_enough = (evaluations + tried[:, None] * changes <= 1e-9).all(axis=1)
    price = price_from(lacking)
    if math.isinf(price):
        assert not is_enough.any()
    else:
        assert (evaluations + price * changes <= 1e-9).all()
        assert not is_enough[tried < price - 1e-9].any()


def test_at_the_least_price_of_a_cell_just_enough_is_saved():
    cell = Cell(4, "half", 0.1, 0.5)
    runs, oracle = run_of(cell, period=20_000, n_queries=1)
    price = row_of(cell, runs, oracle)["price_from"]
    own = runs.pop("beta_cusum")[0]
    totals = [run.work / 0.1 + price * run.n_reorders for [run] in runs.values()]
    assert 0.0 < price < math.inf
    assert len(totals) == 7
    own_total = own.work / 0.1 + price * own.n_reorders
    assert abs(own_total / np.mean(totals) - (1.0 - WANTED)) < 1e-12
    assert oracle < own.work

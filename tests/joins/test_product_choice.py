"""The choice between combinations and their products."""

from __future__ import annotations

import pytest

from eddyline.joins.plan import ProductCounts
from eddyline.joins.tables import COMBINATIONS, LEAST, PRODUCTS, ProductChoice


def step(choice, n_combinations, n_products, batch_id=3):
    half = ProductCounts(n_combinations // 2, n_products // 2)
    return choice.step([half, half], batch_id)


def test_products_are_taken_while_they_are_fewer():
    choice = ProductChoice(is_adaptive=True)
    assert choice.plan == COMBINATIONS
    assert step(choice, 10 * LEAST, 8 * LEAST) == [], "not enough to change anything"
    (entry,) = step(choice, 10 * LEAST, 2 * LEAST)
    assert (entry.component, entry.event) == ("products", "results")
    assert (entry.before, entry.after) == (COMBINATIONS, PRODUCTS)
    assert entry.evidence["combinations_per_product"] == pytest.approx(5)
    assert step(choice, 10 * LEAST, 8 * LEAST) == []
    (entry,) = step(choice, 10 * LEAST, 10 * LEAST)
    assert (entry.after, choice.plan) == (COMBINATIONS, COMBINATIONS)


def test_few_combinations_and_no_rows_decide_nothing():
    choice = ProductChoice(is_adaptive=True)
    assert step(choice, LEAST - 2, 2) == []
    assert choice.step([]) == []
    assert choice.situation() is None


def test_a_held_plan_stays_and_advice_says_what_is_better():
    choice = ProductChoice(is_adaptive=True)
    choice.hold(COMBINATIONS)
    assert step(choice, 10 * LEAST, LEAST) == []
    assert choice.advice().plan == PRODUCTS
    fixed = ProductChoice(is_adaptive=False)
    assert step(fixed, 10 * LEAST, LEAST) == []
    assert fixed.plan == COMBINATIONS


def test_prices_cross_where_the_plan_changes():
    choice = ProductChoice(is_adaptive=True)
    step(choice, 10 * LEAST, LEAST)
    situation = choice.situation()
    assert situation.is_settled
    assert situation.evidence == [pytest.approx(0.1)]
    assert choice.cost_of(PRODUCTS, [0.1]) < choice.cost_of(COMBINATIONS, [0.1])
    assert choice.cost_of(PRODUCTS, [0.9]) > choice.cost_of(COMBINATIONS, [0.9])

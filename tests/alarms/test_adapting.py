"""Learned plans beside all that there are: alarms that go together, thresholds that move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.alarms.prices import priced

from eddyline.alarms.plan import fixed_plans
from tests.alarms.alone import ranges_of
from tests.alarms.test_loop import lines, loop_of, run

TEXT = "x > ? AND y > ?"
N_BATCHES = 10


def together(seed, how, n=2_000):
    """Return segments of which y goes with x, against it, or knows nothing of it."""
    found = lines(seed, n)
    x = found.coefs["x"]
    y = {"with": x, "against": np.array([1.0, 0.0]) - x, "apart": found.coefs["y"] * [1, 0]}[how]
    return replace(found, coefs={"x": x, "y": y})


def alarms(x, y, n=12):
    return {f"a{at}": f"x > {x + at / 1000} AND y > {y + at / 1000}" for at in range(n)}


@pytest.mark.parametrize("how", ["with", "against", "apart"])
@pytest.mark.parametrize("thresholds", [(0.2, 0.9), (0.9, 0.2), (0.7, 0.7)])
def test_a_learned_plan_costs_as_the_best_of_all(how, thresholds):
    texts = alarms(*thresholds)
    loop = loop_of(texts)
    for at in range(N_BATCHES):
        run(loop, together(at, how), texts, at)
    segments = together(99, how)
    program = ranges_of(segments, texts).program
    (template,) = program.templates
    costs = {plan: priced(program, segments, {TEXT: plan}) for plan in fixed_plans(template)}
    learned = replace(loop.plan[TEXT], order=loop.plan[TEXT].order_of(template))
    assert costs[learned] <= 1.1 * min(costs.values())
    assert costs[learned] < 0.9 * max(costs.values())


def test_thresholds_that_move_move_the_plan():
    loop = loop_of(alarms(0.2, 0.9))
    orders = []
    for number in range(24):
        texts = alarms(0.2, 0.9) if number < 12 else alarms(0.9, 0.2)
        if number == 12:  # the same templates, with other constants
            loop.follow(ranges_of(lines(0), texts).program)
        run(loop, together(number, "apart"), texts, number)
        orders.append(loop.plan[TEXT].order)
    assert orders[11] == (1, 0)
    assert orders[-1] == (0, 1)

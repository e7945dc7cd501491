"""How often the constraints of a join are measured."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from eddyline.constraints.bounds import bins_of
from eddyline.joins.leaving import (
    CHANGED,
    MANY_COLD,
    MAX_OVERHEAD,
    MOST_RESTED,
    MOST_SKIPPED,
    WARM_BATCHES,
    MonitorBudget,
)
from eddyline.joins.plan import AgeCounts, BucketReport
from eddyline.joins.tiers import TierChoice


def measured(budget, monitor_ns, *, n_batches=1_000, cold=0, learning=0):
    """Return what share of batches of 1,000,000 ns is measured, at a cost for each.

    The first ones are all measured, and not counted.
    """
    n = 0
    for number in range(WARM_BATCHES + n_batches):
        assert budget.may or number >= WARM_BATCHES
        n += budget.may and number >= WARM_BATCHES
        report = BucketReport(0, ns=1_000_000, monitor_ns=monitor_ns if budget.may else 0)
        budget.step([report], {"s": AgeCounts(1_000, cold)})
        if learning:
            with budget.learning():
                time.sleep(learning)
    return n / n_batches


@pytest.mark.parametrize("monitor_ns", [1_000, 50_000, 150_000])
def test_measuring_takes_no_more_than_its_share(monitor_ns):
    """What a batch does not spend is not saved: one in so many whole batches is measured."""
    share = measured(MonitorBudget(), monitor_ns)
    every = math.ceil(monitor_ns / (MAX_OVERHEAD * 1_000_000))
    assert share == pytest.approx(1 / every, rel=0.05)


def test_learning_counts_where_something_was_measured_alone():
    """It takes as long as a fourth of a batch: less than is owed at most, and in every batch."""
    share = measured(MonitorBudget(), 1_000, n_batches=60, learning=0.000_25)
    assert 0 < share <= 2 / MOST_SKIPPED


def test_it_goes_on_now_and_then_whatever_it_takes_and_at_once_where_much_is_found_cold():
    assert measured(MonitorBudget(), 10**9) == pytest.approx(1 / (MOST_SKIPPED + 1), rel=0.2)
    assert measured(MonitorBudget(), 10**9, cold=int(1_000 * MANY_COLD) + 1) == 1


def gaps(budget, n_batches, promises, *, n_results=100):
    """Return how many batches were left out before each that was measured; it costs nothing."""
    found, n_left_out = [], 0
    for _ in range(n_batches):
        if budget.may:
            found.append(n_left_out)
        n_left_out = 0 if budget.may else n_left_out + 1
        budget.step([BucketReport(0, ns=1_000_000, n_here=50, n_results=n_results)], {})
        budget.rest(unless=promises)
    return found


def rested():
    """Return a budget that rests for as long as it may, and has just begun to."""
    budget = MonitorBudget()
    n_batches = WARM_BATCHES + MOST_RESTED + 1
    assert gaps(budget, n_batches, promises=False) == [0] * WARM_BATCHES + [MOST_RESTED]
    return budget


def test_it_rests_ever_longer_while_there_is_nothing_to_learn_and_never_where_there_is():
    budget = MonitorBudget()
    assert gaps(budget, 2 * WARM_BATCHES, promises=True) == [0] * 2 * WARM_BATCHES
    assert gaps(budget, 1_000, promises=False)[:7] == [0, 1, 2, 4, 8, 16, MOST_RESTED]
    budget = rested()
    assert set(gaps(budget, 400, promises=False)) == {MOST_RESTED}
    while not budget.may:
        gaps(budget, 1, promises=False)
    assert gaps(budget, 50, promises=True) == [0] * 50


@pytest.mark.parametrize("n_results", [0, 100 / CHANGED, 100 * CHANGED])
def test_it_comes_back_where_rows_find_far_more_or_fewer_results(n_results):
    budget = rested()
    assert gaps(budget, MOST_RESTED - 1, promises=False, n_results=0.9 * 100 * CHANGED) == []
    budget = rested()
    found = gaps(budget, 20, promises=False, n_results=n_results)
    assert found == [1, 1, 2, 4], "the batch after, and more rarely again"


def test_batches_without_rows_are_no_change_and_much_that_is_found_cold_wakes():
    budget = rested()
    for _ in range(MOST_RESTED):
        assert not budget.may
        budget.step([BucketReport(0, ns=1_000_000)], {})
    budget.step([BucketReport(0, n_here=1, n_results=2)], {"s": AgeCounts(1_000, 900)})
    assert budget.may


def until_tier(*, rests):
    """Return after how many batches partners that come soon, after none did, make a cold tier."""
    loop, budget, rng = TierChoice({"s": 1_000_000_000}), MonitorBudget(), np.random.default_rng(0)
    n_measured = 0
    for number in range(300):
        most = 900_000_000 if number < 150 else 1_000_000
        spans = rng.integers(1, most + 1, 20_000)
        measures = budget.may or not rests
        numbers, counts = np.unique(bins_of(spans), return_counts=True)
        bins = dict(zip(numbers.tolist(), counts.tolist(), strict=True)) if measures else {}
        ages = {"s": AgeCounts(20_000, 0, bins, is_measured=measures)}
        n_measured += measures and number < 150
        budget.step([BucketReport(0, n_here=20_000, n_results=20_000)], ages)
        loop.step(ages, {"s": 100_000_000 * (number + 1)}, number)
        budget.rest(unless=loop.promises)
        if loop.plan["s"] is not None:
            assert number >= 150
            return number - 150, n_measured
    pytest.fail("nothing was learned")


def test_what_can_be_learned_after_long_is_learned_one_rest_later_at_most():
    (always, _), (rarely, n_measured) = until_tier(rests=False), until_tier(rests=True)
    assert always <= rarely <= always + MOST_RESTED
    assert n_measured < WARM_BATCHES + 15, "of 150 in which nothing could be"

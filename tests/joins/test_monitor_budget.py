"""How often the constraints of a join are measured."""

from __future__ import annotations

import math
import time

import pytest

from eddyline.joins.monitor_budget import (
    MANY_COLD,
    MAX_OVERHEAD,
    MOST_SKIPPED,
    WARM_BATCHES,
    MonitorBudget,
)
from eddyline.joins.operator.partner_ages import AgeCounts
from eddyline.joins.plan import BucketReport


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

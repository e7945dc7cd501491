"""How often the constraints of a join are measured."""

from __future__ import annotations

import pytest

from eddyline.joins.monitor_budget import MANY_COLD, MAX_OVERHEAD, MOST_SKIPPED, MonitorBudget
from eddyline.joins.operator.partner_ages import AgeCounts
from eddyline.joins.plan import BucketReport


def measured(budget, monitor_ns, *, n_batches=1_000, cold=0):
    """Return of how many batches of 1,000,000 ns that many are measured, at a cost for each."""
    n = 0
    for _ in range(n_batches):
        n += budget.may
        report = BucketReport(0, ns=1_000_000, monitor_ns=monitor_ns if budget.may else 0)
        budget.step([report], {"s": AgeCounts(1_000, cold)})
    return n / n_batches


@pytest.mark.parametrize("monitor_ns", [1_000, 50_000, 150_000])
def test_measuring_takes_no_more_than_its_share(monitor_ns):
    share = measured(MonitorBudget(), monitor_ns)
    assert share == pytest.approx(min(1.0, MAX_OVERHEAD * 1_000_000 / monitor_ns), rel=0.05)


def test_it_goes_on_now_and_then_whatever_it_takes_and_at_once_where_much_is_found_cold():
    assert measured(MonitorBudget(), 10**9) == pytest.approx(1 / (MOST_SKIPPED + 1), rel=0.2)
    assert measured(MonitorBudget(), 10**9, cold=int(1_000 * MANY_COLD) + 1) == 1

"""How often batches are profiled, by what that was seen to take."""

from __future__ import annotations

import pytest

from eddyline.filters.loop import (
    MOST_PROFILED,
    MOST_SKIPPED,
    PROFILING_SHARE,
    ProfilingBudget,
)

MS = 1_000_000
ROWS = 100_000


def lives(extra_ns, *, work_ns=0.0, planned_ns=MS, n_rows=ROWS, n_batches=1_000):
    """Return the share of batches that are profiled, and that of the time which that takes."""
    budget, n_profiled, spent, passed = ProfilingBudget(), 0, 0, 0
    for _ in range(n_batches):
        may = budget.may
        n_profiled += may
        ns = 400 * MS + (extra_ns if may else 0)
        spent, passed = spent + (extra_ns if may else 0), passed + ns
        budget.passed(ns, work_ns=work_ns, n_rows=n_rows, planned_ns=planned_ns if may else 0.0)
    return n_profiled / n_batches, spent / passed


def test_what_takes_next_to_nothing_is_done_in_nearly_all_batches():
    share, _ = lives(0)
    assert share == pytest.approx(1 - 1 / (MOST_PROFILED + 1), abs=0.005)


@pytest.mark.parametrize("extra_ms", [60, 100, 200, 300])
def test_it_keeps_to_its_share_of_the_time_of_batches(extra_ms):
    share, of_time = lives(extra_ms * MS)
    assert 0.6 * PROFILING_SHARE < of_time < 1.05 * PROFILING_SHARE
    assert share > 0.05


def test_predicates_that_take_long_are_profiled_often():
    assert lives(200 * MS)[0] < 0.15
    assert lives(200 * MS, work_ns=2_100 * MS)[0] > 0.9


def test_few_batches_in_a_row_are_skipped_whatever_it_takes():
    share, _ = lives(100_000 * MS)
    assert share == pytest.approx(1 / (MOST_SKIPPED + 1), rel=0.1)


def test_where_other_things_go_on_planning_alone_counts():
    assert lives(300 * MS, n_rows=0)[0] == 1.0
    share, _ = lives(0, n_rows=0, planned_ns=40 * MS)
    assert share == pytest.approx(0.5, abs=0.01)


def test_batches_of_other_sizes_say_nothing():
    budget = ProfilingBudget()
    budget.passed(400 * MS, n_rows=ROWS)
    budget.passed(4_000 * MS, n_rows=10 * ROWS, planned_ns=MS)
    assert budget.may
    budget.passed(4_000 * MS, n_rows=ROWS, planned_ns=MS)
    assert not budget.may

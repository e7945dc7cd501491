"""What counts as work where a window has no index, and plans that change in a burst."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.joins import runs as join_runs
from benchmarks.joins.caches_plans import best_caches, burst, scanned, second

from eddyline.joins.caches.prefix_invariant import are_compatible, candidates
from eddyline.joins.graph import JoinGraph

GRAPH = JoinGraph(tuple("rst"), (frozenset("rs"), frozenset("st")))


def test_a_scan_looks_at_the_rows_that_live_in_a_window():
    arrivals = join_runs.Arrivals(
        GRAPH,
        join_runs.ORDERS,
        np.array([1, 1, 1, 2, 0, 1]),
        np.zeros((2, 6), np.int64),
        {"r": 9, "s": 2, "t": 9},
        frozenset({("t", "s"), ("r", "s")}),
    )
    # Of s, the row at 0 has left; that at 5 comes before the turn of t, and after that of r.
    assert arrivals.look_up_costs(3, 6) == {("t", "s"): 3, ("r", "s"): 2}


def test_a_look_up_costs_the_rows_that_it_looks_at():
    given = join_runs.lockstep(3, 100, gap=8)
    unindexed = replace(given, scanned=frozenset({("t", "s")}))
    plain, scan = join_runs.run(given, 40), join_runs.run(unindexed, 40)
    n_look_ups = sum(report.work.probe("t", "s").n_in for report in scan.reports)
    assert scan.checks == plain.checks
    assert sum(scan.works) - sum(plain.works) == scanned(scan) - n_look_ups
    assert scanned(scan) > 10 * n_look_ups


@pytest.mark.parametrize("n_kept", [32, 64])
def test_larger_windows_of_lockstep_join_the_same(n_kept):
    narrow, wide = (join_runs.lockstep(3, 100, 8, each) for each in (None, n_kept))
    assert wide.lengths["s"] == n_kept * 5
    assert join_runs.run(narrow, 40).n_results == join_runs.run(wide, 40).n_results == 300


def test_the_best_caches_go_together_and_take_no_more_than_none():
    given = join_runs.uniform((1, 1, 8), 100, 6_000, length=1_500)
    found = candidates(given.graph, given.orders, 6)
    used = best_caches(given, 500, found)
    assert all(are_compatible(one, other) for one in used for other in used if one != other)
    done = join_runs.run(given, 500, join_runs.used_always(used))
    assert sum(done.works) <= sum(join_runs.run(given, 500).works)


def test_in_a_burst_another_order_and_another_cache_take_over():
    arrivals = burst(160_000, 3_000)
    loop, caches = join_runs.learned_orders(arrivals), join_runs.decided(arrivals)
    done = join_runs.run(arrivals, 2_000, caches=caches, loop=loop)
    asked = [{(each.pipeline, each.store.windows) for each in plan.used} for plan in done.plans]
    assert done.orders[35]["s"] == join_runs.ORDERS["s"]
    assert done.orders[-1]["s"] == second()["s"]
    assert ("t", frozenset("rs")) in set().union(*asked[30:40])
    assert ("r", frozenset("st")) in set().union(*asked[-5:])
    assert done.checks == join_runs.run(arrivals, 2_000).checks

"""Which caches a join uses: switches, changes of order, bans, memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from benchmarks.joins import runs as join_runs

from eddyline.joins.caches.choice import BYPASSED, INTERVAL, JoinCaches
from eddyline.joins.graph import JoinGraph
from eddyline.joins.plan import NO_CACHES

ARRIVALS = join_runs.uniform((1, 1, 8), 400, 80_000, length=6_000)
"""The cache on r and s, for t, spares a good part of the work."""


@pytest.mark.parametrize("options", [{"is_on": False}, {"cache_bytes": 0}, {"cache_bytes": 4095}])
def test_switched_off_nothing_is_done(options):
    made = {"cache_bytes": 1 << 20, **options}
    caches = JoinCaches(ARRIVALS.graph, "rst", **made)
    done = join_runs.run(ARRIVALS, 8_000, caches=caches)
    assert all(plan == NO_CACHES for plan in done.plans)
    assert caches.views() == ()


def test_two_inputs_have_no_cache():
    graph = JoinGraph(("r", "s"), (frozenset("rs"),))
    caches = JoinCaches(graph, "rs", cache_bytes=1 << 20)
    assert caches.for_batch({"r": ("s",), "s": ("r",)}, 0) == NO_CACHES


def test_a_table_asks_no_cache():
    caches = JoinCaches(ARRIVALS.graph, "rs", cache_bytes=1 << 20)  # t brings rows only once
    join_runs.run(ARRIVALS, 8_000, caches=caches)
    assert {each.pipeline for each in caches.states.states} == {"r", "s"}


def test_what_is_used_is_told_with_its_worth():
    caches, entries = join_runs.decided(ARRIVALS), []
    step = caches.step
    caches.step = lambda *given: entries.extend(step(*given))
    join_runs.run(ARRIVALS, 2_000, caches=caches)
    (view,) = caches.views()
    assert (view.pipeline, set(view.windows)) == ("t", {"r", "s"})
    assert 0 < view.n_hits <= view.n_probes
    assert view.benefit_ns > view.cost_ns > 0
    assert view.n_bytes > 0
    (entry,) = entries
    assert (entry.event, entry.before, entry.after) == ("caches", [], ["r ⋈ s for t"])
    assert entry.evidence["r ⋈ s for t"]["benefit_ns"] > entry.evidence["r ⋈ s for t"]["cost_ns"]


UNINDEXED = replace(
    join_runs.uniform((8, 1, 1), 400, 80_000, length=6_000),
    scanned=frozenset({("r", "s")}),
)
"""Rows of r scan the window of s; of s and t alone no pipeline tells the changes."""


def test_a_cache_of_windows_that_are_not_closed_is_used_where_it_pays():
    plain = join_runs.run(UNINDEXED, 2_000)
    caches, entries = join_runs.decided(UNINDEXED), []
    step = caches.step
    caches.step = lambda *given: entries.extend(step(*given))
    done = join_runs.run(UNINDEXED, 2_000, caches=caches)
    assert (done.n_results, done.checks) == (plain.n_results, plain.checks)
    assert done.share(plain, 20) < 0.5
    (view,) = caches.views()
    assert (view.pipeline, view.windows, view.partners) == ("r", ("s", "t"), ("r",))
    assert entries[0].after == ["(s ⋈ t) ⋉ r for r"]


def test_a_cache_whose_hits_no_row_may_use_is_not_tried():
    """Windows end within a batch: no row from before it lasts as long as a new one."""
    arrivals = replace(UNINDEXED, lengths=dict.fromkeys("rst", 1_000))
    plain = join_runs.run(arrivals, 2_000)
    done = join_runs.run(arrivals, 2_000, caches=join_runs.decided(arrivals))
    assert not any(each.store.partners for plan in done.plans for each in plan.used)
    assert done.share(plain) < 1.05


def test_without_a_budget_only_closed_windows_are_candidates():
    caches = join_runs.decided(UNINDEXED, budget=0)
    join_runs.run(replace(UNINDEXED, of=UNINDEXED.of[:20_000]), 2_000, caches=caches)
    assert [each.store.partners for each in caches.states.states] == [frozenset()]


def test_a_cache_is_bypassed_ever_more_rarely_while_nothing_changes():
    done = join_runs.run(ARRIVALS, 1_000, caches=join_runs.decided(ARRIVALS))
    n_used = [len(plan.used) for plan in done.plans]
    first = n_used.index(1)
    passed = [at for at in range(first, len(n_used)) if not n_used[at]]
    gaps = [later - earlier for earlier, later in pairwise(passed)]
    assert gaps == [BYPASSED, 2 * BYPASSED]


@pytest.mark.large
def test_after_a_first_choice_of_nothing_the_next_is_soon_and_later_ones_ever_more_rare():
    arrivals = join_runs.uniform((1, 1, 1), 2_000, 240_000, length=12_000)
    done = join_runs.run(arrivals, 2_000, caches=join_runs.decided(arrivals))
    assert not any(plan.used for plan in done.plans)
    profiled = [bool(plan.profiled) for plan in done.plans]
    starts = [at for at in range(1, len(profiled)) if profiled[at] and not profiled[at - 1]]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    around = gaps[0] - INTERVAL  # what a profile takes
    assert 0 < around < INTERVAL
    assert gaps == [around + INTERVAL, around + 2 * INTERVAL]


@pytest.mark.large
def test_another_order_ends_caches_and_their_measures():
    caches = join_runs.decided(ARRIVALS)
    join_runs.run(ARRIVALS, 2_000, caches=caches)
    assert caches.states.used
    orders = {**ARRIVALS.orders, "s": ("t", "r")}  # {r, s} is not closed any more
    plan = caches.for_batch(orders, 100)
    assert not plan.used
    assert not plan.kept
    assert not caches.states.used
    done = join_runs.run(replace(ARRIVALS, orders=orders), 2_000, caches=caches)
    assert done.checks == join_runs.run(ARRIVALS, 2_000).checks


def test_memory_is_never_more_than_there_is():
    caches = join_runs.decided(ARRIVALS, 100_000)
    done = join_runs.run(ARRIVALS, 2_000, caches=caches)
    limits = [sum(plan.limits.values()) for plan in done.plans if plan.used]
    assert limits
    assert max(limits) <= 100_000
    held = [
        sum(store.n_bytes for store in report.caches.stores.values())
        for report in done.reports
        if report.caches
    ]
    assert max(held) <= 100_000

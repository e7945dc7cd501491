"""Caches of windows that are not closed: their entries may lack what no partner's row joins."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.joins import runs as join_runs
from hypothesis import event, given
from hypothesis import strategies as st

from eddyline.joins.caches import bucket_caches
from eddyline.joins.caches.prefix_invariant import are_compatible, candidates, is_sound, is_told
from eddyline.joins.graph import JoinGraph
from eddyline.joins.plan import CachePlan
from tests.examples import examples
from tests.joins.caches.test_cached_pipelines import Fed, hits_of
from tests.joins.plans import E5, E6, Q3, SIX, find, on_one_attribute, orders, random_orders

H1 = orders(r="st", s="rt", t="sr")


@pytest.fixture(autouse=True)
def _nothing_kept():
    bucket_caches.forget()
    yield
    bucket_caches.forget()


def planned(*used):
    return CachePlan(used, limits={each.store: 1 << 20 for each in used})


@pytest.fixture
def fed(tmp_path):
    """S and T are kept for R, although S meets R first."""
    return Fed(Q3, H1, tmp_path)


@pytest.fixture
def plan():
    return planned(find(candidates(Q3, H1, budget=6), "r", *"st"))


def test_h1_what_no_row_of_a_partner_joined_may_be_missing(fed, plan):
    fed.batch(plan, t=[2, 7])
    fed.batch(plan, s=[(1, 2)])
    assert fed.batch(plan, length=0, r=[1])[1] == 1
    assert fed.batch(plan, s=[(1, 7)])[1] == 0
    report, n_found = fed.batch(plan, length=0, r=[1])
    assert (hits_of(report), n_found) == ((1, 1), 2)


def test_a_row_whose_like_is_in_the_window_uses_what_is_kept(fed, plan):
    fed.batch(plan, s=[(1, 2)], t=[2, 7])
    fed.batch(plan, r=[1])
    assert fed.batch(plan, s=[(1, 7)])[1] == 1
    report, n_found = fed.batch(plan, r=[1, 1, 3])
    assert (hits_of(report), n_found) == ((1, 2), 4)
    (use,) = report.caches.uses.values()
    assert use.n_asked == 2  # of the row that finds nothing it makes no difference
    # Only what was put in for the key 3 was looked for in the windows: nothing.
    assert report.work.probes["r", "s"].n_in == 1


def test_h2_a_row_that_left_is_not_joined(fed, plan):
    fed.batch(plan, t=[2])
    fed.batch(plan, length=1, s=[(1, 2)])
    assert fed.batch(plan, length=0, r=[1])[1] == 1
    assert fed.batch(plan, length=0, r=[1])[1] == 0


def test_h3_caches_that_exclude_each_other_are_not_used_together(tmp_path):
    graph, pipelines = on_one_attribute(3), orders(_1="23", _2="13", _3="12")
    found = candidates(graph, pipelines, budget=6)
    both = find(found, "3", *"12"), find(found, "1", *"23")
    assert not are_compatible(*both)
    for used in (both, both[::-1]):
        bucket_caches.forget()
        fed = Fed(graph, pipelines, tmp_path)
        steps = [{"1": [1]}, {"2": [1]}, {"3": [1]}, {"3": [1]}, {"1": [1]}, {"1": [1]}, {"3": [1]}]
        assert [fed.batch(planned(*used), **step)[1] for step in steps] == [0, 0, 1, 1, 2, 2, 3]


def test_a_store_whose_changes_a_hit_passes_by_is_not_kept(tmp_path):
    """As H3, but the other cache only rests: its store would miss what is behind the hits."""
    graph, pipelines = on_one_attribute(3), orders(_1="23", _2="13", _3="12")
    found = candidates(graph, pipelines, budget=6)
    asked, rests = find(found, "1", *"23"), find(found, "3", *"12")
    fed = Fed(graph, pipelines, tmp_path)
    both = CachePlan((asked,), (rests.store,), limits={rests.store: 1 << 20, asked.store: 1 << 20})
    report, _ = fed.batch(both, **{"1": [1]})
    assert set(report.caches.stores) == {asked.store}


def test_a_copy_that_missed_rows_of_a_partner_is_not_used(fed, plan):
    fed.batch(plan, t=[2])
    fed.batch(plan, length=0, r=[1])
    fed.batch(plan, s=[(1, 2)])  # joins no row of r, so no tap sees it
    before = copy.deepcopy(bucket_caches._kept)
    assert fed.batch(plan, r=[1])[1] == 1  # from here on it must be in the entry
    bucket_caches._kept.update(before)
    report, n_found = fed.batch(plan, r=[1])
    assert (hits_of(report), n_found) == ((0, 1), 1)


def test_a_like_row_that_leaves_before_the_latest_row_came_is_no_support(fed, plan):
    fed.batch(plan, s=[(1, 2)], t=[2])
    fed.batch(plan, length=3, r=[1])  # at 2, until 5
    fed.batch(plan, length=0, t=[9, 9])
    assert fed.batch(plan, s=[(1, 9)])[1] == 0
    fed.at = 5
    report, n_found = fed.batch(plan, r=[1])  # 5 is the latest instant: supported
    assert report.work.probes.get(("r", "s")) is None
    assert n_found == 1
    fed.at = 5
    report, _ = fed.batch(plan, t=[2, 2])  # at 5 and 6
    fed.batch(replace(plan, used=()), length=0)
    report, n_found = fed.batch(plan, r=[1])  # at 7: those of 5 have no end
    assert n_found == 3


def test_e6_a_cache_is_sound_with_the_orders_that_tell_its_changes():
    cache = find(candidates(SIX, E6, budget=1000), "6", *"23")
    assert cache.store.partners == {"1"}
    assert is_sound(SIX, E6, cache)
    assert is_told(cache.store, E6)
    assert is_sound(SIX, E5, cache) is False  # 6 meets 2, then 1
    assert is_told(cache.store, E5)
    other = {**E6, "3": tuple("41256")}
    assert not is_told(cache.store, other)
    assert not is_sound(SIX, other, cache)


CHAIN = JoinGraph(tuple("rstu"), (frozenset("rs"), frozenset("st"), frozenset("tu")))
CYCLE = JoinGraph(tuple("rst"), (frozenset("rs"), frozenset("st"), frozenset("rt")))
STAR = on_one_attribute(4)


def some_arrivals(rng, graph):
    """Few values, so that most rows meet; each at an instant of its own."""
    n_rows = rng.randint(20, 160)
    values = np.random.default_rng(rng.randrange(1 << 30))
    return join_runs.Arrivals(
        graph,
        random_orders(rng, graph),
        values.integers(0, len(graph.inputs), n_rows),
        values.integers(0, rng.randint(2, 4), (len(graph.classes), n_rows)),
        dict.fromkeys(graph.inputs, rng.choice([5, 20, 40])),
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_partners_of_a_few_seeds_never_change_an_answer(seed):
    check_partners(seed, 49)


@pytest.mark.large
@examples(60)
@given(seed=st.integers(0, 1 << 30), batch_rows=st.sampled_from([1, 2, 7, 20, 49, 200]))
def test_partners_never_change_an_answer(seed, batch_rows):
    event(f"hits: {min(check_partners(seed, batch_rows), 50) // 10 * 10}")


def check_partners(seed, batch_rows):
    """Check the answers of a drawn run with caches, and return their hits."""
    rng = random.Random(seed)
    graph = rng.choice([Q3, CHAIN, CYCLE, STAR])
    arrivals = some_arrivals(rng, graph)
    found = list(candidates(graph, arrivals.orders, budget=1_000))
    rng.shuffle(found)
    if rng.random() < 0.7:
        found.sort(key=lambda each: not each.store.partners)
    used = tuple(each for each in found if rng.random() < 0.8)
    limit = rng.choice([1 << 20, 1 << 20, 400])
    plan = CachePlan(
        used, tuple(each.store for each in found), limits={each.store: limit for each in found}
    )
    plain = join_runs.run(arrivals, batch_rows)
    done = join_runs.run(arrivals, batch_rows, lambda _: plan)
    uses = [
        use
        for report in done.reports
        for cache, use in report.caches.uses.items()
        if cache.store.partners
    ]
    assert (done.n_results, done.checks) == (plain.n_results, plain.checks)
    return sum(use.n_hits for use in uses)

from __future__ import annotations

import random
from itertools import combinations

import pytest

from eddyline.joins.caches.prefix_invariant import (
    are_compatible,
    by_store,
    candidates,
    closed_sets,
    forest,
    prefix_invariant,
    smallest_closed,
)
from tests.joins.plans import (
    E5,
    E6,
    Q3,
    SIX,
    by_number,
    each_seed,
    find,
    on_one_attribute,
    orders,
    random_graph,
    random_orders,
)

PIPELINES_OF_E3 = orders(_1="23", _2="31", _3="21")


def some_plan(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(3, 7))
    return graph, random_orders(rng, graph)


def test_e3_only_a_closed_stretch_is_a_candidate():
    (only,) = prefix_invariant(on_one_attribute(3), PIPELINES_OF_E3)
    assert (only.pipeline, only.start, only.stop) == ("1", 0, 2)
    assert only.store.windows == frozenset("23")
    assert only.store.tap == 1


def test_e5_closed_sets():
    assert set(closed_sets(E5)) == {*map(frozenset, ("12", "45", "123", "12345"))}


def test_e5_candidates():
    assert by_number(prefix_invariant(SIX, E5)) == {
        *((1, 3, 4), (2, 3, 4), (3, 3, 4), (6, 3, 4)),
        *((3, 1, 2), (4, 2, 3), (6, 1, 2)),
        *((4, 2, 4), (5, 2, 4)),
        (6, 1, 5),
    }


def test_e5_shared_stores():
    groups = by_store(prefix_invariant(SIX, E5))
    found = {
        "".join(sorted(store.windows)): "".join(sorted(each.pipeline for each in group))
        for store, group in groups.items()
    }
    assert found == {"12": "346", "45": "1236", "123": "45", "12345": "6"}


def test_e5_trees():
    found = prefix_invariant(SIX, E5)
    trees = forest(found)
    chain, root = find(found, "4", *"123"), find(found, "6", *"12345")
    assert trees.children[chain] == (find(found, "4", *"12"),)
    assert set(trees.children[root]) == {find(found, "6", *"12"), find(found, "6", *"45")}
    assert {each.pipeline for each in trees.roots} == set("123456")
    assert sum(each.pipeline == "3" for each in trees.roots) == 2


def test_e6_a_stretch_that_is_not_closed_gets_the_smallest_closed_set():
    assert smallest_closed(E6, frozenset("23")) == frozenset("123")
    ordinary = prefix_invariant(SIX, E6)
    assert len(ordinary) == 9
    assert by_number(each for each in ordinary if each.pipeline == "6") == {(6, 3, 4), (6, 1, 5)}
    cache = find(candidates(SIX, E6, budget=100), "6", *"23")
    assert cache.store.closed == frozenset("123")
    assert cache.store.partners == frozenset("1")
    assert cache.store.tap == 2
    assert not cache.is_self_supporting


def test_a_cache_whose_partner_is_the_pipelines_own_input_supports_itself():
    found = candidates(Q3, orders(r="st", s="rt", t="sr"), budget=6)
    cache = find(found, "r", *"st")
    assert cache.store.partners == frozenset("r")
    assert cache.is_self_supporting
    assert not find(found, "t", *"rs").is_self_supporting


def test_the_key_is_what_links_the_stretch_with_what_is_before_it():
    (cache,) = prefix_invariant(Q3, orders(r="st", s="rt", t="sr"))
    assert (cache.pipeline, cache.store.windows, cache.store.key) == ("t", frozenset("rs"), (1,))


def test_caches_of_one_join_with_another_key_do_not_share():
    # 1 and 2 on A; 3 joins 1 on B, 4 joins 2 on C.
    graph = type(Q3)(tuple("1234"), (frozenset("12"), frozenset("13"), frozenset("24")))
    found = prefix_invariant(graph, orders(_1="234", _2="134", _3="124", _4="213"))
    assert len({each.store for each in found if each.store.windows == frozenset("12")}) == 2


def test_the_budget_goes_to_long_stretches_and_only_if_there_are_few_closed_ones():
    pipelines = orders(_1="234", _2="341", _3="421", _4="123")
    graph = on_one_attribute(4)
    assert prefix_invariant(graph, pipelines) == ()
    four = candidates(graph, pipelines, budget=4)
    assert by_number(four) == {(i, 1, 3) for i in (1, 2, 3, 4)}
    six = candidates(graph, pipelines, budget=6)
    assert six[:4] == four
    assert [each.stop - each.start for each in six[4:]] == [2, 2]
    assert candidates(SIX, E5, budget=10) == prefix_invariant(SIX, E5)


def test_h3_caches_that_straddle_each_others_taps_exclude_each_other():
    pipelines = orders(_1="23", _2="13", _3="12")
    found = candidates(on_one_attribute(3), pipelines, budget=6)
    ordinary, supported = find(found, "3", *"12"), find(found, "1", *"23")
    assert ordinary.store.partners == frozenset()
    assert supported.store.partners == frozenset("1")
    assert not supported.overlaps(ordinary)
    assert supported.straddles(ordinary.store)
    assert not are_compatible(ordinary, supported)


@each_seed(300)
def test_closed_sets_are_nested_or_apart_and_few(seed):
    graph, pipelines = some_plan(seed)
    closed = closed_sets(pipelines)
    assert all(a <= b or b <= a or not a & b for a, b in combinations(closed, 2))
    assert len(closed) <= len(graph.inputs) - 2
    for each in closed:
        assert all({name, *pipelines[name][: len(each) - 1]} == each for name in each)


@each_seed(300)
def test_closed_sets_are_all_there_are(seed):
    graph, pipelines = some_plan(seed)
    by_definition = {
        frozenset(each)
        for size in range(2, len(graph.inputs))
        for each in combinations(graph.inputs, size)
        if all({name, *pipelines[name][: size - 1]} == set(each) for name in each)
    }
    assert set(closed_sets(pipelines)) == by_definition


@each_seed(300)
def test_caches_with_closed_windows_exclude_each_other_only_by_nesting(seed):
    graph, pipelines = some_plan(seed)
    found = prefix_invariant(graph, pipelines)
    for one, other in combinations(found, 2):
        assert are_compatible(one, other) != (one.holds(other) or other.holds(one))
    trees = forest(found)
    held = [each for children in trees.children.values() for each in children]
    assert sorted(map(id, (*trees.roots, *held))) == sorted(map(id, found))


@each_seed(300)
def test_taps_and_keys_of_all_candidates(seed):
    graph, pipelines = some_plan(seed)
    for each in candidates(graph, pipelines, budget=30):
        store, order = each.store, pipelines[each.pipeline]
        assert store.windows == set(order[each.start : each.stop]) <= store.closed
        assert store.key
        for name in store.closed:
            assert {name, *pipelines[name][: store.tap]} == store.closed
        # A cache never passes by its own tap.
        assert not each.straddles(store)
        smaller = [c for c in closed_sets(pipelines) if store.windows <= c < store.closed]
        assert not smaller


def test_a_forest_of_candidates_that_overlap_is_refused():
    found = candidates(SIX, E6, budget=100)
    with pytest.raises(ValueError, match="overlaps another candidate"):
        forest(found)

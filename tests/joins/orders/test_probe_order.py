from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from eddyline.joins.graph import JoinGraph
from eddyline.joins.orders.probe_order import way_filters
from tests.joins.plans import Q3, closed_outwards, each_seed, on_one_attribute, random_graph


def edges(*pairs):
    names = tuple(sorted(set("".join(pairs))))
    return JoinGraph(names, tuple(map(frozenset, pairs)))


E4 = edges("12", "13", "34", "35", "56")


def ways(filters):
    return ["".join(each.way) for each in filters.filters]


def order_by(filters, *targets):
    """The order for a ranking that names the targets, the best first."""
    places = {each.target: at for at, each in enumerate(filters.filters)}
    return filters.order([places[target] for target in targets])


def test_e4_filters_ask_along_the_way():
    filters = way_filters(E4, "1")
    assert filters.head == ()
    assert ways(filters) == ["2", "3", "34", "35", "356"]
    assert [each.target for each in filters.filters] == list("23456")


def test_e4_each_filter_brings_what_is_missing_of_its_way():
    assert order_by(way_filters(E4, "1"), *"43256") == tuple("34256")
    assert E4.is_legal("1", "23456")
    assert not E4.is_legal("1", "24356")


def test_the_root_of_a_star_is_free_to_choose():
    star = edges("12", "13", "14")
    filters = way_filters(star, "1")
    assert (filters.head, ways(filters)) == ((), ["2", "3", "4"])
    assert order_by(filters, *"423") == tuple("423")


def test_a_leaf_of_a_star_meets_the_root_first_and_ranks_combinations_with_it():
    star = edges("12", "13", "14")
    filters = way_filters(star, "3")
    assert (filters.head, ways(filters)) == (("1",), ["2", "4"])
    assert order_by(filters, "4", "2") == tuple("142")


def test_on_one_attribute_every_input_is_the_root_of_a_star():
    graph = on_one_attribute(4)
    for name in graph.inputs:
        filters = way_filters(graph, name)
        assert filters.head == ()
        assert all(len(each.way) == 1 for each in filters.filters)


def test_q3():
    assert way_filters(Q3, "s").head == ()
    assert way_filters(Q3, "r").order([0]) == ("s", "t")
    two = edges("12")
    assert way_filters(two, "1").order([]) == ("2",)


def test_a_star_with_a_tail_is_no_star():
    filters = way_filters(edges("12", "13", "34"), "2")
    assert (filters.head, ways(filters)) == ((), ["1", "13", "134"])


def test_inputs_of_a_class_are_met_without_detours():
    graph = JoinGraph(tuple("1234"), (frozenset("123"), frozenset("34")))
    assert ways(way_filters(graph, "1")) == ["2", "3", "34"]
    assert ways(way_filters(graph, "4")) == ["1", "2"]
    assert way_filters(graph, "4").head == ("3",)


def test_two_predicates_between_two_inputs_are_one_way():
    graph = JoinGraph(tuple("123"), (frozenset("12"), frozenset("12"), frozenset("23")))
    assert ways(way_filters(graph, "2")) == ["1", "3"]
    assert way_filters(graph, "1").head == ("2",)


@pytest.mark.parametrize(
    ("loosest", "expected"),
    [("13", ["2", "23"]), ("12", ["32", "3"]), ("23", ["2", "3"])],
)
def test_a_cycle_is_cut_at_its_loosest_predicate(loosest, expected):
    triangle = edges("12", "13", "23")
    pass_fracs = {frozenset(pair): 0.01 for pair in ("12", "13", "23")}
    pass_fracs[frozenset(loosest)] = 0.5
    filters = way_filters(triangle, "1", pass_fracs)
    found = ["".join((*filters.head, *each.way)) for each in filters.filters]
    if filters.head:
        found = sorted([*found, filters.head[0]], key=lambda way: way[-1])
    assert found == expected


def test_an_input_hangs_on_a_class_by_the_pickiest_other_one():
    graph = JoinGraph(tuple("1234"), (frozenset("123"), frozenset("34"), frozenset("14")))
    figures = {"12": 0.01, "13": 0.9, "23": 0.01, "34": 0.5, "14": 0.4}
    pass_fracs = {frozenset(pair): frac for pair, frac in figures.items()}
    assert ways(way_filters(graph, "1", pass_fracs)) == ["2", "3", "4"]


def test_a_cycle_without_figures_is_cut_the_same_way_every_time():
    square = edges("12", "23", "34", "14")
    first = way_filters(square, "1")
    assert first == way_filters(square, "1")
    assert sorted("".join(each.way)[-1] for each in first.filters) == ["2", "3", "4"]


def test_a_filter_drops_what_any_on_its_way_drops():
    filters = way_filters(E4, "1")
    assert filters.parents == (None, None, 1, 1, 3)
    drops = np.zeros((4, 5), dtype=bool)
    drops[1, 1] = drops[2, 3] = drops[3, 4] = True
    closed = closed_outwards(filters, drops)
    assert closed.tolist() == [
        [False] * 5,
        [False, True, True, True, True],
        [False, False, False, True, True],
        [False, False, False, False, True],
    ]
    assert not drops[1, 2]


def least_tree(pairs, pass_fracs, names):
    """Kruskal on edges, the oracle where every class is of two inputs."""
    part = {name: {name} for name in names}
    tree = set()
    for pair in sorted(pairs, key=pass_fracs.__getitem__):
        one, other = pair
        if part[one] is not part[other]:
            tree.add(pair)
            part[one] |= part[other]
            part |= dict.fromkeys(part[other], part[one])
    return tree


@each_seed(200)
def test_the_ways_are_those_of_the_least_spanning_tree(seed):
    rng = random.Random(seed)
    names = tuple("123456")
    pairs = {frozenset((name, rng.choice(names[:at]))) for at, name in enumerate(names) if at}
    pairs |= {frozenset(rng.sample(names, 2)) for _ in range(rng.randint(0, 4))}
    ordered = sorted(pairs, key=sorted)
    pass_fracs = dict(zip(ordered, rng.sample(range(100), len(ordered)), strict=True))
    graph = JoinGraph(names, tuple(ordered))
    tree = least_tree(ordered, pass_fracs, names)
    for name in names:
        filters = way_filters(graph, name, pass_fracs)
        for each in filters.filters:
            walk = (name, *filters.head, *each.way)
            steps = {frozenset(step) for step in pairwise(walk)}
            assert len(steps) == len(walk) - 1
            assert steps <= tree


@each_seed(300)
def test_every_ranking_gives_a_legal_order(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(2, 7))
    for name in graph.inputs:
        filters = way_filters(graph, name)
        targets = [*filters.head, *(each.target for each in filters.filters)]
        assert sorted(targets) == sorted(set(graph.inputs) - {name})
        ranking = rng.sample(range(len(filters.filters)), len(filters.filters))
        order = filters.order(ranking)
        assert graph.is_legal(name, order)
        # The target of the best filter comes right behind what is on its way.
        if ranking:
            best = filters.filters[ranking[0]].way
            assert order[: len(filters.head) + len(best)] == (*filters.head, *best)


@each_seed(200)
def test_bits_grow_along_the_ways(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(3, 7))
    filters = way_filters(graph, rng.choice(graph.inputs))
    drops = np.random.default_rng(seed).random((50, len(filters.filters))) < 0.2
    closed = closed_outwards(filters, drops)
    for at, each in enumerate(filters.filters):
        on_the_way = [o for o, other in enumerate(filters.filters) if other.target in each.way]
        assert (closed[:, at] == drops[:, on_the_way].any(axis=1)).all()

"""Plans of caches run over rows one by one: they never change an answer."""

from __future__ import annotations

import random

import pytest

from eddyline.joins.caches.choice import CacheStates, Worths
from eddyline.joins.caches.prefix_invariant import are_compatible, candidates
from tests.joins.plans import (
    Q3,
    each_seed,
    find,
    on_one_attribute,
    orders,
    random_graph,
    random_order,
    random_orders,
)
from tests.joins.tuple_engine import TupleJoin


def counts(join, *steps):
    """The outputs of ``+t 2``, ``-r 1``, …."""
    return [
        (join.insert if step[0] == "+" else join.delete)(step[1], *map(int, step.split()[1:]))
        for step in steps
    ]


@pytest.fixture
def supported():
    pipelines = orders(r="st", s="rt", t="sr")
    join = TupleJoin(Q3, pipelines)
    join.use([find(candidates(Q3, pipelines, budget=6), "r", *"st")])
    return join


def test_h1_what_no_row_of_a_partner_joins_may_be_missing(supported):
    steps = ("+t 2", "+t 7", "+s 1 2", "+r 1", "-r 1", "+s 1 7", "+r 1")
    assert counts(supported, *steps) == [0, 0, 0, 1, 1, 0, 2]


def test_h2_a_row_that_left_unseen_is_not_joined(supported):
    steps = ("+t 2", "+s 1 2", "+r 1", "-r 1", "-s 1 2", "+r 1")
    assert counts(supported, *steps) == [0, 0, 1, 1, 0, 0]


H3_STEPS = ("+1 1", "+2 1", "+3 1", "+3 1", "+1 1", "+1 1", "+3 1")
H3_COUNTS = [0, 0, 1, 1, 2, 2, 3]


def h3(n_used):
    graph, pipelines = on_one_attribute(3), orders(_1="23", _2="13", _3="12")
    found = candidates(graph, pipelines, budget=6)
    both = [find(found, "3", *"12"), find(found, "1", *"23")]
    join = TupleJoin(graph, pipelines)
    join.use(both[:n_used] if n_used else both[1:])
    return counts(join, *H3_STEPS)


def test_h3_caches_that_exclude_each_other_would_change_the_answer_together():
    assert h3(1) == h3(0) == H3_COUNTS
    assert h3(2)[-1] < 3


def choice(rng, found):
    """Caches that can be in use together."""
    chosen = []
    for each in rng.sample(list(found), len(found)):
        if all(are_compatible(each, other) for other in chosen) and rng.random() < 0.8:
            chosen.append(each)
    return chosen


def change(rng, join, domain):
    """One row comes or goes; what it gives, and what it should."""
    name = rng.choice(join.graph.inputs)
    if join.windows[name] and rng.random() < 0.45:
        values = rng.choice(list(join.windows[name].values()))
        return join.expected(name, *values), join.delete(name, *values)
    values = tuple(rng.randrange(domain) for _ in join.graph.classes_of[name])
    return join.expected(name, *values), join.insert(name, *values)


@each_seed(200)
def test_h6_caches_never_change_the_answer(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(3, 5))
    pipelines = random_orders(rng, graph)
    join = TupleJoin(graph, pipelines)
    join.use(choice(rng, candidates(graph, pipelines, budget=rng.choice([0, 8]))))
    domain = rng.randint(2, 4)
    for _ in range(60):
        expected, got = change(rng, join, domain)
        assert got == expected


@pytest.mark.large
@each_seed(200)
def test_whatever_becomes_of_caches_the_answer_stays(seed):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(3, 5))
    pipelines = random_orders(rng, graph)
    budget = rng.choice([0, 8])
    states = CacheStates.of(candidates(graph, pipelines, budget))
    join = TupleJoin(graph, pipelines)
    domain = rng.randint(2, 3)
    for _ in range(80):
        if rng.random() < 0.15:
            name = rng.choice(graph.inputs)
            order = random_order(rng, graph, name)
            moved = {name} if order != pipelines[name] else set()
            pipelines = join.pipelines = {**pipelines, name: order}
            states = states.reordered(moved, candidates(graph, pipelines, budget))
        worths = Worths(
            {each: rng.uniform(-0.5, 10) for each in states.states if rng.random() < 0.98},
            {each.store: rng.uniform(0, 1) for each in states.states},
        )
        states = states.step(
            worths, lambda found: choice(rng, found.benefits), is_due=rng.random() < 0.2
        )
        join.use(states.used, states.kept)
        expected, got = change(rng, join, domain)
        assert got == expected

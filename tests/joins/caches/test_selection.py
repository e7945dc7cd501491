from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from eddyline.joins.caches.prefix_invariant import (
    are_compatible,
    candidates,
    forest,
    prefix_invariant,
)
from eddyline.joins.caches.selection import (
    NOTHING,
    CacheProblem,
    best_nested,
    by_groups,
    exhaustive,
    greedy,
    lp_rounding,
    n_shared,
    polished,
    relaxation,
    select,
)
from tests.joins.plans import (
    E5,
    SIX,
    each_seed,
    find,
    on_one_attribute,
    orders,
    random_problem,
    some_problem,
)


def rng():
    return np.random.default_rng(0)


def work_of(problem):
    """The work of all joins without a cache."""
    return sum(sum(works) for works in problem.works.values())


def work_left(problem, chosen):
    """The work of all joins with caches that do not overlap, and of their stores."""
    spared = frozenset().union(*(problem.spared(each) for each in chosen))
    left = sum(
        work
        for name, works in problem.works.items()
        for at, work in enumerate(works)
        if (name, at) not in spared
    )
    stores = {each.store for each in chosen}
    return left + sum(map(problem.proc, chosen)) + sum(problem.costs[each] for each in stores)


def approximations(problem):
    return polished(problem, greedy(problem)), lp_rounding(problem, rng())


def best_of_all_sets(problem):
    """The oracle: every set of candidates, each judged by itself."""
    found = problem.candidates
    return max(
        problem.net(chosen)
        for size in range(len(found) + 1)
        for chosen in combinations(found, size)
        if all(are_compatible(*pair) for pair in combinations(chosen, 2))
    )


def v2():
    """E5; every join of a pipeline is reached by its rate and costs 1 per row."""
    rates = dict(zip("123456", (2, 2, 1, 4, 2, 10), strict=True))
    found = prefix_invariant(SIX, E5)
    benefits = {
        each: rates[each.pipeline] * (0.8 * (each.stop - each.start) - 0.6) for each in found
    }
    costs = {each.store: 0.5 * sum(rates[name] for name in each.store.closed) for each in found}
    return CacheProblem(benefits, costs, {name: (rate,) * 5 for name, rate in rates.items()})


def the_best_of_v2(problem):
    found = problem.candidates
    return frozenset(
        find(found, pipeline, *windows)
        for pipeline, windows in [
            *(("1", "45"), ("2", "45"), ("3", "45"), ("4", "123"), ("5", "123")),
            ("6", "12345"),
        ]
    )


def test_v2_the_example_itself():
    problem = v2()
    costs = {"".join(sorted(store.windows)): cost for store, cost in problem.costs.items()}
    assert costs == {"12": 2, "45": 3, "123": 2.5, "12345": 5.5}
    assert work_of(problem) == 105


@pytest.mark.parametrize("choose", [by_groups, exhaustive])
def test_v2_the_best_choice(choose):
    problem = v2()
    chosen = choose(problem)
    assert chosen == the_best_of_v2(problem)
    assert problem.net(chosen) == pytest.approx(38.8)
    assert work_left(problem, chosen) == pytest.approx(66.2)


def test_v2_without_sharing_less_is_gained():
    problem = v2()
    alone = {each: saved - problem.costs[each.store] for each, saved in problem.benefits.items()}
    chosen = best_nested(problem.forest, alone)
    assert not any(each.store.windows == frozenset("45") for each in chosen)
    # Each cache pays for its own store, so {1,2,3} in 5 is not worth it either by itself.
    assert problem.net(chosen) == pytest.approx(36.8)


def test_v2_greedy_and_its_polish():
    problem = v2()
    first = greedy(problem)
    assert problem.net(first) == pytest.approx(37.8)
    assert polished(problem, first) == the_best_of_v2(problem)


def test_greedy_pays_a_store_once():
    pipelines = orders(_1="234", _2="134", _3="124", _4="123")
    three, four = (
        find(prefix_invariant(on_one_attribute(4), pipelines), name, *"12") for name in "34"
    )
    # For {1,2} in 3: (4 + 0.2) / 2 per join; in 4: 6 / 2 as the store is paid, else 10 / 2.
    problem = CacheProblem(
        {three: 7.8, four: 2.0}, {three.store: 4.0}, dict.fromkeys(pipelines, (4.0, 4.0, 4.0))
    )
    assert greedy(problem) == {three, four}


def test_v2_the_linear_program_has_a_whole_optimum():
    problem = v2()
    shares = relaxation(problem)
    assert shares.work == pytest.approx(66.2)
    assert {each for each, share in shares.caches.items() if share > 0.5} == the_best_of_v2(problem)
    assert all(min(share, 1 - share) < 1e-9 for share in shares.caches.values())
    assert lp_rounding(problem, rng()) == the_best_of_v2(problem)


@pytest.mark.parametrize(
    ("root", "children", "expected"),
    [(10, (6, 5), 11), (10, (6, 3), 10), (-1, (-2, -3), 0), (-1, (4, -3), 4), (9, (5, 4), 9)],
)
def test_v3_the_root_or_what_is_inside_it(root, children, expected):
    found = [each for each in prefix_invariant(SIX, E5) if each.pipeline == "6"]
    values = dict.fromkeys(found, 0.0)
    values[find(found, "6", *"12345")] = root
    values[find(found, "6", *"12")], values[find(found, "6", *"45")] = children
    chosen = best_nested(forest(found), values)
    assert sum(values[each] for each in chosen) == expected
    if root == expected:
        assert len(chosen) == 1


@each_seed(400)
def test_the_exact_choice_is_the_best_of_all_sets(seed):
    problem = some_problem(seed)
    expected = best_of_all_sets(problem)
    for choose in (by_groups, exhaustive):
        chosen = choose(problem)
        assert all(are_compatible(*pair) for pair in combinations(chosen, 2))
        assert problem.net(chosen) == pytest.approx(expected)


@each_seed(200)
def test_without_shared_stores_pipelines_are_on_their_own(seed):
    problem = some_problem(seed)
    some = {group[0] for group in problem.groups.values()}
    problem = problem.among(some)
    alone = {each: saved - problem.costs[each.store] for each, saved in problem.benefits.items()}
    assert n_shared(problem) == 0
    expected = best_of_all_sets(problem)
    assert problem.net(best_nested(problem.forest, alone)) == pytest.approx(expected)
    assert problem.net(by_groups(problem)) == pytest.approx(expected)


@each_seed(200)
def test_what_is_saved_and_what_is_left_are_all_there_is(seed):
    problem = some_problem(seed)
    for chosen in (by_groups(problem), greedy(problem), NOTHING):
        assert work_left(problem, chosen) == pytest.approx(work_of(problem) - problem.net(chosen))


def no_work_is_negative(problem):
    """Benefits as (5.a) gives them: never more than the work that is spared."""
    benefits = {
        each: min(saved, saved + problem.proc(each)) for each, saved in problem.benefits.items()
    }
    return replace(problem, benefits=benefits)


@pytest.mark.large
def test_approximations_are_near_the_best():
    ratios, polished_ratios, rounded_ratios = [], [], []
    for seed in range(300):
        problem = no_work_is_negative(some_problem(seed))
        least = work_of(problem) - best_of_all_sets(problem)
        shares = relaxation(problem)
        assert shares.work <= least + 1e-6
        first = greedy(problem)
        bound = sum(1 / n for n in range(1, len(problem.joins) + 1))
        assert work_left(problem, first) <= bound * least + 1e-6
        better = polished(problem, first)
        assert problem.net(better) >= max(problem.net(first), 0.0) - 1e-9
        rounding = lp_rounding(problem, rng())
        assert problem.net(rounding) >= 0
        assert problem.net(rounding) <= work_of(problem) - least + 1e-6
        if least > 0:
            ratios.append(work_left(problem, first) / least)
            polished_ratios.append(work_left(problem, better) / least)
            rounded_ratios.append(work_left(problem, rounding) / least)
    assert len(ratios) > 250
    assert max(ratios) < 1.3
    assert np.mean(polished_ratios) < min(1.01, np.mean(ratios))
    assert max(rounded_ratios) < 1.1


@each_seed(200)
def test_caches_that_exclude_each_other_are_tried_in_all_sets(seed):
    problem = some_problem(seed, sizes=(3, 4), budget=8, most=10)
    found = select(problem, rng())
    assert all(are_compatible(*pair) for pair in combinations(found, 2))
    assert problem.net(found) == pytest.approx(best_of_all_sets(problem))
    assert work_left(problem, found) == pytest.approx(work_of(problem) - problem.net(found))


def test_h3_is_never_chosen():
    pipelines = {"1": ("2", "3"), "2": ("1", "3"), "3": ("1", "2")}
    found = candidates(on_one_attribute(3), pipelines, budget=6)
    problem = CacheProblem(
        dict.fromkeys(found, 10.0),
        {each.store: 1.0 for each in found},
        dict.fromkeys(pipelines, (8.0, 8.0)),
    )
    chosen = select(problem, rng())
    assert not {find(found, "3", *"12"), find(found, "1", *"23")} <= chosen
    assert chosen


def nested(n):
    """Inputs on one attribute whose pipelines begin alike: a chain of n − 2 closed sets."""
    graph = on_one_attribute(n)
    pipelines = {
        name: tuple(other for other in graph.inputs if other != name) for name in graph.inputs
    }
    found = prefix_invariant(graph, pipelines)
    problem = random_problem(random.Random(1), found, pipelines)
    benefits = {each: abs(saved) + 1 for each, saved in problem.benefits.items()}
    return CacheProblem(benefits, dict.fromkeys(problem.costs, 2.0), problem.works)


def test_fifteen_shared_stores_are_tried_in_all_sets():
    problem = nested(18)
    assert n_shared(problem) == 15
    found = select(problem, rng())
    assert found == by_groups(problem)
    bound = work_of(problem) - relaxation(problem).work
    nearly = max(map(problem.net, approximations(problem)))
    assert nearly <= problem.net(found) <= bound + 1e-6


@pytest.mark.large
def test_many_shared_stores_are_left_to_the_approximations():
    problem = nested(20)
    assert n_shared(problem) == 17
    found = select(problem, rng())
    assert found in approximations(problem)
    assert found == select(problem, rng())
    bound = work_of(problem) - relaxation(problem).work
    assert 0.9 * bound <= problem.net(found)


def test_the_number_of_stores_that_are_tried_is_an_option():
    problem = v2()
    assert n_shared(problem) == 3
    assert select(problem, rng()) == by_groups(problem)
    found = select(problem, rng(), max_shared=2)
    assert found in approximations(problem)
    assert problem.net(found) == pytest.approx(38.8)


def test_nothing_is_chosen_where_nothing_pays():
    problem = v2()
    problem = CacheProblem(dict.fromkeys(problem.candidates, -1.0), problem.costs, problem.works)
    for max_shared in (16, -1):
        assert select(problem, rng(), max_shared=max_shared) == NOTHING


def test_no_candidates_no_caches():
    problem = CacheProblem({}, {}, {"1": (1.0,), "2": (1.0,)})
    assert select(problem, rng()) == NOTHING

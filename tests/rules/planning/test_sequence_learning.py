from __future__ import annotations

import time
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from eddyline.rules.compile.bitmap_block import BitmapBlock
from eddyline.rules.match.matcher import Selection
from eddyline.rules.plan import SelectionCounts, SelectionSequence
from eddyline.rules.planning.sequence_learning import (
    MAX_EXACT,
    MAX_WORDS,
    RearrangementMonitor,
    RegionSample,
    greedy_macro,
    hybrid,
    macro,
)
from tests.oracles.rule_data import RangeRules, class_rows, rules_q1, zipf_rows
from tests.oracles.sharing import (
    best_and_worst,
    ticket_routing,
    visits_after_sets,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def sampled(rules: RangeRules, rows: np.ndarray) -> RegionSample:
    block = rules.block()
    regions = block.regions(rows, np.zeros_like(rows, bool), np.arange(rows.shape[1]))
    return RegionSample.from_regions(block, regions)


def evaluations(sample: RegionSample, rows: np.ndarray, plan: SelectionSequence) -> int:
    return Selection(sample.block, plan).select(rows, np.zeros_like(rows, bool)).counts.n_evaluated


@pytest.mark.parametrize("n", range(2, 7))
def test_subset_search_is_brute_force(n: int) -> None:
    rules = RangeRules.hot_spots(12, 2 * 12, n, seed=n)
    rows = zipf_rows(300, n, seed=n)
    sample = sampled(rules, rows)
    alive = visits_after_sets(sample.bitmaps, sample.block.initial)
    best, worst = best_and_worst(alive)
    costs = {
        order: evaluations(sample, rows, SelectionSequence(order))
        for order in permutations(range(n))
    }
    assert best[0] == min(costs.values()) == costs[best[1]]
    assert worst[0] == max(costs.values()) == costs[worst[1]]
    assert costs[macro(sample).macro] == best[0]


def test_macro_weighs_costs() -> None:
    n = 5
    unit = sampled(RangeRules.hot_spots(12, 24, n, seed=8), zipf_rows(400, n, seed=3))
    costs = np.ones(n)
    costs[macro(unit).macro[0]] = 50.0
    sample = RegionSample(unit.block, unit.regions, costs)
    least = min(sample.cost(order) for order in permutations(range(n)))
    assert sample.cost(macro(sample).macro) == pytest.approx(least)
    assert sample.cost(macro(unit).macro) > least * 1.01
    first = greedy_macro(unit).macro[0]
    costs[first] = 1000.0
    assert greedy_macro(sample).macro[0] != first


def test_cost_of_a_sample_is_what_selection_counts() -> None:
    rules, rows = rules_q1(1), zipf_rows(2000, 10, seed=1)
    sample = sampled(rules, rows)
    for plan in (greedy_macro(sample), macro(sample)):
        assert sample.cost(plan.macro) * 2000 == evaluations(sample, rows, plan)


def test_many_constructs_are_no_worse_than_greedy() -> None:
    n = MAX_EXACT + 4
    sample = sampled(RangeRules.hot_spots(40, 140, n, seed=2), zipf_rows(1000, n, seed=2))
    greedy, found = greedy_macro(sample), macro(sample)
    assert sorted(found.macro) == list(range(n))
    assert sample.cost(found.macro) <= sample.cost(greedy.macro)


@pytest.mark.large
def test_hybrid_saves_where_attributes_depend_on_each_other() -> None:
    saved = []
    for seed in range(6):
        rules = rules_q1(seed, domain=8, width=1, spread=3.0, point_frac=0.3)
        rows = class_rows(24_000, 10, seed)
        learned = sampled(rules, rows[:, :4000].copy())
        rest = rows[:, 4000:].copy()
        plain = macro(learned)
        arrows = hybrid(learned, plain)
        assert arrows.macro == plain.macro
        saved.append(1 - evaluations(learned, rest, arrows) / evaluations(learned, rest, plain))
    assert np.mean(saved) > 0.005
    assert min(saved) > -0.01


def test_arrows_that_say_what_the_macro_sequence_says_are_left_out() -> None:
    rules = rules_q1(0)
    sample = sampled(rules, zipf_rows(3000, 10, seed=0))
    found = hybrid(sample)
    starts = {arrow.target for arrow in found.arrows}
    assert starts == set(range(10, found.n_nodes))
    for arrow in found.arrows:
        is_leaf = all(other.node != arrow.target for other in found.arrows)
        if is_leaf and arrow.node == found.macro[0]:
            assert found.construct_of(arrow.target) != found.macro[1]


@pytest.mark.parametrize("learner", [macro, greedy_macro, hybrid])
def test_learners_take_any_sample(learner: Callable[[RegionSample], SelectionSequence]) -> None:
    empty = BitmapBlock.build([], lambda _: -1, lambda _: None)  # type: ignore[arg-type,return-value]
    none = RegionSample.from_regions(empty, np.zeros((0, 0), np.int32))
    assert learner(none) == SelectionSequence(())
    block = rules_q1(0).block()
    assert learner(RegionSample.from_regions(block, np.zeros((0, 10), np.int32))).macro == tuple(
        range(10)
    )
    one = RegionSample.from_regions(block, np.zeros((1, 10), np.int32))
    assert sorted(learner(one).macro) == list(range(10))


def counts(n_rows: int, evaluated: list[int], dropped: list[int]) -> SelectionCounts:
    return SelectionCounts(n_rows, np.array(evaluated), np.array(dropped), 0, 0)


def test_monitor_compares_periods() -> None:
    monitor = RearrangementMonitor(10_000, 0.1)
    monitor.adopt((0,))
    assert not monitor.is_due(counts(6000, [6000, 3000], [3000, 0]))
    # The first period is what later ones are compared with.
    assert not monitor.is_due(counts(4000, [4000, 2000], [2000, 0]))
    assert not monitor.is_due(counts(10_000, [10_000, 4700], [5300, 0]))
    assert monitor.is_due(counts(10_000, [10_000, 4400], [5600, 0]))


def test_monitor_sees_work_move_between_constructs() -> None:
    monitor = RearrangementMonitor(1000, 0.1)
    monitor.adopt((0, 1, 2))
    assert not monitor.is_due(counts(1000, [1000, 300, 250], [700, 50, 200]))
    # 95 % are dropped as before.
    assert monitor.is_due(counts(1000, [1000, 800, 250], [200, 550, 200]))


def test_monitor_takes_chance_for_no_change_unless_everything_is_one() -> None:
    for min_change in (0.1, 0.0):
        monitor = RearrangementMonitor(1000, min_change)
        monitor.adopt((0,))
        monitor.is_due(counts(1000, [1000, 995], [5, 0]))
        assert monitor.is_due(counts(1000, [1000, 993], [7, 0])) == (min_change == 0.0)


def test_tickets_lie_between_best_and_worst() -> None:
    sample = sampled(rules_q1(2), zipf_rows(3000, 10, seed=2))
    alive = visits_after_sets(sample.bitmaps, sample.block.initial)
    (best, _), (worst, _) = best_and_worst(alive)
    spent = ticket_routing(sample.bitmaps, sample.block.initial, np.random.default_rng(1))
    assert best < spent < worst
    assert all(a <= b for a, b in pairwise([best, spent, worst]))


@pytest.mark.parametrize("n", [40, 400])
def test_many_constructs_take_a_bounded_search(n: int) -> None:
    rules = RangeRules.hot_spots(500, 1_000, n, seed=1)
    rows = zipf_rows(2_000, n, seed=1)
    block = rules.block()
    regions = block.regions(rows, np.zeros_like(rows, bool), np.arange(rows.shape[1]))
    n = block.n_constructs
    words = n * len(block.initial)
    sample = RegionSample.thinned(block, regions, np.ones(n))
    started = time.process_time()
    found = macro(sample)
    # Without a bound the search over 400 constructs takes hours.
    assert time.process_time() - started < 60
    assert sorted(found.macro) == list(range(n))
    assert sample.cost(found.macro) <= sample.cost(range(n))
    assert MAX_WORDS / 2 < sample.n_rows * words <= MAX_WORDS or sample.n_rows == 2_000

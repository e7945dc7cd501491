"""The loop over a world whose time passes only inside its predicates."""

from __future__ import annotations

import json
import time
from itertools import count

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from eddyline.errors import OptionError, PlanError, StateError
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import (
    MOST_PROFILED,
    MOST_SKIPPED,
    PROFILING_SHARE,
    FilterLoop,
    ProfilingBudget,
    run_batch,
)
from eddyline.options import FilterOptions
from eddyline.ordering.a_greedy import AGreedyOptions
from eddyline.ordering.protocol import Proposal, WindowPolicy
from eddyline.query.predicates import predicate
from eddyline.stats.profile import FilterProfile
from tests.filters.world import World, loop_of

POLICIES = ["a_greedy", "sweep", "independent", "local_swaps"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_the_right_order_is_learned(policy, seed):
    world = World([100, 100, 100, 100], [0.9, 0.7, 0.4, 0.1], seed=seed)
    loop = world.loop(policy=policy, sample_prob=0.05, max_overhead=1.0)
    world.run(loop, 150, until=(3, 2, 1, 0))
    assert world.entries[-1].after == ["f3", "f2", "f1", "f0"]


@pytest.mark.parametrize("policy", ["a_greedy", "independent"])
def test_what_drops_as_much_for_less_comes_first(policy):
    world = World([1000, 100, 10], [0.5, 0.5, 0.5])
    world.run(world.loop(policy=policy), 10, until=(2, 1, 0))


def test_one_batch_is_enough_where_the_evidence_is_clear():
    world = World([100, 100], [0.9, 0.1])
    loop = world.loop()
    assert world.run(loop, 2, until=(1, 0)) == 1
    (entry,) = world.entries
    assert (entry.batch_id, entry.component, entry.event) == (0, "arrow", "order")
    assert (entry.before, entry.after) == (["f0", "f1"], ["f1", "f0"])
    assert entry.evidence["n_tuples"] > 50
    json.dumps(entry.evidence, allow_nan=False)


class TestSwitchedOff:
    @pytest.fixture(params=["option", "one filter"])
    def off(self, request):
        world = World([100], [0.5]) if request.param == "one filter" else World([9, 1], [0.9, 0.1])
        return world, world.loop(adaptive=request.param != "option", sample_prob=1.0)

    def test_nothing_is_sampled_or_decided(self, off):
        world, loop = off
        assert loop.batch_prob(4096, 0.0) == 0.0
        world.run(loop, 10)
        assert world.entries == []
        assert loop.order == tuple(world.filters)
        assert loop.window.profile().n_tuples == 0

    def test_rows_are_counted_all_the_same(self, off):
        world, loop = off
        world.run(loop, 3)
        assert loop.totals.n_rows == 3 * 4096
        assert loop.totals.n_extra == 0
        assert loop.totals.n_evaluations == sum(loop.totals.rows_in)


class TestBudget:
    costs = (1.0, 20.0, 400.0, 8000.0)

    def share(self, order, n_batches=200, **options):
        """Time that profiling added, as a share of the work itself, after the warm-up."""
        work = total = 0.0
        for seed in range(4):
            costs = [self.costs[f] for f in order]
            world = World(costs, [0.1, 0.5, 0.5, 0.98], seed=seed)
            loop = world.loop(sample_prob=0.5, **options)
            world.run(loop, 10)
            started = world.now_ns
            world.run(loop, n_batches)
            total += world.now_ns - started
            work += sum(float(each.rows_in @ np.array(costs)) for each in world.profiles[10:])
        return total / work - 1.0

    @pytest.mark.large
    @pytest.mark.parametrize(
        ("order", "max_overhead", "least"),
        [
            ((0, 1, 2, 3), 0.02, 0.0),
            ((0, 1, 2, 3), 0.1, 0.08),
            ((3, 2, 1, 0), 0.02, 0.0),
            ((3, 2, 1, 0), 0.1, 0.0),
            ((2, 0, 3, 1), 0.1, 0.0),
        ],
    )
    def test_profiling_keeps_to_its_budget_and_uses_it(self, order, max_overhead, least):
        share = self.share(order, max_overhead=max_overhead)
        assert 0.0 < share <= 1.3 * max_overhead
        assert share >= least

    @pytest.mark.large
    @pytest.mark.parametrize("fixed_ns", [1e4, 1e5, 5e6])
    def test_calls_for_profiling_alone_count(self, fixed_ns):
        # The first filter drops all: without profiling the others are hardly ever called.
        world = World([100.0] * 4, [1e-5, 0.5, 0.5, 0.5], fixed_ns=fixed_ns)
        loop = world.loop()
        world.run(loop, 20)
        started = world.now_ns
        world.run(loop, 600)
        called = np.array([each.rows_in for each in world.profiles[20:]])
        work = (100.0 * called + fixed_ns * (called > 0)).sum()
        assert (world.now_ns - started) / work - 1 <= 0.02

    def test_the_sampling_probability_bounds_it_too(self):
        world = World(list(self.costs), [0.5, 0.5, 0.5, 0.5])
        world.run(world.loop(max_overhead=1.0, sample_prob=0.02), 100)
        rows = sum(each.n_tuples + each.passed * 0.02 for each in world.profiles[5:])
        assert rows / (95 * 4096) == pytest.approx(0.02, rel=0.1)


class TestWarmUp:
    def test_lasts_until_there_is_enough_evidence(self):
        world = World([100, 100], [0.5, 0.6])
        loop = world.loop(min_fill=500, warmup_prob=0.05, sample_prob=0.01)
        while loop.window.profile().n_tuples < 500:
            assert loop.sample_prob() == 0.05
            assert loop.piece_rows(20_000) == 10_000
            world.run(loop, 1)
        assert loop.sample_prob() <= 0.01
        assert loop.piece_rows(10_000) == 10_000
        assert 2 <= world.batch <= 10

    def test_ends_where_next_to_nothing_is_dropped(self):
        world = World([100, 100], [0.9995, 0.9995])
        loop = world.loop(min_fill=50, warmup_prob=0.25, sample_prob=0.01)
        world.run(loop, 1)
        assert loop.window.profile().n_tuples < 10
        assert loop.sample_prob() <= 0.01
        assert loop.piece_rows(10_000) == 10_000

    def test_never_samples_less_than_afterwards(self):
        assert World([1, 1], [0.5, 0.5]).loop(warmup_prob=0.0, sample_prob=0.2).sample_prob() == 0.2

    def test_filters_that_drop_nothing_cost_nothing_to_profile(self):
        world = World([100, 100], [1.0, 1.0])
        world.run(world.loop(), 20)
        assert sum(each.n_extra for each in world.profiles) == 0


class TestBatchProb:
    @pytest.fixture(scope="class")
    @staticmethod
    def loop():
        world = World([100, 100], [0.5, 0.5])
        loop = world.loop(sample_prob=0.001, warmup_prob=0.001)
        world.run(loop, 300)
        assert 0.0 < loop.sample_prob() <= 0.001
        return loop

    @pytest.mark.parametrize("n_rows", [1, 10, 100, 1000, 4096, 10**6])
    def test_few_batches_are_profiled_rather_than_few_rows_of_each(self, loop, n_rows):
        prob, least = loop.sample_prob(n_rows), min(1.0, 32 / n_rows)
        if prob >= least:
            assert loop.batch_prob(n_rows, 0.999) == prob
            return
        # A share prob / least of the batches, a share least of the rows of each.
        assert loop.batch_prob(n_rows, 0.999 * prob / least) == least
        assert loop.batch_prob(n_rows, 1.001 * prob / least) == 0.0

    def test_no_rows(self, loop):
        assert loop.batch_prob(0, 0.999) == 0.0


class TestCosts:
    def world(self, **given):
        return World([100, 100, 100], [0.4, 0.5, 0.6], fixed_ns=5000, **given)

    @pytest.mark.large
    @pytest.mark.parametrize("batch", [5, 20, 60])
    @pytest.mark.parametrize("seed", range(3))
    def test_one_pause_changes_nothing(self, batch, seed):
        # The pause hits the first call of a batch: the filter in front.
        world = self.world(seed=seed, spikes={batch: 1000.0})
        loop = world.loop()
        world.run(loop, 100)
        assert loop.order == (0, 1, 2)
        assert world.entries == []
        assert not world.spikes

    @pytest.mark.large
    @pytest.mark.parametrize("sample_prob", [0.01, 0.002])
    @pytest.mark.parametrize("warm", [50, 1000])
    def test_a_filter_that_stays_slow_is_moved_soon(self, sample_prob, warm):
        # However long it was fast before: old costs leave the window.
        world = self.world()
        loop = world.loop(sample_prob=sample_prob, warmup_prob=sample_prob)
        world.run(loop, warm)
        assert loop.order == (0, 1, 2)
        world.per_row_ns[0] = 10_000
        assert world.run(loop, 40, until=(1, 2, 0)) <= 40

    def test_a_filter_that_becomes_fast_again_is_moved_back(self):
        world = self.world()
        loop = world.loop()
        world.run(loop, 50)
        world.per_row_ns[0] = 10_000
        world.run(loop, 40, until=(1, 2, 0))
        world.per_row_ns[0] = 1
        assert world.run(loop, 150, until=(0, 1, 2)) <= 150

    @pytest.mark.parametrize("factor", [10, 1000, 1e6])
    def test_a_slow_first_call_is_forgotten(self, factor):
        # It loaded a model, compiled a pattern, imported a library.
        world = World([100, 100, 100], [0.1, 0.5, 0.9], fixed_ns=5000, spikes={0: factor})
        loop = world.loop()
        world.run(loop, 1)
        assert loop.order == (1, 2, 0)
        world.run(loop, 3, until=(0, 1, 2))

    def test_the_costs_of_a_restored_loop_are_not_those_of_a_first_call(self):
        world = self.world()
        loop = world.loop()
        world.run(loop, 20)
        restored = world.loop()
        restored.restore(loop.snapshot())
        world.per_row_ns[0] = 1
        world.run(restored, 2)
        assert restored.window.profile().costs.sums[0, 0] > 20


def test_what_the_first_calls_seemed_to_cost_is_soon_forgotten():
    world = World([1_500, 500], [0.3, 0.3])
    slow = count(0, 10_000_000)  # each look at the order takes longer than the work allows
    loop = loop_of(world.executor.filter_ids, {}, clock=slow.__next__)
    world.run(loop, 2)
    assert loop.order == (1, 0)
    world.per_row_ns[0] = 5  # it had something to load
    world.run(loop, 20, until=(0, 1))


def test_drift_is_followed():
    world = World([100, 100, 100], [0.1, 0.5, 0.9])
    loop = world.loop()
    world.run(loop, 30)
    assert loop.order == (0, 1, 2)
    world.pass_fracs = [0.9, 0.5, 0.1]
    assert world.run(loop, 60, until=(2, 1, 0)) <= 60


@pytest.mark.large
@pytest.mark.parametrize("seed", range(5))
def test_a_steady_stream_keeps_its_order(seed):
    world = World([100] * 5, [0.5, 0.55, 0.6, 0.65, 0.7], seed=seed)
    loop = world.loop()
    world.run(loop, 200)
    late = [entry for entry in world.entries if entry.batch_id > 20]
    assert len(late) <= 5


class TestSaving:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_restored_loop_goes_on_as_the_saved_one(self, policy):
        options = {"policy": policy, "sample_prob": 0.05, "max_overhead": 1.0}
        one = World([300, 200, 100, 50], [0.8, 0.7, 0.4, 0.3])
        loop = one.loop(**options)
        one.run(loop, 25)
        state = json.loads(json.dumps(msgspec.to_builtins(loop.snapshot()), allow_nan=False))
        other = World(one.per_row_ns, one.pass_fracs)
        other.batch = one.batch
        restored = other.loop(**options)
        restored.restore(state)
        assert restored.order == loop.order
        assert restored.sample_prob() == loop.sample_prob()
        before = len(one.entries)
        one.pass_fracs = other.pass_fracs = [0.3, 0.5, 0.6, 0.9]
        for _ in range(40):
            one.run(loop, 1)
            other.run(restored, 1)
            assert restored.order == loop.order
        assert [each.after for each in other.entries] == [
            each.after for each in one.entries[before:]
        ]
        assert restored.snapshot() == loop.snapshot()

    @pytest.fixture
    def state(self):
        world = World([100, 100, 100], [0.9, 0.5, 0.1])
        loop = world.loop()
        world.run(loop, 10)
        assert loop.order == (2, 1, 0)
        return msgspec.to_builtins(loop.snapshot())

    def loop(self, names=("f0", "f1", "f2"), **settings):
        return loop_of(names, settings)

    @pytest.mark.parametrize("names", [("f0", "f1"), ("f0", "f1", "x"), ("f2", "f1", "f0")])
    def test_state_of_other_filters_is_refused(self, state, names):
        with pytest.raises(StateError, match="start from an empty checkpoint"):
            self.loop(names).restore(state)

    @pytest.mark.parametrize("order", [[0], [0, 0, 1], [0, 1, 3], [0, 1, 2, 2], None, "012", [[]]])
    def test_an_order_that_would_change_the_answer_is_refused(self, state, order):
        loop = self.loop()
        with pytest.raises(StateError, match="'arrow' is damaged"):
            loop.restore(state | {"order": order})
        assert loop.order == (0, 1, 2)

    @pytest.mark.parametrize("key", ["filter_ids", "order", "window", "policy", "policy_name"])
    def test_damaged_state_is_refused(self, state, key):
        del state[key]
        with pytest.raises(StateError):
            self.loop().restore(state)

    def test_state_that_was_saved_before_there_was_a_log_is_read(self, state):
        del state["recent"]
        loop = self.loop()
        loop.restore(state)
        assert loop.order == (2, 1, 0)
        assert loop.window.profile().n_tuples > 0
        assert loop.situation() is None, "nothing is known since the last change"

    def test_switched_off_means_as_written(self, state):
        loop = self.loop(adaptive=False)
        loop.restore(state)
        assert loop.order == (0, 1, 2)

    def test_another_policy_uses_the_order_and_the_window(self, state):
        loop = self.loop(policy="sweep")
        loop.restore(state)
        assert loop.order == (2, 1, 0)
        assert loop.window.profile().n_tuples > 100

    def test_a_smaller_window_keeps_the_newest(self, state):
        loop = self.loop(window_rows=100)
        loop.restore(state)
        assert loop.window.profile().n_tuples == 100


class Confused(WindowPolicy):
    """A policy of somebody else that proposes what is no order."""

    def __init__(self, order):
        self.order = order

    def build(self, n_filters, rng):
        return self

    def propose(self, order, window):
        return Proposal(self.order, {})


@pytest.mark.parametrize("order", [(0,), (0, 0), (0, 2), (0, 1, 1), ()])
def test_a_proposal_that_would_change_the_answer_is_refused(order):
    world = World([1, 1], [0.5, 0.5])
    loop = world.loop(policy=Confused(order))
    with pytest.raises(PlanError, match="is no order of the 2 filters"):
        world.run(loop, 3)
    assert loop.order == (0, 1)


def test_only_taking_in_never_changes_the_order():
    world = World([100, 100], [0.9, 0.1])
    loop, leader = world.loop(), world.loop()
    world.run(leader, 1)
    for _ in range(10):
        assert loop.step(world.profiles[0], may_switch=False) == []
    assert loop.order == (0, 1)
    assert leader.order == (1, 0)
    assert loop.window.profile().n_tuples == min(1000, 10 * world.profiles[0].n_tuples)


def test_a_batch_that_observed_nothing():
    loop = World([1, 1], [0.5, 0.5]).loop()
    assert loop.step(FilterProfile.empty(loop.filter_ids)) == []
    record = loop.record()
    assert np.isnan(record.drop_fracs).all()
    assert np.isnan(record.cost_ns)


def test_the_record_compares_with_the_written_order():
    world = World([100, 100], [0.9, 0.1])
    loop = world.loop()
    world.run(loop, 80)
    record = loop.record()
    assert record.order == (1, 0)
    assert record.drop_fracs == pytest.approx((0.1, 0.9), abs=0.08)
    assert record.cost_ns == pytest.approx(110, rel=0.05)
    assert record.as_written_ns == pytest.approx(190, rel=0.05)
    assert 4096 <= record.n_evaluations <= 2 * 4096


@pytest.mark.large
def test_thinking_is_bounded_by_the_work():
    class Slow(WindowPolicy):
        calls = 0

        def build(self, n_filters, rng):
            return self

        def propose(self, order, window):
            Slow.calls += 1
            world.now_ns += 1e9

    world = World([100, 100], [0.5, 0.5])
    options = FilterOptions(policy=Slow())
    loop = FilterLoop("arrow", ("f0", "f1"), options, clock=lambda: int(world.now_ns))
    world.run(loop, 400)
    assert Slow.calls == 1


def test_an_unknown_policy():
    with pytest.raises(OptionError, match="did you mean 'a_greedy'"):
        World([1, 1], [0.5, 0.5]).loop(policy="a-greedy")
    assert World([1, 1], [0.5, 0.5]).loop(policy=AGreedyOptions(min_fill=3)).policy


# -- many filters ---------------------------------------------------------------------------------

N_MANY = 256


@pytest.mark.large
@pytest.mark.parametrize("policy", ["a_greedy", "sweep", "independent", "local_swaps"])
def test_256_filters(policy):
    # Each filter drops little, so that nearly all are called on every batch.
    world = World([100.0] * N_MANY, list(np.linspace(1.0, 0.98, N_MANY)))
    loop = world.loop(policy=policy)
    started = time.perf_counter()
    world.run(loop, 30)
    # Some 10 ms a batch here; a step that costs F² calls would take a hundred times as long.
    assert time.perf_counter() - started < 10
    assert sorted(loop.order) == list(range(N_MANY))
    assert loop.totals.rows_in.min() > 0


@pytest.mark.large
def test_a_greedy_orders_them():
    world = World([100.0] * N_MANY, list(np.linspace(1.0, 0.98, N_MANY)))
    loop = world.loop()
    before = world.now_ns
    world.run(loop, 5)
    as_written = (world.now_ns - before) / 5
    world.run(loop, 40)
    before = world.now_ns
    world.run(loop, 10)
    assert (world.now_ns - before) / 10 < 0.9 * as_written


# -- the pieces of a batch ------------------------------------------------------------------------


def run_pieces(n_rows, **options):
    rng = np.random.default_rng(3)
    columns = [pa.array(rng.random(n_rows)) for _ in range(2)]
    predicates = [
        predicate(lambda u: np.asarray(u) < 0.99, reads=["u"], name="often"),
        predicate(lambda v: np.asarray(v) < 0.01, reads=["v"], name="seldom"),
    ]
    # Every call takes a microsecond by this clock: the time of a busy machine decides nothing.
    ticks = count(step=1_000)
    executor = ArrowExecutor(predicates, [(0,), (1,)], clock=lambda: next(ticks))
    loop = loop_of(executor.filter_ids, options, clock=lambda: 0)
    outcomes = [each for each, _ in run_batch(executor, loop, columns, seed=1, first_row=0)]
    expected = (columns[0].to_numpy() < 0.99) & (columns[1].to_numpy() < 0.01)
    return loop, outcomes, expected


@pytest.mark.parametrize("n_rows", [1, 999, 1_000, 1_001, 10_000])
def test_the_pieces_are_the_batch(n_rows):
    _, outcomes, expected = run_pieces(n_rows)
    assert np.concatenate([each.keep for each in outcomes]).tolist() == expected.tolist()
    assert sum(each.profile.n_rows for each in outcomes) == n_rows


def test_a_bad_written_order_costs_one_piece():
    loop, outcomes, _ = run_pieces(10_000)
    assert [len(each.keep) for each in outcomes] == [1_000, 9_000]
    assert loop.order == (1, 0)
    # As written nearly two evaluations a row; after the first piece hardly more than one.
    assert sum(each.profile.n_evaluations for each in outcomes) < 11_500


@pytest.mark.parametrize("options", [{"adaptive": False}, {"warmup_prob": 0, "sample_prob": 0}])
def test_without_warm_up_a_batch_is_one_piece(options):
    _, outcomes, _ = run_pieces(10_000, **options)
    assert len(outcomes) == 1


# -- how often batches are profiled ---------------------------------------------------------------

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

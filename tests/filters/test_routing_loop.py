"""Classes of rows in the loop: any table keeps the rows, and the evidence is what it says it is."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data.outcomes import pack, unpack
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import FilterLoop, run_batch
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate
from eddyline.routing.table import Attribute, Partition, RouteTable
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import AttributeSample, FilterProfile, merge_tasks
from tests.filters.world import loop_of
from tests.oracles.star import StarStream

N_FILTERS = 4
COST_NS = 3_000.0


class World:
    """Four filters, each of which drops most rows of its own class; time passes inside them."""

    def __init__(self, fixed_ns=0.0, **options):
        self.now_ns = 0.0
        self.fixed_ns = fixed_ns
        self.n_evaluations = 0
        fns = [predicate(self._fn(), reads=[f"c{f}"], name=f"f{f}") for f in range(N_FILTERS)]
        self.executor = ArrowExecutor(fns, [(f,) for f in range(N_FILTERS)], clock=self._clock)
        self.settings = options
        self.loop = self.fresh_loop()
        self.entries = []
        self.kept = []

    def _clock(self):
        return int(self.now_ns)

    def _fn(self):
        def passes(column):
            self.now_ns += self.fixed_ns + COST_NS * len(column)
            self.n_evaluations += len(column)
            return column

        return passes

    def fresh_loop(self):
        attributes = (Attribute("kind", "number", "kind"), Attribute("noise", "number", "noise"))
        return loop_of(
            self.executor.filter_ids, self.settings, attributes=attributes, clock=lambda: 0
        )

    def run(self, passes, values, *, batch_rows=10_000, seed=0):
        for start in range(0, len(passes), batch_rows):
            part = passes[start : start + batch_rows]
            columns = [pa.array(np.ascontiguousarray(column)) for column in part.T]
            here = list(values[start : start + batch_rows].T)
            pieces = run_batch(
                self.executor, self.loop, columns, seed=seed, first_row=start, values=here
            )
            for outcome, entries in pieces:
                self.kept.append(outcome.keep)
                self.entries += entries
        return np.concatenate(self.kept)

    def routes(self):
        return [entry for entry in self.entries if entry.event == "routes"]


def rows_of(n_rows, seed=0, *, shift=0):
    """Return which filter passes which row, and the attributes of the rows."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, N_FILTERS, n_rows)
    fracs = np.where(np.arange(N_FILTERS) == ((kind + shift) % N_FILTERS)[:, None], 0.05, 0.9)
    values = np.column_stack([kind, rng.random(n_rows)]).astype(float)
    return rng.random((n_rows, N_FILTERS)) < fracs, values


def test_a_table_is_learned_and_saves_evaluations():
    passes, values = rows_of(200_000)
    world = World()
    kept = world.run(passes, values)
    np.testing.assert_array_equal(kept, passes.all(axis=1))
    assert world.routes()[0].after["by"] == ["kind"]
    single = World(routing=False)
    single.run(passes, values)
    assert world.n_evaluations < 0.65 * single.n_evaluations


@st.composite
def tables(draw):
    orders = st.permutations(range(N_FILTERS)).map(tuple)
    chosen = draw(st.lists(orders, min_size=1, max_size=4))
    cut = Partition("kind", "values", (0.0, 1.0, 2.0))
    groups = st.integers(0, len(chosen) - 1)
    return RouteTable(cut, tuple(chosen), tuple(draw(st.tuples(*[groups] * cut.n_bins))))


@pytest.mark.large
@given(table=tables(), batch_rows=st.integers(1, 400), seed=st.integers(0, 9), retry=st.booleans())
def test_any_table_any_cut_any_restart_keeps_the_rows(table, batch_rows, seed, retry):
    passes, values = rows_of(500, seed)
    values[::7, 0] = np.nan
    world = World(sample_prob=0.2)
    world.loop.routes.table = table
    if retry:
        state = json.loads(json.dumps(msgspec.to_builtins(world.loop.snapshot())))
        world.loop = world.fresh_loop()
        world.loop.restore(state)
        assert world.loop.table == table
    kept = world.run(passes, values, batch_rows=batch_rows)
    np.testing.assert_array_equal(kept, passes.all(axis=1))


@given(table=tables(), seed=st.integers(0, 9))
def test_the_sample_of_a_routed_batch_is_that_of_one_order(table, seed):
    """Which rows are sampled, in the order in which they came, and every bit of them."""
    passes, values = rows_of(300, seed)
    columns = [pa.array(np.ascontiguousarray(column)) for column in passes.T]
    found = []
    for chosen in (None, table):
        world = World(warmup_prob=0.5, min_fill=1000)
        world.loop.routes.table = chosen
        [(outcome, _)] = run_batch(
            world.executor, world.loop, columns, seed=3, first_row=0, values=list(values.T)
        )
        found.append(outcome)
    plain, routed = found
    assert plain.sampled.tolist() == routed.sampled.tolist() == sorted(routed.sampled.tolist())
    assert plain.drops.tolist() == routed.drops.tolist() == (~passes[routed.sampled]).tolist()
    for outcome in found:
        assert unpack(outcome.profile.codes, N_FILTERS).tolist() == [
            row for row in outcome.drops.tolist() if any(row)
        ]
        attributes = outcome.profile.attributes
        np.testing.assert_array_equal(attributes.values, values[outcome.sampled])
        assert attributes.bits(N_FILTERS).tolist() == outcome.drops.tolist()


@pytest.mark.large
@pytest.mark.parametrize("seed", range(8))
def test_a_table_that_pays_stays(seed):
    """The newest rows are of all classes, not of the group that was run last."""
    passes, values = rows_of(400_000, seed)
    world = World()
    world.run(passes, values, seed=seed)
    assert all(entry.after is not None for entry in world.routes())


@pytest.mark.large
@pytest.mark.parametrize("seed", range(4))
def test_classes_that_swap_are_learned_anew_soon(seed):
    """What each filter drops of all rows is as before: only the classes changed."""
    before, values = rows_of(500_000, seed)
    after, more = rows_of(200_000, seed + 10, shift=1)
    world = World()
    world.run(before, values)
    learned = world.n_evaluations
    world.run(after[:100_000], more[:100_000])
    relearned = world.n_evaluations
    world.run(after[100_000:], more[100_000:])
    # With one order for all 2.4 evaluations a row, with one per class some 1.2; classes that are
    # taken for others cost more than either.
    assert relearned - learned < 2.4 * 100_000
    assert world.n_evaluations - relearned < 0.75 * 2.4 * 100_000
    assert world.loop.table is not None


def test_a_class_that_appears_moves_to_another_column_and_disappears():
    """No class, by the first column, by the second one, no class again."""
    world, used = World(), []
    for phase in range(4):
        passes, values = rows_of(200_000, 20 + phase)
        if phase in {0, 3}:
            for column in passes.T:
                np.random.default_rng(phase).shuffle(column)
        if phase == 2:
            values = values[:, ::-1]
        world.kept = []
        np.testing.assert_array_equal(world.run(passes, values), passes.all(axis=1))
        used.append(world.loop.table and world.loop.table.attribute)
    assert used == [None, "kind", "noise", None]


def test_no_sampled_row_stays_in_the_counts_of_the_whole_life():
    passes, values = rows_of(100_000, 5)
    world = World(monitor="page_hinkley")
    world.run(passes, values)
    assert world.loop.totals.n_rows == 100_000
    assert world.loop.totals.attributes is None
    assert world.loop.totals.blocks is None


@pytest.mark.large
def test_small_batches_after_large_ones_do_not_pay_for_a_table():
    """Each group calls each filter once per batch: what 10,000 rows bear, 500 do not."""
    passes, values = rows_of(300_000, 3)
    world = World(fixed_ns=1_500_000.0)
    world.run(passes[:200_000], values[:200_000])
    assert world.loop.table is not None
    world.kept = []
    world.run(passes[200_000:], values[200_000:], batch_rows=500)
    assert world.loop.table is None


def test_a_worker_that_starts_from_the_drivers_state_samples_no_more_than_one_that_goes_on():
    passes, values = rows_of(200_000, 4)
    world = World()
    world.run(passes, values)
    state = json.loads(json.dumps(msgspec.to_builtins(world.loop.snapshot())))
    started = world.fresh_loop()
    started.restore(state)
    assert started.sample_prob() == pytest.approx(world.loop.sample_prob(), rel=0.2)
    assert started.piece_rows(10_000) == world.loop.piece_rows(10_000) == 10_000


def test_a_saved_table_of_several_attributes_is_learned_anew():
    """Earlier versions had such tables."""
    world = World()
    state = msgspec.to_builtins(world.loop.snapshot())
    several = {"partitions": [{}, {}], "orders": [[0, 1, 2, 3], [3, 2, 1, 0]], "groups": [0, 1]}
    state["routes"] |= {"table": several, "n_batches": 7}
    world.loop.restore(state)
    assert world.loop.table is None
    assert world.loop.routes.n_batches == 7


def reports(n_tasks, n_rows, seed=0):
    """Profiles of tasks whose rows are unlike each other's."""
    rng = np.random.default_rng(seed)
    ids = tuple(f"f{f}" for f in range(N_FILTERS))
    found = []
    for task in range(n_tasks):
        drops = rng.random((n_rows, N_FILTERS)) < 0.2 + 0.1 * task
        stream = StarStream.skewed(N_FILTERS, 0.05, n_noise=0)
        sample = stream.sample(n_rows)
        values = np.full_like(sample.values, float(task))
        found.append(
            replace(
                FilterProfile.of_sample(ids, drops),
                attributes=replace(sample, values=values),
                rows_in=np.full(N_FILTERS, 10.0),
                ran_under=tuple(range(N_FILTERS)),
                blocks=np.full((task + 3, 2, N_FILTERS), task),
            )
        )
    return found


def test_every_task_has_the_same_say():
    tasks = reports(8, 1_000)
    merged = merge_tasks(tasks, 800, 400)
    share = np.bincount(merged.attributes.values[:, 0].astype(int), minlength=8)
    assert share.tolist() == [50] * 8
    newest = merged.attributes.last(80).values[:, 0].astype(int)
    assert np.bincount(newest, minlength=8).tolist() == [10] * 8
    assert merged.n_tuples == 800
    assert merged.blocks.tolist() == np.full((3, 2, N_FILTERS), sum(range(8))).tolist()
    half = merged.last(400)
    assert half.codes.mean() == pytest.approx(merged.codes.mean(), rel=0.1)


def test_one_task_or_none_that_observed_anything():
    [task] = reports(1, 100)
    assert merge_tasks([task], 1_000, 1_000) == task
    empty = FilterProfile.empty(task.filter_ids)
    assert merge_tasks([empty, empty], 10, 10).n_tuples == 0
    mixed = merge_tasks([empty, task], 1_000, 1_000)
    assert mixed.attributes.n_rows == 100
    assert mixed.n_tuples == task.n_tuples


@pytest.mark.parametrize(
    ("costs_ns", "is_routed"),
    [([22.0, 120.0, 130.0, 140.0], False), ([1_000.0, 3_000.0, 3_000.0, 3_000.0], True)],
)
def test_one_low_timing_does_not_route_what_the_jvm_compares_cheaply(costs_ns, is_routed):
    passes, values = rows_of(4_000)
    ids = tuple(f"f{f}" for f in range(N_FILTERS))
    attributes = (Attribute("kind", "number", "kind"),)
    loop = FilterLoop(
        "native", ids, FilterOptions.of(), attributes=attributes, in_workers=False, clock=lambda: 0
    )
    costs = CostSums.of_rows(len(passes), np.array(costs_ns))
    weights = np.ones(len(passes))
    sample = AttributeSample(("kind",), values[:, :1], pack(~passes), weights)
    found = FilterProfile.of_sample(ids, ~passes, costs=costs, basis=loop.order)
    loop.step(replace(found, attributes=sample, n_rows=1_000_000))
    assert (loop.table is not None) == is_routed

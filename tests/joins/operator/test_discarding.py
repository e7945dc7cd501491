"""Rows that are dropped: a part of the answer, and a bound of what is missing that always holds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from tempfile import TemporaryDirectory

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.joins.graph import JoinGraph
from eddyline.joins.leaving import Discards, DiscardState
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.pipelines import written_orders
from eddyline.joins.plan import PASSED, BatchPlan, merged
from eddyline.state import dropped_rows
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import Grid, Moved, buckets_for
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from tests.joins.operator.test_bucket import Operator, bag, is_supported
from tests.joins.plans import place_in
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import results

PAIR = JoinGraph(("s", "t"), (frozenset("st"),))
STAR = JoinGraph(("s", "t", "u"), (frozenset("stu"),))
CHAIN = JoinGraph(("s", "t", "u"), (frozenset("st"), frozenset("tu")))
CYCLE = JoinGraph(("s", "t", "u"), (frozenset("st"), frozenset("tu"), frozenset("su")))
LONG_CHAIN = JoinGraph(("s", "t", "u", "w"), (frozenset("st"), frozenset("tu"), frozenset("uw")))


class Dropping(Operator):
    """Rows are kept for another time in each batch, or are dropped by any key.

    The first batches may drop none at all, as before the option is used. Once one may drop rows all
    later ones may: with a plan of another option what is known of dropped rows is forgotten, and no
    bound is promised any more (``docs/joins.md``).
    """

    drops = False

    def how(self):
        self.drops = self.drops or self.draw(st.integers(0, 4)) > 0
        if not self.drops:
            return {}
        streams = [each.name for each in self.query.inputs if self.case.times[each.stream]]
        kept_for = {name: self.draw(st.sampled_from([None, 0, 1, 3, 20])) for name in streams}
        kept_for = {
            name: None if us is None else us * self.draw(st.sampled_from([1, 1_000_000]))
            for name, us in kept_for.items()
        }
        below = {
            name: {key: self.draw(st.integers(-1, 6)) for key in self.graph.classes_of[name]}
            for name in streams
            if self.draw(st.integers(0, 2)) == 0
        }
        leaving = frozenset((PASSED, name) for name in below)
        tops = {(name, key): 3 for name in below for key in below[name]}
        return {"kept_for": kept_for, "below": below, "tops": tops, "leaving": leaving}


@pytest.mark.large
@given(case=join_cases().filter(is_supported), data=st.data())
def test_whatever_is_dropped_no_result_is_wrong_and_no_more_are_missing_than_is_said(case, data):
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        operator = Dropping(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, is_first=number == 0)
        wanted, found = bag(results(case.query, case.tables, case.times)), operator.results()
        assert not found - wanted
        lost = merged(each.lost for each in operator.reports)
        n_most, n_dropped = (
            sum(getattr(each, name) for each in lost.values()) for name in ("n_most", "n_dropped")
        )
        assert (wanted - found).total() <= n_most
        assert n_dropped or not n_most


@pytest.mark.parametrize(("later", "n_most"), [({"kept_for": {"s": None, "t": None}}, 1), ({}, 0)])
def test_a_dropped_row_is_counted_until_the_query_goes_on_with_another_option(
    later, n_most, tmp_path
):
    one = Rows({0: np.array([0])}, np.array([3]), np.array([4]), pa.table({"id": [1]}))
    drops = {
        "kept_for": {"s": None, "t": None},
        "below": {"t": {0: 1}},
        "leaving": frozenset([(PASSED, "t")]),
    }
    lengths, low, before, found = {"s": 1, "t": 1}, ALWAYS, BucketState(), []
    for rows, how in (({"t": one}, drops), ({"s": one}, later)):
        ways = written_orders(PAIR), lengths, {}, {"s": low, "t": low}
        task = BucketBatch(BatchPlan(0, PAIR, *ways, **how), place_in(tmp_path), before)
        found += task.run(rows)
        before = task.report.after
    assert not sum(table.num_rows for table in found), "the row of t is gone"
    assert sum(each.n_most for each in task.report.lost.values()) == n_most
    assert bool(before.dropped) == bool(n_most)


LENGTH = 4_000
"""Of windows that have one (µs); a batch is 100 µs."""

BATCH = 100


class Streams:
    """Things of which each stream has a row, soon after each other; joined batch by batch.

    Args:
        graph: the join.
        ks: for each batch, how long a thing's rows take at most (µs).
        length: of all windows (µs).
        alike: things that have a key in common, by key class; 1 if missing.
        is_ordered: whether keys ascend with time.
    """

    def __init__(self, graph, folder, ks, *, length=LENGTH, alike=(), is_ordered=False):
        self.graph, self.place, self.length = graph, place_in(folder), length
        rng = np.random.default_rng(len(graph.inputs))
        things = np.arange(len(ks) * BATCH)
        k = np.repeat(ks, BATCH)
        codes = [things // n for n in (*alike, *[1] * (len(graph.classes) - len(alike)))]
        if not is_ordered:
            codes = [(each * 2_654_435_761 + 7) % 2**40 for each in codes]
        self.rows = {}
        for name in graph.inputs:
            at = things + rng.integers(0, k + 1)
            order = np.argsort(at, kind="stable")
            self.rows[name] = [at[order], *(codes[key][order] for key in graph.classes_of[name])]
        lengths = dict.fromkeys(graph.inputs, length)
        self.lengths = dict.fromkeys(graph.inputs, length)
        passing = {}
        if is_ordered:
            key = {name: graph.classes_of[name][0] for name in graph.inputs}
            passing = {
                (name, key[name]): tuple((o, key[o]) for o in graph.inputs if o != name)
                for name in graph.inputs
            }
        self.loop = Discards(lengths, passing)
        self.grid, self.states = Grid((1,) * len(graph.classes)), {}
        self.found, self.lost, self.dropped, self.n_kept, self.n_bytes, self.at = (
            [],
            [],
            0,
            [],
            [],
            0,
        )

    def batch(self, *, n_failed=0, grid=None):
        """Join the rows of the next instants; so many attempts fail before."""
        until, names = self.at + BATCH, self.graph.inputs
        seen = self.at - 1 if self.at else ALWAYS
        grid, plan = grid or self.grid, None
        before = buckets_for(grid, self.grid, self.states, self.graph.classes_of)
        for _ in range(n_failed + 1):
            # As a batch that runs again does: what was learned is in the state that it starts from.
            told = msgspec.json.encode(self.loop.state())
            self.loop.restore(msgspec.json.decode(told, type=DiscardState))
            found, after, reports, below = [], {}, [], self.loop.below()
            plan = BatchPlan(
                0,
                self.graph,
                written_orders(self.graph),
                self.lengths,
                {},
                dict.fromkeys(names, seen),
                grid=grid,
                moved=Moved.from_grids(self.grid, self.states, grid),
                kept_for=self.loop.kept_for,
                below=below,
                tops=self.loop.orders.tops,
                leaving=frozenset((PASSED, name) for name in below),
            )
            for bucket in range(grid.n_buckets):
                task = BucketBatch(plan, self.place, before.get(bucket, BucketState()), bucket)
                found += task.run(self.arrived(until, grid, bucket))
                told = msgspec.json.encode(task.report.after)
                after[bucket] = msgspec.json.decode(told, type=BucketState)
                reports.append(task.report)
        self.grid, self.states = grid, after
        self.found += found
        lost = merged(each.lost for each in reports)
        self.loop.step(lost, [each.disorder for each in reports], seen if self.at else None)
        self.lost.append(lost)
        runs = [run for each in after.values() for files in each.runs.values() for run in files]
        gone = [run for each in after.values() for files in each.dropped.values() for run in files]
        self.n_kept.append(sum(run.n_rows for run in runs))
        self.n_bytes.append(sum(run.n_bytes for run in (*runs, *gone)))
        self.at = until

    def arrived(self, until, grid, bucket):
        """The rows of a bucket, by input."""
        rows = {}
        for name, (at, *codes) in self.rows.items():
            mine = (at >= self.at) & (at < until)
            by_class = {
                key: of[mine] for key, of in zip(self.graph.classes_of[name], codes, strict=True)
            }
            starts = at[mine]
            end = FOREVER if self.length == FOREVER else self.length
            ends = np.full(starts.size, FOREVER) if end == FOREVER else starts + end
            numbers = pa.table({"id": np.flatnonzero(mine)})
            each = Rows(by_class, starts, ends, numbers)
            each = each.taken(np.flatnonzero(grid.holds(bucket, name, by_class, starts)))
            if len(each):
                rows[name] = each
        return rows

    def got(self):
        table = pa.concat_tables(self.found)
        columns = [table[f"{name}.id"].to_pylist() for name in self.graph.inputs]
        return Counter(zip(*columns, strict=True))

    def wanted(self):
        """All results of the rows so far, by DuckDB."""
        tables = {}
        for name, (at, *codes) in self.rows.items():
            mine = at < self.at
            keys = zip(self.graph.classes_of[name], codes, strict=True)
            columns = {f"k{key}": of[mine] for key, of in keys}
            tables[name] = pa.table({"id": np.flatnonzero(mine), "at": at[mine], **columns})
        with duckdb.connect() as base:
            for name, table in tables.items():
                base.register(name, table)
            equal = [
                f"{one}.k{key} = {other}.k{key}"
                for key, members in enumerate(self.graph.classes)
                for one, other in pairwise(sorted(members))
            ]
            ats = ", ".join(f"{name}.at" for name in tables)
            near = f"greatest({ats}) - least({ats}) <= {self.length}"
            ids = ", ".join(f"{name}.id" for name in tables)
            where = " AND ".join([*equal, near])
            text = f"SELECT {ids} FROM {', '.join(tables)} WHERE {where}"
            return Counter(base.sql(text).fetchall())

    @property
    def n_most(self):
        return sum(each.n_most for lost in self.lost for each in lost.values())

    @property
    def n_about(self):
        return sum(each.n_about for lost in self.lost for each in lost.values())


CALM, WILD = [300] * 24, [2_000] * 12


@pytest.mark.parametrize(
    ("graph", "length"),
    [
        (PAIR, LENGTH),
        *(
            pytest.param(graph, length, marks=pytest.mark.large)
            for graph, length in [
                (CHAIN, FOREVER),
                (PAIR, FOREVER),
                (STAR, FOREVER),
                (CHAIN, LENGTH),
                (CYCLE, FOREVER),
                (LONG_CHAIN, FOREVER),
            ]
        ),
    ],
)
def test_nothing_is_missed_where_k_holds_and_what_a_jump_costs_is_bounded(graph, length, tmp_path):
    streams = Streams(graph, tmp_path, [*CALM, *WILD, *CALM[:8]], length=length)
    for number in range(len(CALM)):
        streams.batch(n_failed=number % 2)
    assert streams.got() == streams.wanted()
    assert streams.n_most == 0
    k = 300 * 1.12 * 17 / 16 + 2 * BATCH
    assert streams.n_kept[-1] <= len(graph.inputs) * k
    for number in range(len(WILD) + 8):
        streams.batch()
        if number % 6 == 0:
            found, wanted = streams.got(), streams.wanted()
            assert not found - wanted
            assert (wanted - found).total() <= streams.n_most
    n_missing = (streams.wanted() - streams.got()).total()
    assert 0 < n_missing <= streams.n_most, "k was not known to jump"
    if len(graph.classes) == 1:
        assert streams.n_most == n_missing == streams.n_about, "keys that are listed are exact"


@pytest.mark.large
@pytest.mark.parametrize("graph", [PAIR, CHAIN], ids=["pair", "chain"])
def test_sketches_never_count_too_few(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(dropped_rows, "MOST_LISTED", 50)
    streams = Streams(graph, tmp_path, [*CALM, *WILD], length=FOREVER, alike=(2,))
    for _ in range(len(CALM) + len(WILD)):
        streams.batch()
    found, wanted = streams.got(), streams.wanted()
    assert not found - wanted
    n_missing = (wanted - found).total()
    assert 0 < n_missing <= streams.n_most


@pytest.mark.large
def test_the_state_of_streams_without_windows_is_bounded(tmp_path):
    streams = Streams(PAIR, tmp_path, [300] * 50, length=FOREVER)
    for _ in range(50):
        streams.batch()
    assert max(streams.n_kept[20:]) <= 2 * (300 * 1.15 + 2 * BATCH)
    assert streams.got() == streams.wanted()


@pytest.mark.large
def test_buckets_and_a_batch_that_runs_again_change_nothing_of_what_is_dropped(tmp_path):
    ks, every = [*[300] * 20, *[1_500] * 6], []
    for number, grids in enumerate(([(1,)], [(3,)], [(1,), (4,), (2,)])):
        streams = Streams(PAIR, tmp_path / str(number), ks)
        for batch in range(len(ks)):
            streams.batch(n_failed=(batch + number) % 3 == 0, grid=Grid(grids[batch % len(grids)]))
        every.append((streams.got(), streams.n_most, streams.loop.kept_for))
    assert every[0] == every[1]
    assert every[0][0] == every[2][0]
    assert every[0][1] > 0


@pytest.mark.large
def test_another_grid_of_a_chain_takes_along_what_is_known_of_dropped_rows(tmp_path):
    ks = [*CALM, *WILD, *CALM[:6]]
    streams = Streams(CHAIN, tmp_path, ks)
    grids = [(1, 1), (2, 1), (1, 3), (2, 2)]
    for number in range(len(ks)):
        streams.batch(grid=Grid(grids[number // 3 % len(grids)]))
    found, wanted = streams.got(), streams.wanted()
    assert not found - wanted
    assert 0 < (wanted - found).total() <= streams.n_most


@pytest.mark.large
def test_keys_that_others_have_passed_are_dropped_without_any_k_in_time(tmp_path):
    streams = Streams(PAIR, tmp_path, [300] * 45, length=FOREVER, is_ordered=True)
    for _ in range(45):
        streams.batch()
    assert max(streams.n_kept[30:]) <= 2 * 8 * BATCH
    assert streams.got() == streams.wanted()
    assert streams.n_most == 0

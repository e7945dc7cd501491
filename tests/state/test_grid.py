"""Grids: every result in one bucket, whatever is split, moved, retried or late."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, product
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.joins.graph import JoinGraph
from eddyline.joins.grid import chosen_grid
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.plan import BatchPlan
from eddyline.joins.view import JoinPart
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import N_BINS, Grid, Moved, Split, bins_of, buckets_for
from eddyline.state.late_rows import read_late, settle_late
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from tests.joins.operator.test_bucket import Operator, bag, is_supported
from tests.joins.plans import split_grids
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import results, with_time

CHAIN = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))
ONE_KEY = JoinGraph(("r", "s", "t"), (frozenset("rst"),))

PAIRS = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st"), frozenset("rt")))


@pytest.mark.spark
def test_bins_are_those_of_spark(spark):
    codes = [0, 1, -1, 2**63 - 1, -(2**63), 42, 10**15, -7]
    df = spark.createDataFrame([(code,) for code in codes], "code BIGINT")
    said = df.selectExpr(f"pmod(xxhash64(code), {N_BINS}) AS bin").toArrow()["bin"].to_pylist()
    assert bins_of(np.array(codes)).tolist() == said


CODES = st.lists(st.sampled_from([0, 1, 7, -5, 2**63 - 1]), min_size=1, max_size=5)
STARTS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=5, max_size=5)


@st.composite
def cases(draw):
    """A graph, a grid for it that splits some bins of the codes, and rows of each input."""
    graph = draw(st.sampled_from([ONE_KEY, CHAIN, PAIRS]))
    rows = {}
    for name in graph.inputs:
        starts = np.array(draw(STARTS))
        codes = {key: np.array((draw(CODES) * 5)[:5]) for key in graph.classes_of[name]}
        rows[name] = codes, starts
    return graph, draw(split_grids(graph)), rows


@given(case=cases())
def test_rows_of_a_result_meet_in_one_bucket(case):
    graph, grid, rows = case
    held = [
        {name: grid.holds(bucket, name, *of) for name, of in rows.items()}
        for bucket in range(grid.n_buckets)
    ]
    for at in product(range(5), repeat=len(rows)):
        chosen = dict(zip(rows, at, strict=True))
        keys = [
            {int(rows[name][0][key][chosen[name]]) for name in members}
            for key, members in enumerate(graph.classes)
        ]
        if all(len(each) == 1 for each in keys):
            assert sum(all(each[name][row] for name, row in chosen.items()) for each in held) == 1


@given(case=cases())
def test_each_row_is_once_where_it_is_counted(case):
    graph, grid, rows = case
    for name, of in rows.items():
        held = [grid.holds(bucket, name, *of) for bucket in range(grid.n_buckets)]
        first = [grid.is_first(bucket, name, *of) for bucket in range(grid.n_buckets)]
        assert (sum((a & b).astype(int) for a, b in zip(held, first, strict=True)) == 1).all()
        once = list(grid.once(graph.classes_of[name]))
        assert len(set(once)) == len(once)
        assert np.any([held[bucket] for bucket in once], axis=0).all()
        if not grid.splits:
            assert sum(held[bucket].astype(int) for bucket in once).tolist() == [1] * 5


@given(case=cases())
def test_a_grid_goes_through_json(case):
    _, grid, _ = case
    assert msgspec.json.decode(msgspec.json.encode(grid), type=Grid) == grid


def test_parts_of_splits_do_not_begin_in_one_place():
    first = [Split(0, at, (("r", 2),)).part(place=5, size=8) for at in range(8)]
    assert sorted(first) == list(range(8))


class MovingOperator(Operator):
    """All buckets of a join; another grid now and then, and rows that come too late."""

    def __init__(self, case, draw, folder):
        super().__init__(case, draw, folder)
        self.manifests = ManifestFolder(fs.LocalFileSystem(), folder)
        self.part = JoinPart(self.drawn_grid())
        self.n_rows, self.n_late, self.bins, self.wanted = Counter(), Counter(), Counter(), []
        self.lateness = draw(st.sampled_from([case.lateness, 0]))

    def drawn_grid(self):
        return self.draw(split_grids(self.graph, codes=(0, 1, 2)))

    def lows(self):
        return {
            name: low + self.case.lateness - self.lateness if low > ALWAYS else low
            for name, low in super().lows().items()
        }

    def batch(self, tables, *, number):
        grid = self.drawn_grid() if self.draw(st.booleans()) else self.part.grid
        inputs = self.inputs(tables, is_first=number == 0)
        lows = self.lows()
        self.wanted.append(self.on_time(tables, lows))
        plan = BatchPlan(
            number, self.graph, self.orders(), self.lengths(), lows, self.horizons(),
            grid=grid, moved=Moved.from_grids(self.part.grid, self.part.buckets, grid),
        )  # fmt: skip
        part, after, late_files = self.part, {}, []
        windows = buckets_for(grid, part.grid, part.buckets, self.graph.classes_of)
        for bucket in range(grid.n_buckets):
            mine = {}
            for name, rows in inputs.items():
                held = np.flatnonzero(grid.holds(bucket, name, rows.codes, rows.starts))
                mine |= {name: rows.taken(held)} if held.size else {}
            for _ in range(self.draw(st.sampled_from([1, 1, 1, 2]))):  # an attempt runs again
                before = windows.get(bucket, BucketState())
                task = BucketBatch(plan, self.manifests.place("join"), before, bucket)
                found = list(task.run(mine))
            self.found += found
            self.n_rows.update(task.report.n_rows)
            self.n_late.update(task.report.n_late)
            self.bins.update({key: int(of.sum()) for key, of in task.report.bins.items()})
            assert task.report.n_here >= sum(task.report.n_rows.values())
            after[bucket] = task.report.after
            late_files += task.report.late_files
        for name, rows in inputs.items():
            if len(rows):
                self.latest[name] = max(self.latest.get(name, ALWAYS), int(rows.starts.max()))
        settle_late(self.manifests.place("join"), number, late_files)
        self.manifests.commit(number, "drawn", {"join": JoinPart(grid, after).packed()})
        self.part = self.manifests.latest().parts["join"].read(JoinPart)
        return inputs, lows

    def on_time(self, tables, lows):
        """The rows of each input that are not late."""
        found = {}
        for each in self.query.inputs:
            time, arrived = self.case.times[each.stream], tables.get(each.stream)
            if time is not None and arrived is not None:
                us = with_time(arrived, time)["_us"]
                found[each.name] = arrived.filter(pc.greater_equal(us, lows[each.name]))
        return found


def streams_apart(case):
    """The case with a stream of its own for each input, so that each has its own late rows."""
    inputs = tuple(replace(each, stream=each.name) for each in case.query.inputs)
    stream_of = {each.name: each.stream for each in case.query.inputs}
    return replace(
        case,
        query=replace(case.query, inputs=inputs),
        tables={name: case.tables[of] for name, of in stream_of.items()},
        times={name: case.times[of] for name, of in stream_of.items()},
        batches=tuple(
            {name: each[of] for name, of in stream_of.items() if of in each}
            for each in case.batches
        ),
    )


@pytest.mark.large
@given(case=join_cases(max_inputs=4).filter(is_supported).map(streams_apart), data=st.data())
def test_any_grids_give_the_definition_and_count_each_row_once(case, data):
    n_rows, n_late = Counter(), Counter()
    with TemporaryDirectory() as folder:
        operator = MovingOperator(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            inputs, lows = operator.batch(tables, number=number)
            for name, rows in inputs.items():
                late = int((rows.starts < lows.get(name, ALWAYS)).sum())
                n_late[name] += late
                n_rows[name] += len(rows) - late
        written = Counter()
        for name in operator.graph.inputs:
            there = read_late(operator.manifests.place("join"), name, FOREVER)
            written[name] = 0 if there is None else there.num_rows
        wholes = dict(case.tables)
        for name, time in case.times.items():
            if time is not None:
                parts = [each[name] for each in operator.wanted if name in each]
                wholes[name] = pa.concat_tables([case.tables[name].slice(0, 0), *parts])
        assert operator.results() == bag(results(case.query, wholes, case.times))
    assert +operator.n_rows == +n_rows
    assert +operator.n_late == +n_late == +written
    counted = {(name, key) for name in n_rows for key in operator.graph.classes_of[name]}
    assert +operator.bins == +Counter({each: n_rows[each[0]] for each in counted})


def test_a_hot_key_is_split_and_every_bucket_finds_its_part(tmp_path):
    """Half the rows have one key: buckets share its results."""
    graph, rng, n = JoinGraph(("s", "t"), (frozenset("st"),)), np.random.default_rng(19), 4_000
    codes = {name: np.where(rng.random(n) < 0.5, -1, rng.integers(0, n, n)) for name in "st"}
    starts = np.arange(n) * 1_000
    bins = {(name, 0): np.bincount(bins_of(of), minlength=240) for name, of in codes.items()}
    grids = Grid((8,)), chosen_grid(graph, 8, bins, timed="st")
    assert grids[1].splits
    folder, orders = ManifestFolder(fs.LocalFileSystem(), str(tmp_path)), {"s": ("t",), "t": ("s",)}
    before, loads, everything = JoinPart(grids[0]), [], Counter()
    for number, grid in enumerate((*grids, grids[1], grids[0])):
        at = slice(number * n // 4, (number + 1) * n // 4)
        plan = BatchPlan(
            number, graph, orders, dict.fromkeys("st", 20_000), grid=grid,
            moved=Moved.from_grids(before.grid, before.buckets, grid),
        )  # fmt: skip
        after, found = {}, []
        windows = buckets_for(grid, before.grid, before.buckets, graph.classes_of)
        for bucket in range(8):
            task = BucketBatch(
                plan, folder.place("join"), windows.get(bucket, BucketState()), bucket
            )
            mine = {}
            for name, of in codes.items():
                held = at.start + np.flatnonzero(grid.holds(bucket, name, {0: of[at]}, starts[at]))
                payload = pa.table({"at": held})
                mine[name] = Rows({0: of[held]}, starts[held], starts[held] + 20_000, payload)
            found.append(list(task.run(mine)))
            after[bucket] = task.report.after
        n_found = [sum(each.num_rows for each in tables) for tables in found]
        loads.append(max(n_found) / sum(n_found))
        for each in chain(*found):
            everything.update(zip(each["s.at"].to_pylist(), each["t.at"].to_pylist(), strict=True))
        before = JoinPart(grid, after)
        folder.commit(number, "half", {"join": before.packed()})
    near = np.abs(starts[:, None] - starts[None, :]) <= 20_000
    wanted = np.argwhere(near & (codes["s"][:, None] == codes["t"][None, :]))
    assert everything == Counter(map(tuple, wanted.tolist()))
    assert loads[0] > 0.9, "one bucket finds what the key joins"
    assert max(loads[1:3]) < 0.35, "each of six parts finds its own"
    assert loads[3] > 0.9

"""The operator against the definition: whatever the cuts, orders and merges, the same results."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.operator.composites import Composites
from eddyline.joins.plan import BatchPlan
from eddyline.query.query import RangeWindow, RowsWindow
from eddyline.state.bucket_state import SPARE, BucketState
from eddyline.state.grid import Grid
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun
from tests.joins.plans import place_in
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import results, with_time


def sql(text):
    return sqlglot.transpile(text, read="spark", write="duckdb")[0]


class Operator:
    """One or several buckets of a join, fed batch by batch."""

    at = "_start"

    def __init__(self, case, draw, folder):
        self.case, self.query, self.draw, self.folder = case, case.query, draw, folder
        names = tuple(each.name for each in self.query.inputs)
        self.graph = JoinGraph(names, tuple(frozenset(key.members) for key in self.query.keys))
        common = [k for k, key in enumerate(self.query.keys) if len(key.members) == len(names)]
        self.common = common[0] if common else None
        self.n_buckets = draw(st.integers(1, 3)) if common else 1
        sizes = [self.n_buckets if k == self.common else 1 for k in range(len(self.query.keys))]
        self.grid = Grid(tuple(sizes))
        self.windows = [BucketState() for _ in range(self.n_buckets)]
        self.latest, self.codes, self.found, self.reports, self.n_batches = {}, {}, [], [], 0

    def batch(self, tables, *, is_first):
        inputs = self.inputs(tables, is_first=is_first)
        plan = self.plan(self.n_batches)
        for bucket in range(self.n_buckets):
            mine = {name: self.of_bucket(name, rows, bucket) for name, rows in inputs.items()}
            self.join(plan, {name: rows for name, rows in mine.items() if len(rows)}, bucket)
        self.n_batches += 1
        for name, rows in inputs.items():
            if len(rows):
                latest = self.latest.get(name, ALWAYS)
                self.latest[name] = max(latest, int(rows.starts.max()))

    def plan(self, number):
        """How a batch is joined."""
        lengths, lows, horizons = self.lengths(), self.lows(), self.horizons()
        at = number, self.graph, self.orders(), lengths, lows, horizons
        return BatchPlan(*at, grid=self.grid, **self.how())

    def join(self, plan, mine, bucket):
        """Join the rows of a bucket."""
        task = BucketBatch(plan, place_in(self.folder), self.windows[bucket], bucket)
        self.found += task.run(mine)
        self.windows[bucket] = task.report.after
        self.reports.append(task.report)

    def inputs(self, tables, *, is_first):
        """The rows of a batch by input, of those that have some; of static tables in the first."""
        inputs = {}
        for each in self.query.inputs:
            is_static = self.case.times[each.stream] is None
            if is_static and not is_first:
                continue
            arrived = self.case.tables[each.stream] if is_static else tables.get(each.stream)
            if arrived is not None and arrived.num_rows:
                inputs[each.name] = self.rows(each, arrived)
        return inputs

    def rows(self, each, arrived):
        """The rows that can join."""
        rows = self.marked(each, arrived)
        return replace(rows.taken(np.flatnonzero(rows.passes)), passes=None)

    def marked(self, each, arrived):
        """All rows that have an event time, and whether they can join."""
        time = self.case.times[each.stream]
        rows = with_time(arrived, time)
        keys = [k for k, key in enumerate(self.query.keys) if each.name in key.members]
        members = [(k, sql(text)) for k in keys for text in self.query.keys[k].members[each.name]]
        chosen = ", ".join(f"{text} AS _m{at}" for at, (_, text) in enumerate(members))
        own = " AND ".join(sql(f"({each.text})") for each in each.predicates) or "TRUE"
        text = f"SELECT *, {chosen}, coalesce({own}, FALSE) AS _own FROM rows"
        rows = duckdb.sql(text).to_arrow_table()
        values = {}
        for at, (k, _) in enumerate(members):
            values.setdefault(k, []).append(rows[f"_m{at}"].to_pylist())
        passes = self.alive(values, rows.num_rows) & np.array(rows["_own"].to_pylist(), np.bool_)
        codes = {
            k: np.array(
                [self.codes.setdefault(value, len(self.codes)) for value in parts[0]], np.int64
            )
            for k, parts in values.items()
        }
        starts = rows["_us"].to_numpy().astype(np.int64)
        if time is None:
            starts = np.full(rows.num_rows, ALWAYS)
        is_range = isinstance(each.window, RangeWindow) and time is not None
        ends = starts + each.window.length if is_range else np.full(starts.size, FOREVER)
        return Rows(codes, starts, ends, rows.select(arrived.column_names), passes)

    @staticmethod
    def alive(values, n_rows):
        said = [
            all(
                parts[0][row] is not None and all(part[row] == parts[0][row] for part in parts)
                for parts in values.values()
            )
            for row in range(n_rows)
        ]
        return np.array(said, np.bool_)

    def of_bucket(self, name, rows, bucket):
        if self.common is None:
            return rows
        held = self.grid.holds(bucket, name, rows.codes, rows.starts)
        return rows.taken(np.flatnonzero(held))

    def orders(self):
        """Any legal order for each input, another one for each batch."""
        orders = {}
        for first in self.graph.inputs:
            order = []
            while reachable := self.graph.reachable((first, *order)):
                order.append(self.draw(st.sampled_from(sorted(reachable))))
            orders[first] = tuple(order)
        return orders

    def how(self):
        """More of the plan of a batch."""
        return {}

    def lengths(self):
        return {
            each.name: each.window.length
            if isinstance(each.window, RangeWindow) and self.case.times[each.stream]
            else FOREVER
            for each in self.query.inputs
        }

    def lows(self):
        return {
            each.name: self.latest[each.name] - self.case.lateness
            if each.name in self.latest
            else ALWAYS
            for each in self.query.inputs
            if self.case.times[each.stream] is not None
        }

    def horizons(self):
        lows = self.lows()
        return {
            each.name: min((low for name, low in lows.items() if name != each.name), default=None)
            for each in self.query.inputs
        }

    def results(self):
        """All results so far, as the query projects them."""
        if not self.found:
            return Counter()
        found = pa.concat_tables(self.found)
        columns = {}
        for each in self.query.inputs:
            mine = [name for name in found.column_names if name.startswith(f"{each.name}.")]
            parts = [found[name].combine_chunks() for name in mine]
            names = [name.removeprefix(f"{each.name}.") for name in mine]
            columns[each.name] = pa.StructArray.from_arrays(parts, names)
        conditions = " AND ".join(sql(f"({each})") for each in self.query.residual) or "TRUE"
        projected = ", ".join(map(sql, self.query.projections))
        whole = duckdb.from_arrow(pa.table(columns | {"_at": found[self.at]}))
        text = f"SELECT {projected}, _at FROM whole WHERE {conditions}"
        return bag(whole.query("whole", text).to_arrow_table())


def bag(table):
    return Counter(zip(*[column.to_pylist() for column in table.columns], strict=True))


def is_supported(case):
    windows = [each.window for each in case.query.inputs]
    return case.query.emits == "istream" and not any(isinstance(w, RowsWindow) for w in windows)


@pytest.mark.large
@given(case=join_cases().filter(is_supported), data=st.data())
def test_any_cut_and_any_order_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        operator = Operator(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, is_first=number == 0)
        assert operator.results() == bag(results(case.query, case.tables, case.times))


@pytest.mark.parametrize("length", [40, 1_000, FOREVER])
def test_runs_are_merged_and_expire_without_a_trace(length, tmp_path):
    rng = np.random.default_rng(3)
    graph = JoinGraph(("s", "t"), (frozenset("st"),))
    orders, lengths = {"s": ("t",), "t": ("s",)}, {"s": length, "t": length}
    times = np.arange(2_000)
    keys = {name: rng.integers(0, 50, times.size) for name in "st"}

    def rows(name, low, high):
        starts = times[low:high]
        ends = np.full(starts.size, FOREVER) if length == FOREVER else starts + length
        return Rows({0: keys[name][low:high]}, starts, ends, pa.table({"at": starts}))

    before, found, merged = BucketState(), [], 0
    for low in range(0, 2_000, 50):
        horizon = ALWAYS if low == 0 else low - 1
        plan = BatchPlan(0, graph, orders, lengths, {}, {"s": horizon, "t": horizon})
        task = BucketBatch(plan, place_in(tmp_path), before)
        found += task.run({name: rows(name, low, low + 50) for name in "st"})
        merged += any(each.n_rows > 50 for each in task.report.after.runs["s"])
        before = task.report.after
    kept = sum(each.n_rows for each in before.runs["s"])
    if length == FOREVER:
        assert kept == 2_000
        assert len(before.runs["s"]) < 10
    else:
        # A row stays as long as its run does: a batch, or a quarter of the window more.
        assert length <= kept <= length * (1 + SPARE) + 100
    assert (merged > 0) is (length != 40)
    pairs = pa.concat_tables(found)
    got = Counter(zip(pairs["s.at"].to_pylist(), pairs["t.at"].to_pylist(), strict=True))
    apart = np.abs(times[:, None] - times[None, :]) <= length
    wanted = np.argwhere(apart & (keys["s"][:, None] == keys["t"][None, :]))
    assert got == Counter(map(tuple, wanted.tolist()))


def test_a_key_with_most_of_the_rows_is_searched_not_walked():
    n = 200_000
    codes = np.zeros(n, np.int64)
    codes[::100] = np.arange(n // 100)
    starts = np.arange(n)
    run = SortedRun.from_rows(Rows({0: codes}, starts, starts + 3, pa.table({"at": starts})))
    first = Composites.from_rows("s", run, slice(0, n), 0)
    found = first.join("t", [run], [0])
    near = sum(int((codes[: n - gap] == codes[gap:]).sum()) for gap in range(1, 4))
    assert len(found) == n + 2 * near

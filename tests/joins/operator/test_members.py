"""Queries that share windows: each finds what it finds alone, whatever the others need."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.bucket import MemberBatch
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.plan import MARKS, MEMBER, BatchPlan, JoinProfile, MemberPlan
from eddyline.options import JoinOptions
from eddyline.query.predicates import SqlPredicate
from eddyline.query.query import RangeWindow, UnboundedWindow
from eddyline.state.bucket_state import BucketState
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from tests.joins.operator.test_bucket import Operator, bag, is_supported, sql
from tests.joins.plans import place_in
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import results

CONDITIONS = ("", "", "v > 0", "v <> 2", "k0 IS NOT NULL", "v IS NULL OR v < 2")


def drawn_member(draw, case):
    """The query of a case with its inputs in another order, other windows and other conditions."""
    inputs = []
    for each in draw(st.permutations(case.query.inputs)):
        window = each.window
        if case.times[each.stream] is not None:
            length = draw(st.sampled_from([None, 0, 1, 3, 8])) if draw(st.booleans()) else ""
            if length != "":
                window = UnboundedWindow() if length is None else RangeWindow(length * 1_000_000)
        condition = draw(st.sampled_from(CONDITIONS))
        own = (SqlPredicate(condition),) if condition else ()
        inputs.append(replace(each, window=window, predicates=own))
    return replace(case.query, inputs=tuple(inputs))


class SharedOperator(Operator):
    """One or several buckets that several queries share."""

    def __init__(self, case, draw, folder):
        self.members = [drawn_member(draw, case) for _ in range(draw(st.integers(2, 4)))]
        super().__init__(case, draw, folder)
        self.lanes = [self.plan_of(number) for number in range(len(self.members))]

    def own(self, number, name):
        """The input of a member."""
        return next(each for each in self.members[number].inputs if each.name == name)

    def length(self, window, name):
        is_range = isinstance(window, RangeWindow) and self.case.times[name] is not None
        return window.length if is_range else FOREVER

    def lengths(self):
        return {
            each.name: max(
                self.length(self.own(number, each.name).window, each.stream)
                for number in range(len(self.members))
            )
            for each in self.query.inputs
        }

    def plan_of(self, number):
        member, longest = self.members[number], self.lengths()
        graph = JoinGraph(tuple(each.name for each in member.inputs), self.graph.classes)
        own = {each.name: self.length(each.window, each.stream) for each in member.inputs}
        plan = MemberPlan(
            number,
            str(number),
            graph,
            {},
            {
                each.name: tuple(self.case.tables[each.stream].column_names)
                for each in member.inputs
            },
            {name: length for name, length in own.items() if length < longest[name]},
            frozenset(each.name for each in member.inputs if each.predicates),
        )
        return plan, JoinLoop(graph, JoinOptions().resolved())

    def plan(self, number):
        members = []
        for each, loop in self.lanes:
            orders = {}
            for first in each.graph.inputs:
                order = []
                while reachable := each.graph.reachable((first, *order)):
                    order.append(self.draw(st.sampled_from(sorted(reachable))))
                orders[first] = tuple(order)
            members.append(replace(each, orders=orders, probing=loop.probing()))
        at = number, self.graph, {}, self.lengths(), self.lows(), self.horizons()
        return BatchPlan(*at, grid=self.grid, members=tuple(members))

    def join(self, plan, mine, bucket):
        task = MemberBatch(plan, place_in(self.folder), self.windows[bucket], bucket)
        self.found += task.run(mine)
        self.windows[bucket] = task.report.after
        self.reports.append(task.report)
        for each, loop in self.lanes:
            loop.step(JoinProfile.of_member([task.report], each.name), plan.batch_id)

    def marked(self, each, arrived):
        rows = super().marked(replace(each, predicates=()), arrived)
        marks = np.zeros(len(rows), np.int64)
        for number in range(len(self.members)):
            own = self.own(number, each.name).predicates
            where = " AND ".join(sql(f"({one.text})") for one in own) or "TRUE"
            text = f"SELECT coalesce({where}, FALSE) AS passes FROM arrived"
            passes = np.array(duckdb.sql(text).to_arrow_table()["passes"].to_pylist(), np.bool_)
            marks |= passes.astype(np.int64) << number
        longest = self.lengths()[each.name]
        ends = rows.ends
        if self.case.times[each.stream] is not None:
            ends = np.full(len(rows), FOREVER) if longest == FOREVER else rows.starts + longest
        payload = rows.payload.append_column(MARKS, pa.array(marks))
        return Rows(rows.codes, rows.starts, ends, payload, rows.passes & (marks != 0))

    def results_of(self, number):
        """The results of a member so far, as it projects them."""
        parts = [each.filter(pa.compute.equal(each[MEMBER], number)) for each in self.found]
        whole, self.found = self.found, [each for each in parts if each.num_rows]
        self.query, before = self.members[number], self.query
        try:
            return self.results()
        finally:
            self.found, self.query = whole, before


@pytest.mark.large("draws joins of up to five inputs for up to four queries")
@given(case=join_cases().filter(is_supported), data=st.data())
def test_each_query_finds_what_it_finds_alone(case, data):
    with TemporaryDirectory() as folder:
        operator = SharedOperator(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, is_first=number == 0)
        for number, member in enumerate(operator.members):
            wanted = bag(results(member, case.tables, case.times))
            assert operator.results_of(number) == wanted, member


def test_a_shorter_window_and_a_condition_see_their_rows_alone(tmp_path):
    rng = np.random.default_rng(5)
    graph = JoinGraph(("s", "t"), (frozenset("st"),))
    times, n_keys = np.arange(2_000), 7
    keys = {name: rng.integers(0, n_keys, times.size) for name in "st"}
    marks = {name: rng.integers(1, 4, times.size) for name in "st"}
    orders, columns = {"s": ("t",), "t": ("s",)}, {"s": ("at",), "t": ("at",)}
    members = (
        MemberPlan(0, "long", graph, orders, columns, marked=frozenset("st")),
        MemberPlan(1, "short", graph, orders, columns, {"s": 5, "t": 0}, frozenset("st")),
    )

    def rows(name, low, high):
        payload = pa.table({"at": times[low:high], MARKS: marks[name][low:high]})
        return Rows({0: keys[name][low:high]}, times[low:high], times[low:high] + 300, payload)

    before, found, n_asked = BucketState(), [], Counter()
    for low in range(0, 2_000, 50):
        horizons = dict.fromkeys("st", ALWAYS if low == 0 else low - 1)
        lengths = {"s": 300, "t": 300}
        plan = BatchPlan(0, graph, {}, lengths, {}, horizons, members=members)
        task = MemberBatch(plan, place_in(tmp_path), before)
        found += task.run({name: rows(name, low, low + 50) for name in "st"})
        before = task.report.after
        for each in members:
            n_asked[each.name] += sum(len(run) for run in task._seen[each.name][0]["s"])
    pairs = pa.concat_tables(found)
    for each, (s_stays, t_stays) in zip(members, [(300, 300), (5, 0)], strict=True):
        mine = pairs.filter(pa.compute.equal(pairs[MEMBER], each.number))
        got = Counter(zip(mine["s.at"].to_pylist(), mine["t.at"].to_pylist(), strict=True))
        bits = {name: (marks[name] & (1 << each.number)) != 0 for name in "st"}
        gaps = times[:, None] - times[None, :]  # how much later s is
        met = (gaps <= t_stays) & (-gaps <= s_stays) & bits["s"][:, None] & bits["t"][None, :]
        wanted = np.argwhere(met & (keys["s"][:, None] == keys["t"][None, :]))
        assert got == Counter(map(tuple, wanted.tolist()))
    assert n_asked["short"] < n_asked["long"] / 3, "runs that left its window are left out"

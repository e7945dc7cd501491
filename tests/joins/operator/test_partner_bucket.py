"""LEFT, SEMI and ANTI joins against the definition, whatever comes how."""

from __future__ import annotations

import random
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
from eddyline.joins.operator.event_time import (
    FOUND,
    CountedPartnerBatch,
    PartnerBatch,
    decided,
    results_by_partner,
)
from eddyline.joins.operator.pipeline import BLOCK_ROWS
from eddyline.joins.plan import AgeCounts, BatchPlan, JoinWork, PartnerPlan
from eddyline.query.select.reader import read_query
from eddyline.state.event_time import EventTime
from eddyline.state.rows import FOREVER, Rows, SortedRun
from tests.joins.operator.test_bucket import bag, sql
from tests.joins.operator.test_event_time_bucket import OrderedOperator
from tests.oracles import joins
from tests.oracles.join_strategies import JoinCase
from tests.oracles.partner_strategies import partner_cases


class PartnerOperator(OrderedOperator):
    """The bucket of such a join; between batches only its manifest is kept."""

    @property
    def sides(self):
        return [each.name for each in self.query.inputs]

    def plan(self, number):
        left, right = self.sides
        time = EventTime(dict.fromkeys(self.timed, self.case.lateness))
        lengths = self.lengths()
        partners = PartnerPlan(
            kind=self.query.kind,
            left=left,
            right=right,
            length=lengths[left],
            found=None,
            time=time if right in self.timed else None,
            latest=self.latest,
        )
        if right in self.timed:
            lengths[right] = min(lengths[left] + lengths[right], FOREVER)
        return BatchPlan(
            number,
            self.graph,
            {left: (right,), right: (left,)},
            lengths,
            self.lows(),
            self.horizons(),
            grid=self.part.grid,
            partners=partners,
            order=self.order() if self.counts else None,
        )

    @property
    def counts(self):
        """Whether the second input has a window of N rows."""
        return bool(OrderedOperator.order(self).rows)

    def task(self, plan, place, before):
        return (CountedPartnerBatch if self.counts else PartnerBatch)(plan, place, before)

    def rows(self, each, arrived):
        """Rows that its own conditions keep, marked; of the second input all, for their time."""
        if each.name == self.sides[0] and each.predicates:
            own = " AND ".join(sql(f"({of.text})") for of in each.predicates)
            arrived = duckdb.sql(f"FROM arrived WHERE {own}").to_arrow_table()
        return self.marked(each, arrived)

    def inputs(self, tables, *, is_first):
        inputs = super().inputs(tables, is_first=is_first)
        return {name: rows for name, rows in inputs.items() if len(rows)}

    def results(self):
        """All results so far, as the query projects them."""
        found = Counter()
        for table in self.found:
            columns = []
            for each in self.query.projections:
                name, _, column = each.partition(" AS ")[0].partition(".")
                place = f"{name}.{column}"
                is_there = place in table.column_names
                columns.append(table[place] if is_there else pa.nulls(table.num_rows))
            found += bag(pa.table(columns, names=list(map(str, range(len(columns))))))
        return found

    def answered(self):
        """The instant before which rows that left their window are decided."""
        right = self.sides[1]
        return self.lows().get(right, FOREVER)


def wanted(case, until=FOREVER):
    return bag(joins.results_by_partner(case.query, case.tables, case.times, until))


@given(case=partner_cases(conditions=False), data=st.data())
def test_any_cut_any_retry_gives_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = PartnerOperator(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, number=number)
        assert operator.results() == wanted(case, operator.answered())


@given(case=partner_cases(conditions=False, counted=True), data=st.data())
def test_any_cut_of_rows_that_windows_count_gives_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = PartnerOperator(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, number=number)
        assert operator.results() == wanted(case, operator.answered())


@given(case=partner_cases(conditions=False), data=st.data())
def test_all_rows_at_once_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = PartnerOperator(case, data.draw, folder)
        everything = {name: rows for name, rows in case.tables.items() if case.times[name]}
        inputs = operator.inputs(everything, is_first=True)
        operator.found += results_by_partner(operator.plan(0), inputs)
        assert operator.results() == wanted(case)


class TieredPartners(PartnerOperator):
    """Rows are hot for another time in each batch, or there is no cold tier."""

    def plan(self, number):
        left, right = self.sides
        looked_in = [right] if self.query.kind != "left" else [left, right]
        times = st.sampled_from([None, 0, 1, 3])
        can = [name for name in looked_in if name in self.timed and self.is_ending(name)]
        spans = {name: self.draw(times) for name in can if right in self.timed}
        plan = PartnerOperator.plan(self, number)
        return replace(plan, spans=spans, measures=self.draw(st.booleans()))

    def is_ending(self, name):
        return self.lengths()[name] < FOREVER or (name == self.sides[1] and self.counts)


@pytest.mark.large
@given(case=partner_cases(conditions=False), data=st.data())
def test_any_tiers_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = TieredPartners(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, number=number)
        assert operator.results() == wanted(case, operator.answered())


LENGTH, LATENESS, N_ROWS = 20, 3, 150
COLUMNS = {name: {"ts": "bigint", "k": "bigint", "v": "bigint"} for name in "st"}
TEXTS = {
    "left": "SELECT s.v, t.v AS w FROM s [{}] LEFT JOIN t [{}] ON s.k = t.k",
    "semi": "SELECT s.v FROM s [{}] WHERE EXISTS (SELECT 1 FROM t [{}] WHERE t.k = s.k)",
    "anti": "SELECT s.v FROM s [{}] WHERE NOT EXISTS (SELECT 1 FROM t [{}] WHERE t.k = s.k)",
}


def stream(drawn, name):
    """Rows in an order in which none is late: times tie, and some keys are NULL."""
    times = sorted(drawn.randrange(N_ROWS) for _ in range(N_ROWS))
    times.sort(key=lambda at: at + drawn.randrange(LATENESS + 1))
    keys = [drawn.choice([None, *range(15)]) for _ in times]
    values = [f"{name}{at}" for at in range(N_ROWS)]
    return pa.table({"ts": times, "k": pa.array(keys, pa.int64()), "v": values})


def cut(drawn, tables, sizes):
    """Batches of either stream or of both, each of so many rows or of none."""
    places, batches = dict.fromkeys(tables, 0), []
    while any(places[name] < N_ROWS for name in tables):
        batch = {}
        for name, rows in tables.items():
            n = drawn.choice(sizes)
            batch[name] = rows.slice(places[name], n)
            places[name] += n
        batches.append(batch)
    return tuple(batches)


class HotForOne(PartnerOperator):
    """Rows of the second input are hot for 1 µs; the reports of all tasks are kept."""

    def plan(self, number):
        return replace(PartnerOperator.plan(self, number), spans={"t": 1})

    def task(self, plan, place, before):
        self.newest = PartnerOperator.task(self, plan, place, before)
        return self.newest


@pytest.mark.parametrize("kind", sorted(TEXTS))
@pytest.mark.parametrize("window", [f"RANGE {LENGTH} MICROSECONDS", "ROWS 60"])
def test_partners_are_found_cold_and_the_newest_says_how_old_they_get(tmp_path, kind, window):
    drawn, windows = random.Random(kind), [f"RANGE {LENGTH} MICROSECONDS", window]
    tables = {name: stream(drawn, name) for name in "st"}
    query = read_query(TEXTS[kind].format(*windows), COLUMNS)
    batches = cut(drawn, tables, [3, 0, 9])
    case = JoinCase(query, tables, dict.fromkeys("st", "ts"), LATENESS, batches)
    operator, counts = HotForOne(case, lambda _: 0, str(tmp_path)), AgeCounts()
    for number, batch in enumerate(batches):
        operator.batch(batch, number=number)
        counts.add(operator.newest.report.ages.get("t", AgeCounts()))
    assert operator.results() == wanted(case, operator.answered())
    assert 0 < counts.n_cold < counts.n_pairs
    n_older = sum(counts.bins.values())
    assert counts.n_cold <= n_older if kind == "left" else n_older < counts.n_pairs


LENGTHS = [(LENGTH, 5), (5, LENGTH), (0, 0), (3, FOREVER)]
SIZES = [[0, 1], [0, 0, 40], [3, 0, 9], [N_ROWS]]


@pytest.mark.large
@pytest.mark.parametrize(
    ("kind", "lengths", "sizes"),
    [
        (sorted(TEXTS)[(i + j) % 3], lengths, sizes)
        for i, lengths in enumerate(LENGTHS)
        for j, sizes in enumerate(SIZES)
    ],
)
def test_long_runs_give_the_definition_and_keep_little(tmp_path, kind, lengths, sizes):
    """One stream or the other is ahead; each batch is tried twice."""
    drawn = random.Random(f"{kind}{lengths}{sizes}")
    tables = {name: stream(drawn, name) for name in "st"}
    windows = ["UNBOUNDED" if of == FOREVER else f"RANGE {of} MICROSECONDS" for of in lengths]
    query = read_query(TEXTS[kind].format(*windows), COLUMNS)
    batches = cut(drawn, tables, sizes)
    case = JoinCase(query, tables, dict.fromkeys("st", "ts"), LATENESS, batches)
    operator = PartnerOperator(case, lambda _: 1, str(tmp_path))
    for number, batch in enumerate(batches):
        operator.batch(batch, number=number)
    assert operator.results() == wanted(case, operator.answered())
    state = operator.part.buckets[0]
    waiting = sum(file.n_rows for file in state.waiting.get("s", ()))
    kept = sum(file.n_rows for files in state.runs.values() for file in files)
    if len(batches) > 100 and FOREVER not in lengths:
        assert waiting < 60, "rows that were decided are let go"
        assert kept < 120
    for file in (file for files in state.waiting.values() for file in files):
        assert file.last_end >= operator.answered() - lengths[0]


A_ROW = pytest.mark.large("300 batches of a row, each of which is tried twice")


@pytest.mark.parametrize("kind", sorted(TEXTS))
@pytest.mark.parametrize("window", ["ROWS 1", "ROWS 12", "PARTITION BY k ROWS 2"])
@pytest.mark.parametrize("sizes", [pytest.param([0, 1], marks=A_ROW), [3, 0, 9]])
def test_long_runs_over_counted_rows_give_the_definition_and_keep_little(
    tmp_path, kind, window, sizes
):
    """A row waits for its partners when these have left long ago; each batch is tried twice."""
    drawn = random.Random(f"{kind}{window}{sizes}")
    tables = {name: stream(drawn, name) for name in "st"}
    query = read_query(TEXTS[kind].format(f"RANGE {LENGTH} MICROSECONDS", window), COLUMNS)
    batches = cut(drawn, tables, sizes)
    case = JoinCase(query, tables, dict.fromkeys("st", "ts"), LATENESS, batches)
    operator = PartnerOperator(case, lambda _: 1, str(tmp_path))
    for number, batch in enumerate(batches):
        operator.batch(batch, number=number)
    found = operator.results()
    assert found == wanted(case, operator.answered())
    assert found.total() > 10
    state = operator.part.buckets[0]
    assert sum(file.n_rows for file in state.waiting["s"]) < 60
    assert sum(file.n_rows for files in state.runs.values() for file in files) < 120


def test_a_partner_that_a_longer_lateness_lets_in_is_late_once_its_row_is_decided(tmp_path):
    """A restart with more lateness does not take an answer back."""
    query = read_query(TEXTS["left"].format(*["RANGE 5 MICROSECONDS"] * 2), COLUMNS)
    rows = {"ts": [0], "k": [1], "v": ["a"]}
    first = {"s": pa.table(rows), "t": pa.table({"ts": [10], "k": [2], "v": ["b"]})}
    case = JoinCase(query, first, dict.fromkeys("st", "ts"), 0, ())
    operator = PartnerOperator(case, lambda _: 0, str(tmp_path))
    operator.batch(first, number=0)
    assert operator.results() == {("a", None): 1}
    operator.case = replace(case, lateness=20)
    operator.batch({"t": pa.table(rows)}, number=1)
    assert operator.results() == {("a", None): 1}


KIND = pa.list_(pa.struct([("v", pa.int64())]))


def of_one_key(n_rows):
    starts = np.zeros(n_rows, np.int64)
    return Rows({0: starts}, starts, starts, pa.table({"v": range(n_rows)}))


def test_rows_that_many_may_be_partners_of_come_in_pieces():
    graph = JoinGraph(("s", "t"), (frozenset("st"),))
    asked = PartnerPlan("anti", "s", "t", 0, KIND)
    due, runs = of_one_key(300), [SortedRun.from_rows(of_one_key(n)) for n in (400, 600)]
    found = list(decided(asked, graph, [due], runs, JoinWork()))
    assert max(table.num_rows for table in found) == BLOCK_ROWS // 1000
    whole = pa.concat_tables(found)
    assert sorted(whole["s.v"].to_pylist()) == [*range(300)]
    wanted = Counter([*range(400), *range(600)])
    for lists in whole[FOUND].to_pylist():
        assert Counter(each["v"] for each in lists) == wanted


@pytest.mark.parametrize(("kind", "wanted"), [("semi", [300]), ("anti", [0])])
def test_one_partner_is_enough_where_no_condition_is_asked(kind, wanted):
    graph, work = JoinGraph(("s", "t"), (frozenset("st"),)), JoinWork()
    asked = PartnerPlan(kind, "s", "t", 0, None)
    found = decided(asked, graph, [of_one_key(300)], [SortedRun.from_rows(of_one_key(1000))], work)
    assert [table.num_rows for table in found] == wanted
    assert work.probe("s", "t").n_out == 300, "each found one, and no more were looked for"

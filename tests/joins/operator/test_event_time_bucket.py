"""Windows that need order, DSTREAM and RSTREAM against the definition, whatever comes how."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.event_time import OrderedBatch, latest_after, results_of_all
from eddyline.joins.plan import BatchPlan
from eddyline.joins.view import InputsPart, JoinPart
from eddyline.query.query import RangeWindow, RowsWindow
from eddyline.state.bucket_state import BucketState
from eddyline.state.event_time import EventTime, OrderPlan
from eddyline.state.grid import Grid
from eddyline.state.late_rows import read_late
from eddyline.state.manifest import ManifestFolder, StatePart
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from tests.joins.operator.test_bucket import Operator, bag
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import results


def parts_of(part, latest):
    """The state of a join and of its inputs, as a manifest holds it."""
    return {"join": part.packed(), "inputs": StatePart.from_content(InputsPart(latest), ())}


def read_parts(manifest):
    """The state of a join, and the latest event times of its inputs."""
    parts = manifest.parts
    return parts["join"].read(JoinPart), parts["inputs"].read(InputsPart).latest


class OrderedOperator(Operator):
    """The bucket of a join that needs order; between batches only its manifest is kept."""

    at = "_at"

    def __init__(self, case, draw, folder):
        super().__init__(case, draw, folder)
        self.manifests = ManifestFolder(fs.LocalFileSystem(), folder)
        self.part, self.latest = JoinPart(Grid((1,) * len(self.query.keys))), {}
        self.timed = [
            each.name for each in self.query.inputs if case.times[each.stream] is not None
        ]

    def order(self):
        by_name = {each.name: each for each in self.query.inputs}
        rows = {
            name: by_name[name].window
            for name in self.timed
            if isinstance(by_name[name].window, RowsWindow)
        }
        columns = {
            name: tuple(self.case.tables[by_name[name].stream].column_names) for name in rows
        }
        time = EventTime(dict.fromkeys(self.timed, self.case.lateness))
        return OrderPlan(self.query.emits, time, self.latest, rows, columns, columns)

    def plan(self, number):
        lows = {
            name: self.latest[name] - self.case.lateness if name in self.latest else ALWAYS
            for name in self.timed
        }
        grid = self.part.grid
        return BatchPlan(
            number, self.graph, self.orders(), self.lengths(), lows, grid=grid, order=self.order()
        )

    def rows(self, each, arrived):
        return self.marked(each, arrived)

    def task(self, plan, place, before):
        return OrderedBatch(plan, place, before)

    def batch(self, tables, *, number):
        plan = self.plan(number)
        inputs = self.inputs(tables, is_first=number == 0)
        before, place = self.part.buckets.get(0, BucketState()), self.manifests.place("join")
        for _ in range(self.draw(st.sampled_from([0, 0, 1]))):  # an attempt that fails
            failed = self.task(plan, place, before)
            for _ in failed.run(inputs):
                if self.draw(st.booleans()):
                    break
        task = self.task(plan, place, before)
        self.found += task.run(inputs)
        latest = dict(self.latest)
        for name in self.timed:
            if name in inputs:
                newest = int(inputs[name].starts.max())
                latest[name] = max(latest.get(name, newest), newest)
        made = JoinPart(self.part.grid, {0: task.report.after})
        self.manifests.commit(number, "drawn", parts_of(made, latest))
        self.manifests = ManifestFolder(self.manifests.files, self.folder)  # a restart
        self.part, self.latest = read_parts(self.manifests.latest())
        assert (self.part, self.latest) == (made, latest)

    def answered(self):
        """The instant before which all was emitted."""
        order = self.order()
        return order.until(self.latest)


def wanted(case, until=None):
    found = results(case.query, case.tables, case.times)
    if until is not None:
        found = found.filter(pa.array(found["_at"].to_numpy() < until))
    return bag(found)


def needs_order(case):
    counts = [
        isinstance(each.window, RowsWindow) and case.times[each.stream] is not None
        for each in case.query.inputs
    ]
    return case.query.emits != "istream" or any(counts)


@pytest.mark.large
@given(case=join_cases().filter(needs_order), data=st.data())
def test_any_cut_any_order_any_retry_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = OrderedOperator(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, number=number)
        assert operator.results() == wanted(case, operator.answered())


@pytest.mark.large
@given(case=join_cases().filter(needs_order), data=st.data())
def test_all_rows_at_once_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = OrderedOperator(case, data.draw, folder)
        everything = {name: rows for name, rows in case.tables.items() if case.times[name]}
        inputs = operator.inputs(everything, is_first=True)
        operator.found += results_of_all(operator.plan(0), inputs)
        assert operator.results() == wanted(case)


class TieredOrder(OrderedOperator):
    """Rows are hot for another time in each batch, or there is no cold tier."""

    def plan(self, number):
        times = st.sampled_from([0, 1, 3, None])
        spans = {name: self.draw(times) for name in self.timed}
        plan = OrderedOperator.plan(self, number)
        return replace(plan, spans=spans, measures=self.draw(st.booleans()))


@pytest.mark.large
@given(
    case=join_cases().filter(lambda case: needs_order(case) and case.query.emits == "istream"),
    data=st.data(),
)
def test_any_tiers_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = TieredOrder(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, number=number)
        assert operator.results() == wanted(case, operator.answered())


class Feed:
    """Two streams, s and t, joined on a key, fed by hand: rows of a time, a key and a value.

    A row whose key is None cannot join.
    """

    def __init__(self, folder, windows, *, emits="istream", lateness=0, spans=None):
        self.spans = spans or {}
        self.windows, self.emits, self.lateness = windows, emits, lateness
        self.files, self.folder = fs.LocalFileSystem(), str(folder)
        self.manifests = ManifestFolder(self.files, self.folder)
        self.graph = JoinGraph(("s", "t"), (frozenset("st"),))
        self.report = None

    def rows(self, name, rows):
        times, keys, values = (list(each) for each in zip(*rows, strict=True))
        starts, window = np.array(times, np.int64), self.windows[name]
        ends = np.full(starts.size, FOREVER)
        if isinstance(window, RangeWindow):
            ends = starts + window.length
        codes = np.array([0 if key is None else key for key in keys], np.int64)
        passes = np.array([key is not None for key in keys])
        payload = pa.table({"ts": starts, "k": pa.array(keys, pa.int64()), "v": values})
        return Rows({0: codes}, starts, ends, payload, passes)

    def plan(self):
        """The manifest of the last batch, and how the next one is joined."""
        manifest, before, latest = self.manifests.latest(), JoinPart(Grid((1,))), {}
        if manifest is not None:
            before, latest = read_parts(manifest)
        batch_id = -1 if manifest is None else manifest.batch_id
        counts = {name: of for name, of in self.windows.items() if isinstance(of, RowsWindow)}
        columns = dict.fromkeys(counts, ("ts", "k", "v"))
        order = OrderPlan(
            self.emits,
            EventTime(dict.fromkeys("st", self.lateness)),
            latest,
            counts,
            columns,
            dict.fromkeys(counts, ("v",)),
        )
        lows = order.time.lows(latest)
        lengths = {name: getattr(of, "length", FOREVER) for name, of in self.windows.items()}
        plan = BatchPlan(
            batch_id + 1,
            self.graph,
            {"s": ("t",), "t": ("s",)},
            lengths,
            lows,
            grid=Grid((1,)),
            order=order,
            spans=self.spans,
        )
        return before, plan

    def batch(self, **rows):
        """Return the values and the instant of each result; what was kept is on disk."""
        before, plan = self.plan()
        task = OrderedBatch(
            plan, self.manifests.place("join"), before.buckets.get(0, BucketState())
        )
        arrived = {name: self.rows(name, of) for name, of in rows.items() if of}
        found = list(task.run(arrived))
        latest = latest_after(plan.order.time, plan.order.latest, arrived, {})
        self.report = task.report
        part = JoinPart(Grid((1,)), {0: task.report.after})
        self.manifests.commit(plan.batch_id, "fed", parts_of(part, latest))
        rows = [row for table in found for row in listed(table)]
        return sorted(rows, key=lambda row: [-1 if each is None else each for each in row])

    def state(self):
        """What the last manifest says of the bucket."""
        return self.manifests.latest().parts["join"].read(JoinPart).buckets[0]

    def kept(self, name):
        """How many rows the runs of an input have."""
        return sum(file.n_rows for file in self.state().runs.get(name, ()))

    def on_disk(self):
        return {file.name.split(".")[0] for file in (Path(self.folder) / "runs").iterdir()}


def listed(table):
    return zip(*(table[name].to_pylist() for name in ("s.v", "t.v", "_at")), strict=True)


NOW, ONE, TWO = RangeWindow(0), RowsWindow(1), RowsWindow(2)


@pytest.mark.large
def test_of_rows_of_one_instant_the_last_one_stays(tmp_path):
    feed = Feed(tmp_path, {"s": ONE, "t": NOW})
    # Equal times are ordered by key, then by value; NULL comes first.
    s = [(5, 1, 9), (5, 2, 8), (5, 2, 7), (5, None, 6), (6, 3, 1)]
    assert feed.batch(s=s, t=[(5, 1, 0), (5, 2, 0), (6, 3, 2)]) == [(8, 0, 5)]
    assert feed.batch(s=[(9, 1, 1)]) == [(1, 2, 6)]


def test_a_row_that_cannot_join_drives_others_out(tmp_path):
    feed = Feed(tmp_path, {"s": TWO, "t": NOW})
    t = [(at, 1, at) for at in range(7)]
    assert feed.batch(
        s=[(0, 1, 10), (2, None, 11), (4, None, 12), (5, 1, 13), (7, 1, 14)], t=t
    ) == [
        *[(10, at, at) for at in range(4)],
        *[(13, at, at) for at in (5, 6)],
    ]


def test_a_window_of_groups_has_one_for_each_value(tmp_path):
    feed = Feed(tmp_path, {"s": RowsWindow(1, ("k",)), "t": RangeWindow(100)})
    assert feed.batch(s=[(0, None, 1), (1, 1, 2), (2, 2, 3)], t=[(0, 1, 0)]) == [(2, 0, 1)]
    assert feed.batch(s=[(3, None, 4), (4, 1, 5)]) == []
    found = feed.batch(s=[(5, 2, 6)], t=[(4, 1, 7), (4, 2, 8)])
    assert found == [(3, 8, 4), (5, 0, 4), (5, 7, 4)]


def test_nulls_are_one_group(tmp_path):
    feed = Feed(tmp_path, {"s": RowsWindow(1, ("v",)), "t": NOW})
    s = [(0, 1, None), (1, 2, None), (1, 1, 5), (9, 9, 9)]
    found = feed.batch(s=s, t=[(0, 1, 0), (2, 1, 1), (2, 2, 2)])
    assert Counter(found) == Counter([(None, 0, 0), (5, 1, 2), (None, 2, 2)])


@pytest.mark.large
@pytest.mark.parametrize("window", [RowsWindow(60), RowsWindow(3, ("k",))])
def test_rows_of_counted_windows_are_found_cold_until_others_drive_them_out(tmp_path, window):
    """Keys come again within three instants, and now and then long after."""
    rng, ranges = np.random.default_rng(7), {"s": window, "t": RangeWindow(200)}
    feeds = [
        Feed(tmp_path / f"{len(spans)}", ranges, spans=spans) for spans in ({}, {"s": 5, "t": 5})
    ]
    n_cold = 0
    for number in range(60):
        at = np.sort(rng.integers(4 * number, 4 * number + 4, (2, 4)))
        is_late = rng.random((2, 4)) < 0.1
        keys = np.where(is_late, rng.integers(0, 20, (2, 4)), at // 3)
        rows = {
            name: [
                (int(t), int(k), 100 * number + i) for i, (t, k) in enumerate(zip(*of, strict=True))
            ]
            for name, *of in zip("st", at, keys, strict=True)
        }
        feeds[1].spans = {} if number == 40 else {"s": 5, "t": 5}
        hot, tiered = (feed.batch(**rows) for feed in feeds)
        assert hot == tiered
        n_cold += sum(each.n_cold for each in feeds[1].report.ages.values())
    assert n_cold > 5
    assert feeds[1].batch() == feeds[1].batch() == []
    state = feeds[1].state()
    assert feeds[1].on_disk() == set(state.names)
    assert sum(part.n_rows for part in state.cold["s"]) > 2 * feeds[1].kept("s")
    rows_of = {
        name: sum(map(len_of, feed.state().all_runs("s"))) for name, feed in enumerate(feeds)
    }
    assert rows_of[1] <= 2 * rows_of[0], "what was driven out goes"


def len_of(file):
    return file.n_rows


def test_dstream_says_when_a_result_is_no_more(tmp_path):
    feed = Feed(tmp_path, {"s": TWO, "t": RangeWindow(3)}, emits="dstream")
    assert feed.batch(s=[(0, 1, 1), (1, 1, 2)], t=[(1, 1, 5)]) == []
    assert feed.batch(s=[(3, 9, 3)], t=[(4, 1, 6)]) == []
    # The first row of s left when its second follower came, at 3: (1, 5) is no more from then on.
    assert feed.batch(s=[(4, 9, 4)]) == [(1, 5, 3)]
    assert feed.batch(s=[(9, 9, 5)], t=[(9, 9, 7)]) == [(2, 5, 4)]
    assert feed.batch(s=[(30, 9, 8)], t=[(30, 9, 9)]) == [(4, 7, 13), (5, 7, 13)]


@pytest.mark.large
def test_rstream_says_all_that_is_there_whenever_a_row_comes(tmp_path):
    feed = Feed(tmp_path, {"s": ONE, "t": RangeWindow(9)}, emits="rstream")
    assert feed.batch(s=[(0, 1, 1), (4, 1, 2)], t=[(2, 1, 5), (3, None, 6)]) == [(1, 5, 2)]
    assert feed.batch(s=[(6, 9, 3)], t=[(7, 9, 7)]) == [(1, 5, 3), (2, 5, 4)]
    assert feed.batch(s=[(8, None, 4)], t=[(8, None, 8)]) == [(3, 7, 7)]


def test_a_stream_that_stops_holds_up_and_loses_nothing(tmp_path):
    feed = Feed(tmp_path, {"s": TWO, "t": NOW})
    assert feed.batch(s=[(0, 1, 1)], t=[(0, 1, 0)]) == []
    for number in range(40):
        times = range(5 * number + 1, 5 * number + 6)
        assert feed.batch(t=[(at, 1, at) for at in times]) == []
    waiting = feed.state().waiting["t"]
    assert sum(file.n_rows for file in waiting) == 201
    assert len(waiting) < 12
    assert feed.batch(s=[(300, 9, 9)]) == [(1, at, at) for at in range(201)]
    state = feed.state()
    assert feed.batch() == feed.batch() == []
    assert feed.state() == state
    assert [set(kind) for kind in (state.runs, state.waiting, state.groups)] == [{"s"}] * 3
    assert (state.ends, state.emitted_until) == ({}, 300)
    assert feed.on_disk() == set(state.names)


@pytest.mark.large
@pytest.mark.parametrize("emits", ["istream", "dstream", "rstream"])
@pytest.mark.parametrize(
    "window",
    [
        RowsWindow(40),
        RangeWindow(60),
        RowsWindow(3, ("k",)),
        RowsWindow(9, ("v",)),
    ],
    ids=str,
)
def test_long_runs_give_the_definition_and_keep_little(emits, window, tmp_path):
    rng = np.random.default_rng(5)
    feed = Feed(tmp_path, {"s": window, "t": RowsWindow(4, ("k",))}, emits=emits, lateness=12)
    n_batches, found, whole = 36, [], {"s": [], "t": []}
    for number in range(n_batches):
        batch = {}
        for name in "st":
            times = 50 * number + rng.integers(-12, 50, 25)
            # Some keys are rare, so that rows of their groups stay for long.
            keys = np.minimum(rng.geometric(0.2, times.size), 30)
            values = rng.choice([1, 1, 1, 2, 2, *range(3, 12)], times.size)
            rows = zip(times.tolist(), keys.tolist(), values.tolist(), strict=True)
            low = max((row[0] for row in whole[name]), default=0) - 12
            batch[name] = [(at, k if k != 2 else None, v) for at, k, v in rows if at >= low]
            whole[name] += batch[name]
        found += feed.batch(**batch)
        assert feed.report.n_late == {}
        last = feed.manifests.latest()
        previous = feed.manifests.read(number - 1)
        assert feed.on_disk() == last.names | (previous.names if previous else set())
        for kind in (feed.state().runs, feed.state().waiting, feed.state().ends):
            assert all(len(files) <= 16 for files in kind.values())
    assert feed.kept("t") <= 2 * 4 * 30 + 100
    assert feed.kept("s") <= 2 * 3 * 30 + 100
    assert feed.state().groups["t"].n_rows <= 29
    answered = min(max(at for at, _, _ in whole[name]) for name in "st") - 12
    if emits == "istream":
        counting = [name for name, of in feed.windows.items() if isinstance(of, RowsWindow)]
        answered = min(max(at for at, _, _ in whole[name]) for name in counting) - 12
    (_, plan), rows = feed.plan(), {name: feed.rows(name, of) for name, of in whole.items()}
    wanted = [row for table in results_of_all(plan, rows) for row in listed(table)]
    assert Counter(found) == Counter(row for row in wanted if row[2] < answered)
    assert len(found) > 1_000


def test_another_lateness_after_a_restart_emits_nothing_twice(tmp_path):
    feed = Feed(tmp_path, {"s": ONE, "t": RangeWindow(50)})
    assert feed.batch(s=[(0, 1, 1), (20, 1, 2)], t=[(5, 1, 0)]) == [(1, 0, 5)]
    feed.lateness = 15
    # 12 is no longer awaited, whatever is allowed now: what depends on it was said.
    assert feed.batch(s=[(12, 1, 3)]) == []
    assert feed.report.n_late == {"s": 1}
    assert feed.batch(s=[(13, 1, 3), (21, 1, 4), (36, 1, 5)]) == [(2, 0, 20)]
    assert feed.report.n_late == {"s": 1}
    feed.lateness = 0
    assert feed.batch(s=[(40, 1, 6)]) == [(4, 0, 21), (5, 0, 36)]


def test_a_row_is_there_at_its_last_instant(tmp_path):
    feed = Feed(tmp_path, {"s": RangeWindow(2), "t": TWO})
    assert feed.batch(s=[(0, 1, 1), (9, 9, 9)], t=[(2, 9, 0)]) == []
    assert feed.batch(t=[(2, 1, 5), (3, 9, 6)]) == [(1, 5, 2)]


def test_late_rows_are_kept_as_results_need_them(tmp_path):
    feed = Feed(tmp_path, {"s": ONE, "t": NOW}, lateness=1)
    feed.batch(s=[(10, 1, 1)])
    feed.batch(s=[(8, 1, 2), (9, 1, 3), (7, None, 4)])
    assert feed.report.n_late == {"s": 1}
    assert feed.report.n_rows == {"s": 1}
    late = read_late(feed.manifests.place("join"), "s", until=10)
    assert late.column_names == ["v", "_time"]
    assert late["v"].to_pylist() == [2]

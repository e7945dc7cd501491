"""Windows with a cold tier: whatever is moved there and when, the same results."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.constraints.bounds import bins_of
from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator import leaving_rows
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.operator.composites import SEED, Composites
from eddyline.joins.orders.probe_profiling import LookUp
from eddyline.joins.plan import MATCHED, PASSED, merged
from eddyline.query.query import RangeWindow
from eddyline.state.bucket_state import ColdRuns, files_of
from eddyline.state.cold_runs import ColdTier, write_filter
from eddyline.state.grid import Grid, Moved, buckets_for
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import RunFile
from tests.joins.operator.fed_bucket import LENGTH, FedBucket
from tests.joins.operator.test_bucket import Operator, bag, is_supported
from tests.joins.plans import place_in
from tests.oracles.join_strategies import join_cases
from tests.oracles.joins import results

GRAPH = JoinGraph(("s", "t"), (frozenset("st"),))
STAR = JoinGraph(("s", "t", "u"), (frozenset("stu"),))


class Tiered(Operator):
    """Rows are hot for another time in each batch, or there is no cold tier.

    Some leave once they were in a result, whether that is their only one or not, or if their keys
    are below any that are drawn.
    """

    def how(self):
        if self.draw(st.integers(0, 4)) == 0:
            return {}
        spans = {
            each.name: self.draw(st.sampled_from([None, 0, 1, 3, each.window.length // 2]))
            for each in self.query.inputs
            if isinstance(each.window, RangeWindow) and self.case.times[each.stream]
        }
        tiered = [name for name, span in spans.items() if span is not None]
        covers = frozenset(name for name in tiered if self.draw(st.booleans()))
        below = {
            name: {key: self.draw(st.integers(-1, 6)) for key in self.graph.classes_of[name]}
            for name in tiered
            if self.draw(st.booleans())
        }
        rules = [(MATCHED, name) for name in covers] + [(PASSED, name) for name in below]
        leaving = frozenset(rule for rule in rules if self.draw(st.booleans()))
        tops = {(name, key): 3 for name in below for key in below[name]}
        return {
            "spans": spans,
            "covers": covers,
            "below": below,
            "tops": tops,
            "leaving": leaving,
            "measures": self.draw(st.booleans()),
            "lateness": dict.fromkeys(spans, 0) if self.draw(st.booleans()) else {},
        }


@pytest.mark.large
@given(case=join_cases().filter(is_supported), data=st.data())
def test_any_tiers_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        operator = Tiered(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, is_first=number == 0)
        assert operator.results() == bag(results(case.query, case.tables, case.times))


class Streams(FedBucket):
    """Streams whose rows are joined batch by batch; a key has a row in each now and then."""

    def __init__(self, graph, folder, *, seed=0, n_keys=40, rows_per_batch=40):
        super().__init__(graph, folder, seed, n=rows_per_batch)
        self.n_keys = n_keys

    base, apart = 0, 1
    """What keys begin at, and how far apart they are; another base makes old rows useless."""

    def rows(self):
        starts, table = np.arange(self.at, self.at + self.n), {}
        for name in self.graph.inputs:
            keys = self.rng.integers(0, self.n_keys, self.n) * self.apart + self.base
            table[name] = Rows({0: keys}, starts, starts + LENGTH, pa.table({"at": starts}))
        return table

    def task(self, state, **how):
        """A task over the next rows, which are not there yet for others."""
        return BucketBatch(self.plan(**how), self.place, state)

    def batch(self, spans, *, n_lost=0):
        """Join a batch; so many tasks before the one that counts are lost, with their files."""
        self.join(self.plan(spans=spans), n_lost=n_lost)

    @property
    def ages(self):
        return [each.ages for each in self.reports]

    @property
    def n_all_hot(self):
        return sum(map(self.n_hot, self.graph.inputs))

    @property
    def n_cold(self):
        trees = [each for parts in self.state.cold.values() for each in parts]
        return sum(run.n_rows for each in trees for run in each.runs)


spans_of_a_batch = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {name: st.sampled_from([None, 0, 50, 200, 900]) for name in "stu"},
    ),
)


@pytest.mark.large
@given(
    spans=st.lists(spans_of_a_batch, min_size=5, max_size=40),
    n_lost=st.lists(st.integers(0, 1), min_size=40, max_size=40),
    seed=st.integers(0, 99),
    is_star=st.booleans(),
)
def test_bounds_that_jump_and_tasks_that_are_lost_change_no_result(spans, n_lost, seed, is_star):
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        graph = STAR if is_star else GRAPH
        streams = Streams(graph, folder, seed=seed, n_keys=30, rows_per_batch=12 if is_star else 40)
        for number, each in enumerate(spans):
            mine = {name: span for name, span in each.items() if name in graph.inputs}
            streams.batch(mine, n_lost=n_lost[number])
        assert streams.got() == streams.wanted()


def test_what_is_old_is_cold_and_late_partners_are_found_there_and_counted(tmp_path):
    streams = Streams(GRAPH, tmp_path)
    for _ in range(30):
        streams.batch({"s": 100, "t": 100})
    hot, cold = streams.n_all_hot, streams.n_cold
    assert hot < cold / 3
    assert hot + cold <= 2 * (LENGTH + 8 * streams.n)
    assert streams.got() == streams.wanted()
    ages = merged(streams.ages)
    assert ages["s"].n_cold + ages["t"].n_cold > 0
    assert sum(each.n_pairs for each in ages.values()) == streams.got().total()
    beyond = sum(n for each in ages.values() for at, n in each.bins.items() if at >= 6 * 64 + 43)
    older = [abs(a - b) for a, b in streams.got().elements()]
    assert beyond == sum(bins_of(np.array(older)[np.array(older) > 0]) >= 6 * 64 + 43)


def test_where_all_is_hot_ages_are_looked_at_in_measured_batches_alone(tmp_path):
    streams = Streams(GRAPH, tmp_path)
    for _ in range(3):
        streams.batch({"s": None, "t": None})
    assert all(each.n_pairs and each.bins for each in streams.ages[-1].values())
    rows = streams.rows()
    for spans, names in (({"s": None, "t": None}, set()), ({"s": 40, "t": None}, {"s", "t"})):
        task = streams.task(streams.state, spans=spans, measures=False)
        list(task.run(rows))
        assert task.report.ages.keys() == names
        assert all(each.n_pairs and not each.bins for each in task.report.ages.values())


def test_keys_that_do_not_come_again_are_kept_away_by_filters(tmp_path, monkeypatch):
    """From every third batch on keys are others, between those before: zones cannot tell them."""
    asked, counts = ColdTier.asked, []

    def counted(tier, key, hashes, codes):
        found = [*asked(tier, key, hashes, codes)]
        n_runs = sum(len(part.runs) for part in tier.parts)
        counts.append((codes.size * n_runs, sum(each.places.size for each in found)))
        return found

    monkeypatch.setattr(ColdTier, "asked", counted)
    streams = Streams(GRAPH, tmp_path)
    streams.apart = 10
    for number in range(30):
        streams.base = number // 3
        streams.batch({"s": 150, "t": 150})
    n_asked, n_passing = np.sum(counts, axis=0)
    assert n_asked > 10_000
    assert n_passing < 0.05 * n_asked
    assert merged(streams.ages)["s"].n_cold == 0
    assert streams.got() == streams.wanted()


def test_cold_runs_are_not_opened_for_other_keys(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(leaving_rows, "ColdTier", lambda *about: Telling(opened, *about))
    streams = Streams(GRAPH, tmp_path)
    for number in range(30):
        streams.base = 1_000 * (number // 3)
        streams.batch({"s": 150, "t": 150})
    assert streams.got() == streams.wanted()
    assert streams.n_cold > 500
    assert not opened


class Telling(ColdTier):
    """A cold tier that tells when it opens a run."""

    def __init__(self, opened, files, folder, parts, keys, opens):
        super().__init__(files, folder, parts, keys, lambda of: opened.append(of.name) or opens(of))


def test_runs_whose_filters_let_nothing_pass_are_not_opened(tmp_path):
    """Neither where rows are found in hot runs alone, nor where sampled ones are looked up."""
    starts = np.arange(10)
    hot = SortedRun.from_rows(
        Rows({0: starts, 1: starts}, starts, starts + 100, pa.table({"at": starts}))
    )
    others = SortedRun.from_rows(
        Rows({0: starts[:7] - 9, 1: starts[:7]}, starts[:7], starts[:7], pa.table({}))
    )
    file = RunFile("gone", 7, 0, 9, 1, 1)
    ManifestFolder(fs.LocalFileSystem(), str(tmp_path))
    place = place_in(tmp_path)
    filter_ = write_filter(place.files, place.runs, [file], [others])
    cold = ColdTier(place.files, place.runs, [ColdRuns(filter_, file)], (0, 1), open)
    keys = Composites({SEED: starts}, {0: starts}, starts, starts + 50)
    joined = keys.join("s", [cold, hot], (0,))
    assert joined.rows["s"].tolist() == [7 + at for at in hot.rows.starts.argsort().tolist()]
    assert joined.codes[1].tolist() == list(range(10))
    look_up = LookUp.from_keys(keys, (0,))
    assert look_up.partners([cold, hot], 10, 4).counts.tolist() == [1] * 10
    assert look_up.counts([cold, hot], 10, 4).tolist() == [1] * 10
    assert not len(
        Composites({SEED: starts}, {0: starts + 50}, starts, starts).join("s", [cold], (0,))
    )


def test_runs_are_cold_as_a_whole_and_their_files_are_named(tmp_path):
    streams = Streams(GRAPH, tmp_path)
    for _ in range(12):
        streams.batch({"s": 0, "t": None})
    state = streams.state
    assert state.cold["s"]
    assert "t" not in state.cold
    assert any(each.parts for each in state.cold["s"]), "filters that are many get one above them"
    names = set(files_of([state]))
    for each in state.cold["s"]:
        assert {file.name for file in (*each.runs, *each.filters)} <= names
        assert each.filter.n_rows == sum(run.n_rows for run in each.runs)
    for name in names:
        assert list(tmp_path.rglob(f"{name}.*.arrow")), name


def test_without_a_cold_tier_all_is_hot_again(tmp_path):
    streams = Streams(GRAPH, tmp_path)
    for number in range(20):
        streams.batch({"s": 0, "t": 0} if number < 12 else {})
    assert not streams.state.cold
    assert streams.n_all_hot >= 2 * LENGTH * 0.7
    assert streams.got() == streams.wanted()


def test_another_grid_takes_cold_rows_along(tmp_path):
    streams = Streams(GRAPH, tmp_path)
    for _ in range(15):
        streams.batch({"s": 0, "t": 0})
    assert streams.state.cold["s"]
    before, now = Grid((1,)), Grid((2,))
    buckets = {0: streams.state}
    moved = Moved.from_grids(before, buckets, now)
    rows = streams.rows()
    starts = buckets_for(now, before, buckets, GRAPH.classes_of)
    for bucket in range(2):
        held = {
            name: each.taken(np.flatnonzero(now.holds(bucket, name, each.codes, each.starts)))
            for name, each in rows.items()
        }
        task = streams.task(starts[bucket], spans={"s": 0, "t": 0}, grid=now, moved=moved)
        task.bucket = bucket
        streams.found += task.run(held)
    streams.came(rows)
    assert streams.got() == streams.wanted()

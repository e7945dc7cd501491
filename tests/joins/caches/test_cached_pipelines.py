"""Caches in the pipelines of the operator: they spare probes, and the results are the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.joins import runs as join_runs
from hypothesis import event, given
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.joins.caches import bucket_caches
from eddyline.joins.caches.prefix_invariant import candidates, prefix_invariant
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.plan import BatchPlan, CachePlan
from eddyline.query.query import RangeWindow, RowsWindow
from eddyline.state.bucket_state import BucketState
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from tests.examples import examples
from tests.joins.operator.test_bucket import Operator, bag
from tests.joins.plans import Q3, on_one_attribute, orders, place_in
from tests.oracles.join_strategies import N_INSTANTS, join_cases
from tests.oracles.joins import results


@pytest.fixture(autouse=True)
def _nothing_kept():
    bucket_caches.forget()
    yield
    bucket_caches.forget()


class CachedOperator(Operator):
    """An operator whose pipelines use caches, in workers that come and go."""

    def __init__(self, case, draw, folder):
        super().__init__(case, draw, folder)
        self.n_hits = 0
        self.copies, self.standing = [], None

    def now_and_then(self, one_in):
        return self.draw(st.integers(1, one_in)) == one_in

    def orders(self):
        """Pipelines that mostly begin alike, and mostly stay."""
        if self.standing is None or self.now_and_then(4):
            ranks = {name: self.draw(st.integers(0, 100)) for name in self.graph.inputs}
            self.standing = {name: self.order(name, ranks) for name in self.graph.inputs}
        return self.standing

    def order(self, first, ranks):
        order, is_alike = [], not self.now_and_then(5)
        while reachable := self.graph.reachable((first, *order)):
            by_rank = min(sorted(reachable), key=ranks.__getitem__)
            order.append(by_rank if is_alike else self.draw(st.sampled_from(sorted(reachable))))
        return tuple(order)

    def plan(self, number):
        orders = self.orders()
        found = candidates(self.graph, orders, 8 if self.now_and_then(3) else 0)
        used = tuple(each for each in found if not self.now_and_then(4))
        kept = tuple(each.store for each in found if not self.now_and_then(4))
        profiled = tuple(each for each in found if self.now_and_then(2))
        limit = self.draw(st.sampled_from([1 << 20, 1 << 20, 1 << 20, 1_000, 200, 0]))
        stores = {each.store for each in found}
        caches = CachePlan(used, kept, profiled, dict.fromkeys(stores, limit))
        at = number, self.graph, orders, self.lengths(), self.lows(), self.horizons()
        return BatchPlan(*at, grid=self.grid, caches=caches)

    def join(self, plan, mine, bucket):
        for attempt in range(self.draw(st.sampled_from([1, 1, 1, 2, 3]))):
            self.disturb(bucket)
            task = BucketBatch(plan, place_in(self.folder), self.windows[bucket], bucket)
            results = task.run(mine)
            if attempt and self.draw(st.booleans()):
                next(results, None)  # the attempt before went through, this one did not
                results.close()
                self.disturb(bucket)
                task = BucketBatch(plan, place_in(self.folder), self.windows[bucket], bucket)
                results = task.run(mine)
            found = list(results)
        if task.report.caches:
            self.n_hits += sum(each.n_hits for each in task.report.caches.uses.values())
        self.found += found
        self.windows[bucket] = task.report.after

    def disturb(self, bucket):
        """Lose what is kept, keep a copy of it, or offer an older copy."""
        what = self.draw(st.sampled_from(8 * [""] + ["lose", "copy", "copy", "offer"]))
        kept = bucket_caches._kept
        if what == "lose":
            bucket_caches.forget()
        elif what == "copy" and (self.folder, bucket) in kept:
            self.copies.append(copy.deepcopy(kept[self.folder, bucket]))
        elif what == "offer" and self.copies:
            kept[self.folder, bucket] = copy.deepcopy(self.draw(st.sampled_from(self.copies)))


def supported(case):
    """The same join with windows by time, of insertions."""
    inputs = tuple(
        replace(each, window=RangeWindow(N_INSTANTS // 2 * 10**6))
        if isinstance(each.window, RowsWindow)
        else each
        for each in case.query.inputs
    )
    return replace(case, query=replace(case.query, inputs=inputs, emits="istream"))


def finer(batches, draw):
    """Cut batches again: keys come again in later ones."""
    for tables in batches:
        n_parts = draw(st.integers(2, 5))
        for part in range(n_parts):
            yield {
                name: rows.slice(
                    part * rows.num_rows // n_parts,
                    (part + 1) * rows.num_rows // n_parts - part * rows.num_rows // n_parts,
                )
                for name, rows in tables.items()
            }


@pytest.mark.large
@examples(100)
@given(case=join_cases(min_inputs=3).map(supported), data=st.data())
def test_caches_never_change_an_answer(case, data):
    bucket_caches.forget()
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        operator = CachedOperator(case, data.draw, folder)
        for number, tables in enumerate(finer(case.batches or [{}], data.draw)):
            operator.batch(tables, is_first=number == 0)
        event(f"hits: {min(operator.n_hits, 20)}")
        assert operator.results() == bag(results(case.query, case.tables, case.times))


class Fed:
    """One bucket, fed rows of one key class each or of several, at instants that ascend."""

    def __init__(self, graph, orders, folder):
        self.graph, self.orders, self.folder = graph, orders, str(folder)
        ManifestFolder(fs.LocalFileSystem(), self.folder)
        self.before, self.at, self.batch_id = BucketState(), 0, 0

    def batch(self, plan, length=FOREVER, **rows):
        """Join rows, given by their codes in the order of the classes; return report and count."""
        news = {}
        for name, given_rows in rows.items():
            starts = self.at + np.arange(len(given_rows))
            codes = np.array(given_rows, np.int64).reshape(len(given_rows), -1).T
            ends = np.full(starts.size, FOREVER) if length == FOREVER else starts + length
            classes = zip(self.graph.classes_of[name], codes, strict=True)
            news[name] = Rows(dict(classes), starts, ends, pa.table({"at": starts}))
            self.at += len(given_rows)
        names = self.graph.inputs
        lows = dict.fromkeys(names, ALWAYS)
        lengths = dict.fromkeys(names, length)
        batch = BatchPlan(self.batch_id, self.graph, self.orders, lengths, lows, lows, caches=plan)
        task = BucketBatch(batch, place_in(self.folder), self.before)
        n_found = sum(found.num_rows for found in task.run(news))
        self.before, self.batch_id = task.report.after, self.batch_id + 1
        return task.report, n_found

    def used(self):
        used = prefix_invariant(self.graph, self.orders)
        return CachePlan(used, limits={each.store: 1 << 20 for each in used})


def hits_of(report):
    (use,) = report.caches.uses.values()
    return use.n_hits, use.n_keys


E2 = {"r": ("s", "t"), "s": ("t", "r"), "t": ("s", "r")}
"""The pipelines of the thesis' Example 5.4.1; the cache is on s and t, for r."""


def test_a_key_without_any_joined_row_is_a_hit_as_well(tmp_path):
    fed = Fed(Q3, E2, tmp_path)
    used = fed.used()
    assert [each.pipeline for each in used.used] == ["r"]
    fed.batch(used, s=[(1, 2), (1, 3), (2, 3)], t=[2])
    report, n_found = fed.batch(used, r=[1])
    assert (hits_of(report), n_found) == ((0, 1), 1)
    report, n_found = fed.batch(used, r=[1])
    assert (hits_of(report), n_found) == ((1, 1), 1)
    report, n_found = fed.batch(used, t=[3])
    (kept,) = report.caches.stores.values()
    assert (kept.n_seen, kept.n_kept, n_found) == (2, 1, 2)  # no entry of key 2 yet
    report, n_found = fed.batch(used, r=[1])
    assert (hits_of(report), n_found) == ((1, 1), 2)
    report, n_found = fed.batch(used, r=[2])
    assert (hits_of(report), n_found) == ((0, 1), 1)
    report, n_found = fed.batch(used, r=[9])
    assert (hits_of(report), n_found) == ((0, 1), 0)
    report, n_found = fed.batch(used, r=[9])
    assert (hits_of(report), n_found) == ((1, 1), 0)


def test_changes_are_kept_although_no_row_of_another_input_needs_them(tmp_path):
    """H4: nothing joins the new row of s, as r is expired, and yet the entry must have it."""
    fed = Fed(Q3, E2, tmp_path)
    used = fed.used()
    fed.batch(used, t=[2])
    report, n_found = fed.batch(used, r=[5], length=0)
    assert (hits_of(report), n_found) == ((0, 1), 0)
    _, n_found = fed.batch(used, s=[(5, 2)])
    assert n_found == 0
    report, n_found = fed.batch(used, r=[5])
    assert (hits_of(report), n_found) == ((1, 1), 1)


def test_a_cache_goes_when_another_pipeline_no_longer_tells_its_changes(tmp_path):
    """H5: the order of t moves the tap of the cache that r asks."""
    graph = on_one_attribute(3)
    fed = Fed(graph, orders(_1="23", _2="31", _3="21"), tmp_path)
    used = fed.used()
    assert [each.pipeline for each in used.used] == ["1"]
    fed.batch(used, **{"2": [7], "3": [7]})
    report, _ = fed.batch(used, **{"1": [7]})
    assert hits_of(report) == (0, 1)
    fed.orders = orders(_1="23", _2="31", _3="12")
    report, n_found = fed.batch(used, **{"2": [7], "1": [7]})
    assert not report.caches.uses
    assert not report.caches.stores
    # As 1 had its turn before 2: 1 × 1 × 1, and then the new row of 2 with both of 1.
    assert n_found == 1 + 2
    fed.orders = orders(_1="23", _2="31", _3="21")
    report, n_found = fed.batch(used, **{"1": [7]})
    assert (hits_of(report), n_found) == ((0, 1), 2)


@pytest.mark.large
@pytest.mark.parametrize("repeats", [1, 2, 3, 5, 10])
def test_keys_that_come_again_in_later_batches_are_hits(repeats):
    """Each value is asked for as often as it comes and missed once: 1 - 1/r of the keys hit."""
    arrivals = join_runs.lockstep(repeats, 400, gap=8)
    done = join_runs.run(arrivals, 8 * (repeats + 2), join_runs.all_used(arrivals, "r", "s"))
    uses = [use for report in done.reports for use in report.caches.uses.values()]
    n_keys = sum(use.n_keys for use in uses)
    assert n_keys > 350 * repeats
    hit_frac = sum(use.n_hits for use in uses) / n_keys
    assert abs(hit_frac - (1 - 1 / repeats)) < 0.04
    assert done.checks == join_runs.run(arrivals, 8 * (repeats + 2)).checks


@pytest.mark.large
@pytest.mark.parametrize(
    ("rates", "n_keys", "most"),
    [((1, 1, 8), 400, 0.9), ((1, 1, 1), 50_000, 1.05), ((1, 1, 5), 10**6, 1.05)],
)
def test_caches_spare_work_where_they_can_and_cost_little_where_not(rates, n_keys, most):
    arrivals = join_runs.uniform(rates, n_keys, 120_000, length=6_000)
    plain = join_runs.run(arrivals, 2_000)
    caches = join_runs.decided(arrivals)
    done = join_runs.run(arrivals, 2_000, caches=caches)
    assert (done.n_results, done.checks) == (plain.n_results, plain.checks)
    assert done.share(plain) <= most
    assert bool(caches.views()) is (most < 1)


@pytest.mark.large
def test_a_cache_goes_when_keys_stop_coming_again():
    arrivals = join_runs.uniform((1, 1, 8), 400, 160_000, length=6_000)
    codes = arrivals.codes.copy()
    codes[:, 80_000:] += np.arange(80_000) // 4 * 400  # hardly a key comes twice from here on
    arrivals = replace(arrivals, codes=codes)
    plain = join_runs.run(arrivals, 2_000)
    caches = join_runs.decided(arrivals)
    done = join_runs.run(arrivals, 2_000, caches=caches)
    n_used = [len(plan.used) for plan in done.plans]
    assert max(n_used[20:40]) == 1
    assert not any(n_used[50:])
    assert done.checks == plain.checks
    assert done.share(plain) <= 1.05


@pytest.mark.large
def test_less_memory_means_fewer_hits_and_the_same_answers():
    arrivals = join_runs.uniform((1, 1, 8), 400, 60_000, length=6_000)
    shares, checks = [], set()
    for limit in (0, 20_000, 60_000, 1 << 24):
        planned = join_runs.all_used(arrivals, "r", "s", limit=limit)
        done = join_runs.run(arrivals, 2_000, planned)
        uses = [use for report in done.reports[10:] for use in report.caches.uses.values()]
        shares.append(sum(use.n_hits for use in uses) / sum(use.n_keys for use in uses))
        checks.add(done.checks)
    assert len(checks) == 1
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] > 0.95
    assert 0.0 < shares[1] < shares[2] < shares[3]

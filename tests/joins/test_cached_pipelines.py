"""Caches in the pipelines of the operator: they spare probes, and the results are the same."""

from __future__ import annotations

import copy
from dataclasses import replace
from tempfile import TemporaryDirectory

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from eddyline.joins import cache_keeper
from eddyline.joins.bucket import BatchPlan, BucketBatch
from eddyline.joins.cache_counts import CachePlan
from eddyline.joins.closed_sets import candidates
from eddyline.joins.manifest import ManifestFolder
from eddyline.joins.rows import ALWAYS
from eddyline.query.windows import RangeWindow, RowsWindow
from eddyline.testing.join_strategies import N_INSTANTS, join_cases
from eddyline.testing.reference_joins import results

from .test_bucket import Operator, bag


@pytest.fixture(autouse=True)
def _nothing_kept():
    cache_keeper.forget()
    yield
    cache_keeper.forget()


class CachedOperator(Operator):
    """An operator whose pipelines use caches, in workers that come and go."""

    def __init__(self, case, draw, folder):
        super().__init__(case, draw, folder)
        self.n_hits = self.n_batches = 0
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

    def plan(self, lows, horizons):
        orders = self.orders()
        found = candidates(self.graph, orders, 8 if self.now_and_then(3) else 0)
        used = tuple(each for each in found if not self.now_and_then(4))
        kept = tuple(each.store for each in found if not self.now_and_then(4))
        profiled = tuple(each for each in found if self.now_and_then(2))
        limit = self.draw(st.sampled_from([1 << 20, 1 << 20, 1 << 20, 1_000, 200, 0]))
        stores = {each.store for each in found}
        caches = CachePlan(used, kept, profiled, dict.fromkeys(stores, limit))
        return BatchPlan(
            self.n_batches, self.graph, orders, self.lengths(), lows, horizons, caches=caches
        )

    def join(self, plan, mine, bucket):
        for attempt in range(self.draw(st.sampled_from([1, 1, 1, 2, 3]))):
            self.disturb(bucket)
            task = BucketBatch(
                plan, fs.LocalFileSystem(), self.folder, self.windows[bucket], bucket
            )
            results = task.run(mine)
            if attempt and self.draw(st.booleans()):
                next(results, None)  # the attempt before went through, this one did not
                results.close()
                self.disturb(bucket)
                task = BucketBatch(
                    plan, fs.LocalFileSystem(), self.folder, self.windows[bucket], bucket
                )
                results = task.run(mine)
            found = list(results)
        if task.report.caches:
            self.n_hits += sum(each.n_hits for each in task.report.caches.uses.values())
        return found, task

    def disturb(self, bucket):
        """Lose what is kept, keep a copy of it, or offer an older copy."""
        what = self.draw(st.sampled_from(8 * [""] + ["lose", "copy", "copy", "offer"]))
        kept = cache_keeper._kept
        if what == "lose":
            cache_keeper.forget()
        elif what == "copy" and (self.folder, bucket) in kept:
            self.copies.append(copy.deepcopy(kept[self.folder, bucket]))
        elif what == "offer" and self.copies:
            kept[self.folder, bucket] = copy.deepcopy(self.draw(st.sampled_from(self.copies)))

    def batch(self, tables, *, is_first):
        inputs = {}
        for each in self.query.inputs:
            is_static = self.case.times[each.stream] is None
            if is_static and not is_first:
                continue
            arrived = self.case.tables[each.stream] if is_static else tables.get(each.stream)
            if arrived is not None and arrived.num_rows:
                inputs[each.name] = self.rows(each, arrived)
        plan = self.plan(self.lows(), self.horizons())
        for bucket in range(self.n_buckets):
            mine = {name: self.of_bucket(rows, bucket) for name, rows in inputs.items()}
            mine = {name: rows for name, rows in mine.items() if len(rows)}
            found, task = self.join(plan, mine, bucket)
            self.found += found
            self.windows[bucket] = task.report.after
        self.n_batches += 1
        for each in self.query.inputs:
            rows = inputs.get(each.name)
            if rows is not None and len(rows):
                latest = self.latest.get(each.name, ALWAYS)
                self.latest[each.name] = max(latest, int(rows.starts.max()))


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


@settings(max_examples=100)
@given(case=join_cases(min_inputs=3).map(supported), data=st.data())
def test_caches_never_change_an_answer(case, data):
    cache_keeper.forget()
    with TemporaryDirectory() as folder:
        ManifestFolder(fs.LocalFileSystem(), folder)
        operator = CachedOperator(case, data.draw, folder)
        for number, tables in enumerate(finer(case.batches or [{}], data.draw)):
            operator.batch(tables, is_first=number == 0)
        event(f"hits: {min(operator.n_hits, 20)}")
        assert operator.results() == bag(results(case.query, case.tables, case.times))

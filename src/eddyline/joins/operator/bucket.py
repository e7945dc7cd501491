"""The work of a task on one bucket in one batch: open its windows, join, keep the new rows.

Nothing that is there is changed: new runs get names of their own, and count once the manifest of
the batch names them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.arrival_order import disorder_of
from eddyline.joins.caches.bucket_caches import NEWS, caches_of
from eddyline.joins.operator.key_check import check_keys, unique_classes
from eddyline.joins.operator.leaving_rows import Discarding, Leaving, spans_of
from eddyline.joins.operator.partner_ages import PartnerAges
from eddyline.joins.operator.pipeline import results
from eddyline.joins.orders.probe_profiling import drop_samples
from eddyline.joins.plan import BucketReport
from eddyline.state.bucket_state import by_size, upkeep_of
from eddyline.state.cold_runs import ColdTier, cold_run, cooled
from eddyline.state.grid import N_BINS, bins_of
from eddyline.state.late_rows import write_late
from eddyline.state.rows import ALWAYS, Rows, SortedRun
from eddyline.state.run_files import MAPPED, RunFile
from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.joins.caches.bucket_caches import CachedBatch
    from eddyline.joins.operator.pipeline import Shortcut
    from eddyline.joins.plan import BatchPlan
    from eddyline.state.bucket_state import BucketState
    from eddyline.state.manifest import StatePlace


COUNTED_ROWS = 8_192
"""New rows of an input whose hashes are counted, about, evenly spread over all of them."""

TO_WRITE = RunFile("", 0, 0, 0, 0, 0)
"""Stands for the file of a merged run from which rows may leave before it is written."""


@dataclass(slots=True)
class BucketBatch:
    """One bucket in one batch, from its state before."""

    plan: BatchPlan
    place: StatePlace
    before: BucketState
    bucket: int = 0
    report: BucketReport = field(init=False)
    """Report of the work; complete once the results were taken."""
    _caches: CachedBatch | None = field(init=False, default=None)
    _leaving: Leaving = field(init=False)
    _discarding: Discarding | None = field(init=False, default=None)
    _to_write: dict[str, SortedRun] = field(init=False, default_factory=dict)
    """By input, the merged run that is to be written."""

    def run(self, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Join the rows of the batch, by input, and keep them; yields the results.

        Raises:
            DuplicateKeyError: a row has the key of another one, which was declared to be a key.
            OSError: a run cannot be read or written.
        """
        started = time.perf_counter_ns()
        self.report = BucketReport(self.bucket)
        self._leaving = Leaving(self.plan, self.report.done)
        if self.plan.kept_for is not None:
            self._discarding = Discarding(self.plan, self.place, self.before)
            self.report.lost = self._discarding.lost.counts
        on_time = {name: self._on_time(name, batch[name]) for name in sorted(batch)}
        news = {name: SortedRun.of(rows) for name, rows in on_time.items() if len(rows)}
        caches = self._caches = caches_of(
            self.plan, self.place.folder, self.bucket, self.before.runs
        )
        windows = {name: self._window(name) for name in self.plan.graph.inputs}
        check_keys(self.plan.keys, windows, news)
        shortcut = None if caches is None else caches.begin(self.report.after.runs, windows, news)
        for found in self._results(windows, news, shortcut):
            self.report.n_results += found.num_rows
            yield found
        self._profile(windows, news)
        self._measure_clusters(windows, news)
        after = {
            name: (*runs, *([news[name]] if name in news else [])) for name, runs in windows.items()
        }
        self._leaving.end(after)
        for name, merged in self._to_write.items():
            self._write_merged(name, merged, after)
        for name, run in news.items():
            self._count(name, run)
            self._keep(name, run)
        if self._discarding is not None:
            self.report.after.dropped = self._discarding.end()
        self.report.monitor_ns += self._leaving.ns
        if caches is not None:
            self.report.caches = caches.close(self.report.after.runs)
        self.report.ns = time.perf_counter_ns() - started

    def _results(
        self,
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
        shortcut: Shortcut | None,
    ) -> Iterator[pa.Table]:
        """Yield what the new rows of the batch bring about; see ``pipeline.results``."""
        plan, ages = self.plan, None
        has_cold = any(span is not None for span in plan.spans.values())
        if has_cold or (plan.spans and plan.measures):
            ages = PartnerAges(plan.spans, measures=plan.measures)
            self.report.ages = ages.counts
        self._leaving.begin(windows, news)
        lost = None
        if self._discarding is not None:
            self._discarding.ready()
            lost = self._discarding.lost
        every = plan.graph, plan.orders, windows, news, self.report.work
        yield from results(*every, shortcut, ages, self._leaving.matched, lost)
        self.report.monitor_ns += 0 if ages is None else ages.ns

    def _horizon(self, name: str) -> int | None:
        """Return the instant before which rows of an input left that are not needed (µs)."""
        return self.plan.horizons.get(name, ALWAYS)

    def _profile(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Look some new rows up in all windows, if that is asked for."""
        plan = self.plan
        if plan.probing is not None:
            found = drop_samples(plan.probing, plan.graph, windows, news, plan.batch_id)
            self.report.samples = tuple(found)

    def _measure_clusters(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Measure how long after the first row of their keys new rows come, if that is asked."""
        started, plan = work_ns(), self.plan
        for (name, key), top in plan.clusters.items() if plan.measures else ():
            if name in news:
                self.report.spans[name, key] = spans_of(key, top, windows[name], news[name])
        self.report.monitor_ns += work_ns() - started

    def _on_time(self, name: str, rows: Rows) -> Rows:
        """Return the rows that are not late; the others are written beside the runs."""
        is_late = rows.starts < self._low(name)
        if not is_late.any():
            return rows
        late = rows.taken(np.flatnonzero(is_late & self._counts(name, rows)))
        if len(late):
            self._write_late(name, late)
        return rows.taken(np.flatnonzero(~is_late))

    def _low(self, name: str) -> int:
        """Return the instant before which new rows of an input are late (µs)."""
        return self.plan.lows.get(name, ALWAYS)

    def _write_late(self, name: str, late: Rows) -> None:
        self.report.n_late[name] = len(late)
        at = self.plan.batch_id, self.bucket, name
        keys = self.plan.keys_only.get(name, ())
        self.report.late_files.append(write_late(self.place, *at, late, keys, self._low(name)))

    def _window(self, name: str) -> list[SortedRun]:
        """Return the runs of an input that may still join, some of them made one.

        Those that are cold come first.
        """
        horizon, length = self._horizon(name), self.plan.lengths[name]
        if horizon is None:
            return []
        cold, files = self._cooled(name, horizon, length)
        hot = self.plan.spans.get(name)
        if self._discarding is not None:
            hot = self._discarding.begin(name, horizon)
            if self.plan.moved is None:
                files = self._discarding.aged(name, files, horizon)
        if self._leaving.lets_go(name):
            files = by_size(files)
        upkeep = upkeep_of(files, horizon=horizon, length=length, hot=hot)
        stay = {file: self._open(name, file) for file in upkeep.stay}
        merge = upkeep.merge if self.plan.moved is None else upkeep.stay
        if merge:
            started = work_ns()
            parts = [self._mine(name, file, stay[file].rows) for file in merge]
            merged = SortedRun.of(_alive(Rows.together(parts), horizon))
            if self._discarding is not None:
                merged = self._discarding.without_old(name, merged, horizon)
            self._leaving.merged(name, merged, work_ns() - started)
            now = {}
            if len(merged) and self._leaving.lets_go(name):
                self._to_write[name] = now[TO_WRITE] = merged
            else:
                now = self._written(name, merged)
            if self._caches is not None:
                self._caches.follow(name, {each.name: stay[each] for each in merge}, horizon, now)
            stay = _replaced(stay, merge, now)
        self.report.after.runs[name] = tuple(stay)
        return [*cold, *stay.values()]

    def _cooled(
        self, name: str, horizon: int, length: int
    ) -> tuple[list[ColdTier], Sequence[RunFile]]:
        """Return the cold tier of an input, if any, some runs moved there now, and the other files.

        Nothing that is cold becomes hot again but where there is no cold tier any more.
        """
        before, hot = self.before, self.plan.spans.get(name)
        if hot is None or self.plan.moved is not None:
            return [], before.all_runs(name)
        runs, until = before.runs.get(name, ()), horizon + length - hot
        parts = cooled(
            self.place.files,
            self.place.runs,
            before.cold.get(name, ()),
            [each for each in runs if each.last_end < until],
            partial(self._open, name),
            horizon=horizon,
            length=length,
        )
        self.report.after.cold[name] = parts
        keys, opened = self.plan.graph.classes_of[name], partial(self._open, name)
        tier = ColdTier(self.place.files, self.place.runs, parts, keys, opened)
        stay = [each for each in runs if each.last_end >= until]
        return [tier] if parts else [], stay

    def _mine(self, name: str, file: RunFile, rows: Rows) -> Rows:
        """Return the rows of a run that belong to this bucket."""
        moved, grid = self.plan.moved, self.plan.grid
        return rows if moved is None else moved.taken(grid, self.bucket, name, file.name, rows)

    def _counts(self, name: str, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of the rows that count here; other buckets may have copies of them."""
        return self.plan.grid.is_first(self.bucket, name, rows.codes, rows.starts)

    def _count(self, name: str, run: SortedRun) -> None:
        """Count new rows; of those of a table, which come once, find the keys, too."""
        self.report.n_here += len(run)
        if run.rows.starts[0] == ALWAYS:
            self.report.unique[name] = unique_classes(run)
        started = work_ns()
        for place, top in self.plan.tops.items():
            if place[0] == name:
                codes = run.rows.codes[place[1]]
                is_whole = self._discarding is not None
                measures = self.plan.measures
                found = disorder_of(codes, top, measures=measures, is_whole=is_whole)
                self.report.disorder[place] = found
        self.report.monitor_ns += work_ns() - started
        counted = np.flatnonzero(self._counts(name, run.rows))
        if counted.size:
            self.report.n_rows[name] = counted.size
            step = max(1, counted.size // COUNTED_ROWS)
            for key, of in run.rows.codes.items():
                counts = np.bincount(bins_of(of[counted[::step]]), minlength=N_BINS)
                self.report.bins[name, key] = counts * step

    def _write_merged(
        self, name: str, run: SortedRun, windows: Mapping[str, Sequence[SortedRun]]
    ) -> None:
        """Write a merged run, apart from its rows that are done."""
        stay = self._left(name, run, self._leaving.old(name, run, windows))
        now = self._written(name, stay)
        runs = dict.fromkeys(self.report.after.runs[name], run)
        self.report.after.runs[name] = tuple(_replaced(runs, (TO_WRITE,), now))

    def _written(self, name: str, run: SortedRun) -> dict[RunFile, SortedRun]:
        """Write what stays of a merged run, if anything does; return it by its file."""
        started = work_ns()
        now = {self._write(run): run} if len(run) else {}
        self._leaving.wrote(name, work_ns() - started)
        return now

    def _left(self, name: str, run: SortedRun, mask: NDArray[np.bool_]) -> SortedRun:
        """Write the rows of a mask as a cold run, or drop them; return those that stay."""
        if not mask.any():
            return run
        started = work_ns()
        left, stay = run.where(mask), run.where(~mask)
        if self._discarding is not None:
            self._discarding.drop(name, left)
            return stay
        cold = self.report.after.cold
        own = cold_run(self.place.files, self.place.runs, self._write(left), left)
        cold[name] = (*cold.get(name, ()), own)
        self._leaving.took(name, work_ns() - started)
        return stay

    def _keep(self, name: str, run: SortedRun) -> None:
        horizon = self._horizon(name)
        if horizon is None:
            return
        new = run
        run = self._left(name, run, self._leaving.new(name, run))
        if len(run) and run.rows.ends.min() < horizon:
            run = SortedRun.of(_alive(run.rows, horizon))
        if len(run):
            after, file = self.report.after.runs, self._write(run)
            after[name] = (*after.get(name, ()), file)
            if self._caches is not None:
                self._caches.follow(name, {NEWS: new}, horizon, {file: run})

    def _open(self, name: str, file: RunFile) -> SortedRun:
        classes = self.plan.graph.classes_of[name]
        return MAPPED.run(self.place.files, self.place.runs, file, classes)

    def _write(self, run: SortedRun) -> RunFile:
        return MAPPED.write(self.place.files, self.place.runs, run)


def _alive(rows: Rows, horizon: int) -> Rows:
    """Return the rows that may still join."""
    stays = rows.ends >= horizon
    return rows if stays.all() else rows.taken(np.flatnonzero(stays))


def _replaced(
    runs: Mapping[RunFile, SortedRun], merged: Sequence[RunFile], now: Mapping[RunFile, SortedRun]
) -> dict[RunFile, SortedRun]:
    """Return the runs with one, or none, in the place of several."""
    found: dict[RunFile, SortedRun] = {}
    for each, opened in runs.items():
        if each == merged[0]:
            found |= now
        elif each not in merged:
            found[each] = opened
    return found

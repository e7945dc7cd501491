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

from eddyline.joins.caches.bucket_caches import caches_of
from eddyline.joins.caches.row_ids import NEWS
from eddyline.joins.operator.delta_join import results
from eddyline.joins.operator.partner_ages import PartnerAges
from eddyline.joins.orders.probe_profiling import drop_samples
from eddyline.joins.plan import BucketReport
from eddyline.state.cold_runs import ColdRun, ColdTier, cooled
from eddyline.state.compaction import upkeep_of
from eddyline.state.grid import N_BINS, bins_of
from eddyline.state.late_rows import write_late
from eddyline.state.mapped_runs import MAPPED
from eddyline.state.rows import ALWAYS, Rows, SortedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.joins.caches.bucket_caches import CachedBatch
    from eddyline.joins.operator.pipeline import Shortcut
    from eddyline.joins.plan import BatchPlan
    from eddyline.state.bucket_state import BucketState
    from eddyline.state.place import StatePlace
    from eddyline.state.run_files import RunFile


COUNTED_ROWS = 8_192
"""New rows of an input whose hashes are counted, about, evenly spread over all of them."""


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

    def run(self, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Join the rows of the batch, by input, and keep them; yields the results.

        Raises:
            OSError: a run cannot be read or written.
        """
        started = time.perf_counter_ns()
        self.report = BucketReport(self.bucket)
        on_time = {name: self._on_time(name, batch[name]) for name in sorted(batch)}
        news = {name: SortedRun.of(rows) for name, rows in on_time.items() if len(rows)}
        caches = self._caches = caches_of(
            self.plan, self.place.folder, self.bucket, self.before.runs
        )
        windows = {name: self._window(name) for name in self.plan.graph.inputs}
        shortcut = None if caches is None else caches.begin(self.report.after.runs, windows, news)
        for found in self._results(windows, news, shortcut):
            self.report.n_results += found.num_rows
            yield found
        self._profile(windows, news)
        for name, run in news.items():
            self._count(name, run)
            self._keep(name, run)
        if caches is not None:
            self.report.caches = caches.close(self.report.after.runs)
        self.report.ns = time.perf_counter_ns() - started

    def _results(
        self,
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
        shortcut: Shortcut | None,
    ) -> Iterator[pa.Table]:
        """Yield what the new rows of the batch bring about; see ``delta_join.results``."""
        plan, ages = self.plan, None
        if plan.spans:
            ages = PartnerAges(plan.spans)
            self.report.ages = ages.counts
        work = self.report.work
        return results(plan.graph, plan.orders, windows, news, work, shortcut, ages)

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
        self.report.late_files.append(write_late(self.place, *at, late, keys))

    def _window(self, name: str) -> list[SortedRun]:
        """Return the runs of an input that may still join, some of them made one.

        Those that are cold come first.
        """
        horizon, length = self._horizon(name), self.plan.lengths[name]
        if horizon is None:
            return []
        cold, files = self._cooled(name, horizon, length)
        hot = self.plan.spans.get(name)
        upkeep = upkeep_of(files, horizon=horizon, length=length, hot=hot)
        stay = {file: self._open(name, file) for file in upkeep.stay}
        merge = upkeep.merge if self.plan.moved is None else upkeep.stay
        if merge:
            parts = [self._mine(name, file, stay[file].rows) for file in merge]
            merged = SortedRun.of(_alive(Rows.together(parts), horizon))
            now = {self._write(merged): merged} if len(merged) else {}
            if self._caches is not None:
                self._caches.follow(name, {each.name: stay[each] for each in merge}, horizon, now)
            stay = _replaced(stay, merge, now)
        self.report.after.runs[name] = tuple(stay)
        return [*cold, *stay.values()]

    def _cooled(
        self, name: str, horizon: int, length: int
    ) -> tuple[list[ColdRun], Sequence[RunFile]]:
        """Return the cold runs of an input, some of them moved now, and the files of the others.

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
        tier = ColdTier(self.place.files, self.place.runs, parts)
        keys, opened = self.plan.graph.classes_of[name], partial(self._open, name)
        cold = [ColdRun(run, keys, tier, opened) for part in parts for run in part.runs]
        stay = [each for each in runs if each.last_end >= until]
        return cold, stay

    def _mine(self, name: str, file: RunFile, rows: Rows) -> Rows:
        """Return the rows of a run that belong to this bucket."""
        moved, grid = self.plan.moved, self.plan.grid
        return rows if moved is None else moved.taken(grid, self.bucket, name, file.name, rows)

    def _counts(self, name: str, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of the rows that count here; other buckets may have copies of them."""
        return self.plan.grid.is_first(self.bucket, name, rows.codes, rows.starts)

    def _count(self, name: str, run: SortedRun) -> None:
        """Count new rows."""
        self.report.n_here += len(run)
        counted = np.flatnonzero(self._counts(name, run.rows))
        if counted.size:
            self.report.n_rows[name] = counted.size
            step = max(1, counted.size // COUNTED_ROWS)
            for key, of in run.rows.codes.items():
                counts = np.bincount(bins_of(of[counted[::step]]), minlength=N_BINS)
                self.report.bins[name, key] = counts * step

    def _keep(self, name: str, run: SortedRun) -> None:
        horizon = self._horizon(name)
        if horizon is None:
            return
        new = run
        if run.rows.ends.min() < horizon:
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

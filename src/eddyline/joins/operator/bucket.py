"""Work of a task on one bucket in one batch.

``BucketBatch.run`` opens the windows, joins, and keeps the new rows. It calls each ``Stage`` of the
plan three times: before the new rows probe, after the probes, and once all runs are written. No
file is changed: a new run has a new name, and counts once the manifest of the batch names it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.errors import DuplicateKeyError
from eddyline.joins.arrival_order import disorder_of
from eddyline.joins.caches.bucket_caches import NEWS, CachedBatch
from eddyline.joins.operator.composites import SEED, Composites, asked_of, rows_of_parts
from eddyline.joins.operator.leaving_rows import ColdRows, Discarding, Leaving, spans_of
from eddyline.joins.operator.pipeline import PartnerAges, Stage, results
from eddyline.joins.operator.products import results_as_products
from eddyline.joins.orders.probe_profiling import drop_samples
from eddyline.joins.plan import MARKS, MEMBER, BucketReport, MemberReport
from eddyline.state.bucket_state import by_size, upkeep_of
from eddyline.state.grid import N_BINS, bins_of
from eddyline.state.late_rows import write_late
from eddyline.state.row_windows import group_codes
from eddyline.state.rows import ALWAYS, NarrowRun, Rows, SortedRun, values_of
from eddyline.state.run_files import MAPPED, RunFile
from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import UniqueKey
    from eddyline.joins.operator.leaving_rows import Tier
    from eddyline.joins.plan import BatchPlan, MemberPlan
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
    _leaving: Leaving = field(init=False)
    _tier: Tier = field(init=False)
    _caches: CachedBatch | None = field(init=False, default=None)
    _ages: PartnerAges | None = field(init=False, default=None)
    _stages: list[Stage] = field(init=False)
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
        on_time = {name: self._on_time(name, batch[name]) for name in sorted(batch)}
        news = {name: SortedRun.from_rows(rows) for name, rows in on_time.items() if len(rows)}
        self._stages = self._begun()
        windows = {name: self._window(name) for name in self.plan.graph.inputs}
        check_keys(self.plan.keys, windows, news)
        for stage in self._stages:
            stage.before_probe(windows, news)
        for table in self._results(windows, news):
            self.report.n_results += table.num_rows
            yield table
        self._profile(windows, news)
        self._measure_spans(windows, news)
        for stage in self._stages:
            stage.after_probe(windows, news)
        for name, merged in self._to_write.items():
            self._write_merged(name, merged)
        for name, run in news.items():
            self._count(name, run)
            self._keep(name, run)
        for stage in self._stages:
            stage.end()
        self.report.ns = time.perf_counter_ns() - started

    def _begun(self) -> list[Stage]:
        """Return the stages that the plan asks for, in the order in which they are called."""
        plan, report, stages = self.plan, self.report, list[Stage]()
        if not plan.caches.is_empty:
            self._caches = CachedBatch(plan, report, self.place.folder, self.before.runs)
            stages.append(self._caches)
        if plan.measures_ages:
            self._ages = PartnerAges(plan, report)
        self._leaving = Leaving(plan, report)
        if self._leaving.rules:
            stages.append(self._leaving)
        tier = ColdRows if plan.kept_for is None else Discarding
        self._tier = tier(plan, report, self.place, self.before)
        return [*stages, self._tier]

    def _results(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        """Return what the new rows of the batch bring about; see ``pipeline.results``."""
        plan, caches = self.plan, self._caches
        combinations = results(
            plan.graph,
            plan.orders,
            windows,
            news,
            self.report.work,
            None if caches is None else caches.shortcut,
            self._ages,
            self._leaving.matched,
            self._tier.lost,
            plan.classes,
        )
        if plan.products is None:
            return combinations
        counts = self.report.products
        return results_as_products(plan.products, plan.graph, windows, news, combinations, counts)

    def _profile(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Look some new rows up in all windows; orders of probes are learned from that."""
        plan = self.plan
        if plan.probing is not None:
            samples = drop_samples(plan.probing, plan.graph, windows, news, plan.batch_id)
            self.report.samples = tuple(samples)

    def _measure_spans(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Measure how long after the first row of their key new rows come."""
        if not self.plan.measures:
            return
        started = work_ns()
        for (name, key), top in self.plan.clusters.items():
            if name in news:
                self.report.spans[name, key] = spans_of(key, top, windows[name], news[name])
        self.report.monitor_ns += work_ns() - started

    def _horizon(self, name: str) -> int | None:
        """Return the instant before which rows of an input left that are not needed (µs)."""
        return self.plan.horizons.get(name, ALWAYS)

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
        origin = self.plan.batch_id, self.bucket, name
        keys = self.plan.keys_only.get(name, ())
        self.report.late_files.append(write_late(self.place, *origin, late, keys, self._low(name)))

    def _window(self, name: str) -> list[SortedRun]:
        """Return the runs of an input that may still join, some of them made one.

        Those that are cold come first.
        """
        horizon, length = self._horizon(name), self.plan.lengths[name]
        if horizon is None:
            return []
        cold, files, hot = self._tier.opened(name, horizon)
        lets_go = self._leaving.lets_go(name)
        if lets_go:
            files = by_size(files)
        upkeep = upkeep_of(files, horizon=horizon, length=length, hot=hot)
        stay = {file: self._open(name, file) for file in upkeep.stay}
        merge = upkeep.merge if self.plan.moved is None else upkeep.stay
        if merge:
            started = work_ns()
            parts = [self._mine(name, file, stay[file].rows) for file in merge]
            merged = SortedRun.from_rows(_alive(Rows.together(parts), horizon))
            merged = self._tier.hot_rows(name, merged, horizon)
            self._leaving.merged(name, merged, work_ns() - started)
            now = {}
            if len(merged) and lets_go:
                self._to_write[name] = now[TO_WRITE] = merged
            else:
                now = self._written(name, merged)
            for stage in self._stages:
                stage.moved(name, {file.name: stay[file] for file in merge}, horizon, now)
            stay = _replaced(stay, merge, now)
        self.report.after.runs[name] = tuple(stay)
        return [*cold, *stay.values()]

    def _mine(self, name: str, file: RunFile, rows: Rows) -> Rows:
        """Return the rows of a run that belong to this bucket."""
        moved, grid = self.plan.moved, self.plan.grid
        return rows if moved is None else moved.taken(grid, self.bucket, name, file.name, rows)

    def _counts(self, name: str, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask of the rows that count here; other buckets may have copies of them."""
        return self.plan.grid.is_first(self.bucket, name, rows.codes, rows.starts)

    def _count(self, name: str, run: SortedRun) -> None:
        """Count new rows. Also find the keys of a table, whose rows come once."""
        self.report.n_here += len(run)
        if run.rows.starts[0] == ALWAYS:
            self.report.unique[name] = unique_classes(run)
        started = work_ns()
        for place, top in self.plan.tops.items():
            if place[0] == name:
                codes = run.rows.codes[place[1]]
                is_whole = self.plan.kept_for is not None
                measures = self.plan.measures
                disorder = disorder_of(codes, top, measures=measures, is_whole=is_whole)
                self.report.disorder[place] = disorder
        self.report.monitor_ns += work_ns() - started
        counted = np.flatnonzero(self._counts(name, run.rows))
        if counted.size:
            self.report.n_rows[name] = counted.size
            step = max(1, counted.size // COUNTED_ROWS)
            for key, key_codes in run.rows.codes.items():
                counts = np.bincount(bins_of(key_codes[counted[::step]]), minlength=N_BINS)
                self.report.bins[name, key] = counts * step

    def _write_merged(self, name: str, run: SortedRun) -> None:
        """Write a merged run, apart from its rows that are done."""
        stay = self._staying(name, run, self._leaving.old(name, run))
        now = self._written(name, stay)
        runs = dict.fromkeys(self.report.after.runs[name], run)
        self.report.after.runs[name] = tuple(_replaced(runs, (TO_WRITE,), now))

    def _written(self, name: str, run: SortedRun) -> dict[RunFile, SortedRun]:
        """Write what stays of a merged run, if anything does; return it by its file."""
        started = work_ns()
        now = {self._write(run): run} if len(run) else {}
        self._leaving.wrote(name, work_ns() - started)
        return now

    def _staying(self, name: str, run: SortedRun, leaves: NDArray[np.bool_]) -> SortedRun:
        """Return a run's rows that stay hot; the tier takes the masked rows."""
        if not leaves.any():
            return run
        started = work_ns()
        self._tier.take(name, run.where(leaves))
        stay = run.where(~leaves)
        self._leaving.took(name, work_ns() - started)
        return stay

    def _keep(self, name: str, run: SortedRun) -> None:
        horizon = self._horizon(name)
        if horizon is None:
            return
        stay = self._staying(name, run, self._leaving.new(name, run))
        if len(stay) and stay.rows.ends.min() < horizon:
            stay = SortedRun.from_rows(_alive(stay.rows, horizon))
        if len(stay):
            after, file = self.report.after.runs, self._write(stay)
            after[name] = (*after.get(name, ()), file)
            for stage in self._stages:
                stage.moved(name, {NEWS: run}, horizon, {file: stay})

    def _open(self, name: str, file: RunFile) -> SortedRun:
        classes = self.plan.graph.classes_of[name]
        return MAPPED.run(self.place.files, self.place.runs, file, classes)

    def _write(self, run: SortedRun) -> RunFile:
        return MAPPED.write(self.place.files, self.place.runs, run)


def check_keys(
    keys: Mapping[str, UniqueKey],
    windows: Mapping[str, Sequence[SortedRun]],
    news: Mapping[str, SortedRun],
) -> None:
    """Refuse a second row with a declared key, before any result of the batch is given.

    Nothing of the batch is kept then. A person drops one of the rows or the declaration, and the
    query continues from the batch before.

    Raises:
        DuplicateKeyError: a new row has the key of another one that is in its window with it.
    """
    for name, key in keys.items():
        if name in news:
            _check_together(key, news[name])
            if windows[name]:
                _check_window(key, news[name], windows[name])


def _alive(rows: Rows, horizon: int) -> Rows:
    """Return the rows that may still join."""
    stays = rows.ends >= horizon
    return rows if stays.all() else rows.taken(np.flatnonzero(stays))


def _replaced(
    runs: Mapping[RunFile, SortedRun], merged: Sequence[RunFile], now: Mapping[RunFile, SortedRun]
) -> dict[RunFile, SortedRun]:
    """Return the runs with one, or none, in the place of several."""
    replaced: dict[RunFile, SortedRun] = {}
    for file, opened in runs.items():
        if file == merged[0]:
            replaced |= now
        elif file not in merged:
            replaced[file] = opened
    return replaced


def unique_classes(run: SortedRun) -> tuple[int, ...]:
    """Return the key classes in which no two rows of a table have the same code."""
    hashes = {key: run.index(key).hashes for key in run.keys}
    return tuple(key for key, values in hashes.items() if (values[1:] != values[:-1]).all())


def _check_together(key: UniqueKey, new: SortedRun) -> None:
    """Check new rows among themselves: equal codes stand next to each other in the index."""
    index = new.index(key.key)
    are_alike = index.hashes[1:] == index.hashes[:-1]
    places = np.flatnonzero(are_alike & (index.starts[1:] <= index.ends[:-1]))
    if places.size:
        rows = index.rows.astype(np.int64)
        _refuse(key, [new], rows[places], new, rows[places + 1])


def _check_window(key: UniqueKey, new: SortedRun, window: Sequence[SortedRun]) -> None:
    """Check the keys of new rows against the window and its cold rows."""
    every = Composites.from_rows(SEED, new, slice(0, len(new)), 0)
    pairs = every.join(key.stream, window, (key.key,), ())
    if len(pairs):
        _refuse(key, window, pairs.rows[key.stream], new, pairs.rows[SEED])


def _refuse(
    key: UniqueKey,
    window: Sequence[SortedRun],
    window_rows: NDArray[np.int64],
    new: SortedRun,
    rows: NDArray[np.int64],
) -> None:
    """Raise DuplicateKeyError if one of some pairs of rows with equal codes has equal keys."""
    window, window_rows = asked_of(window, window_rows)
    if key.kind is None:
        before = rows_of_parts([run.rows.payload for run in window], window_rows)[key.column]
        after = new.rows.payload[key.column].take(pa.array(rows))
        numbers = group_codes([pa.chunked_array([*before.chunks, *after.chunks])], 2 * rows.size)
        alike = np.flatnonzero(numbers[: rows.size] == numbers[rows.size :])
        if not alike.size:
            return
        pair = int(alike[0])
        value = after[pair].as_py()
    else:
        pair = 0
        value = values_of(new.rows.codes[key.key][rows[:1]], key.kind)[0].as_py()
    starts = np.concatenate([run.rows.starts for run in window])
    times = sorted([int(starts[window_rows[pair]]), int(new.rows.starts[rows[pair]])])
    first, second = (_in_words(time, is_local=key.is_local) for time in times)
    msg = (
        f"two rows of stream {key.stream!r} have the key {key.column} = {value!r}, of {first} and "
        f"of {second}, though engine.stream({key.stream!r}, …, key={key.column!r}) says that no "
        f"two have one while they are in their window; drop one of them before the stream "
        f"(dropDuplicates), or leave out key=…. Nothing is lost: no row of this batch was joined, "
        f"and a query that starts again begins with it"
    )
    raise DuplicateKeyError(
        msg, stream=key.stream, column=key.column, key=value, times=[first, second]
    )


def _in_words(time: int, *, is_local: bool) -> str:
    reading: str = pa.scalar(time, pa.timestamp("us")).as_py().isoformat(sep=" ")
    return reading if is_local else f"{reading} UTC"


Windows = dict[str, list["SortedRun"]]
News = dict[str, "SortedRun"]


@dataclass(slots=True)
class MemberBatch(BucketBatch):
    """One bucket in one batch for several queries that share its windows.

    The rows of a bucket come once and each window is kept once, as the query with the longest
    window needs it. Each query has pipelines of its own. It sees of a run its columns, the rows
    that its conditions pass (``MARKS``), and these for as long as its own window says
    (``NarrowRun``). Runs of which all rows have left its window are not looked at.
    """

    _seen: dict[str, tuple[Windows, News]] = field(init=False, default_factory=dict)
    """Windows and new rows as each query sees them."""

    def _results(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        """Yield the results of each query in turn; ``MEMBER`` says which one a result is of."""
        for member in self.plan.members:
            started, report = time.perf_counter_ns(), MemberReport()
            self.report.members[member.name] = report
            windows_seen = {name: self._window_of(member, name, windows) for name in windows}
            news_seen = {
                name: run for name in news if len(run := _new_rows(member, name, news[name]))
            }
            self._seen[member.name] = windows_seen, news_seen
            tables = results(member.graph, member.orders, windows_seen, news_seen, report.work)
            for table in tables:
                report.n_results += table.num_rows
                number = pa.repeat(pa.scalar(member.number, pa.int32()), table.num_rows)
                yield table.append_column(MEMBER, number)
            report.ns = time.perf_counter_ns() - started

    def _profile(
        self,
        windows: Mapping[str, Sequence[SortedRun]],  # noqa: ARG002 - each query sees its part
        news: Mapping[str, SortedRun],  # noqa: ARG002
    ) -> None:
        """Look some new rows up in all windows, for each query."""
        for member in self.plan.members:
            if member.probing is not None:
                seen = self._seen[member.name]
                samples = drop_samples(member.probing, member.graph, *seen, self.plan.batch_id)
                self.report.members[member.name].samples = tuple(samples)

    def _window_of(
        self, member: MemberPlan, name: str, windows: Mapping[str, Sequence[SortedRun]]
    ) -> list[SortedRun]:
        """Return an input's runs that may hold rows for a query."""
        horizon, stays = self._horizon(name), member.stays.get(name)
        if horizon is None:
            return []
        files = self.report.after.runs.get(name, ())
        return [
            _part(member, name, run)
            for file, run in zip(files, windows[name], strict=True)
            if stays is None or file.last_start + stays >= horizon
        ]


def _part(member: MemberPlan, name: str, run: SortedRun) -> SortedRun:
    bit = 1 << member.number if name in member.marked else 0
    return NarrowRun(run, member.columns[name], member.stays.get(name), bit, MARKS)


def _new_rows(member: MemberPlan, name: str, run: SortedRun) -> SortedRun:
    """Return the new rows of an input that a query needs."""
    if name in member.marked:
        marks = run.rows.payload[MARKS].to_numpy()
        run = run.where((marks & (1 << member.number)) != 0)
    stays = None if not len(run) or run.rows.starts[0] == ALWAYS else member.stays.get(name)
    return NarrowRun(run, member.columns[name], stays)

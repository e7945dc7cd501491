"""Rows that leave the hot tier or the state.

``Leaving`` says which rows leave. New rows leave at once, others when runs are merged. A row is
done if it was in a result and can be in no other, or if its key is over in all other streams.

A tier takes rows that are done or old. ``ColdRows`` keeps them in cold runs. ``Discarding`` drops
the rows that constraints mark as useless, and keeps a summary of their keys.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.constraints.bounds import bins_of
from eddyline.joins.operator.composites import Composites
from eddyline.joins.operator.pipeline import BLOCK_ROWS, LostResults, MatchedRows, Pipeline, Stage
from eddyline.joins.plan import CLOSED, MATCHED, PASSED, DoneCounts, JoinWork, Spans
from eddyline.state.cold_runs import AskedKeys, ColdTier, cold_run, cooled
from eddyline.state.dropped_rows import DroppedRows, Slice, alive, kept
from eddyline.state.event_time import earlier
from eddyline.state.rows import ALWAYS, FOREVER
from eddyline.state.run_files import MAPPED
from eddyline.state.run_index import first_starts, hashes_of
from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.plan import BatchPlan, BucketReport
    from eddyline.state.bucket_state import BucketState, ColdRuns
    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import SortedRun
    from eddyline.state.run_files import RunFile


class Leaving(Stage):
    """The rules of one bucket in one batch; their counts are added to its report."""

    def __init__(self, plan: BatchPlan, report: BucketReport) -> None:
        self.plan, self.report = plan, report
        self.rules = _counted_rules(plan)
        """By input, the rules that are counted; there is nothing to do without one."""
        self._leaving = {
            name: leaving
            for name, rules in self.rules.items()
            if (leaving := [rule for rule in rules if (rule, name) in plan.leaving])
        }
        self.matched: MatchedRows | None = None
        """The rows that are in results; None if nobody asks."""
        self._windows: Mapping[str, Sequence[SortedRun]] = {}
        """The runs of all inputs, with the new ones, once all results were taken."""
        self._newest: dict[str, int] = {}
        """The latest event time of the new rows of each input (µs)."""
        self._to_count: dict[str, SortedRun] = {}
        """Merged runs of which is to be counted how many rows have a closed key, by input."""

    def before_probe(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Take note of results from now on."""
        self._newest = {name: int(run.rows.starts.max()) for name, run in news.items()}
        covers = [name for name in self.plan.covers if MATCHED in self.rules.get(name, ())]
        if covers:
            self.matched = MatchedRows(covers, windows, news)

    def lets_go(self, name: str) -> bool:
        """Return whether rows of an input leave by any rule."""
        return name in self._leaving

    def merged(self, name: str, run: SortedRun, ns: int) -> None:
        """Count a run that was merged, and the time that it took (ns)."""
        for rule in self.rules.get(name, ()):
            counts = self._of(rule, name)
            counts.n_merged += len(run)
            counts.merge_ns += ns
            if rule == PASSED and (rule, name) not in self.plan.leaving:
                counts.n_old_done += int(self._passed(name, run).sum())
            if rule == CLOSED and (rule, name) not in self.plan.leaving:
                self._to_count[name] = run

    def wrote(self, name: str, ns: int) -> None:
        """Add the time that it took to write what stays of a merged run (ns)."""
        for rule in self.rules.get(name, ()):
            self._of(rule, name).merge_ns += ns

    def old(self, name: str, run: SortedRun) -> NDArray[np.bool_]:
        """Return which rows of a merged run of an input leave."""
        mask = np.zeros(len(run), np.bool_)
        for rule in self._leaving.get(name, ()):
            started, counts = work_ns(), self._of(rule, name)
            if rule == PASSED:
                mine = self._passed(name, run)
                counts.n_old_done += int(mine.sum())
            elif rule == CLOSED:
                mine = self._closed(name, run, np.flatnonzero(~mask))
                counts.n_old_done += int(mine.sum())
            else:
                mine = self._matched(name, run)
            counts.n_left += int((mine & ~mask).sum())
            mask |= mine
            counts.ns += work_ns() - started
        return mask

    def new(self, name: str, run: SortedRun) -> NDArray[np.bool_]:
        """Count the new rows of an input that are done, and return which leave."""
        mask = np.zeros(len(run), np.bool_)
        for rule in self.rules.get(name, ()):
            counts = self._of(rule, name)
            counts.n_new += len(run)
            if rule == CLOSED:  # looked for in merges alone, which takes less than it does here
                continue
            if rule == PASSED:
                mine = self._passed(name, run)
            else:
                assert self.matched is not None
                mine = self.matched.masks[name]
            counts.n_new_done += int(mine.sum())
            if (rule, name) in self.plan.leaving:
                mask |= mine
        return mask

    def took(self, name: str, ns: int) -> None:
        """Add the time that it took to write apart what left (ns)."""
        for rule in self._leaving.get(name, ()):
            self._of(rule, name).ns += ns

    def after_probe(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> None:
        """Count older rows in results, and rows of merged runs that are done."""
        self._windows = {
            name: (*runs, news[name]) if name in news else runs for name, runs in windows.items()
        }
        started = work_ns()
        for name, run in self._to_count.items():
            step = -(-len(run) // COUNTED) or 1
            n_done = int(self._closed(name, run, np.arange(0, len(run), step)).sum())
            self._of(CLOSED, name).n_old_done += n_done * step
        self.report.monitor_ns += work_ns() - started
        if self.matched is not None:
            for name, n_old in self.matched.n_old.items():
                self._of(MATCHED, name).n_old_done += n_old

    def _passed(self, name: str, run: SortedRun) -> NDArray[np.bool_]:
        """Return which rows have a key that the others have passed."""
        mask = np.zeros(len(run), np.bool_)
        for key, low in self.plan.below[name].items():
            mask |= run.rows.codes[key] < low
        return mask

    def _matched(self, name: str, run: SortedRun) -> NDArray[np.bool_]:
        """Return which rows have been in a result."""
        plan, mask = self.plan, np.zeros(len(run), np.bool_)
        pipeline = Pipeline(plan.graph, name, plan.orders[name], self._windows, JoinWork())
        for start in range(0, len(run), BLOCK_ROWS):
            rows = slice(start, min(start + BLOCK_ROWS, len(run)))
            composites = pipeline.run(Composites.from_rows(name, run, rows, 0))
            if composites is not None:
                mask[composites.rows[name]] = True
        return mask

    def _closed(self, name: str, run: SortedRun, asked: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows have a key that is closed in all others, of some by their places."""
        mask = np.zeros(len(run), np.bool_)
        for key, limits in self._limits(name).items():
            codes = run.rows.codes[key][asked]
            hashes = hashes_of(codes)
            rest = np.arange(asked.size)
            for other, limit in limits.items():
                keys, length = (
                    AskedKeys.from_hashes(hashes[rest], codes[rest]),
                    self.plan.lengths[other],
                )
                rest = rest[_began_by(self._windows[other], key, keys, limit, length)]
            mask[asked[rest]] = True
        return mask

    def _limits(self, name: str) -> dict[int, dict[str, int]]:
        """Return by key class and stream until when the first row of a closed key came (µs)."""
        plan, limits = self.plan, {}
        for key, spans in plan.closed[name].items():
            tops = {other: plan.clusters.get((other, key), ALWAYS) for other in spans}
            tops = {other: max(top, self._newest.get(other, top)) for other, top in tops.items()}
            if all(top > ALWAYS for top in tops.values()):
                limits[key] = {other: tops[other] - span for other, span in spans.items()}
        return limits

    def _of(self, rule: str, name: str) -> DoneCounts:
        return self.report.done.setdefault((rule, name), DoneCounts())


def _counted_rules(plan: BatchPlan) -> dict[str, list[str]]:
    """Return by input the rules that are counted: rows leave by them, or it is measured."""
    rules: dict[str, list[str]] = {}
    for rule, names in ((PASSED, plan.below), (CLOSED, plan.closed), (MATCHED, plan.covers)):
        for name in names:
            if plan.measures or (rule, name) in plan.leaving:
                rules.setdefault(name, []).append(rule)
    return rules


MEASURED = 512
"""New rows of a stream in a bucket that are measured, about, evenly spread over all."""

COUNTED = 2_048
"""Rows of a merged run that are looked up to say how many are done, while none leaves for it."""


def _began_by(
    window: Sequence[SortedRun], key: int, asked: AskedKeys, limit: int, length: int
) -> NDArray[np.bool_]:
    """Return which keys have a row in a window that is no later than an instant (µs)."""
    mask = np.zeros(asked.codes.size, np.bool_)
    for run in window:
        rest = np.flatnonzero(~mask)
        if not rest.size:
            break
        if isinstance(run, ColdTier):
            mask[run.began_by(key, asked, limit, length)] = True
        elif len(run) and int(run.rows.starts.min()) <= limit:
            mask[rest] = _firsts(run, key, asked.hashes[rest]) <= limit
    return mask


def spans_of(key: int, top: int, window: Sequence[SortedRun], new: SortedRun) -> Spans:
    """Return how long after the first row of their key the new rows (one or more) of a stream come.

    ``top`` is the latest event time of the stream before the batch (µs): a row that is out of order
    comes when that is, whatever its own time says.
    """
    n_rows = len(new)
    step = -(-n_rows // MEASURED)
    codes = np.ascontiguousarray(new.rows.codes[key][::step])
    starts, hashes = new.rows.starts[::step], hashes_of(codes)
    before = np.full(codes.size, FOREVER)
    for part in window:
        for run, _, places in part.asked(key, hashes, codes):
            mine = slice(None) if places is None else places
            before[mine] = np.minimum(before[mine], _firsts(run, key, hashes[mine]))
    here = starts - _firsts(new, key, hashes)
    spans = np.where(before < FOREVER, np.maximum(starts, top) - before, here)
    numbers, counts = np.unique(bins_of(spans[spans > 0]), return_counts=True)
    return Spans(n_rows, dict(zip(numbers.tolist(), (counts * step).tolist(), strict=True)))


def _firsts(run: SortedRun, key: int, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the instant of the first row of each key in a run (µs); FOREVER if it has none."""
    index = run.index(key)
    return first_starts(hashes, index.entries, index.directory)


STEPS = 16
"""Rows leave by age whenever event time has gone on by so many parts of the time for which they are
kept: a run of which rows are both younger and older is written again no more often than that."""


class Tier(Stage):
    """The place of the rows of one bucket that are no longer hot, in one batch."""

    lost: LostResults | None = None
    """The results that dropped rows cost; None if no row is dropped."""

    def __init__(
        self, plan: BatchPlan, report: BucketReport, place: StatePlace, before: BucketState
    ) -> None:
        self._plan, self._report = plan, report
        self._place, self._before = place, before

    def opened(self, name: str, horizon: int) -> OpenedWindow:
        """Return the window of an input, without rows that are too old to be hot.

        Rows that left their window before the horizon (µs) are not needed.
        """
        raise NotImplementedError

    def hot_rows(self, name: str, run: SortedRun, horizon: int) -> SortedRun:  # noqa: ARG002
        """Return a merged run of an input without rows that are too old, which are taken."""
        return run

    def take(self, name: str, run: SortedRun) -> None:
        """Take rows (one or more) that leave the hot tier of an input."""
        raise NotImplementedError

    def _open(self, name: str, file: RunFile) -> SortedRun:
        classes = self._plan.graph.classes_of[name]
        return MAPPED.run(self._place.files, self._place.runs, file, classes)


class OpenedWindow(NamedTuple):
    """The window of an input as a batch finds it."""

    cold: list[ColdTier]
    """The cold runs as one; none if there are none."""
    files: Sequence[RunFile]
    """The hot runs."""
    hot: int | None
    """For how long rows are hot (µs); None: as long as they are in the window."""


class ColdRows(Tier):
    """The tier of joins that answer exactly: rows that are not hot are in cold runs.

    Runs become cold when a batch begins. Some do already when it ends, as far as the new rows of
    this bucket show that event time has gone on.
    """

    _newest: Mapping[str, int]
    """The latest event time of the new rows of each input (µs)."""

    def opened(self, name: str, horizon: int) -> OpenedWindow:
        """Return the window of an input; some runs become cold now.

        No run that is cold becomes hot again, unless the plan has no cold tier any more.
        """
        plan, before, hot = self._plan, self._before, self._plan.spans.get(name)
        if hot is None or plan.moved is not None:
            return OpenedWindow([], before.all_runs(name), hot)
        stay, parts = self._cooled(
            name, before.runs.get(name, ()), before.cold.get(name, ()), hot, horizon, horizon
        )
        keys, opened = plan.graph.classes_of[name], partial(self._open, name)
        tier = ColdTier(self._place.files, self._place.runs, parts, keys, opened)
        # Rows are not asked for before the rows that wait for them are due.
        waits = plan.lengths[name] - plan.stays(name)
        return OpenedWindow([tier] if parts else [], stay, hot + waits)

    def _cooled(
        self,
        name: str,
        runs: Sequence[RunFile],
        cold: Sequence[ColdRuns],
        hot: int,
        horizon: int,
        now: int,
    ) -> tuple[list[RunFile], tuple[ColdRuns, ...]]:
        """Return the runs of an input that stay hot, and the cold ones with the others.

        ``hot`` is for how long rows are before an instant ``now`` (µs).
        """
        length, opened = self._plan.stays(name), partial(self._open, name)
        until = now + length - hot
        parts = cooled(
            self._place.files,
            self._place.runs,
            cold,
            [file for file in runs if file.last_end < until],
            opened,
            horizon=horizon,
            length=length,
        )
        self._report.after.cold[name] = parts
        return [file for file in runs if file.last_end >= until], parts

    def before_probe(
        self,
        windows: Mapping[str, Sequence[SortedRun]],  # noqa: ARG002 - news say how far time is
        news: Mapping[str, SortedRun],
    ) -> None:
        """Take note of how far the new rows are."""
        self._newest = {name: int(run.rows.starts.max()) for name, run in news.items()}

    def end(self) -> None:
        """Let runs become cold; OSError if a filter cannot be written."""
        plan, after = self._plan, self._report.after
        if plan.moved is not None or plan.partners is not None:
            return
        for name, hot in plan.spans.items():
            horizon, now = plan.horizons.get(name, ALWAYS), self._passed(name)
            if hot is None or horizon is None or now <= horizon or name not in after.runs:
                continue
            cold = after.cold.get(name, ())
            stay, _ = self._cooled(name, after.runs[name], cold, hot, horizon, now)
            after.runs[name] = tuple(stay)

    def _passed(self, name: str) -> int:
        """Return the instant that all other streams have passed with this batch, at least (µs)."""
        lateness, newest = self._plan.lateness, self._newest
        others = [other for other in lateness if other != name]
        if name not in lateness or not others or not {*others} <= newest.keys():
            return ALWAYS
        return min(newest[other] - lateness[other] for other in others)

    def take(self, name: str, run: SortedRun) -> None:
        """Write rows of an input as a cold run."""
        files, folder, cold = self._place.files, self._place.runs, self._report.after.cold
        part = cold_run(files, folder, MAPPED.write(files, folder, run), run)
        cold[name] = (*cold.get(name, ()), part)


class Discarding(Tier):
    """The tier of joins that may drop rows: rows that are not hot are gone."""

    lost: LostResults

    def __init__(
        self, plan: BatchPlan, report: BucketReport, place: StatePlace, before: BucketState
    ) -> None:
        assert plan.kept_for is not None
        super().__init__(plan, report, place, before)
        self._kept_for = plan.kept_for
        self._slices: dict[str, list[Slice]] = {}
        self._dropped: dict[str, list[Slice]] = {}
        """What is dropped in this batch, by input."""
        self.lost = LostResults(plan.kept_for)
        report.lost = self.lost.counts

    def opened(self, name: str, horizon: int) -> OpenedWindow:
        """Return the window of an input, and read what is known of rows that were dropped."""
        files: Sequence[RunFile] = self._before.all_runs(name)
        if name not in self._kept_for:
            return OpenedWindow([], files, None)
        before = self._before.dropped.get(name, ())
        self._slices[name] = alive(self._place.files, self._place.runs, before, horizon)
        if self._plan.moved is None:
            files = self._aged(name, files, horizon)
        return OpenedWindow([], files, self._kept_for[name])

    def _aged(self, name: str, files: Sequence[RunFile], horizon: int) -> Sequence[RunFile]:
        """Return the runs of an input without its rows that are too old now."""
        until = self._until(name, horizon)
        if until is None:
            return files
        stay = []
        for file in files:
            if file.last_end < horizon:
                continue  # it left its window, which costs nothing
            if file.first_start >= until:
                stay.append(file)
                continue
            run = self._open(name, file)
            young = self.hot_rows(name, run, horizon)
            if len(young):
                same = len(young) == len(run)
                runs = self._place.files, self._place.runs
                stay.append(file if same else MAPPED.write(*runs, young))
        return stay

    def hot_rows(self, name: str, run: SortedRun, horizon: int) -> SortedRun:
        """Return a run without its rows that are too old, which are dropped."""
        until = self._until(name, horizon)
        if until is None:
            return run
        is_old = run.rows.starts < until
        if (needed := is_old & (run.rows.ends >= horizon)).any():
            self.take(name, run.where(needed))
        return run.where(~is_old)

    def take(self, name: str, run: SortedRun) -> None:
        """Drop rows (one or more) of an input."""
        self.lost.counts[name].n_dropped += len(run)
        self._dropped.setdefault(name, []).append(Slice.from_run(run))

    def before_probe(
        self,
        windows: Mapping[str, Sequence[SortedRun]],  # noqa: ARG002 - dropped rows are in none
        news: Mapping[str, SortedRun],  # noqa: ARG002
    ) -> None:
        """Let new rows be looked up among what was dropped so far."""
        for name, slices in self._slices.items():
            self.lost.dropped[name] = DroppedRows([*slices, *self._dropped.get(name, ())])

    def end(self) -> None:
        """Write what stays of what was dropped, by input; OSError if it cannot be written."""
        for name, slices in self._slices.items():
            fresh = self._dropped.get(name, [])
            both = [*slices, *([Slice.together(fresh)] if fresh else [])]
            horizon, length = self._plan.horizons.get(name, ALWAYS), self._plan.lengths[name]
            files, folder = self._place.files, self._place.runs
            low = FOREVER if horizon is None else horizon
            if now := kept(files, folder, both, horizon=low, length=length):
                self._report.after.dropped[name] = now

    def _until(self, name: str, horizon: int) -> int | None:
        """Return the instant before which rows of an input are too old (µs); None if none are."""
        kept_for = self._kept_for.get(name)
        if kept_for is None or horizon <= ALWAYS + 1:
            return None
        step = max(kept_for // STEPS, 1)
        return earlier(horizon, kept_for) // step * step

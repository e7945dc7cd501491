"""Joins whose answers hang on the order of event time: windows of N rows, DSTREAM, RSTREAM.

Rows are joined in the order of their event time, once no earlier row can come. The second half says
which results hold between two instants: as they begin, as they end, or all that hold.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import distinct
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.operator.pipeline import results
from eddyline.joins.plan import BucketReport, JoinWork
from eddyline.state.bucket_state import upkeep_of
from eddyline.state.event_time import HeldRows, ended_until
from eddyline.state.row_windows import (
    GROUP,
    RANK,
    Arrivals,
    Groups,
    read_ends,
    read_groups,
    run_of,
    run_with,
    stream_order,
    with_ends,
    write_ends,
    write_groups,
)
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import BatchPlan
    from eddyline.query.query import Emits
    from eddyline.state.event_time import EventTime, OrderPlan
    from eddyline.state.run_files import RunFile

SHRINKS = 2
"""A run of counted rows is written anew once one in so many of its rows is gone."""


@dataclass(slots=True)
class Kept:
    """A run of a window while a batch is joined."""

    run: SortedRun
    file: RunFile | None = None
    """Its file; None if it is still to be written."""
    ends: RunFile | None = None
    """The file of its ends; None if they are in the run, or still to be written."""
    has_new_ends: bool = False
    """Whether they are still to be written."""


@dataclass(slots=True)
class Released:
    """Rows of an input that need not wait any longer."""

    rows: Rows
    """Those that can join."""
    arrivals: Arrivals | None
    """Places of all of them in their groups; None if their window does not count rows."""


@dataclass(slots=True)
class OrderedBatch(BucketBatch):
    """The bucket of a join that needs order, in one batch; see ``BucketBatch``.

    Args:
        latest: the latest event times of rows that do not come themselves (µs), by stream.
    """

    latest: Mapping[str, int] = field(default_factory=dict)
    _windows: dict[str, list[Kept]] = field(init=False, default_factory=dict)

    def run(self, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Take in the rows of the batch, join those that need not wait, keep both.

        Args:
            batch: the rows of each input that has some; of inputs whose window counts rows, and
                for RSTREAM of all, those that cannot join, too.

        Returns:
            The results; see ``pipeline.results``; the instant of each is in ``_at``.

        Raises:
            OSError: a file cannot be read or written.
        """
        started = time.perf_counter_ns()
        self.report = BucketReport(self.bucket)
        since = self.before.emitted_until
        latest = latest_after(self._order.time, self._order.latest, batch, self.latest)
        until = max(since, self._order.until(latest))
        due = self._due({name: self._on_time(name, batch[name]) for name in batch}, since, until)
        if due or until > since:
            yield from self._step(due, since, until, latest)
        else:
            self._carry_over()
        self.report.after.emitted_until = until
        self.report.ns = time.perf_counter_ns() - started

    @property
    def _where(self) -> tuple[fs.FileSystem, str]:
        return self.place.files, self.place.runs

    @property
    def _order(self) -> OrderPlan:
        assert self.plan.order is not None
        return self.plan.order

    def _carry_over(self) -> None:
        """Keep the windows as they are."""
        after, before = self.report.after, self.before
        after.runs, after.ends, after.groups = before.runs, before.ends, before.groups

    def _step(
        self, due: Mapping[str, Rows], since: int, until: int, latest: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        """Join the rows from an instant until just before another, and keep them."""
        released = {
            name: released_of(self._order, name, rows, self._groups(name))
            for name, rows in due.items()
        }
        self._windows = {name: self._opened(name) for name in self.plan.graph.inputs}
        for name, each in released.items():
            if each.arrivals is not None:
                self._windows[name] = [_ended(kept, each.arrivals) for kept in self._windows[name]]
        news = {name: run_of(each.rows) for name, each in released.items() if len(each.rows)}
        yield from self._emitted(since, until, due, news)
        retention = self._order.retention(until)
        for name in self.plan.graph.inputs:
            self._keep_window(name, news.get(name), retention.horizon(name, latest))
            self._keep_groups(name, released.get(name))

    # -- rows that come -------------------------------------------------------------------------

    def _low(self, name: str) -> int:
        """Return the instant before which rows are late: also where less lateness was allowed."""
        low = self.plan.lows.get(name, ALWAYS)
        return max(low, self.before.emitted_until) if name in self._order.awaited else low

    def _write_late(self, name: str, late: Rows) -> None:
        late = late.passing()
        if not len(late):
            return
        needed = list(self._order.columns.get(name, late.payload.column_names))
        late = Rows(late.codes, late.starts, late.ends, late.payload.select(needed))
        BucketBatch._write_late(self, name, late)

    def _due(self, on_time: Mapping[str, Rows], since: int, until: int) -> dict[str, Rows]:
        """Return the rows that need not wait any longer; the others are kept as waiting."""
        due = {}
        for name in self.plan.graph.inputs:
            rows = on_time.get(name)
            if rows is not None:
                self.report.n_rows[name] = len(rows.passing())
                self.report.n_here += self.report.n_rows[name]
            if name not in self._order.time.lateness:
                if rows is not None:
                    due[name] = rows
                continue
            held = HeldRows(*self._where, self.before.waiting.get(name, ()), since)
            parts, waiting = held.before(until), None
            if rows is not None:
                is_due = rows.starts < until
                parts.append(rows.taken(np.flatnonzero(is_due)))
                waiting = rows.taken(np.flatnonzero(~is_due))
            parts = [part for part in parts if len(part)]
            if parts:
                due[name] = Rows.together(parts)
            if files := held.after(until, waiting):
                self.report.after.waiting[name] = files
        return due

    # -- the windows ----------------------------------------------------------------------------

    def _opened(self, name: str) -> list[Kept]:
        """Return the runs of an input; those that are to be one have no file any more."""
        files = self.before.runs.get(name, ())
        ends = {run_with(file): file for file in self.before.ends.get(name, ())}
        opened = []
        for file in files:
            run = self._open(name, file)
            if file.name in ends:
                run = with_ends(run, read_ends(*self._where, ends[file.name]))
            opened.append(Kept(run, file, ends.get(file.name)))
        return opened

    def _emitted(
        self, since: int, until: int, due: Mapping[str, Rows], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        """Yield what is emitted from an instant until just before another."""
        order = self._order
        emission = Emission(
            self.plan.graph,
            self.plan.orders,
            since,
            until,
            {
                name: [_joinable(order, name, each.run) for each in self._windows[name]]
                for name in self.plan.graph.inputs
            },
            {name: _joinable(order, name, run) for name, run in news.items()},
            instants_of([rows for name, rows in due.items() if name in order.time.lateness]),
            self.report.work,
        )
        for found in emission.tables(order.emits):
            self.report.n_results += found.num_rows
            yield found
        self._profile(emission.windows, emission.news)

    def _keep_window(self, name: str, new: SortedRun | None, horizon: int | None) -> None:
        """Keep the rows of a window that may still be needed."""
        if horizon is None:
            self._windows[name] = []
            return
        every = [*self._windows[name], *([Kept(new)] if new is not None else [])]
        can_shrink = name in self._order.rows
        alive = [_alive(each, horizon, can_shrink=can_shrink) for each in every]
        kept = self._merged(name, [each for each in alive if each is not None], horizon)
        for each in kept:
            if each.file is None:
                each.file = self._write(each.run)
            elif each.has_new_ends:
                ends = each.run.rows.ends
                each.file, each.ends = write_ends(*self._where, each.file, ends)
        self._windows[name] = kept
        after = self.report.after
        if kept:
            after.runs[name] = tuple(each.file for each in kept if each.file is not None)
        if ends_files := tuple(each.ends for each in kept if each.ends is not None):
            after.ends[name] = ends_files

    def _merged(self, name: str, kept: Sequence[Kept], horizon: int) -> list[Kept]:
        """Return the runs of a window, some of them made one."""
        files = [each.file for each in kept if each.file is not None]
        if name in self._order.rows:
            # Rows of groups leave in no order, so runs of any age are of any size.
            files.sort(key=lambda file: file.n_rows, reverse=True)
        upkeep = upkeep_of(files, horizon=horizon, length=self.plan.lengths[name])
        if not upkeep.merge:
            return list(kept)
        parts = [each for each in kept if each.file in upkeep.merge]
        others = [each for each in kept if each.file not in upkeep.merge]
        rows = _ending_from(Rows.together([each.run.rows for each in parts]), horizon)
        return [Kept(run_of(rows)), *others]

    # -- groups ---------------------------------------------------------------------------------

    def _groups(self, name: str) -> Groups | None:
        """Return the groups of an input before the batch; None if none is known."""
        file = self.before.groups.get(name)
        return None if file is None else read_groups(*self._where, file)

    def _keep_groups(self, name: str, released: Released | None) -> None:
        """Keep what is counted of the groups that have a row whose end is not known."""
        open_rows = [_open_rows(each.run) for each in self._windows[name]]
        if name not in self._order.rows or not open_rows:
            return
        file: RunFile | None = None
        if released is None or released.arrivals is None:
            file = self.before.groups.get(name)
        elif len(groups := released.arrivals.groups.only(open_rows)):
            file = write_groups(*self._where, groups)
        if file is not None:
            self.report.after.groups[name] = file


def results_of_all(plan: BatchPlan, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
    """Join rows after which none comes.

    Args:
        plan: how they are joined, with its order.
        batch: all rows of each input that has some; see ``OrderedBatch.run``.

    Returns:
        As ``OrderedBatch.run`` does.
    """
    order = plan.order
    assert order is not None
    released = {name: released_of(order, name, rows, None).rows for name, rows in batch.items()}
    news = {name: _joinable(order, name, run_of(of)) for name, of in released.items() if len(of)}
    instants = instants_of([rows for name, rows in batch.items() if name in order.time.lateness])
    work = JoinWork()
    emission = Emission(plan.graph, plan.orders, ALWAYS, FOREVER, {}, news, instants, work)
    yield from emission.tables(order.emits)


def latest_after(
    streams: EventTime,
    before: Mapping[str, int],
    batch: Mapping[str, Rows],
    others: Mapping[str, int],
) -> dict[str, int]:
    """Return the latest event time of each stream after a batch (µs).

    Args:
        streams: the streams.
        before: their latest event times before it.
        batch: the rows of each input.
        others: the latest times of rows that do not come themselves.
    """
    latest = dict(before)
    telling = {name: rows for name, rows in batch.items() if name not in streams.told}
    came = {name: int(rows.starts.max()) for name, rows in telling.items() if len(rows)}
    for name, at in (*came.items(), *others.items()):
        if name in streams.lateness:
            latest[name] = max(latest.get(name, ALWAYS), at)
    return latest


def instants_of(parts: Sequence[Rows]) -> NDArray[np.int64]:
    """Return the instants at which rows come; ascending, each once (µs)."""
    starts = [rows.starts for rows in parts]
    return distinct(np.concatenate(starts)) if starts else np.empty(0, np.int64)


def released_of(order: OrderPlan, name: str, rows: Rows, groups: Groups | None) -> Released:
    """Return the rows of an input that can join, with their ends as far as these are known.

    Args:
        order: what is asked.
        name: the input.
        rows: all rows of the stream from where it stood until an instant; in any order.
        groups: those of the stream before the rows; None if there was none.
    """
    if name not in order.rows:
        return Released(rows.passing(), None)
    window, payload = order.rows[name], rows.payload
    by_time = stream_order(rows.starts, payload.select(order.ties[name]))
    rows = rows.taken(by_time)
    values = rows.payload.select(window.partition_by)
    arrivals = Arrivals.of(groups, window.rows, rows.starts, values)
    ends = arrivals.ends(arrivals.group, arrivals.rank)
    # Of several rows of one instant some are gone before they were there.
    joins = ends >= rows.starts
    if rows.passes is not None:
        joins &= rows.passes
    columns = {each: rows.payload[each] for each in order.columns[name]}
    columns |= {GROUP: pa.array(arrivals.group), RANK: pa.array(arrivals.rank)}
    whole = Rows(rows.codes, rows.starts, ends, pa.table(columns))
    return Released(whole.taken(np.flatnonzero(joins)), arrivals)


def _joinable(order: OrderPlan, name: str, run: SortedRun) -> SortedRun:
    """Return a run without the columns that only tell where its rows stand."""
    if name not in order.rows:
        return run
    rows, columns = run.rows, list(order.columns[name])
    return SortedRun(
        Rows(rows.codes, rows.starts, rows.ends, rows.payload.select(columns)), run.indexes
    )


def _ended(kept: Kept, arrivals: Arrivals) -> Kept:
    """Return a run with the ends that are known now that more rows have come."""
    rows = kept.run.rows
    is_open = np.flatnonzero(rows.ends == FOREVER)
    ends = arrivals.ends(
        rows.payload[GROUP].to_numpy()[is_open], rows.payload[RANK].to_numpy()[is_open]
    )
    is_known = ends < FOREVER
    if not is_known.any():
        return kept
    now = rows.ends.copy()
    now[is_open[is_known]] = ends[is_known]
    return Kept(with_ends(kept.run, now), kept.file, None, has_new_ends=True)


def _open_rows(run: SortedRun) -> NDArray[np.int64]:
    """Return the groups of the rows whose ends are not known."""
    if GROUP not in run.rows.payload.column_names:
        return np.empty(0, np.int64)
    groups: NDArray[np.int64] = run.rows.payload[GROUP].to_numpy()[run.rows.ends == FOREVER]
    return groups


def _ending_from(rows: Rows, horizon: int) -> Rows:
    """Return the rows whose windows hold them at an instant or after it."""
    return rows.taken(np.flatnonzero(rows.ends >= horizon))


def _alive(kept: Kept, horizon: int, *, can_shrink: bool) -> Kept | None:
    """Return a run as long as rows of it are needed; without the others where these are many."""
    n_rows = len(kept.run)
    n_gone = int((kept.run.rows.ends < horizon).sum())
    if n_gone == n_rows:
        return None
    is_worth_it = kept.file is None or (can_shrink and n_gone * SHRINKS >= n_rows)
    if n_gone == 0 or not is_worth_it:
        return kept
    return Kept(run_of(_ending_from(kept.run.rows, horizon)))


AT = "_at"
"""The column of the instant at which a result is emitted (µs)."""

CHUNK_ROWS = 65_536
"""Rows of a table, about, where one result is emitted at many instants."""


@dataclass(frozen=True, slots=True, eq=False)
class Emission:
    """The results that are emitted from an instant until just before another."""

    graph: JoinGraph
    orders: Mapping[str, Sequence[str]]
    """For each input, the order in which its rows meet the others."""
    since: int
    """All before it was emitted before (µs)."""
    until: int
    """All rows before it are there, and all ends before the last instant that is before it (µs)."""
    windows: Mapping[str, Sequence[SortedRun]]
    """The rows before ``since``; such as may be needed."""
    news: Mapping[str, SortedRun]
    """The rows from then on, of each input that has some."""
    instants: NDArray[np.int64]
    """Those at which a row of a stream came between the two; ascending, each once (µs)."""
    work: JoinWork
    """Counts of the probes, to which these are added."""

    def tables(self, emits: Emits) -> Iterator[pa.Table]:
        """Yield the results: see ``pipeline.results``; the instant of each is in ``_at``."""
        if emits == "istream":
            for found in self._joined(self.windows, self.news):
                yield found.append_column(AT, found["_start"])
        elif emits == "dstream":
            for found in self._ended():
                yield found.append_column(AT, pc.add(found["_end"], 1))
        else:
            for found in self._present():
                yield from _at_each(found, self.instants)

    def _joined(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        for found in results(self.graph, self.orders, windows, news, self.work):
            # Bounds of ends let some pairs through that never live at one instant.
            lives = pc.less_equal(found["_start"], found["_end"])
            kept = found if pc.all(lives).as_py() else found.filter(lives)
            if kept.num_rows:
                yield kept

    def _all(self, name: str) -> list[SortedRun]:
        new = [self.news[name]] if name in self.news else []
        return [*self.windows.get(name, ()), *new]

    def _ended(self) -> Iterator[pa.Table]:
        """Yield the results that ended."""
        since, until = ended_until(self.since), ended_until(self.until)
        stay: dict[str, list[SortedRun]] = {}
        leave: dict[str, SortedRun] = {}
        for name in self.graph.inputs:
            runs = self._all(name)
            parts = [
                run.rows.taken(np.flatnonzero((run.rows.ends >= since) & (run.rows.ends < until)))
                for run in runs
            ]
            parts = [part for part in parts if len(part)]
            if parts:
                leave[name] = run_of(Rows.together(parts))
            stay[name] = runs
        if leave:
            stay = {name: [_without(run, until) for run in runs] for name, runs in stay.items()}
            yield from self._joined(stay, leave)

    def _present(self) -> Iterator[pa.Table]:
        """Yield the results that live at one of the instants, and perhaps others."""
        if not self.instants.size:
            return
        runs = {name: self._all(name) for name in self.graph.inputs}
        first = min(runs, key=lambda name: sum(map(len, runs[name])))
        for run in runs[first]:
            yield from self._joined(runs | {first: []}, {first: run})


def _without(run: SortedRun, until: int) -> SortedRun:
    """Return a run of which rows that end before an instant join with nothing."""
    stays = run.rows.ends >= until
    return run if stays.all() else with_ends(run, np.where(stays, run.rows.ends, ALWAYS))


def _at_each(found: pa.Table, instants: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield results at each of the instants at which they live."""
    first = np.searchsorted(instants, found["_start"].to_numpy(), "left")
    last = np.searchsorted(instants, found["_end"].to_numpy(), "right")
    counts = last - first
    totals = np.cumsum(counts)
    low = 0
    while low < counts.size:
        done = totals[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(totals, done + CHUNK_ROWS, "right")))
        own = counts[low:high]
        if own.any():
            place = np.repeat(np.arange(low, high), own)
            nth = np.arange(place.size) - np.repeat(np.cumsum(own) - own, own)
            at = instants[np.repeat(first[low:high], own) + nth]
            yield found.take(pa.array(place)).append_column(AT, pa.array(at))
        low = high

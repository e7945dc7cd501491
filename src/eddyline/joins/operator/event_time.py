"""Joins whose results wait for event time.

``OrderedBatch`` is for windows of N rows, DSTREAM and RSTREAM. It joins rows in the order of event
time, once no earlier row can come. ``Emission`` says which results begin, end or hold between two
instants.

``PartnerBatch`` is for LEFT, SEMI and ANTI joins of two inputs. A row of the first input waits
until event time has passed its window, so no partner can come any more. It is then looked up once
in the window of the second input, which keeps rows for as long. So nothing is remembered of a row
that waits. Combinations of a LEFT join are found at once, as those of an inner join. If the second
input is a stream, all rows are in one bucket, which sees how far its event time is.

``CountedPartnerBatch`` is for such joins whose second input has a window of N rows. It is an
``OrderedBatch``, because the ends of these rows follow from their order, and it decides rows as
``PartnerBatch`` does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.data.arrays import distinct, starts_of
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.operator.composites import SEED, Composites, asked_of, rows_of_parts
from eddyline.joins.operator.pipeline import BLOCK_ROWS, PartnerAges, results
from eddyline.joins.orders.probe_profiling import LookUp
from eddyline.joins.plan import BucketReport, JoinWork
from eddyline.state.bucket_state import ColdRuns, upkeep_of
from eddyline.state.cold_runs import read_filters, write_filter
from eddyline.state.event_time import HeldRows, earlier, ended_until
from eddyline.state.row_windows import (
    GROUP,
    RANK,
    Arrivals,
    ColdRun,
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
from eddyline.state.rows import ALWAYS, FOREVER, Rows, SortedRun, result_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyarrow import fs

    from eddyline.joins.graph import JoinGraph
    from eddyline.joins.plan import BatchPlan, PartnerPlan
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
    is_cold: bool = False
    """Whether its rows are hardly asked for."""
    filter: RunFile | None = None
    """The filter of the keys of a cold run; None if it is still to be written."""


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
        """Join the rows that need not wait; keep these and the waiting ones.

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
        after.cold = before.cold

    def _step(
        self, due: Mapping[str, Rows], since: int, until: int, latest: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        """Join the rows from an instant until just before another, and keep them."""
        released = {
            name: released_of(self._order, name, rows, self._groups(name))
            for name, rows in due.items()
        }
        self._windows = {name: self._opened(name) for name in self.plan.graph.inputs}
        for name, release in released.items():
            if release.arrivals is not None:
                self._windows[name] = [
                    _ended(kept, release.arrivals) for kept in self._windows[name]
                ]
        news = {
            name: run_of(release.rows) for name, release in released.items() if len(release.rows)
        }
        yield from self._emitted(since, until, due, news)
        for name in self.plan.graph.inputs:
            horizon = self._order.horizon(name, latest, until)
            self._keep_window(name, news.get(name), horizon, until)
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
            if parts := self._due_of(name, rows, since, until):
                due[name] = Rows.together(parts)
        return due

    def _due_of(self, name: str, rows: Rows | None, since: int, until: int) -> list[Rows]:
        """Return the rows of an input that need not wait any longer; the others are kept."""
        return due_of(self, name, rows, since, until)

    # -- the windows ----------------------------------------------------------------------------

    def _opened(self, name: str) -> list[Kept]:
        """Return the runs of an input, the cold ones first."""
        ends = {run_with(file): file for file in self.before.ends.get(name, ())}
        filters = {
            part.run.name: part.filter
            for part in self.before.cold.get(name, ())
            if part.run is not None
        }
        opened, has_cold = [], self.plan.spans.get(name) is not None
        for file in self.before.all_runs(name):
            run, ends_file = self._open(name, file), ends.get(file.name)
            now = run.rows.ends if ends_file is None else read_ends(*self._where, ends_file)
            filter_file = filters.get(file.name) if has_cold else None
            if filter_file is not None:
                run = ColdRun(run, now, read_filters(*self._where, filter_file))
            elif ends_file is not None:
                run = with_ends(run, now)
            opened.append(
                Kept(run, file, ends_file, is_cold=filter_file is not None, filter=filter_file)
            )
        return sorted(opened, key=lambda part: not part.is_cold)

    def _emitted(
        self, since: int, until: int, due: Mapping[str, Rows], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        """Yield what is emitted from an instant until just before another."""
        order = self._order
        if self.plan.measures_ages:
            self._ages = PartnerAges(self.plan, self.report)
        emission = Emission(
            self.plan.graph,
            self.plan.orders,
            since,
            until,
            {
                name: [_joinable(order, name, part.run) for part in self._windows[name]]
                for name in self.plan.graph.inputs
            },
            {name: _joinable(order, name, run) for name, run in news.items()},
            instants_of([rows for name, rows in due.items() if name in order.time.lateness]),
            self.report.work,
            self._ages,
        )
        for table in emission.tables(order.emits):
            self.report.n_results += table.num_rows
            yield table
        self._profile(emission.windows, emission.news)

    def _keep_window(
        self, name: str, new: SortedRun | None, horizon: int | None, until: int
    ) -> None:
        """Keep the rows of a window that may still be needed; runs that are too old become cold."""
        if horizon is None:
            self._windows[name] = []
            return
        every = [*self._windows[name], *([Kept(new)] if new is not None else [])]
        can_shrink = name in self._order.rows
        alive = [_alive(part, horizon, can_shrink=can_shrink) for part in every]
        kept = []
        for is_cold in (True, False):
            mine = [part for part in alive if part is not None and part.is_cold == is_cold]
            kept += self._merged(name, mine, horizon)
        span = self._hot_for(name)
        for part in kept:
            if part.file is None:
                part.file = self._write(part.run)
            elif part.has_new_ends:
                ends = part.run.rows.ends
                part.file, part.ends = write_ends(*self._where, part.file, ends)
            part.is_cold |= span is not None and part.file.last_start < earlier(until, span)
            if part.is_cold and part.filter is None:
                part.filter = write_filter(*self._where, [part.file], [part.run])
        self._windows[name] = kept
        after = self.report.after
        if hot := tuple(part.file for part in kept if part.file is not None and not part.is_cold):
            after.runs[name] = hot
        parts = (ColdRuns(part.filter, part.file) for part in kept if part.filter is not None)
        if cold := tuple(parts):
            after.cold[name] = cold
        if ends_files := tuple(part.ends for part in kept if part.ends is not None):
            after.ends[name] = ends_files

    def _hot_for(self, name: str) -> int | None:
        """Return for how long the rows of an input are hot (µs); None: as long as they stay."""
        return self.plan.spans.get(name)

    def _merged(self, name: str, kept: Sequence[Kept], horizon: int) -> list[Kept]:
        """Return the runs of a window, some of them made one."""
        files = [part.file for part in kept if part.file is not None]
        if name in self._order.rows:
            # Rows of groups leave in no order, so runs of any age are of any size.
            files.sort(key=lambda file: file.n_rows, reverse=True)
        upkeep = upkeep_of(files, horizon=horizon, length=self.plan.lengths[name])
        if not upkeep.merge:
            return list(kept)
        parts = [part for part in kept if part.file in upkeep.merge]
        others = [part for part in kept if part.file not in upkeep.merge]
        rows = _ending_from(Rows.together([part.run.rows for part in parts]), horizon)
        return [Kept(run_of(rows), is_cold=parts[0].is_cold), *others]

    # -- groups ---------------------------------------------------------------------------------

    def _groups(self, name: str) -> Groups | None:
        """Return the groups of an input before the batch; None if none is known."""
        file = self.before.groups.get(name)
        return None if file is None else read_groups(*self._where, file)

    def _keep_groups(self, name: str, released: Released | None) -> None:
        """Keep what is counted of the groups that have a row whose end is not known."""
        open_rows = [_open_rows(part.run) for part in self._windows[name]]
        if name not in self._order.rows or not open_rows:
            return
        file: RunFile | None = None
        if released is None or released.arrivals is None:
            file = self.before.groups.get(name)
        elif len(groups := released.arrivals.groups.only(open_rows)):
            file = write_groups(*self._where, groups)
        if file is not None:
            self.report.after.groups[name] = file


def due_of(task: BucketBatch, name: str, new: Rows | None, since: int, until: int) -> list[Rows]:
    """Return the rows of an input that are due before an instant (µs); keep the others as waiting.

    ``since`` is the instant up to which rows were returned before (µs).

    Raises:
        OSError: rows that wait cannot be read or written.
    """
    files = task.before.waiting.get(name, ())
    held = HeldRows(task.place.files, task.place.runs, files, since)
    due, waiting = held.before(until), None
    if new is not None:
        is_due = new.starts < until
        due.append(new.taken(np.flatnonzero(is_due)))
        waiting = new.taken(np.flatnonzero(~is_due))
    if kept := held.after(until, waiting):
        task.report.after.waiting[name] = kept
    return [part for part in due if len(part)]


def results_of_all(plan: BatchPlan, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
    """Join rows, by input, after which none comes; returns what ``OrderedBatch.run`` does."""
    order = plan.order
    assert order is not None
    news, work = _released_runs(order, batch), JoinWork()
    instants = instants_of([rows for name, rows in batch.items() if name in order.time.lateness])
    emission = Emission(plan.graph, plan.orders, ALWAYS, FOREVER, {}, news, instants, work)
    yield from emission.tables(order.emits)


def _released_runs(order: OrderPlan, batch: Mapping[str, Rows]) -> dict[str, SortedRun]:
    """Return the rows that can join, by input, after which none comes."""
    released = {name: released_of(order, name, rows, None).rows for name, rows in batch.items()}
    return {
        name: _joinable(order, name, run_of(rows)) for name, rows in released.items() if len(rows)
    }


def latest_after(
    streams: EventTime,
    before: Mapping[str, int],
    batch: Mapping[str, Rows],
    others: Mapping[str, int],
) -> dict[str, int]:
    """Return the latest event time of each stream after a batch (µs).

    ``others`` are the latest times of rows that do not come themselves.
    """
    latest = dict(before)
    telling = {name: rows for name, rows in batch.items() if name not in streams.told}
    came = {name: int(rows.starts.max()) for name, rows in telling.items() if len(rows)}
    for name, instant in (*came.items(), *others.items()):
        if name in streams.lateness:
            latest[name] = max(latest.get(name, ALWAYS), instant)
    return latest


def instants_of(parts: Sequence[Rows]) -> NDArray[np.int64]:
    """Return the instants at which rows come; ascending, each once (µs)."""
    starts = [rows.starts for rows in parts]
    return distinct(np.concatenate(starts)) if starts else np.empty(0, np.int64)


def released_of(order: OrderPlan, name: str, rows: Rows, groups: Groups | None) -> Released:
    """Return the rows of an input that can join, with their ends as far as these are known.

    ``rows`` are all rows of the stream from where it stood until an instant, in any order;
    ``groups`` are those before them, None if there was none.
    """
    if name not in order.rows:
        return Released(rows.passing(), None)
    window, payload = order.rows[name], rows.payload
    by_time = stream_order(rows.starts, payload.select(order.ties[name]))
    rows = rows.taken(by_time)
    values = rows.payload.select(window.partition_by)
    arrivals = Arrivals.from_rows(groups, window.rows, rows.starts, values)
    ends = arrivals.ends(arrivals.group, arrivals.rank)
    # Of several rows of one instant some are gone before they were there.
    joins = ends >= rows.starts
    if rows.passes is not None:
        joins &= rows.passes
    columns = {column: rows.payload[column] for column in order.columns[name]}
    columns |= {GROUP: pa.array(arrivals.group), RANK: pa.array(arrivals.rank)}
    whole = Rows(rows.codes, rows.starts, ends, pa.table(columns))
    return Released(whole.taken(np.flatnonzero(joins)), arrivals)


def _joinable(order: OrderPlan, name: str, run: SortedRun) -> SortedRun:
    """Return a run without the columns that only tell where its rows stand."""
    if name not in order.rows:
        return run
    rows, columns = run.rows, list(order.columns[name])
    if isinstance(run, ColdRun):
        return run.only(columns)
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
    run = with_ends(kept.run, now)
    return replace(kept, run=run, ends=None, has_new_ends=True)


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
    return Kept(run_of(_ending_from(kept.run.rows, horizon)), is_cold=kept.is_cold)


AT = "_at"
"""The column of the instant at which a result is emitted (µs)."""


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
    ages: PartnerAges | None = None
    """Measures the ages of rows that are found; None if nobody asks."""

    def tables(self, emits: Emits) -> Iterator[pa.Table]:
        """Yield the results: see ``pipeline.results``; the instant of each is in ``_at``."""
        if emits == "istream":
            for table in self._joined(self.windows, self.news):
                yield table.append_column(AT, table["_start"])
        elif emits == "dstream":
            for table in self._ended():
                yield table.append_column(AT, pc.add(table["_end"], 1))
        else:
            for table in self._present():
                yield from _at_each(table, self.instants)

    def _joined(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        found_by = results(self.graph, self.orders, windows, news, self.work, None, self.ages)
        for table in found_by:
            # Bounds of ends let some pairs through that never live at one instant.
            lives = pc.less_equal(table["_start"], table["_end"])
            kept = table if pc.all(lives).as_py() else table.filter(lives)
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
    """Return a run in which rows that end before an instant join nothing."""
    stays = run.rows.ends >= until
    return run if stays.all() else with_ends(run, np.where(stays, run.rows.ends, ALWAYS))


def _at_each(table: pa.Table, instants: NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield results at each of the instants at which they live."""
    first = np.searchsorted(instants, table["_start"].to_numpy(), "left")
    last = np.searchsorted(instants, table["_end"].to_numpy(), "right")
    counts = last - first
    for rows in _pieces(counts):
        n_instants = counts[rows]
        if n_instants.any():
            place = np.repeat(np.arange(rows.start, rows.stop), n_instants)
            nth = np.arange(place.size) - np.repeat(np.cumsum(n_instants) - n_instants, n_instants)
            times = instants[np.repeat(first[rows], n_instants) + nth]
            yield table.take(pa.array(place)).append_column(AT, pa.array(times))


def _pieces(counts: NDArray[np.int64]) -> Iterator[slice]:
    """Cut rows into pieces of one row, or whose counts add up to few."""
    totals, low = np.cumsum(counts), 0
    while low < counts.size:
        done = totals[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(totals, done + BLOCK_ROWS, "right")))
        yield slice(low, high)
        low = high


FOUND = "__found"
"""The column of the rows that equal keys find for a row that is due; NULL of combinations."""


@dataclass(slots=True)
class PartnerBatch(BucketBatch):
    """The bucket of such a join in one batch; see ``BucketBatch``.

    Args:
        latest: the latest event times of rows that do not come themselves (µs), by stream.
    """

    latest: Mapping[str, int] = field(default_factory=dict)
    _lonely: list[Rows] = field(init=False, default_factory=list)
    """Rows of the first input that have no key, and so no partner."""
    _until: int = field(init=False, default=ALWAYS)
    """Rows that left their window before it are due (µs)."""

    def run(self, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Join the rows of the batch, by input, and keep them; yields the results.

        Raises:
            OSError: a file cannot be read or written.
        """
        asked = self._asked
        if asked.time is not None:
            latest = latest_after(asked.time, asked.latest, batch, self.latest)
            self._until = max(self.before.emitted_until, asked.time.low(asked.right, latest))
        yield from BucketBatch.run(self, batch)
        self.report.after.emitted_until = self._until

    @property
    def _asked(self) -> PartnerPlan:
        assert self.plan.partners is not None
        return self.plan.partners

    def _low(self, name: str) -> int:
        """Return the instant before which rows are late: also where less lateness was allowed."""
        low = BucketBatch._low(self, name)
        return max(low, self.before.emitted_until) if name == self._asked.right else low

    def _horizon(self, name: str) -> int | None:
        """Return the instant before which rows left that none needs, also none that waits (µs)."""
        horizon = BucketBatch._horizon(self, name)
        if name != self._asked.right or horizon is None:
            return horizon
        return min(horizon, earlier(self.before.emitted_until, self._asked.length))

    def _on_time(self, name: str, rows: Rows) -> Rows:
        on_time = BucketBatch._on_time(self, name, rows)
        if name == self._asked.left and on_time.passes is not None:
            self._lonely.append(on_time.taken(np.flatnonzero(~on_time.passes)))
        return on_time.passing()

    def _keep(self, name: str, run: SortedRun) -> None:
        if name != self._asked.left or self._asked.kind == "left":
            BucketBatch._keep(self, name, run)

    def _results(
        self, windows: Mapping[str, Sequence[SortedRun]], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        asked = self._asked
        if asked.kind == "left":
            yield from BucketBatch._results(self, windows, news)
        runs = [*windows[asked.right], *([news[asked.right]] if asked.right in news else [])]
        due = self._due(news[asked.left].rows if asked.left in news else None)
        yield from decided(asked, self.plan.graph, due, runs, self.report.work, self._ages)
        yield from without_partner(asked, self._lonely)

    def _due(self, new: Rows | None) -> list[Rows]:
        """Return the rows that need not wait longer; the others are kept as waiting."""
        asked, before = self._asked, self.before
        if asked.time is None:
            return [] if new is None else [new]
        since, until = (
            earlier(instant, asked.length) for instant in (before.emitted_until, self._until)
        )
        return due_of(self, asked.left, new, since, until)


@dataclass(slots=True)
class CountedPartnerBatch(OrderedBatch):
    """The bucket of such a join whose second input has a window of N rows; see ``BucketBatch``.

    Event time of the second input says how far the bucket answers. All rows of that input up to
    there are known, and so is each end of a row before it. So a row of the first input whose window
    ended before finds its partners.
    """

    _lonely: list[Rows] = field(init=False, default_factory=list)
    """Rows of the first input that have no key, and so no partner."""
    _decided: list[Rows] = field(init=False, default_factory=list)
    """Rows of the first input for which no partner can come any more."""

    def run(self, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
        """Join the rows of the batch, by input, and keep them; yields the results.

        Raises:
            OSError: a file cannot be read or written.
        """
        yield from OrderedBatch.run(self, batch)
        for table in without_partner(self._asked, self._lonely):
            self.report.n_results += table.num_rows
            yield table

    @property
    def _asked(self) -> PartnerPlan:
        assert self.plan.partners is not None
        return self.plan.partners

    def _on_time(self, name: str, rows: Rows) -> Rows:
        on_time = BucketBatch._on_time(self, name, rows)
        if name != self._asked.left:
            return on_time
        if on_time.passes is not None:
            self._lonely.append(on_time.taken(np.flatnonzero(~on_time.passes)))
        return on_time.passing()

    def _write_late(self, name: str, late: Rows) -> None:
        write = BucketBatch if name == self._asked.left else OrderedBatch
        write._write_late(self, name, late)

    def _due_of(self, name: str, rows: Rows | None, since: int, until: int) -> list[Rows]:
        """Return rows that may join now, and rows that are decided; keep the others.

        A row of the first input waits until it is decided. Before that it meets the rows of the
        second one if its combinations are results.
        """
        asked = self._asked
        if name != asked.left:
            return OrderedBatch._due_of(self, name, rows, since, until)
        ended = earlier(since, asked.length), earlier(until, asked.length)
        self._decided = due_of(self, name, rows, *ended)
        if asked.kind != "left":
            return self._decided
        files = self.before.waiting.get(name, ())
        meeting = HeldRows(self.place.files, self.place.runs, files, since).before(until)
        if rows is not None:
            meeting.append(rows.taken(np.flatnonzero(rows.starts < until)))
        return [part for part in meeting if len(part)]

    def _emitted(
        self, since: int, until: int, due: Mapping[str, Rows], news: Mapping[str, SortedRun]
    ) -> Iterator[pa.Table]:
        asked, order = self._asked, self._order
        if asked.kind == "left":
            yield from OrderedBatch._emitted(self, since, until, due, news)
        elif self.plan.measures_ages:
            self._ages = PartnerAges(self.plan, self.report)
        new = [news[asked.right]] if asked.right in news else []
        runs = [*(part.run for part in self._windows[asked.right]), *new]
        window = [_joinable(order, asked.right, run) for run in runs]
        work = self.report.work
        for table in decided(asked, self.plan.graph, self._decided, window, work, self._ages):
            self.report.n_results += table.num_rows
            yield table

    def _keep_window(
        self, name: str, new: SortedRun | None, horizon: int | None, until: int
    ) -> None:
        """Keep the rows of a window that may still be needed, also by rows that wait."""
        asked = self._asked
        if name == asked.left and asked.kind != "left":
            return
        if name == asked.right and horizon is not None:
            horizon = min(horizon, earlier(until, asked.length))
        OrderedBatch._keep_window(self, name, new, horizon, until)

    def _hot_for(self, name: str) -> int | None:
        """Return for how long the rows of an input are hot (µs); None: as long as they stay.

        The rows that look for them come first when their own window has ended.
        """
        span = OrderedBatch._hot_for(self, name)
        return span if span is None or name != self._asked.right else span + self._asked.length


def results_by_partner(plan: BatchPlan, batch: Mapping[str, Rows]) -> Iterator[pa.Table]:
    """Join rows, by input, after which none comes; returns what ``PartnerBatch.run`` does."""
    asked, work = plan.partners, JoinWork()
    assert asked is not None
    if plan.order is not None:
        news = _released_runs(plan.order, batch)
    else:
        joined = {name: rows.passing() for name, rows in batch.items()}
        news = {name: SortedRun.from_rows(rows) for name, rows in joined.items() if len(rows)}
    if asked.kind == "left":
        yield from results(plan.graph, plan.orders, {}, news, work)
    left = [news[asked.left].rows] if asked.left in news else []
    right = [news[asked.right]] if asked.right in news else []
    yield from decided(asked, plan.graph, left, right, work)
    rows = batch.get(asked.left)
    if rows is not None and rows.passes is not None:
        yield from without_partner(asked, [rows.taken(np.flatnonzero(~rows.passes))])


def decided(
    asked: PartnerPlan,
    graph: JoinGraph,
    due: Sequence[Rows],
    runs: Sequence[SortedRun],
    work: JoinWork,
    ages: PartnerAges | None = None,
) -> Iterator[pa.Table]:
    """Look up rows for which no partner can come any more.

    ``runs`` are the window of the second input, in which all their partners are. Look-ups are added
    to ``work``, ages of what is found to ``ages``.

    Returns:
        Tables with the columns of the first input, named ``input.column``: of the rows that are
        results, or, where conditions are still to be asked, of those that may be, with what was
        found for each (FOUND).
    """
    for part in due:
        for start in range(0, len(part), BLOCK_ROWS):
            block = np.arange(start, min(start + BLOCK_ROWS, len(part)))
            run = SortedRun.from_rows(part.taken(block))
            counts = _counted(asked, graph, run, runs, work, ages)
            table = _named(asked, run.rows)
            if asked.found is None:
                yield table.filter(pa.array((counts > 0) == (asked.kind == "semi")))
                continue
            for rows in _pieces(counts):
                lists = _found(asked, graph, run, rows, runs, ages)
                yield table.slice(rows.start, rows.stop - rows.start).append_column(FOUND, lists)


def _counted(
    asked: PartnerPlan,
    graph: JoinGraph,
    run: SortedRun,
    runs: Sequence[SortedRun],
    work: JoinWork,
    ages: PartnerAges | None,
) -> NDArray[np.int64]:
    """Return how many rows equal keys find for each; where one decides, no more are counted.

    Then only rows without a partner among the hot ones are looked up in the cold tier.
    """
    started, rows = time.perf_counter_ns(), run.rows
    keys = Composites({SEED: np.arange(len(run))}, rows.codes, rows.starts, rows.ends)
    links, is_one = graph.links((asked.left,), asked.right), asked.found is None
    hot = [part for part in runs if not (is_one and part.is_cold)]
    counts, n_cold = (
        LookUp.from_keys(keys, links).counts(hot, len(run), 1 if is_one else FOREVER),
        0,
    )
    missing = np.flatnonzero(counts == 0)
    if len(hot) < len(runs) and missing.size:
        cold = [part for part in runs if part.is_cold]
        more = LookUp.from_keys(keys.take(missing), links).counts(cold, len(run), 1)
        counts, n_cold = counts + more, int(more.sum())
    ns = time.perf_counter_ns() - started
    work.probe(asked.left, asked.right).add(len(run), int(counts.sum()), ns)
    if ages is not None and is_one:
        ages.decided(asked.right, runs, links, keys.take(np.flatnonzero(counts)), n_cold)
    return counts


def _found(
    asked: PartnerPlan,
    graph: JoinGraph,
    run: SortedRun,
    rows: slice,
    runs: Sequence[SortedRun],
    ages: PartnerAges | None,
) -> pa.Array:
    """Return the matches by equal keys of some rows, as lists."""
    counts, chosen = np.zeros(rows.stop - rows.start, np.int64), np.empty(0, np.int64)
    if runs:
        first = Composites.from_rows(asked.left, run, rows, 0)
        links = graph.links((asked.left,), asked.right)
        pairs = first.join(asked.right, runs, links, ())
        if ages is not None:
            ages.found(asked.right, runs, pairs)
        places = pairs.rows[asked.left] - rows.start
        counts = np.bincount(places, minlength=counts.size)
        chosen = pairs.rows[asked.right][np.argsort(places, kind="stable")]
    return _lists(asked.found, runs, counts, chosen)


def without_partner(asked: PartnerPlan, parts: Sequence[Rows]) -> Iterator[pa.Table]:
    """Yield rows that have no partner, if they are results; see ``decided``."""
    for rows in parts if asked.kind != "semi" else ():
        table = _named(asked, rows)
        if asked.found is not None:
            nothing = np.empty(0, np.int64)
            lists = _lists(asked.found, (), np.zeros(len(rows), np.int64), nothing)
            table = table.append_column(FOUND, lists)
        yield table


def _named(asked: PartnerPlan, rows: Rows) -> pa.Table:
    names = rows.payload.column_names
    return rows.payload.rename_columns([result_column(asked.left, column) for column in names])


def _lists(
    kind: pa.DataType | None,
    runs: Sequence[SortedRun],
    counts: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> pa.Array:
    """Return lists of structs of rows; a list has the given number of rows."""
    assert kind is not None
    fields = [kind.value_type.field(index) for index in range(kind.value_type.num_fields)]
    columns = [pa.nulls(chosen.size, field.type) for field in fields]
    if chosen.size:
        runs, chosen = asked_of(runs, chosen)
        taken = rows_of_parts([run.rows.payload for run in runs], chosen)
        columns = [
            taken[field.name].combine_chunks().cast(field.type)
            if field.name in taken.column_names
            else empty
            for field, empty in zip(fields, columns, strict=True)
        ]
    values = pa.StructArray.from_arrays(columns, fields=fields)
    offsets = pa.array(starts_of(counts), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind)

"""The work of one bucket of an aggregate: cells in, results and files out.

Cells wait until event time has passed them. Then they are answered, together with the cells of
before that windows reach back to. What is answered depends on event time alone, and neither on how
rows are cut into batches nor on where their cells are.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.cells import CHECK, CODE, group_bounds, in_order, merged, together, whole
from eddyline.aggregates.history import History, Reach, Span
from eddyline.aggregates.plan import (
    FIRST,
    INSTANT,
    IS,
    OLD,
    PLACE,
    WAS,
    BucketReport,
    BucketState,
)
from eddyline.aggregates.ranges_kernels import change_ranges, session_ranges, slide_ranges
from eddyline.aggregates.slides import Slides
from eddyline.query.windows import LONGEST, SessionWindow, SlideWindow
from eddyline.state.reorder_buffer import HeldRows
from eddyline.state.row_files import between, open_rows, write_rows
from eddyline.state.rows import ALWAYS, FOREVER, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eddyline.aggregates.plan import AggregatePlan, Share
    from eddyline.data.arrays import Ints
    from eddyline.state.place import StatePlace
    from eddyline.state.run_files import RunFile

ROOM_COLUMNS = 4
"""Columns of the room for ranges: lo and hi, and those of before."""


class BucketBatch:
    """One batch of one bucket.

    Args:
        plan: the work.
        place: where files are; None if nothing is kept, as of batch DataFrames.
        state: the files after the batch before.
        bucket: its number.
    """

    def __init__(
        self, plan: AggregatePlan, place: StatePlace | None, state: BucketState, bucket: int
    ) -> None:
        self.plan = plan
        self.place = place
        self.state = state
        self.report = BucketReport(bucket, state)
        self.partials = plan.partials.made
        self.since, self.until = self.answered(plan.before), self.answered(plan.after)
        """The cells that start in this half-open range are answered now (µs)."""
        self._n_read = 0

    def run(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield the results that the batch brings, and keep what later ones need.

        Args:
            arrived: the cells of the batch, none of them late; None if there is none.

        Raises:
            OSError: files cannot be read or written.
        """
        started = time.thread_time_ns()
        new = None if arrived is None else _by_start(arrived)
        due = self.held().before(self.until)
        if new is not None:
            due.append(between(new, ALWAYS, self.until))
        fresh = self.fresh(due)
        results = self.results(fresh)
        if results is not None and results.num_rows:
            yield results
        state = self.state
        if self.place is not None:
            late = None if new is None else between(new, self.until, FOREVER)
            state = BucketState(self.held().after(self.until, late), self.history_after(fresh))
        self.report = BucketReport(
            self.report.bucket,
            state,
            n_arrived=0 if arrived is None else len(arrived),
            n_read=self._n_read,
            n_results=0 if results is None else results.num_rows,
            work_ns=time.thread_time_ns() - started,
        )

    # -- what a kind of window says of itself ---------------------------------------------------

    def answered(self, instant: int) -> int:
        """Return the start of the first cell that is not answered when time is at an instant."""
        return instant

    def fresh(self, due: list[Rows]) -> Rows | None:
        """Return the cells that are answered now, in order; None if there is none."""
        filled = [each for each in due if len(each)]
        return merged(in_order(together(filled)), self.partials) if filled else None

    def results(self, fresh: Rows | None) -> pa.Table | None:
        """Return the results at the instants between ``plan.before`` and ``plan.after``."""
        raise NotImplementedError

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that were answered and are still needed."""
        raise NotImplementedError

    # -- parts ----------------------------------------------------------------------------------

    def held(self) -> HeldRows:
        """Return the cells that wait."""
        if self.place is None:
            return _NOTHING
        return HeldRows(self.place.files, self.place.runs, self.state.waiting, self.since)

    def reached(self, kind: str, reach: Reach, partials: Any = None) -> History:
        """Return the cells of before as windows of a reach need them."""
        spans = self.state.history.get(kind, ())
        return History(spans, reach, partials or self.partials, self.place)

    def entries(self, before: list[Rows], fresh: Rows | None) -> Rows | None:
        """Return the cells of before and the fresh ones in order; None if there is none."""
        self._n_read += sum(map(len, before))
        parts = [*before, *([] if fresh is None else [fresh])]
        filled = [each for each in parts if len(each)]
        return in_order(together(filled)) if filled else None

    def table(self, cells: Rows, instants: Ints, ranges: Ints) -> pa.Table:
        """Return results by the ranges of cells that they are computed of.

        Args:
            cells: in order.
            instants: of the results (µs).
            ranges: lo and hi of each, and those of the result before ((results, 4)).
        """
        lo, hi, old_lo, old_hi = (np.ascontiguousarray(ranges[:, k]) for k in range(ROOM_COLUMNS))
        is_there, was_there = lo < hi, old_lo < old_hi
        of = pa.array(np.where(is_there, lo, old_lo))
        columns = {name: cells.payload[name].take(of) for name in self.plan.groups}
        columns[INSTANT] = pa.array(instants)
        for name, monoid in self.partials.items():
            column = whole(cells.payload[name])
            columns[name] = monoid.value(column, lo, hi)
            if self.plan.tells_old:
                columns[f"{OLD}{name}"] = monoid.value(column, old_lo, old_hi)
        if self.plan.tells_old:
            columns |= {IS: pa.array(is_there), WAS: pa.array(was_there)}
        return pa.table(columns)


class SlideBatch(BucketBatch):
    """Windows that end at every slide."""

    @cached_property
    def slides(self) -> Slides:
        """The windows."""
        assert isinstance(self.plan.window, SlideWindow)
        return Slides.of(self.plan.window)

    @property
    def back(self) -> int:
        """How far before the end of a window its cells, and those of the one before, start."""
        return self.slides.length + (self.slides.slide if self.plan.tells_old else 0)

    def answered(self, instant: int) -> int:
        """Return the start of the first cell that is not answered when time is at an instant."""
        return instant if instant in (ALWAYS, FOREVER) else self.slides.cell_of(instant)

    def results(self, fresh: Rows | None) -> pa.Table | None:
        """Return the results of the windows that end after ``before`` and not after ``after``."""
        before, slide = self.plan.before, self.slides.slide
        history = self.reached("range", Reach(self.slides.length))
        if before == ALWAYS:
            if fresh is None:
                return None
            before = int(fresh.starts.min())
        first, last = self.slides.end_from(before + 1), self._last(fresh)
        if first > last:
            return None
        start = first - slide if self.plan.tells_old else first
        is_all = self.slides.length == LONGEST
        reached = (first - self.back, last - self.slides.length)
        since, common = (ALWAYS, ALWAYS) if is_all else reached
        cells = self.entries(history.cells(since, (common, start), None), fresh)
        if cells is None:
            return None
        length = -1 if is_all else self.slides.length
        n_instants = (last - first) // slide + 1
        facts = first, n_instants, slide, length, self.plan.tells_old
        return self.table(cells, *_filled(slide_ranges, cells, *facts))

    def _last(self, fresh: Rows | None) -> int:
        """Return the last end of a window that is answered (µs)."""
        slides = self.slides
        if self.plan.after == ALWAYS:
            return ALWAYS
        if self.plan.after != FOREVER:
            return slides.end_from(self.plan.after + 1) - slides.slide
        newest = ALWAYS if fresh is None else int(fresh.starts.max())
        first = slides.end_from(newest + 1)
        if slides.length == LONGEST:
            return first
        is_told = self.plan.emits == "dstream"  # that the last ones are no more
        return slides.end_from(newest + slides.length + 1) - (0 if is_told else slides.slide)

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that windows of later batches reach back to."""
        history = self.reached("range", Reach(self.slides.length))
        after = self.plan.after
        if after == ALWAYS:
            return {}
        horizon = ALWAYS if history.reach.is_all else self.slides.end_from(after + 1) - self.back
        return kept_spans("range", history, fresh, horizon)


class SharedBatch(BucketBatch):
    """Windows of several queries over cells that they have in common."""

    @cached_property
    def slides(self) -> Slides:
        """The cells, and the longest of the windows."""
        return Slides.common([each.window for each in self.plan.shares])

    def answered(self, instant: int) -> int:
        """Return the start of the first cell that is not answered when time is at an instant."""
        return instant if instant in (ALWAYS, FOREVER) else self.slides.cell_of(instant)

    def results(self, fresh: Rows | None) -> pa.Table | None:
        """Return the results of all queries, each with the number of its own."""
        found = [self._of(place, each, fresh) for place, each in enumerate(self.plan.shares)]
        filled = [each for each in found if each is not None and each.num_rows]
        return pa.concat_tables(filled, promote_options="default") if filled else None

    def _of(self, place: int, share: Share, fresh: Rows | None) -> pa.Table | None:
        """Return the results of one query; columns that it does not need are missing."""
        own = replace(self.plan, window=share.window, shares=())
        task = ShareBatch(own, self.place, self.state, self.report.bucket)
        task.longest = self.slides.length
        wanted = [*share.columns, *([share.presence] if share.presence else [])]
        task.partials = {name: self.partials[name] for name in wanted}
        found = task.results(fresh)
        self._n_read += task.n_read
        if found is None:
            return None
        if share.presence:
            counts = found[share.presence]
            found = found.filter(pc.greater(pc.fill_null(counts, 0), 0))
            if share.presence not in share.columns:
                found = found.drop_columns([share.presence])
        starts = pc.subtract(found[INSTANT], share.window.length)
        found = found.append_column(FIRST, starts)
        return found.append_column(PLACE, pa.array(np.full(found.num_rows, place, np.int32)))

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that a window of some query reaches back to."""
        after = self.plan.after
        if after == ALWAYS:
            return {}
        history = self.reached("range", Reach(self.slides.length))
        windows = [Slides.of(each.window) for each in self.plan.shares]
        horizon = min(each.end_from(after + 1) - each.length for each in windows)
        return kept_spans("range", history, fresh, horizon)


class ShareBatch(SlideBatch):
    """Windows of one of several queries."""

    longest: int = 0
    """The length of the longest window of all queries (µs)."""

    @property
    def n_read(self) -> int:
        """Cells of before that were read."""
        return self._n_read

    def reached(self, kind: str, reach: Reach, partials: Any = None) -> History:  # noqa: ARG002
        """Return the cells of before, which are kept for the longest windows."""
        return super().reached(kind, Reach(self.longest), partials)


class ChangeBatch(BucketBatch):
    """Windows that change with every row that comes or leaves."""

    @cached_property
    def reach(self) -> Reach:
        """How far windows look back."""
        counts = self.plan.window.counts
        return Reach(self.plan.window.length) if counts is None else Reach(n_rows=counts.rows)

    def fresh(self, due: list[Rows]) -> Rows | None:
        """Return the cells that are answered now; rows that are counted stay rows."""
        filled = [each for each in due if len(each)]
        if self.reach.n_rows < 0 or not filled:
            return super().fresh(due)
        return with_ties(in_order(together(filled)), self.plan.ties)

    def results(self, fresh: Rows | None) -> pa.Table | None:
        """Return the results of the instants at which a row comes or leaves."""
        since, until = max(self.plan.before, ALWAYS + 2), self.plan.after
        length, is_timed = self.reach.length, 0 <= self.reach.length < LONGEST
        low, common = (since - 1 - length, until - 1 - length) if is_timed else (ALWAYS, ALWAYS)
        history = self.reached("changes", self.reach)
        new = no_cells() if fresh is None else fresh
        found = history.cells(max(low, ALWAYS), (common, since), new, with_edges=is_timed)
        cells = self.entries(found, fresh)
        if cells is None:
            return None
        facts = since, until, length if is_timed else -1, self.reach.n_rows
        return self.table(cells, *_filled(change_ranges, cells, *facts))

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that windows of later batches reach back to."""
        is_timed = 0 <= self.reach.length < LONGEST
        horizon = self.plan.after - 1 - self.reach.length if is_timed else ALWAYS
        return kept_spans("changes", self.reached("changes", self.reach), fresh, horizon)


class SessionBatch(BucketBatch):
    """Rows of a group that follow each other by no more than a gap.

    The cells of sessions that are open wait, each session as one cell with its first and its last
    instant as start and end.
    """

    @property
    def gap(self) -> int:
        """Most time between two rows of one session (µs)."""
        assert isinstance(self.plan.window, SessionWindow)
        return self.plan.window.gap

    def run(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield the sessions that end, and keep those that are open."""
        started = time.thread_time_ns()
        parts = [self._open(file) for file in self.state.waiting]
        self._n_read = sum(map(len, parts))
        parts += [] if arrived is None else [arrived]
        results, state = 0, BucketState()
        if parts:
            cells = in_order(together(parts))
            firsts, lasts = sessions_of(cells, self.gap)
            is_open = lasts + self.gap >= self.plan.after
            ranges = np.column_stack([firsts, np.append(firsts[1:], len(cells))])
            done, lasting = ranges[~is_open], ranges[is_open]
            if len(done):
                found = self.table(cells, lasts[~is_open] + self.gap, np.column_stack([done, done]))
                results = found.num_rows
                yield found.append_column(FIRST, pa.array(cells.starts[done[:, 0]]))
            state = BucketState(self._sessions(cells, lasting, lasts[is_open]))
        self.report = BucketReport(
            self.report.bucket,
            state,
            n_arrived=0 if arrived is None else len(arrived),
            n_read=self._n_read,
            n_results=results,
            work_ns=time.thread_time_ns() - started,
        )

    def _sessions(self, cells: Rows, ranges: Ints, lasts: Ints) -> tuple[RunFile, ...]:
        """Return the file of sessions that are open, one cell each."""
        if self.place is None or not len(ranges):
            return ()
        lo, hi = np.ascontiguousarray(ranges[:, 0]), np.ascontiguousarray(ranges[:, 1])
        columns = {
            name: self.partials[name].merge(whole(column), lo, hi)
            if name in self.partials
            else column.take(pa.array(lo))
            for name, column in zip(cells.payload.column_names, cells.payload.columns, strict=True)
        }
        codes = {key: of[lo] for key, of in cells.codes.items()}
        rows = Rows(codes, cells.starts[lo], lasts, pa.table(columns))
        return (write_rows(self.place.files, self.place.runs, rows, is_sorted=True),)

    def _open(self, file: RunFile) -> Rows:
        assert self.place is not None
        return open_rows(self.place.files, self.place.runs, file)


def sessions_of(cells: Rows, gap: int) -> tuple[Ints, Ints]:
    """Return the first cell of each session, and its last instant (µs); cells are in order."""
    firsts, lasts = np.empty(len(cells), np.int64), np.empty(len(cells), np.int64)
    n = session_ranges(cells.starts, cells.ends, group_bounds(cells), gap, firsts, lasts)
    return firsts[:n], lasts[:n]


def with_ties(cells: Rows, columns: tuple[str, ...]) -> Rows:
    """Return rows in order, those of one group and instant by the values of some columns."""
    same = (cells.starts[1:] == cells.starts[:-1]) & (cells.codes[0][1:] == cells.codes[0][:-1])
    if not same.any():
        return cells
    keys = {f"code{key}": pa.array(of) for key, of in cells.codes.items()}
    table = pa.table({**keys, "start": pa.array(cells.starts)})
    for number, name in enumerate(columns):
        table = table.append_column(f"tie{number}", cells.payload[name])
    order = pc.sort_indices(table, sort_keys=[(each, "ascending") for each in table.column_names])
    return cells.taken(order.to_numpy())


def _filled(find: Callable[..., int], cells: Rows, *facts: Any) -> tuple[Ints, Ints]:
    """Return the instants and ranges that a kernel finds, which first counts them."""
    bounds = group_bounds(cells)
    nothing = np.empty(0, np.int64), np.empty((0, ROOM_COLUMNS), np.int64)
    n = find(cells.starts, bounds, *facts, *nothing)
    room = np.empty(n, np.int64), np.empty((n, ROOM_COLUMNS), np.int64)
    if n:
        find(cells.starts, bounds, *facts, *room)
    return room


def kept_spans(kind: str, history: History, fresh: Rows | None, horizon: int) -> dict[str, Any]:
    """Return the files of a history after a batch; nothing if there is none."""
    spans = history.after(no_cells() if fresh is None else fresh, horizon)
    return {kind: spans} if spans else {}


def _by_start(rows: Rows) -> Rows:
    if (rows.starts[1:] >= rows.starts[:-1]).all():
        return rows
    return rows.taken(np.argsort(rows.starts, kind="stable"))


def no_cells() -> Rows:
    """Return no cells."""
    none = np.empty(0, np.int64)
    return Rows({CODE: none, CHECK: none}, none, none, pa.table({}))


class _Nothing(HeldRows):
    """Of batch DataFrames nothing waits."""

    def __init__(self) -> None:
        self.held, self.since = (), ALWAYS

    def after(self, until: int, new: Rows | None) -> tuple[RunFile, ...]:  # noqa: ARG002
        """Return no files."""
        return ()


_NOTHING = _Nothing()

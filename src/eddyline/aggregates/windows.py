"""Sessions, and windows that end at every slide.

Several queries may share their cells. ``Slides`` cuts time into cells and says where windows end;
``SlideBatch`` is the work of a bucket.

A session has rows of a group that follow each other by no more than a gap.
``SessionBatch`` is the work of a bucket. ``OpenSessions`` keeps open sessions in files that never
change. A file has all open sessions of its groups at the time of writing, sorted by group. If
several files have a group, the newest one counts.

A batch reads the sessions of groups with new rows, and the sessions that end. It writes the changed
ones. Files of about the same size are merged, so that there are few of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.bucket import BucketBatch, filled_ranges
from eddyline.aggregates.cells import (
    BY_END,
    CODE,
    Reach,
    Span,
    coarser,
    group_bounds,
    in_order,
    no_cells,
    of_groups,
    of_ranges,
    together,
)
from eddyline.aggregates.plan import FIRST, INSTANT, PLACE, BucketState, Share
from eddyline.aggregates.ranges_kernels import session_ranges, slide_ranges
from eddyline.data.arrays import distinct, whole
from eddyline.errors import AggregateError
from eddyline.query.query import LONGEST, SessionWindow, SlideWindow
from eddyline.state.event_time import earlier
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from eddyline.state.run_files import open_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.aggregates.cells import History
    from eddyline.aggregates.monoids import Monoid
    from eddyline.data.arrays import Ints, Mask
    from eddyline.state.manifest import StatePlace
    from eddyline.state.rows import Rows
    from eddyline.state.run_files import RunFile


class SessionBatch(BucketBatch):
    """Rows of a group that follow each other by no more than a gap.

    Sessions that are open wait, each as one cell with its first and its last instant as start and
    end. Of these a batch reads those of groups that it has rows of, and those that end.
    """

    @property
    def gap(self) -> int:
        """Most time between two rows of one session (µs)."""
        assert isinstance(self.plan.window, SessionWindow)
        return self.plan.window.gap

    def answers(self, arrived: Rows | None) -> Iterator[pa.Table]:
        """Yield the sessions that end, and keep those that are open."""
        since, until = (
            earlier(instant, self.gap) for instant in (self.plan.before, self.plan.after)
        )
        sessions = OpenSessions(self.place, self.state.waiting, since)
        new = no_cells() if arrived is None else arrived
        codes = distinct(new.codes[CODE])
        read = [*sessions.of_codes(codes), *sessions.ended(until, codes)]
        cells, changed = self.entries(read, new), no_cells()
        if cells is not None:
            lo, lasts = np.empty(len(cells), np.int64), np.empty(len(cells), np.int64)
            bounds = group_bounds(cells)
            n = session_ranges(cells.starts, cells.ends, bounds, self.gap, lo, lasts)
            lo, hi, lasts = lo[:n], np.append(lo[1:n], len(cells)), lasts[:n]
            is_open = lasts >= until
            if not is_open.all():
                done, ends = np.column_stack([lo, hi] * 2)[~is_open], lasts[~is_open] + self.gap
                results = self.table(cells, ends, done)
                yield results.append_column(FIRST, pa.array(cells.starts[done[:, 0]]))
            lo, hi, lasts = lo[is_open], hi[is_open], lasts[is_open]
            changed = of_ranges(cells, lo, hi, self.partials, (cells.starts[lo], lasts))
        self.after = BucketState(sessions.after(until, changed))


FULLER = 2
"""Times by which a file has to be larger than the next newer one to be left as it is."""


class OpenSessions:
    """The sessions of a bucket that are open.

    Args:
        place: where their files are.
        files: these, the oldest first.
        since: the last row of a session that is open is not before this instant (µs).

    Raises:
        OSError: they cannot be read.
    """

    def __init__(self, place: StatePlace | None, files: Sequence[RunFile], since: int) -> None:
        self.place = place
        self.since = since
        self.files = [_File(place, file) for file in files] if place is not None else []

    def of_codes(self, codes: Ints) -> list[Rows]:
        """Return the open sessions of the groups of some codes, which ascend."""
        parts = []
        for file in reversed(self.files):
            rows = of_groups(file.rows, codes)
            parts.append(_from_end(rows, self.since))
            codes = codes[~is_in(codes, file.codes)]
        return parts

    def ended(self, until: int, but: Ints) -> list[Rows]:
        """Return those whose last row is before an instant (µs), but of the groups of some codes.

        Args:
            until: the instant.
            but: the codes, which ascend.
        """
        parts, newer = [], [but]
        for file in reversed(self.files):
            places = file.ending(self.since, until)
            for codes in newer:
                places = places[~is_in(file.codes[places], codes)]
            parts.append(file.rows.taken(places))
            newer.append(file.codes)
        return parts

    def after(self, until: int, changed: Rows) -> tuple[RunFile, ...]:
        """Return the files of the sessions that are open with a batch.

        Args:
            until: the last row of an open session is not before this instant (µs).
            changed: all open sessions of the groups that had rows, in order.

        Raises:
            OSError: they cannot be read or written.
        """
        if self.place is None:
            return ()
        stay = [file for file in self.files if file.last >= until]
        if not len(changed):
            return tuple(file.file for file in stay)
        while stay and len(stay[-1].rows) <= FULLER * len(changed):
            older = _from_end(stay.pop().rows, until)
            is_same = ~is_in(older.codes[CODE], changed.codes[CODE])
            changed = in_order(together([older.taken(np.flatnonzero(is_same)), changed]))
        return (*(file.file for file in stay), self._written(changed))

    def _written(self, rows: Rows) -> RunFile:
        assert self.place is not None
        by_end = pa.array(np.argsort(rows.ends, kind="stable"))
        indexed = replace(rows, payload=rows.payload.append_column(BY_END, by_end))
        return write_rows(self.place.files, self.place.runs, indexed, is_sorted=True)


class _File:
    """A file of sessions, of which what is needed is read from a local disk."""

    def __init__(self, place: StatePlace, file: RunFile) -> None:
        self.file = file
        rows = open_rows(place.files, place.runs, file)
        if BY_END in rows.payload.column_names:
            self.by_end = whole(rows.payload[BY_END]).to_numpy()
            rows = replace(rows, payload=rows.payload.drop_columns([BY_END]))
        else:
            self.by_end = np.argsort(rows.ends, kind="stable")
        self.rows = rows

    @property
    def codes(self) -> Ints:
        """The codes of the groups, which ascend."""
        return self.rows.codes[CODE]

    @property
    def last(self) -> int:
        """The last row of all sessions (µs)."""
        return int(self.rows.ends[self.by_end[-1]])

    def ending(self, since: int, until: int) -> Ints:
        """Return the places, which ascend, of sessions whose last row is in a range (µs)."""
        low, high = np.searchsorted(self.rows.ends, [since, until], sorter=self.by_end)
        return np.sort(self.by_end[low:high])


def is_in(values: Ints, others: Ints) -> Mask:
    """Return which values are among others, which ascend.

    >>> is_in(np.array([3, 4, 9]), np.array([1, 3, 3, 7])).tolist()
    [True, False, False]
    """
    if not others.size:
        return np.zeros(values.size, np.bool_)
    places = np.minimum(np.searchsorted(others, values), others.size - 1)
    is_there: Mask = others[places] == values
    return is_there


def _from_end(rows: Rows, since: int) -> Rows:
    """Return the sessions whose last row is not before an instant (µs)."""
    lasting = rows.ends >= since
    return rows if lasting.all() else rows.taken(np.flatnonzero(lasting))


# -- windows that end at every slide ---------------------------------------------------------------
# Windows that end at every slide, of one query or of several over the cells that they share.
#
# ``Slides`` cuts time into cells and says where windows end; ``SlideBatch`` is the work of a
# bucket.


@dataclass(frozen=True, slots=True)
class Slides:
    """The instants of windows, and the cells between them.

    Cells are cut where windows end and where they begin: where the length is no multiple of the
    slide, two cells make a slide, the second one ``cut`` µs after the first.
    """

    slide: int
    """µs."""
    length: int
    """µs; ``LONGEST`` if windows have no beginning."""
    origin: int
    """An instant at which a window ends (µs)."""

    @classmethod
    def from_window(cls, window: SlideWindow) -> Slides:
        """Return the slides of a window."""
        return cls(window.slide, window.length, window.origin % window.slide)

    @property
    def cut(self) -> int:
        """The place in each slide at which a window begins (µs); 0 if it is where one ends."""
        return 0 if self.length == LONGEST else -self.length % self.slide

    @classmethod
    def common(cls, windows: Sequence[SlideWindow]) -> Slides:
        """Return slides whose cells are cut at the edges of all of some windows, if not finer."""
        first, *_ = windows
        parts = [part for window in windows for part in (window.slide, window.length)]
        parts += [window.origin - first.origin for window in windows]
        width = math.gcd(*parts)
        longest = max(window.length for window in windows)
        return cls(width, longest, first.origin % width)

    def end_from(self, instant: int) -> int:
        """Return the first end of a window at an instant or after it (µs)."""
        return instant + (self.origin - instant) % self.slide

    def cell_of(self, instant: int) -> int:
        """Return the start of the cell of an instant (µs); the ends of time are their own cells."""
        if instant in (ALWAYS, FOREVER):
            return instant
        place = (instant - self.origin) % self.slide
        return instant - place + (self.cut if place >= self.cut else 0)

    def cells_of(self, instants: Ints) -> Ints:
        """Return the start of the cell of each of some instants (µs).

        Raises:
            AggregateError: an instant is too close to the beginning of time to be in a cell.
        """
        if instants.size and int(instants.min()) < ALWAYS + self.slide:
            msg = f"an event time is {int(instants.min())} µs from 1970, before which no window is"
            raise AggregateError(msg, micros=int(instants.min()))
        places = (instants - self.origin) % self.slide
        starts = instants - places
        if self.cut:
            starts[places >= self.cut] += self.cut
        return starts


@dataclass(frozen=True, slots=True)
class Due:
    """The windows that are answered in a batch; instants are in µs."""

    first: int
    """The end of the first."""
    last: int
    """The end of the last."""
    since: int
    """No window needs a cell that starts before."""
    common: tuple[int, int]
    """All windows have all cells that start in this half-open range."""


@dataclass(frozen=True)
class Level:
    """The queries that group alike; one query by itself is a level of its own."""

    kind: str
    """The name of the history of its cells."""
    number: int
    """The place of its groups among those that cells have codes of; see ``cells.coarser``."""
    shares: tuple[Share, ...]
    """The queries, one or more."""
    partials: dict[str, Monoid]
    """The columns of partial aggregates that they need."""

    @property
    def reach(self) -> Reach:
        """How far back the longest window looks."""
        return Reach(max(share.window.length for share in self.shares))


class SlideBatch(BucketBatch):
    """Windows that end at every slide: of one query, or of several over cells in common.

    The fresh cells are merged once for each level of groups. Of each level they are kept as far
    back as its own windows reach; cells that wait are kept once.
    """

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The windows of each query."""
        if self.plan.shares:
            return self.plan.shares
        assert isinstance(self.plan.window, SlideWindow)
        return (Share(self.plan.window, tuple(self.partials), self.plan.groups),)

    @cached_property
    def slides(self) -> Slides:
        """The cells, and the longest of the windows."""
        windows = [share.window for share in self.shares]
        return Slides.common(windows) if self.plan.shares else Slides.from_window(windows[0])

    @cached_property
    def levels(self) -> dict[int, Level]:
        """The levels of groups."""
        levels = {}
        for number in dict.fromkeys(share.level for share in self.shares):
            shares = tuple(share for share in self.shares if share.level == number)
            partials = {name: self.partials[name] for share in shares for name in share.wanted}
            kind = f"range {number}" if self.plan.shares else "range"
            levels[number] = Level(kind, number, shares, partials)
        return levels

    def answered(self, instant: int) -> int:
        """Return the start of the first cell that is not answered when time is at an instant."""
        return self.slides.cell_of(instant)

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of the windows that end after ``before`` and not after ``after``.

        Queries of a level that need the same files of before take their results out of the same
        cells, which are put in order once, for the one of them that looks back furthest.
        """
        alike: dict[Any, list[tuple[Due, int]]] = {}
        for place, share in enumerate(self.shares):
            level = self.levels[share.level]
            due = self.due(Slides.from_window(share.window), self._cells(level, fresh))
            if due is not None:
                files = self._history(level).files(due.since, due.common)
                names = tuple((file.name, is_whole) for file, is_whole in files)
                alike.setdefault((share.level, names), []).append((due, place))
        tables = []
        for (number, _), windows in alike.items():
            level = self.levels[number]
            furthest = min((due for due, _ in windows), key=attrgetter("since"))
            before = self._history(level).cells(furthest.since, furthest.common, None)
            cells = self.entries(before, self._cells(level, fresh))
            if cells is not None:
                tables += [self._results_of(place, due, cells) for due, place in windows]
        filled = [table for table in tables if table.num_rows]
        if filled:
            yield pa.concat_tables(filled, promote_options="default")

    def due(self, slides: Slides, fresh: Rows | None) -> Due | None:
        """Return the windows that are answered now, and the cells of before that they need."""
        before = self.plan.before
        if before == ALWAYS:
            if fresh is None:
                return None
            before = int(fresh.starts.min())
        first, last = slides.end_from(before + 1), self._last(slides, fresh)
        if first > last:
            return None
        start = first - slides.slide if self.plan.tells_old else first
        if slides.length == LONGEST:
            return Due(first, last, ALWAYS, (ALWAYS, start))
        return Due(first, last, start - slides.length, (last - slides.length, start))

    def _last(self, slides: Slides, fresh: Rows | None) -> int:
        """Return the last end of a window that is answered (µs)."""
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
        """Return the files of cells that a window of some query reaches back to."""
        after = self.plan.after
        if after == ALWAYS:
            return {}
        kept: dict[str, tuple[Span, ...]] = {}
        for level in self.levels.values():
            history, horizon = self._history(level), ALWAYS
            if not history.reach.is_all:
                horizon = min(
                    self._first_needed(Slides.from_window(share.window), after)
                    for share in level.shares
                )
            kept |= history.after(self._cells(level, fresh), horizon)
        return kept

    def _first_needed(self, slides: Slides, after: int) -> int:
        """Return the instant before which windows need no cells when time is at another (µs)."""
        back = slides.length + (slides.slide if self.plan.tells_old else 0)
        return slides.end_from(after + 1) - back

    def _history(self, level: Level) -> History:
        """Return the cells of before, kept as far back as the windows of a level reach."""
        return self.history(level.kind, level.reach, level.partials)

    def _cells(self, level: Level, fresh: Rows | None) -> Rows | None:
        """Return the fresh cells by the groups of a level, merged when they are first asked for."""
        if fresh is None or not self.plan.shares:
            return fresh
        if level.number not in self._merged:
            columns = [*level.shares[0].groups, *level.partials]
            self._merged[level.number] = coarser(fresh, level.number, columns, level.partials)
        return self._merged[level.number]

    @cached_property
    def _merged(self) -> dict[int, Rows]:
        return {}

    def _results_of(self, place: int, due: Due, cells: Rows) -> pa.Table:
        """Return the results of the windows of a query.

        Args:
            place: of the query; results of several say it, and lack columns of the others.
            due: the windows.
            cells: all that they need, in order; others do not matter.
        """
        share = self.shares[place]
        slides = Slides.from_window(share.window)
        length = -1 if slides.length == LONGEST else slides.length
        n_instants = (due.last - due.first) // slides.slide + 1
        facts = due.first, n_instants, slides.slide, length, self.plan.tells_old
        table = self.table(cells, *filled_ranges(slide_ranges, cells, *facts), share)
        if not self.plan.shares:
            return table
        if share.presence:
            counts = table[share.presence]
            table = table.filter(pc.greater(pc.fill_null(counts, 0), 0))
            if share.presence not in share.columns:
                table = table.drop_columns([share.presence])
        starts = pc.subtract(table[INSTANT], share.window.length)
        table = table.append_column(FIRST, starts)
        return table.append_column(PLACE, pa.array(np.full(table.num_rows, place, np.int32)))

"""Windows that end at every slide.

Several queries may share their cells. ``Slides`` cuts time into cells and says where windows end;
``SlideBatch`` is the work of a bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.bucket import BucketBatch, filled_ranges
from eddyline.aggregates.cells import Reach, Span, coarser
from eddyline.aggregates.plan import FIRST, INSTANT, PLACE, Share
from eddyline.aggregates.ranges_kernels import slide_ranges
from eddyline.errors import AggregateError
from eddyline.query.query import LONGEST, SlideWindow
from eddyline.state.rows import ALWAYS, FOREVER, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.aggregates.cells import History
    from eddyline.aggregates.monoids import Monoid
    from eddyline.data.arrays import Ints


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

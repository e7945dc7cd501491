"""Windows that end at every slide, of one query or of several over the cells that they share.

``Slides`` cuts time into cells and says where windows end; ``SlideBatch`` is the work of a bucket
for one query, ``SharedBatch`` for several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.bucket import BucketBatch, filled_ranges
from eddyline.aggregates.cells import Reach, Span, coarser
from eddyline.aggregates.plan import FIRST, INSTANT, PLACE
from eddyline.aggregates.ranges_kernels import slide_ranges
from eddyline.errors import AggregateError
from eddyline.query.query import LONGEST, SlideWindow
from eddyline.state.rows import ALWAYS, FOREVER, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eddyline.aggregates.cells import History
    from eddyline.aggregates.monoids import Monoid
    from eddyline.aggregates.plan import Share
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
    def of(cls, window: SlideWindow) -> Slides:
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
        parts = [part for each in windows for part in (each.slide, each.length)]
        parts += [each.origin - first.origin for each in windows]
        width = math.gcd(*parts)
        longest = max(each.length for each in windows)
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
        return self.slides.cell_of(instant)

    @property
    def _history(self) -> History:
        return self.history("range", Reach(self.slides.length), self.partials)

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of the windows that end after ``before`` and not after ``after``."""
        due = self.due(fresh)
        if due is None:
            return
        cells = self.entries(self._history.cells(due.since, due.common, None), fresh)
        if cells is not None:
            yield self.windows(due, cells)

    def due(self, fresh: Rows | None) -> Due | None:
        """Return the windows that are answered now, and the cells of before that they need."""
        before, slide = self.plan.before, self.slides.slide
        if before == ALWAYS:
            if fresh is None:
                return None
            before = int(fresh.starts.min())
        first, last = self.slides.end_from(before + 1), self._last(fresh)
        if first > last:
            return None
        start = first - slide if self.plan.tells_old else first
        if self.slides.length == LONGEST:
            return Due(first, last, ALWAYS, (ALWAYS, start))
        return Due(first, last, first - self.back, (last - self.slides.length, start))

    def windows(self, due: Due, cells: Rows) -> pa.Table:
        """Return the results of windows.

        Args:
            due: the windows.
            cells: all that they need, in order; others do not matter.
        """
        slides = self.slides
        length = -1 if slides.length == LONGEST else slides.length
        n_instants = (due.last - due.first) // slides.slide + 1
        facts = due.first, n_instants, slides.slide, length, self.plan.tells_old
        return self.table(cells, *filled_ranges(slide_ranges, cells, *facts))

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
        after = self.plan.after
        if after == ALWAYS:
            return {}
        is_all = self.slides.length == LONGEST
        horizon = ALWAYS if is_all else self.slides.end_from(after + 1) - self.back
        return self._history.after(fresh, horizon)


@dataclass(frozen=True)
class Level:
    """Those of several queries that group alike."""

    number: int
    """The place of their groups among those that cells have codes of; see ``cells.coarser``."""
    shares: tuple[Share, ...]
    """The queries, one or more."""
    partials: dict[str, Monoid]
    """The columns of partial aggregates that they need."""

    @classmethod
    def of(cls, number: int, shares: Sequence[Share], partials: Mapping[str, Monoid]) -> Level:
        """Return the level of some of all queries."""
        own = tuple(each for each in shares if each.level == number)
        return cls(number, own, {name: partials[name] for each in own for name in each.wanted})

    @property
    def kind(self) -> str:
        """The name of the history of its cells."""
        return f"range {self.number}"

    @property
    def reach(self) -> Reach:
        """How far back the longest window looks."""
        return Reach(max(each.window.length for each in self.shares))

    def cells(self, finest: Rows) -> Rows:
        """Return cells by the groups of the level, with the columns that it needs."""
        columns = [*self.shares[0].groups, *self.partials]
        return coarser(finest, self.number, columns, self.partials)

    def horizon(self, after: int) -> int:
        """Return the instant before which no window needs cells when time is at another (µs)."""
        windows = [Slides.of(each.window) for each in self.shares]
        return min(each.end_from(after + 1) - each.length for each in windows)


class SharedBatch(BucketBatch):
    """Windows of several queries over cells that they have in common.

    The fresh cells are merged once for each level of groups. Of each level they are kept as far
    back as its own windows reach; cells that wait are kept once.
    """

    @cached_property
    def slides(self) -> Slides:
        """The cells, and the longest of the windows."""
        return Slides.common([each.window for each in self.plan.shares])

    @cached_property
    def levels(self) -> dict[int, Level]:
        """The levels of groups."""
        numbers = dict.fromkeys(each.level for each in self.plan.shares)
        return {each: Level.of(each, self.plan.shares, self.partials) for each in numbers}

    def answered(self, instant: int) -> int:
        """Return the start of the first cell that is not answered when time is at an instant."""
        return self.slides.cell_of(instant)

    def results(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of all queries, each with the number of its own.

        Queries of a level that need the same files of before take their results out of the same
        cells, which are put in order once, for the one of them that looks back furthest.
        """
        alike: dict[Any, list[tuple[Due, ShareBatch]]] = {}
        for place, share in enumerate(self.plan.shares):
            task = self._task(place, share)
            due = task.due(self._cells(task.level, fresh))
            if due is not None:
                files = self._history(task.level).files(due.since, due.common)
                names = tuple((file.name, is_whole) for file, is_whole in files)
                alike.setdefault((task.level.number, names), []).append((due, task))
        found = []
        for tasks in alike.values():
            due, task = min(tasks, key=lambda each: each[0].since)
            history = self._history(task.level).cells(due.since, due.common, None)
            cells = self.entries(history, self._cells(task.level, fresh))
            if cells is not None:
                found += [each.results_of(due, cells) for due, each in tasks]
        filled = [each for each in found if each.num_rows]
        if filled:
            yield pa.concat_tables(filled, promote_options="default")

    def _history(self, level: Level) -> History:
        """Return the cells of before, kept as far back as the windows of a level reach."""
        return self.history(level.kind, level.reach, level.partials)

    def _task(self, place: int, share: Share) -> ShareBatch:
        """Return the windows of one query."""
        own = replace(self.plan, window=share.window, groups=share.groups, shares=())
        task = ShareBatch(own, self.place, self.state, self.report.bucket)
        task.number, task.share, task.level = place, share, self.levels[share.level]
        task.partials = {name: self.partials[name] for name in share.wanted}
        return task

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that a window of some query reaches back to."""
        after = self.plan.after
        if after == ALWAYS:
            return {}
        kept: dict[str, tuple[Span, ...]] = {}
        for each in self.levels.values():
            kept |= self._history(each).after(self._cells(each, fresh), each.horizon(after))
        return kept

    def _cells(self, level: Level, fresh: Rows | None) -> Rows | None:
        """Return the fresh cells by the groups of a level, merged when they are first asked for."""
        if fresh is None:
            return None
        if level.number not in self._merged:
            self._merged[level.number] = level.cells(fresh)
        return self._merged[level.number]

    @cached_property
    def _merged(self) -> dict[int, Rows]:
        return {}


class ShareBatch(SlideBatch):
    """Windows of one of several queries."""

    number: int
    """The place of the query."""
    share: Share
    """What it needs and gives."""
    level: Level
    """The queries that group as it does."""

    def results_of(self, due: Due, cells: Rows) -> pa.Table:
        """Return the results of its windows; columns that it does not need are missing."""
        found, share = self.windows(due, cells), self.share
        if share.presence:
            counts = found[share.presence]
            found = found.filter(pc.greater(pc.fill_null(counts, 0), 0))
            if share.presence not in share.columns:
                found = found.drop_columns([share.presence])
        starts = pc.subtract(found[INSTANT], share.window.length)
        found = found.append_column(FIRST, starts)
        return found.append_column(PLACE, pa.array(np.full(found.num_rows, self.number, np.int32)))

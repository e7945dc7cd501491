"""The work of one bucket for windows that end at every slide."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from eddyline.aggregates.bucket import BucketBatch, filled_ranges, kept_spans
from eddyline.aggregates.history import Reach, Span
from eddyline.aggregates.ranges_kernels import slide_ranges
from eddyline.aggregates.slides import Slides
from eddyline.query.query import LONGEST, SlideWindow
from eddyline.state.rows import ALWAYS, FOREVER, Rows

if TYPE_CHECKING:
    import pyarrow as pa


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
        return instant if instant in (ALWAYS, FOREVER) else self.slides.cell_of(instant)

    def results(self, fresh: Rows | None) -> pa.Table | None:
        """Return the results of the windows that end after ``before`` and not after ``after``."""
        due = self.due(fresh)
        if due is None:
            return None
        history = self.reached("range", Reach(self.slides.length))
        cells = self.entries(history.cells(due.since, due.common, None), fresh)
        return None if cells is None else self.windows(due, cells)

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
        history = self.reached("range", Reach(self.slides.length))
        after = self.plan.after
        if after == ALWAYS:
            return {}
        horizon = ALWAYS if history.reach.is_all else self.slides.end_from(after + 1) - self.back
        return kept_spans("range", history, fresh, horizon)

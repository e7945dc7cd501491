"""The work of one bucket for windows that end at every slide, of one query or of several."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.aggregates.bucket import BucketBatch, filled_ranges, kept_spans
from eddyline.aggregates.history import History, Reach, Span
from eddyline.aggregates.plan import FIRST, INSTANT, PLACE
from eddyline.aggregates.ranges_kernels import slide_ranges
from eddyline.aggregates.slides import Slides
from eddyline.query.windows import LONGEST, SlideWindow
from eddyline.state.rows import ALWAYS, FOREVER, Rows

if TYPE_CHECKING:
    from eddyline.aggregates.plan import Share


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

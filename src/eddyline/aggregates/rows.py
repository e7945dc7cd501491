"""Aggregates of each row over rows of its group up to it: the work of one bucket of OVER."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddyline.aggregates.bucket import BucketBatch, kept_spans, no_cells, with_ties
from eddyline.aggregates.cells import History, Reach, group_bounds, in_order, together
from eddyline.aggregates.ranges_kernels import row_ranges
from eddyline.data.arrays import whole
from eddyline.query.windows import LONGEST
from eddyline.state.rows import ALWAYS, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.aggregates.cells import Span
    from eddyline.aggregates.plan import Frame
    from eddyline.data.arrays import Mask

KINDS = ("range", "rows", "all")
"""Kinds of frames, each with cells of its own: by time, by number, and all rows so far."""


def reach_of(frame: Frame) -> Reach:
    """Return how far a frame looks back."""
    counts = frame.window.counts
    if counts is None:
        return Reach(frame.window.length)
    return Reach(LONGEST) if counts.rows >= LONGEST else Reach(n_rows=counts.rows)


def kind_of(frame: Frame) -> str:
    """Return the kind of a frame."""
    reach = reach_of(frame)
    return "rows" if reach.n_rows >= 0 else "all" if reach.is_all else "range"


class RowBatch(BucketBatch):
    """Rows are answered one by one, each with the values of all frames."""

    def fresh(self, due: list[Rows]) -> Rows | None:
        """Return the rows that are answered now, in order."""
        rows = self.ordered(due)
        return with_ties(rows, self.plan.ties) if rows is not None and self.plan.ties else rows

    def results(self, fresh: Rows | None) -> pa.Table | None:
        """Return the rows that are answered now with their values."""
        if fresh is None:
            return None
        partials = {name for frame in self.plan.frames for name in frame.partials.monoids}
        kept = [name for name in fresh.payload.column_names if name not in partials]
        found = fresh.payload.select(kept)
        for frame in self.plan.frames:
            for name, values in self._values(frame, fresh).items():
                found = found.append_column(name, values)
        return found

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of rows that frames of later rows reach back to."""
        found: dict[str, tuple[Span, ...]] = {}
        for kind in KINDS:
            if frames := [each for each in self.plan.frames if kind_of(each) == kind]:
                history = self._history(kind, frames)
                own = no_cells() if fresh is None else _with_only(fresh, list(history.partials))
                horizon = self.plan.after - history.reach.length if kind == "range" else ALWAYS
                found |= kept_spans(kind, history, own, horizon)
        return found

    def _history(self, kind: str, frames: Sequence[Frame]) -> History:
        """Return the rows of before that the frames of a kind need."""
        reaches = [reach_of(each) for each in frames]
        longest = max(reaches, key=lambda each: (each.length, each.n_rows))
        partials = {name: made for each in frames for name, made in each.partials.made.items()}
        return self.reached(kind, longest, partials)

    def _values(self, frame: Frame, fresh: Rows) -> dict[str, pa.Array]:
        """Return the values of a frame for each row."""
        reach, kind = reach_of(frame), kind_of(frame)
        frames = [each for each in self.plan.frames if kind_of(each) == kind]
        is_timed = kind == "range"
        first, last = int(fresh.starts.min()), int(fresh.starts.max())
        since = first - reach.length if is_timed else ALWAYS
        common = (last - reach.length if is_timed else ALWAYS, first)
        before = self._history(kind, frames).cells(max(since, ALWAYS), common, fresh)
        names = list(frame.partials.monoids)
        cells, is_new = _with_history(before, _with_only(fresh, names), names)
        self._n_read += len(cells) - len(fresh)
        ranges = np.empty((len(fresh), 2), np.int64)
        length, counts = reach.length if is_timed else -1, frame.window.counts
        n_rows = -1 if counts is None else counts.rows
        row_ranges(cells.starts, group_bounds(cells), is_new, length, n_rows, ranges)
        lo, hi = np.ascontiguousarray(ranges[:, 0]), np.ascontiguousarray(ranges[:, 1])
        made = frame.partials.made
        columns = {name: whole(cells.payload[name]) for name in names}
        return {
            name: made[source].value(columns[source], lo, hi)
            for name, source in frame.values.items()
        }


def _with_history(before: Sequence[Rows], fresh: Rows, names: Sequence[str]) -> tuple[Rows, Mask]:
    """Return rows of before and fresh ones in order, and which of them are fresh.

    Fresh ones are in the order in which they were: none of before stands between those of a group.
    """
    parts = [_with_only(each, names) for each in before if len(each)]
    marked = [_marked(each, is_new=False) for each in parts] + [_marked(fresh, is_new=True)]
    cells = in_order(together(marked))
    is_new = cells.payload["\0new"].to_numpy()
    payload = cells.payload.drop_columns(["\0new"])
    return Rows(cells.codes, cells.starts, cells.ends, payload), is_new


def _marked(rows: Rows, *, is_new: bool) -> Rows:
    mark = pa.array(np.full(len(rows), is_new))
    return Rows(rows.codes, rows.starts, rows.ends, rows.payload.append_column("\0new", mark))


def _with_only(rows: Rows, names: Sequence[str]) -> Rows:
    """Return rows with some of their columns."""
    return Rows(rows.codes, rows.starts, rows.ends, rows.payload.select(names))

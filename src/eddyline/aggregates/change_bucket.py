"""The work of one bucket for windows that change with every row."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from eddyline.aggregates.bucket import (
    BucketBatch,
    filled_ranges,
    kept_spans,
    no_cells,
    with_ties,
)
from eddyline.aggregates.cells import in_order, together
from eddyline.aggregates.history import Reach, Span
from eddyline.aggregates.ranges_kernels import change_ranges
from eddyline.query.windows import LONGEST
from eddyline.state.rows import ALWAYS, Rows

if TYPE_CHECKING:
    import pyarrow as pa


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
        return self.table(cells, *filled_ranges(change_ranges, cells, *facts))

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that windows of later batches reach back to."""
        is_timed = 0 <= self.reach.length < LONGEST
        horizon = self.plan.after - 1 - self.reach.length if is_timed else ALWAYS
        return kept_spans("changes", self.reached("changes", self.reach), fresh, horizon)

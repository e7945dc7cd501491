"""The work of one bucket for windows that change with every row."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eddyline.aggregates.bucket import BucketBatch, filled_ranges, kept_spans, no_cells
from eddyline.aggregates.cells import group_bounds
from eddyline.aggregates.history import Reach, Span
from eddyline.aggregates.ranges_kernels import change_ranges, instant_ranges
from eddyline.data.unique import distinct
from eddyline.query.query import LONGEST
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from eddyline.data.arrays import Ints
    from eddyline.state.rows import Rows

MOST_RESULTS = 2**20
"""Results that one table has, about; a table has those of one instant or more."""


class ChangeBatch(BucketBatch):
    """Windows that change with every row that comes or leaves."""

    @cached_property
    def reach(self) -> Reach:
        """How far windows look back."""
        return Reach(self.plan.window.length)

    @property
    def gives_all(self) -> bool:
        """Whether all groups are given at each instant at which rows come, in any of them."""
        return self.plan.emits == "rstream"

    def tables(self, fresh: Rows | None) -> Iterator[pa.Table]:
        """Yield the results of the instants at which a row comes or leaves."""
        cells = self.reached_back(fresh)
        if cells is None or (self.gives_all and fresh is None):
            return
        leaves = self.leaves(cells)
        if self.gives_all and fresh is not None:
            n_groups = group_bounds(cells).size - 1
            for asked in cut(instants_of(fresh), n_groups, MOST_RESULTS):
                yield self.table(cells, *filled_ranges(instant_ranges, cells, leaves, asked))
        else:
            facts = leaves, self.first_instant, self.plan.after
            yield self.table(cells, *filled_ranges(change_ranges, cells, *facts))

    @property
    def first_instant(self) -> int:
        """The first instant that is answered (µs)."""
        return max(self.plan.before, ALWAYS + 2)

    def reached_back(self, fresh: Rows | None) -> Rows | None:
        """Return the cells that windows have, in order; None if there is none."""
        since, until = self.first_instant, self.plan.after
        length, is_timed = self.reach.length, self.reach.length < LONGEST
        low, common = (since - 1 - length, until - 1 - length) if is_timed else (ALWAYS, ALWAYS)
        history = self.reached("changes", self.reach)
        new = no_cells() if fresh is None else fresh
        wanted, span = None if self.gives_all else new, (common, since)
        found = history.cells(max(low, ALWAYS), span, wanted, with_edges=is_timed)
        return self.entries(found, fresh)

    def leaves(self, cells: Rows) -> Ints:
        """Return the instant from which on each cell is in no window (µs)."""
        length = self.reach.length
        if length == LONGEST:
            return np.full(len(cells), FOREVER)
        last = FOREVER - length - 1
        return np.where(cells.starts > last, FOREVER, cells.starts + (length + 1))

    def history_after(self, fresh: Rows | None) -> dict[str, tuple[Span, ...]]:
        """Return the files of cells that windows of later batches reach back to."""
        is_timed = 0 <= self.reach.length < LONGEST
        horizon = self.plan.after - 1 - self.reach.length if is_timed else ALWAYS
        return kept_spans("changes", self.reached("changes", self.reach), fresh, horizon)


def instants_of(cells: Rows) -> Ints:
    """Return the instants at which cells start, each once and ascending (µs)."""
    return distinct(cells.starts)


def cut(instants: Ints, n_each: int, most: int) -> list[Ints]:
    """Return instants in parts, of which each brings so many or fewer if they bring ``n_each``.

    >>> [part.tolist() for part in cut(np.arange(5), 3, 7)]
    [[0, 1], [2, 3], [4]]
    """
    size = max(1, most // max(1, n_each))
    return [instants[at : at + size] for at in range(0, instants.size, size)]

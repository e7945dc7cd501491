"""Rows that were in a result and can be in no other one: they need not be in the hot tier.

Where every other input is found from a row by keys alone, the row is in one result at most (Yes of
a root, which [Babu05 6.3.1] never stores). What was in a result when its batch ended is written
apart, as a cold run; of older rows those are looked for that are to be written again anyway, when
their runs are merged. So no row is written more often than it was. A key that comes again in a
later window finds its rows in the cold tier, as any late partner does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.joins.operator.composites import Composites
from eddyline.joins.operator.pipeline import Pipeline
from eddyline.joins.operator.probe_counts import JoinWork

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from eddyline.joins.graph import JoinGraph
    from eddyline.state.rows import SortedRun

BLOCK_ROWS = 65_536
"""Rows that are looked up at once."""


class MatchedRows:
    """Takes note of which new rows of some inputs are in results.

    Args:
        covers: the inputs.
        windows: the runs of each input before the batch.
        news: the new rows.
    """

    def __init__(
        self,
        covers: Collection[str],
        windows: Mapping[str, Sequence[SortedRun]],
        news: Mapping[str, SortedRun],
    ) -> None:
        mine = [name for name in news if name in covers]
        self._firsts = {name: sum(map(len, windows[name])) for name in mine}
        self.masks = {name: np.zeros(len(news[name]), np.bool_) for name in mine}
        """By input, which of its new rows were in a result."""
        self.n_old = dict.fromkeys(covers, 0)
        """Results with an older row of each input."""

    def found(self, joined: Composites) -> None:
        """Take note of results."""
        for name in self.n_old:
            rows, first = joined.rows[name], self._firsts.get(name)
            if first is None:
                self.n_old[name] += rows.size
                continue
            fresh = rows[rows >= first] - first
            self.masks[name][fresh] = True
            self.n_old[name] += rows.size - fresh.size


def matched_of(
    graph: JoinGraph,
    name: str,
    order: Sequence[str],
    windows: Mapping[str, Sequence[SortedRun]],
    run: SortedRun,
) -> NDArray[np.bool_]:
    """Return which rows of a run have been in a result.

    Args:
        graph: the join.
        name: the input whose rows they are.
        order: the other inputs, in the order in which they are looked up.
        windows: the runs of the others, with the new ones.
        run: the rows.
    """
    mask, pipeline = np.zeros(len(run), np.bool_), Pipeline(graph, name, order, windows, JoinWork())
    for start in range(0, len(run), BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, len(run)))
        found = pipeline.run(Composites.from_rows(name, run, rows, 0))
        if found is not None:
            mask[found.rows[name]] = True
    return mask

"""Repartitioning: the runs that each bucket starts from after the grid has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.state.bucket_state import BucketState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eddyline.state.grid import Grid
    from eddyline.state.rows import Rows
    from eddyline.state.run_files import RunFile

Buckets = dict[int, BucketState]
"""The state of each bucket, by its number; an empty one may be missing."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Origin of the runs of a batch, if another grid made them."""

    grid: Grid
    """That other grid."""
    buckets: Mapping[str, int]
    """The bucket of each run there, by its name."""

    @classmethod
    def of(cls, before: Grid, buckets: Buckets, grid: Grid) -> Moved | None:
        """Return the origin of the runs of buckets; None if the grid is the same."""
        if before == grid:
            return None
        places = {
            file.name: bucket
            for bucket, state in buckets.items()
            for name in state.runs.keys() | state.cold.keys()
            for file in state.all_runs(name)
        }
        return cls(before, places)

    def taken(self, grid: Grid, bucket: int, name: str, run: str, rows: Rows) -> Rows:
        """Return the rows of a run that belong to a bucket now; each is taken from one run."""
        is_mine = grid.holds(bucket, name, rows.codes, rows.starts)
        is_mine &= self.grid.is_first(self.buckets[run], name, rows.codes, rows.starts)
        return rows.taken(np.flatnonzero(is_mine))


def buckets_for(
    grid: Grid, before: Grid, buckets: Buckets, classes_of: Mapping[str, Collection[int]]
) -> Buckets:
    """Return the state that each bucket of a grid starts from.

    State in the order of event time is never moved: it is in one bucket, and that of every grid.
    """
    if before == grid:
        return buckets
    every: dict[str, tuple[RunFile, ...]] = {}
    dropped: dict[str, tuple[RunFile, ...]] = {}
    for name, classes in classes_of.items():
        states = [buckets[number] for number in before.once(classes) if number in buckets]
        every[name] = tuple(file for state in states for file in state.all_runs(name))
        if gone := tuple(file for state in states for file in state.dropped.get(name, ())):
            dropped[name] = gone
    # What is known of dropped rows cannot be cut: where keys of other buckets are in it, too, they
    # are not asked for, or there are more rows of a key than there were, never fewer.
    return dict.fromkeys(range(grid.n_buckets), BucketState(every, dropped=dropped))

"""Repartitioning: the runs that each bucket starts from after the grid has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eddyline.state.grid import Grid
    from eddyline.state.manifest import Manifest, Windows
    from eddyline.state.rows import Rows
    from eddyline.state.run_files import RunFile


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the runs of a batch come from, if another grid made them."""

    grid: Grid
    """That other grid."""
    buckets: Mapping[str, int]
    """The bucket of each run there, by its name."""

    @classmethod
    def of(cls, before: Manifest, grid: Grid) -> Moved | None:
        """Return where the runs of a manifest come from; None if they are those of a grid."""
        if before.grid == grid:
            return None
        buckets = {
            file.name: bucket
            for bucket, inputs in before.windows.items()
            for files in inputs.values()
            for file in files
        }
        return cls(before.grid, buckets)

    def taken(self, grid: Grid, bucket: int, name: str, run: str, rows: Rows) -> Rows:
        """Return the rows of a run that belong to a bucket now; each is taken from one run.

        Args:
            grid: that of the batch.
            bucket: in that grid.
            name: the input.
            run: the name of the run.
            rows: its rows.
        """
        is_mine = grid.holds(bucket, name, rows.codes, rows.starts)
        is_mine &= self.grid.is_first(self.buckets[run], name, rows.codes, rows.starts)
        return rows.taken(np.flatnonzero(is_mine))


def windows_for(grid: Grid, before: Manifest, classes_of: Mapping[str, Collection[int]]) -> Windows:
    """Return the runs that each bucket of a grid starts from.

    Args:
        grid: that of the batch.
        before: what the windows hold before it.
        classes_of: the key classes of each input.
    """
    if before.grid == grid:
        return before.windows
    every: dict[str, tuple[RunFile, ...]] = {}
    for name, classes in classes_of.items():
        buckets = before.grid.once(classes)
        windows = (before.windows.get(bucket, {}).get(name, ()) for bucket in buckets)
        every[name] = tuple(file for files in windows for file in files)
    return dict.fromkeys(range(grid.n_buckets), every)
